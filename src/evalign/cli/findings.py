"""What a report says of models beyond their answers: their rules, and the columns that matter."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from evalign.cli.dataset import Rows
from evalign.cli.labels import Labels
from evalign.cli.outcome import decided, judged
from evalign.cli.run import Model
from evalign.core.confusion import Confusion
from evalign.core.metrics import resolve
from evalign.report import ModelFindings

# Rows that are shuffled, how often each column is, and the rows that are labelled for it, at most.
ROWS, REPEATS, LABELLED = 1000, 5, 60_000
# Fewer rows for a column tell nothing, and a frame of all columns must fit into memory.
FEWEST, CELLS = 100, 2**22
# Halvings of the range of a probability, which give it to the last digit that is shown and more.
HALVINGS = 40
# Classes of which a rule is told: it labels a row for each, with a probability for each.
CLASSES = 1000


def findings(
    models: Sequence[Model],
    tested: Rows,
    labels: Labels,
    *,
    metric: str,
    counts: Sequence[int],
    notes: Sequence[str],
    seed: int,
) -> ModelFindings:
    """The findings on the models, of which the first is the one whose columns are looked at.

    Args:
        models: in the order of the report.
        tested: the test rows.
        labels: of the run.
        metric: by its name.
        counts: the rows of each class.
        notes: the warnings so far.
        seed: of the shuffling.
    """
    against = 0 if len(labels.names) == 2 else int(np.argmax(counts))
    rows = _some(tested, len(tested.X.columns), seed)
    return ModelFindings(
        list(dict.fromkeys(notes)),
        against,
        [cuts(model, len(labels.names), against) for model in models],
        [] if rows is None else importance(models[0], rows, metric, seed),
        0 if rows is None else len(rows.y),
    )


def cuts(model: Model, classes: int, against: int) -> list[float | None]:
    """The probability from which each class is the label, where the rest is that of `against`.

    Scores of labels are linear in the probabilities, so that a class is the label on an interval of
    them. It is searched for from 1 down; None if even that is not enough.
    """
    if classes > CLASSES:
        return [None] * classes
    low, high, own = np.zeros(classes), np.ones(classes), np.arange(classes)

    def given(probability: np.ndarray) -> np.ndarray:
        rows = np.diag(probability)
        rows[:, against] += 1 - probability
        return decided(model, rows) == own

    possible = given(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = given(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    # What halves to the end is given at any probability.
    high[high < 2.0 ** (1 - HALVINGS)] = 0
    found = [float(cut) if ok else None for cut, ok in zip(high, possible, strict=True)]
    return [None if code == against else cut for code, cut in enumerate(found)]


def importance(model: Model, rows: Rows, metric: str, seed: int) -> list[dict[str, Any]]:
    """How much worse the metric gets if the values of a column are shuffled among the rows.

    Several columns are shuffled at once, each in a copy of the rows of its own: a model that is
    asked often takes longer.
    """
    judge, rng, number = resolve(metric), np.random.default_rng(seed), len(rows.y)
    names = list(rows.X.columns)
    repeats = max(1, min(REPEATS, LABELLED // (number * len(names))))
    shuffled = [(name, rng.permutation(number)) for name in names for _ in range(repeats)]
    sign = 1 if judge.greater_is_better else -1

    def value(codes: np.ndarray) -> float:
        return (
            sign
            * judge(
                Confusion.from_predictions(
                    torch.tensor(codes),
                    torch.tensor(rows.y),
                    num_classes=len(model.classes_),
                    sample_weight=None if rows.weight is None else torch.tensor(rows.weight),
                    matrix=judge.needs_matrix,
                )
            ).item()
        )

    whole, drops = value(judged(model, rows.X)[0]), dict[str, list[float]]()
    at_once = max(1, CELLS // (number * len(names)))
    for start in range(0, len(shuffled), at_once):
        part = shuffled[start : start + at_once]
        copies = pd.concat([rows.X] * len(part), ignore_index=True)
        for i, (name, order) in enumerate(part):
            place = np.arange(len(copies))
            place[i * number : (i + 1) * number] = i * number + order
            copies[name] = copies[name].array.take(place)
        codes = judged(model, copies)[0].reshape(len(part), number)
        for (name, _), labels in zip(part, codes, strict=True):
            drops.setdefault(name, []).append(whole - value(labels))
    found = [
        {"column": name, "value": float(np.mean(all_)), "low": min(all_), "high": max(all_)}
        for name, all_ in drops.items()
    ]
    return sorted(found, key=lambda row: -row["value"])


def _some(rows: Rows, columns: int, seed: int) -> Rows | None:
    """As many rows as there is time for, in which classes have their shares; None for too few."""
    counted = np.flatnonzero(rows.counted)
    number = min(len(counted), ROWS, LABELLED // columns)
    if number < min(FEWEST, len(counted)):
        return None
    order = np.random.default_rng(seed).permutation(counted)
    order = order[np.argsort(rows.y[order], kind="stable")]
    return rows.take(order[np.linspace(0, len(order) - 1, number).round().astype(int)])
