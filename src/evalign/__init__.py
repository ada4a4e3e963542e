"""evalign: train classifiers on the metric you report.

`MetricLoss` turns any metric of the confusion matrix into a loss; `Confusion` is the matrix, soft
or hard; `metrics` the metrics of it; `losses` all losses; `theory` what the papers prove.
"""

from evalign import losses, metrics, theory
from evalign.core.confusion import Confusion
from evalign.losses import MetricLoss

__version__ = "0.1.0"
__all__ = ["Confusion", "MetricLoss", "losses", "metrics", "theory"]
