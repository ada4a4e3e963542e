"""Files of records that are only ever added to: JSON lines, compressed."""

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
except ImportError:  # Windows, where two processes must not write at once
    fcntl = None

SUFFIX = ".jsonl.gz"
CURE = "Restore the file; records are only ever added to it."


class ResultsError(ValueError):
    """A results file that cannot be read or added to."""


class ResultsWarning(UserWarning):
    """The last write of a results file was cut off."""


class Results:
    """A file of records, each with another key.

    What is added together is one part of the file, a gzip member (`members`): it is there as a
    whole or not at all. A part that was cut off by a crash, which can only be the last one, is not
    read, and removed when the next one comes. Any number of processes may read and write.

    Args:
        path: of the file; made with its folder when the first record comes.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.keys: set[str] = set()
        self._records: list[Record] = []
        self._parts = self._size = 0  # that were read so far
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            _lock(file, alone=False)
            whole = self._read_on(file)
        if not whole:
            cut = f"The last part of {self.path} was cut off; its runs are taken as not done."
            warnings.warn(cut, ResultsWarning, stacklevel=2)

    def records(self) -> list[Record]:
        """List all, in the order they were made."""
        return list(self._records)

    def append(self, records: Sequence[Record]) -> None:
        """Add records together; they are on the disk when this returns.

        The first of a key is the one kept.
        """
        if not records:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            _lock(file, alone=True)
            self._read_on(file)  # what others have written meanwhile
            new: dict[str, Record] = {}
            for record in records:
                if record["key"] not in self.keys:
                    new.setdefault(record["key"], record)
            if not new:
                return
            part = members.pack(b"".join(map(_line, new.values())))
            file.truncate(self._size)  # what a crash has left of a part
            file.write(part)
            file.flush()
            os.fsync(file.fileno())
        self._take(list(new.values()), len(part))

    def _read_on(self, file: BinaryIO) -> bool:
        """Take the parts that are new. False if the last one was cut off."""
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
    """Read all files of a folder: the records by key. Some tables have runs in common."""
    files = sorted(folder.glob(f"*{SUFFIX}"))
    return {record["key"]: record for file in files for record in Results(file).records()}


def _lock(file: BinaryIO, *, alone: bool) -> None:
    """Hold the file until it is closed; the system lets it go after a crash."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)


def _line(record: Record) -> bytes:
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> Record | None:
    """Read a line; None if it is not a record whose key is that of its run."""
    try:
        found = json.loads(line)
        whole = found.keys() >= {"key", "run", "made", "picks"}
        return found if whole and Run(**found["run"]).key == found["key"] else None
    except (ValueError, TypeError, AttributeError):
        return None
