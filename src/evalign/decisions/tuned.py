"""Find the gain matrix of exclusive classes, by labels or by probabilities alone.

A search over few labels alone overfits: one lucky row moves the threshold. So the model's
probabilities, calibrated with the labels by a few numbers, count as much as `EVIDENCE` further rows
of each class. With `ENOUGH` rows of every class only labels count. Choosing among several rules on
held-out rows would be as noisy with few labels as the search itself.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from evalign.decisions import calibration
from evalign.decisions.confusions import ScoredRows, gain_matrix
from evalign.decisions.gain_search import best_rule
from evalign.decisions.inputs import without_floor
from evalign.decisions.objective import Objective
from evalign.decisions.threshold import best_threshold, threshold_gains

EVIDENCE, ENOUGH = 100, 1000
FOLDS = 5
CALIBRATION_DIGITS = 2.0**-20  # no realistic number of rows determines log-odds more precisely


class Fitted(NamedTuple):
    """A fitted rule for probabilities softmax(factor·logits + offsets), as in `DecisionRule`.

    The factor of a tuned rule of two classes is 1: calibration only moves the threshold.
    """

    gain: Tensor
    source: str
    score: float | None = None
    promised: bool | None = None
    factor: float = 1.0
    offsets: Tensor = torch.zeros(())


class LogitRows(NamedTuple):
    """Rows to fit a rule to: logits and one-hot labels (N, C), weights and groups (N,).

    `argmax` is the gain matrix of the network's own labels.
    """

    logits: Tensor
    target: Tensor
    weight: Tensor
    argmax: Tensor
    groups: Tensor | None = None


def search(
    logits: Tensor, target: Tensor, weight: Tensor, objective: Objective, own: Tensor | None = None
) -> Tensor:
    """The best gain matrix (C, C) for targets (N, C) and weights (N,).

    `own` is as in `best_rule`. Without it the targets of more than two classes are probabilities.
    """
    if logits.shape[1] == 2:
        margin = logits[:, 1] - logits[:, 0]
        return threshold_gains(best_threshold(margin, target, weight, objective))
    rows, objective = ScoredRows(logits.softmax(1), target, weight), objective.compacted()

    def best(objective: Objective) -> tuple[Tensor, Tensor]:
        rule = best_rule(rows, objective, own=own, believed=own is None)
        return rule, rows.confusions(rule.unsqueeze(0), objective)[0]

    rule, confusion = best(objective)
    objective.check_met(confusion, lambda side: best(side)[1])
    return gain_matrix(rule, objective)


def tuned(rows: LogitRows, objective: Objective) -> Fitted:
    """Find the best rule with labels; argmax if there are too few."""
    logits, target, weight, argmax, groups = rows
    two, y = logits.shape[1] == 2, target.argmax(1)
    own, counts = as_given(logits), y.bincount()
    # Labels of one class say nothing about the others, and a threshold next to the only row of a
    # class would be luck.
    if not objective.constraints and (counts >= (2 if two else 1)).sum() < 2:
        return Fitted(argmax, "argmax")
    only = (counts == 1)[y].unsqueeze(1)  # whether a row is the only one of its class
    alone = bool(objective.constraints) or enough(counts)  # constraints are about these labels

    def learned(weight: Tensor) -> tuple[Tensor, Calibrated]:
        """The gain matrix for weights (N,), and the probabilities to apply it to."""
        calibrated = own if alone and two else calibrate(logits, target, weight)
        believed, eta = target, calibrated.eta
        if not alone:
            mass = weight @ target
            trust = mass / (mass + EVIDENCE)
            believed = trust * target + (1 - trust) * calibrated.believed
            # One row does not show how well its class can be recognised. The row counts as
            # recognised, so that the rule predicts the class about where argmax does.
            believed, eta = (torch.where(only, target, each) for each in (believed, eta))
        believed = objective.by_group(believed, groups)
        if two:
            return search(logits, believed, weight, objective), own
        # The argmax of the network is that of calibrated probabilities times e^(−offset).
        start = argmax.diagonal() ** calibrated.factor * (-calibrated.offsets).softmax(0)
        return search(eta.log(), believed, weight, objective, start), calibrated

    gain, calibrated = learned(weight)
    true = objective.by_group(target, groups)
    if alone:
        matrix = ScoredRows(calibrated.eta, true, weight).matrices(gain.unsqueeze(0))
    else:
        matrix, fold = torch.zeros_like(gain).unsqueeze(0), folds(y)
        for held_out in ((fold == number).double() * weight for number in range(FOLDS)):
            fitted, seen = learned(weight - held_out)
            matrix += ScoredRows(seen.eta, true, held_out).matrices(fitted.unsqueeze(0))
    score = objective.scores(matrix).item()
    return Fitted(gain, "labels", score, None, calibrated.factor, calibrated.offsets)


def expected(
    logits: Tensor,
    weight: Tensor,
    objective: Objective,
    groups: Tensor | None = None,
    target: Tensor | None = None,
) -> Fitted:
    """Find the best rule for calibrated probabilities; targets (N, C), if any, calibrate them."""
    seen = as_given(logits) if target is None else calibrate(logits, target, weight)
    believed = objective.by_group(seen.believed, groups)
    gain = search(seen.factor * logits + seen.offsets, believed, weight, objective)
    return Fitted(gain, "expected", factor=seen.factor, offsets=seen.offsets)


def enough(counts: Tensor) -> bool:
    """Whether only labels count, given the number of rows of each class."""
    return bool(counts[counts > 0].min() >= ENOUGH)


class Calibrated(NamedTuple):
    """Probabilities η (N, C) = softmax(factor·logits + offsets), and with 0 as `believed`."""

    eta: Tensor
    believed: Tensor
    factor: float
    offsets: Tensor


def as_given(logits: Tensor) -> Calibrated:
    """The probabilities of logits (N, C), as they are."""
    eta = logits.softmax(1)
    return Calibrated(eta, without_floor(eta), 1.0, torch.zeros_like(logits[0]))


def calibrate(logits: Tensor, target: Tensor, weight: Tensor) -> Calibrated:
    """Calibrate the probabilities of logits (N, C) with targets (N, C) and weights (N,)."""
    a, b = calibration.factor_and_offsets(logits, target, weight)
    # The last digits depend on the order of the rows, and would break ties between classes.
    a, b = ((x / CALIBRATION_DIGITS).round() * CALIBRATION_DIGITS for x in (a, b))
    eta = (a * logits + b).softmax(1)
    # 0 for a class that no row has, where calibration may have raised the floor.
    known = without_floor(logits.softmax(1)).any(0) | (weight @ target > 0)
    return Calibrated(eta, eta * known, a.item(), b)


def folds(y: Tensor) -> Tensor:
    """The fold of each row, stratified by class, even for a class with fewer rows than folds."""
    shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).to(y.device)
    order = shuffled[y[shuffled].argsort(stable=True)]
    fold = torch.empty_like(y)
    fold[order] = torch.arange(len(y), device=y.device) % FOLDS
    return fold
