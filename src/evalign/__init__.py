"""evalign: train classifiers on the metric you report.

`MetricLoss` turns any metric of the confusion matrix into a loss; `AlignedLoss` is what to train
with, the metric held up by cross-entropy; `Confusion` is the matrix, soft or hard; `metrics` the
metrics of it; `losses` all losses; `theory` what the papers prove; `AlignedClassifier` is the
scikit-learn estimator; `TemperatureAnnealing` cools a loss; `fit_decision` finds the rule from
scores to labels; `score` is the metric of labels; `exact_backward` gives the gradient of a whole
batch in the memory of a part.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from evalign import losses, metrics, theory
from evalign.aggregation import exact_backward
from evalign.core.confusion import Confusion
from evalign.decisions import DecisionRule, fit_decision
from evalign.losses import AlignedLoss, MetricLoss
from evalign.scoring import score

if TYPE_CHECKING:
    from evalign.estimator import AlignedClassifier
    from evalign.training import TemperatureAnnealing

__version__ = "0.1.0"
__all__ = [
    "AlignedClassifier",
    "AlignedLoss",
    "Confusion",
    "DecisionRule",
    "MetricLoss",
    "TemperatureAnnealing",
    "exact_backward",
    "fit_decision",
    "losses",
    "metrics",
    "score",
    "theory",
]

# Loaded at first use: they bring scikit-learn, which whoever wants a loss need not wait for.
_LATER = {
    "AlignedClassifier": "evalign.estimator",
    "TemperatureAnnealing": "evalign.training",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'evalign' has no attribute {name!r}")
