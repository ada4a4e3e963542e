"""Blend the candidates of an ensemble, and estimate the gain by nested cross-fitting.

Probabilities are calibrated before they are mixed. A forest is too unsure: its mean with a model
that is too sure follows the latter, however well the forest ranks.

A fold must not be scored by a choice that was made on it. So for each fold the weights and the rule
are found anew on the other folds. The labels of all folds together then have one score, as single
folds may hold few rows of a class.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from evalign.core.arrays import with_mean_one
from evalign.decisions import DecisionRule, fit_decision
from evalign.estimators.evidence import Labels, RuleSettings, cross_fit
from evalign.estimators.out_of_fold import OutOfFoldScores

# The weights of a blend: prior rows of each candidate, the least probability that counts, steps at
# most, and the weight below which a candidate is not worth its time.
PRIOR, LEAST, STEPS, SMALL = 2.0, 1e-6, 500, 0.03


class Trial(NamedTuple):
    """A candidate that was cross-validated.

    Args:
        models: those of the folds.
        oof: their out-of-fold probabilities.
        labels: of each fold, by a rule fitted to the others and by argmax.
        rule: that of all of these rows.
        seconds: of its training.
    """

    models: list[Any]
    oof: OutOfFoldScores
    labels: Labels
    rule: DecisionRule
    seconds: float


def blend(
    tried: dict[str, Trial], settings: RuleSettings
) -> tuple[dict[str, float], dict[str, DecisionRule], DecisionRule, Labels]:
    """Blend candidates that were cross-validated on the same folds.

    Their weights in the mean, which sum to 1; for each of them a rule whose probabilities are
    mixed; the rule of the mean; and the labels of each fold by all that was found on the others.
    """
    calibrations = {name: calibration(one.oof) for name, one in tried.items()}
    several = {
        name: replace(one.oof, values=calibrated(calibrations[name], one.oof.values))
        for name, one in tried.items()
    }

    def without(own: np.ndarray) -> OutOfFoldScores:
        others = {name: one.take(~own) for name, one in several.items()}
        return weighted_mean(several, likeliest(others))

    labels = cross_fit(next(iter(several.values())), settings, without)
    weights = likeliest(several)
    rule = settings.rule(weighted_mean(several, weights))
    return weights, {name: calibrations[name] for name in weights}, rule, labels


def calibration(oof: OutOfFoldScores) -> DecisionRule:
    """A rule whose probabilities are calibrated to the labels of these rows."""
    return fit_decision(
        _logits(oof.values),
        oof.y,
        metric="accuracy",
        decision="expected",
        sample_weight=oof.weight,
    )


def calibrated(rule: DecisionRule, values: np.ndarray) -> np.ndarray:
    """The probabilities of the rule for probabilities of a candidate."""
    return rule.probabilities(_logits(values))


def _logits(values: np.ndarray) -> np.ndarray:
    return np.log(values.clip(LEAST))


def weighted_mean(
    several: dict[str, OutOfFoldScores], weights: dict[str, float]
) -> OutOfFoldScores:
    """The weighted mean of probabilities for the same rows."""
    values = [several[name].values for name in weights]
    mean = np.average(values, 0, weights=list(weights.values()))
    return replace(next(iter(several.values())), values=mean)


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
