"""The command line: `evalign fit`, `predict`, `evaluate`, `compare`, `report` and `demo`.

`app` holds the commands together and turns bad input into one line; `tables` reads and writes
files, `columns` and `labels` make numbers of them, `run` is the folder that `fit` leaves behind.
May import everything else; nothing imports it. Needs the extra `cli`.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """The program. Ends with exit code 0, 1 (a bug), 2 (bad input) or 130 (interrupted)."""
    try:
        from evalign.cli.app import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("evalign"):
            raise
        sys.exit(f"evalign: {error.name} is not installed. Run: pip install 'evalign[cli]'")
    sys.exit(run(arguments))
