"""Checks of paths, before anything slow is loaded."""

from collections.abc import Callable
from pathlib import Path

from evalign.cli.errors import UsageError

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
EXCEL = ".xlsx"  # read, never written


def check_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuse a file name with another suffix."""
    if not path.name.lower().endswith(suffixes):
        raise UsageError(f"{path} must end in {', '.join(suffixes)}.")


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


def new_folder(path: Path) -> Path | None:
    """Check the path of a folder to write, which may be there if it is empty."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists. Choose another --out, or delete it.")
    return writable()(path)
