"""What the library advises is said in options of the command line."""

import math
import re
import warnings

import numpy as np
import pytest

from evalign import MetricLoss
from evalign.cli.errors import in_options
from evalign.cli.labels import Labels
from evalign.cli.terminal import terminal
from evalign.decisions import fit_decision
from evalign.estimator.answers import Answers
from evalign.estimator.evidence import Wanted
from evalign.estimator.rows import LabelledRows
from evalign.training.advice import advice, batch_advice
from tests.unit.training.test_advice import RARE, records

PYTHON = re.compile(r"\w=|\w\(|_data|_state|_norm|patience|temperature|AlignedLoss|learning rate")


def library():
    """Advice of each kind that a fit may give."""
    for size in (100, 1000):
        yield batch_advice(MetricLoss("f1_macro"), RARE, size)
    drift = records([1 - 0.01 * i for i in range(12)], [1 - 0.05 * i for i in range(12)])
    stuck = [record | {"collapsed": True, "gradient_norm": 0.0} for record in drift]
    diverged = records([math.nan], [0.5])
    for history in (drift, stuck, diverged):
        yield from (text for _, text in advice(history, greater_is_better=True))
    few = Answers(
        np.eye(2)[[0, 0, 1]],
        "predict_proba",
        np.array([0, 0, 1]),
        None,
        np.zeros(3, dtype=np.int64),
        np.arange(3),
    )
    yield Wanted("f1", "tuned", None, ["0", "1"]).doubt(few)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        y, classes = np.array([0, 0, 1]), np.arange(2)
        LabelledRows(np.zeros((3, 1)), y, np.ones(3), None).parts(0.2, 0, None, 0, classes)
        y, groups = np.array([0, 1] * 3 + [0] * 6), np.arange(12) // 6
        rows = LabelledRows(np.zeros((12, 1)), y, np.ones(12), None)
        rows.parts(0.5, 0, groups, 0, classes)
        apart = LabelledRows(np.zeros((12, 1)), groups, np.ones(12), None)
        with pytest.raises(ValueError, match="random_state") as refused:
            apart.parts(0.5, 0, groups, 0, classes)
    yield from (str(warning.message) for warning in told)
    yield str(refused.value)


def test_no_words_of_python():
    texts = [text for text in library() if text is not None]
    assert len(texts) == 11
    for text in texts:
        assert PYTHON.search(text) or '(decision "expected")' in text, text
        assert not PYTHON.search(in_options(text)), in_options(text)
        assert in_options(text).endswith(".")


def test_a_loss_that_drifts_is_not_said_to_need_the_recipe_that_it_may_be_of():
    drift = records([1 - 0.01 * i for i in range(12)], [1 - 0.05 * i for i in range(12)])
    [(_, text)] = advice(drift, greater_is_better=True)
    assert in_options(text).endswith("for the metric here. The epoch with the best metric is kept.")


@pytest.mark.filterwarnings("always:The rule of")
def test_a_promise_is_a_note_of_classes_by_their_names(capsys):
    y = np.array([0, 1] * 20)
    given = {"metric": "precision", "constraint": "recall >= 0.99", "confidence": 0.95}
    with terminal(as_json=False, quiet=False), Labels("label", ("no", "yes")).spoken_of():
        fit_decision(y=y, probabilities=np.eye(2)[y] * 0.8 + 0.1, **given)
    said = capsys.readouterr().err
    assert said.startswith("Note: The rule does not promise its constraint")
    assert "rows of class 'yes'" in said
    assert said.endswith("or a lower --confidence.\n")
