"""Results that are only ever added to: one JSON line for each run."""

import dataclasses
import json
import os
import platform
import subprocess
import warnings
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import sklearn
import torch

from evalign import __version__
from evalign_study.records.run import Run

try:
    import fcntl
except ImportError:  # Windows, where two processes must not write at once
    fcntl = None

Record = dict[str, Any]


class ResultsError(ValueError):
    """A results file that cannot be read or added to."""


class ResultsWarning(UserWarning):
    """The last write of a results file was cut off."""


class Results:
    """A file of records, of which each has another key.

    A line that was cut off by a crash, which can only be the last one, is not read, and removed
    when the next record comes. Any number of processes may read and write.

    Args:
        path: of the file; made with its folder when the first record comes.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.keys: set[str] = set()
        self._records: list[Record] = []
        self._size = 0  # of the lines read so far
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            _lock(file, alone=False)
            rest = self._read_on(file)
        if rest:
            cut = f"The last line of {self.path} was cut off; its run is taken as not done."
            warnings.warn(cut, ResultsWarning, stacklevel=2)

    def records(self) -> list[Record]:
        """All, in the order they were made."""
        return list(self._records)

    def append(self, record: Record) -> None:
        """Add a record; it is on the disk when this returns. The first of a key is the one kept."""
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            _lock(file, alone=True)
            self._read_on(file)  # what others have written meanwhile
            if record["key"] in self.keys:
                return
            file.truncate(self._size)  # what a crash has left of a line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._take(record, len(line))

    def _read_on(self, file: BinaryIO) -> bytes:
        """Take the lines that are new; what follows the last of them is returned."""
        if os.fstat(file.fileno()).st_size < self._size:
            cure = "Restore the file; records are only ever added to it."
            raise ResultsError(f"{self.path} has become shorter. {cure}")
        file.seek(self._size)
        *whole, rest = file.read().split(b"\n")
        for line in whole:
            record = _parsed(line)
            if record is None:
                cure = "Restore the file; records are only ever added to it."
                number = len(self._records) + 1
                raise ResultsError(f"Line {number} of {self.path} is no record. {cure}")
            self._take(record, len(line) + 1)
        return rest

    def _take(self, record: Record, size: int) -> None:
        self._records.append(record)
        self.keys.add(record["key"])
        self._size += size


def _lock(file: BinaryIO, *, alone: bool) -> None:
    """Until the file is closed; the system unlocks it after a crash."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)


def _parsed(line: bytes) -> Record | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(found, dict) and found.keys() >= {"key", "run", "picks"}
    return found if whole else None


def record(
    run: Run,
    *,
    epochs: int,
    capped: bool,
    seconds: float,
    picks: dict[str, Any],
    device: str = "cpu",
    precision: str = "float32",
    **more: Any,
) -> Record:
    """A record of a run, floats rounded to six digits; where one is not finite, None."""
    rest = {"epochs": epochs, "capped": capped, "seconds": seconds, "picks": picks, **more}
    return {
        "key": run.key,
        "run": dataclasses.asdict(run),
        "made": made(device, precision),
        **_rounded(rest),
    }


def made(device: str = "cpu", precision: str = "float32") -> dict[str, str]:
    """Where results come from: time, commit, device, precision of matrix products, versions."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "device": _processor() if device == "cpu" else torch.cuda.get_device_name(device),
        "precision": precision,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sklearn": sklearn.__version__,
        "evalign": __version__,
    }


@cache
def _commit() -> str:
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return found.stdout.strip() or "unknown"


@cache
def _processor() -> str:
    table = Path("/proc/cpuinfo")
    lines = table.read_text().splitlines() if table.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    if isinstance(value, float):
        return round(value, 6) if abs(value) < float("inf") else None
    return value
