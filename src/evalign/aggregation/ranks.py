"""Sums over the processes of a distributed job, whose gradient is right once DDP averages it."""

from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from evalign.core.checks import require
from evalign.membership.batch import Sums
from evalign.membership.checks import traced

Ranks = Literal["all", "own"] | Any  # or a process group: some builds of torch lack its class


class RankSum:
    """Sums over all processes, with the gradient of this process's own sums times their number.

    Every process then has the same loss L(Σ C_r). Its gradient with respect to the parameters is
    the sum over r of what flows through C_r, and DDP (or FSDP) takes the mean over r: hence the
    factor. It costs one all-reduce forward and none backward.

    Args:
        ranks: "all" for the default process group when one is up, "own" for no sum, or a group.
        owner: the loss that errors name.
    """

    def __init__(self, ranks: Ranks = "all", owner: str = "MetricLoss") -> None:
        known = ranks in ("all", "own") if isinstance(ranks, str) else _is_group(ranks)
        allowed = 'be "all", "own" or a process group'
        require(known, owner, "ranks", allowed, repr(ranks))
        self.ranks = ranks
        self._owner = owner
        self._agreed: set[int] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> "RankSum":
        return RankSum(self.ranks, self._owner)  # a process group cannot be copied, and is shared

    def __call__(self, sums: Sums) -> Sums:
        size = self.size()
        if size == 1:
            return sums
        own = [tensor for part in sums for tensor in part.tensors()]
        flat = torch.cat([x.detach().flatten() for x in own])
        total = self.total(flat, len(torch.atleast_1d(sums[-1].tensors()[0])))
        totals = iter(total.split([x.numel() for x in own]))
        return tuple(
            part.map(lambda x: next(totals).view_as(x) + size * (x - x.detach())) for part in sums
        )

    def size(self) -> int:
        """The number of processes whose sums are added: 1 if there is not a group."""
        if self.ranks == "own" or not (dist.is_available() and dist.is_initialized()):
            return 1
        return max(1, dist.get_world_size(self._group))  # it is −1 outside the group

    def total(self, own: Tensor, classes: int) -> Tensor:
        """The sum of a vector over the processes."""
        size = self.size()
        try:
            self._agree(own, classes, size)
            total = own.clone()
            dist.all_reduce(total, group=self._group)
        except RuntimeError as error:
            raise RuntimeError(
                f"{self._owner} could not sum over {size} ranks: one of them stopped, did not call "
                "the loss in training mode, or has another number of classes than before. "
                'Pass ranks="own" if not all ranks call it. '
                f"({error})"
            ) from error
        return total

    @property
    def _group(self) -> Any:
        return dist.group.WORLD if self.ranks == "all" else self.ranks

    def _agree(self, own: Tensor, classes: int, size: int) -> None:
        """Check that all ranks sum alike, or they would hang. Asked once, as asking waits."""
        if traced() or own.numel() in self._agreed:
            return
        mine = torch.tensor([own.numel(), classes], device=own.device)
        found = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(found, mine, group=self._group)
        lengths, got = torch.stack(found).T.tolist()
        # A loss that knows counts, or targets of another dtype, may take another way to its sums.
        same = len(set(got)) == len(set(lengths)) == 1
        allowed = "have the same number of classes on every rank, and the loss the same state"
        cure = "Load its checkpoint on every rank, and pass targets of one dtype."
        require(same, self._owner, "logits", allowed, f"{got} classes and {lengths} sums", cure)
        self._agreed.add(own.numel())


def _is_group(ranks: Any) -> bool:
    """Whether `torch.distributed.new_group` returned this, inside the group or outside."""
    if not dist.is_available():
        return False
    outside = ranks is not None and ranks == dist.GroupMember.NON_GROUP_MEMBER
    return outside or isinstance(ranks, dist.ProcessGroup)
