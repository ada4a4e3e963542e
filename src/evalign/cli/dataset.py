"""A table ready to learn from: features, class codes, weights and groups."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from evalign.cli.cells import as_numbers, as_text
from evalign.cli.columns import Columns, frame, plan
from evalign.cli.dates import example
from evalign.cli.doubts import warn_of_copies, warn_of_shared
from evalign.cli.errors import DataWarning, UsageError, listed, refused
from evalign.cli.labels import Labels
from evalign.cli.tables import TableFile
from evalign.cli.terminal import WARNING, Terminal
from evalign.core.resampling import MIN_FOR_INTERVAL
from evalign.core.text import counted, nearest
from evalign.estimator.cells import LARGEST
from evalign.training import holdout_split

FEW_TO_LEARN = 5  # training rows of a class; with fewer, some of five folds have none
LIGHTEST = 1e-12  # a weight; sums of much smaller ones count as 0 in metrics and trees


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table.

    Args:
        X: the features, as `columns.frame` gives them.
        y: class codes.
        weight: the weight of each row, or None.
        groups: the group of each row, or None.
    """

    X: pd.DataFrame
    y: np.ndarray
    weight: np.ndarray | None
    groups: np.ndarray | None

    @property
    def counted(self) -> np.ndarray:
        """A mask of the rows with a weight above 0. The others are never used."""
        return np.ones(len(self.y), bool) if self.weight is None else self.weight > 0

    def take(self, rows: np.ndarray) -> "Rows":
        weight, groups = (
            None if part is None else part[rows] for part in (self.weight, self.groups)
        )
        return Rows(self.X.iloc[rows], self.y[rows], weight, groups)

    def followed_by(self, more: "Rows") -> "Rows":
        """These rows, and then others of another table, whose groups are others."""
        X = pd.concat([self.X, more.X], ignore_index=True)
        levels = self.X.select_dtypes("category").columns  # lost where they differ
        weight = None
        if self.weight is not None and more.weight is not None:
            weight = np.concatenate([self.weight, more.weight])
        y, groups = np.concatenate([self.y, more.y]), None
        if self.groups is not None:
            given = (self.groups, np.arange(len(more.y)) if more.groups is None else more.groups)
            own, others = (np.unique(part, return_inverse=True)[1] for part in given)
            groups = np.concatenate([own, others + len(own)])
        return Rows(X.astype(dict.fromkeys(levels, "category")), y, weight, groups)

    def hold_out(self, labels: Labels, seed: int, part: str) -> tuple["Rows", "Rows"]:
        """Split into the rows to train on, and a fifth for the "test" or "validation"."""
        if self.groups is not None and (number := len(np.unique(self.groups))) < 2:
            cure = f"Give more groups, or a table with --{part}."
            allowed = f"leave two groups or more, of which some are held out as {part} rows"
            raise UsageError(f"--group must {allowed}. Got {number}. {cure}")
        try:
            kept, held_out = holdout_split(self.y, groups=self.groups, seed=seed)
        except ValueError as error:
            few = f"{len(self.y)} rows are too few to hold out a fifth of every class"
            cure = f"Give more rows, or a table with --{part}."
            raise UsageError(f"{few} as {part} rows. {cure}") from error
        training, other = self.take(kept), self.take(held_out)
        lost = np.setdiff1d(self.y[self.counted], training.y[training.counted])
        which = "" if self.weight is None else " with a weight"
        cure = f"Give a table with --{part}, or another --seed."
        if len(lost):
            names = listed([labels.names[code] for code in lost], 3)
            raise UsageError(f"All rows of {names}{which} were held out as {part} rows. {cure}")
        if not other.counted.any():
            raise UsageError(f"Of the rows held out as {part} rows none is{which}. {cure}")
        return training, other


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """A table to learn from.

    Args:
        columns: their roles.
        labels: its classes.
        rows: all of them, or some.
        found: how many there are.
    """

    columns: Columns
    labels: Labels
    rows: Rows
    found: int


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
    """Read a training table and find out what its columns are.

    Of more rows than `most` a sample is taken, drawn by `seed`, in which the classes have their
    shares.
    """
    roles = {"--target": target, "--group": group, "--weight": weight}
    for option, name in [*roles.items(), *(("--drop", name) for name in drop)]:
        check_name(source, option, name)
    names, drop = [name for name in roles.values() if name is not None], list(dict.fromkeys(drop))
    if len({*names, *drop}) < len(names) + len(drop):
        raise UsageError("--target, --group, --weight and --drop must name different columns.")
    source.need(names)
    table = source.read()
    labels, found = Labels.of(table, target, positive, source), table.num_rows
    table, name = _some(table, labels, source, most, seed)
    columns = plan(table, name, target=target, group=group, weight=weight, drop=drop)
    columns = replace(columns, decimal=source.decimal)
    read = rows(table, columns, labels, name)
    if read.weight is not None and (np.bincount(read.y, read.weight) == 0).any():
        raise UsageError(f"Column {weight!r} of {name} must give each class some weight.")
    columns = replace(columns, blanks=bool(read.X.isna().all(axis=1).any()))
    if group is None:
        warn_of_copies(name, read.X, read.y)
    return TrainingTable(columns, labels, read, found)


def rows(
    table: pa.Table, columns: Columns, labels: Labels, source: object, first_row: int = 1
) -> Rows:
    """The rows of a table with the columns of the training table."""
    X = frame(table, columns, source, first_row)
    y = labels.encode(table, source, first_row=first_row)
    weight = groups = None
    if columns.weight is not None:
        weight = read_weights(table, columns.weight, source, first_row)
    if columns.group is not None:
        groups = as_text(table[columns.group]).to_pandas()
        if groups.isna().any():
            what = f"Column {columns.group!r} of {source}"
            got = f"Got {counted(groups.isna().sum(), 'gap')}. Fill it in, or remove the row."
            raise UsageError(f"{what} must name a group in every row. {got}")
        groups = groups.to_numpy(object)
    return Rows(X, y, weight, groups)


def read_weights(table: pa.Table, column: str, source: object, first_row: int = 1) -> np.ndarray:
    """The weights of rows."""
    weight, wrong = as_numbers(table[column])
    allowed, cure = "weights, numbers that are not negative", " A weight of 0 leaves a row out."
    extreme = ((weight > 0) & (weight < LIGHTEST)) | (weight > LARGEST)
    if extreme.any():
        allowed = f"weights, 0 or numbers from {LIGHTEST:g} to {LARGEST:.0e}"
        cure = " Only their ratios count: multiply all by one number, or make the smallest 0."
    wrong |= extreme | ~(weight >= 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        got = f"Got {table[column][row].as_py()!r} in row {first_row + row}."
        raise UsageError(f"Column {column!r} of {source} must hold {allowed}. {got}{cure}")
    return weight


def read_rows(path: Path, dataset: TrainingTable, most: int | None = None, seed: int = 0) -> Rows:
    """The rows of another table, for validation or the test, or a sample of them as in `load`."""
    source = TableFile(path, dataset.columns.decimal)
    source.need(dataset.columns.used)
    table, name = _some(source.read(), dataset.labels, source, most, seed)
    read = rows(table, dataset.columns, dataset.labels, name)
    if not read.counted.any():
        what = f"Column {dataset.columns.weight!r} of {name}"
        raise UsageError(f"{what} must give some row a weight. Got 0 for all {len(read.y)}.")
    return read


def _some(
    table: pa.Table, labels: Labels, source: object, most: int | None, seed: int
) -> tuple[pa.Table, str]:
    """A sample of at most so many rows, and what errors call it."""
    if most is None or table.num_rows <= most:
        return table, str(source)
    y = labels.encode(table, source)
    most = min(most, len(y) - len(np.unique(y)))  # a split leaves a row of each class
    with refused():
        _, some = holdout_split(y, fraction=most / len(y), seed=seed)
    return table.take(some), f"a sample of {source}"


def warn_of_scarce(part: str, y: np.ndarray, labels: Labels) -> None:
    """Warn of classes with few rows among these codes."""
    counts = np.bincount(y, minlength=len(labels.values))
    few = FEW_TO_LEARN if part == "training" else MIN_FOR_INTERVAL
    scarce = [f"{labels.names[code]!r}: {counts[code]}" for code in np.flatnonzero(counts < few)]
    if scarce:
        more = f" and {len(scarce) - 3} more" if len(scarce) > 3 else ""
        found = f"{', '.join(scarce[:3])}{more}"
        outcome = "what is said of them is rough"
        if part == "training":  # fewer folds would leave less to learn from of all classes
            outcome = "they can hardly be learnt, and some folds have none of them"
        text = f"Some classes have few {part} rows ({found}): {outcome}."
        warnings.warn(text, DataWarning, stacklevel=2)


def warn_of_overlap(digests: dict[str, str], parts: dict[str, Rows]) -> None:
    """Warn of files (by name) that are the same, and of groups or rows in two parts of the rows."""
    outcome = "so that the scores are too good."
    for (one, digest), (other, another) in combinations(digests.items(), 2):
        if digest == another:
            text = f"{one} and {other} are the same file, {outcome}"
            warnings.warn(text, DataWarning, stacklevel=2)
    for (one, rows), (other, more) in combinations(parts.items(), 2):
        if rows.groups is None or more.groups is None:
            files = [digests.get(f"--{part}", digests["DATA"]) for part in (one, other)]
            if files[0] != files[1]:  # else it is known
                warn_of_shared(one, (rows.X, rows.y), other, (more.X, more.y))
            continue
        both = np.intersect1d(rows.groups, more.groups).tolist()
        if both:
            text = f"Groups are in the {one} rows and in the {other} rows: {listed(both, 3)}"
            warnings.warn(f"{text}, {outcome}", DataWarning, stacklevel=2)


def introduce(spoken: Terminal, dataset: TrainingTable) -> None:
    """Say what the columns and the classes are taken for."""
    used, names = dataset.columns, dataset.labels.names
    numbers, categories = len(used.numbers), len(used.categories)
    dates = f", {len(used.dates)} of dates" if used.dates else ""
    features = f"{counted(numbers, 'column')} of numbers, {categories} of categories{dates}"
    spoken.note(f"{counted(dataset.found)}; {features}.")
    for name, form in used.date_forms.items():
        spoken.note(f"{WARNING}The dates of {name!r} are read in the order of {example(form)}.")
    if (used_rows := len(dataset.rows.y)) < dataset.found:
        preview = f"A preview with {used_rows} of the rows."
        spoken.note(f"{preview} Without --quick it is trained on all.")
    if used.left_out:
        why = ", ".join(f"{name or repr(name)} ({why})" for name, why in used.left_out.items())
        spoken.note(f"Left out: {why}.")
    if len(names) == 2:
        share = (dataset.rows.y == 1).mean()
        # F1 and the like are about the positive class, which is usually meant to be the rare one.
        usual = f" It has {share:.0%} of the rows; see --positive." if share > 0.5 else ""
        spoken.note(f"The positive class is {names[1]!r}, the other one {names[0]!r}.{usual}")
    else:
        spoken.note(f"{len(names)} classes: {listed(names)}.")


def check_name(source: TableFile, option: str, name: str | None) -> None:
    """Refuse an option that names no column of the table."""
    if name is None or name in source.schema.names:
        return
    cure = nearest(name, source.schema.names) or f"It has {listed(source.schema.names)}."
    raise UsageError(f"{option} must name a column of {source}. Got {name!r}. {cure}")


def split(
    dataset: TrainingTable,
    test: Path | None,
    validation: Path | None,
    most: int | None,
    seed: int,
    *,
    inner: bool,
) -> dict[str, Rows]:
    """Split the rows into "training", "test" and "validation", the last two of `most` rows.

    Without groups there is no "validation": the classifier holds those rows out itself. With groups
    they are held out here, if it has no folds of its own (`inner`), and a split that takes a class
    from the training rows is refused.
    """
    parts = {"training": dataset.rows}
    for name, path in {"test": test, "validation": validation}.items():
        training = parts["training"]
        if path is not None:
            parts[name] = read_rows(path, dataset, most, seed)
        elif name == "test" or (inner and training.groups is not None):
            parts["training"], parts[name] = training.hold_out(dataset.labels, seed, name)
    return parts


def check_names(source: TableFile, dataset: TrainingTable) -> None:
    """Refuse a feature with a name that `predict` gives to a column of its own."""
    taken = [name for name in dataset.columns.features if name in dataset.labels.written]
    if taken:
        cure = f"Rename it, or leave it out with --drop {taken[0]!r}."
        what = f"Column {taken[0]!r} of {source}"
        raise UsageError(f"{what} has the name of one that `evalign predict` adds. {cure}")


def check_columns(training: Rows) -> None:
    """Refuse rows that are all alike: what differs may be in the test rows."""
    used = training.X[training.counted]
    if all(column.nunique(dropna=False) < 2 for _, column in used.items()):
        got = f"Got {len(used)} rows that are all alike."
        cure = "Give more rows, other columns, or another --seed."
        raise UsageError(f"The training rows must differ in a column to learn from. {got} {cure}")
