"""Saved classifiers that somebody made: checksums are right, what they hold is not."""

import math
import re

import pytest
import torch

from evalign import AlignedClassifier
from evalign.training import CheckpointError, checkpoint
from tests.estimator.models import imbalanced

X, Y = imbalanced(120, classes=3)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = AlignedClassifier(
        network="mlp",
        validation_fraction=0.2,
        epochs=1,
        device="cpu",
        decision="argmax",
        random_state=0,
    )
    model.fit(X, Y).save(folder)
    return checkpoint.load(folder)


def put(tree, path, value):
    """A copy of the tree with another value at a dotted path; None of a key removes it."""
    first, _, rest = path.partition(".")
    changed = dict(tree)
    if rest:
        changed[first] = put(tree[first], rest, value)
    elif value is ...:
        del changed[first]
    else:
        changed[first] = value
    return changed


MEAN = torch.zeros(X.shape[1], dtype=torch.float64)
CASES = [
    *((name, value) for name in ("arguments", "rule", "network", "scaler", "classes")
      for value in (..., None, 3, "text", [], {})),
    ("functions", ...),
    ("functions", [["network"]]),
    ("functions", ["nosuch"]),
    ("seed", ...),
    ("seed", "0"),
    ("seed", 10**30),
    ("features", ...),
    ("features", None),
    ("features.given", ["x0"]),
    ("features.columns", []),
    *(("features.columns", [column] + [
        {"kind": "number", "name": f"x{i}", "fill": 0.0, "gaps": False} for i in range(1, 4)])
      for column in (
        {"kind": "nosuch", "name": "x0"},
        {"kind": "number", "name": "x0"},
        {"kind": "number", "name": "x0", "fill": math.nan, "gaps": False},
        {"kind": "number", "name": "x0", "fill": 0.0, "gaps": True},  # a column more
        {"kind": "boolean", "name": "x0", "gaps": 2},
        {"kind": "category", "name": "x0", "levels": ["a", "a"], "rare": []},
        {"kind": "category", "name": "x0", "levels": [str(i) for i in range(10**5)], "rare": []},
        {"kind": "date", "name": "x0", "parts": ["week"], "fill": [0.0], "gaps": False,
         "utc": False},
        {"kind": "date", "name": "x0", "parts": ["year"], "fill": [], "gaps": False, "utc": False},
      )),
    ("classes", list(range(10**5))),
    ("classes", [2, 1, 0]),
    ("classes_dtype", "nosuch"),
    ("arguments.dropout", "much"),
    ("arguments.metric", ...),
    ("arguments.class_weight", [[1]]),
    ("arguments.nosuch", 1),
    ("rule.gain", [[math.nan] * 3] * 3),
    ("rule.gain", [[1.0, 0.0], [0.0, 1.0]]),
    ("rule.gain", [1.0, 2.0, 3.0]),
    ("rule.decision", "nosuch"),
    ("rule.offsets", [math.nan] * 3),
    ("rule.nosuch", 1),
    ("scaler.mean", MEAN + math.nan),
    ("scaler.mean", MEAN[:1]),
    ("scaler.scale", MEAN + math.inf),
    ("scaler.scale", MEAN - 1),
    ("scaler.scale", ...),
    ("network.0.weight", ...),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), CASES, ids=lambda case: str(case)[:30])
def test_a_wrong_tree_is_refused_in_one_line(tree, tmp_path, path, value):
    if path == "network.0.weight":
        changed = put(
            tree, "network", {k: v for k, v in tree["network"].items() if k != "0.weight"}
        )
    else:
        changed = put(tree, path, value)
    checkpoint.save(tmp_path / "model", changed)
    with pytest.raises(CheckpointError) as refused:
        AlignedClassifier.load(tmp_path / "model")
    assert "\n" not in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_folder_of_an_older_version_says_so(tree, tmp_path):
    checkpoint.save(tmp_path / "model", put(tree, "version", ...))
    with pytest.raises(CheckpointError, match=r"of format 1, this is 3\. Load it"):
        AlignedClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("network", "auto", "must be that of fit, 'linear'. Got 'auto'. Set it back, or fit again"),
        ("network", torch.nn.Linear, "must be that of fit, 'linear'. Got <class"),
        ("dropout", "much", "must lie in [0, 1)"),
        ("pos_label", 7, "must be None, or one of two classes"),
    ],
)
def test_arguments_that_could_not_be_loaded_are_not_saved(tmp_path, name, value, text):
    clf = AlignedClassifier(network="linear", epochs=1, device="cpu", random_state=0)
    clf.fit(X, Y == 1).set_params(**{name: value})
    with pytest.raises(ValueError, match=re.escape(text)):
        clf.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
    clf.set_params(network="linear", dropout=None, pos_label=None).save(tmp_path / "model")
    again = AlignedClassifier.load(tmp_path / "model")
    again.set_params(network="mlp")
    with pytest.raises(ValueError, match="must be that of fit, 'linear'"):
        again.save(tmp_path / "more")
