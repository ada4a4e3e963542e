"""What a stream of batches leaves in memory: histograms of log-odds, or a sample of the rows."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from evalign.decisions.tuned import ENOUGH

# Log-odds are known to 1/128 from −32 to 32 (probabilities down to 1e-14); beyond, by their sign.
BINS, WIDTH = 2**13, 2.0**-7


@dataclass
class Histogram:
    """The number and the mass of rows by label (L), class (2) and bin of the log-odds."""

    counts: Tensor
    mass: Tensor

    @classmethod
    def empty(cls, labels: int, device: torch.device) -> "Histogram":
        zeros = torch.zeros(labels, 2, BINS, dtype=torch.float64, device=device)
        return cls(zeros, zeros.clone())

    def add(self, margin: Tensor, y: Tensor, weight: Tensor) -> None:
        """Add rows (R, L)."""
        bins = (margin / WIDTH + BINS / 2).floor().clamp(0, BINS - 1).long()
        labels = torch.arange(margin.shape[1], device=margin.device)
        place = ((2 * labels + y) * BINS + bins).flatten()
        self.mass.view(-1).scatter_add_(0, place, weight.flatten())
        self.counts.view(-1).scatter_add_(0, place, (weight > 0).to(weight).flatten())

    def over_ranks(self) -> "Histogram":
        both = torch.stack([self.counts, self.mass])
        dist.all_reduce(both)
        return Histogram(*both)

    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Log-odds, labels and weights (R, L). Rows of weight 0 fill up shorter labels."""
        mass = self.mass / self.mass.sum().clamp(min=1e-300) * self.counts.sum()
        columns = [_rows_of_bins(*both) for both in zip(self.counts, mass, strict=True)]
        padded = [torch.nn.utils.rnn.pad_sequence([*part]) for part in zip(*columns, strict=True)]
        return padded[0], padded[1], padded[2]


def _rows_of_bins(counts: Tensor, mass: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows that stand for the bins (2, BINS) of one label: log-odds, labels and weights.

    A class of up to `ENOUGH` rows has as many again, and more rows are at least so many: whether
    labels are enough to learn from is told by the number of rows.
    """
    y, bins = counts.nonzero(as_tuple=True)
    number, total = counts[y, bins], counts.sum(1)[y]
    copies = (number * (ENOUGH / total).clamp(max=1)).ceil().long()
    weight = (mass[y, bins] / copies).repeat_interleave(copies)
    middle = (bins.double() + 0.5 - BINS / 2) * WIDTH
    return middle.repeat_interleave(copies), y.repeat_interleave(copies), weight


class _Rows(NamedTuple):
    """Rows (R, ...). One with an infinite key does not count."""

    logits: Tensor
    keys: Tensor
    weight: Tensor
    y: Tensor

    def empty(self, rows: int) -> "_Rows":
        """So many rows of this kind, of any values."""
        return _Rows(*(part.new_empty(rows, *part.shape[1:]) for part in self))

    def by_class(self) -> tuple[Tensor, Tensor]:
        """The order by class and then by key, and the place of each of these within its class."""
        order = self.keys.argsort(stable=True)
        order = order[self.y[order].argsort(stable=True)]
        y = self.y[order]
        start = torch.searchsorted(y, torch.arange(self.logits.shape[1], device=y.device))
        return order, torch.arange(len(y), device=y.device) - start[y]

    def thinned(self, each: int) -> "_Rows":
        """The first `each` rows of every class, in places of their own. No size depends on a value.

        A place that is left over has an infinite key.
        """
        classes = self.logits.shape[1]
        order, rank = self.by_class()
        y = self.y[order]
        # One more place takes all that is not kept.
        to = torch.where(rank < each, y * each + rank, classes * each)
        source = torch.zeros(classes * each + 1, dtype=torch.int64, device=y.device)
        source = source.index_copy_(0, to, order)[:-1]
        keys = self.keys.new_full((classes * each + 1,), torch.inf)
        keys = keys.index_copy_(0, to, self.keys[order])[:-1]
        own = torch.arange(classes, device=y.device).repeat_interleave(each)
        return _Rows(self.logits[source], keys, self.weight[source], own)

    def first(self, each: int) -> "_Rows":
        """The same rows alone, which are few if few have come."""
        order, rank = self.by_class()
        chosen = order[(rank < each) & self.keys[order].isfinite()]
        return _Rows(*(part[chosen] for part in self))


@dataclass
class Sample:
    """The rows with the smallest keys of each of C classes, up to `each` of them.

    Rows are put together as they come, and thinned when there are twice as many as there are places
    for. `counts` and `mass` (C,) are those of all rows seen.
    """

    each: int
    counts: Tensor
    mass: Tensor
    parts: list[_Rows]
    held: int = 0  # rows in all parts

    @classmethod
    def empty(cls, classes: int, size: int, device: torch.device) -> "Sample":
        sums = torch.zeros(classes, dtype=torch.float64, device=device)
        logits = torch.zeros(0, classes, dtype=torch.float32, device=device)
        no_rows = _Rows(logits, sums[:0], sums[:0], sums[:0].long())
        return cls(max(1, size // classes), sums, sums.clone(), [no_rows])

    def add(self, logits: Tensor, y: Tensor, weight: Tensor, keys: Tensor) -> None:
        """Add rows; those of weight 0 have no part in it."""
        counted = weight > 0
        self.mass.scatter_add_(0, y, weight)
        self.counts.scatter_add_(0, y, counted.to(weight))
        keys = torch.where(counted, keys, torch.inf)
        self._put(_Rows(logits.float(), keys, weight, y))

    def _put(self, rows: _Rows) -> None:
        self.parts.append(rows)
        self.held += len(rows.y)
        places = self.each * len(self.mass)
        if self.held >= 2 * places:
            self.parts, self.held = [self._joined().thinned(self.each)], places

    def _joined(self) -> _Rows:
        return _Rows(*map(torch.cat, zip(*self.parts, strict=True)))

    def over_ranks(self) -> "Sample":
        both = torch.stack([self.counts, self.mass])
        dist.all_reduce(both)
        own, sizes = self._joined().first(self.each), [0] * dist.get_world_size()
        dist.all_gather_object(sizes, len(own.y))
        whole = Sample(self.each, both[0], both[1], [own.empty(0)])
        for rank, size in enumerate(sizes):  # one after the other, to hold few at a time
            rows = own if rank == dist.get_rank() else own.empty(size)
            for part in rows if size else ():
                dist.broadcast(part, src=rank)
            whole._put(rows)
        return whole

    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, labels and weights (R, ...); kept rows have the mass of all of their class."""
        logits, _, weight, y = self._joined().first(self.each)
        held = torch.zeros_like(self.mass).scatter_add_(0, y, weight)
        weight = weight * (self.mass / held.clamp(min=1e-300))[y]
        return logits.double(), y, weight / weight.mean()
