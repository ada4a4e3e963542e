"""Which of two classes is the positive one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.input_warnings import warn
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.estimators.rows import OWNER
from evalign.training import TrainingWarning

UNEVEN = torch.tensor([[5.0, 2.0], [1.0, 9.0]])  # every metric differs between its two classes


@dataclass(frozen=True)
class SwappedMetric(Metric):
    """A metric of two classes with the first as the positive one."""

    metric: Metric

    def __post_init__(self) -> None:
        for trait in Metric.__annotations__:  # bounds and the like
            self._settle(**{trait: getattr(self.metric, trait)})

    @property
    def name(self) -> str:
        return self.metric.name

    def __call__(self, c: Confusion) -> Tensor:
        if c.num_classes != 2:  # a label that training never saw
            return self.metric(c)
        full = None if c.full is None else c.full.flip(0, 1)
        sums = (c.tp.flip(0), c.predicted.flip(0), c.actual.flip(0))
        return self.metric(Confusion(*sums, c.total, full, rows=c.rows))


def oriented(
    metric: str | MetricFunction, pos_label: Any, classes: np.ndarray
) -> str | MetricFunction:
    """The metric, swapped if the positive class is the first of two."""
    if pos_label is None:
        return metric
    check_positive(OWNER, pos_label, classes)
    return SwappedMetric(resolve(metric, owner=OWNER)) if pos_label == classes[0] else metric


def check_positive(owner: str, pos_label: Any, classes: np.ndarray) -> None:
    """Refuse a positive class that is not one of two."""
    labels = classes.tolist()
    ok = pos_label in labels and len(labels) <= 2
    allowed = f"be None, or one of two classes; y holds {labels[:3]}"
    require(ok, owner, "pos_label", allowed, repr(pos_label))


def warn_of_positive(metric: Metric, classes: np.ndarray, codes: np.ndarray) -> None:
    """Warn if the positive class was not chosen and is the frequent one.

    F1 and the like are usually about the rare class. A class called 1 is positive everywhere.
    """
    if len(classes) != 2 or classes[1] in (1, "1") or codes.mean() <= 0.5:
        return
    one = metric(Confusion.from_matrix(UNEVEN))
    if torch.isclose(one, SwappedMetric(metric)(Confusion.from_matrix(UNEVEN))):
        return  # it treats both classes alike
    other, positive = classes.tolist()
    text = (
        f"{metric.name} takes {positive!r}, the last of the two classes, as the positive one, and "
        f"{codes.mean():.0%} of the rows have it. Give pos_label={other!r} if you mean the other "
        f"one, or pos_label={positive!r}."
    )
    warn(text, TrainingWarning)
