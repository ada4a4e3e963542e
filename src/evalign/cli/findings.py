"""What a report says of models beyond their answers: their rules, and the columns that matter."""

from collections.abc import Sequence
from time import monotonic
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

# Rows that are shuffled, and how often each column is, at most.
ROWS, REPEATS = 1000, 5
# Fewer rows for a column tell nothing, and a frame of all columns must fit into memory.
FEWEST, CELLS = 100, 2**22
# Halvings of the range of a probability, which give it to the last digit that is shown and more.
HALVINGS = 40
# Classes of which a rule is told: it labels a row for each, with a probability for each.
CLASSES = 1000


def findings(
    models: Sequence[Model],
    labels: Labels,
    tested: Rows,
    *,
    metric: str,
    counts: Sequence[int],
    notes: Sequence[str],
    seed: int,
    seconds: float,
) -> ModelFindings:
    """The findings on the models, of which the first is the one whose columns are looked at.

    Args:
        models: in the order of the report.
        labels: the classes.
        tested: the test rows.
        metric: by its name.
        counts: the rows of each class.
        notes: the warnings so far.
        seed: of the shuffling.
        seconds: about what the shuffling may take.
    """
    against = 0 if len(counts) == 2 else int(np.argmax(counts))
    columns, rows = importance(models[0], labels, tested, metric, seed, seconds)
    return ModelFindings(
        list(dict.fromkeys(notes)),
        against,
        [cuts(model, labels, against) for model in models],
        columns,
        rows,
    )


def cuts(model: Model, labels: Labels, against: int) -> list[float | None]:
    """The probability from which each class is the label, where the rest is that of `against`.

    Scores of labels are linear in the probabilities, so that a class is the label on an interval of
    them. It is searched for from 1 down; None if even that is not enough.
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
    # What halves to the end is given at any probability.
    high[high < 2.0 ** (1 - HALVINGS)] = 0
    found = [float(cut) if ok else None for cut, ok in zip(high, possible, strict=True)]
    return [None if code == against else cut for code, cut in enumerate(found)]


def importance(
    model: Model, labels: Labels, tested: Rows, metric: str, seed: int, seconds: float
) -> tuple[list[dict[str, Any]], int]:
    """How much worse the metric gets if the values of a column are shuffled, and among how many.

    A first call tells how many rows the model labels in the time. There are no columns if these are
    too few for all of them. Several are shuffled at once, each in a copy of the rows of its own, as
    a model that is asked often takes longer.
    """
    rng, names = np.random.default_rng(seed), list(tested.X.columns)
    rows = _some(tested, ROWS, rng)
    start = monotonic()
    judged(model, labels, rows.X)
    affordable = int(len(rows.y) * seconds / max(monotonic() - start, 1e-9))
    each = min(len(rows.y), affordable // len(names))
    if each < min(FEWEST, len(rows.y)):
        return [], 0
    rows, repeats = _some(rows, each, rng), min(REPEATS, affordable // (each * len(names)))

    judge = resolve(metric)
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

    shuffled = [(name, rng.permutation(each)) for name in names for _ in range(repeats)]
    whole, worse = value(judged(model, labels, rows.X)[0]), dict[str, list[float]]()
    at_once = max(1, CELLS // (each * len(names)))
    for start in range(0, len(shuffled), at_once):
        part = shuffled[start : start + at_once]
        copies = pd.concat([rows.X] * len(part), ignore_index=True)
        for i, (name, order) in enumerate(part):
            place = np.arange(len(copies))
            place[i * each : (i + 1) * each] = i * each + order
            copies[name] = copies[name].array.take(place)
        codes = judged(model, labels, copies)[0].reshape(len(part), each)
        for (name, _), given in zip(part, codes, strict=True):
            worse.setdefault(name, []).append(whole - value(given))
    found = [
        {"column": name, "value": float(np.mean(by)), "low": min(by), "high": max(by)}
        for name, by in worse.items()
    ]
    return sorted(found, key=lambda row: -row["value"]), each


def _some(rows: Rows, most: int, rng: np.random.Generator) -> Rows:
    """At most so many of the rows that count, in which classes have their shares."""
    order = rng.permutation(np.flatnonzero(rows.counted))
    order = order[np.argsort(rows.y[order], kind="stable")]
    number = min(most, len(order))
    return rows.take(order[np.linspace(0, len(order) - 1, number).round().astype(int)])
