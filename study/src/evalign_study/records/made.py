"""A record: the result of a run, and where it was made."""

import dataclasses
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import sklearn
import torch

from evalign import __version__
from evalign_study.records.run import Run

Record = dict[str, Any]

# The mark after a commit that nobody can check out.
NOT_IN_HISTORY = " (not in the history)"


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
    """Make the record of a run. Floats keep six digits; one that is not finite becomes None."""
    rest = {"epochs": epochs, "capped": capped, "seconds": seconds, "picks": picks, **more}
    return {
        "key": run.key,
        "run": dataclasses.asdict(run),
        "made": made(device, precision),
        **_rounded(rest),
    }


def made(device: str = "cpu", precision: str = "float32") -> dict[str, str]:
    """Describe where results come from: time, commit, device, precision of products, versions."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": _processor() if device == "cpu" else torch.cuda.get_device_name(device),
        "precision": precision,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sklearn": sklearn.__version__,
        "evalign": __version__,
    }


@cache
def commit(folder: Path = Path(__file__).parent) -> str:
    """Name the commit of the code, with a mark if it cannot be checked out again.

    A tree with changes, a commit on no branch, and code outside git cannot be checked out.
    """
    name = _git(folder, "describe", "--always", "--dirty", "--exclude=*")
    if not name:
        return f"unknown{NOT_IN_HISTORY}"
    branches = _git(folder, "branch", "--all", "--contains", "HEAD", "--format=%(refname)")
    # In a checkout of a bare commit, git lists that checkout as a branch in brackets.
    kept = any(line.startswith("refs/") for line in branches.splitlines())
    return name if kept and not name.endswith("-dirty") else name + NOT_IN_HISTORY


def _git(folder: Path, *arguments: str) -> str:
    """Return the output of git, or an empty text if it fails or is not installed."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


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
