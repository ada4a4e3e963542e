"""The loss of earlier records has the values that it had when they were made."""

import math

import pytest
import torch
from evalign_study.refuted.counted import CountedLoss, offsets_from_counts

from tests import tolerances

# By name: the arguments, the shape of logits, the classes (0: labels), and what the library's
# AlignedLoss gave for them in its last version with counts: the loss of a second batch, and the
# norm of its gradient.
CASES = {
    "two classes": (("f1", [90, 10]), {}, (40, 2), 2, 1.396232133916095, 0.1750463985802485),
    "slower, heavier": (
        ("f1_macro", [50, 30, 1]),
        {"momentum": 0.3, "metric_weight": 2.0},
        (40, 3),
        3,
        3.1525997870764693,
        0.22177812655883533,
    ),
    "matrix, balanced": (
        ("matthews_corrcoef", [50, 30, 20]),
        {"class_weight": "balanced"},
        (40, 3),
        3,
        2.680732001273201,
        0.19695759511071537,
    ),
    "batch": (
        ("f2_macro", [50, 30, 20]),
        {"momentum": 1.0},
        (40, 3),
        3,
        2.4713538403359636,
        0.18870993652390147,
    ),
    "labels": (
        ("f1_macro", [[50, 30], [9999, 1], [1, 7]]),
        {},
        (40, 3),
        0,
        1.4241258577848153,
        0.06898846034422113,
    ),
    "clipped": (("recall", [90, 10]), {}, (40, 2), 2, 3.8333813960032606, 0.2220277479740379),
    "pixels": (
        ("jaccard_macro", [50, 30, 2]),
        {},
        (3, 3, 4, 5),
        3,
        2.1914024112096784,
        0.1468281167390688,
    ),
    "images": (
        ("jaccard_macro", [50, 30, 2]),
        {"per_image": True, "class_weight": [1, 2, 3]},
        (3, 3, 4, 5),
        3,
        2.4682108036574846,
        0.14877444022093494,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_before(name):
    arguments, settings, shape, classes, value, norm = CASES[name]
    loss = CountedLoss(*arguments, task="multiclass" if classes else "multilabel", **settings)
    for seed in (0, 1):
        random = torch.Generator().manual_seed(seed)
        z = torch.randn(shape, generator=random, dtype=torch.float64, requires_grad=True)
        if classes:
            y = torch.randint(0, classes, (shape[0], *shape[2:]), generator=random)
        else:
            y = (torch.rand(shape, generator=random) < 0.3).double()
        found = loss(z, y)
    (slope,) = torch.autograd.grad(found, z)
    assert found.item() == pytest.approx(value, rel=tolerances.SAME)
    assert slope.norm().item() == pytest.approx(norm, rel=tolerances.SAME)


def test_offsets_are_their_formula():
    counts = torch.tensor([90.0, 10.0], dtype=torch.float64)
    half = 0.55 / 2  # F1 of the half-skilled classifier is ½ + ½ · 0.1, and the threshold F/2
    found = offsets_from_counts("f1", counts).diff().item()
    assert found == pytest.approx(math.log(half / (1 - half)), rel=tolerances.SAME)
    balanced = offsets_from_counts("balanced_accuracy", counts)
    torch.testing.assert_close(balanced, (counts / 90).log())
    assert offsets_from_counts("recall", counts).diff().item() == pytest.approx(-math.log(1e4))
