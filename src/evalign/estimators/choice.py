"""Choose or weight the candidates of an ensemble, and estimate the gain by nested cross-fitting.

A fold must not be scored by a choice that was made on it. So for each fold the candidates and the
rule are chosen anew on the other folds, with rules that are fitted to these alone. The labels of
all folds together then have one score, as single folds may hold few rows of a class.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from evalign.core.numerics import with_mean_one
from evalign.decisions import DecisionRule
from evalign.estimators.candidates import BLEND
from evalign.estimators.evidence import WAYS, CrossFitted, RuleSettings
from evalign.estimators.judge import Judge, Labels
from evalign.estimators.out_of_fold import OutOfFoldScores

# The weights of a blend: prior rows of each candidate, the least probability that counts, steps at
# most, and the weight below which a candidate is not worth its time.
PRIOR, LEAST, STEPS, SMALL = 2.0, 1e-6, 500, 0.03


class Trial(NamedTuple):
    """A candidate that was cross-validated.

    Args:
        oof: its out-of-fold probabilities.
        found: its labels for each fold, by a rule fitted to the others and by argmax.
        seconds: of its training.
    """

    oof: OutOfFoldScores
    found: CrossFitted
    seconds: float

    def labels_without(self, fold: int, way: str) -> np.ndarray:
        """The labels of all rows by the rule fitted without this fold; −1 if there is none."""
        rule, argmax = self.found.rules[fold], self.found.labels["argmax"]
        if way == "argmax":
            return argmax
        return np.full_like(argmax, -1) if rule is None else rule(probabilities=self.oof.values)


class ChosenModels(NamedTuple):
    """What was chosen.

    Args:
        weights: of the candidates in the mean, by name; they sum to 1.
        rule: from mean probabilities to labels.
        labels: of each fold, by the candidates and the rule chosen on the other folds.
    """

    weights: dict[str, float]
    rule: DecisionRule
    labels: Labels


def choose(tried: dict[str, Trial], how: str, settings: RuleSettings, judge: Judge) -> ChosenModels:
    """Choose or blend candidates that were cross-validated on the same folds."""
    rows, everything = judge.rows, np.ones(len(judge.rows.y), bool)

    def weights(some: np.ndarray, labels: Callable[[Trial], np.ndarray]) -> dict[str, float]:
        if how == BLEND:
            return likeliest({name: one.oof.take(some) for name, one in tried.items()})
        return {judge.best({name: labels(one) for name, one in tried.items()}, some): 1.0}

    labels: Labels = {}
    for way, decision in WAYS.items():
        labels[way] = np.full_like(rows.y, -1)
        for place, fold in enumerate(np.unique(rows.fold)):
            own = np.asarray(rows.fold == fold)
            chosen = weights(~own, partial(Trial.labels_without, fold=place, way=way))
            if len(chosen) == 1:
                labels[way][own] = tried[next(iter(chosen))].found.labels[way][own]
                continue
            oof = mean_out_of_fold(tried, chosen)
            rule = settings.rule_without(oof, fold, decision)
            if rule is not None:
                labels[way][own] = rule(probabilities=oof.values[own])
    final = weights(everything, lambda one: one.found.labels["rule"])
    return ChosenModels(final, settings.rule(mean_out_of_fold(tried, final)), labels)


def mean_out_of_fold(tried: dict[str, Trial], weights: dict[str, float]) -> OutOfFoldScores:
    """The weighted mean of probabilities for the same rows."""
    several = [tried[name].oof for name in weights]
    mean = np.average([one.values for one in several], 0, weights=list(weights.values()))
    return replace(several[0], values=mean)


def likeliest(several: dict[str, OutOfFoldScores]) -> dict[str, float]:
    """The weights of the mean that maximise the likelihood of the labels of these rows.

    They are mixture weights, so the EM algorithm finds the one maximum. `PRIOR` rows per candidate
    keep few rows from leaving out a candidate that many would not.
    """
    first = next(iter(several.values()))
    y = first.y
    mass = np.ones(len(y)) if first.weight is None else with_mean_one(first.weight)
    true = [one.values[np.arange(len(y)), y] for one in several.values()]
    likelihood = np.stack(true).clip(LEAST)
    weights = np.full(len(several), 1 / len(several))
    for _ in range(STEPS):
        share = weights[:, None] * likelihood
        new = (share / share.sum(0)) @ mass + PRIOR
        new /= new.sum()
        done = np.abs(new - weights).max() < 1e-6
        weights = new
        if done:
            break
    # With many candidates, all weights are small.
    weights = np.where(weights < min(SMALL, weights.max() / 2), 0, weights)
    pairs = zip(several, (weights / weights.sum()).tolist(), strict=True)
    return {name: weight for name, weight in pairs if weight}
