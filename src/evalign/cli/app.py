"""The program: its commands, and the one place where an error becomes a line and an exit code."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from evalign import __version__
from evalign.cli import commands
from evalign.cli.options import Help
from evalign.core.errors import InputError, NeedsTorch
from evalign.core.text import visible

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    epilog="Exit codes: 0 done, 1 a bug, 2 bad input, 130 interrupted, 141 broken pipe.",
)
BROKEN_PIPE = 141  # what shells make of SIGPIPE
for name in ("demo", "fit", "predict", "evaluate", "decide", "compare", "report", "metrics"):
    app.command(add_help_option=False)(getattr(commands, name))


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"evalign {__version__}")
        raise typer.Exit


@app.callback(add_help_option=False)
def about(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=show_version, help="Show the version.")
    ] = False,
    show_help: Help = False,
) -> None:
    """Train classifiers on the metric you report."""


def run(
    arguments: Sequence[str] | None = None, *, program: typer.Typer = app, name: str = "evalign"
) -> int:
    """Run a program, by default this one, and return its exit code.

    Bad input becomes one line. Any other error is a bug and keeps its traceback. A pipe that is not
    read to its end, as by `head`, ends the program silently.
    """
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = get_command(program)(given, prog_name=name, standalone_mode=False) or 0
        sys.stdout.flush()
        return code
    except TyperException as error:
        return _complain(name, error.format_message())
    except (InputError, NeedsTorch) as error:
        return _complain(name, str(error))
    except (OSError, SystemExit) as error:  # rich ends the program at a broken pipe
        if BrokenPipeError in (type(error), type(error.__context__)):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        if isinstance(error, SystemExit):
            raise
        where = f"{error.filename}: " if error.filename else ""
        return _complain(name, f"{where}{error.strerror or error}")


def _complain(name: str, text: str) -> int:
    print(f"{name}: {visible(' '.join(text.split()))}", file=sys.stderr)
    return 2
