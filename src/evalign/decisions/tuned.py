"""The gain matrix found with labels, guarded against too few of them.

A search over labels alone is exact on the rows it sees and overfits when they are few: one lucky
row moves the threshold. So the search also believes the model's probabilities, calibrated with the
labels by a few numbers, as much as `EVIDENCE` rows of each class. With few labels the rule is
nearly the rule "expected", with many nearly the search over labels alone; with `ENOUGH` rows of
every class labels decide alone. Choosing among several rules on held-out rows would be another way,
but where labels are few that choice is as noisy as the search.
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
CALIBRATION_DIGITS = 2.0**-20  # no number of rows tells log-odds more exactly


class Fitted(NamedTuple):
    """A rule that was found, for probabilities softmax(factor·logits + offsets).

    Args:
        gain: the gain matrix, (C, C) or (L, 2, 2).
        source: where the gain comes from, as `DecisionRule.source`.
        score: the metric of a tuned rule, on held-out rows unless labels decide alone.
        promised: whether the constraint is promised; None if no confidence was asked for.
        factor: 1 for two classes, where any correction is another threshold.
        offsets: (C,), or 0.
    """

    gain: Tensor
    source: str
    score: float | None = None
    promised: bool | None = None
    factor: float = 1.0
    offsets: Tensor = torch.zeros(())


class LogitRows(NamedTuple):
    """Rows to fit a rule to.

    Args:
        logits: (N, C).
        target: labels as one-hot rows (N, C).
        weight: (N,).
        argmax: the gain matrix of the network's own labels.
        groups: the group of each row, if the objective has groups.
    """

    logits: Tensor
    target: Tensor
    weight: Tensor
    argmax: Tensor
    groups: Tensor | None = None

    def matrices(self, eta: Tensor, gain: Tensor, weight: Tensor, objective: Objective) -> Tensor:
        """The confusion matrix (1, ...) of a gain matrix, for probabilities η and weights (N,)."""
        true = objective.by_group(self.target, self.groups)
        return ScoredRows(eta, true, weight).matrices(gain.unsqueeze(0))


def search(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    objective: Objective,
    own: Tensor | None = None,
) -> Tensor:
    """The best gain matrix (C, C) for the targets (N, C) of rows of weights (N,).

    `own` as in `best_rule`. Without it the targets of more than two classes are probabilities.
    """
    if logits.shape[1] == 2:
        margin = logits[:, 1] - logits[:, 0]
        return threshold_gains(best_threshold(margin, target, weight, objective))
    rows, objective = ScoredRows(logits.softmax(1), target, weight), objective.compacted()
    return gain_matrix(best_rule(rows, objective, own=own, believed=own is None), objective)


def tuned(rows: LogitRows, objective: Objective) -> Fitted:
    """The best rule with labels."""
    logits, target, weight, argmax, groups = rows
    two, y = logits.shape[1] == 2, target.argmax(1)
    own, counts = Calibrated(logits.softmax(1), 1.0, torch.zeros_like(logits[0])), y.bincount()
    only = (counts == 1)[y].unsqueeze(1)  # whether a row is the only one of its class
    # A constraint is about these labels.
    alone = bool(objective.constraints) or enough(counts)

    def learned(weight: Tensor) -> tuple[Tensor, Calibrated]:
        """The gain matrix for weights (N,), and the probabilities that it is for."""
        calibrated = own if alone and two else calibrate(logits, target, weight)
        believed, eta = target, calibrated.eta
        if not alone:
            believed = with_evidence(
                target, calibrated.believed(logits, target, weight), weight @ target
            )
            # One row does not tell how well its class can be found. Held out, it is labelled by a
            # model that never saw the class, and the search would give the class to far too many
            # rows. So it counts as found, and the class is given about where argmax gives it.
            believed, eta = (torch.where(only, target, each) for each in (believed, eta))
        believed = objective.by_group(believed, groups)
        if two:
            return search(logits, believed, weight, objective), own
        # The argmax of the network is that of calibrated probabilities times e^(−offset).
        start = argmax.diagonal() ** calibrated.factor * (-calibrated.offsets).softmax(0)
        return search(eta.log(), believed, weight, objective, start), calibrated

    gain, calibrated = learned(weight)
    if alone:
        matrix = rows.matrices(calibrated.eta, gain, weight, objective)
    else:
        matrix, fold = torch.zeros_like(gain).unsqueeze(0), folds(y)
        for held_out in ((fold == number).double() * weight for number in range(FOLDS)):
            fitted, seen = learned(weight - held_out)
            matrix += rows.matrices(seen.eta, fitted, held_out, objective)
    score = objective.scores(matrix).item()
    return Fitted(gain, "labels", score, None, calibrated.factor, calibrated.offsets)


def enough(counts: Tensor) -> bool:
    """Whether labels decide alone, for the number of rows of each class."""
    return bool(counts[counts > 0].min() >= ENOUGH)


def with_evidence(target: Tensor, eta: Tensor, mass: Tensor) -> Tensor:
    """Labels, and probabilities η that count as `EVIDENCE` rows of each class.

    The classes are the last dimension of all three; `mass` is that of each class's labels.
    """
    trust = mass / (mass + EVIDENCE)
    return trust * target + (1 - trust) * eta


class Calibrated(NamedTuple):
    """Probabilities η (N, C), calibrated with labels: softmax(factor·logits + offsets)."""

    eta: Tensor
    factor: float
    offsets: Tensor

    def believed(self, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """η with 0 for a class that neither the logits nor the targets have a row of.

        Calibration may raise the floor that stands for 0, see `without_floor`.
        """
        known = without_floor(logits.softmax(1)).any(0) | (weight @ target > 0)
        return self.eta * known


def calibrate(logits: Tensor, target: Tensor, weight: Tensor) -> Calibrated:
    """Calibrate the probabilities of logits (N, C) with the targets (N, C), for weights (N,)."""
    if logits.shape[1] == 2:
        margin = logits[:, 1] - logits[:, 0]
        a, b = calibration.factor_and_offset(margin, target[:, 1], weight)
        b = torch.stack([torch.zeros_like(b), b])
    else:
        a, b = calibration.factor_and_offsets(logits, target, weight)
    # The last digits depend on the order of the rows, and would separate classes that tie on a row.
    a, b = ((x / CALIBRATION_DIGITS).round() * CALIBRATION_DIGITS for x in (a, b))
    return Calibrated((a * logits + b).softmax(1), a.item(), b)


def folds(y: Tensor) -> Tensor:
    """The fold of each row. Every class is spread evenly, even one with fewer rows than folds.

    Examples:
        >>> folds(torch.tensor([0] * 5 + [1] * 5))[:5].sort().values
        tensor([0, 1, 2, 3, 4])
    """
    shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).to(y.device)
    order = shuffled[y[shuffled].argsort(stable=True)]
    fold = torch.empty_like(y)
    fold[order] = torch.arange(len(y), device=y.device) % FOLDS
    return fold
