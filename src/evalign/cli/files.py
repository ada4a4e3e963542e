"""Files: where one may be written, and how it is written whole or not at all.

Only the standard library is imported here: a wrong path is reported before anything slow is loaded.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evalign.cli.errors import UsageError

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
EXCEL = ".xlsx"  # read, never written


def check_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuse a file name with another suffix."""
    if not path.name.lower().endswith(suffixes):
        raise UsageError(f"{path} must end in {', '.join(suffixes)}.")


def check_other(out: Path, data: Path) -> None:
    """Refuse to write onto the table that is read."""
    if out.exists() and out.samefile(data):
        raise UsageError(f"--out must be another file than DATA. Got {out} twice.")


def table(path: Path | None) -> Path | None:
    """Check the path of a table to read."""
    if path is not None:
        check_suffix(path, (*SUFFIXES, EXCEL))
    return path


def writable(*suffixes: str) -> Callable[[Path | None], Path | None]:
    """Check a path to write: its suffix, if any is asked for, and that its folder exists."""

    def check(path: Path | None) -> Path | None:
        if path is not None:
            check_suffix(path, suffixes or ("",))
            parent = path.absolute().parent
            if not parent.is_dir():
                raise UsageError(f"The folder {parent} does not exist. Create it first.")
        return path

    return check


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a file beside `path`, which takes its place at the end and is gone after an error.

    Of two commands that write the same file, the last one wins whole.
    """
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    try:
        yield aside
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
