"""Confusions to and from torchmetrics, and the same scores on both sides."""

import pytest
import torch
from torchmetrics.classification import MulticlassF1Score
from torchmetrics.functional.classification import (
    confusion_matrix,
    f1_score,
    multilabel_confusion_matrix,
    multilabel_f1_score,
)

from evalign import Confusion, MetricLoss, metrics
from tests import tolerances

GENERATOR = torch.Generator().manual_seed(0)
ROWS = 50


def labels(*shape, classes):
    return torch.randint(classes, shape, generator=GENERATOR)


def same(confusion, other):
    for part in ("tp", "predicted", "actual", "total"):
        torch.testing.assert_close(getattr(confusion, part), getattr(other, part), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("task", "classes", "metric"), [("binary", 2, "f1"), ("multiclass", 4, "f1_macro")]
)
def test_exclusive_classes_go_there_and_back(task, classes, metric):
    predicted, target = labels(ROWS, classes=classes), labels(ROWS, classes=classes)
    matrix = confusion_matrix(predicted, target, task, num_classes=classes)
    confusion = Confusion.from_matrix(matrix)
    ours = Confusion.from_predictions(predicted, target, num_classes=classes, matrix=True)
    same(confusion, ours)
    assert torch.equal(ours.matrix.long(), matrix)
    score = metrics.resolve(metric)(confusion)
    expected = f1_score(predicted, target, task, num_classes=classes, average="macro").double()
    torch.testing.assert_close(score, expected, rtol=0, atol=tolerances.TORCHMETRICS)


def test_labels_go_there_and_back():
    """torchmetrics has (labels, 2, 2); here a label is a binary problem of its own."""
    predicted, target = (labels(ROWS, 3, classes=2) for _ in range(2))
    (tn, fp), (fn, tp) = multilabel_confusion_matrix(predicted, target, num_labels=3).permute(
        1, 2, 0
    )
    tn, fp, fn, tp = (part.double() for part in (tn, fp, fn, tp))
    confusion = Confusion(tp, tp + fp, tp + fn, tn + fp + fn + tp, multilabel=True)
    ours = Confusion.from_predictions(predicted, target, task="multilabel")
    same(confusion, ours)
    back = torch.stack([ours.tn, ours.fp, ours.fn, ours.tp], -1).view(3, 2, 2)
    assert torch.equal(back.long(), multilabel_confusion_matrix(predicted, target, num_labels=3))
    score = metrics.resolve("f1_macro")(confusion)
    expected = multilabel_f1_score(predicted, target, num_labels=3, average="macro").double()
    torch.testing.assert_close(score, expected, rtol=0, atol=tolerances.TORCHMETRICS)


def test_a_metric_that_counts_labels_is_not_a_loss():
    with pytest.raises(TypeError, match=r"metric of MetricLoss must .* give the name: \"f1_macro"):
        MetricLoss(MulticlassF1Score(num_classes=3))
