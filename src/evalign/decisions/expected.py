"""The best rule for calibrated probabilities, and the confusion of any rule."""

import torch
from torch import Tensor

from evalign.decisions import multilabel
from evalign.decisions.confusions import ScoredRows
from evalign.decisions.inputs import without_floor
from evalign.decisions.objective import Objective
from evalign.decisions.threshold import threshold_gains
from evalign.decisions.tuned import Calibrated, Fitted, calibrate, search


def best_expected(
    logits: Tensor,
    weight: Tensor,
    objective: Objective,
    groups: Tensor | None = None,
    target: Tensor | None = None,
) -> Fitted:
    """The best rule if the probabilities of these logits are calibrated.

    Those of exclusive classes are calibrated first, if there are targets (N, C).
    """
    if objective.multilabel:
        believed = without_floor(logits.sigmoid())
        at = multilabel.thresholds(logits, believed, weight, objective)
        return Fitted(threshold_gains(at), "expected")
    eta = logits.softmax(1)
    seen, own = Calibrated(eta, 1.0, torch.zeros(())), without_floor(eta)
    if target is not None:
        seen = calibrate(logits, target, weight)
        own = seen.believed(logits, target, weight)
    believed = objective.by_group(own, groups)
    gain = search(seen.factor * logits + seen.offsets, believed, weight, objective)
    return Fitted(gain, "expected", factor=seen.factor, offsets=seen.offsets)


def confusion_of(
    objective: Objective, logits: Tensor, eta: Tensor, true: Tensor, weight: Tensor, gain: Tensor
) -> Tensor:
    """The confusion of a gain for logits with probabilities η and targets `true`."""
    if objective.multilabel:
        at = (gain[:, 0, 0] / gain[:, 1, 1]).log()
        return multilabel.sums(logits, true, weight, at)
    return ScoredRows(eta, true, weight).matrices(gain.unsqueeze(0))[0]
