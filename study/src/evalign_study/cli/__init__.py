"""The command line: `evalign-study reproduce` and `datasets`."""

import sys
from collections.abc import Sequence

import typer

from evalign.cli.app import run
from evalign_study.cli.datasets import datasets
from evalign_study.cli.reproduce import reproduce

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
for command in (datasets, reproduce):
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """The program."""
    sys.exit(run(arguments, program=app, name="evalign-study"))
