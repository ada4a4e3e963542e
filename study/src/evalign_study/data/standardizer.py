"""Standardised columns, the papers' input of a network for tables."""

import torch
from torch import Tensor

COLUMNS = 64  # at a time, so that the float64 copy of a large table stays small


class Standardizer:
    """(x − mean) / standard deviation of the training rows; a constant column becomes 0.

    Examples:
        >>> scale = Standardizer(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> scale(torch.tensor([[1.0, 5.0], [5.0, 6.0]]))
        tensor([[-1.,  0.],
                [ 3.,  1.]])
    """

    def __init__(self, X: Tensor) -> None:
        moments = [_moments(block) for block in X.split(COLUMNS, dim=1)]
        self.mean = torch.cat([mean for mean, _ in moments])
        self.scale = torch.cat([scale for _, scale in moments])

    def __call__(self, X: Tensor) -> Tensor:
        mean, scale = self.mean.to(X.device), self.scale.to(X.device)
        blocks = zip(*(t.split(COLUMNS, dim=-1) for t in (X, mean, scale)), strict=True)
        return torch.cat([((x.double() - m) / s).to(X.dtype) for x, m, s in blocks], 1)


def _moments(X: Tensor) -> tuple[Tensor, Tensor]:
    # In float32 a column far from zero loses its spread, and a constant one gets some by rounding.
    # In units of its largest number no square leaves the range of float64.
    constant = X.amax(0) == X.amin(0)
    unit = torch.where(constant, 1.0, X.abs().amax(0).double())
    variance, mean = torch.var_mean(X.double() / unit, 0, correction=0)
    mean = torch.where(constant, X[0].double(), mean * unit)
    return mean, torch.where(constant, 1.0, variance.sqrt() * unit)
