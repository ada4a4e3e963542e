"""Rows with targets and weights, and the confusions that rules produce on them.

A rule gives a row with class probabilities η the label argmax_j Σ_y η_y G[y, j]. During the search,
a rule is the current slope of the metric. It is G itself, (C, C), or for a compact objective the
slopes (3, C) in three sums: a in the true positives, b in the predicted mass, and a third in the
actual mass, which changes no label. Then G = diag(a) + 1·bᵀ, and argmax_j (a_j η_j + b_j) takes C
operations instead of C².
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evalign.decisions.blocks import blocks
from evalign.decisions.objective import Objective
from evalign.decisions.threshold import SATURATED, log_odds_of_gains

# Dropped last bits of a gain: more than rounding error changes, fewer than a cut needs.
DROPPED_BITS = 10


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Rows: η (N, C), targets, and weights (N,).

    Targets are labels (N,), class indices, or probabilities (N, C). With groups of rows, class y of
    group g is target g·C + y, and probabilities are (N, G·C).
    """

    eta: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    groups: int = 1

    @property
    def labelled(self) -> bool:
        """Whether targets are labels."""
        return self.target.ndim == 1

    @cached_property
    def mass(self) -> np.ndarray:
        """The mass of each row: its weight, times the sum of its probabilities."""
        return self.weight if self.labelled else self.weight * self.target.sum(1)

    def rows(self, chosen: slice | np.ndarray) -> "ScoredRows":
        """Some of the rows."""
        eta = np.asfortranarray(self.eta[chosen])
        return ScoredRows(eta, self.target[chosen], self.weight[chosen], self.groups)

    @cached_property
    def actual(self) -> np.ndarray:
        """The mass of each target."""
        if self.labelled:
            return np.bincount(self.target, self.weight, self.groups * self.eta.shape[1])
        return self.weight @ self.target

    def confusions(self, rules: np.ndarray, objective: Objective) -> np.ndarray:
        """The confusion of each rule (B, ...), in the form of the objective."""
        if not objective.compact:
            return self.matrices(rules)
        number, _, classes = rules.shape
        sums = np.zeros_like(rules)
        for part in blocks(len(self.weight), number):
            labels = _labels_by_slopes(self.eta[part], rules)
            true = self.weight[part] * self.target_of(labels, part)
            sums[:, 0] += sums_by_label(labels, true, classes)
            sums[:, 1] += sums_by_label(labels, self.mass[part], classes)
        sums[:, 2] = self.actual
        return sums

    def target_of(self, labels: np.ndarray, part: slice = slice(None)) -> np.ndarray:
        """How far labels (..., n) of a part of the rows are true: 0 or 1, or a probability."""
        target = self.target[part]
        return target == labels if self.labelled else target[np.arange(len(target)), labels]

    def matrices(self, gains: np.ndarray) -> np.ndarray:
        """The matrices C[y, j] = Σ_r w_r·target_r[y]·1{label_r = j} of gain matrices (B, C, C)."""
        number, classes, _ = gains.shape
        targets = self.groups * classes
        sums = np.zeros((number, targets, classes))
        for part in blocks(len(self.weight), number * classes):
            labels = _labels_by_gains(self.eta[part], gains)
            weight = self.weight[part]
            target = self.target[part]
            if self.labelled:
                cells = target * classes + labels
                found = sums_by_label(cells, weight, targets * classes)
                sums += found.reshape(sums.shape)
                continue
            for y in range(targets):
                sums[:, y] += sums_by_label(labels, weight * target[:, y], classes)
        return sums


def _labels_by_slopes(eta: np.ndarray, rules: np.ndarray) -> np.ndarray:
    """The labels (B, n) of rows (n, C) by compact rules (B, 3, C)."""
    factors = rules[:, 0, :, None]
    offsets = rules[:, 1, :, None]
    scores = np.empty((len(rules), len(eta)))

    def of_each_class() -> Iterator[np.ndarray]:
        for j in range(eta.shape[1]):
            np.multiply(factors[:, j], eta[:, j], out=scores)
            yield np.add(scores, offsets[:, j], out=scores)

    return best_of(of_each_class(), eta.shape[1])[0]


def _labels_by_gains(eta: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """The labels (B, n) of rows (n, C) by gain matrices (B, C, C)."""
    scores = gains.transpose(0, 2, 1) @ eta.T
    return best_of(scores.transpose(1, 0, 2), eta.shape[1])[0]


def best_of(scores: Iterable[np.ndarray], classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The first class with the largest score, and this score, of the scores of each class in turn.

    The maximum runs over the classes, for many rows at once. Small integers hold the labels.
    """
    kind = np.min_scalar_type(classes - 1).type
    several = iter(scores)
    most = next(several).copy()
    labels = np.zeros(most.shape, kind)
    for j, score in enumerate(several, start=1):
        above = score > most
        np.maximum(most, score, out=most)
        np.maximum(labels, above * kind(j), out=labels)
    return labels, most


def sums_by_label(labels: np.ndarray, values: np.ndarray, number: int) -> np.ndarray:
    """Sums (B, number) of values (n,) or (B, n) over the rows with each of the labels (B, n)."""
    first = number * np.arange(len(labels))[:, None]
    every = np.broadcast_to(values, labels.shape).ravel()
    sums = np.bincount((first + labels).ravel(), every, number * len(labels))
    return sums.reshape(len(labels), number)


def label_sums(
    margin: np.ndarray, positive: np.ndarray, weight: np.ndarray, thresholds: np.ndarray
) -> np.ndarray:
    """True positives, predicted, actual and total mass (4, L) of the labels at thresholds (L,)."""
    margin = margin.clip(-SATURATED, SATURATED)  # thresholds beyond have all rows on one side
    predicted = weight * (margin > thresholds)
    true_positives = (predicted * positive).sum(0)
    actual = (weight * positive).sum(0)
    return np.stack([true_positives, predicted.sum(0), actual, weight.sum(0)])


def confusion_of(
    objective: Objective,
    logits: np.ndarray,
    eta: np.ndarray,
    true: np.ndarray,
    weight: np.ndarray,
    gain: np.ndarray,
) -> np.ndarray:
    """The confusion of a gain for logits with probabilities η and targets `true`."""
    if objective.multilabel:
        return label_sums(logits, true, weight, log_odds_of_gains(gain))
    return ScoredRows(eta, true, weight, objective.groups or 1).matrices(gain[None])[0]


def label_scores(eta: np.ndarray, rule: np.ndarray, *, compact: bool) -> np.ndarray:
    """The scores of all labels (N, C) by a rule."""
    if not compact:
        return (rule.T @ eta.T).T
    factors, offsets, _ = rule
    return factors * eta + offsets


def weighted_argmax(weights: np.ndarray, objective: Objective) -> np.ndarray:
    """The rules argmax_j w_j η_j for class weights w (..., C)."""
    if not objective.compact:
        return weights[..., None] * np.eye(weights.shape[-1])
    nothing = np.zeros_like(weights)
    return np.stack([weights, nothing, nothing], -2)


def gain_matrix(rule: np.ndarray, objective: Objective) -> np.ndarray:
    """The gain matrix (C, C) of a rule."""
    if objective.compact:
        factors, offsets, _ = rule
        rule = np.diag(factors) + offsets
    return without_last_bits(normalised(rule))


def without_last_bits(gains: np.ndarray) -> np.ndarray:
    """Drop the last bits of gains, by Veltkamp's splitting.

    These bits depend on the order of the rows, and would break ties between classes.
    """
    far = (2**DROPPED_BITS + 1) * gains
    return far - (far - gains)


def normalised(gains: np.ndarray) -> np.ndarray:
    """Shift each class's smallest gain to 0 and scale the largest of all to 1: the same labels."""
    gains = gains - gains.min(-1, keepdims=True)
    return gains / np.maximum(gains.max((-2, -1), keepdims=True), 1e-300)
