"""Scale the inputs of a network to normal quantiles.

These keep only the ranks of a column, so its units and outliers do not matter.
"""

from functools import cache
from typing import Any, Self

import torch
from torch import Tensor

from evalign.core.checks import require
from evalign.store.archive import register

F64 = torch.float64
BINS = 48  # of the embeddings that follow, whose edges are among the levels
TAIL, FARTHEST = 32, -5.2  # further levels in each tail, up to this normal quantile
COLUMNS = 64  # at a time, so that the float64 copy of a large table stays small


class QuantileNormal:
    """A monotone, piecewise-linear map of each column to the normal distribution.

    A column's quantiles at 257 levels go to the normal quantiles of these levels. Where several
    levels have one value, as in a column of whole numbers, it goes to the middle of them, which is
    where noise that breaks ties would put it on average. N rows have no level below 1/(2N), so that
    the first and the last of them are not outliers, nor is any value beyond them.

    Args:
        X: the training rows (N, features), floats.
        n_flags: how many columns, the last ones, are 0 or 1 and stay as they are.

    Examples:
        >>> rows = torch.arange(101.0).unsqueeze(1) ** 3
        >>> QuantileNormal(rows)(torch.tensor([[50.0**3], [1e9]])).flatten()
        tensor([0.0000, 2.5793])
    """

    def __init__(self, X: Tensor, n_flags: int = 0) -> None:
        self.n_flags = n_flags
        numbers = X[:, : X.shape[1] - n_flags]
        self.knots = torch.cat([_quantiles(part) for part in numbers.split(COLUMNS, dim=1)])
        first, last = (torch.searchsorted(self.knots, self.knots, right=r) for r in (False, True))
        level = (levels()[first] + levels()[last - 1]) / 2
        self.values = torch.special.ndtri(level.clamp(0.5 / len(X), 1 - 0.5 / len(X)))

    def state_dict(self) -> dict[str, Any]:
        """What was learnt of the columns."""
        return vars(self)

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The inverse of `state_dict`, for an untrusted state."""
        scaler = cls.__new__(cls)
        vars(scaler).update({name: state[name] for name in ("knots", "values", "n_flags")})
        tables = scaler.knots, scaler.values
        ok = all(type(t) is Tensor and t.dtype is F64 and t.isfinite().all() for t in tables)
        ok = ok and tables[0].shape == tables[1].shape and scaler.n_flags >= 0
        require(ok, cls.__name__, "state", "hold finite knots and values", "others")
        return scaler

    @property
    def n_features(self) -> int:
        return len(self.knots) + self.n_flags

    @property
    def edges(self) -> list[Tensor | None]:
        """For each column the edges of its bins; None where it has less than two bins."""
        at = torch.searchsorted(levels(), _even()[::4].contiguous())
        found = [row.unique() for row in self.values[:, at].float()]
        return [row if len(row) > 2 else None for row in found] + [None] * self.n_flags

    def __call__(self, X: Tensor) -> Tensor:
        numbers, flags = X.split([len(self.knots), self.n_flags], 1)
        return torch.cat([self._mapped(numbers.double()).to(X.dtype), flags], 1)

    def _mapped(self, X: Tensor) -> Tensor:
        knots, values = (t.T.contiguous().to(X.device) for t in (self.knots, self.values))
        # Bisection: the last knot but one that is not above the number.
        low = torch.zeros(X.shape, dtype=torch.int64, device=X.device)
        step = (len(knots) - 1) // 2
        while step:
            low = torch.where(knots.gather(0, low + step) <= X, low + step, low)
            step //= 2
        # Halves, because the difference of two numbers may be larger than any.
        left, right = knots.gather(0, low) / 2, knots.gather(0, low + 1) / 2
        width = torch.where(right > left, right - left, 1.0)
        share = ((X / 2 - left) / width).clamp(0, 1)
        return torch.lerp(values.gather(0, low), values.gather(0, low + 1), share)


@cache
def levels() -> Tensor:
    """The levels of the quantiles, 2⁸ + 1: four to a bin, and denser in the tails.

    Between two levels the map is linear and the normal quantile is not. In the tails, where it
    bends most, the levels are less than 0.1 apart as normal quantiles.
    """
    even = _even()
    start, end = FARTHEST, torch.special.ndtri(even[1]).item()
    tail = torch.linspace(start, end, TAIL + 2, dtype=F64, device="cpu")[:-1]
    tail = torch.special.ndtr(tail[1:])
    return torch.cat([even[:1], tail, even[1:-1], (1 - tail).flip(0), even[-1:]])


def _even() -> Tensor:
    return torch.arange(4 * BINS + 1, dtype=F64, device="cpu") / (4 * BINS)


def _quantiles(X: Tensor) -> Tensor:
    """The quantiles (features, levels), linear between neighbouring rows."""
    ranked = X.double().sort(0).values
    place = levels() * (len(X) - 1)
    low = place.floor().long().clamp(max=max(len(X) - 2, 0))
    high = (low + 1).clamp(max=len(X) - 1)
    share = (place - low).unsqueeze(1)
    left, right = ranked[low], ranked[high]
    # Equal neighbours stay what they are, to the last bit: ties are found by it.
    between = torch.where(left == right, left, (1 - share) * left + share * right)
    return between.T.cummax(1).values.contiguous()


register(QuantileNormal)
