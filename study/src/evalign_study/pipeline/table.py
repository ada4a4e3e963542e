"""What a table of the study is, whatever it is about.

To add a table:

1. Write a subclass of `StudyTable`, in a folder of its own if it needs more than one file. Its runs
   are `Run`s; a loss of a new name goes to `trainers.methods`, a data set to `data/cards.toml`, and
   a training unlike the others is a `Trainer` in `trainers.choice`.
2. Say in `findings` what the records show, with the parts of `formats`.
3. Name it in `catalog.tables`.

A further table of a paper needs no code: it is written in `papers/tables.toml`.

Then `evalign-study run NAME` trains what is not recorded, and `evalign-study render NAME` writes
the files NAME.md, NAME.html and NAME.csv, and fills a page that has the marks `<!-- NAME -->` and
`<!-- end of NAME -->`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import plotly.graph_objects as go

from evalign_study.pipeline.formats import Part
from evalign_study.records.made import Record
from evalign_study.records.run import Run

QUICK = "A quick look, to see that it runs: its numbers mean nothing."


class StudyTable(ABC):
    """A table, or a part of one.

    Attributes:
        name: what commands and files call it.
        title: what it shows.
        quick: whether it is a small slice, to see that it runs. Its numbers mean nothing.
    """

    name: str
    title: str
    quick: bool

    @property
    @abstractmethod
    def datasets(self) -> list[str]:
        """The data sets it is about, by name."""

    @property
    def claims(self) -> list[str]:
        """The sentences it judges."""
        return []

    @abstractmethod
    def part(
        self, *, datasets: Sequence[str] | None = None, trials: int | None = None, quick: bool
    ) -> Self:
        """Take a part of the whole table.

        Args:
            datasets: some; None for all.
            trials: seeds of each setting; None for the table's own number.
            quick: a small slice.

        Raises:
            ValueError: if it does not have that part.
        """

    @abstractmethod
    def stages(self, records: Mapping[str, Record]) -> Iterator[list[Run]]:
        """Yield all runs, one stage after the other, recorded or not.

        A stage may depend on the records of those before it, which are in `records` by then. It may
        not depend on its own: what trains together must be the same after an interruption.
        """

    @abstractmethod
    def findings(self, records: Mapping[str, Record], folder: Path) -> "Findings":
        """Say what the records show.

        Args:
            records: by key, of this table and others.
            folder: where the records come from; a table may keep more there.
        """


class Sheet(NamedTuple):
    """A table of numbers, to be written as CSV."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Findings(NamedTuple):
    """All that is said of a table.

    Args:
        title: of the page.
        parts: the text.
        figures: by title; they stand at the end of the page.
        sheets: by the end of the file's name, "" for NAME.csv.
        lines: what the terminal shows.
        data: what the terminal writes as JSON.
    """

    title: str
    parts: Sequence[Part]
    figures: Mapping[str, go.Figure]
    sheets: Mapping[str, Sheet]
    lines: Sequence[str]
    data: Sequence[Mapping[str, Any]]


def origins(records: Sequence[Record], text: str) -> str:
    """List what records were made with, each once; `text` has names of "made" in braces."""
    return ", ".join(sorted({text.format_map(record["made"]) for record in records}))
