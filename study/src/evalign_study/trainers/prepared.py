"""Tables of features, split as in the papers and standardised."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from torch import Tensor

from evalign.training import three_way_split
from evalign_study import data
from evalign_study.data.standardizer import Standardizer
from evalign_study.records.run import BINARY, MULTICLASS
from evalign_study.refusals import require

Rows = tuple[Tensor, Tensor]  # (X, y), or (logits, y)
DIMENSIONS = 256  # number of features that the words of a text are reduced to


class Prepared(NamedTuple):
    """Rows of the three parts, standardised with the statistics of the training rows."""

    training: Rows
    validation: Rows
    test: Rows
    classes: int

    def to(self, device: str) -> "Prepared":
        training, validation, test = ((X.to(device), y.to(device)) for X, y in self[:3])
        return Prepared(training, validation, test, self.classes)

    @property
    def counts(self) -> Tensor:
        """The number of training rows of each class."""
        return torch.bincount(self.training[1], minlength=self.classes)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The criteria of the strict selection."""
        return BINARY if self.classes == 2 else MULTICLASS

    def thinned(self, rows: int | None) -> "Prepared":
        """Keep at most `rows` of each part; None keeps all."""
        chosen = [torch.from_numpy(thin(y.numpy(), rows)) for _, y in self[:3]]
        parts = zip(self[:3], chosen, strict=True)
        training, validation, test = ((X[few], y[few]) for (X, y), few in parts)
        return Prepared(training, validation, test, self.classes)


def thin(y: np.ndarray, rows: int | None) -> np.ndarray:
    """Choose the places of at most `rows` labels, keeping the class shares; None keeps all.

    Examples:
        >>> thin(np.array([0, 1, 0, 0, 0]), 2)
        array([0, 1])
    """
    order = np.argsort(y, kind="stable")
    count = len(y) if rows is None else min(rows, len(y))
    return np.sort(order[np.linspace(0, len(y) - 1, count).astype(int)])


@lru_cache(maxsize=4)
def prepare(
    dataset: str, variant: str, split_seed: int = 0, imbalance: float | None = None
) -> Prepared:
    """Load, split and standardise the data set of a run. Texts become features (TF-IDF)."""
    loaded = data.load(dataset, preparation=variant)
    texts = not loaded.card.shape
    table = texts or (loaded.X.ndim == 2 and loaded.X.dtype == np.float32)
    allowed = "be a table of features"
    require(table, "prepare", "dataset", allowed, f"{dataset}: {loaded.X.dtype} {loaded.X.shape}")
    rows = np.arange(len(loaded.y))
    if imbalance is not None:
        rows = _thinned(loaded.y, imbalance, split_seed)
    groups = loaded.groups[rows] if variant == "sound" else None
    parts = [rows[part] for part in three_way_split(loaded.y[rows], groups=groups, seed=split_seed)]
    features = of_texts(loaded.X, parts[0]) if texts else loaded.X
    X, y = torch.from_numpy(features), torch.from_numpy(loaded.y)
    scale = Standardizer(X[parts[0]])
    training, validation, test = ((scale(X[part]), y[part]) for part in parts)
    return Prepared(training, validation, test, len(loaded.classes))


def of_texts(texts: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Reduce many words to few features, learnt from the training rows alone."""
    pipeline = make_pipeline(TfidfVectorizer(), TruncatedSVD(DIMENSIONS, random_state=0))
    return pipeline.fit(texts[training]).transform(texts).astype(np.float32)


def _thinned(y: np.ndarray, imbalance: float, seed: int) -> np.ndarray:
    """Thin the rarer of two classes to the given imbalance; return the rows that are kept."""
    counts = np.bincount(y)
    rare = counts.argmin()
    kept = round(counts.max() / imbalance)
    ok = len(counts) == 2 and 0 < kept <= counts[rare]
    allowed = f"leave 1 to {counts[rare]} rows of the rarer of two classes"
    require(ok, "prepare", "imbalance", allowed, f"{imbalance:g}: {kept} rows")
    few = np.random.default_rng(seed).choice(np.flatnonzero(y == rare), kept, replace=False)
    return np.sort(np.concatenate([np.flatnonzero(y != rare), few]))
