"""The scale of weights: only their ratios count."""

import pytest
import torch

from evalign import losses
from tests import tolerances

LOGITS = torch.linspace(-2, 2, 8)
TARGET = torch.tensor([0, 1, 0, 0, 1, 0, 1, 1])


@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15, 1e30, 3e37])
def test_pairs_of_large_weights_do_not_overflow(scale):
    loss, weight = losses.WMWLoss(), torch.linspace(0.5, 2, 8)
    expected_logits, logits = (LOGITS.clone().requires_grad_() for _ in range(2))
    expected = loss(expected_logits, TARGET, sample_weight=weight)
    value = loss(logits, TARGET, sample_weight=scale * weight)
    assert value.item() == pytest.approx(expected.item(), rel=tolerances.FLOAT32)
    expected.backward()
    value.backward()
    torch.testing.assert_close(
        logits.grad, expected_logits.grad, rtol=tolerances.FLOAT32, atol=tolerances.FLOAT32_SUM
    )
