"""What is probably a mistake is warned of, with what to write instead; what is right is silent."""

import re

import numpy as np
import pytest

import evalign
from evalign import Confusion
from evalign.core import input_warnings
from evalign.core.input_warnings import rows_of_probabilities, warn_of_layout, warn_of_one_hot


def drawn(*shape):
    return np.random.default_rng(0).normal(size=shape)


def labels(classes, *shape):
    return np.random.default_rng(1).integers(classes, size=shape)


def softmax(logits):
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(1, keepdims=True)


ONE_HOT = np.eye(3)[[0, 2, 1, 1] * 5]
PAIR = np.eye(3)[[0, 2]] + np.eye(3)[[1, 1]]
# name: (action, the telling parts)
WARNED = {
    "a logit a pixel": (
        lambda: warn_of_layout("test", (2, 6, 5), (2, 6, 5)),
        ["test, (2, 6, 5)", "6 classes or labels in", "logits.unsqueeze(1)", "class_dim=-1"],
    ),
    "one pixel in the last dimension": (
        lambda: warn_of_layout("test", (2, 3, 4, 1), (2, 3, 4, 1)),
        ["test, (2, 3, 4, 1)", "3 classes or labels in"],
    ),
    "as many tokens as classes": (
        lambda: warn_of_layout("test", (2, 4, 4), (2, 4)),
        ["4 classes or labels in", "class_dim=1, or class_dim=-1"],
    ),
    "as many tokens as classes, of a rule": (
        lambda: evalign.fit_decision(drawn(9, 4, 4), labels(4, 9, 4), metric="f1_macro"),
        ["fit_decision", "class_dim=-1"],
    ),
    "one-hot rows": (
        lambda: warn_of_one_hot("test", ONE_HOT),
        ["test holds exactly one 1", "target.argmax(1)", 'task="multilabel"'],
    ),
    "one-hot rows, bool": (
        lambda: warn_of_one_hot("test", ONE_HOT > 0, "labels", else_pass=", or say so"),
        ["labels of test holds exactly one 1", "labels.argmax(1)", ", or say so."],
    ),
    "one-hot rows of a rule": (
        lambda: evalign.fit_decision(drawn(20, 3), ONE_HOT, metric="f1_macro"),
        ["y of fit_decision holds exactly one 1", "y.argmax(1)", 'task="multilabel"'],
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_a_doubt_is_told_with_its_cure(case):
    action, parts = WARNED[case]
    with pytest.warns(UserWarning, match=re.escape(parts[0])) as told:
        action()
    (warning,) = told
    assert [part for part in parts if part not in str(warning.message)] == []
    assert warning.filename == __file__  # the line to change, not one of evalign


# Every warning is silent when its cure is taken, and where only one meaning is left.
SILENT = {
    "rows of classes": lambda: warn_of_layout("test", (4, 4), (4,)),
    "a class dimension": lambda: warn_of_layout("test", (2, 1, 6, 5), (2, 1, 6, 5)),
    "labels of images": lambda: warn_of_layout("test", (2, 3, 4, 5), (2, 3, 4, 5)),
    "other tokens than classes": lambda: warn_of_layout("test", (2, 4, 5), (2, 5)),
    "images of other sizes": lambda: warn_of_layout("test", (2, 4, 4, 5), (2, 4, 5)),
    "two labels a row": lambda: warn_of_one_hot("test", PAIR[[0, 1] * 10]),
    "few one-hot rows": lambda: warn_of_one_hot("test", ONE_HOT[:19]),
    "halves that sum to 1": lambda: warn_of_one_hot("test", np.full((20, 2), 0.5)),
    "one logit for each token": lambda: evalign.fit_decision(
        drawn(6, 1, 5), labels(2, 6, 1, 5).astype(float), metric="f1"
    ),
    "classes of tokens": lambda: Confusion.from_predictions(
        labels(2, 4, 3), labels(2, 4, 3), num_classes=2
    ),
    "three classes of tokens": lambda: Confusion.from_predictions(labels(3, 4, 3), labels(3, 4, 3)),
    "masks of classes": lambda: Confusion.from_predictions(labels(2, 2, 4, 4), labels(2, 2, 4, 4)),
    "rule, classes last": lambda: evalign.fit_decision(
        drawn(9, 4, 4), labels(4, 9, 4), metric="f1_macro", class_dim=-1
    ),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_is_said_is_not_doubted(case):
    SILENT[case]()  # a warning is an error here


def test_a_warning_may_be_of_another_kind():
    with pytest.warns(FutureWarning, match="^what is told$") as told:
        input_warnings.warn("what is told", FutureWarning)
    assert told[0].filename == __file__


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_what_are_rows_of_probabilities(dtype):
    p = softmax(drawn(50, 7))
    assert rows_of_probabilities(p.astype(dtype))
    assert not rows_of_probabilities(np.log(p).astype(dtype))
    assert not rows_of_probabilities((2 * p).astype(dtype))
    off = p + 0.01 * (np.arange(50) == 3)[:, None]
    assert not rows_of_probabilities(off.astype(dtype))
    assert not rows_of_probabilities(np.full((5, 4), 0.25, dtype))  # as a network begins at zero
    assert not rows_of_probabilities(p[:0].astype(dtype))
    assert not rows_of_probabilities(np.where(p == p[3, 0], np.nan, p).astype(dtype))
