"""The terminal: results go to standard output, the rest to standard error."""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from evalign.cli.errors import UsageError
from evalign.core.text import visible
from evalign.tables.files import TableError
from evalign.training import CheckpointError

WARNING = "Note: "


@dataclass(frozen=True)
class Terminal:
    """The output of a command.

    Args:
        as_json: print the result as one JSON object, and nothing else on standard output.
        quiet: print only errors, and JSON if asked for.
        warned: the warnings so far, which a report repeats.
    """

    as_json: bool
    quiet: bool
    warned: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text.startswith(WARNING):
            self.warned.append(text.removeprefix(WARNING))
        if not self.quiet:
            print(visible(text), file=sys.stderr, flush=True)

    def result(self, data: dict[str, Any], *shown: Table | str) -> None:
        """Print the data as JSON, or what is `shown` to a person."""
        if self.as_json:
            print(json.dumps(data))
        elif not self.quiet:
            # Class names are not markup, and a sentence is not broken into lines.
            console = Console(markup=False, emoji=False, highlight=False)
            for part in shown:
                text = visible(part) if isinstance(part, str) else part
                console.print(text, soft_wrap=isinstance(part, str))


@contextmanager
def terminal(*, as_json: bool, quiet: bool) -> Iterator[Terminal]:
    """Give a Terminal. A warning becomes one line; errors of files and tables are bad input."""
    spoken = Terminal(as_json, quiet)

    def show(message: Any, *_: Any) -> None:
        if str(message) not in spoken.warned:
            spoken.note(f"{WARNING}{message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        try:
            yield spoken
        except (CheckpointError, TableError) as error:
            raise UsageError(str(error)) from error
