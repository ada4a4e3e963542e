"""The commands `evalign-study list`, `run`, `render` and `datasets`. May import everything."""

import sys
from collections.abc import Sequence

import typer

from evalign.cli.app import run as run_program
from evalign_study.cli.datasets import datasets
from evalign_study.cli.tables import list_tables, render, run

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
app.command("list")(list_tables)
for command in (run, render, datasets):
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program."""
    sys.exit(run_program(arguments, program=app, name="evalign-study"))
