r"""The approximation H(p, τ) ∈ [0, 1] of the Heaviside step: H(0) = 0, H(τ) = ½, H(1) = 1."""

import torch
from torch import Tensor

from evalign.membership.checks import check_temperature
from evalign.membership.numerics import beside, upcast

# T = 0.4 leaves the outer segments of EAST eq. 4 no width and an infinite slope. They keep this
# share of min(τ, 1 − τ); below T = 0.3999996 the formula is the paper's to the letter.
OUTER_SHARE = 1e-6


def tempered(p: Tensor, threshold: float | Tensor, *, temperature: float | Tensor = 0.2) -> Tensor:
    """EAST eq. 4: five points joined by lines, the outer two segments of height T.

    They are (0, 0), (τ − w, T), (τ, ½), (τ + w, 1 − T), (1, 1), w = 2.5 T · min(τ, 1 − τ). At
    T = 0.2 it is BtG eq. 5 with δ = 0.2; in the limit T → 0 it is the step. Probabilities `p` and
    `threshold` broadcast. Half precision is computed in float32: where a threshold is small, lines
    are too steep for less.

    Examples:
        >>> tempered(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]), 0.5)
        tensor([0.0000, 0.2000, 0.5000, 0.8000, 1.0000])
        >>> tempered(torch.tensor([0.0, 0.49, 0.5, 0.51, 1.0]), 0.5, temperature=1e-6)
        tensor([0.0000e+00, 9.8000e-07, 5.0000e-01, 1.0000e+00, 1.0000e+00])
    """
    check_temperature("tempered", temperature)
    given, p = p.dtype, upcast(p)
    info, height = torch.finfo(p.dtype), beside(temperature, p)
    # A ramp narrower than the rounding of p is a step already; narrower still, its slope overflows.
    inner = (2.5 * height).clamp(info.eps, 1 - OUTER_SHARE)
    outer = (1 - 2.5 * height).clamp(min=OUTER_SHARE)  # 1 − inner would lose digits near T = 0.4
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
    return torch.where(past < -width, left, torch.where(past > width, right, middle)).to(given)
