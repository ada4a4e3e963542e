"""Losses: Modules over soft Confusions, called as loss(logits, target, sample_weight=...).

`metric` (any metric of the confusion matrix), `aligned` (with cross-entropy) and its `offsets`,
`route` (which kernels they use), `ranking` (AUROC, average precision, WMW), `fbeta` (SurF and
soft F-beta), `overlap` (Dice, sigmoidF1, Lovász), `pointwise` (MAE, focal, logit-adjusted) and
`class_weights`. `base` is what they share; `outputs` reads those of Hugging Face. May import
`aggregation`, `kernels`, `membership` and the ground floor.
"""

from evalign.core import stairs

if stairs.has_torch():
    from evalign.losses.aligned import AlignedLoss
    from evalign.losses.class_weights import effective_number_weights, inverse_frequency_weights
    from evalign.losses.fbeta import SoftFBetaLoss, SurrogateFBetaLoss
    from evalign.losses.metric import MetricLoss
    from evalign.losses.overlap import DiceLoss, LovaszSoftmaxLoss, SigmoidF1Loss
    from evalign.losses.pointwise import FocalLoss, LogitAdjustedLoss, MAELoss
    from evalign.losses.ranking import AUROCLoss, AveragePrecisionLoss, WMWLoss

__all__ = [
    "AUROCLoss",
    "AlignedLoss",
    "AveragePrecisionLoss",
    "DiceLoss",
    "FocalLoss",
    "LogitAdjustedLoss",
    "LovaszSoftmaxLoss",
    "MAELoss",
    "MetricLoss",
    "SigmoidF1Loss",
    "SoftFBetaLoss",
    "SurrogateFBetaLoss",
    "WMWLoss",
    "effective_number_weights",
    "inverse_frequency_weights",
]


def __getattr__(name: str) -> object:
    raise stairs.no_attribute(__name__, name, __all__)
