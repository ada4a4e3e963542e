"""An exponential moving average of weights, whose decay `Settings.decay` gives for each step."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


@torch.no_grad()
def average_weights(
    means: Iterable[Tensor], weights: Iterable[Tensor], decay: float | Tensor
) -> None:
    """Compute means ← decay · means + (1 − decay) · weights in place.

    Args:
        means: the averages so far.
        weights: those after a step, in the same order.
        decay: a number; or a tensor without dimensions, which a CUDA graph reads again every time.

    Examples:
        >>> mean = torch.tensor([0.0, 8.0])
        >>> average_weights([mean], [torch.tensor([4.0, 4.0])], 0.75)
        >>> mean
        tensor([1., 7.])
    """
    if isinstance(decay, Tensor):
        share = 1 - decay
        for mean, weight in zip(means, weights, strict=True):
            mean.lerp_(weight, share.to(mean))
    else:  # all tensors at once, which saves launches on a GPU
        get_ema_multi_avg_fn(decay)(list(means), list(weights), 0)


@torch.no_grad()
def average_network(averaged: nn.Module, network: nn.Module, decay: float | Tensor) -> None:
    """Average the parameters of a network, and copy its buffers as they are."""
    average_weights(averaged.parameters(), network.parameters(), decay)
    for kept, buffer in zip(averaged.buffers(), network.buffers(), strict=True):
        kept.copy_(buffer)
