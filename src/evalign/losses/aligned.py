"""A metric of the confusion matrix together with cross-entropy: the default recipe."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from evalign.aggregation import Ranks
from evalign.core.batch import Batch, Sums
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.core.rows import GivenRows, Task
from evalign.losses.base import AdditiveLoss
from evalign.losses.class_weights import check_length, class_vector
from evalign.losses.metric import MetricLoss
from evalign.losses.pointwise import LogitAdjustedLoss

SKILL = 0.5  # of the classifier at which the metric's odds are taken; it need not be exact
ODDS = 1e4  # at most; a metric that counts only one of two mistakes would have infinite odds


class AlignedLoss(AdditiveLoss):
    r"""Cross-entropy(logits + offsets) + 1 − metric, its slope taken at running statistics.

    A cost is its own loss, in the place of 1 − metric.

    The cross-entropy gives every row a gradient and keeps probabilities, softmax(logits + offsets).
    The offsets make the largest of the *logits* roughly the label that is best for the metric
    (`metric_offsets`). The metric's part then works on the rows near that decision.

    Args:
        metric: as in `MetricLoss`; for classes that exclude each other.
        class_counts: the counts or shares of the classes in the training rows, (negative, positive)
            if binary.
        ranks: whose rows are summed in both parts, see `MetricLoss`.

    `task`, `ignore_index`, `validate` and `class_dim` are those of every loss (`Loss`).

    Attributes:
        offsets: one per class, to add to logits before the softmax. Adding one number to all of
            them makes no difference.

    Examples:
        >>> loss = AlignedLoss("f1", [90, 10])
        >>> logits = torch.tensor([2.0, -1.0, 0.5], requires_grad=True)
        >>> loss(logits, torch.tensor([1, 0, 0])).backward()
        >>> loss.offsets.diff()  # F1 labels positive from a probability of 0.275 on
        tensor([-0.9694], dtype=torch.float64)
    """

    class_counts: Tensor

    def __init__(
        self,
        metric: str | MetricFunction,
        class_counts: Sequence[float] | Tensor,
        *,
        task: Task | None = None,
        ranks: Ranks = "all",
        ignore_index: int = -100,
        validate: bool = False,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(
            task=task, ignore_index=ignore_index, validate=validate, class_dim=class_dim
        )
        _exclusive(task)
        self.metric_loss = MetricLoss(
            resolve(metric, owner="AlignedLoss"), statistics="running", ranks=ranks
        )
        counts = class_vector("AlignedLoss", "class_counts", class_counts)
        self.register_buffer("class_counts", counts, persistent=False)
        odds = metric_offsets(self.metric_loss.metric, counts).exp()
        self.cross_entropy = LogitAdjustedLoss(odds)

    @property
    def offsets(self) -> Tensor:
        return self.cross_entropy.log_prior

    def whole(self, rows: GivenRows) -> Tensor | None:
        _exclusive(rows.task)
        odds = self.cross_entropy.class_counts
        classes = 2 if rows.task == "binary" else rows.logits.shape[1]
        if type(self) is not AlignedLoss or len(odds) != classes:  # a subclass may differ
            return None
        return self.metric_loss.whole(rows, odds)

    def sums_from_batch(self, batch: Batch) -> Sums:
        _exclusive(batch.task)
        check_length("AlignedLoss", "class_counts", self.class_counts, batch)
        # Logits are widened once for both: a sum of half-precision gradients is rounded again.
        batch = replace(batch, given=batch.logits)
        return *self.cross_entropy.sums_from_batch(batch), *self.metric_loss.sums_from_batch(batch)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        mean, *confusion = self.metric_loss.of_all_ranks(sums)  # one sum over the ranks for both
        return mean.value() + self.metric_loss.loss_of_all(tuple(confusion))


def _exclusive(task: Task | None) -> None:
    allowed = 'be "binary" or "multiclass"'
    cure = "For several labels a row use MetricLoss beside a binary cross-entropy."
    require(task != "multilabel", "AlignedLoss", "task", allowed, repr(task), cure)


def metric_offsets(metric: Metric, class_counts: Sequence[float] | Tensor) -> Tensor:
    r"""The log-odds of each class against the most frequent one, m, from which on it is the label.

    With G = ∂M/∂C, to first order, calling a row j instead of m gains η_j (G_jj − G_jm) and costs
    η_m (G_mm − G_mj): it pays from the odds η_j / η_m = (G_mm − G_mj) / (G_jj − G_jm) on. These are
    1 for accuracy and π_j / π_m for balanced accuracy, whatever C is; for F1 and MCC they lie
    between, and C is that of a classifier which is right half of the time and otherwise guesses.
    With more than two classes this leaves out what third classes would add, η_i (G_ij − G_im).

    Examples:
        >>> from evalign.metrics import resolve
        >>> metric_offsets(resolve("balanced_accuracy"), [0.8, 0.2]).exp()
        tensor([1.0000, 0.2500], dtype=torch.float64)
    """
    shares = class_vector("AlignedLoss", "class_counts", class_counts)
    shares = shares / shares.sum()
    with torch.enable_grad(), torch.device("cpu"):  # whatever the default device is
        slopes = _by_cells if metric.needs_matrix else _by_sums
        most = int(shares.argmax())
        to_label, to_leave = slopes(metric, shares, most)
    # The sign of a cost cancels.
    odds = to_leave / to_label
    odds = torch.where(odds.isnan() | (odds < 0), 1, odds)  # 0/0 for m itself; nothing to trade
    return odds.clamp(1 / ODDS, ODDS).log()


def _by_cells(metric: Metric, shares: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """G_jj − G_jm and G_mm − G_mj of every class j."""
    right = torch.eye(len(shares), dtype=shares.dtype)
    matrix = shares.unsqueeze(1) * (SKILL * right + (1 - SKILL) * shares)
    (gain,) = _slopes(metric, Confusion.from_matrix(matrix.requires_grad_()), matrix)
    own = gain.diagonal()
    return own - gain[:, most], own[most] - gain[most]


def _by_sums(metric: Metric, shares: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The same without the matrix: G_ij is the slope by predicted_j, if i = j that by tp_j, and
    what the cells of a row have in common.
    """
    tp = (shares * (SKILL + (1 - SKILL) * shares)).requires_grad_()
    predicted = shares.clone().requires_grad_()
    c = Confusion(tp, predicted, shares, shares.sum())
    by_tp, by_predicted = _slopes(metric, c, tp, predicted)
    gained = by_predicted - by_predicted[most]
    return by_tp + gained, by_tp[most] - gained


def _slopes(metric: Metric, c: Confusion, *by: Tensor) -> tuple[Tensor, ...]:
    score = metric(c)
    allowed = "be finite, and differentiable: a function of the Confusion's tensors"
    ok = score.requires_grad and bool(score.isfinite())
    require(ok, "AlignedLoss", "metric", allowed, f"{score.item():g} of {metric!r}")
    return torch.autograd.grad(score, by, materialize_grads=True)
