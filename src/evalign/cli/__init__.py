"""The command line: `evalign fit`, `predict`, `evaluate`, `compare`, `report`, `demo`, `datasets`
and `reproduce`.

`app` holds the commands together and turns bad input into one line; `tables` reads and writes
files, `columns` and `labels` make numbers of them, `run` is the folder that `fit` leaves behind.
May import everything else; nothing imports it. Needs the extra `cli`.
"""

import codecs
import io
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it may be in ASCII, and names in any alphabet
            stream.reconfigure(errors="evalign.plain")
    sys.exit(run(arguments))


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What a stream cannot show as a question mark, but the sign of a number as a hyphen."""
    assert isinstance(error, UnicodeEncodeError)
    return "-" if error.object[error.start] == "−" else "?", error.start + 1


codecs.register_error("evalign.plain", _plain)
