"""F-beta losses that need no step: SurF's surrogate and the soft F-beta."""

from typing import Unpack

import torch
from torch import Tensor

from evalign.core.checks import require
from evalign.core.metrics import FBeta
from evalign.core.metrics.averages import Average
from evalign.core.metrics.per_class import BETAS, known_beta
from evalign.losses.base import AdditiveLoss, MeanLoss, RowSettings, zero_if_empty
from evalign.membership.batch import Batch, Mean, Sums
from evalign.membership.soft_confusion import summed


class SurrogateFBetaLoss(MeanLoss):
    r"""SurF's surrogate of F-beta for binary problems (eq. 20; with q its robust form, eq. 25).

    With f = σ(z) and c = β² p / (1 − p): −log f for positives and log(c + f) for negatives; q
    replaces the logarithms by (x^q − 1) / q. At critical points its gradient satisfies the
    condition of F-beta (SurF eq. 12 and 22). It is not a distance: for c < 1 it can be negative.

    Args:
        positive_rate: p, the share of positives in the training data, in (0, 1).
        beta: how many times recall matters more than precision.
        q: robustness to label noise, in [0, 1]; 0 is eq. 20, 1 is linear in f like the MAE.
        class_balanced: weigh rows by n / n_y, that is 1/p and 1/(1 − p), as the theory assumes.
    """

    def __init__(
        self,
        positive_rate: float,
        *,
        beta: float = 1.0,
        q: float = 0.0,
        class_balanced: bool = True,
        **rows: Unpack[RowSettings],
    ) -> None:
        super().__init__(**rows)
        name, p = "SurrogateFBetaLoss", positive_rate
        cure = "It is the share of positives in the training data."
        require(0 < p < 1, name, "positive_rate", "lie between 0 and 1", p, cure)
        require(known_beta(beta), name, "beta", BETAS, beta)
        require(0 <= q <= 1, name, "q", "lie in [0, 1]", q)
        self.positive_rate = positive_rate
        self.beta = beta
        self.q = q
        self.class_balanced = class_balanced

    def mean(self, batch: Batch) -> Mean:
        batch = batch.as_binary("SurrogateFBetaLoss")
        p = self.positive_rate
        log_f = torch.nn.functional.logsigmoid(batch.logits)
        positive = -self._power(log_f)
        negative = self._power((self.beta**2 * p / (1 - p) + log_f.exp()).log())
        if self.class_balanced:
            positive, negative = positive / p, negative / (1 - p)
        loss_of_class = torch.stack([negative, positive], -1)
        return batch.mean(loss_of_class, lambda loss: loss)

    def _power(self, log_x: Tensor) -> Tensor:
        """(x^q − 1) / q from log x, which is its limit for q → 0."""
        return torch.expm1(self.q * log_x) / self.q if self.q else log_x


class SoftFBetaLoss(AdditiveLoss):
    """1 − F-beta of the confusion whose membership is the probability itself (SurF eq. 23–24).

    Args:
        beta: how many times recall matters more than precision.
        average: "binary", "macro", "micro" or "weighted".
    """

    def __init__(
        self, beta: float = 1.0, *, average: Average = "binary", **rows: Unpack[RowSettings]
    ) -> None:
        super().__init__(**rows)
        require(average is not None, "SoftFBetaLoss", "average", "not be None", average)
        self.beta = beta
        self.average = average
        self.metric = FBeta(beta=beta, average=average)

    def sums_from_batch(self, batch: Batch) -> Sums:
        return (summed(batch, batch.probabilities()),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        (confusion,) = sums
        return zero_if_empty(1 - self.metric(confusion), confusion.total.sum())
