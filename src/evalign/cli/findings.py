"""What a report says of models beyond their scores: their rules, and the columns that matter."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.inspection import permutation_importance

from evalign.cli.labelled import LabelledFrame
from evalign.cli.outcome import decided
from evalign.cli.run import Model
from evalign.report import ModelFindings
from evalign.tables.classes import Labels

# At most so many rows are shuffled, so often for each column, and so many are predicted in all.
ROWS, REPEATS, PREDICTED = 1000, 5, 100_000
# Halvings of the range of a probability, which give it to more digits than are shown.
HALVINGS = 40
CLASSES = 1000  # a rule is described for at most so many classes, with a row of all for each


def findings(
    models: Sequence[Model],
    labels: Labels,
    tested: LabelledFrame,
    *,
    counts: Sequence[int],
    notes: Sequence[str],
    seed: int,
) -> ModelFindings:
    """The findings on the models, of which the first is the one whose columns are looked at.

    Args:
        models: in the order of the report.
        labels: the classes.
        tested: the test rows.
        counts: the rows of each class.
        notes: the warnings so far.
        seed: of the shuffling.
    """
    against = 0 if len(counts) == 2 else int(np.argmax(counts))
    columns, rows = importance(models[0], labels, tested, seed)
    rules = [cuts(model, labels, against) for model in models]
    return ModelFindings(list(dict.fromkeys(notes)), against, rules, columns, rows)


def cuts(model: Model, labels: Labels, against: int) -> list[float | None]:
    """The probability from which each class is predicted, where all the rest is on `against`.

    The rule's scores are linear in the probabilities, so that a class is predicted on an interval
    of them. It is searched for from 1 down; None if even that is not enough.
    """
    classes = len(labels.values)
    if classes > CLASSES:
        return [None] * classes
    low, high, own = np.zeros(classes), np.ones(classes), np.arange(classes)

    def given(probability: np.ndarray) -> np.ndarray:
        rows = np.diag(probability)
        rows[:, against] += 1 - probability
        return decided(model, labels, rows) == own

    possible = given(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = given(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    high[high < 2.0 ** (1 - HALVINGS)] = 0  # predicted at any probability
    found = [float(cut) if ok else None for cut, ok in zip(high, possible, strict=True)]
    return [None if code == against else cut for code, cut in enumerate(found)]


def importance(
    model: Model, labels: Labels, tested: LabelledFrame, seed: int
) -> tuple[list[dict[str, Any]], int]:
    """How much worse the metric gets if a column is shuffled, and among how many rows."""
    width = tested.X.shape[1]
    order = np.random.default_rng(seed).permutation(np.flatnonzero(tested.counted))
    rows = tested.take(np.sort(order[: min(ROWS, max(1, PREDICTED // width))]))
    found = permutation_importance(
        model,
        rows.X,
        labels.array[rows.y],
        n_repeats=min(REPEATS, max(1, PREDICTED // (width * len(rows.y)))),
        random_state=seed,
        sample_weight=rows.weight,
    )
    columns = [
        {"column": name, "value": float(by.mean()), "low": float(by.min()), "high": float(by.max())}
        for name, by in zip(rows.X.columns, found["importances"], strict=True)
    ]
    return sorted(columns, key=lambda row: -row["value"]), len(rows.y)
