"""The terminal: results go to standard output, everything else to standard error."""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from evalign.core.text import plain, visible


@dataclass(frozen=True)
class Terminal:
    """The output of a command.

    Args:
        as_json: print the result as one JSON object, and nothing else on standard output.
        quiet: print only errors, and JSON if asked for.
        warned: the warnings so far, which the report repeats.
    """

    as_json: bool
    quiet: bool
    warned: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if not self.quiet:
            print(visible(text), file=sys.stderr, flush=True)

    def warn(self, message: Any, *_: Any) -> None:
        """Show a warning once, in one line."""
        if str(message) not in self.warned:
            self.warned.append(str(message))
            self.note(f"Note: {message}")

    def result(self, data: dict[str, Any], *shown: Table | str) -> None:
        """Print the data as JSON, or for a person what is `shown`."""
        if self.as_json:
            print(json.dumps(plain(data)))
        elif not self.quiet:
            # Class names are not markup, and a sentence is not broken into lines.
            console = Console(markup=False, emoji=False, highlight=False)
            for part in shown:
                text = visible(part) if isinstance(part, str) else part
                console.print(text, soft_wrap=isinstance(part, str))


@contextmanager
def terminal(*, as_json: bool, quiet: bool) -> Iterator[Terminal]:
    """Yield a Terminal that shows warnings."""
    spoken = Terminal(as_json, quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = spoken.warn
        yield spoken


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of names and, aligned to the right, numbers."""
    table = Table(Column(headings[0], no_wrap=True), box=None, pad_edge=False)
    for heading in headings[1:]:
        table.add_column(visible(heading), justify="right")
    for row in rows:
        table.add_row(*map(visible, row))
    return table
