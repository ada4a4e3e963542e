"""Gradients against finite differences, in float64 and away from kinks."""

import pytest
import torch

from evalign import MetricLoss
from evalign.core.heaviside import tempered
from tests import tolerances
from tests.contract.cases import CASES, METRIC_CASES, data


# A random continuous logit lies within the step of a kink with a probability of about 1e-5; with
# these seeds none does. With fewer rows some class ranks no better than by chance; there the
# losses over thresholds hand on the slope of another area, which is not that of their value.
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_gradcheck(case):
    logits, target = data(case.task, rows=24, seed=11)
    weight = torch.linspace(0.5, 2, 24, dtype=torch.float64)
    loss = case.make()
    assert torch.autograd.gradcheck(
        lambda z: loss(z, target, sample_weight=weight),
        logits.requires_grad_(),
        **tolerances.GRADCHECK,
    )


@pytest.mark.parametrize("temperature", [0.02, 0.3, 0.4])
@pytest.mark.parametrize("case", [c for c in METRIC_CASES if c.id in ("f1", "f1_macro")], ids=repr)
def test_gradcheck_at_other_temperatures(case, temperature):
    logits, target = data(case.task, rows=9, seed=12)
    loss = case.make(temperature=temperature)
    assert torch.autograd.gradcheck(lambda z: loss(z, target), logits.requires_grad_())


@pytest.mark.parametrize("temperature", [0.05, 0.2, 0.4])
def test_detached_threshold_is_a_constant(temperature):
    """Its gradient is that of the loss whose threshold is frozen where it is; both differ from
    the default, which differentiates the threshold too."""
    logits, target = data("multiclass", rows=9, seed=13)
    logits.requires_grad_()
    frozen = logits.softmax(1).topk(2).values.mean(1, keepdim=True).detach()

    def gradient(**settings):
        loss = MetricLoss("f1_macro", temperature=temperature, **settings)
        return torch.autograd.grad(loss(logits, target), logits)[0]

    detached = gradient(detach_threshold=True)
    at_frozen = gradient(heaviside=lambda p, _: tempered(p, frozen, temperature=temperature))
    torch.testing.assert_close(detached, at_frozen, rtol=0, atol=tolerances.SAME)
    assert (gradient() - detached).abs().max() > 1e-6  # not rounding
