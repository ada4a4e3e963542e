"""Find the gain matrix of exclusive classes, by labels or by probabilities alone.

A search over few labels alone overfits: one lucky row moves the threshold. So the model's
probabilities, calibrated with the labels by a few numbers, count as much as `EVIDENCE` further rows
of each class. With `ENOUGH` rows of every class only labels count. Choosing among several rules on
held-out rows would be as noisy with few labels as the search itself.
"""

from typing import NamedTuple

import numpy as np

from evalign.decisions import calibration
from evalign.decisions.blocks import softmax
from evalign.decisions.confusions import ScoredRows, gain_matrix
from evalign.decisions.gain_search import best_rule
from evalign.decisions.inputs import FLOOR, without_floor
from evalign.decisions.objective import Objective
from evalign.decisions.threshold import best_threshold, threshold_gains

EVIDENCE = 100
ENOUGH = 1000
FOLDS = 5
CALIBRATION_DIGITS = 2.0**-20  # no realistic number of rows determines log-odds more precisely


class Fitted(NamedTuple):
    """A fitted rule for probabilities softmax(factor·logits + offsets), as in `DecisionRule`.

    The factor of a tuned rule of two classes is 1: calibration only moves the threshold.
    """

    gain: np.ndarray
    source: str
    score: float | None = None
    promised: bool | None = None
    factor: float = 1.0
    offsets: np.ndarray | float = 0.0


class LogitRows(NamedTuple):
    """Rows to fit a rule to: logits (N, C), and the label, weight and group of each (N,).

    `argmax` is the gain matrix of the network's own labels.
    """

    logits: np.ndarray
    labels: np.ndarray
    weight: np.ndarray
    argmax: np.ndarray
    groups: np.ndarray | None = None

    @property
    def target(self) -> np.ndarray:
        """The target of each row, as `ScoredRows` has it."""
        if self.groups is None:
            return self.labels
        return self.groups * self.logits.shape[1] + self.labels


class Calibration(NamedTuple):
    """The probabilities softmax(factor·logits + offsets), by default those of the model itself."""

    factor: float = 1.0
    offsets: np.ndarray | float = 0.0

    def of(self, logits: np.ndarray) -> np.ndarray:
        """The probabilities of logits (N, C)."""
        return softmax(logits, self.factor, self.offsets)


def search_threshold(
    logits: np.ndarray, target: np.ndarray, weight: np.ndarray, objective: Objective
) -> np.ndarray:
    """The best gain matrix of two classes for targets, as `ScoredRows` has them, and weights."""
    margin = logits[:, 1] - logits[:, 0]
    return threshold_gains(best_threshold(margin, target, weight, objective))


def search_gains(
    eta: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    objective: Objective,
    own: np.ndarray | None = None,
) -> np.ndarray:
    """The best gain matrix (C, C) of more than two classes with probabilities η (N, C).

    `own` is as in `best_rule`. Without it the targets are probabilities.
    """
    rows = ScoredRows(eta, target, weight, objective.groups or 1)
    objective = objective.compacted()

    def best(objective: Objective) -> tuple[np.ndarray, np.ndarray]:
        rule = best_rule(rows, objective, own=own, believed=own is None)
        return rule, rows.confusions(rule[None], objective)[0]

    rule, confusion = best(objective)
    objective.check_met(confusion, lambda side: best(side)[1])
    return gain_matrix(rule, objective)


def tuned(rows: LogitRows, objective: Objective) -> Fitted:
    """Find the best rule with labels; argmax if there are too few."""
    labels = rows.labels
    weight = rows.weight
    two = rows.logits.shape[1] == 2
    counts = np.bincount(labels)
    # Labels of one class say nothing about the others, and a threshold next to the only row of a
    # class would be luck.
    if not objective.constraints and (counts >= (2 if two else 1)).sum() < 2:
        return Fitted(rows.argmax, "argmax")
    alone = bool(objective.constraints) or enough(counts)  # constraints are about these labels
    learned = _learned_of_two if two else _learned_of_more
    gain, calibrated, eta = learned(rows, weight, objective, alone)
    if alone:
        matrix = ScoredRows(eta, rows.target, weight, objective.groups or 1).matrices(gain[None])
    else:
        matrix = np.zeros((1, *gain.shape))
        fold = folds(labels)
        for number in range(FOLDS):
            held_out = (fold == number) * weight
            fitted, _, eta = learned(rows, weight - held_out, objective, alone)
            matrix += ScoredRows(eta, labels, held_out).matrices(fitted[None])
    score = float(objective.scores(matrix)[0])
    return Fitted(gain, "labels", score, None, calibrated.factor, calibrated.offsets)


# A gain matrix, the calibration that it goes with, and the probabilities (N, C) that this gives.
Learned = tuple[np.ndarray, Calibration, np.ndarray]


def _learned_of_two(
    rows: LogitRows, weight: np.ndarray, objective: Objective, alone: bool
) -> Learned:
    """Learn from two classes with weights (N,). Their probabilities stay those of the model."""
    logits = rows.logits
    target = rows.target
    if not alone:
        eta = calibrate(logits, rows.labels, weight).of(logits)
        target = _believed(rows, weight, eta)
    own = Calibration()
    return search_threshold(logits, target, weight, objective), own, own.of(logits)


def _learned_of_more(
    rows: LogitRows, weight: np.ndarray, objective: Objective, alone: bool
) -> Learned:
    """Learn from more than two classes with weights (N,)."""
    logits = rows.logits
    labels = rows.labels
    calibrated = calibrate(logits, labels, weight)
    eta = calibrated.of(logits)
    # The argmax of the network is that of calibrated probabilities times e^(−offset).
    start = rows.argmax.diagonal() ** calibrated.factor * np.exp(-calibrated.offsets)
    if alone:
        return search_gains(eta, rows.target, weight, objective, start), calibrated, eta
    believed = _believed(rows, weight, eta)
    recognised = eta
    alone_in_class = _alone_in_class(labels)
    if len(alone_in_class):
        recognised = eta.copy(order="K")
        recognised[alone_in_class] = believed[alone_in_class]
    return search_gains(recognised, believed, weight, objective, start), calibrated, eta


def _believed(rows: LogitRows, weight: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """Labels mixed with calibrated probabilities η, which count as `EVIDENCE` rows of a class.

    One row does not show how well its class can be recognised. The row counts as recognised, so
    that the rule predicts the class about where argmax does.
    """
    labels = rows.labels
    mass = np.bincount(labels, weight, eta.shape[1])
    trust = mass / (mass + EVIDENCE)
    believed = (1 - trust) * _possible(rows.logits, labels, weight, eta)
    believed[np.arange(len(labels)), labels] += trust[labels]
    alone_in_class = _alone_in_class(labels)
    believed[alone_in_class] = 0
    believed[alone_in_class, labels[alone_in_class]] = 1
    return believed


def _alone_in_class(labels: np.ndarray) -> np.ndarray:
    """The places of rows that are the only ones of their class."""
    return np.flatnonzero((np.bincount(labels) == 1)[labels])


def _possible(
    logits: np.ndarray, labels: np.ndarray, weight: np.ndarray, eta: np.ndarray
) -> np.ndarray:
    """Calibrated probabilities η, with 0 for a class that no row has.

    There calibration may have raised the floor.
    """
    known = np.bincount(labels, weight, eta.shape[1]) > 0
    if known.all():
        return eta
    return eta * (known | (softmax(logits).max(0) > 2 * FLOOR))


def expected(
    logits: np.ndarray,
    weight: np.ndarray,
    objective: Objective,
    groups: np.ndarray | None = None,
    labels: np.ndarray | None = None,
) -> Fitted:
    """Find the best rule for calibrated probabilities; labels (N,), if any, calibrate them."""
    calibrated = Calibration() if labels is None else calibrate(logits, labels, weight)
    eta = calibrated.of(logits)
    believed = without_floor(eta) if labels is None else _possible(logits, labels, weight, eta)
    believed = objective.by_group(believed, groups)
    if logits.shape[1] == 2:
        rows = calibrated.factor * logits + calibrated.offsets
        gain = search_threshold(rows, believed, weight, objective)
    else:
        gain = search_gains(eta, believed, weight, objective)
    return Fitted(gain, "expected", factor=calibrated.factor, offsets=calibrated.offsets)


def enough(counts: np.ndarray) -> bool:
    """Whether only labels count, given the number of rows of each class."""
    return bool(counts[counts > 0].min() >= ENOUGH)


def calibrate(logits: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> Calibration:
    """Calibrate the probabilities of logits (N, C) with labels and weights (N,)."""
    a, b = calibration.factor_and_offsets(logits, labels, weight)
    # The last digits depend on the order of the rows, and would break ties between classes.
    factor = round(a / CALIBRATION_DIGITS) * CALIBRATION_DIGITS
    return Calibration(factor, np.round(b / CALIBRATION_DIGITS) * CALIBRATION_DIGITS)


def folds(labels: np.ndarray) -> np.ndarray:
    """The fold of each row, stratified by class, even for a class with fewer rows than folds."""
    shuffled = np.random.default_rng(0).permutation(len(labels))
    order = shuffled[labels[shuffled].argsort(kind="stable")]
    fold = np.empty_like(labels)
    fold[order] = np.arange(len(labels)) % FOLDS
    return fold
