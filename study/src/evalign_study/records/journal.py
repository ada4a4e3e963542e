"""Records of the protocols: what identifies a run, its scores, and the file they are added to.

A record is one line of JSON. A run that is killed loses what it was training, nothing else: a line
that was cut off is not read, and the next write begins a new line.
"""

import dataclasses
import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import evalign
from evalign_study.records.made import made

Record = dict[str, Any]
Triples = list[list[int]]  # [true class, predicted class, count], the counts that are not 0


def key_of(protocol: str, version: int, run: Any, *, without: Sequence[str] = ()) -> str:
    """16 hex digits that are the same for equal runs of one version of a protocol.

    Fields at their defaults are left out, so that a new field does not change any key.
    """
    values = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    usual = {field.name: field.default for field in dataclasses.fields(run)}
    told = {name: x for name, x in values.items() if name not in without and x != usual[name]}
    text = json.dumps({"protocol": protocol, "version": version, **told}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stamped(run: Any, *, device: str, precision: str, **found: Any) -> Record:
    """Make a record: the run, where it was made, and what was found. Floats keep seven digits."""
    settings = dataclasses.asdict(run)
    return {
        "key": run.key,
        "run": settings,
        "made": made(device, precision),
        **_rounded(found),
    }


def holds(record: Record, run: Any) -> bool:
    """Whether a record is the result of this run: with the same cap, or not reached by it."""
    if record["key"] != run.key:
        return False
    ended_by_itself = not record["capped"] and record["epochs"] <= run.epochs
    return record["cap"] == run.epochs or ended_by_itself


def triples(matrix: Tensor) -> Triples:
    """A confusion matrix without its zeros, which stays small for many classes.

    Examples:
        >>> triples(torch.tensor([[3, 1], [0, 2]]))
        [[0, 0, 3], [0, 1, 1], [1, 1, 2]]
    """
    cells = matrix.cpu().nonzero()
    counts = matrix.cpu()[tuple(cells.T)]
    return torch.cat([cells, counts.unsqueeze(1)], 1).tolist()


def matrix_of(cells: Triples, classes: int) -> Tensor:
    """The matrix of `triples`, float64."""
    matrix = torch.zeros(classes, classes, dtype=torch.float64)
    for true, predicted, count in cells:
        matrix[true, predicted] = count
    return matrix


def scores_of(matrix: Tensor, names: Iterable[str]) -> dict[str, float]:
    """Metrics of a confusion matrix, rows true.

    Examples:
        >>> scores_of(torch.tensor([[3, 1], [0, 2]]), ["accuracy", "f1"])
        {'accuracy': 0.8333333333333334, 'f1': 0.8}
    """
    confusion = evalign.Confusion.from_matrix(matrix.double().cpu())
    return {name: float(evalign.metrics.resolve(name)(confusion)) for name in names}


def scores_of_each(matrices: Tensor, names: Sequence[str]) -> list[dict[str, float]]:
    """Metrics of several confusion matrices (number, classes, classes), at once."""
    metrics = [evalign.metrics.resolve(name) for name in names]

    def of_one(matrix: Tensor) -> tuple[Any, ...]:
        confusion = evalign.Confusion.from_matrix(matrix)
        return tuple(metric(confusion) for metric in metrics)

    columns = torch.vmap(of_one)(matrices.double().cpu())
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records to a file of lines; they are on the disk when this returns."""
    lines = [json.dumps(record, allow_nan=False, separators=(",", ":")) for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a write that was cut off
                file.write(b"\n")
        file.write("".join(line + "\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())


def read(paths: Iterable[Path]) -> list[Record]:
    """Read files of lines, also compressed ones; a line that was cut off is left out."""
    records = []
    for path in paths:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rb") as file:
            lines = file.read().splitlines()
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            records.append(record)
    return records


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if abs(value) < float("inf") else None
    return value
