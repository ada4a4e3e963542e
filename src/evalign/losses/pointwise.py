"""Losses that are means over rows: MAE, focal, logit-adjusted cross-entropy.

The sums of each loss are one `Mean`, and the loss is its value.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from evalign.core.batch import Batch, Sums
from evalign.core.checks import require
from evalign.core.rows import Task
from evalign.losses.base import AdditiveLoss
from evalign.losses.class_weights import check_length, class_vector, weighted_mean


class MAELoss(AdditiveLoss):
    """Mean absolute error ‖e_y − p‖₁ = 2 − 2 p_y (SurF eq. 14), mean over rows.

    Args:
        class_weight: a factor per class, (negative, positive) if binary, e.g.
            `inverse_frequency_weights(counts)`.

    `task`, `ignore_index` and `class_dim` are those of every loss (`Loss`).
    """

    class_weight: Tensor | None

    def __init__(
        self,
        *,
        class_weight: Sequence[float] | Tensor | None = None,
        task: Task | None = None,
        ignore_index: int = -100,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, class_dim=class_dim)
        if class_weight is not None:
            class_weight = class_vector("MAELoss", "class_weight", class_weight)
        self.register_buffer("class_weight", class_weight, persistent=False)

    def sums_from_batch(self, batch: Batch) -> Sums:
        return (weighted_mean("MAELoss", batch, self._loss, self.class_weight),)

    def _loss(self, log_p: Tensor) -> Tensor:
        return -2 * torch.expm1(log_p)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        return sums[0].value()


class FocalLoss(AdditiveLoss):
    """−(1 − p_y)^γ log p_y (Lin et al. 2017), mean over rows; γ = 0 is cross-entropy.

    Args:
        gamma: how much easy rows are discounted, at least 0.
        class_weight: a factor per class (Lin's α), (negative, positive) if binary.

    `task`, `ignore_index` and `class_dim` are those of every loss (`Loss`).
    """

    class_weight: Tensor | None

    def __init__(
        self,
        gamma: float = 2.0,
        *,
        class_weight: Sequence[float] | Tensor | None = None,
        task: Task | None = None,
        ignore_index: int = -100,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, class_dim=class_dim)
        if class_weight is not None:
            class_weight = class_vector("FocalLoss", "class_weight", class_weight)
        self.register_buffer("class_weight", class_weight, persistent=False)
        require(0 <= gamma < math.inf, "FocalLoss", "gamma", "be finite and at least 0", gamma)
        self.gamma = gamma

    def sums_from_batch(self, batch: Batch) -> Sums:
        return (weighted_mean("FocalLoss", batch, self._loss, self.class_weight),)

    def _loss(self, log_p: Tensor) -> Tensor:
        # Held above 0: for γ < 1 the slope of the power is infinite there.
        miss = (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)
        return -(miss**self.gamma) * log_p

    def loss_from_sums(self, sums: Sums) -> Tensor:
        return sums[0].value()


class LogitAdjustedLoss(AdditiveLoss):
    """Cross-entropy of logits + τ log π (Menon et al. 2021): aims at balanced accuracy.

    The trained logits have the prior taken out; add τ log π back for calibrated probabilities.

    Args:
        class_counts: the counts or fractions π of the classes, (negative, positive) if binary.
        tau: strength of the adjustment; 0 is cross-entropy.

    `task`, `ignore_index` and `class_dim` are those of every loss (`Loss`); multilabel
    is refused.
    """

    class_counts: Tensor

    def __init__(
        self,
        class_counts: Sequence[float] | Tensor,
        *,
        tau: float = 1.0,
        task: Task | None = None,
        ignore_index: int = -100,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, class_dim=class_dim)
        counts = class_vector("LogitAdjustedLoss", "class_counts", class_counts)
        require(math.isfinite(tau), "LogitAdjustedLoss", "tau", "be finite", tau)
        self.register_buffer("class_counts", counts, persistent=False)
        self.tau = tau

    @property
    def log_prior(self) -> Tensor:
        """log π of each class."""
        return (self.class_counts / self.class_counts.sum()).log()

    def sums_from_batch(self, batch: Batch) -> Sums:
        multilabel = batch.task == "multilabel"
        allowed, got = "belong to mutually exclusive classes", "a multilabel task"
        require(not multilabel, "LogitAdjustedLoss", "logits", allowed, got)
        check_length("LogitAdjustedLoss", "class_counts", self.class_counts, batch)
        shift = self.tau * self.log_prior.to(batch.logits)
        if batch.task == "binary":
            shift = shift[1] - shift[0]
        adjusted = replace(batch, given=batch.logits + shift)
        return (batch.mean(adjusted.log_probabilities(), torch.neg),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        return sums[0].value()
