"""Labelled rows of a table: taken, joined, sampled and split."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas import util

from evalign.cli.errors import UsageError, refused
from evalign.core.text import listed
from evalign.tables.classes import Labels
from evalign.training import holdout_split

hash_rows: Any = util.hash_pandas_object


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
        """These rows, and then those of another table with the same columns."""
        X = pd.concat([self.X, more.X], ignore_index=True)
        categories = dict.fromkeys(self.X.select_dtypes("category"), "category")
        weight, groups = (
            None if one is None or other is None else np.concatenate([one, other])
            for one, other in ((self.weight, more.weight), (self.groups, more.groups))
        )
        y = np.concatenate([self.y, more.y])
        return LabelledFrame(X.astype(categories), y, weight, groups)

    def sample(self, most: int, seed: int) -> "LabelledFrame":
        """At most so many rows, in which the classes have their shares."""
        if len(self.y) <= most:
            return self
        most = min(most, len(self.y) - len(np.unique(self.y)))  # a split leaves a row of each class
        with refused():
            return self.take(holdout_split(self.y, fraction=most / len(self.y), seed=seed)[1])

    def hold_out(
        self, labels: Labels, seed: int, part: str
    ) -> tuple["LabelledFrame", "LabelledFrame"]:
        """Split into the rows to train on, and a fifth for the "test" or "validation"."""
        cure = f"Give more rows or groups, another --seed, or a table with --{part}."
        try:
            kept, held_out = holdout_split(self.y, groups=self.groups, seed=seed)
        except ValueError as error:
            text = f"A fifth cannot be held out as {part} rows: {error} {cure}"
            raise UsageError(text) from error
        training, other = self.take(kept), self.take(held_out)
        lost = np.setdiff1d(self.y[self.counted], training.y[training.counted])
        if len(lost) or not other.counted.any():
            names = listed([labels.names[code] for code in lost], 3) or "rows with a weight"
            raise UsageError(f"Holding out {part} rows leaves no {names} on one side. {cure}")
        return training, other
