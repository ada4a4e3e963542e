"""Choose or weight the candidates of an ensemble, and estimate the gain by nested cross-fitting.

A fold must not be scored by a choice that was made on it. So for each fold the candidates and the
rule are chosen anew on the other folds, with rules that are fitted to these alone. The labels of
all folds together then have one score, as single folds may hold few rows of a class. Intervals are
those of resampled rows: they say how far other rows could move the scores, not how another training
run would come out.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from evalign.core.metrics import Metric
from evalign.core.numerics import with_mean_one
from evalign.core.resampling import MIN_FOR_INTERVAL, bootstrap, interval
from evalign.estimators.candidates import BLEND
from evalign.estimators.evidence import CrossFitted, RuleSettings, others, rule_without, score_of
from evalign.estimators.out_of_fold import OutOfFoldScores

DECISIONS: dict[str, Any] = {"rule": None, "argmax": "argmax"}
ENDS = ("", "_low", "_high")  # a value and its interval
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

    def labels_without(self, fold: int) -> np.ndarray:
        """The labels of all rows by the rule fitted without this fold; −1 if there is none."""
        rule = self.found.rules[fold]
        if rule is None:
            return np.full(len(self.oof.y), -1)
        return rule(probabilities=self.oof.values)


class ChosenModels(NamedTuple):
    """The choice, and the evidence for it.

    Args:
        weights: of the candidates in the mean, by name; they sum to 1.
        oof: their mean out-of-fold probabilities.
        results: see `AlignedEnsemble.cv_results_`.
        gain: see `AlignedEnsemble.gain_`.
    """

    weights: dict[str, float]
    oof: OutOfFoldScores
    results: dict[str, list[Any]]
    gain: dict[str, Any]


# Chooses on some of the rows; the last argument gives the labels of a candidate.
Pick = Callable[
    [dict[str, Trial], np.ndarray, "Judge", Callable[[str], np.ndarray]], dict[str, float]
]


class Judge(NamedTuple):
    """Scores labels of the held-out rows.

    Args:
        metric: the metric.
        rows: the out-of-fold scores of any candidate: all have the same labels, weights and folds.
        classes: how many there are.
        groups: a value per row, or None; rows with the same value are resampled together.
        seed: of the resamples.
    """

    metric: Metric
    rows: OutOfFoldScores
    classes: int
    groups: np.ndarray | None
    seed: int

    def score(self, labels: np.ndarray, some: np.ndarray | None = None) -> float:
        """The metric, negated if a cost, of the rows that have a label; NaN if none has."""
        counted = labels >= 0 if some is None else some & (labels >= 0)
        if not counted.any():
            return np.nan
        part = self.rows.take(counted)
        return score_of(self.metric, labels[counted], part.y, part.weight, self.classes)

    def compare(self, *labels: np.ndarray) -> list[tuple[float, float, float]]:
        """The score of each with its 95% interval, then the first minus each other.

        Only rows that have a label from all of them count.
        """
        counted = np.all([one >= 0 for one in labels], 0)
        if not counted.any():
            return [(np.nan, np.nan, np.nan)] * (2 * len(labels) - 1)
        part = self.rows.take(counted)
        drawn = bootstrap(
            self.metric,
            part.y,
            [one[counted] for one in labels],
            classes=self.classes,
            weight=part.weight,
            groups=None if self.groups is None else self.groups[counted],
            seed=self.seed,
        )
        drawn = drawn if self.metric.greater_is_better else -drawn
        values = np.array([self.score(one, counted) for one in labels])
        values = np.concatenate([values, values[0] - values[1:]])
        drawn = np.concatenate([drawn, drawn[0] - drawn[1:]])
        pairs = zip(values.tolist(), drawn, strict=True)
        return [(value, *interval(draws)) for value, draws in pairs]


def choose(tried: dict[str, Trial], how: str, settings: RuleSettings, judge: Judge) -> ChosenModels:
    """Choose or blend candidates that were cross-validated on the same folds.

    Args:
        tried: by their names.
        how: "blend" or "auto".
        settings: of the rules.
        judge: scores labels.
    """
    pick, rows = _blend if how == BLEND else _best, judge.rows

    def plain(name: str) -> np.ndarray:
        return tried[name].found.labels["argmax"]

    def labels(way: str) -> np.ndarray:
        """The labels of each fold, by the candidates and the rule chosen on the other folds."""
        given = np.full(len(rows.y), -1)
        for place, fold in enumerate(np.unique(rows.fold)):
            own = np.asarray(rows.fold == fold)

            def known(name: str, place: int = place) -> np.ndarray:
                return tried[name].labels_without(place) if way == "rule" else plain(name)

            weights = pick(tried, others(rows, own), judge, known)
            if len(weights) == 1:
                (name,) = weights
                given[own] = tried[name].found.labels[way][own]
                continue
            oof = mean_out_of_fold(tried, weights)
            rule = rule_without(oof, own, settings, DECISIONS[way])
            if rule is not None:
                given[own] = rule(probabilities=oof.values[own])
        return given

    chosen = {way: labels(way) for way in DECISIONS}
    everything = np.ones(len(rows.y), bool)
    weights = pick(tried, everything, judge, lambda name: tried[name].found.labels["rule"])
    table = {name: one.found.labels for name, one in tried.items()} | {how: chosen}
    results: dict[str, list[Any]] = {
        "candidate": list(table),
        "weight": [*(weights.get(name, 0.0) for name in tried), 1.0],
        "seconds": [*(one.seconds for one in tried.values()), np.nan],
    }
    stems = ["rule_score", "argmax_score", "gain"]
    for stem in stems:
        results |= {f"{stem}{end}": [] for end in ENDS}
    for given in table.values():
        _, rule, argmax, gain, _ = judge.compare(chosen["rule"], given["rule"], given["argmax"])
        for stem, entry in zip(stems, (rule, argmax, gain), strict=True):
            for end, value in zip(ENDS, entry, strict=True):
                results[f"{stem}{end}"].append(value)
    # The opponent is chosen on all rows, which favours it, so the gain is not too large.
    (against,) = _best(tried, everything, judge, plain)
    *_, gain = judge.compare(chosen["rule"], plain(against))
    found = {"against": against} | dict(zip(("value", "low", "high"), gain, strict=True))
    if judge.groups is not None and (groups := len(np.unique(judge.groups))) < MIN_FOR_INTERVAL:
        found["few_groups"] = groups
    return ChosenModels(weights, mean_out_of_fold(tried, weights), results, found)


def mean_out_of_fold(tried: dict[str, Trial], weights: dict[str, float]) -> OutOfFoldScores:
    """The weighted mean of probabilities for the same rows."""
    several = [tried[name].oof for name in weights]
    mean = np.average([one.values for one in several], 0, weights=list(weights.values()))
    return replace(several[0], values=mean)


def _blend(
    tried: dict[str, Trial], rows: np.ndarray, judge: Judge, labels: Callable[[str], np.ndarray]
) -> dict[str, float]:
    """The weights of the mean that maximise the likelihood of the labels of these rows.

    They are mixture weights, so the EM algorithm finds the one maximum. `PRIOR` rows per candidate
    keep few rows from leaving out a candidate that many would not.
    """
    part = judge.rows.take(rows)
    mass = np.ones(len(part.y)) if part.weight is None else with_mean_one(part.weight)
    true = [one.oof.values[rows][np.arange(len(part.y)), part.y] for one in tried.values()]
    likelihood = np.stack(true).clip(LEAST)
    weights = np.full(len(tried), 1 / len(tried))
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
    pairs = zip(tried, (weights / weights.sum()).tolist(), strict=True)
    return {name: weight for name, weight in pairs if weight}


def _best(
    tried: dict[str, Trial], rows: np.ndarray, judge: Judge, labels: Callable[[str], np.ndarray]
) -> dict[str, float]:
    """The candidate with the best score on some rows; the first if several are equal."""
    scores = {name: judge.score(labels(name), rows) for name in tried}
    return {max(scores, key=lambda name: np.nan_to_num(scores[name], nan=-np.inf)): 1.0}
