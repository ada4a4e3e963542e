"""Losses that are means over rows: MAE, focal, logit-adjusted cross-entropy."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor

from evalign.core.checks import require
from evalign.losses.base import MeanLoss, RowSettings
from evalign.losses.class_weights import check_length, class_vector
from evalign.membership.batch import Batch, Mean


class ClassWeightedLoss(MeanLoss):
    """Mean over rows of a function of log p_y, times the weight of the true class y."""

    class_weight: Tensor | None

    def __init__(
        self, *, class_weight: Sequence[float] | Tensor | None = None, **rows: Unpack[RowSettings]
    ) -> None:
        super().__init__(**rows)
        if class_weight is not None:
            class_weight = class_vector(type(self).__name__, "class_weight", class_weight)
        self.register_buffer("class_weight", class_weight, persistent=False)

    @abstractmethod
    def of_true_class(self, log_p: Tensor) -> Tensor:
        """The loss of a row as a function of log p_y."""

    def mean(self, batch: Batch) -> Mean:
        if self.class_weight is not None:
            check_length(type(self).__name__, "class_weight", self.class_weight, batch.num_classes)
        return batch.mean(batch.log_probabilities(), self.of_true_class, self.class_weight)


class MAELoss(ClassWeightedLoss):
    """Mean absolute error ‖e_y − p‖₁ = 2 − 2 p_y (SurF eq. 14), mean over rows.

    Args:
        class_weight: a factor per class, (negative, positive) if binary, e.g.
            `inverse_frequency_weights(counts)`.
    """

    def of_true_class(self, log_p: Tensor) -> Tensor:
        return -2 * torch.expm1(log_p)


class FocalLoss(ClassWeightedLoss):
    """−(1 − p_y)^γ log p_y (Lin et al. 2017), mean over rows; γ = 0 is cross-entropy.

    Args:
        gamma: how much easy rows are discounted, at least 0.
        class_weight: a factor per class (Lin's α), (negative, positive) if binary.
    """

    def __init__(
        self,
        gamma: float = 2.0,
        *,
        class_weight: Sequence[float] | Tensor | None = None,
        **rows: Unpack[RowSettings],
    ) -> None:
        super().__init__(class_weight=class_weight, **rows)
        require(0 <= gamma < math.inf, "FocalLoss", "gamma", "be finite and at least 0", gamma)
        self.gamma = gamma

    def of_true_class(self, log_p: Tensor) -> Tensor:
        # Kept above 0, where the slope of the power is infinite for γ < 1.
        miss = (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)
        return -(miss**self.gamma) * log_p


class LogitAdjustedLoss(MeanLoss):
    """Cross-entropy of logits + τ log π (Menon et al. 2021): aims at balanced accuracy.

    The trained logits have the prior taken out; add τ log π back for calibrated probabilities.

    Args:
        class_counts: the counts or fractions π of the classes, (negative, positive) if binary.
        tau: strength of the adjustment; 0 is cross-entropy.
        rows: `task`, `ignore_index` and `class_dim`, as in `Loss`; multilabel is refused.
    """

    class_counts: Tensor

    def __init__(
        self,
        class_counts: Sequence[float] | Tensor,
        *,
        tau: float = 1.0,
        **rows: Unpack[RowSettings],
    ) -> None:
        super().__init__(**rows)
        counts = class_vector("LogitAdjustedLoss", "class_counts", class_counts)
        require(math.isfinite(tau), "LogitAdjustedLoss", "tau", "be finite", tau)
        self.register_buffer("class_counts", counts, persistent=False)
        self.tau = tau

    def mean(self, batch: Batch) -> Mean:
        allowed, exclusive = "belong to mutually exclusive classes", batch.task != "multilabel"
        require(exclusive, "LogitAdjustedLoss", "logits", allowed, "a multilabel task")
        check_length("LogitAdjustedLoss", "class_counts", self.class_counts, batch.num_classes)
        prior = self.class_counts / self.class_counts.sum()
        shift = self.tau * prior.log().to(batch.logits)
        if batch.task == "binary":
            shift = shift[1] - shift[0]
        adjusted = replace(batch, given=batch.logits + shift)
        return batch.mean(adjusted.log_probabilities(), torch.neg)
