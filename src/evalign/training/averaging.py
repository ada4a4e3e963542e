"""Moving averages over training steps, whose decay is `Settings.decay`, and the loss's offsets."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


@torch.no_grad()
def average_network(averaged: nn.Module, network: nn.Module, decay: float) -> None:
    """Set averaged ← decay · averaged + (1 − decay) · network in place, and copy the buffers."""
    get_ema_multi_avg_fn(decay)(list(averaged.parameters()), list(network.parameters()), 0)
    for kept, buffer in zip(averaged.buffers(), network.buffers(), strict=True):
        kept.copy_(buffer)


class UsesOffsets(nn.Module):
    """A network that averages probabilities, softmax(logits + offsets), in evaluation.

    `fit` writes the offsets of the loss into it.
    """

    offsets: Tensor

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.zeros(n_classes))


def offsets_of(loss: Callable[..., Tensor]) -> Tensor | None:
    """The offsets of a loss such as `AlignedLoss`, or of its first part that has some."""
    modules = loss.modules() if isinstance(loss, nn.Module) else ()
    found = (getattr(part, "offsets", None) for part in modules)
    return next((offsets for offsets in found if offsets is not None), None)


def set_offsets(offsets: Tensor | None, loss: Callable[..., Tensor], *networks: nn.Module) -> None:
    """Write the offsets, if any, into the loss and into networks that use them."""
    parts = (part for network in networks for part in network.modules())
    users = [part.offsets for part in parts if isinstance(part, UsesOffsets)]
    for each in (offsets_of(loss), *users):
        if offsets is not None and each is not None:
            each.copy_(offsets)
