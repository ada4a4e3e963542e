"""A decision rule in words that give its labels where they are applied by hand."""

import math
from typing import TYPE_CHECKING

import numpy as np

from evalign.decisions.inputs import FLOOR

if TYPE_CHECKING:
    from evalign.decisions.rule import DecisionRule

# Fewer digits would give other labels to rows in between.
DIGITS = 6


def in_words(rule: "DecisionRule") -> str:
    """A threshold, a number to add to each logit, or the matrix of gains."""
    names = [str(name) for name in rule.classes or []]
    names = names or [f"class {place}" for place in range(len(rule.gain))]
    if rule.multilabel:
        thresholds = rule.threshold.tolist()
        lines = [_from(name, at, 1) for name, at in zip(names, thresholds, strict=True)]
        return "\n".join(lines)
    if len(names) == 2:
        return _from(names[rule.positive], rule.threshold, rule.positive)
    added = _added(rule)
    return _of_matrix(rule, names) if added is None else _of_added(names, added)


def _from(name: str, threshold: float, place: int) -> str:
    if threshold in (0, 1):
        return f"{'never' if threshold else 'always'} {name}"
    # So many digits of it or of what it lacks to 1, whichever is smaller.
    digits = DIGITS - 1 - math.floor(math.log10(min(threshold, 1 - threshold)))
    shown = f"{round(threshold, digits):.15g}"
    # Of equal gains the first class wins.
    return f"{name} {'above' if place == 1 else 'at or above'} a probability of {shown}"


def _added(rule: "DecisionRule") -> np.ndarray | None:
    """What has to be added to the logits, so that the largest sum is the label (C,).

    A class that is never predicted has −∞. None if no such numbers are the whole rule: the gains of
    all wrong labels of a class must be alike, and not above that of the right one.
    """
    gain = rule.gain
    number = len(gain)
    wrong = gain[~np.eye(number, dtype=bool)].reshape(number, number - 1)
    won = gain.diagonal() - wrong[:, 0]
    if (wrong != wrong[:, :1]).any() or (won < 0).any() or not (won > 0).any():
        return None
    offsets = np.zeros(number) if rule.offsets is None else rule.offsets
    with np.errstate(divide="ignore"):
        added = (np.log(won) + offsets) / rule.factor
    most = 0 if rule.class_prior is None else int(rule.class_prior.argmax())
    return added - (added[most] if won[most] > 0 else added.max())


def _of_added(names: list[str], added: np.ndarray) -> str:
    width = max(map(len, names))
    pairs = zip(names, added.tolist(), strict=True)
    lines = [f"{name:{width}}  {by:+.{DIGITS}f}" for name, by in pairs]
    return "\n".join(["the largest logit (or logarithm of a probability) plus", *lines])


def _of_matrix(rule: "DecisionRule", names: list[str]) -> str:
    gain = rule.gain if rule.offsets is None else np.exp(rule.offsets)[:, None] * rule.gain
    gain = gain / np.abs(gain).max()
    cells = [["", *names]]
    for name, row in zip(names, gain.tolist(), strict=True):
        cells.append([name, *(f"{value:.{DIGITS}f}" for value in row)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    power = "" if rule.factor == 1 else f" to the power of {rule.factor:.{DIGITS}g} (factor)"
    head = (
        "the column with the largest sum, after each row of gains is multiplied by the "
        f"probability of its class{power}; probabilities below {FLOOR:.2g} count as {FLOOR:.2g}"
    )
    return "\n".join([head, *lines])
