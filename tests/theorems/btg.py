"""BtG's own step, written from its equation."""

import torch
from torch import Tensor


def linear(p: Tensor, tau: float | Tensor, *, delta: float = 0.2) -> Tensor:
    """Eq. 5: lines through (0, 0), (τ − w, δ), (τ, ½), (τ + w, 1 − δ), (1, 1)."""
    tau = torch.as_tensor(tau, dtype=p.dtype)
    w = torch.minimum(tau, 1 - tau) / 2
    left, right = delta * p / (tau - w), 1 - delta * (1 - p) / (1 - tau - w)
    middle = 0.5 + (0.5 - delta) * (p - tau) / w
    return torch.where(p < tau - w, left, torch.where(p > tau + w, right, middle))
