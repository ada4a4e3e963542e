"""The losses of LibAUC for areas under curves, with the sampler and the optimiser that each needs.

They are used as its documentation says: probabilities in columns, the place of each row among the
training rows, and batches of which half are positives.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from evalign_study.refusals import installing
from evalign_study.trainers.goal_methods import MAX_FPR


class WithPlaces(nn.Module):
    """A loss of LibAUC as one of logits (N, 2), their labels and their places."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: Tensor, y: Tensor, place: Tensor) -> Tensor:
        p = (logits[:, 1] - logits[:, 0]).sigmoid()
        return self.loss(p.unsqueeze(1), y.float().unsqueeze(1), place)


class Rival(NamedTuple):
    """All that takes the place of our loss, optimiser and shuffling.

    Args:
        loss: called with logits, labels and places.
        optimizer: of the network's parameters.
        batches: places (batch size,), without an end.
    """

    loss: WithPlaces
    optimizer: torch.optim.Optimizer
    batches: Iterator[Tensor]


class TargetsOnly(torch.utils.data.Dataset[Any]):
    """What the sampler wants to know of a data set: its labels."""

    def __init__(self, y: Tensor) -> None:
        self.targets = y.cpu().numpy()


def rival(
    name: str,
    network: nn.Module,
    y: Tensor,
    *,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    seed: int,
) -> Rival:
    """Make one of `goal_methods.LIBAUC`.

    Args:
        name: which of them.
        network: what is trained.
        y: the labels of the training rows, positives first, which the losses rely on.
        batch_size: rows a step.
        learning_rate: at its highest.
        weight_decay: of the optimiser.
        seed: of the sampler.
    """
    try:
        from libauc import losses, optimizers  # pyright: ignore[reportMissingImports]
        from libauc.sampler import DualSampler  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        error.add_note(installing("study[goals]"))
        raise
    rows, positives, device = len(y), int(y.sum()), y.device
    common = {"mode": "adam", "lr": learning_rate, "weight_decay": weight_decay, "device": device}
    parameters = list(network.parameters())
    if name == "libauc_ap":
        loss = losses.APLoss(data_len=rows, device=device)
        optimizer = optimizers.SOAP(parameters, **common)
    elif name == "libauc_pauc":
        loss = losses.pAUC_CVaR_Loss(data_len=rows, pos_len=positives, beta=MAX_FPR, device=device)
        optimizer = optimizers.SOPA(parameters, eta=1.0, **common)
    else:
        loss = losses.tpAUC_KL_Loss(data_len=rows, device=device)
        optimizer = optimizers.SOTAs(parameters, **common)
    sampler = DualSampler(TargetsOnly(y), batch_size, sampling_rate=0.5, random_seed=seed)
    return Rival(WithPlaces(loss), optimizer, _batches(sampler, batch_size, device))


def _batches(sampler: Any, size: int, device: torch.device) -> Iterator[Tensor]:
    """The sampler's batches, one of its passes after the other."""
    while True:
        rows = np.fromiter(sampler, np.int64)
        yield from torch.from_numpy(rows).to(device).split(size)
