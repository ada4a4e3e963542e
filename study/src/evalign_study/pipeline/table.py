"""The interface of a table of the study.

To add a table:

1. Write a subclass of `StudyTable`, in a folder of its own if it needs more than one file. Its runs
   are `Run`s; a loss of a new name goes to `trainers.methods`, a data set to `data/cards.toml`, and
   a training unlike the others is a `Trainer` in `trainers.choice`.
2. Say in `findings` what the records show, with the parts of `formats`.
3. Name it in `catalog.tables`.

A further table of a paper needs no code: it is written in `papers/tables.toml`.

Then `evalign-study run NAME` trains what is not recorded, and `evalign-study render NAME` writes
the files NAME.md, NAME.html and NAME.csv, and fills a page that has the marks `<!-- NAME -->` and
`<!-- end of NAME -->` with the parts before `formats.Rest`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import plotly.graph_objects as go

from evalign_study.pipeline.formats import Part
from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.refusals import nearest, require

QUICK = "A quick look, to see that it runs: its numbers mean nothing."


class StudyTable(ABC):
    """A table, or a part of one.

    Attributes:
        name: the name in commands and files.
        title: what it shows.
        quick: whether it is a small slice, to see that it runs. Its numbers mean nothing.
    """

    name: str
    title: str
    quick: bool

    @property
    @abstractmethod
    def datasets(self) -> list[str]:
        """The names of its data sets."""

    @property
    def claims(self) -> list[str]:
        """The sentences it judges."""
        return []

    @abstractmethod
    def part(
        self, *, datasets: Sequence[str] | None = None, trials: int | None = None, quick: bool
    ) -> Self:
        """Return a part of the whole table.

        Args:
            datasets: the names of some data sets; None for all.
            trials: the number of seeds of each setting; None for the table's own number.
            quick: whether to take a small slice.

        Raises:
            ValueError: if the table does not have that part.
        """

    @abstractmethod
    def stages(self, records: Mapping[str, Record]) -> Iterator[list[Run]]:
        """Yield all runs, recorded or not, one stage after the other.

        A stage may depend on the records of earlier stages, which are in `records` by then. It may
        not depend on its own records, as units must be the same after an interruption.
        """

    @abstractmethod
    def findings(self, records: Mapping[str, Record], folder: Path) -> "Findings":
        """Say what the records show.

        Args:
            records: the records by key, of this table and others.
            folder: the folder of the records; a table may keep other files there.
        """


class Sheet(NamedTuple):
    """A table of numbers, to be written as CSV."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Findings(NamedTuple):
    """All results of a table.

    Args:
        title: the title of the page.
        parts: the text, the summary first and then, after `formats.Rest`, what a page leaves out.
        figures: the figures by title; they are at the end of the page.
        sheets: the sheets by the end of the file's name, "" for NAME.csv.
        lines: what the terminal shows.
        data: what the terminal writes as JSON.
    """

    title: str
    parts: Sequence[Part]
    figures: Mapping[str, go.Figure]
    sheets: Mapping[str, Sheet]
    lines: Sequence[str]
    data: Sequence[Mapping[str, Any]]


def check_datasets(table: str, asked: Sequence[str], known: Sequence[str]) -> None:
    """Refuse the name of a data set that a table does not have."""
    for name in asked:
        allowed = f"be one of {', '.join(known)}"
        require(name in known, table, "dataset", allowed, repr(name), nearest(name, known))


def origins(records: Sequence[Record], text: str) -> str:
    """List what records were made with, each once; `text` names keys of "made" in braces."""
    return ", ".join(sorted({text.format_map(record["made"]) for record in records}))
