"""The command line: `evalign demo`, `fit`, `predict`, `evaluate`, `decide`, `compare`, `report`.

`app` is the program and turns bad input into one line. `commands` holds the commands with their
options: what a person sees before anything is computed. These, `options`, `files` and `errors`
import only typer, so that help and an error about a path come at once. Each command imports its
work when it runs. The work is in `fit`, `predict`, `decide` and `compare`. They use `outcome` (the
models' answers for rows), `scores` (those that a table holds), `findings` (what else a report tells
of them), `models` (what `fit` trains), `run` (the folder that it leaves behind), `dataset`,
`labels` and `columns` (from a table to numbers; `doubts` warns of what may be read wrongly, `cells`
has cells as text, numbers and dates) and `tables` (files of rows; `dialects` tells how a CSV is
written, `quotes` whether stray ones took in rows, `sheets` reads Excel, `dates` what is not ISO
8601, `truths` takes TRUE, true and 1 for the same). `loaded` opens a run in Python. `metrics` lists
and checks names.
May import everything else; only `evalign.load` imports it. Needs the extra `cli`.
"""

import io
import sys
from collections.abc import Sequence

from evalign.core.text import installing


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program.

    The exit code is 0, 1 (a bug), 2 (bad input), 130 (interrupted) or 141 (not read on).
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it may be ASCII, and names are any text
            stream.reconfigure(errors="backslashreplace")
    try:
        from evalign.cli.app import run

        code = run(arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("evalign"):
            raise
        code = f"evalign: {error.name} is not installed. {installing('.[cli]')}"
    except KeyboardInterrupt:  # while `app` is imported, which takes Ctrl-C from then on
        code = 130
    if code == 130:
        print("evalign: interrupted.", file=sys.stderr)
    sys.exit(code)
