"""The program: its commands, and the one place where an error becomes a line and an exit code."""

import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from evalign import __version__
from evalign.cli.commands import (
    compare,
    decide,
    demo,
    evaluate,
    fit,
    metrics,
    predict,
    report,
)
from evalign.cli.errors import UsageError
from evalign.core.text import nearest, visible

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    epilog="Exit codes: 0 done, 1 a bug, 2 bad input, 130 interrupted, 141 not read on.",
)
UNREAD = 141  # what shells make of SIGPIPE, by which other programs end then
for command in (demo, fit, predict, evaluate, decide, compare, report, metrics):
    app.command()(command)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"evalign {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, help="Show the version.")
    ] = False,
) -> None:
    """Train classifiers on the metric you report."""


def run(
    arguments: Sequence[str] | None = None, *, program: typer.Typer = app, name: str = "evalign"
) -> int:
    """Run a program, by default this one, and return its exit code.

    Bad input becomes one line. Any other error is a bug and keeps its traceback. A pipe that is not
    read to its end, as by `head`, ends the program without a word.
    """
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = _done(given, program, name)
        sys.stdout.flush()  # Python itself would do so last, and complain
        return code
    except (BrokenPipeError, SystemExit) as error:
        # Rich and typer make the latter of the former. Any other says how the program ends.
        if BrokenPipeError not in (type(error), type(error.__context__)):
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        return UNREAD


def _done(given: list[str], program: typer.Typer, name: str) -> int:
    """Run a program and return its exit code."""
    try:
        return get_command(program)(given, prog_name=name, standalone_mode=False) or 0
    except TyperException as error:
        return _complain(name, _with_cure(error))
    except UsageError as error:
        return _complain(name, str(error))
    except OSError as error:  # disk full, no permission
        where = f"{error.filename}: " if error.filename else ""
        return _complain(name, f"{where}{error.strerror or error}")


def _with_cure(error: TyperException) -> str:
    """The text of typer with the choice that is most like what was given, or where to look."""
    text, context = error.format_message(), getattr(error, "ctx", None)
    if text.startswith(("Missing", "No such option")) and context is not None:
        also = _commands_with(getattr(error, "option_name", None), context)
        text = f"{text.rstrip('.')}. {f'It is one of {also}. ' if also else ''}"
        return f"{text}See `{context.command_path} --help`."
    found = re.search(r"'([^']*)' is not one of (.+)\.$", text)
    cure = nearest(found[1], re.findall(r"'([^']+)'", found[2])) if found else ""
    return f"{text} {cure}" if cure else text


def _commands_with(option: str | None, context: Any) -> str:
    """The commands of a program that have an option."""
    root = context.find_root()
    commands = getattr(root.command, "commands", {})
    found = [name for name, one in commands.items() if any(option in p.opts for p in one.params)]
    return ", ".join(f"`{root.info_name} {name}`" for name in found)


def _complain(name: str, text: str) -> int:
    print(f"{name}: {visible(' '.join(text.split()))}", file=sys.stderr)
    return 2
