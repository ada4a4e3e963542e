"""The gain matrix found with labels, guarded against too few of them.

A search over labels alone is exact on the rows it sees and overfits when they are few: one lucky
row moves the threshold. Three other rules are steadier, and the best of all is chosen on rows that
the rules have not seen (cross-fitting):

- "argmax", which learns nothing;
- "expected", which learns from the probabilities alone;
- "calibrated", the expected rule of probabilities corrected with the labels by a few numbers;
- "labels", the search itself, compared only if every class has `FEW` rows, and taken without
  comparison if every class has `ENOUGH`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from evalign.decisions import calibrate
from evalign.decisions.cuts import best_thresholds, threshold_gains
from evalign.decisions.gains import (
    best_rules,
    class_weights,
    confusions,
    gain_matrices,
    normalised,
)
from evalign.decisions.goal import ROUNDING, Goal

FEW, ENOUGH = 50, 1000
FOLDS = 5


def search(
    owner: str,
    logits: Tensor,
    target: Tensor,
    weights: Tensor,
    goal: Goal,
    own: Tensor | None = None,
) -> Tensor:
    """The best gain matrix (B, C, C) for the targets (N, C), for each row of weights (B, N).

    `own` as in `best_rules`.
    """
    if logits.shape[1] == 2:
        margin = logits[:, 1] - logits[:, 0]
        return threshold_gains(best_thresholds(owner, margin, target, weights, goal))
    goal = goal.compacted()
    rules = best_rules(owner, logits.softmax(1), target, weights, goal, own=own)
    return gain_matrices(rules, goal)


def tuned(
    owner: str, logits: Tensor, y: Tensor, weight: Tensor, goal: Goal, argmax: Tensor
) -> tuple[Tensor, str, float]:
    """The gain matrix, the name of the rule that it comes from, and its score.

    `argmax` is the gain matrix of the labels that the network itself would give.
    """
    classes, eta = logits.shape[1], logits.softmax(1)
    identity = torch.eye(classes, dtype=logits.dtype, device=logits.device)
    target, rows, counts = identity[y], weight.unsqueeze(0), y.bincount()
    smallest, compact = counts[counts > 0].min(), goal.compacted()

    def labels(weights: Tensor, offsets: Tensor) -> Tensor:
        if classes == 2:
            return search(owner, logits, target, weights, goal)
        # The search labels rows by η and would trust a wrong prior, so η is corrected first. The
        # argmax of the network is then one of corrected probabilities, each weighed by e^(−b).
        own = argmax.diagonal() * (offsets.amin(1, keepdim=True) - offsets).exp()
        found = [
            search(owner, logits + b, target, w.unsqueeze(0), goal, o.unsqueeze(0))
            for b, w, o in zip(offsets, weights, own, strict=True)
        ]
        return _times(offsets, torch.cat(found))

    def corrections(weights: Tensor) -> Tensor:
        if classes == 2:  # thresholds need none
            return weights.new_zeros(len(weights), 2)
        return calibrate.class_offsets(logits, target, weights)

    # A constraint is about these rows, and only the search is sure to meet it.
    if smallest >= ENOUGH or goal.slack is not None:
        gain = labels(rows, corrections(rows))
        return gain[0], "labels", goal.scores(confusions(eta, target, rows, gain)).item()

    numbers = torch.arange(FOLDS, device=y.device).unsqueeze(1)
    held_out = (folds(y) == numbers).double() * rows
    learned_from = torch.cat([rows - held_out, rows])  # the last one makes the final rule
    offsets = corrections(learned_from)
    starts = None
    if classes == 2:
        expected = search(owner, logits, eta, rows, goal)
    else:
        rules = best_rules(owner, eta, eta, rows, compact)
        expected = gain_matrices(rules, compact)
        starts = torch.stack([class_weights(torch.ones_like(offsets[:1]), compact), rules])

    def calibrated(weights: Tensor, offsets: Tensor) -> Tensor:
        if classes == 2:
            return _platt(owner, logits[:, 1] - logits[:, 0], target[:, 1], weights, rows, goal)
        corrected = [(logits + b).softmax(1) for b in offsets]
        found = [best_rules(owner, each, each, rows, compact, starts) for each in corrected]
        return _times(offsets, gain_matrices(torch.cat(found), compact))

    learners: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"calibrated": calibrated}
    if smallest >= FEW:
        learners["labels"] = labels
    known = {"argmax": argmax.unsqueeze(0), "expected": expected}
    matrices = [confusions(eta, target, rows, gain)[0] for gain in known.values()]
    for learner in learners.values():
        gains = learner(learned_from[:-1], offsets[:-1])
        parts = [
            confusions(eta[fold], target[fold], rows[:, fold], gain.unsqueeze(0))
            for fold, gain in zip(held_out > 0, gains, strict=True)
        ]
        matrices.append(torch.cat(parts).sum(0))
    scores = goal.scores(torch.stack(matrices))
    # Of rules with equal scores the first is taken, which learns less.
    chosen = [*known, *learners][int((scores >= scores.max() - ROUNDING).nonzero()[0])]
    gain = known[chosen] if chosen in known else learners[chosen](rows, offsets[-1:])
    return gain[0], chosen, scores.max().item()


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


def _times(offsets: Tensor, gains: Tensor) -> Tensor:
    """Turn gains for corrected probabilities, which are ∝ η_y·exp(b_y), into gains for η itself."""
    factors = (offsets - offsets.amax(1, keepdim=True)).exp()
    return normalised(factors.unsqueeze(-1) * gains)


def _platt(
    owner: str, margin: Tensor, positive: Tensor, weights: Tensor, rows: Tensor, goal: Goal
) -> Tensor:
    """The expected threshold after Platt's correction, for each row of weights (B, N)."""
    thresholds = []
    for a, b in zip(*calibrate.factor_and_offset(margin, positive, weights), strict=True):
        corrected = a * margin + b
        eta = torch.stack([-corrected, corrected], 1).sigmoid()
        thresholds.append((best_thresholds(owner, corrected, eta, rows, goal) - b) / a)
    return threshold_gains(torch.cat(thresholds))
