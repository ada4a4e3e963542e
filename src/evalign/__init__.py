"""evalign: train classifiers on the metric you report.

The ground floor needs no PyTorch:

- `AlignedDecisionCV`: the labels that a metric asks for, around any scikit-learn classifier.
- `AlignedEnsemble`: the best of several models for a table, or their mean.
- `fit_decision`: finds the rule from scores to labels.
- `DecisionFitter`: finds it from a stream of batches.
- `DecisionRule`: the rule.
- `Confusion`: the confusion matrix, soft or hard.
- `score`: the metric of predicted labels.
- `load`: whatever was fitted and saved.
- `checked`: a context in which losses check all values, wherever they are.
- `metrics`, `theory`: all metrics, and what the papers prove.

The upper floor trains networks, and needs PyTorch (`pip install 'evalign[torch]'`):

- `AlignedLoss`: the loss to train with, cross-entropy and the metric together.
- `MetricLoss`: any metric of the confusion matrix as a loss.
- `TemperatureAnnealing`: cools a loss.
- `exact_backward`: the gradient of a whole batch in the memory of a part.
- `AlignedClassifier`: the scikit-learn estimator that trains a network for a table.
- `losses`: all losses.

Each name is loaded when it is first used: a script that needs only a rule does not wait for
scikit-learn.
"""

from importlib import import_module
from importlib.util import find_spec
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
    from evalign.estimators import AlignedDecisionCV, AlignedEnsemble
    from evalign.losses import AlignedLoss, MetricLoss
    from evalign.opening import load
    from evalign.scoring import score
    from evalign.training import TemperatureAnnealing
    from evalign.training.classifier import AlignedClassifier

__version__ = "0.1.0"
__all__ = [
    "AlignedDecisionCV",
    "AlignedEnsemble",
    "Confusion",
    "DecisionFitter",
    "DecisionRule",
    "checked",
    "fit_decision",
    "load",
    "losses",
    "metrics",
    "score",
    "theory",
]
if find_spec("torch") is not None:
    __all__ += [
        "AlignedClassifier",
        "AlignedLoss",
        "MetricLoss",
        "TemperatureAnnealing",
        "exact_backward",
    ]

# The module that each public name comes from, by floor, and the public modules.
_GROUND = {
    "AlignedDecisionCV": "evalign.estimators",
    "AlignedEnsemble": "evalign.estimators",
    "Confusion": "evalign.core.confusion",
    "DecisionFitter": "evalign.decisions",
    "DecisionRule": "evalign.decisions",
    "checked": "evalign.core.checks",
    "fit_decision": "evalign.decisions",
    "load": "evalign.opening",
    "score": "evalign.scoring",
}
_UPPER = {
    "AlignedClassifier": "evalign.training.classifier",
    "AlignedLoss": "evalign.losses",
    "MetricLoss": "evalign.losses",
    "TemperatureAnnealing": "evalign.training",
    "exact_backward": "evalign.aggregation",
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
    home = _GROUND.get(name) or _UPPER.get(name)
    if home is None or (name in _UPPER and find_spec("torch") is None):
        from evalign.core.stairs import no_attribute

        raise no_attribute(__name__, name, _UPPER)
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*_GROUND, *_UPPER, *_MODULES, "__version__"])
