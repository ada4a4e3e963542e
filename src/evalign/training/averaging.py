"""An exponential moving average of weights; `Settings.decay` gives its decay at each step."""

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


@torch.no_grad()
def average_network(averaged: nn.Module, network: nn.Module, decay: float) -> None:
    """Set averaged ← decay · averaged + (1 − decay) · network in place, and copy the buffers."""
    get_ema_multi_avg_fn(decay)(list(averaged.parameters()), list(network.parameters()), 0)
    for kept, buffer in zip(averaged.buffers(), network.buffers(), strict=True):
        kept.copy_(buffer)
