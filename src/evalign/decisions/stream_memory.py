"""What remains of a stream of batches: histograms of log-odds, or a sample of the rows."""

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

    A class has as many rows as it had, up to `ENOUGH` of them: their number tells whether labels
    decide alone.
    """
    y, bins = counts.nonzero(as_tuple=True)
    number, total = counts[y, bins], counts.sum(1)[y]
    copies = (number * (ENOUGH / total).clamp(max=1)).ceil().long()
    weight = (mass[y, bins] / copies).repeat_interleave(copies)
    middle = (bins.double() + 0.5 - BINS / 2) * WIDTH
    return middle.repeat_interleave(copies), y.repeat_interleave(copies), weight


class _Rows(NamedTuple):
    """Rows (R, ...), with pseudo-random keys."""

    logits: Tensor
    y: Tensor
    weight: Tensor
    keys: Tensor

    def smallest_keys(self, each: int) -> "_Rows":
        """The `each` rows of every class with the smallest keys, by class and key."""
        order = self.keys.argsort(stable=True)
        order = order[self.y[order].argsort(stable=True)]
        y = self.y[order]
        start = torch.searchsorted(y, torch.arange(self.logits.shape[1], device=y.device))
        rank = torch.arange(len(y), device=y.device) - start[y]
        chosen = order[rank < each]
        return _Rows(*(part[chosen] for part in self))


@dataclass
class Sample:
    """The rows with the smallest keys of each of C classes, up to `each` of them.

    Batches are collected, and thinned when they hold twice as many rows as the sample may.
    `counts` and `mass` (C,) are those of all rows seen.
    """

    each: int
    counts: Tensor
    mass: Tensor
    parts: list[_Rows]

    @classmethod
    def empty(cls, classes: int, size: int, device: torch.device) -> "Sample":
        sums = torch.zeros(classes, dtype=torch.float64, device=device)
        logits = torch.zeros(0, classes, dtype=torch.float32, device=device)
        no_rows = _Rows(logits, sums[:0].long(), sums[:0], sums[:0])
        return cls(max(1, size // classes), sums, sums.clone(), [no_rows])

    def add(self, logits: Tensor, y: Tensor, weight: Tensor, keys: Tensor) -> None:
        """Add rows with positive weights."""
        self.mass.scatter_add_(0, y, weight)
        self.counts.scatter_add_(0, y, torch.ones_like(weight))
        self._put(_Rows(logits.float(), y, weight, keys))

    def _put(self, rows: _Rows) -> None:
        self.parts.append(rows)
        if sum(len(part.y) for part in self.parts) >= 2 * self.each * len(self.mass):
            self.parts = [self._thinned()]

    def _thinned(self) -> _Rows:
        return _Rows(*map(torch.cat, zip(*self.parts, strict=True))).smallest_keys(self.each)

    def over_ranks(self) -> "Sample":
        both = torch.stack([self.counts, self.mass])
        dist.all_reduce(both)
        own, sizes = self._thinned(), [0] * dist.get_world_size()
        dist.all_gather_object(sizes, len(own.y))
        whole = Sample(self.each, both[0], both[1], [])
        for rank, size in enumerate(sizes):  # one after the other, to hold few at a time
            here = rank == dist.get_rank()
            rows = own if here else _Rows(*(x.new_empty(size, *x.shape[1:]) for x in own))
            for part in rows if size else ():
                dist.broadcast(part, src=rank)
            whole._put(rows)
        return whole

    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, labels and weights (R, ...); a class's rows have the mass of all its rows."""
        logits, y, weight, _ = self._thinned()
        held = torch.zeros_like(self.mass).scatter_add_(0, y, weight)
        weight = weight * (self.mass / held.clamp(min=1e-300))[y]
        return logits.double(), y, weight / weight.mean()
