"""The table of a command: its columns, classes and labelled rows, and their split into parts."""

from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas import util
from sklearn.utils import _safe_indexing

from evalign.cli.errors import UsageError, refused
from evalign.cli.terminal import Terminal
from evalign.core.text import counted, listed
from evalign.store.files import replacing
from evalign.tables.features import Features
from evalign.tables.files import Reading, TableFile, numbers_in, writing
from evalign.tables.kinds import overview
from evalign.tables.labels import Labels
from evalign.tables.split import holdout_split
from evalign.tables.values import ColumnValues, read_table
from evalign.tables.warnings import warn_of_few, warn_of_left_out, warn_of_shared


@dataclass(frozen=True)
class Columns:
    """The roles of a table's columns.

    Args:
        target: the label.
        groups: rows with the same value stay together; None for no such column.
        constraint_groups: the groups between which a constraint bounds a gap; None likewise.
        weight: weight of a row; None for no such column.
        kinds: kind of each column to learn from.
        overview: how every column was read, see `evalign.tables.overview`.
        reading: the fields of `Reading`.
    """

    target: str
    groups: str | None
    constraint_groups: str | None
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
        return [*categories, *filter(None, [self.target, self.groups, self.constraint_groups])]

    @property
    def dates(self) -> list[str]:
        return [name for name, kind in self.kinds.items() if kind == "date"]

    @property
    def used(self) -> list[str]:
        """All columns that an evaluation needs."""
        roles = [self.target, self.groups, self.constraint_groups, self.weight]
        return list(dict.fromkeys([*self.features, *filter(None, roles)]))


class LabelledFrame(NamedTuple):
    """Rows of a table: features, class codes, and perhaps weights and groups.

    `groups` stay together; between `constraint_groups` a constraint bounds a gap.
    """

    X: pd.DataFrame
    y: np.ndarray
    weight: np.ndarray | None
    groups: np.ndarray | None
    constraint_groups: np.ndarray | None

    @property
    def counted(self) -> np.ndarray:
        """Mask of the rows with a weight above 0. Others are never used."""
        return np.ones(len(self.y), bool) if self.weight is None else self.weight > 0

    @property
    def hashes(self) -> np.ndarray:
        """A hash of each row, label included."""
        hash_rows: Any = util.hash_pandas_object
        return hash_rows(self.X.assign(**{"": self.y}), index=False).to_numpy()

    def take(self, rows: np.ndarray) -> "LabelledFrame":
        parts: list[Any] = [x if x is None else _safe_indexing(x, rows) for x in self]
        return LabelledFrame(*parts)

    def hold_out(self, labels: Labels, seed: int) -> tuple["LabelledFrame", "LabelledFrame"]:
        """Split into the rows to train on, and a fifth for the test."""
        cure = "Give more rows or groups, another --seed, or a table with --test."
        with refused(where=f"A fifth cannot be held out as test rows. {cure} "):
            kept, held_out = holdout_split(self.y, groups=self.groups, seed=seed)
        training, other = self.take(kept), self.take(held_out)
        lost = np.setdiff1d(self.y[self.counted], training.y[training.counted])
        if len(lost) or not other.counted.any():
            names = listed([labels.names[code] for code in lost], 3) or "rows with a weight"
            raise UsageError(f"Holding out test rows leaves no {names} on one side. {cure}")
        return training, other


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """A table to learn from: columns, features, classes and rows."""

    columns: Columns
    features: Features
    labels: Labels
    rows: LabelledFrame

    def introduce(self, spoken: Terminal) -> None:
        """Say how the columns and the classes were read."""
        kinds, names = list(self.columns.kinds.values()), self.labels.names
        found = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        spoken.note(f"{counted(len(self.rows.y))}; columns: {found}.")
        warn_of_left_out(self.features.left_out)
        if len(names) == 2:
            spoken.note(f"The positive class is {names[1]!r}, the other one {names[0]!r}.")
        else:
            spoken.note(f"{len(names)} classes: {listed(names)}.")


def named_classes(given: Namespace) -> list[str] | None:
    """The names of `--classes`."""
    return None if given.classes is None else [name.strip() for name in given.classes.split(",")]


def reading_of(options: dict[str, Any], known: dict[str, Any] | None = None) -> Reading:
    """How to read a file: by the options, or else as it is known from before."""
    given = {name: value for name, value in options.items() if value}
    found: dict[str, Any] = asdict(Reading()) | (known or {}) | given
    found["missing"] = tuple(found["missing"])
    return Reading(**found)


def load(given: Namespace) -> TrainingTable:
    """Read a training table and find the kinds of its columns."""
    source = TableFile(given.data, reading_of(given.reading))
    target, groups, weight = given.target, given.groups, given.weight
    constraint_groups = getattr(given, "constraint_groups", None)  # `compare` has no constraint
    named = [target, groups, constraint_groups, weight, *(given.drop or [])]
    roles = [name for name in dict.fromkeys(named) if name is not None]
    source.need(roles)
    texts = filter(None, [target, groups, constraint_groups])
    frame = source.read(text=list(dict.fromkeys(texts)))
    if (form := source.reading.dates) and not frame.select_dtypes("datetime").shape[1]:
        raise UsageError(f"--dates must fit all cells of a column of {source}. Got {form!r}.")
    labels = Labels.of(frame, target, given.positive, source, named_classes(given))
    with refused(TypeError):
        table = read_table(str(source), frame.drop(columns=roles))
        features = Features.learn(str(source), table, warn=False)  # `introduce` warns
        read_as = overview(table), asdict(source.reading)
    kinds = {column.name: column.kind for column in features.columns}
    columns = Columns(target, groups, constraint_groups, weight, kinds, *read_as)
    rows = labelled(frame, _typed(table, features, source), columns, labels, source)
    if rows.weight is not None and (np.bincount(rows.y, rows.weight) == 0).any():
        raise UsageError(f"Column {weight!r} of {source} must give each class some weight.")
    return TrainingTable(columns, features, labels, rows)


def split(dataset: TrainingTable, given: Namespace) -> tuple[LabelledFrame, LabelledFrame]:
    """The rows to train on, and those of the test: a table's, or a fifth."""
    labels, columns, training = dataset.labels, dataset.columns, dataset.rows
    if given.test is None:
        training, test = training.hold_out(labels, given.seed)
    else:
        source = TableFile(given.test, reading_of({}, columns.reading))
        source.need(columns.used)
        frame = source.read(columns.text)
        X = _typed(frame[columns.features], dataset.features, source)
        test = labelled(frame, X, columns, labels, source)
    warn_of_few("test", labels.names, test.y[test.counted])
    warn_of_shared(training.hashes, test.hashes)
    return training, test


def read_weights(frame: pd.DataFrame, column: str | None, source: object) -> np.ndarray | None:
    """The weights of rows; None without a column of weights."""
    allowed = "weights, finite numbers that are not negative"
    return None if column is None else numbers_in(frame[column], source, allowed, 0, np.inf)


def labelled(
    frame: pd.DataFrame, X: pd.DataFrame, columns: Columns, labels: Labels, source: object
) -> LabelledFrame:
    """The features X of a table with its labels, weights and groups."""
    y = labels.encode(frame, source)
    weight = read_weights(frame, columns.weight, source)
    if weight is not None and not weight.any():
        raise UsageError(f"Column {columns.weight!r} of {source} must give some row a weight.")
    groups = read_groups(frame, columns.groups, source)
    constraint_groups = read_constraint_groups(frame, columns.constraint_groups)
    return LabelledFrame(X, y, weight, groups, constraint_groups)


def read_groups(frame: pd.DataFrame, name: str | None, source: object) -> np.ndarray | None:
    """The group of each row as text; None without a column of groups."""
    if name is None:
        return None
    column: Any = frame[name]
    if column.isna().any():
        what = f"Column {name!r} of {source}"
        raise UsageError(f"{what} must name a group in every row. Fill in its gaps.")
    return column.astype(str).to_numpy(object)


def read_constraint_groups(frame: pd.DataFrame, name: str | None) -> np.ndarray | None:
    """The group of each row in a constraint, as text; rows with a gap are a group of their own."""
    return None if name is None else frame[name].fillna("").astype(str).to_numpy(object)


def label_blocks(
    spoken: Terminal, given: Namespace, blocks: Iterable[Any], label: Callable[..., dict[str, Any]]
) -> None:
    """Write a table in blocks, with the columns that `label` returns for a block and its place."""
    out, count = given.out, 0
    if out.exists() and out.samefile(given.data):
        raise UsageError(f"--out must be another file than DATA. Got {out} twice.")
    with replacing(out) as aside, writing(aside, out) as write:
        for block, raw in blocks:
            write(raw.assign(**label(block, count)))
            count += len(raw)
    spoken.result({"rows": count, "out": str(out)}, f"Labelled {counted(count)}: {out}")


def _typed(table: Any, features: Features, source: object) -> pd.DataFrame:
    """The columns to learn from, typed alike in all tables and in all of their parts."""

    def series(column: ColumnValues) -> Any:
        if column.kind == "boolean":
            return pd.array(np.where(column.gaps, None, column.values == 1), dtype="boolean")
        return pd.Categorical(column.values) if column.kind == "category" else column.values

    with refused(TypeError):
        pairs = features.matched(str(source), read_table(str(source), table))
        return pd.DataFrame({learnt.name: series(column) for learnt, column in pairs})
