"""`FittedEnsemble`: the result of a fit, which is saved and loaded."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from evalign.core.checks import require
from evalign.core.metrics import MetricFunction
from evalign.decisions import DecisionRule
from evalign.estimators.training import TableForms, TrainedModels
from evalign.estimators.targets import Targets
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
        """What is saved."""
        parts = ("features", "weights", "rule", "rules", "results", "gain", "left_out")
        state = {name: getattr(self, name) for name in parts}
        trained = {name: list(one[1:]) for name, one in self.trained.items()}
        classes, order, _ = self.targets
        return state | {"classes": classes, "order": order, "trained": trained}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any], metric: str | MetricFunction) -> Self:
        """The inverse of `state_dict`, for an untrusted state."""
        classes, order, features = state["classes"], state["order"], state["features"]
        number = len(classes)
        rules = {"": state["rule"], **state["rules"]}
        ok = type(features) is Features and all(type(r) is DecisionRule for r in rules.values())
        require(ok, "state", "rules", "be rules, and features learnt columns", "others")
        ok = number > 1 and classes.ndim == 1 and np.array_equal(np.unique(classes), classes)
        ok = ok and np.array_equal(np.sort(order), np.arange(number))
        ok = ok and all(len(rule.gain) == number for rule in rules.values())
        require(ok, "state", "classes", "be sorted, and those of the rules", classes[:3].tolist())
        trained, weights = {}, state["weights"]
        for name, (own, frame, models) in state["trained"].items():
            known = classes if own else np.arange(number)
            ok = bool(models) and all(np.isin(model.classes_, known).all() for model in models)
            require(ok, "state", "trained", "be models of these classes", name)
            trained[name] = TrainedModels(name, own, frame, models)
        ok = bool(weights) and {*weights} <= {*trained} == {*state["rules"]}
        ok = ok and all(0 < weight <= 1 for weight in weights.values())
        require(ok, "state", "weights", f"be those of some of {list(trained)}", weights)
        if not isinstance(metric, str):
            rules = {name: replace(rule, metric=metric) for name, rule in rules.items()}
        return cls(
            targets=Targets(classes, order, False),
            features=features,
            trained=trained,
            weights=weights,
            rule=rules.pop(""),
            rules=rules,
            results=dict(state["results"]),
            gain=dict(state["gain"]),
            left_out=dict(state["left_out"]),
        )
