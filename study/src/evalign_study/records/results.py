"""Append-only files of records: JSON lines, compressed."""

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from evalign_study.records import members
from evalign_study.records.made import Record
from evalign_study.records.run import Run

try:
    import fcntl
except ImportError:  # Windows has no such locks; there, only one process may write at a time
    fcntl = None

SUFFIX = ".jsonl.gz"
CURE = "Restore the file; records are only ever added to it."


class ResultsError(ValueError):
    """The error for a results file that cannot be read or added to."""


class ResultsWarning(UserWarning):
    """The warning for a results file whose last write was cut off."""


class Results:
    """A file of records with different keys.

    Records that are added together are one part of the file, a gzip member (`members`), which is
    there as a whole or not at all. A crash can cut off only the last part. Such a part is not read,
    and the next write removes it. Any number of processes may read and write.

    Args:
        path: the path of the file, which the first write creates together with its folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.keys: set[str] = set()
        self._records: list[Record] = []
        self._parts = self._size = 0  # parts and bytes that were read so far
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            _lock(file, alone=False)
            whole = self._read_on(file)
        if not whole:
            cut = f"The last part of {self.path} was cut off; its runs are taken as not done."
            warnings.warn(cut, ResultsWarning, stacklevel=2)

    def records(self) -> list[Record]:
        """List all records, in the order in which they were added."""
        return list(self._records)

    def append(self, records: Sequence[Record]) -> None:
        """Add records in one part; they are on the disk when this returns.

        For each key, the first record is kept.
        """
        if not records:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            _lock(file, alone=True)
            self._read_on(file)  # other processes may have written in the meantime
            new: dict[str, Record] = {}
            for record in records:
                if record["key"] not in self.keys:
                    new.setdefault(record["key"], record)
            if not new:
                return
            part = members.pack(b"".join(map(_line, new.values())))
            file.truncate(self._size)  # a crash may have left an incomplete part
            file.write(part)
            file.flush()
            os.fsync(file.fileno())
        self._take(list(new.values()), len(part))

    def _read_on(self, file: BinaryIO) -> bool:
        """Read the new parts. Return False if the last one was cut off."""
        if os.fstat(file.fileno()).st_size < self._size:
            raise ResultsError(f"{self.path} has become shorter. {CURE}")
        file.seek(self._size)
        written, place = file.read(), 0
        while place < len(written):
            number = self._parts + 1
            try:
                part = members.unpack(written, place)
            except members.Damaged as error:
                raise ResultsError(f"Part {number} of {self.path} is damaged. {CURE}") from error
            if part is None:
                return False
            lines = part.content.splitlines()
            found = [_parsed(line) for line in lines]
            if None in found:
                line = f"Line {found.index(None) + 1} in part {number} of {self.path}"
                raise ResultsError(f"{line} is not a record. {CURE}")
            self._take([record for record in found if record is not None], part.end - place)
            place = part.end
        return True

    def _take(self, records: Sequence[Record], size: int) -> None:
        self._records += records
        self.keys |= {record["key"] for record in records}
        self._parts += 1
        self._size += size


def recorded(folder: Path) -> dict[str, Record]:
    """Read all files of a folder, and return the records by key, as tables share some runs."""
    files = sorted(folder.glob(f"*{SUFFIX}"))
    return {record["key"]: record for file in files for record in Results(file).records()}


def _lock(file: BinaryIO, *, alone: bool) -> None:
    """Lock the file until it is closed; after a crash the system releases the lock."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)


def _line(record: Record) -> bytes:
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> Record | None:
    """Read a line; return None if it is not a record, or its key is not that of its run."""
    try:
        found = json.loads(line)
        whole = found.keys() >= {"key", "run", "made", "picks"}
        return found if whole and Run(**found["run"]).key == found["key"] else None
    except (ValueError, TypeError, AttributeError):
        return None
