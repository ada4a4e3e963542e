"""The best rule for calibrated probabilities, and the slacks of its constraints."""

from torch import Tensor

from evalign.decisions import multilabel
from evalign.decisions.confusions import ScoredRows
from evalign.decisions.inputs import without_floor
from evalign.decisions.objective import Objective
from evalign.decisions.threshold import threshold_gains
from evalign.decisions.tuned import Fitted, LogitRows, calibrate, search


def best_expected(
    logits: Tensor, weight: Tensor, objective: Objective, groups: Tensor | None = None
) -> Tensor:
    """The best gains, (C, C) or (L, 2, 2), if the probabilities of these logits are calibrated."""
    if objective.multilabel:
        believed = without_floor(logits.sigmoid())
        return threshold_gains(multilabel.thresholds(logits, believed, weight, objective))
    believed = objective.by_group(without_floor(logits.softmax(1)), groups)
    return search(logits, believed, weight, objective)


def best_calibrated(rows: LogitRows, objective: Objective) -> Fitted:
    """The best rule of exclusive classes for probabilities calibrated with labels."""
    logits, target, weight, _, groups = rows
    eta, factor, offsets = calibrated = calibrate(logits, target, weight)
    believed = objective.by_group(calibrated.believed(logits, target, weight), groups)
    gain = search(eta.log(), believed, weight, objective)
    return Fitted(gain, "expected", factor=factor, offsets=offsets)


def confusion_of(
    objective: Objective, logits: Tensor, eta: Tensor, true: Tensor, weight: Tensor, gain: Tensor
) -> Tensor:
    """The confusion of a gain for logits with probabilities η and targets `true`."""
    if objective.multilabel:
        at = (gain[:, 0, 0] / gain[:, 1, 1]).log()
        return multilabel.sums(logits, true, weight, at)
    return ScoredRows(eta, true, weight).matrices(gain.unsqueeze(0))[0]


def slacks_of(objective: Objective, *rows_and_gain: Tensor) -> dict[str, float] | None:
    """The distance to each bound, for the arguments of `confusion_of`; None without constraints."""
    return (
        objective.slacks(confusion_of(objective, *rows_and_gain)) if objective.constraints else None
    )
