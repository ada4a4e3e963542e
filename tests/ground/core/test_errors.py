"""Errors of the core for bad input: the argument, what is allowed, what came, and the cure."""

import math
import re
import sys

import numpy as np
import pytest

from evalign import Confusion, metrics
from evalign.core.values import weights_of_rows

LABELS = np.array([0, 1, 2, 1])
INDICATORS = np.array([[True, False], [True, True]])
THREE = Confusion.from_matrix(1 + np.eye(3))
OF_LABELS = Confusion.from_predictions(np.eye(3) > 0, np.eye(3) > 0)


def scores(*shape):
    return np.random.default_rng(0).normal(size=shape)


# name: (action, error, full text)
FULL = {
    # Labels and weights.
    "weight of predictions": (
        lambda: Confusion.from_predictions(LABELS, LABELS, sample_weight=np.ones(3)),
        ValueError,
        "sample_weight of Confusion.from_predictions must have shape (4,). Got (3,).",
    ),
    "weight of predictions of tokens": (
        lambda: Confusion.from_predictions(
            LABELS.reshape(2, 2), LABELS.reshape(2, 2), sample_weight=np.ones(4)
        ),
        ValueError,
        "sample_weight of Confusion.from_predictions must have shape (2,) or (2, 2). Got (4,).",
    ),
    "negative weight of predictions": (
        lambda: Confusion.from_predictions(LABELS, LABELS, sample_weight=-np.ones(4)),
        ValueError,
        "sample_weight of Confusion.from_predictions must be finite and not negative. Got -1.0. "
        "A weight of 0 leaves a row out.",
    ),
    "weight that is no number": (
        lambda: Confusion.from_predictions(LABELS, LABELS, sample_weight=[1, 1, math.nan, 1]),
        ValueError,
        "sample_weight of Confusion.from_predictions must be finite and not negative. Got nan. "
        "A weight of 0 leaves a row out.",
    ),
    "weights in words": (
        lambda: Confusion.from_predictions(LABELS, LABELS, sample_weight=["one"] * 4),
        TypeError,
        "sample_weight of Confusion.from_predictions must be an array, a tensor or a list of "
        "numbers. Got list.",
    ),
    "weights of another number of rows": (
        lambda: weights_of_rows("test", [1.0, 2.0], 3),
        ValueError,
        "sample_weight of test must have shape (3,). Got (2,).",
    ),
    "a class index that would fill the memory": (
        lambda: Confusion.from_predictions([0, 10**12], [0, 1]),
        ValueError,
        "num_classes of Confusion.from_predictions must be given where a class below the largest "
        "label does not occur. Got labels up to 1000000000000, of which 3 occur. A label that is "
        "not a class is left out by ignore_index=1000000000000.",
    ),
    "probabilities in the place of true labels": (
        lambda: Confusion.from_predictions(np.ones((4, 3), bool), np.full((4, 3), 0.75)),
        ValueError,
        "target of Confusion.from_predictions must hold 0 and 1 only. Got 0.75. "
        "Pass labels, e.g. target > 0.5; predictions come first.",
    ),
    "predictions of another shape": (
        lambda: Confusion.from_predictions(scores(4, 3), LABELS),
        ValueError,
        "predictions of Confusion.from_predictions must have the shape of target, (4,). Got "
        "(4, 3). Pass labels, e.g. logits.argmax(1).",
    ),
    "float predictions": (
        lambda: Confusion.from_predictions(scores(4), LABELS),
        TypeError,
        "predictions of Confusion.from_predictions must be integer labels. Got float64. "
        "Pass labels, e.g. logits.argmax(1) or target.astype(int).",
    ),
    "labels of one dimension": (
        lambda: Confusion.from_predictions(LABELS, LABELS, task="multilabel"),
        ValueError,
        "predictions of Confusion.from_predictions must have shape (N, L) or (N, L, ...) for a "
        "multilabel task. Got (4,).",
    ),
    "unknown task": (
        lambda: Confusion.from_predictions(LABELS, LABELS, task="segmentation"),
        ValueError,
        'task of Confusion.from_predictions must be "binary", "multiclass", "multilabel" or None '
        "(inferred from the shapes). Got 'segmentation'.",
    ),
    "labels whose positives are ignored": (
        lambda: Confusion.from_predictions(INDICATORS, INDICATORS, ignore_index=1),
        ValueError,
        "ignore_index of Confusion.from_predictions must be neither 0 nor 1 for a float or "
        "multilabel target, which holds them. Got 1. Mark what to leave out by another value, "
        "such as -100.",
    ),
    # Matrices.
    "matrix that is not square": (
        lambda: Confusion.from_matrix(np.ones((2, 3))),
        ValueError,
        "matrix of Confusion.from_matrix must be square. Got (2, 3).",
    ),
    "ragged matrix": (
        lambda: Confusion.from_matrix([[1, 2], [3]]),
        TypeError,
        "matrix of Confusion.from_matrix must be an array, a tensor or a list of numbers. Got "
        "list.",
    ),
    "matrix of words": (
        lambda: Confusion.from_matrix([["a", "b"], ["c", "d"]]),
        TypeError,
        "matrix of Confusion.from_matrix must be an array, a tensor or a list of numbers. Got "
        "list.",
    ),
    # Settings of metrics.
    "zero_division of 2": (
        lambda: metrics.FBeta(zero_division=2),
        ValueError,
        "zero_division of FBeta must be 0, 1 or nan. Got 2.",
    ),
    "unknown average": (
        lambda: metrics.Recall(average="samples"),
        ValueError,
        "average of Recall must be one of binary, macro, micro, weighted or None. Got 'samples'.",
    ),
    "labels twice": (
        lambda: metrics.Recall(average="macro", labels=(1, 0, 1)),
        ValueError,
        "labels of Recall must hold class indices, each once. Got (1, 0, 1).",
    ),
    "unknown weights of kappa": (
        lambda: metrics.CohenKappa(weights="cubic"),
        ValueError,
        'weights of CohenKappa must be None, "linear" or "quadratic". Got \'cubic\'.',
    ),
    "costs that are not square": (
        lambda: metrics.ExpectedCost([[0, 1, 2], [1, 0, 2]]),
        ValueError,
        "cost of ExpectedCost must be a square matrix of finite numbers. Got [[0, 1, 2], "
        "[1, 0, 2]].",
    ),
    "beta of 0": (
        lambda: metrics.FBeta(beta=0),
        ValueError,
        "beta of FBeta must lie from 1e-9 to 1e9. Got 0.",
    ),
    "negative beta of a class": (
        lambda: metrics.FBeta(beta=[1, -1], average="macro"),
        ValueError,
        "beta of FBeta must lie from 1e-9 to 1e9. Got [1, -1].",
    ),
    "beta per class, pooled": (
        lambda: metrics.FBeta(beta=[1, 2], average="micro"),
        ValueError,
        'average of FBeta must not be "micro" with a beta per class. Got "micro". Use one beta '
        "for all.",
    ),
    # Metrics of another problem.
    "binary metric of 3 classes": (
        lambda: metrics.resolve("f1")(THREE),
        ValueError,
        "classes of f1 must be two. Got 3 classes. Use f1_macro, f1_micro or f1_weighted.",
    ),
    "slopes of a binary metric of 3 classes": (
        lambda: metrics.resolve("f1").slopes(THREE),
        ValueError,
        "classes of f1 must be two. Got 3 classes. Use f1_macro, f1_micro or f1_weighted.",
    ),
    "MCC of labels": (
        lambda: metrics.resolve("matthews_corrcoef")(OF_LABELS),
        ValueError,
        "confusion of MatthewsCorrcoef must come from mutually exclusive classes. Got 3 labels. "
        'Use an averaged metric such as "f1_macro" or "jaccard_micro".',
    ),
    "labels that are no classes": (
        lambda: metrics.Recall(average="macro", labels=(1, 3))(THREE),
        ValueError,
        "labels of Recall must be classes from 0 to 2. Got (1, 3).",
    ),
    "costs of another problem": (
        lambda: metrics.resolve("expected_cost[[0, 1], [5, 0]]")(THREE),
        ValueError,
        "cost of ExpectedCost must have a row and a column for each of the 3 classes. Got 2 x 2.",
    ),
    "beta per class of another problem": (
        lambda: metrics.FBeta(beta=[1, 2], average="macro")(THREE),
        ValueError,
        "beta of FBeta must be one number or one per class (3). Got 2 numbers.",
    ),
    # Functions.
    "metric that returns a vector": (
        lambda: metrics.resolve(lambda c: c.tp, owner="fit"),
        TypeError,
        "metric of fit must return one number. Got shape (64,) for 64 classes. Reduce it with "
        ".mean() or .sum(), and do not call .item().",
    ),
    "metric that returns text": (
        lambda: metrics.resolve(lambda c: "good", owner="fit"),
        TypeError,
        "metric of fit must return one number. Got str. Reduce it with .mean() or .sum(), and do "
        "not call .item().",
    ),
    "metric of labels": (
        lambda: metrics.resolve(lambda y_true, y_pred: 1.0, owner="fit"),
        TypeError,
        "metric of fit must be a name, a metric or a function of one Confusion. Got FUNCTION. Of a "
        'function of labels, such as scikit-learn\'s, give the name: "f1_macro".',
    ),
    "function of tensors alone": (
        lambda: metrics.resolve(lambda c: c.tp.double().sum(), owner="fit")(THREE),
        TypeError,
        "metric of fit must be a function that runs on NumPy arrays, which this call gives "
        "it. Got AttributeError(\"'numpy.ndarray' object has no attribute 'double'\"). Use "
        "operators and what both libraries share, as in c.tp.sum() / c.total.",
    ),
    "average=None as a metric": (
        lambda: metrics.resolve(metrics.Recall(average=None), owner="fit"),
        ValueError,
        'metric of fit must be one number. Got average=None. Use average="macro".',
    ),
}


@pytest.mark.parametrize("case", FULL)
def test_error(case):
    action, error, text = FULL[case]
    with pytest.raises(error) as caught:
        action()
    assert re.sub(r"<function .* at 0x\w+>", "FUNCTION", str(caught.value)) == text


@pytest.mark.parametrize("argument", ["predictions", "target"])
def test_labels_of_from_predictions_are_not_explained_by_logits(argument):
    """There are no logits, and a prediction is not a label to be ignored."""
    labels = {"predictions": LABELS, "target": LABELS, argument: [0, 1, 2, 255]}
    with pytest.raises(ValueError, match=f"^{argument} of .* from 0 to 2 .* Got 255\\.") as caught:
        Confusion.from_predictions(**labels, num_classes=3)
    assert "logits" not in str(caught.value)
    assert ("ignore_index" in str(caught.value)) == (argument == "target")


def test_scores_in_the_place_of_labels_of_many():
    with pytest.raises(ValueError, match=r"^predictions of Confusion\.from_pre.* 0 and 1 only"):
        Confusion.from_predictions(scores(4, 3), np.zeros((4, 3)))


def test_every_complaint_has_the_shape():
    """The shape is: which argument of what must be what. Got what."""
    shape = re.compile(r"^\w+ of [\w.]+ must .+\. Got .+\.", re.DOTALL)
    for _, _, text in FULL.values():
        assert shape.match(text), text


def test_without_torch_a_confusion_of_logits_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError) as caught:
        Confusion.from_logits(scores(4, 3), LABELS)
    text = "Confusion.from_logits needs PyTorch: pip install 'evalign[torch]'"
    assert str(caught.value) == text
