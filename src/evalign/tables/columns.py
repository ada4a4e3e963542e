"""What is learned about a column, and how its values become numbers and flags of 0 and 1.

Each class is plain data. `write` fills the column's part of a matrix of zeros: its numbers, named
by `number_names`, and its flags, named by `flag_names`.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np

from evalign.tables.values import ColumnValues

RARE = 10  # rows; levels with fewer share a flag
LEVELS = 100  # most flags of a category; the rarest levels share one
DAY = 86_400_000_000  # microseconds
PARTS = ("days", "year", "month", "weekday", "hour")


@dataclass(frozen=True)
class _Flagged:
    """A column that gets a flag for gaps if training had any (`gaps`)."""

    name: str
    gaps: bool

    @property
    def number_names(self) -> list[str]:
        return []

    @property
    def flag_names(self) -> list[str]:
        return [_missing(self.name)] if self.gaps else []


@dataclass(frozen=True)
class NumberColumn(_Flagged):
    """Numbers. A gap becomes the median, `fill`."""

    kind: ClassVar[str] = "number"
    fill: float

    @classmethod
    def learn(cls, name: str, column: ColumnValues) -> "NumberColumn":
        return cls(name, bool(column.gaps.any()), float(np.nanmedian(column.values)))

    @property
    def number_names(self) -> list[str]:
        return [self.name]

    def write(self, column: ColumnValues, numbers: np.ndarray, flags: np.ndarray) -> None:
        gaps = column.gaps
        numbers[:, 0] = np.where(gaps, self.fill, column.values)
        flags[:] = gaps[:, None]


@dataclass(frozen=True)
class BooleanColumn(_Flagged):
    """Booleans: one flag."""

    kind: ClassVar[str] = "boolean"

    @classmethod
    def learn(cls, name: str, column: ColumnValues) -> "BooleanColumn":
        return cls(name, bool(column.gaps.any()))

    @property
    def flag_names(self) -> list[str]:
        return [self.name, *super().flag_names]

    def write(self, column: ColumnValues, numbers: np.ndarray, flags: np.ndarray) -> None:
        flags[:, 0] = column.values == 1
        flags[:, 1:] = column.gaps[:, None]


@dataclass(frozen=True)
class DateColumn(_Flagged):
    """Dates in UTC: the days since 1970 and the calendar parts that vary.

    Args:
        name: name of the column.
        gaps: whether training had gaps.
        parts: some of `PARTS`.
        fill: the median of each.
    """

    kind: ClassVar[str] = "date"
    parts: tuple[str, ...]
    fill: tuple[float, ...]

    @classmethod
    def learn(cls, name: str, column: ColumnValues) -> "DateColumn":
        present = ~column.gaps
        found = calendar(column.values[present])
        fill = {part: float(np.median(found[part])) for part in PARTS if np.ptp(found[part]) > 0}
        return cls(name, not present.all(), tuple(fill), tuple(fill.values()))

    @property
    def number_names(self) -> list[str]:
        return [f"{self.name}: {part}" for part in self.parts]

    def write(self, column: ColumnValues, numbers: np.ndarray, flags: np.ndarray) -> None:
        found, gaps = calendar(column.values), column.gaps
        for place, (part, fill) in enumerate(zip(self.parts, self.fill, strict=True)):
            numbers[:, place] = np.where(gaps, fill, found[part])
        flags[:] = gaps[:, None]


@dataclass(frozen=True)
class CategoryColumn:
    """Categories: a flag for each level. A gap is a level; rare and unseen levels share a flag.

    Args:
        name: name of the column.
        levels: levels with their own flag, sorted; None is the gap.
        rare: levels that share a flag.
    """

    kind: ClassVar[str] = "category"
    number_names: ClassVar[list[str]] = []
    name: str
    levels: tuple[str | None, ...]
    rare: tuple[str | None, ...]

    @classmethod
    def learn(cls, name: str, column: ColumnValues) -> "CategoryColumn":
        counts = Counter(column.values.tolist())
        known = sorted(counts, key=lambda level: (level is not None, level))
        kept = [level for level in known if counts[level] >= RARE]
        if len(kept) + (len(kept) < len(known)) > LEVELS:
            kept = sorted(kept, key=counts.__getitem__)[-(LEVELS - 1) :]
        flagged = set(kept)
        levels = tuple(level for level in known if level in flagged)
        return cls(name, levels, tuple(level for level in known if level not in flagged))

    @property
    def flag_names(self) -> list[str]:
        named = [_missing(self.name) if x is None else f"{self.name}={x}" for x in self.levels]
        return [*named, f"{self.name} is rare"] if self.rare else named

    @property
    def codes(self) -> dict[str | None, int]:
        """The position of each level's flag."""
        places = {level: place for place, level in enumerate(self.levels)}
        return places | dict.fromkeys(self.rare, len(self.levels))

    @property
    def other(self) -> int:
        """The position of the flag of unseen levels: the one of rare levels, or −1 for none."""
        return len(self.levels) if self.rare else -1

    def write(self, column: ColumnValues, numbers: np.ndarray, flags: np.ndarray) -> None:
        place, other = self.codes, self.other
        values = column.values
        places = np.fromiter((place.get(level, other) for level in values), int, len(values))
        rows = np.flatnonzero(places >= 0)
        flags[rows, places[rows]] = 1

    def has_unseen(self, column: ColumnValues) -> bool:
        """Whether some level was not in training, except for gaps."""
        return not {None, *self.codes}.issuperset(column.values)


LearntColumn = NumberColumn | BooleanColumn | CategoryColumn | DateColumn
KINDS: dict[str, type[LearntColumn]] = {c.kind: c for c in get_args(LearntColumn)}


def calendar(time: np.ndarray) -> dict[str, np.ndarray]:
    """The `PARTS` of dates, datetime64[us].

    Days since 1970 with their fraction, the year, the month from 1, the weekday from 0 for Monday,
    and the hour with its fraction.
    """
    years, months, days, moments = (
        time.astype(f"datetime64[{unit}]").astype(np.int64) for unit in ("Y", "M", "D", "us")
    )
    return {
        "days": moments / DAY,
        "year": years + 1970,
        "month": months % 12 + 1,
        "weekday": (days + 3) % 7,
        "hour": (moments - days * DAY) / (DAY // 24),
    }


def column_from(state: dict[str, Any]) -> LearntColumn:
    """Rebuild a column from plain values, as `Features.state_dict` returns them."""
    state = {key: tuple(v) if isinstance(v, list) else v for key, v in state.items()}
    return KINDS[state.pop("kind")](**state)


def _missing(name: str) -> str:
    return f"{name} is missing"
