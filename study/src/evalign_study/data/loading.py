"""Arrays of a data set: class codes, prepared features, and groups that must stay together."""

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evalign_study.data.cards import Card
from evalign_study.data.cards import card as find_card
from evalign_study.data.sources import DataError, fetch
from evalign_study.refusals import installing, require

if TYPE_CHECKING:
    import pandas as pd

PREPARATIONS = ("sound", "paper")


class UnverifiedWarning(UserWarning):
    """The rows come from a source that cannot be vouched for."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory.

    Args:
        X: float32 features (N, features), uint8 images, channels last, or texts.
        y: int64 class codes (N,); a row of codes for each frame. For images of pixels with a class
            each, uint8 codes (N, height, width), in which VOID has no class. For many labels a
            row, 0 or 1 for each (N, labels).
        classes: the names of the classes.
        groups: a number per row; rows with one number must stay on one side of a split. Pass them
            to `holdout_split` or `three_way_split`; a split without them is that of the papers.
        split: "train", "validation" or "test" per row, where the publisher made a split.
        card: the description of the data set.
    """

    X: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]
    groups: np.ndarray
    split: np.ndarray | None
    card: Card


def load(name: str, *, preparation: str = "sound") -> Dataset:
    """Load a data set by name, from the local folder, the download cache or the public source.

    Args:
        name: one of `names()`.
        preparation: "paper" gives the features as the papers had them. It differs for adult: codes
            of the categories instead of a column for each.

    Every file is checked against its checksum. That of a public source without a known one is
    recorded when it is first downloaded, and checked from then on; its rows are compared with the
    known ones, and an `UnverifiedWarning` is given if they differ.
    """
    known = " or ".join(f'"{name}"' for name in PREPARATIONS)
    ok = preparation in PREPARATIONS
    require(ok, "load", "preparation", f"be {known}", repr(preparation))
    card = find_card(name)
    if card.positives:
        base = load(card.base, preparation=preparation)
        y = np.isin(base.y, [base.classes.index(name) for name in card.positives])
        return replace(base, y=y.astype(np.int64), classes=card.classes, card=card)

    try:
        from evalign_study.data import readers  # here, because it imports pandas

        found = fetch(card)
        public = found.where != "local"
        read = readers.read(card, list(found.files), public=public)
    except ModuleNotFoundError as error:
        text = f"{name} is read with {error.name}. {installing('study')}"
        raise DataError(text) from error
    classes = card.classes or read.classes or tuple(map(str, np.unique(read.label)))
    dataset = Dataset(
        PREPARE.get(name, plain)(read.X, preparation),
        _codes(card, read.label, classes),
        classes,
        _equal_rows(read.X) if read.groups is None else read.groups,
        read.split,
        card,
    )
    if public and not card.verified and content(dataset) != card.content:
        sources = " and ".join(url for url, value in card.public.items() if not value)
        text = f"The rows of {name} are not those that its card describes. They come from {sources}"
        got = " and ".join(value for path, value in found.files.items())
        text = f"{text}, whose checksum is not known; {got} came, and is expected from now on."
        warnings.warn(text, UnverifiedWarning, stacklevel=2)
    return dataset


def content(dataset: Dataset) -> str:
    """Compute a checksum of rows and labels that does not depend on the files they came from."""
    X = dataset.X
    rows = "\n".join(X).encode() if X.dtype == object else X.tobytes()
    return hashlib.sha256(rows + dataset.y.tobytes()).hexdigest()


def plain(X: Any, preparation: str) -> np.ndarray:
    """Convert numbers to float32; leave images and texts unchanged."""
    X = np.asarray(X)
    if X.dtype == object:
        return X[:, 0]
    return X if X.dtype == np.uint8 else X.astype(np.float32)


def adult(X: "pd.DataFrame", preparation: str) -> np.ndarray:
    """Drop fnlwgt, which is a survey weight, and treat "?" as a category of its own."""
    import pandas as pd

    X = X.drop(columns="fnlwgt")
    words = X.select_dtypes(exclude="number").columns
    if preparation == "paper":
        codes = X[words].apply(lambda column: column.astype("category").cat.codes)
        return X.assign(**codes).to_numpy(np.float32)
    return pd.get_dummies(X, columns=list(words)).to_numpy(np.float32)


def creditcard(X: np.ndarray, preparation: str) -> np.ndarray:
    """Keep V1 to V28 and log(amount + 0.001), without the time (BtG)."""
    amount = np.log(X[:, -1:].astype(np.float64) + 0.001)
    return np.hstack([X[:, 1:-1], amount]).astype(np.float32)


PREPARE: dict[str, Callable[[Any, str], np.ndarray]] = {"adult": adult, "creditcard": creditcard}


def _codes(card: Card, label: np.ndarray, classes: tuple[str, ...]) -> np.ndarray:
    if label.dtype.kind in "iu":  # numbers already
        return label
    code = {name: i for i, name in enumerate(classes)}
    unknown = set(np.unique(label)) - set(code)
    if unknown:
        listed = ", ".join(sorted(map(str, unknown)))
        raise DataError(f"{card.name} holds labels that its card does not know: {listed}.")
    return np.vectorize(code.__getitem__, otypes=[np.int64])(label)


def _equal_rows(X: Any) -> np.ndarray:
    """Number the rows, with one number for equal rows."""
    array = isinstance(X, np.ndarray)
    rows = (row.tobytes() for row in X) if array else X.itertuples(False, None)
    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(row, len(seen)) for row in rows])
