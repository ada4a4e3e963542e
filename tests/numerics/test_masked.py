"""Classes masked with −∞: they have probability 0, and leave value and gradient finite."""

import pytest
import torch
from torch.nn import functional as F

from evalign import checked, losses
from tests import tolerances

LOSSES = {
    "AlignedLoss": lambda: losses.AlignedLoss("f1_macro"),
    "LogitAdjustedLoss": lambda: losses.LogitAdjustedLoss([1, 2, 3]),
    "FocalLoss": losses.FocalLoss,
    "FocalLoss, γ = 0.5": lambda: losses.FocalLoss(0.5, class_weight=[1, 2, 3]),
    "MAELoss": losses.MAELoss,
    "MetricLoss": lambda: losses.MetricLoss("f1_macro"),
    "MetricLoss, matrix": lambda: losses.MetricLoss("cohen_kappa_linear"),
    "DiceLoss": losses.DiceLoss,
    "SoftFBetaLoss": lambda: losses.SoftFBetaLoss(average="macro"),
    "SigmoidF1Loss": losses.SigmoidF1Loss,
    "LovaszSoftmaxLoss": losses.LovaszSoftmaxLoss,
    "AUROCLoss": losses.AUROCLoss,
    "AveragePrecisionLoss": losses.AveragePrecisionLoss,
}
BINARY = {
    "AlignedLoss": lambda: losses.AlignedLoss("f1"),
    "LogitAdjustedLoss": lambda: losses.LogitAdjustedLoss([1, 2]),
    "FocalLoss": losses.FocalLoss,
    "MAELoss": losses.MAELoss,
    "MetricLoss": lambda: losses.MetricLoss("f1"),
    "SurrogateFBetaLoss": lambda: losses.SurrogateFBetaLoss(0.3),
    "SurrogateFBetaLoss, q": lambda: losses.SurrogateFBetaLoss(0.3, q=0.4),
    "AUROCLoss": losses.AUROCLoss,
    "AveragePrecisionLoss": losses.AveragePrecisionLoss,
    "WMWLoss": losses.WMWLoss,
}
MASKED = -1e4  # as good as −∞ in a softmax, and finite in every product


def rows():
    """Six rows, of which the second and the last have a class ruled out that is not theirs."""
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 0, 1, 2])
    return logits, target, torch.ones(6, dtype=torch.float64)


def run(make, logits, target, weight):
    logits = logits.clone().requires_grad_()
    value = make()(logits, target, sample_weight=weight)
    value.backward()
    return value.detach(), logits.grad


def assert_as_finite(make, logits, target, weight):
    """Value and gradient with −∞ are those with a very low logit in its place."""
    value, gradient = run(make, logits, target, weight)
    low = logits.clamp(MASKED, -MASKED)
    expected, expected_gradient = run(make, low, target, weight)
    assert expected.isfinite()
    torch.testing.assert_close(value, expected, rtol=0, atol=tolerances.SAME)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=tolerances.SAME)


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_a_class_that_is_not_the_target(make):
    logits, target, weight = rows()
    logits[1, 0] = logits[5, 1] = -torch.inf
    logits[2, :2] = -torch.inf  # all but the target
    assert_as_finite(make, logits, target, weight)


@pytest.mark.parametrize("mistake", [-torch.inf, torch.nan])
@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_a_row_without_weight(make, mistake):
    """As torch's cross-entropy leaves out the rows of its ignore_index, whatever their logits."""
    logits, target, weight = rows()
    logits[0], logits[3, 0] = mistake, mistake
    target[0], weight[3] = -100, 0
    value, gradient = run(make, logits, target, weight)
    keep = torch.tensor([1, 2, 4, 5])
    expected, expected_gradient = run(make, logits[keep], target[keep], weight[keep])
    torch.testing.assert_close(value, expected, rtol=0, atol=tolerances.SAME)
    torch.testing.assert_close(gradient[keep], expected_gradient, rtol=0, atol=tolerances.SAME)
    assert (gradient[[0, 3]] == 0).all()


@pytest.mark.parametrize("mistake", [-torch.inf, torch.nan])
@pytest.mark.parametrize("make", [losses.DiceLoss, lambda: losses.MetricLoss("f1", task="binary")])
def test_a_row_that_does_not_count_may_hold_anything_where_values_are_checked(make, mistake):
    logits, target = torch.randn(6, 2, 4), torch.ones(6, 4, dtype=torch.int64)
    weight = torch.ones(6)
    logits[0], logits[3, :, 1] = mistake, mistake
    weight[0], target[3, 1] = 0, -100
    with checked():
        assert make()(logits, target, sample_weight=weight).isfinite()
        weight[0] = 1
        with pytest.raises(ValueError, match=r"logits of .* must be finite"):
            make()(logits, target, sample_weight=weight)


@pytest.mark.parametrize("make", [*list(LOSSES.values())[:7], losses.DiceLoss])
def test_a_class_that_has_no_share_of_a_soft_target(make):
    logits, target, weight = rows()
    target = 0.8 * F.one_hot(target, 3) + 0.2 * F.one_hot(torch.arange(6) % 2, 3)
    logits[0, 2] = logits[3, 2] = -torch.inf

    def fresh():
        module = make()
        module.task = "multiclass"
        return module

    assert_as_finite(fresh, logits, target, weight)


@pytest.mark.parametrize("make", BINARY.values(), ids=BINARY)
def test_sure_binary_rows(make):
    logits = torch.tensor([0.3, -torch.inf, torch.inf, -0.2, -torch.inf], dtype=torch.float64)
    target, weight = torch.tensor([1, 0, 1, 0, 1]), torch.tensor([1.0, 1, 1, 1, 0]).double()
    assert_as_finite(make, logits, target, weight)


def test_the_target_itself_is_infinitely_wrong_as_in_torch():
    logits, target, weight = rows()
    logits[1, 1] = -torch.inf
    assert F.cross_entropy(logits, target).isposinf()
    for name in ("AlignedLoss", "LogitAdjustedLoss", "FocalLoss"):
        assert LOSSES[name]()(logits, target, sample_weight=weight).isposinf()
