"""`FittedEnsemble`: the result of a fit, which is saved and loaded."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from evalign.core.checks import require
from evalign.core.metrics import MetricFunction
from evalign.decisions import DecisionRule
from evalign.ensemble.training import TableForms, TrainedModels
from evalign.estimator.targets import Targets
from evalign.tables.features import Features


@dataclass(frozen=True, eq=False)
class FittedEnsemble:
    """The candidates' models, their weights, and their rules.

    Args:
        targets: the labels, and the order of the rule's classes.
        features: what was learned about the columns.
        trained: the models, by the name of the candidate.
        weights: of the candidates in the mean, by name.
        rule: from mean probabilities to labels.
        rules: the rule of each candidate alone.
        results: see `AlignedEnsemble.cv_results_`.
        gain: see `AlignedEnsemble.gain_`.
        left_out: why a candidate was left out, by its name.
    """

    targets: Targets
    features: Features
    trained: dict[str, TrainedModels]
    weights: dict[str, float]
    rule: DecisionRule
    rules: dict[str, DecisionRule]
    results: dict[str, list[Any]]
    gain: dict[str, Any]
    left_out: dict[str, str]

    def mean(self, rows: TableForms) -> np.ndarray:
        """The weighted mean of probabilities, with columns in the order of the rule."""
        classes = self.targets.classes[self.targets.order]
        each = [self.trained[name].mean(rows, classes) for name in self.weights]
        return np.average(each, 0, weights=list(self.weights.values()))

    def state_dict(self) -> dict[str, Any]:
        """Everything but the models, as plain values."""
        classes, order, _ = self.targets
        return {
            "features": self.features.state_dict(),
            "classes": classes.tolist(),
            "classes_dtype": classes.dtype.str,
            "order": order.tolist(),
            "weights": self.weights,
            "rule": self.rule.state_dict(),
            "rules": {name: rule.state_dict() for name, rule in self.rules.items()},
            "results": _plain(self.results),
            "gain": _plain(self.gain),
            "left_out": self.left_out,
        }

    @classmethod
    def from_state_dict(
        cls, state: dict[str, Any], trained: dict[str, TrainedModels], metric: str | MetricFunction
    ) -> Self:
        """The inverse of `state_dict`, given the models."""
        given = None if isinstance(metric, str) else metric
        classes = np.array(state["classes"], dtype=state["classes_dtype"])
        order, number = np.array(state["order"], dtype=np.int64), len(classes)
        found = {
            name: DecisionRule.from_state_dict(rule, metric=given)
            for name, rule in state["rules"].items()
        }
        rule = DecisionRule.from_state_dict(state["rule"], metric=given)
        weights = {str(name): float(weight) for name, weight in state["weights"].items()}
        sound = number > 1 and np.array_equal(np.unique(classes), classes)
        sound = sound and np.array_equal(np.sort(order), np.arange(number))
        sound = sound and all(len(one.gain) == number for one in (rule, *found.values()))
        got = classes[:3].tolist()
        require(sound, "state", "classes", "be sorted, and those of the rules", got)
        known = bool(weights) and {*weights} <= {*trained} == {*found}
        known = known and all(0 < weight <= 1 for weight in weights.values())
        require(known, "state", "weights", f"be those of some of {list(trained)}", weights)
        results, gain = (_numbers(state[key]) for key in ("results", "gain"))
        targets, left_out = Targets(classes, order, False), dict(state["left_out"])
        features = Features.from_state_dict(state["features"])
        return cls(targets, features, trained, weights, rule, found, results, gain, left_out)


def _plain(value: Any) -> Any:
    """Results as JSON can hold them: None for NaN."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(value: Any) -> Any:
    """The inverse of `_plain`."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return math.nan if value is None else value
