"""Files and folders: what may be read or written, and how a file is written whole or not at all.

Only the standard library is imported here: a wrong path is reported before anything slow is loaded.
"""

import errno
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from evalign.cli.errors import UsageError

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
EXCEL = ".xlsx"  # which is read, and not written


def check_utf8(path: Path) -> None:
    """Refuse a name that is not UTF-8, which cannot be given to all readers or written to pages."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{str(path)!a} must be a name in UTF-8. Rename it.") from None


def check_suffix(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Refuse a file name without the suffix of a table, by default of one to be written."""
    if not path.name.lower().endswith(suffixes):
        raise UsageError(f"{path} must end in {', '.join(suffixes)}.")


def check_table(path: Path) -> None:
    """Refuse a path that does not lead to a table."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Give one of the files in it.")
    if path.suffix.lower() == ".zip":
        raise UsageError(f"{path} is packed. Unpack it, and give the table that it holds.")
    check_suffix(path, (*SUFFIXES, EXCEL))
    if not path.exists():
        raise UsageError(f"{path} cannot be read: {os.strerror(errno.ENOENT)}.")


def check_rule(path: Path) -> None:
    """Refuse a file name that is not one of a rule, or a file that is not there."""
    check_json(path)
    if not path.is_file():
        raise UsageError(f"{path} cannot be read: {os.strerror(errno.ENOENT)}.")


def check_json(path: Path) -> None:
    """Refuse a file name without the suffix of a rule."""
    if path.suffix.lower() != ".json":
        raise UsageError(f"{path} must end in .json, as `evalign decide` writes a rule.")


def check_run(folder: Path) -> None:
    """Refuse a folder without `run.json`, which `evalign fit` writes last."""
    if not (folder / "run.json").is_file():
        unfinished = partial_folder(folder).exists()
        cure = "Give the folder that `evalign fit` wrote."
        cure = "It is not finished: run the same command again." if unfinished else cure
        raise UsageError(f"{folder} is not a run of evalign: it has no run.json. {cure}")


def check_page(path: Path) -> None:
    """Refuse a name that is not one of a page: a table of that name would be lost."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{path} must end in .html or .htm.")


def check_file(path: Path) -> None:
    """Refuse a place where no file can be written."""
    check_parent(path)
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Name a file in it.")


def check_parent(path: Path) -> None:
    """Refuse to write into a folder that does not exist, or that takes no file."""
    parent = path.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"The folder {parent} does not exist. Create it first.")
    if (path / "run.json").is_file():  # a run, which is shown and not written again
        return
    try:  # permissions alone do not tell, as of a disk that is read-only
        TemporaryFile(dir=parent).close()
    except OSError as error:
        why = f"the folder {parent} takes no file ({error.strerror})"
        raise UsageError(f"{path} cannot be written: {why}. Choose another --out.") from error


def partial_folder(folder: Path) -> Path:
    """The folder in which a run is built, beside its final one."""
    return folder.absolute().with_name(folder.absolute().name + ".partial")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a file beside `path`, which takes its place at the end and is gone after an error.

    Its name is no other command's: of two that write one file, the last one wins whole.
    """
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    try:
        yield aside
        synced(aside)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def synced(path: Path) -> None:
    """Wait until a file is on the disk."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_parquet(path: Path) -> bool:
    """Whether the name is that of a Parquet file."""
    return path.suffix.lower() == ".parquet"


def is_excel(path: Path) -> bool:
    """Whether the name is that of a workbook of Excel; what is neither is CSV."""
    return path.suffix.lower() == EXCEL
