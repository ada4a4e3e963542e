"""From the options of a command to rows: for training, test and validation."""

from argparse import Namespace
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evalign.cli.errors import UsageError, refused
from evalign.cli.labelled import LabelledFrame
from evalign.core.text import listed
from evalign.tables.classes import Labels
from evalign.tables.features import Features
from evalign.tables.files import Reading, TableFile, numbers_in
from evalign.tables.kinds import overview
from evalign.tables.values import ColumnValues, read_table
from evalign.tables.warnings import warn_of_few, warn_of_shared


@dataclass(frozen=True)
class Columns:
    """The roles of a table's columns.

    Args:
        target: the label.
        group: rows with the same value stay together; None for no such column.
        weight: weight of a row; None for no such column.
        kinds: kind of each column to learn from.
        overview: what every column was read as, see `evalign.tables.overview`.
        reading: the fields of `Reading`.
    """

    target: str
    group: str | None
    weight: str | None
    kinds: dict[str, str]
    overview: list[dict[str, Any]]
    reading: dict[str, Any]

    @property
    def features(self) -> list[str]:
        return list(self.kinds)

    @property
    def text(self) -> list[str]:
        """Columns that are read as text: categories, labels and groups."""
        categories = [name for name, kind in self.kinds.items() if kind == "category"]
        return [*categories, *filter(None, [self.target, self.group])]

    @property
    def dates(self) -> list[str]:
        return [name for name, kind in self.kinds.items() if kind == "date"]

    @property
    def used(self) -> list[str]:
        """All columns that an evaluation needs."""
        return [*self.features, *filter(None, [self.target, self.group, self.weight])]


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """A table to learn from: its columns, its classes, some of its rows, and how many it had."""

    columns: Columns
    features: Features
    labels: Labels
    rows: LabelledFrame
    found: int


def reading_of(options: dict[str, Any], known: dict[str, Any] | None = None) -> Reading:
    """The options about reading a file, or else what is known of it."""
    given = {name: value for name, value in options.items() if value}
    found: dict[str, Any] = asdict(Reading()) | (known or {}) | given
    found["missing"] = tuple(found["missing"])
    return Reading(**found)


def load(given: Namespace, most: int | None = None) -> TrainingTable:
    """Read a training table and find the kinds of its columns; sample `most` rows of it."""
    source = TableFile(given.data, reading_of(given.reading))
    target, group, weight = given.target, given.group, given.weight
    named = [("--target", target), ("--group", group), ("--weight", weight)]
    named += [("--drop", name) for name in dict.fromkeys(given.drop or [])]
    named = [(option, name) for option, name in named if name is not None]
    for option, name in named:
        source.need([name], option)
    roles = [name for _, name in named]
    if len(set(roles)) < len(roles):
        raise UsageError("--target, --group, --weight and --drop must name different columns.")
    frame = source.read(text=[target, *filter(None, [group])])
    if (form := source.reading.dates) and not frame.select_dtypes("datetime").shape[1]:
        raise UsageError(f"--dates must fit all cells of a column of {source}. Got {form!r}.")
    labels = Labels.of(frame, target, given.positive, source)
    with refused(TypeError):
        table = read_table(str(source), frame.drop(columns=roles))
        features = Features.learn(str(source), table, warn=False)  # `introduce` warns
        read_as = overview(table), asdict(source.reading)
    kinds = {column.name: column.kind for column in features.columns}
    if taken := [name for name in kinds if name in labels.written]:
        cure = f"Rename them, or leave them out with --drop {taken[0]!r}."
        raise UsageError(
            f"{source} has columns that `evalign predict` adds, {listed(taken)}. {cure}"
        )
    columns = Columns(target, group, weight, kinds, *read_as)
    rows = labelled(frame, _typed(table, features, source), columns, labels, source)
    if rows.weight is not None and (np.bincount(rows.y, rows.weight) == 0).any():
        raise UsageError(f"Column {weight!r} of {source} must give each class some weight.")
    rows = rows if most is None else rows.sample(most, given.seed)
    return TrainingTable(columns, features, labels, rows, len(frame))


def read_rows(path: Path, dataset: TrainingTable) -> LabelledFrame:
    """The rows of another table, for validation or the test."""
    columns = dataset.columns
    source = TableFile(path, reading_of({}, columns.reading))
    source.need(columns.used)
    frame = source.read(columns.text)
    X = _typed(frame[columns.features], dataset.features, source)
    found = labelled(frame, X, columns, dataset.labels, source)
    if not found.counted.any():
        raise UsageError(f"Column {columns.weight!r} of {source} must give some row a weight.")
    return found


def split(
    dataset: TrainingTable, given: Namespace, most: int | None, *, inner: bool
) -> dict[str, LabelledFrame]:
    """Split the rows into "training", "test" and "validation", the last two of `most` rows.

    Without groups there is no "validation": the classifier holds those rows out itself. With groups
    they are held out here, if it has no folds of its own (`inner`).
    """
    parts = {"training": dataset.rows}
    for name, path in {"test": given.test, "validation": given.validation}.items():
        training = parts["training"]
        if path is not None:
            found = read_rows(path, dataset)
            parts[name] = found if most is None else found.sample(most, given.seed)
        elif name == "test" or (inner and training.groups is not None):
            parts["training"], parts[name] = training.hold_out(dataset.labels, given.seed, name)
    warn_of_shared({name: part.hashes for name, part in parts.items()})
    for name, part in parts.items():
        warn_of_few(name, dataset.labels.names, part.y[part.counted])
    return parts


def read_weights(frame: pd.DataFrame, column: str, source: object) -> np.ndarray:
    """The weights of rows."""
    allowed = "weights, finite numbers that are not negative"
    return numbers_in(frame[column], source, allowed, 0, np.inf)


def labelled(
    frame: pd.DataFrame, X: pd.DataFrame, columns: Columns, labels: Labels, source: object
) -> LabelledFrame:
    """The features X of a table with the labels, weights and groups that it holds."""
    y, weight, groups = labels.encode(frame, source), None, None
    if columns.weight is not None:
        weight = read_weights(frame, columns.weight, source)
    if columns.group is not None:
        column: Any = frame[columns.group]
        groups = column.astype(str).to_numpy(object)
        if column.isna().any():
            what = f"Column {columns.group!r} of {source}"
            raise UsageError(f"{what} must name a group in every row. Fill in its gaps.")
    return LabelledFrame(X, y, weight, groups)


def _typed(table: Any, features: Features, source: object) -> pd.DataFrame:
    """The columns to learn from, typed alike in all tables and in all of their parts."""

    def series(column: ColumnValues) -> Any:
        if column.kind == "boolean":
            return pd.array(np.where(column.gaps, None, column.values == 1), dtype="boolean")
        return pd.Categorical(column.values) if column.kind == "category" else column.values

    with refused(TypeError):
        pairs = features.matched(str(source), read_table(str(source), table))
        return pd.DataFrame({learnt.name: series(column) for learnt, column in pairs})
