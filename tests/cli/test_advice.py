"""What the library advises is said in options of the command line."""

import math
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evalign import MetricLoss
from evalign.cli.app import run
from evalign.cli.errors import OWN_WORDS
from evalign.cli.labels import Labels
from evalign.cli.terminal import terminal
from evalign.core.metrics import resolve
from evalign.decisions import fit_decision
from evalign.decisions.fit import check_promise
from evalign.estimator import FrameEncoder
from evalign.estimator.evidence import RuleSettings
from evalign.estimator.out_of_fold import OutOfFoldScores
from evalign.estimator.rows import LabelledRows
from evalign.estimator.targets import Targets, warn_of_lost
from evalign.training.advice import advice, batch_advice
from tests.unit.training.test_advice import RARE, records

PYTHON = re.compile(
    r"\w=|\w\(|evalign\.|\(decision|_data|_state|_norm|patience|temperature|learning rate|"
    r"a lower confidence|an array|folds\b|None"
)
Y = np.array([0, 1] * 20)
PROMISE: Any = {"y": Y, "probabilities": np.eye(2)[Y] * 0.8 + 0.1, "metric": "precision"}
PROMISE |= {"constraint": "recall >= 0.99", "confidence": 0.95}


def library():
    """Advice of each kind that a fit may give."""
    yield batch_advice(MetricLoss("f1_macro"), RARE, 100)
    drift = records([1 - 0.01 * i for i in range(12)], [1 - 0.05 * i for i in range(12)])
    stuck = [record | {"collapsed": True, "gradient_norm": 0.0} for record in drift]
    diverged = records([math.nan], [0.5])
    for history in (drift, stuck, diverged):
        yield from (text for _, text in advice(history, greater_is_better=True))
    few = OutOfFoldScores(
        np.eye(2)[[0, 0, 1]],
        "predict_proba",
        np.array([0, 0, 1]),
        None,
        np.zeros(3, dtype=np.int64),
        np.arange(3),
    )
    yield RuleSettings("f1", "tuned", None, ["0", "1"]).doubt(few)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        y, classes = np.array([0, 0, 1]), np.arange(2)
        LabelledRows(np.zeros((3, 1)), y, np.ones(3), None).parts(0.2, 0, None, 0, classes)
        y, groups = np.array([0, 1] * 3 + [0] * 6), np.arange(12) // 6
        rows = LabelledRows(np.zeros((12, 1)), y, np.ones(12), None)
        rows.parts(0.5, 0, groups, 0, classes)
        fit_decision(**PROMISE)
        FrameEncoder().fit(pd.DataFrame({"few": [*range(12)], "x": groups}))
        targets, _ = Targets.of(y)
        warn_of_lost(targets, y, [(np.flatnonzero(y == 0), np.flatnonzero(y == 1))])
        apart = LabelledRows(np.zeros((12, 1)), groups, np.ones(12), None)
        with pytest.raises(ValueError, match="every class") as refused:
            apart.parts(0.5, 0, groups, 0, classes)
    yield from (str(warning.message) for warning in told)
    yield str(refused.value)
    with pytest.raises(ValueError, match="confidence") as refused:
        check_promise("fit", "tuned", None, 0.9)
    yield str(refused.value)
    with pytest.raises(ValueError, match="confidence") as refused:
        check_promise("fit", "expected", "recall >= 0.9", 0.9)
    yield str(refused.value)
    for metric in ("roc_auc", "expected_cost"):
        with pytest.raises(ValueError, match="a name of metrics") as refused:
            resolve(metric)
        yield str(refused.value).split(". ", 2)[2]


def test_no_words_of_python():
    for text in (plain := list(map(str, library()))):
        assert PYTHON.search(text), text
    with terminal(as_json=False, quiet=False):
        told = list(map(str, library()))
    for text in told:
        assert not PYTHON.search(text), text
        assert text.endswith(".")
    assert len(told) == len(plain)
    for words in OWN_WORDS.values():
        assert any(words in text for text in told), words


@pytest.mark.parametrize(("recipe", "named"), [("aligned", False), ("east", True)])
@pytest.mark.usefixtures("usual_networks")
def test_a_recipe_is_advised_where_it_is_not_in_use(tmp_path, capsys, recipe, named):
    """Labels that chance alone gave, one class of them rare, so that all rows get the other."""
    rng = np.random.default_rng(0)
    rows = [f"{x:.3f},{'yes' if i % 50 == 0 else 'no'}" for i, x in enumerate(rng.normal(size=300))]
    (tmp_path / "rare.csv").write_text("\n".join(["x,label", *rows]))
    given = [tmp_path / "rare.csv", "--target", "label", "--out", tmp_path / "run"]
    given += ["--model", "network", "--no-baseline", "--metric", "accuracy", "--recipe", recipe]
    assert run(["fit", *map(str, given), "--epochs", "6"]) == 0
    said = capsys.readouterr().err
    assert "predicted as one class for 5 epochs" in said
    assert ("--recipe aligned" in said) == named


def test_a_promise_is_a_note_of_classes_by_their_names(capsys):
    with terminal(as_json=False, quiet=False), Labels("label", ("no", "yes")).spoken_of():
        fit_decision(**PROMISE)
    said = capsys.readouterr().err
    assert said.startswith("Note: The rule does not promise its constraint")
    assert "rows of class 'yes'" in said
    assert said.endswith("or a lower --confidence.\n")
