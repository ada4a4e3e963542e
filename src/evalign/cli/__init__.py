"""The command line: `evalign demo`, `fit`, `predict`, `evaluate`, `decide`, `compare`, `report`.

`app` is the program, and `commands` declares its commands. Both import little, so that help appears
at once. The work is in `fit`, `predict`, `decide`, `compare` and `metrics`; `run` is the folder
that `fit` writes, `outcome` holds what its report says, `dataset` reads and splits tables.
May import everything else; only `evalign.load` imports it. Needs the extra `cli`.
"""

import io
import sys
from collections.abc import Sequence

from evalign.core.text import installing


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program.

    The exit code is 0, 1 (a bug), 2 (bad input), 130 (interrupted) or 141 (broken pipe).
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
    except KeyboardInterrupt:
        code = 130
    if code == 130:
        print("evalign: interrupted.", file=sys.stderr)
    sys.exit(code)
