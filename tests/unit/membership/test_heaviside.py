"""The Heaviside approximations: their points, their slopes, their limits."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from evalign.membership import heaviside
from tests import dtype_tolerances, tolerances
from tests.reference import membership as reference

DTYPES = [torch.float32, torch.float64]
TAUS = [1e-4, 0.01, 0.05, 0.3, 0.5, 0.7, 0.95, 0.99, 0.9999]
TEMPERATURES = [1e-30, 1e-9, 1e-3, 0.1, 0.2, 0.39, 0.3999999, 0.4]

probabilities = st.floats(0, 1)
thresholds = st.floats(1e-3, 1 - 1e-3)
temperatures = st.one_of(st.just(0.4), st.floats(1e-9, 0.4))


def tensor(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def half_width(tau, temperature):
    return 2.5 * temperature * min(tau, 1 - tau)


# Values.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("tau", TAUS)
def test_steps_meet_their_ends_and_their_middle(tau, temperature, dtype):
    tau = tensor(tau, dtype)
    p = torch.stack([torch.zeros_like(tau), tau, torch.ones_like(tau)])
    assert heaviside.tempered(p, tau, temperature=temperature).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1e-3, 0.2, 0.4])
def test_half_precision_meets_the_middle_of_small_thresholds(temperature, dtype):
    for tau in (tensor(value, dtype) for value in (1e-3, 0.05, 0.95)):
        p = torch.stack([torch.zeros_like(tau), tau, torch.ones_like(tau)])
        h = heaviside.tempered(p, tau, temperature=temperature)
        assert h.dtype == dtype
        assert h.tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("tau", [0.05, 0.3, 0.5, 0.7, 0.95])
def test_tempered_meets_its_kinks(tau, temperature):
    w = half_width(tau, temperature)
    h = heaviside.tempered(tensor([tau - w, tau + w]), tau, temperature=temperature)
    expected = tensor([temperature, 1 - temperature])
    torch.testing.assert_close(h, expected, rtol=0, atol=tolerances.SAME)


def test_segments_by_hand():
    # tau = 0.5, T = 0.2: slopes 0.8, 1.2, 0.8 with kinks at 1/4 and 3/4
    p = tensor([0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0])
    expected = tensor([0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0])
    h = heaviside.tempered(p, 0.5, temperature=0.2)
    torch.testing.assert_close(h, expected, rtol=0, atol=tolerances.SAME)


# Relations.


@given(st.floats(1e-6, 1 - 1e-6), thresholds)
def test_tempered_approaches_the_step(p, tau):
    assume(abs(p - tau) > 1e-6)
    soft = heaviside.tempered(tensor(p), tau, temperature=1e-9)
    assert soft.item() == pytest.approx(float(p > tau), abs=tolerances.LIMIT)


@given(probabilities, thresholds, st.floats(1e-9, 0.4))
def test_tempered_is_symmetric(p, tau, temperature):
    """H(1 − p, 1 − τ) = 1 − H(p, τ)."""
    # Multiples of 2^-30, which 1 − p and 1 − τ keep to the last digit.
    p, tau = (round(x * 2**30) / 2**30 for x in (p, tau))
    assume(0 < tau < 1)
    h = heaviside.tempered(tensor(p), tau, temperature=temperature)
    mirrored = heaviside.tempered(tensor(1 - p), 1 - tau, temperature=temperature)
    torch.testing.assert_close(mirrored, 1 - h, rtol=0, atol=tolerances.SLIVER)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("tau", TAUS)
def test_monotone_on_a_grid(tau, temperature, dtype):
    p = torch.linspace(0, 1, 2001, dtype=dtype)
    h = heaviside.tempered(p, tau, temperature=temperature)
    assert (h.diff() >= -dtype_tolerances.ROUNDING[dtype]).all()
    assert ((h >= 0) & (h <= 1)).all()


@given(
    st.floats(-9, -0.31).map(lambda x: 10**x),
    st.booleans(),
    st.floats(-9, -0.4).map(lambda x: 10**x),
)
def test_float32_stays_in_range_with_the_slopes_of_float64(tau, high, temperature):
    """Near the threshold p and τ share their digits, and 1 − p has lost them where τ is small."""
    tau = tensor(min(1 - tau, 1 - 1e-6) if high else tau, torch.float32)
    around = 10 ** torch.linspace(-8, 0, 200)
    near = torch.minimum(tau, 1 - tau) * torch.cat([-around, torch.zeros(1), around])
    p = torch.cat([torch.linspace(0, 1, 51), tau + near]).clamp(0, 1).sort().values
    p.requires_grad_()
    h = heaviside.tempered(p, tau, temperature=temperature)
    h.sum().backward()
    assert ((h >= 0) & (h <= 1)).all()
    assert (h.diff() >= -dtype_tolerances.ROUNDING[torch.float32]).all()

    past, tau = (p.detach().double() - tau), tau.double()
    inner = max(2.5 * temperature, torch.finfo(torch.float32).eps)
    w = inner * torch.minimum(tau, 1 - tau)
    m1, m2, m3 = temperature / (tau - w), (0.5 - temperature) / w, temperature / (1 - tau - w)
    slope = torch.where(past < -w, m1, torch.where(past > w, m3, m2))
    clear = ((past.abs() - w).abs() > 1e-5 * w) & (inner < 0.9)  # where it is not a sliver's
    torch.testing.assert_close(
        p.grad.double()[clear], slope[clear], rtol=tolerances.FLOAT32, atol=0
    )


@pytest.mark.parametrize("tau", [0.3, 0.5])
def test_float32_keeps_the_digits_of_a_sliver(tau):
    """At T = 0.4 the first segment is 1e-6·τ wide, and τ − w of float32 would be off by 5%."""
    p = 1e-6 * tau * torch.tensor([0.1, 0.5, 0.9])
    h = heaviside.tempered(p, torch.tensor(tau), temperature=0.4)
    torch.testing.assert_close(h, torch.tensor([0.04, 0.2, 0.36]), rtol=1e-3, atol=0)


# The reference.


@given(probabilities, thresholds, temperatures)
def test_tempered_is_the_references(p, tau, temperature):
    # At T near 0.4 an outer segment is a sliver of 1e-6·min(τ, 1 − τ), up which H climbs by 0.4:
    # the rounding of p alone, 1e-16, moves H there by up to 4e-11 / min(τ, 1 − τ).
    sliver = 1e-6 * min(tau, 1 - tau)
    if temperature > 0.399:
        assume(p == 0 or sliver < p)
        assume(p == 1 or p < 1 - sliver)
    h = heaviside.tempered(tensor(p), tau, temperature=temperature)
    assert h.item() == pytest.approx(
        reference.tempered(p, tau, temperature), rel=0, abs=tolerances.REFERENCE
    )


# Gradients.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", [1e-30, 1e-9, 0.2, 0.4])
@pytest.mark.parametrize("tau", TAUS)
def test_gradient_is_finite_everywhere(tau, temperature, dtype):
    """At the ends, the threshold, the kinks, in p and in the threshold."""
    w = half_width(tau, temperature)
    p = tensor([0.0, 1.0, tau, tau - w, tau + w, 1e-30, 1e-9, 0.5], dtype).clamp(0, 1)
    p, taus = p.requires_grad_(), torch.full_like(p, tau).requires_grad_()
    h = heaviside.tempered(p, taus, temperature=temperature)
    h.sum().backward()
    assert h.isfinite().all()
    assert p.grad.isfinite().all()
    assert taus.grad.isfinite().all()
    assert (p.grad >= 0).all()
    assert (taus.grad <= 0).all()


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 0.2, 0.39])
@pytest.mark.parametrize("tau", [0.05, 0.3, 0.5, 0.7])
def test_slopes_are_those_of_the_paper(tau, temperature):
    """EAST eq. 4: m1, m2 and m3, one on each segment."""
    w = half_width(tau, temperature)
    p = tensor([(tau - w) / 2, tau - w / 2, tau + w / 2, (1 + tau + w) / 2]).requires_grad_()
    heaviside.tempered(p, tau, temperature=temperature).sum().backward()
    m1, m3 = temperature / (tau - w), temperature / (1 - tau - w)
    m2 = (1 - 2 * temperature) / (2 * w)
    torch.testing.assert_close(p.grad, tensor([m1, m2, m2, m3]), rtol=tolerances.REFERENCE, atol=0)


def test_temperature_may_be_a_tensor():
    p = torch.linspace(0, 1, 9)
    number = heaviside.tempered(p, 0.4, temperature=0.1)
    assert number.equal(heaviside.tempered(p, 0.4, temperature=torch.tensor(0.1)))


def test_threshold_broadcasts():
    p, taus = torch.linspace(0, 1, 5), torch.tensor([[0.3], [0.6]])
    h = heaviside.tempered(p, taus)
    assert h.shape == (2, 5)
    assert h[1].equal(heaviside.tempered(p, 0.6))
