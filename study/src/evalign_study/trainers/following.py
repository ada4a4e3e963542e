"""`AlignedLoss`, whose offsets follow the classifier, under names that say its settings.

"following" has the library's defaults. "following_w0" has a `metric_weight` of 0, "following_m0.02"
a `momentum` of 0.02, and "following_unweighted" no `class_weight`; in this order they combine. A
name may end in the metric that is trained for: "following_w1_m0.3_f1".
"""

import re
from typing import Any

from torch import Tensor, nn

from evalign.aggregation import RunningConfusion
from evalign.losses import AlignedLoss
from evalign_study.refusals import require

FOLLOWING = "following"
_NAME = re.compile(rf"{FOLLOWING}(?:_w([\d.]+))?(?:_m([\d.]+))?(_unweighted)?(?:_([a-z].*))?")


def settings_of(method: str) -> tuple[dict[str, Any], str]:
    """The arguments of `AlignedLoss` that a name stands for, and the end of the name.

    Examples:
        >>> settings_of("following_w0.3_m0.02_unweighted")
        ({'metric_weight': 0.3, 'momentum': 0.02, 'class_weight': None}, '')
        >>> settings_of("following_mcc")
        ({}, 'mcc')
    """
    found = _NAME.fullmatch(method)
    allowed = f"be like {FOLLOWING}, {FOLLOWING}_w1, {FOLLOWING}_w0.3_m0.02 or {FOLLOWING}_w1_f1"
    require(found is not None, "following", "method", allowed, repr(method))
    assert found is not None
    weight, momentum, unweighted, end = found.groups()
    given = {"metric_weight": weight, "momentum": momentum}
    settings: dict[str, Any] = {name: float(x) for name, x in given.items() if x is not None}
    return settings | ({"class_weight": None} if unweighted else {}), end or ""


def offsets_now(loss: nn.Module) -> Tensor | None:
    """The offsets of a loss, if they change; None if not."""
    return loss.offsets if isinstance(loss, AlignedLoss) else None


def forget(loss: nn.Module) -> None:
    """Forget all batches in place, where CUDA graphs and stacks of losses look for the state."""
    for part in loss.modules():
        if isinstance(part, RunningConfusion):
            for buffer in part.buffers():
                buffer.zero_()
        elif isinstance(part, AlignedLoss) and part.counts is not None:
            part.counts.zero_()
            part.offsets.zero_()
