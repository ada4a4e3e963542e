"""Files, folders and JSON documents: written whole or not at all, and read back checked.

Nothing slow is imported here, so that a command can check its paths at once.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalign.core.errors import InputError, NeedsTorch

VERSION = 12  # of all formats
MAX_JSON_BYTES = 2**28  # measured before a document is read


class StoreError(InputError):
    """A path that holds nothing that this version of evalign saved, or that is damaged."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path for a new file or folder that takes the place of `path` at the end.

    After an error it is removed. A file is replaced; a folder must be empty for that. The path
    aside has a random name: of two writers of one file, the last one wins whole.
    """
    path = Path(os.path.realpath(path))  # a link stays
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    try:
        yield aside
        for each in [*aside.rglob("*"), aside]:
            _sync(each)
        if aside.is_dir() and path.is_dir():
            path.rmdir()  # an error if somebody has filled it meanwhile
        os.replace(aside, path)
    except BaseException:  # disk full, Ctrl-C: what was there before is untouched
        shutil.rmtree(aside, ignore_errors=True)  # of a file nothing
        aside.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "nt" and path.is_dir():  # cannot be opened; NTFS keeps entries in its journal
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_plain(path: Path, most: int = MAX_JSON_BYTES) -> bytes:
    """The contents of a plain file of at most so many bytes, never of a pipe or a device."""
    if path.exists() and not (path.is_file() and path.stat().st_size <= most):
        raise ValueError(f"it is not a plain file of at most {most:,} bytes")
    return path.read_bytes()


def write_json(path: Path, kind: str, tree: dict[str, Any]) -> None:
    """Write a JSON document of a kind, with its version and checksum."""
    about = {"format": f"evalign {kind}", "version": VERSION, "sha256": _checksum(tree)}
    with replacing(path) as aside:
        aside.write_text(json.dumps(about | tree, indent=1), encoding="utf-8")


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """Read what `write_json` wrote, or raise a `StoreError`."""
    try:
        tree = dict(json.loads(read_plain(path)))
        found, version, checksum = (tree.pop(x, None) for x in ("format", "version", "sha256"))
    except Exception as error:
        raise nothing(path, reason(error)) from error
    if found != f"evalign {kind}":
        raise nothing(path, f"it is no {kind}")
    check_version(path, version)
    if checksum != _checksum(tree):
        raise damaged(path, "it has changed since it was written")
    return tree


def _checksum(tree: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def check_version(path: Path, version: object) -> None:
    if version != VERSION:
        raise StoreError(f"{path} has format {version}, evalign now reads {VERSION}: fit again.")


@contextmanager
def reading(path: Path, part: str = "") -> Iterator[None]:
    """Turn any error from unexpected contents into a `StoreError`; not that torch is missing."""
    try:
        yield
    except (InputError, NeedsTorch):
        raise
    except Exception as error:
        raise StoreError(f"{path} cannot be opened: {part}{reason(error)}.") from error


def damaged(path: Path, why: str) -> StoreError:
    return StoreError(f"{path} is damaged: {why}. Restore it from a copy, or fit again.")


def nothing(path: Path, why: str) -> StoreError:
    return StoreError(f"{path} holds nothing that evalign saved: {why}.")


def reason(error: BaseException) -> str:
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    why = getattr(error, "strerror", None) or f"{kind}{error}"
    return " ".join(why.split())[:300].rstrip(".")
