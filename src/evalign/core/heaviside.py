r"""The Heaviside step and its approximations H(p, τ) ∈ [0, 1] with H(0) = 0, H(τ) = ½, H(1) = 1.

`p` and `threshold` are tensors of probabilities that broadcast against each other. Lines in half
precision are computed in float32: where a threshold is small, they are too steep for less.
(The sigmoid meets its end points only in the limit k → ∞, as BtG notes.)
"""

import torch
from torch import Tensor

from evalign.core.checks import check_temperature, require
from evalign.core.numerics import beside, upcast

# T = 0.4 leaves the outer segments of EAST eq. 4 no width and an infinite slope. They keep this
# share of min(τ, 1 − τ); below T = 0.3999996 the formula is the paper's to the letter.
OUTER_SHARE = 1e-6


def hard(p: Tensor, threshold: float | Tensor) -> Tensor:
    """The step itself (BtG eq. 1): 1 where p ≥ τ. Its gradient is zero."""
    return (p >= threshold).to(p.dtype)


def linear(p: Tensor, threshold: float | Tensor, *, delta: float = 0.2) -> Tensor:
    """BtG eq. 5: five points joined by lines, the outer two segments of height δ ∈ (0, 0.5).

    Examples:
        >>> linear(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]), 0.5)
        tensor([0.0000, 0.2000, 0.5000, 0.8000, 1.0000])
    """
    require(0 < delta < 0.5, "linear", "delta", "lie between 0 and 0.5", delta)
    given, p = p.dtype, upcast(p)
    half = beside(0.5, p)
    return _five_points(p, threshold, height=delta, inner=half, outer=half).to(given)


def sigmoid(p: Tensor, threshold: float | Tensor, *, k: float | Tensor = 10.0) -> Tensor:
    """BtG's sigmoid: 1 / (1 + exp(−k (p − τ)))."""
    require(isinstance(k, Tensor) or k > 0, "sigmoid", "k", "be positive", k)
    return torch.sigmoid(k * (p - threshold))


def tempered(p: Tensor, threshold: float | Tensor, *, temperature: float | Tensor = 0.2) -> Tensor:
    """EAST eq. 4: as `linear` with δ = T, its middle segment of width 5T·min(τ, 1 − τ).

    Equal to `linear` with δ = 0.2 at T = 0.2, and to `hard` in the limit T → 0.

    Examples:
        >>> tempered(torch.tensor([0.0, 0.49, 0.5, 0.51, 1.0]), 0.5, temperature=1e-6)
        tensor([0.0000e+00, 9.8000e-07, 5.0000e-01, 1.0000e+00, 1.0000e+00])
    """
    check_temperature("tempered", temperature)
    given, p = p.dtype, upcast(p)
    height = beside(temperature, p)
    # A ramp narrower than the rounding of p is a step already; narrower still, its slope overflows.
    inner = (2.5 * height).clamp(torch.finfo(p.dtype).eps, 1 - OUTER_SHARE)
    outer = (1 - 2.5 * height).clamp(min=OUTER_SHARE)
    return _five_points(p, threshold, height=height, inner=inner, outer=outer).to(given)


def _five_points(
    p: Tensor, threshold: float | Tensor, *, height: float | Tensor, inner: Tensor, outer: Tensor
) -> Tensor:
    """Lines through (0, 0), (τ − w, h), (τ, ½), (τ + w, 1 − h), (1, 1); w = inner·min(τ, 1 − τ).

    `outer` is 1 − inner, passed on its own because the difference loses its digits near T = 0.4.
    """
    info = torch.finfo(p.dtype)
    # A threshold that rounds to 0 or 1 would leave a segment without width.
    threshold = beside(threshold, p).clamp(info.tiny**0.25, 1 - info.eps)
    nearer = torch.minimum(threshold, 1 - threshold)
    width = inner * nearer
    below = threshold - nearer + outer * nearer  # τ − w
    above = 1 - threshold - nearer + outer * nearer  # 1 − τ − w

    # Which segment, by the distance to τ: it keeps its digits where τ is small and 1 − p has none.
    past = p - threshold
    left = height * p / below
    middle = 0.5 + (0.5 - height) * (past / width)
    right = 1 - height * (1 - p) / above
    return torch.where(past < -width, left, torch.where(past > width, right, middle))
