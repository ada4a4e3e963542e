"""The terminal: results go to standard output, the rest to standard error."""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from evalign.cli.errors import DataWarning, UsageError
from evalign.core.text import visible
from evalign.training import CheckpointError, TrainingWarning


@dataclass(frozen=True)
class Terminal:
    """The place where a command speaks.

    Args:
        as_json: the result is one JSON object, and nothing else is on standard output.
        quiet: nothing is said but errors, and JSON where asked for.
    """

    as_json: bool
    quiet: bool

    def note(self, text: str) -> None:
        if not self.quiet:
            print(visible(text), file=sys.stderr, flush=True)

    def result(self, data: dict[str, Any], *shown: Table | str) -> None:
        """Print the data for a machine, or what is shown of it to a person."""
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
    """Within it, a warning of the project is one line, and a checkpoint of no use is bad input."""
    spoken = Terminal(as_json, quiet)
    with warnings.catch_warnings():
        plain = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any) -> None:
            if category.__module__.startswith(("evalign.", "evalign_study.")):
                spoken.note(f"Note: {message}")
            else:
                plain(message, category, *where)

        warnings.simplefilter("always", DataWarning)
        warnings.simplefilter("always", TrainingWarning)
        warnings.showwarning = show
        try:
            yield spoken
        except CheckpointError as error:
            raise UsageError(str(error)) from error
