"""Sums over ranks, averaged over batches, as losses over thresholds need them in training."""

import torch
from torch import nn

from evalign.aggregation.ranks import Ranks, RankSum
from evalign.aggregation.running import RunningConfusion
from evalign.core.confusion import Confusion


class TrainingSums(nn.Module):
    """Adds the sums of other ranks and averages over batches, in training with gradients only.

    Args:
        momentum: the weight of the new batch in the average; None for the batch alone.
        ranks: whose rows are summed, see `RankSum`.
        owner: the loss that errors name.
    """

    def __init__(self, momentum: float | None, ranks: Ranks, owner: str) -> None:
        super().__init__()
        self.over_ranks = RankSum(ranks, owner)
        self.running = None if momentum is None else RunningConfusion(momentum, owner)

    def forward(self, own: Confusion) -> tuple[Confusion, Confusion]:
        """The sums of this batch over the ranks, and the same averaged over batches."""
        if not (self.training and torch.is_grad_enabled()):
            return own, own
        (batch,) = self.over_ranks((own,))
        return batch, batch if self.running is None else self.running(batch)
