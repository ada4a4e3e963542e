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
    """The number and the mass of rows by label (L), class (2) and bin of the log-odds.

    Two exclusive classes, which have a column each, are one label.
    """

    counts: Tensor
    mass: Tensor
    two_classes: bool

    @classmethod
    def empty(cls, columns: int, device: torch.device, *, two_classes: bool) -> "Histogram":
        labels = 1 if two_classes else columns
        zeros = torch.zeros(labels, 2, BINS, dtype=torch.float64, device=device)
        return cls(zeros, zeros.clone(), two_classes)

    def add(self, rows: Tensor, y: Tensor, weight: Tensor) -> None:
        """Add rows (R, ...)."""
        if self.two_classes:
            rows, y, weight = rows[:, 1:] - rows[:, :1], y.unsqueeze(1), weight.unsqueeze(1)
        bins = (rows / WIDTH + BINS / 2).floor().clamp(0, BINS - 1).long()
        labels = torch.arange(rows.shape[1], device=rows.device)
        place = ((2 * labels + y) * BINS + bins).flatten()
        self.mass.view(-1).scatter_add_(0, place, weight.flatten())
        self.counts.view(-1).scatter_add_(0, place, (weight > 0).to(weight).flatten())

    def over_ranks(self) -> "Histogram":
        both = torch.stack([self.counts, self.mass])
        dist.all_reduce(both)
        return Histogram(both[0], both[1], self.two_classes)

    def number_of_rows(self) -> int:
        """The number of rows; of a multilabel problem, that of a label on average."""
        return int(self.counts.sum() / len(self.counts))

    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, labels and weights. Rows of weight 0 fill up shorter labels."""
        mass = self.mass / self.mass.sum().clamp(min=1e-300) * self.counts.sum()
        columns = [_rows_of_bins(*both) for both in zip(self.counts, mass, strict=True)]
        if self.two_classes:
            ((margin, y, weight),) = columns
            return torch.stack([torch.zeros_like(margin), margin], 1), y, weight
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


def keys(first: int, rows: int, device: torch.device) -> Tensor:
    """Pseudo-random numbers in [0, 1) of rows from the first one on, the same on every device."""
    # SplitMix64, its constants as signed numbers
    x = torch.arange(first, first + rows, device=device) * -0x61C8864680B583EB
    x = (x ^ (x >> 30)) * -0x40A7B892E31B1A47
    x = (x ^ (x >> 27)) * -0x6B2FB644ECCEEE15
    return (x & (2**52 - 1)).double() / 2**52


@dataclass
class Sample:
    """The rows with the smallest keys of each of C classes, up to `each` of them.

    Batches are collected, and thinned when they hold twice as many rows as the sample may.
    `counts` and `mass` (C,) are those of all rows seen, `next_row` numbers the rows to come.
    """

    each: int
    counts: Tensor
    mass: Tensor
    parts: list[_Rows]
    next_row: int = 0

    @classmethod
    def empty(cls, classes: int, size: int, device: torch.device, first: int) -> "Sample":
        sums = torch.zeros(classes, dtype=torch.float64, device=device)
        logits = torch.zeros(0, classes, dtype=torch.float32, device=device)
        no_rows = _Rows(logits, sums[:0].long(), sums[:0], sums[:0])
        return cls(max(1, size // classes), sums, sums.clone(), [no_rows], first)

    def add(self, rows: Tensor, y: Tensor, weight: Tensor) -> None:
        """Add rows. Those of weight 0 come last in their class, as leaving them out would wait."""
        self.mass.scatter_add_(0, y, weight)
        self.counts.scatter_add_(0, y, (weight > 0).to(weight))
        own = keys(self.next_row, len(y), y.device).masked_fill(~(weight > 0), torch.inf)
        self.next_row += len(y)
        self._put(_Rows(rows.float(), y, weight, own))

    def number_of_rows(self) -> int:
        return int(self.counts.sum())

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
        logits, y, weight, own = self._thinned()
        counts = own.isfinite()
        logits, y, weight = logits[counts], y[counts], weight[counts]
        held = torch.zeros_like(self.mass).scatter_add_(0, y, weight)
        weight = weight * (self.mass / held.clamp(min=1e-300))[y]
        return logits.double(), y, weight / weight.mean()
