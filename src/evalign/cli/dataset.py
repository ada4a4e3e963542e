"""A table ready to learn from: features, class codes, weights and groups."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from evalign.cli.columns import Columns, as_numbers, as_text, frame, plan
from evalign.cli.errors import UsageError, listed, refused
from evalign.cli.labels import Labels
from evalign.cli.tables import TableFile
from evalign.core.confusion import Confusion
from evalign.core.metrics import resolve
from evalign.training import holdout_split


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table.

    Args:
        X: the features, as `columns.frame` gives them.
        y: class codes.
        weight: of each row, or None.
        groups: of each row, or None.
    """

    X: pd.DataFrame
    y: np.ndarray
    weight: np.ndarray | None
    groups: np.ndarray | None

    def take(self, rows: np.ndarray) -> "Rows":
        weight, groups = (
            None if part is None else part[rows] for part in (self.weight, self.groups)
        )
        return Rows(self.X.iloc[rows], self.y[rows], weight, groups)

    def hold_out(self, labels: Labels, seed: int) -> tuple["Rows", "Rows"]:
        """A fifth for the test, the rest for training."""
        with refused():
            kept, held_out = holdout_split(self.y, groups=self.groups, seed=seed)
        lost = np.setdiff1d(self.y, self.y[kept])
        if len(lost):
            names = listed([labels.names[code] for code in lost], 3)
            cure = "Give a test table with --test, or another --seed."
            raise UsageError(f"All rows of {names} lie in groups held out for the test. {cure}")
        return self.take(kept), self.take(held_out)


@dataclass(frozen=True, eq=False)
class Dataset:
    """The training table: what its columns and labels are, and its rows."""

    columns: Columns
    labels: Labels
    rows: Rows


def load(
    source: TableFile,
    *,
    target: str,
    group: str | None = None,
    weight: str | None = None,
    drop: Sequence[str] = (),
    positive: str | None = None,
) -> Dataset:
    """Read a training table and find out what its columns are."""
    roles = {"--target": target, "--group": group, "--weight": weight}
    for option, name in [*roles.items(), *(("--drop", name) for name in drop)]:
        _check_name(source, option, name)
    names = [name for name in roles.values() if name is not None]
    if len({*names, *drop}) < len(names) + len(drop):
        raise UsageError("--target, --group, --weight and --drop must name different columns.")
    source.need(names)
    table = source.read()
    labels = Labels.of(table, target, positive, source)
    columns = plan(table, source, target=target, group=group, weight=weight, drop=drop)
    read = rows(table, columns, labels, source)
    if read.weight is not None and (np.bincount(read.y, read.weight) == 0).any():
        raise UsageError(f"Column {weight!r} of {source} must give each class some weight.")
    return Dataset(columns, labels, read)


def rows(
    table: pa.Table, columns: Columns, labels: Labels, source: object, first_row: int = 1
) -> Rows:
    """The rows of a table with the columns of the training table."""
    X, y = frame(table, columns, source, first_row), labels.encode(table, source)
    weight = groups = None
    if columns.weight is not None:
        weight, wrong = as_numbers(table[columns.weight])
        wrong |= ~(weight >= 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            got = f"Got {table[columns.weight][row].as_py()!r} in row {first_row + row}."
            what = f"Column {columns.weight!r} of {source}"
            raise UsageError(f"{what} must hold weights, numbers that are not negative. {got}")
    if columns.group is not None:
        groups = as_text(table[columns.group]).to_pandas()
        if groups.isna().any():
            what = f"Column {columns.group!r} of {source}"
            raise UsageError(
                f"{what} must name a group in every row. Got {groups.isna().sum()} gaps."
            )
        groups = groups.to_numpy(object)
    return Rows(X, y, weight, groups)


def read_rows(path: Path, dataset: Dataset) -> Rows:
    """The rows of another table, for validation or the test."""
    source = TableFile(path)
    source.need(dataset.columns.used)
    return rows(source.read(), dataset.columns, dataset.labels, source)


def check_metric(metric: str, classes: int | None = None) -> None:
    """Refuse a metric that there is not, or not for so many classes."""
    with refused():
        function = resolve(metric, owner="evalign")
        if classes is not None:
            function(Confusion.from_matrix(torch.eye(classes, dtype=torch.float64)))


def _check_name(source: TableFile, option: str, name: str | None) -> None:
    if name is None or name in source.schema.names:
        return
    close = difflib.get_close_matches(name, source.schema.names, n=1)
    cure = f"Did you mean {close[0]!r}?" if close else f"It has {listed(source.schema.names)}."
    raise UsageError(f"{option} must name a column of {source}. Got {name!r}. {cure}")
