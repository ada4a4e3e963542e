"""With two classes EAST is BtG at τ = ½: two probabilities have the mean ½, which is then τ.

EAST's step at T = 0.2 is also BtG's at δ = 0.2, for every τ.
"""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evalign import MetricLoss, metrics
from evalign.membership import heaviside
from tests.theorems import btg
from tests.tolerances import SAME

BTG = partial(btg.linear, delta=0.2)
NAMES = ["f1", "f1_macro", "jaccard_weighted", "specificity", "matthews_corrcoef", "g_mean"]
COST = metrics.ExpectedCost([[0, 1], [5, 0]])


def batch(seed):
    """Make logits of two classes, labels and weights."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(50, 2, generator=generator, dtype=torch.float64)
    target = (torch.rand(50, generator=generator) < 0.3).long()
    return logits, target, torch.rand(50, generator=generator, dtype=torch.float64)


def value_and_gradient(loss, logits, target, weight):
    logits = logits.clone().requires_grad_()
    value = loss(logits, target, sample_weight=weight)
    return value.item(), *torch.autograd.grad(value, logits)


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=SAME, atol=SAME)


@pytest.mark.parametrize("metric", [*NAMES, COST], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_two_classes_are_btg_at_one_half(metric, seed):
    logits, target, weight = batch(seed)
    east = MetricLoss(metric, temperature=0.2)
    of_btg = MetricLoss(metric, heaviside=BTG, threshold=0.5)
    value, slope = value_and_gradient(east, logits, target, weight)
    difference = logits[:, 1] - logits[:, 0]
    expected, single = value_and_gradient(of_btg, difference, target, weight)
    assert value == pytest.approx(expected, abs=SAME)
    assert_same(slope, torch.stack([-single, single], 1))
    assert single.abs().max() > 1e-4  # there is something to compare


@pytest.mark.parametrize("temperature", [0.4, 0.2, 0.01])
def test_two_classes_are_a_binary_problem_at_any_temperature(temperature):
    # The two probabilities always sum to 1: τ is constant, attached or not.
    logits, target, weight = batch(seed=3)
    two = MetricLoss("f1", temperature=temperature)
    one = MetricLoss("f1", temperature=temperature)
    value, slope = value_and_gradient(two, logits, target, weight)
    expected, single = value_and_gradient(one, logits[:, 1] - logits[:, 0], target, weight)
    assert value == pytest.approx(expected, abs=SAME)
    torch.testing.assert_close(
        slope, torch.stack([-single, single], 1), rtol=SAME, atol=SAME * single.abs().max().item()
    )


@given(st.floats(0.01, 0.99), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_steps_agree_at_two_tenths_for_every_threshold(tau, values):
    p = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    tempered, linear = heaviside.tempered(p, tau, temperature=0.2), BTG(p, tau)
    assert_same(tempered, linear)
    slopes = [torch.autograd.grad(h.sum(), p)[0] for h in (tempered, linear)]
    assert_same(*slopes)
