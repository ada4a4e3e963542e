"""Memberships: the reference, the shape of a row, the gradient through the threshold."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from evalign.membership import batch, heaviside, soft_sets
from tests import tolerances
from tests.reference import membership as reference

# Where the ramp is not steeper than 1 / (2.5e-3 · τ), H keeps ten digits of p's sixteen.
temperatures = st.one_of(st.just(0.4), st.floats(1e-3, 0.4))
thresholds = st.floats(0.02, 0.98)
kinds = st.sampled_from(["linear", "sigmoid"])
logit = st.floats(-8, 8)
rows = st.integers(2, 6).flatmap(
    lambda classes: st.lists(st.lists(logit, min_size=classes, max_size=classes), min_size=1)
)


def tensor(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def assert_same(actual, expected, tolerance=tolerances.SAME):
    expected = torch.as_tensor(np.asarray(expected), dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def away_from_slivers(p, tau, temperature):
    """Tell whether no p lies on an outer segment that is steep because T is near 0.4.

    There H climbs by 0.4 over a width down to 1e-6·min(τ, 1 − τ), and the last digit of p, which
    two ways to compute it do not share, is the tenth of H.
    """
    p, tau = np.asarray(p), np.asarray(tau)
    nearer = np.minimum(tau, 1 - tau)
    outer = max(1 - 2.5 * temperature, 1e-6)
    if outer > 1e-2:
        return True
    low, high = (tau - nearer) + outer * nearer, (1 - tau - nearer) + outer * nearer
    on_the_left = (p < 2 * low) & (low < 1e-2)
    on_the_right = (1 - p < 2 * high) & (high < 1e-2)
    return not (on_the_left | on_the_right).any()


# The reference.


@given(st.lists(logit, min_size=1), thresholds, temperatures, kinds)
def test_binary_is_the_references(logits, tau, temperature, kind):
    h = reference.heaviside_at(temperature, kind)
    p = [reference.sigmoid_function(z) for z in logits]
    assume(kind == "sigmoid" or away_from_slivers(p, tau, temperature))
    soft = soft_sets.binary(tensor(logits), threshold=tau, temperature=temperature, heaviside=kind)
    assert_same(soft, reference.binary(logits, tau, h), tolerances.REFERENCE)


@given(rows, temperatures, kinds)
def test_multiclass_is_the_references(logits, temperature, kind):
    h = reference.heaviside_at(temperature, kind)
    p = [reference.softmax(row) for row in logits]
    taus = [[reference.dynamic_threshold(row)] for row in p]
    assume(kind == "sigmoid" or away_from_slivers(p, taus, temperature))
    soft = soft_sets.multiclass(tensor(logits), temperature=temperature, heaviside=kind)
    assert_same(soft, reference.multiclass(logits, h), tolerances.REFERENCE)


@given(rows, st.data(), temperatures, kinds)
def test_multilabel_is_the_references(logits, data, temperature, kind):
    labels = len(logits[0])
    taus = data.draw(st.one_of(thresholds, st.lists(thresholds, min_size=labels, max_size=labels)))
    h = reference.heaviside_at(temperature, kind)
    p = [[reference.sigmoid_function(z) for z in row] for row in logits]
    assume(kind == "sigmoid" or away_from_slivers(p, taus, temperature))
    soft = soft_sets.binary(
        tensor(logits), threshold=tensor(taus), temperature=temperature, heaviside=kind
    )
    assert_same(soft, reference.multilabel(logits, taus, h), tolerances.REFERENCE)


# The shape of a row.


@given(rows, temperatures, kinds)
def test_multiclass_rows_sum_to_one(logits, temperature, kind):
    soft = soft_sets.multiclass(tensor(logits), temperature=temperature, heaviside=kind)
    assert_same(soft.sum(-1), np.ones(len(logits)))
    assert (soft >= 0).all()


@given(rows, temperatures, kinds)
def test_the_largest_logit_has_the_largest_membership(logits, temperature, kind):
    logits = tensor(logits)
    soft = soft_sets.multiclass(logits, temperature=temperature, heaviside=kind)
    best = soft.gather(-1, logits.argmax(-1, keepdim=True)).squeeze(-1)
    assert_same(best, soft.amax(-1))


@given(rows, st.randoms(use_true_random=False), temperatures)
def test_multiclass_follows_a_permutation_of_the_classes(logits, random, temperature):
    order = list(range(len(logits[0])))
    random.shuffle(order)
    p = [reference.softmax(row) for row in logits]
    taus = [[reference.dynamic_threshold(row)] for row in p]
    assume(away_from_slivers(p, taus, temperature))
    soft = soft_sets.multiclass(tensor(logits), temperature=temperature)
    permuted = soft_sets.multiclass(tensor(logits)[:, order], temperature=temperature)
    assert_same(permuted, soft[:, order], tolerances.REFERENCE)


@given(rows, st.floats(-100, 100))
def test_multiclass_does_not_see_a_constant(logits, constant):
    soft = soft_sets.multiclass(tensor(logits))
    assert_same(soft_sets.multiclass(tensor(logits) + constant), soft, tolerances.REFERENCE)


def test_ties_share_the_row():
    soft = soft_sets.multiclass(tensor([[3.0, 3.0, -9.0], [1.0, 1.0, 1.0]]), temperature=1e-9)
    assert_same(soft, [[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]], tolerances.LIMIT)


@given(st.lists(logit, min_size=1), temperatures)
def test_two_classes_are_a_binary_problem(logits, temperature):
    """d = 2: τ is always ½, so the row is (1 − h, h) with h the binary membership of z1 − z0."""
    p = [reference.sigmoid_function(z) for z in logits]
    assume(away_from_slivers(p, 0.5, temperature))
    pair = torch.stack([torch.zeros(len(logits), dtype=torch.float64), tensor(logits)], -1)
    soft = soft_sets.multiclass(pair, temperature=temperature)
    assert_same(
        soft[:, 1], soft_sets.binary(tensor(logits), temperature=temperature), tolerances.REFERENCE
    )


# Options.


@pytest.mark.parametrize("of", [soft_sets.binary, soft_sets.multiclass])
def test_step_may_be_any_function(of):
    """It is called with probabilities and a threshold, and does not depend on the temperature."""
    logits = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(6, 2)

    def step(p, tau):
        return heaviside.tempered(p, tau)

    for temperature in (0.2, 0.01):
        soft = of(logits, heaviside=step, temperature=temperature)
        assert_same(soft, of(logits, temperature=0.2))


def test_of_batch_serves_every_task():
    logits = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(6, 2)
    zeros = torch.zeros(6, dtype=torch.int64)
    cases = [
        (soft_sets.binary, batch.as_batch("test", logits[:, 0], zeros)),
        (soft_sets.multiclass, batch.as_batch("test", logits, zeros)),
        (soft_sets.binary, batch.as_batch("test", logits, logits > 0)),
    ]
    for memberships, rows in cases:
        soft = soft_sets.of_batch("test", rows, temperature=0.1)
        assert soft.equal(memberships(rows.logits, temperature=0.1))
        assert soft.shape == rows.logits.shape


# Gradients.


CLOSE = [[0.3, 0.25, 0.2]]  # at T = 0.05, all three on the ramp


def first(logits, **kwargs):
    """Return the membership in the first class."""
    return soft_sets.multiclass(logits, temperature=0.05, **kwargs)[0, 0]


def gradient(**kwargs):
    logits = tensor(CLOSE).requires_grad_()
    return torch.autograd.grad(first(logits, **kwargs), logits)[0]


def test_gradient_flows_through_the_dynamic_threshold():
    step = 1e-6
    differences = [
        (first(tensor(CLOSE) + step * shift) - first(tensor(CLOSE) - step * shift)) / (2 * step)
        for shift in torch.eye(3, dtype=torch.float64)
    ]
    assert_same(gradient(), [differences], tolerances.DIFFERENCE)


EXTREMES = [
    [[0.0, 0.0, 0.0]],
    [[1e4, -1e4, 0.0]],
    [[1e4, 1e4, -1e4]],
    [[-1e4, -1e4, -1e4]],
    [[3.0, 3.0, -2.0]],
    [[88.0, -88.0, 40.0]],
    [[1e-30, -1e-30, 0.0]],
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["linear", "sigmoid"])
def test_value_and_gradient_are_finite_for_extreme_logits(kind, dtype):
    for values, temperature in itertools.product(EXTREMES, (1e-40, 1e-30, 1e-9, 0.2, 0.4)):
        for memberships in (soft_sets.multiclass, soft_sets.binary):
            logits = tensor(values, dtype).requires_grad_()
            soft = memberships(logits, temperature=temperature, heaviside=kind)
            (soft * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
            assert soft.isfinite().all()
            assert logits.grad.isfinite().all()


@pytest.mark.parametrize("threshold", [1 - 1e-9, 1e-40])
def test_threshold_that_float32_rounds_to_an_end(threshold):
    """It lies between 0 and 1, as required, but no float32, or almost none, lies beyond it."""
    logits = torch.tensor([200.0, 1.0, 0.0, -1.0, -200.0], requires_grad=True)
    soft = soft_sets.binary(logits, threshold=torch.tensor(threshold, dtype=torch.float64))
    soft.sum().backward()
    assert soft.isfinite().all()
    assert logits.grad.isfinite().all()
