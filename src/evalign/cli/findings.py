"""What a report says of models beyond their scores: their rules, and column importance."""

from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.inspection import permutation_importance

from evalign.cli.dataset import LabelledFrame
from evalign.cli.run import Model
from evalign.ensemble import AlignedEnsemble
from evalign.tables.labels import Labels

# Rows that are shuffled, repeats for each column, and predicted rows in all, at most.
ROWS, REPEATS, PREDICTED = 1000, 5, 100_000


def cuts(model: Model, labels: Labels, against: int) -> list[float | None]:
    """The probability from which each class is predicted, where all the rest is on `against`.

    With gain G, class c beats j from p·(G[c, c] − G[c, j]) = (1 − p)·(G[a, j] − G[a, c]) on. None
    if c is not predicted even at 1.
    """
    rule, own = model.rule_, np.arange(len(labels.values))
    blended = isinstance(model, AlignedEnsemble)  # whose rule has the positive class of two last
    order = own if blended else np.argsort(np.argsort(labels.array))
    gain = rule.gain.cpu().numpy()[np.ix_(order, order)]
    won = (np.diag(gain)[:, None] - gain).clip(0)
    lost = (gain[against] - gain[against][:, None]).clip(0)
    found = np.divide(lost, lost + won, out=np.zeros_like(lost), where=lost > 0).max(1)
    if blended:  # before its rule corrects them, unlike those that a network gives
        offsets = np.zeros(len(own)) if rule.offsets is None else rule.offsets.cpu().numpy()
        found = expit((logit(found) - offsets + offsets[against]) / rule.factor)
    possible = (gain.argmax(1) == own) & (own != against)
    return [float(cut) if ok else None for cut, ok in zip(found, possible, strict=True)]


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
