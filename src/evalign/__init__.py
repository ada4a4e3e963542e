"""evalign: train classifiers on the metric you report.

- `AlignedLoss`: the loss to train with, cross-entropy and the metric together.
- `MetricLoss`: any metric of the confusion matrix as a loss.
- `Confusion`: the confusion matrix, soft or hard.
- `AlignedClassifier`: the scikit-learn estimator.
- `AlignedEnsemble`: the best of several models for a table, or their mean.
- `AlignedDecisionCV`: the labels that a metric asks for, around any scikit-learn classifier.
- `TemperatureAnnealing`: cools a loss.
- `fit_decision`: finds the rule from scores to labels.
- `DecisionFitter`: finds it from a stream of batches.
- `load`: whatever was fitted and saved.
- `score`: the metric of predicted labels.
- `checked`: a context in which losses check all values, wherever they are.
- `exact_backward`: the gradient of a whole batch in the memory of a part.
- `metrics`, `losses`, `theory`: all metrics, all losses, and what the papers prove.

Each name is loaded when it is first used: a script that needs only a loss does not wait for
scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalign import aggregation as aggregation
    from evalign import core as core
    from evalign import decisions as decisions
    from evalign import estimators as estimators
    from evalign import integrations as integrations
    from evalign import losses, metrics, theory
    from evalign import report as report
    from evalign import tables as tables
    from evalign import training as training
    from evalign.aggregation import exact_backward
    from evalign.core.checks import checked
    from evalign.core.confusion import Confusion
    from evalign.decisions import DecisionFitter, DecisionRule, fit_decision
    from evalign.estimators import AlignedClassifier, AlignedDecisionCV, AlignedEnsemble
    from evalign.losses import AlignedLoss, MetricLoss
    from evalign.opening import load
    from evalign.scoring import score
    from evalign.training import TemperatureAnnealing

__version__ = "0.1.0"
__all__ = [
    "AlignedClassifier",
    "AlignedDecisionCV",
    "AlignedEnsemble",
    "AlignedLoss",
    "Confusion",
    "DecisionFitter",
    "DecisionRule",
    "MetricLoss",
    "TemperatureAnnealing",
    "checked",
    "exact_backward",
    "fit_decision",
    "load",
    "losses",
    "metrics",
    "score",
    "theory",
]

# The module that each public name comes from, and the public modules.
_HOME = {
    "AlignedClassifier": "evalign.estimators",
    "AlignedDecisionCV": "evalign.estimators",
    "AlignedEnsemble": "evalign.estimators",
    "AlignedLoss": "evalign.losses",
    "Confusion": "evalign.core.confusion",
    "DecisionFitter": "evalign.decisions",
    "DecisionRule": "evalign.decisions",
    "MetricLoss": "evalign.losses",
    "TemperatureAnnealing": "evalign.training",
    "checked": "evalign.core.checks",
    "exact_backward": "evalign.aggregation",
    "fit_decision": "evalign.decisions",
    "load": "evalign.opening",
    "score": "evalign.scoring",
}
_MODULES = [
    "aggregation",
    "core",
    "decisions",
    "estimators",
    "integrations",
    "losses",
    "metrics",
    "report",
    "tables",
    "theory",
    "training",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"evalign.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'evalign' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_HOME, *_MODULES, "__version__"])
