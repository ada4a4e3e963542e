"""From the options of a command to rows: for training, test and validation."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas import util

from evalign.cli.errors import UsageError, listed, refused
from evalign.cli.terminal import Terminal
from evalign.core.text import counted, nearest
from evalign.tables.classes import Labels
from evalign.tables.files import Reading, TableFile, numbers_in
from evalign.tables.frames import frame_like, learnt_frame
from evalign.tables.kinds import LEFT_OUT, overview
from evalign.tables.warnings import warn_of_few, warn_of_left_out, warn_of_shared
from evalign.training import holdout_split

COPIES = 0.05  # share of the test rows; fewer that are training rows change little
FEW_TO_LEARN, FEW_TO_TEST = 5, 10  # rows of a class
hash_rows: Any = util.hash_pandas_object


@dataclass(frozen=True)
class Columns:
    """The roles of a table's columns.

    Args:
        target: the label.
        group: rows with the same value stay together; None for no such column.
        weight: weight of a row; None for no such column.
        kinds: kind of each column to learn from.
        left_out: why other columns are not learnt from, see `evalign.tables.kinds`.
        overview: what every column was read as, see `evalign.tables.overview`.
        reading: the fields of `Reading`.
    """

    target: str
    group: str | None
    weight: str | None
    kinds: dict[str, str]
    left_out: dict[str, str]
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
class LabelledFrame:
    """Rows of a table: features, class codes, and perhaps weights and groups."""

    X: pd.DataFrame
    y: np.ndarray
    weight: np.ndarray | None
    groups: np.ndarray | None

    @property
    def counted(self) -> np.ndarray:
        """Mask of the rows with a weight above 0. The others are never used."""
        return np.ones(len(self.y), bool) if self.weight is None else self.weight > 0

    @property
    def hashes(self) -> np.ndarray:
        """A number for each row, which equal rows with equal labels share."""
        return hash_rows(self.X.assign(**{"": self.y}), index=False).to_numpy()

    def take(self, rows: np.ndarray) -> "LabelledFrame":
        weight, groups = (
            None if part is None else part[rows] for part in (self.weight, self.groups)
        )
        return LabelledFrame(self.X.iloc[rows], self.y[rows], weight, groups)

    def followed_by(self, more: "LabelledFrame") -> "LabelledFrame":
        """These rows, and then those of another table, whose groups are others."""
        X = pd.concat([self.X, more.X], ignore_index=True)
        levels = self.X.select_dtypes("category").columns  # lost where they differ
        weight = groups = None
        if self.weight is not None and more.weight is not None:
            weight = np.concatenate([self.weight, more.weight])
        if self.groups is not None and more.groups is not None:
            groups = np.array([f"0{g}" for g in self.groups] + [f"1{g}" for g in more.groups])
        y = np.concatenate([self.y, more.y])
        return LabelledFrame(X.astype(dict.fromkeys(levels, "category")), y, weight, groups)

    def hold_out(
        self, labels: Labels, seed: int, part: str
    ) -> tuple["LabelledFrame", "LabelledFrame"]:
        """Split into the rows to train on, and a fifth for the "test" or "validation"."""
        cure = f"Give more rows or groups, another --seed, or a table with --{part}."
        try:
            kept, held_out = holdout_split(self.y, groups=self.groups, seed=seed)
        except ValueError as error:
            raise UsageError(
                f"A fifth cannot be held out as {part} rows: {error} {cure}"
            ) from error
        training, other = self.take(kept), self.take(held_out)
        lost = np.setdiff1d(self.y[self.counted], training.y[training.counted])
        if len(lost) or not other.counted.any():
            names = listed([labels.names[code] for code in lost], 3) or "rows with a weight"
            raise UsageError(f"Holding out {part} rows leaves no {names} on one side. {cure}")
        return training, other


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """A table to learn from: the roles of its columns, its classes, and some of its rows."""

    columns: Columns
    labels: Labels
    rows: LabelledFrame
    found: int


def reading_of(options: dict[str, Any], known: dict[str, Any] | None = None) -> Reading:
    """The options about reading a file, or else what is known of it."""
    given = {name: value for name, value in options.items() if value}
    found: dict[str, Any] = asdict(Reading()) | (known or {}) | given
    found["missing"] = tuple(found["missing"])
    return Reading(**found)


def load(
    source: TableFile,
    *,
    target: str,
    group: str | None = None,
    weight: str | None = None,
    drop: Sequence[str] = (),
    positive: str | None = None,
    most: int | None = None,
    seed: int = 0,
) -> TrainingTable:
    """Read a training table and find the kinds of its columns; sample `most` rows of it."""
    roles = {"--target": target, "--group": group, "--weight": weight}
    for option, name in [*roles.items(), *(("--drop", name) for name in drop)]:
        check_name(source, option, name)
    names = [name for name in roles.values() if name is not None]
    if len({*names, *drop}) < len(names) + len(set(drop)):
        raise UsageError("--target, --group, --weight and --drop must name different columns.")
    frame = source.read(text=[target, *filter(None, [group])])
    labels, found = Labels.of(frame, target, positive, source), len(frame)
    frame = _sample(frame, labels, source, most, seed)
    with usable(source):
        given = frame.drop(columns=[*names, *drop])
        X, found_kinds = learnt_frame(given)
    left_out = {name: kind for name, kind in found_kinds.items() if kind in LEFT_OUT}
    kinds = {name: kind for name, kind in found_kinds.items() if kind not in LEFT_OUT}
    if not kinds:
        raise UsageError(f"{source} holds no column to learn from.")
    read_as = (overview(given), asdict(source.reading))
    columns = Columns(target, group, weight, kinds, left_out, *read_as)
    read = _rows(frame, X, columns, labels, source, 1)
    if read.weight is not None and (np.bincount(read.y, read.weight) == 0).any():
        raise UsageError(f"Column {weight!r} of {source} must give each class some weight.")
    return TrainingTable(columns, labels, read, found)


def rows(
    frame: pd.DataFrame, columns: Columns, labels: Labels, source: object, first_row: int = 1
) -> LabelledFrame:
    """The rows of another table, or of a block of it, as training read its columns."""
    with usable(source):
        X = frame_like(frame, columns.kinds, source, first_row)
    return _rows(frame, X, columns, labels, source, first_row)


def _rows(
    frame: pd.DataFrame, X: Any, columns: Columns, labels: Labels, source: object, first_row: int
) -> LabelledFrame:
    y = labels.encode(frame, source, first_row=first_row)
    weight = groups = None
    if columns.weight is not None:
        weight = read_weights(frame, columns.weight, source, first_row)
    if columns.group is not None:
        column: Any = frame[columns.group]
        groups = column.astype(str).to_numpy(object)
        if column.isna().any():
            what = f"Column {columns.group!r} of {source}"
            raise UsageError(f"{what} must name a group in every row. Fill in its gaps.")
    return LabelledFrame(X, y, weight, groups)


def read_weights(
    frame: pd.DataFrame, column: str, source: object, first_row: int = 1
) -> np.ndarray:
    """The weights of rows."""
    weight = numbers_in(frame[column])
    wrong = ~((weight >= 0) & np.isfinite(weight))
    if wrong.any():
        row = int(np.argmax(wrong))
        got = f"Got {str(frame[column].iloc[row])!r} in row {first_row + row}."
        allowed = "weights, finite numbers that are not negative"
        raise UsageError(f"Column {column!r} of {source} must hold {allowed}. {got}")
    return weight


def read_rows(
    path: Path, dataset: TrainingTable, most: int | None = None, seed: int = 0
) -> LabelledFrame:
    """The rows of another table, for validation or the test, or a sample of them."""
    columns = dataset.columns
    source = TableFile(path, reading_of({}, columns.reading))
    source.need(columns.used)
    frame = _sample(source.read(columns.text), dataset.labels, source, most, seed)
    read = rows(frame, columns, dataset.labels, source)
    if not read.counted.any():
        raise UsageError(f"Column {columns.weight!r} of {source} must give some row a weight.")
    return read


def _sample(
    frame: pd.DataFrame, labels: Labels, source: object, most: int | None, seed: int
) -> pd.DataFrame:
    """At most so many rows, in which the classes have their shares."""
    if most is None or len(frame) <= most:
        return frame
    y = labels.encode(frame, source)
    most = min(most, len(y) - len(np.unique(y)))  # a split leaves a row of each class
    with refused():
        _, some = holdout_split(y, fraction=most / len(y), seed=seed)
    return frame.iloc[some]


def split(
    dataset: TrainingTable,
    test: Path | None,
    validation: Path | None,
    most: int | None,
    seed: int,
    *,
    inner: bool,
) -> dict[str, LabelledFrame]:
    """Split the rows into "training", "test" and "validation", the last two of `most` rows.

    Without groups there is no "validation": the classifier holds those rows out itself. With groups
    they are held out here, if it has no folds of its own (`inner`).
    """
    parts = {"training": dataset.rows}
    for name, path in {"test": test, "validation": validation}.items():
        training = parts["training"]
        if path is not None:
            parts[name] = read_rows(path, dataset, most, seed)
        elif name == "test" or (inner and training.groups is not None):
            parts["training"], parts[name] = training.hold_out(dataset.labels, seed, name)
    warn_of_parts(parts, dataset.labels)
    return parts


def warn_of_parts(parts: dict[str, LabelledFrame], labels: Labels) -> None:
    """Warn of rows that two parts share, and of classes of few rows."""
    hashes = {name: part.hashes for name, part in parts.items()}
    for (one, known), (other, new) in combinations(hashes.items(), 2):
        shared = np.isin(new, known)
        # Rows of a few values are alike by chance.
        if shared.mean() >= COPIES and 2 * len(np.unique(new)) > len(new):
            warn_of_shared(int(shared.sum()), one, other)
    for name, part in parts.items():
        warn_of_scarce(name, part.y[part.counted], labels)


def warn_of_scarce(part: str, y: np.ndarray, labels: Labels) -> None:
    """Warn of classes with few rows among these codes."""
    counts = np.bincount(y, minlength=len(labels.values)).tolist()
    warn_of_few(part, labels.names, counts, FEW_TO_LEARN if part == "training" else FEW_TO_TEST)


def introduce(spoken: Terminal, dataset: TrainingTable, *, verbose: bool = False) -> None:
    """Say what the columns and the classes are taken for."""
    kinds, names = list(dataset.columns.kinds.values()), dataset.labels.names
    found = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    spoken.note(f"{counted(dataset.found)}; columns: {found}.")
    warn_of_left_out(dataset.columns.left_out)
    if verbose:
        table = pd.DataFrame(dataset.columns.overview)
        table["examples"] = table["examples"].map(", ".join)
        for line in table.to_string(index=False).splitlines():
            spoken.note(line)
    if (used := len(dataset.rows.y)) < dataset.found:
        spoken.note(f"A preview with {used} of the rows. Without --quick it is trained on all.")
    if len(names) == 2:
        share = (dataset.rows.y == 1).mean()
        # F1 and the like are about the positive class, which is usually meant to be the rare one.
        usual = f" It has {share:.0%} of the rows; see --positive." if share > 0.5 else ""
        spoken.note(f"The positive class is {names[1]!r}, the other one {names[0]!r}.{usual}")
    else:
        spoken.note(f"{len(names)} classes: {listed(names)}.")


def check_name(source: TableFile, option: str, name: str | None) -> None:
    """Refuse an option that names no column of the table."""
    if name is None or name in source.names:
        return
    cure = nearest(name, source.names) or f"It has {listed(source.names)}."
    if len(source.names) == 1:
        cure += " If its columns are separated by another mark, pass --sep."
    raise UsageError(f"{option} must name a column of {source}. Got {name!r}. {cure}")


def check_names(source: TableFile, dataset: TrainingTable) -> None:
    """Refuse a feature with a name that `predict` gives to a column of its own."""
    taken = [name for name in dataset.columns.features if name in dataset.labels.written]
    if taken:
        cure = f"Rename it, or leave it out with --drop {taken[0]!r}."
        what = f"Column {taken[0]!r} of {source}"
        raise UsageError(f"{what} has the name of one that `evalign predict` adds. {cure}")


@contextmanager
def usable(source: object) -> Iterator[None]:
    """Report an error about the values of a table as bad input."""
    try:
        yield
    except UsageError:
        raise
    except (TypeError, ValueError) as error:
        where = "" if str(source) in str(error) else f"{source}: "
        raise UsageError(f"{where}{error}") from error
