"""The gain matrix found with labels, guarded against too few of them.

A search over labels alone is exact on the rows it sees and overfits when they are few: one lucky
row moves the threshold. So it is given further evidence, what probabilities say that were corrected
with the labels by a few numbers (`mend`), as much as `EVIDENCE` rows of each class would be. With
few labels this is nearly the rule "expected", with many nearly the search over labels alone; with
`ENOUGH` rows of every class labels decide alone. Of a class with one row nothing tells how well it
can be found, so that this row is taken for found, and the class is given about where argmax gives
it. A choice among several rules by rows that they have not seen would be another way, but where
labels are few it is as noisy as the search.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from evalign.decisions import calibrate
from evalign.decisions.cuts import best_threshold, threshold_gains
from evalign.decisions.gains import best_rule, confusions, gain_matrix
from evalign.decisions.goal import Goal
from evalign.decisions.inputs import without_floor

EVIDENCE, ENOUGH = 100, 1000
FOLDS = 5
DIGITS = 2.0**-20  # of a correction; no number of rows tells log-odds as exactly


def search(
    owner: str,
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    goal: Goal,
    own: Tensor | None = None,
) -> Tensor:
    """The best gain matrix (C, C) for the targets (N, C) of rows of weights (N,).

    `own` as in `best_rule`. Without it the targets of more than two classes are probabilities.
    """
    if logits.shape[1] == 2:
        margin = logits[:, 1] - logits[:, 0]
        return threshold_gains(best_threshold(owner, margin, target, weight, goal))
    eta, goal, believed = logits.softmax(1), goal.compacted(), own is None
    rule = best_rule(owner, eta, target, weight, goal, own=own, believed=believed)
    return gain_matrix(rule, goal)


class Tuned(NamedTuple):
    """A rule found with labels.

    Args:
        gain: the gain matrix, for probabilities softmax(factor·logits + offsets).
        factor: 1 for two classes, of which any correction is another threshold.
        offsets: (C,).
        score: the metric, on rows that the rule has not seen unless labels decide alone.
    """

    gain: Tensor
    factor: float
    offsets: Tensor
    score: float


def tuned(
    owner: str,
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    goal: Goal,
    argmax: Tensor,
    groups: Tensor | None = None,
) -> Tuned:
    """The best rule with labels, which `target` (N, C) holds as rows of 0 and a 1.

    `argmax` is the gain matrix of the network's own labels, `groups` the group of each row, if the
    goal has groups.
    """
    two, y = logits.shape[1] == 2, target.argmax(1)
    own, counts = Mended(logits.softmax(1), 1.0, torch.zeros_like(logits[0])), y.bincount()
    only = (counts == 1)[y].unsqueeze(1)  # whether a row is the only one of its class
    # A constraint is about these labels.
    alone = goal.slack is not None or bool(counts[counts > 0].min() >= ENOUGH)

    def learned(weight: Tensor) -> tuple[Tensor, Mended]:
        """The gain matrix for weights (N,), and the probabilities that it is for."""
        mended = own if alone and two else mend(logits, target, weight)
        believed, eta = target, mended.eta
        if not alone:
            mass = weight @ target
            trust = mass / (mass + EVIDENCE)
            believed = trust * target + (1 - trust) * mended.believed(logits, target, weight)
            # Held out, the only row of a class is labelled by a model that never saw the class. The
            # search would take it for one that cannot be found, and give it to far too many rows.
            believed, eta = (torch.where(only, target, each) for each in (believed, eta))
        believed = goal.by_group(believed, groups)
        if two:
            return search(owner, logits, believed, weight, goal), own
        # The argmax of the network is one of corrected probabilities, weighed by e^(−offset).
        start = argmax.diagonal() ** mended.factor * (-mended.offsets).softmax(0)
        found = search(owner, eta.log(), believed, weight, goal, start)
        return found, mended

    gain, mended = learned(weight)
    if alone:
        true = goal.by_group(target, groups)
        matrix = confusions(mended.eta, true, weight, gain.unsqueeze(0))
    else:
        matrix, fold = torch.zeros_like(gain).unsqueeze(0), folds(y)
        for out in ((fold == number).double() * weight for number in range(FOLDS)):
            fitted, seen = learned(weight - out)
            matrix += confusions(seen.eta, target, out, fitted.unsqueeze(0))
    return Tuned(gain, mended.factor, mended.offsets, goal.scores(matrix).item())


class Mended(NamedTuple):
    """Probabilities η (N, C), corrected with labels: softmax(factor·logits + offsets)."""

    eta: Tensor
    factor: float
    offsets: Tensor

    def believed(self, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """η with 0 for a class that neither the logits nor the targets have a row of.

        A correction may raise the floor that stands for 0, see `without_floor`.
        """
        known = without_floor(logits.softmax(1)).any(0) | (weight @ target > 0)
        return self.eta * known


def mend(logits: Tensor, target: Tensor, weight: Tensor) -> Mended:
    """Correct the probabilities of logits (N, C) with the targets (N, C), for weights (N,)."""
    if logits.shape[1] == 2:
        margin = logits[:, 1] - logits[:, 0]
        a, b = calibrate.factor_and_offset(margin, target[:, 1], weight)
        b = torch.stack([torch.zeros_like(b), b])
    else:
        a, b = calibrate.factor_and_offsets(logits, target, weight)
    # The last digits depend on the order of the rows, and would part classes that tie on a row.
    a, b = ((x / DIGITS).round() * DIGITS for x in (a, b))
    return Mended((a * logits + b).softmax(1), a.item(), b)


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
