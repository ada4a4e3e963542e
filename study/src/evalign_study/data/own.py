"""A table of the user's own, as a data set: a CSV file with a column of labels."""

import hashlib
from pathlib import Path

import numpy as np

from evalign_study.data.cards import Card
from evalign_study.data.loading import Dataset
from evalign_study.data.sources import DataError
from evalign_study.refusals import nearest, require

FEWEST = 10  # rows of a class, so that each part of the split has some


def checksum(path: Path) -> str:
    """The sha256 of a file, so that a changed file is another data set."""
    if not path.is_file():
        raise DataError(f"--data must be a CSV file. Got {str(path)!r}, which is none.")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_csv(path: Path, target: str) -> Dataset:
    """Read a table: columns of numbers stay, any other gets a column of 0 and 1 for each value.

    A gap in a column of numbers becomes its mean. Rows that are equal are one group. The last label
    in order is class 1 of two.
    """
    import pandas as pd

    frame = pd.read_csv(path)
    columns = list(frame.columns)
    allowed = f"be a column of {path.name}: {', '.join(map(str, columns))}"
    require(target in columns, "run", "--target", allowed, repr(target), nearest(target, columns))
    labels = frame.pop(target)
    require(not labels.isna().any(), "run", "--target", "have a label in every row", "gaps")
    numbers = frame.select_dtypes("number").columns
    frame[numbers] = frame[numbers].fillna(frame[numbers].mean())
    others = [name for name in frame.columns if name not in set(numbers)]
    X = pd.get_dummies(frame, columns=others, dummy_na=False).to_numpy(np.float32)
    require(X.shape[1] > 0, "run", "--data", "have a column beside the target", "none")
    names, y, counts = np.unique(
        labels.astype(str).to_numpy(), return_inverse=True, return_counts=True
    )
    require(len(names) > 1, "run", "--target", "have two classes", f"{len(names)}")
    few = f"{counts.min()} of {names[counts.argmin()]!r}"
    require(counts.min() >= FEWEST, "run", "--target", f"have {FEWEST} rows of a class", few)
    groups = np.unique(X, axis=0, return_inverse=True)[1].ravel()
    card = Card(
        name=path.name,
        title=path.name,
        rows=len(y),
        shape=(X.shape[1],),
        classes=tuple(map(str, names)),
        counts=tuple(map(int, counts)),
        licence="",
        citation="",
        home="",
        files={},
        format="csv",
    )
    return Dataset(X, y.astype(np.int64), card.classes, groups, None, card)
