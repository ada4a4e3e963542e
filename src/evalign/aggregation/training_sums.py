"""Sums over ranks, averaged over batches, as losses over thresholds need them in training."""

from typing import Literal

import torch
from torch import nn

from evalign.aggregation.ranks import Ranks, RankSum
from evalign.aggregation.running import RunningConfusion
from evalign.core.checks import require
from evalign.core.confusion import Confusion

Statistics = Literal["batch", "running"]


class TrainingSums(nn.Module):
    """Adds the sums of other ranks and averages over batches, in training with gradients only.

    Args:
        statistics: "running" for a `RunningConfusion`, "batch" for the batch alone.
        momentum: the weight of the new batch in the average.
        ranks: whose rows are summed, see `RankSum`.
        owner: the loss that errors name.
    """

    def __init__(self, statistics: Statistics, momentum: float, ranks: Ranks, owner: str) -> None:
        super().__init__()
        known = statistics in ("batch", "running")
        allowed = 'be "batch" or "running"'
        require(known, owner, "statistics", allowed, repr(statistics))
        self.over_ranks = RankSum(ranks, owner)
        running = RunningConfusion(momentum, owner)  # made in any case, to check the momentum
        self.running = running if statistics == "running" else None

    def forward(self, own: Confusion) -> tuple[Confusion, Confusion]:
        """The sums of this batch over the ranks, and the same averaged over batches."""
        if not (self.training and torch.is_grad_enabled()):
            return own, own
        (batch,) = self.over_ranks((own,))
        return batch, batch if self.running is None else self.running(batch)
