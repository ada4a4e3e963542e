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
from typing import Any

import torch

from evalign import __version__
from evalign.core.checks import require
from evalign.study.run import Run

Record = dict[str, Any]


class ResultsError(ValueError):
    """A results file that cannot be read."""


class ResultsWarning(UserWarning):
    """The last write of a results file was cut off."""


class Results:
    """A file of records, of which each has another key.

    A line that was cut off by a crash, which can only be the last one, is not read, and removed
    when the next record comes. One process writes at a time; any number may read.

    Args:
        path: of the file; made with its folder when the first record comes.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._records: list[Record] = []
        self._size = 0  # of the whole lines
        text = self.path.read_bytes() if self.path.exists() else b""
        *whole, rest = text.split(b"\n")
        for number, line in enumerate(whole, 1):
            record = _parsed(line)
            if record is None:
                cure = "Restore the file; records are only ever added to it."
                raise ResultsError(f"Line {number} of {self.path} is no record. {cure}")
            self._records.append(record)
            self._size += len(line) + 1
        self.keys: set[str] = {record["key"] for record in self._records}
        if rest:
            cut = f"The last line of {self.path} was cut off; its run is taken as not done."
            warnings.warn(cut, ResultsWarning, stacklevel=2)

    def records(self) -> list[Record]:
        """All, in the order they were made."""
        return list(self._records)

    def append(self, record: Record) -> None:
        """Add a record; it is on the disk when this returns."""
        new = record["key"] not in self.keys
        cure = "A run is recorded once."
        require(new, "Results.append", "record", "have a new key", record["key"], cure)
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.ftruncate(file, self._size)  # what a crash has left of a line
            os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)
        self._records.append(record)
        self._size += len(line)
        self.keys.add(record["key"])


def _parsed(line: bytes) -> Record | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(found, dict) and found.keys() >= {"key", "run", "picks"}
    return found if whole else None


def record(
    run: Run, *, epochs: int, capped: bool, seconds: float, picks: dict[str, Any], **more: Any
) -> Record:
    """A record of a run, floats rounded to six digits; where one is not finite, None."""
    rest = {"epochs": epochs, "capped": capped, "seconds": seconds, "picks": picks, **more}
    return {
        "key": run.key,
        "run": dataclasses.asdict(run),
        "made": made(),
        **_rounded(rest),
    }


def made() -> dict[str, str]:
    """Where results come from: time, commit, device, precision of matrix products, versions."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "device": device,
        "matmul": torch.get_float32_matmul_precision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
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
