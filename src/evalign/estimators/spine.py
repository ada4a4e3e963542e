"""What all three estimators share: the labels and the rule of a fit, `predict`, `save` and `load`.

Inputs become out-of-fold scores, these become a rule, and an estimator gives the rule the scores of
new rows (`_scores`).
"""

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from evalign.core.checks import complaint, require
from evalign.core.metrics import resolve
from evalign.decisions import DecisionRule
from evalign.estimators.evidence import RuleSettings
from evalign.estimators.targets import Targets, row_weights
from evalign.store import archive
from evalign.store.files import StoreError
from evalign.tables.features import Features, FrameEncoder

archive.register(DecisionRule)
archive.register(Features)


def register_models() -> None:
    """Make the models that an estimator may hold known to the store, whose import takes long."""
    from evalign.store.models import register_estimator

    register_estimator(FrameEncoder)
    for name in ("decision_cv", "ensemble"):  # one may hold another
        import_module(f"evalign.estimators.{name}")


class Aligned(ClassifierMixin, BaseEstimator):
    """A classifier with a decision rule, whose classes are `classes_`, in their order."""

    metric: Any
    decision: Any
    constraint: str | None
    confidence: float | None
    rule_: DecisionRule
    _targets: Targets
    _kept: ClassVar[tuple[str, ...]] = ()  # further attributes of a fit, which are saved

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        archive.register(cls, saved, opener(cls))

    def _scores(self, X: Any) -> dict[str, Any]:
        """The argument of the rule for some rows, with columns in the order of `classes_`."""
        raise NotImplementedError

    @property
    def classes_(self) -> np.ndarray:
        check_is_fitted(self)
        return self._targets.classes

    def predict(self, X: Any) -> np.ndarray:
        """Labels, by the fitted rule; if multilabel, 0 and 1 (n, n_labels)."""
        check_is_fitted(self)
        return self._targets.decode(self.rule_.codes(**self._scores(X)))

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores behind `predict`.

        For two classes (n,), positive where the second is predicted; for more (n, n_classes), with
        the prediction as argmax; if multilabel (n, n_labels), positive where a label is predicted.
        """
        check_is_fitted(self)
        return self._targets.decision(np.asarray(self.rule_.scores(**self._scores(X))))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions, negated if it is a cost: greater is better."""
        labels, owner = self.predict(X), type(self).__name__
        weight = row_weights(owner, sample_weight, len(labels))
        return self._targets.score(owner, resolve(self.metric, owner=owner), labels, y, weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file without pickle (JSON and arrays), whole or not at all.

        Functions and splitters are not written: pass a `metric` or a `network` that is not a name
        to `load` again. A model of another library is refused, as are those of scikit-learn that
        cannot be checked when they are opened.
        """
        check_is_fitted(self)
        register_models()
        archive.save(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **arguments: Any) -> Self:
        """Open what `save` wrote; `arguments` of the constructor replace the saved ones.

        The file need not be trusted: what does not fit together is refused.

        Examples:
            With your own network and device: `load("model", network=my_network, device="cpu")`.
        """
        register_models()
        return archive.load(path, cls.__name__, **arguments)

    def _settings(self, targets: Targets) -> RuleSettings:
        constraint, confidence = self.constraint, self.confidence
        order = targets.class_order
        return RuleSettings(
            self.metric,
            self.decision,
            constraint,
            targets.names,
            confidence,
            order.order,
            order.pos_label,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "rule_")

    def _state(self) -> dict[str, Any]:
        """What is kept of a fit; `_restore` is its inverse, for an untrusted state."""
        kept = {name: getattr(self, name) for name in self._kept if hasattr(self, name)}
        return kept | self._targets._asdict() | {"rule": self.rule_}

    def _restore(self, state: dict[str, Any]) -> None:
        targets = Targets(*(state[name] for name in Targets._fields))
        classes = targets.classes
        many = targets.multilabel
        columns = targets.columns
        rule, number = state["rule"], len(classes)
        ok = type(rule) is DecisionRule and (rule.task == "multilabel") is many
        require(ok, "state", "rule", "be a rule for the labels", type(rule).__name__)
        ok = classes.ndim == 1 and number == len(rule.gain) and number > 1
        ok = ok and np.array_equal(np.unique(classes), classes)
        ok = ok and (columns is None or len(columns) == number)
        ok = ok and (targets.pos_label is None or targets.pos_label in classes.tolist())
        order = targets.order
        ok = ok and (order is None or (type(order) is list and len(order) == number))
        ok = ok and (order is None or all(label in classes.tolist() for label in order))
        require(ok, "state", "classes", f"be sorted and {len(rule.gain)}", classes[:3].tolist())
        self._targets = targets
        self.rule_ = rule if isinstance(self.metric, str) else replace(rule, metric=self.metric)
        vars(self).update({name: state[name] for name in self._kept if name in state})

    def _set_columns(self, features: Features) -> None:
        """Set the attributes of scikit-learn about the columns."""
        self.n_features_in_ = len(features.given)
        vars(self).pop("feature_names_in_", None)
        if features.named:
            self.feature_names_in_ = np.array(features.given, dtype=object)


def saved(estimator: Aligned) -> dict[str, Any]:
    """The constructor's arguments without functions and splitters, and what is kept of a fit.

    `load` asks for functions again, except for `on_epoch`.
    """
    arguments = estimator.get_params(deep=False)
    arguments.pop("on_epoch", None)
    if not isinstance(arguments.get("cv"), Integral | str | None):
        del arguments["cv"]
    functions = [name for name, value in arguments.items() if callable(value)]
    plain = {name: value for name, value in arguments.items() if name not in functions}
    fitted = estimator._state() if hasattr(estimator, "rule_") else None  # a candidate is not
    return {"arguments": plain, "functions": functions, "fitted": fitted}


def opener(kind: type[Aligned]) -> Callable[..., Any]:
    """The inverse of `saved` for a class, for an untrusted state; given arguments come first."""

    def opened(state: dict[str, Any], **given: Any) -> Any:
        for name in state["functions"]:
            if name not in given:
                allowed, cure = "be given: functions are not saved", f"load(path, {name}=...)"
                raise StoreError(complaint(f"{kind.__name__}.load", name, allowed, "none", cure))
        estimator = kind(**dict(state["arguments"]) | given)
        if state["fitted"] is not None:
            estimator._restore(state["fitted"])
        return estimator

    return opened
