"""The one judge of several candidates: their scores on rows held out, and what was gained.

Every candidate is scored by argmax and with a rule, on the same rows. Resampled rows say how far
other rows could move a score. They do not say how another training would come out, and the models
of several folds share training rows. So the variance is multiplied as by Nadeau and Bengio, who for
the mean of J folds replace 1/J by 1/J + (held-out rows of a fold)/(training rows).
"""

from typing import Any, NamedTuple

import numpy as np

from evalign.core.metrics import Metric
from evalign.core.resampling import MIN_FOR_INTERVAL, bootstrap, interval
from evalign.estimators.evidence import Labels, score_of
from evalign.estimators.out_of_fold import OutOfFoldScores

ENDS = ("", "_low", "_high")  # a value and its interval


class Judge(NamedTuple):
    """Scores labels of the held-out rows.

    Args:
        metric: the metric.
        rows: the out-of-fold scores of any candidate: all have the same labels, weights and folds.
        classes: how many there are.
        groups: a value per row, or None; rows with the same value are resampled together.
        seed: of the resamples.
        trained: how many rows a model was trained on.
        constrained: the rules keep to a constraint, which argmax ignores.
    """

    metric: Metric
    rows: OutOfFoldScores
    classes: int
    groups: np.ndarray | None
    seed: int
    trained: int
    constrained: bool = False

    def score(self, labels: np.ndarray) -> float:
        """The metric, negated if a cost, of the rows that have a label; NaN if none has."""
        some = labels >= 0
        if not some.any():
            return np.nan
        rows = self.rows.take(some)
        return score_of(self.metric, labels[some], rows.y, rows.weight, self.classes)

    def compare(self, *labels: np.ndarray) -> list[tuple[float, float, float]]:
        """The score of each with its 95% interval, then the first minus each other.

        Only rows that have a label from all of them count.
        """
        some = np.min(labels, 0) >= 0
        if not some.any():
            return [(np.nan, np.nan, np.nan)] * (2 * len(labels) - 1)
        rows, given = self.rows.take(some), [one[some] for one in labels]
        drawn = bootstrap(
            self.metric,
            rows.y,
            given,
            classes=self.classes,
            weight=rows.weight,
            groups=None if self.groups is None else self.groups[some],
            seed=self.seed,
        )
        drawn = drawn if self.metric.greater_is_better else -drawn
        values = [score_of(self.metric, one, rows.y, rows.weight, self.classes) for one in given]
        values = np.array(values)
        values = np.concatenate([values, values[0] - values[1:]])[:, None]
        drawn = np.concatenate([drawn, drawn[0] - drawn[1:]])
        widening = np.sqrt(1 + len(self.rows.y) / self.trained)
        least, most = sorted(x if self.metric.greater_is_better else -x for x in self.metric.bounds)
        ends = [[least, most]] * len(labels) + [[least - most, most - least]] * (len(labels) - 1)
        widened = (values + widening * (drawn - values)).clip(*np.array(ends).T[:, :, None])
        pairs = zip(values[:, 0].tolist(), widened, strict=True)
        return [(value, *interval(draws)) for value, draws in pairs]

    def table(self, candidates: dict[str, Labels], own: Labels) -> dict[str, list[float]]:
        """The columns of `AlignedEnsemble.cv_results_` with scores, the ensemble's own row last."""
        stems = ("rule_score", "argmax_score", "gain")
        table: dict[str, list[float]] = {f"{stem}{end}": [] for stem in stems for end in ENDS}
        for given in (*candidates.values(), own):
            _, rule, argmax, gain, _ = self.compare(own["rule"], given["rule"], given["argmax"])
            for stem, entry in zip(stems, (rule, argmax, gain), strict=True):
                for end, value in zip(ENDS, entry, strict=True):
                    table[f"{stem}{end}"].append(value)
        return table

    def gain(self, candidates: dict[str, Labels], own: np.ndarray) -> dict[str, Any]:
        """See `AlignedEnsemble.gain_`.

        The opponent is chosen on all rows, which favours it, so the gain is not too large. Under a
        constraint it is held to it too.
        """
        way = "rule" if self.constrained else "argmax"
        rivals = {name: given[way] for name, given in candidates.items()}
        scores = {name: self.score(labels) for name, labels in rivals.items()}
        against = max(scores, key=lambda name: np.nan_to_num(scores[name], nan=-np.inf))
        *_, gain = self.compare(own, rivals[against])
        found = {"against": against} | dict(zip(("value", "low", "high"), gain, strict=True))
        if self.groups is not None and (number := len(np.unique(self.groups))) < MIN_FOR_INTERVAL:
            found["few_groups"] = number
        return found
