"""Losses that are means over rows: MAE, focal, logit-adjusted cross-entropy."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from evalign.core.batch import Batch, Mean, Task
from evalign.core.checks import require
from evalign.losses.base import MeanLoss
from evalign.losses.class_weights import check_length, class_vector


class _WeightedLoss(MeanLoss):
    """A mean over rows that takes a weight per class."""

    class_weight: Tensor | None

    def __init__(
        self,
        *,
        class_weight: Sequence[float] | Tensor | None,
        task: Task | None,
        ignore_index: int,
        validate: bool,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, validate=validate)
        if class_weight is not None:
            class_weight = class_vector(type(self).__name__, "class_weight", class_weight)
        self.register_buffer("class_weight", class_weight, persistent=False)

    def _mean(self, batch: Batch, loss_of_class: Tensor) -> Mean:
        if self.class_weight is not None:
            check_length(type(self).__name__, "class_weight", self.class_weight, batch)
        return batch.mean(loss_of_class, self.class_weight)


class MAELoss(_WeightedLoss):
    """Mean absolute error ‖e_y − p‖₁ = 2 − 2 p_y (SurF eq. 14), mean over rows.

    Args:
        class_weight: a factor per class, (negative, positive) if binary, e.g.
            `inverse_frequency_weights(counts)`.

    `task`, `ignore_index` and `validate` are those of every loss (`Loss`).
    """

    def __init__(
        self,
        *,
        class_weight: Sequence[float] | Tensor | None = None,
        task: Task | None = None,
        ignore_index: int = -100,
        validate: bool = False,
    ) -> None:
        super().__init__(
            class_weight=class_weight, task=task, ignore_index=ignore_index, validate=validate
        )

    def mean(self, batch: Batch) -> Mean:
        return self._mean(batch, -2 * torch.expm1(batch.log_probabilities()))


class FocalLoss(_WeightedLoss):
    """−(1 − p_y)^γ log p_y (Lin et al. 2017), mean over rows; γ = 0 is cross-entropy.

    Args:
        gamma: how much easy rows are discounted, at least 0.
        class_weight: a factor per class (Lin's α), (negative, positive) if binary.

    `task`, `ignore_index` and `validate` are those of every loss (`Loss`).
    """

    def __init__(
        self,
        gamma: float = 2.0,
        *,
        class_weight: Sequence[float] | Tensor | None = None,
        task: Task | None = None,
        ignore_index: int = -100,
        validate: bool = False,
    ) -> None:
        super().__init__(
            class_weight=class_weight, task=task, ignore_index=ignore_index, validate=validate
        )
        require(0 <= gamma < math.inf, "FocalLoss", "gamma", "be finite and at least 0", gamma)
        self.gamma = gamma

    def extra_repr(self) -> str:
        return f"gamma={self.gamma}"

    def mean(self, batch: Batch) -> Mean:
        log_p = batch.log_probabilities()
        # Held above 0: for γ < 1 the slope of the power is infinite there.
        miss = (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)
        return self._mean(batch, -(miss**self.gamma) * log_p)


class LogitAdjustedLoss(MeanLoss):
    """Cross-entropy of logits + τ log π (Menon et al. 2021): aims at balanced accuracy.

    The trained logits have the prior taken out; add τ log π back for calibrated probabilities.

    Args:
        class_counts: the counts or fractions π of the classes, (negative, positive) if binary.
        tau: strength of the adjustment; 0 is cross-entropy.

    `task`, `ignore_index` and `validate` are those of every loss (`Loss`); multilabel is refused.
    """

    log_prior: Tensor

    def __init__(
        self,
        class_counts: Sequence[float] | Tensor,
        *,
        tau: float = 1.0,
        task: Task | None = None,
        ignore_index: int = -100,
        validate: bool = False,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, validate=validate)
        prior = class_vector("LogitAdjustedLoss", "class_counts", class_counts)
        require(math.isfinite(tau), "LogitAdjustedLoss", "tau", "be finite", tau)
        self.register_buffer("log_prior", (prior / prior.sum()).log(), persistent=False)
        self.tau = tau

    def extra_repr(self) -> str:
        return f"tau={self.tau}"

    def mean(self, batch: Batch) -> Mean:
        multilabel = batch.task == "multilabel"
        allowed, got = "belong to mutually exclusive classes", "a multilabel task"
        require(not multilabel, "LogitAdjustedLoss", "logits", allowed, got)
        check_length("LogitAdjustedLoss", "class_counts", self.log_prior, batch)
        shift = self.tau * self.log_prior.to(batch.logits)
        if batch.task == "binary":
            shift = shift[1] - shift[0]
        adjusted = replace(batch, given=batch.logits + shift)
        return batch.mean(-adjusted.log_probabilities())
