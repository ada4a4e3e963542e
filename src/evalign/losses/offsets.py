"""Logit offsets of a metric: the log-odds at which it pays to predict a class or a label."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from evalign.core.checks import complaint, numbers, require, traced, values_readable
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric
from evalign.losses.class_weights import class_vector

SKILL = 0.5  # of the assumed classifier, at which the metric is differentiated; need not be exact
ODDS = 1e4  # the largest odds: a metric that counts one kind of mistake alone has infinite ones
PAIRS = "For Y of shape (N, L) use torch.stack([len(Y) - Y.sum(0), Y.sum(0)], 1); None learns them."


Counts = Sequence[float] | Sequence[Sequence[float]] | Tensor


def checked_counts(class_counts: Counts) -> Tensor:
    """One positive number per class, or a pair (negative, positive) per label, as float64."""
    counts = numbers(class_counts)
    if counts.ndim != 2:
        return class_vector("AlignedLoss", "class_counts", cast(Sequence[float], class_counts))
    pairs = counts.shape[1] == 2 and counts.numel() > 0
    ok = pairs and bool(((counts > 0) & counts.isfinite()).all())
    allowed = "hold a number for each class, or a pair (negative, positive) for each label, all > 0"
    require(ok, "AlignedLoss", "class_counts", allowed, class_counts, PAIRS)
    return counts


def metric_offsets(metric: Metric, class_counts: Counts) -> Tensor:
    r"""The log-odds against the most frequent class m at which predicting class j begins to pay.

    Let G = ∂M/∂C. To first order, predicting j instead of m gains η_j (G_jj − G_jm) and costs
    η_m (G_mm − G_mj), so it pays above the odds η_j / η_m = (G_mm − G_mj) / (G_jj − G_jm). They are
    1 for accuracy and π_j / π_m for balanced accuracy, whatever C is. For F1 and MCC they lie in
    between, and C is that of a classifier that is right half of the time and otherwise guesses by
    the class shares. The contribution of third classes, η_i (G_ij − G_im), is left out.

    In a multilabel problem each label is a binary problem with odds of its own.

    Examples:
        >>> from evalign.metrics import resolve
        >>> metric_offsets(resolve("balanced_accuracy"), [0.8, 0.2]).exp()
        tensor([1.0000, 0.2500], dtype=torch.float64)
        >>> metric_offsets(resolve("f1_macro"), [[0.8, 0.2], [0.5, 0.5]]).exp()  # two labels
        tensor([0.4286, 0.6000], dtype=torch.float64)
    """
    with torch.device("cpu"):  # whatever the default device is
        return offsets_of(metric, checked_counts(class_counts))


def offsets_of(metric: Metric, counts: Tensor) -> Tensor:
    """`metric_offsets` of a tensor of counts, computed on its device without reading its values."""
    shares = counts / counts.sum(-1, keepdim=True)
    if counts.ndim == 2:
        to_label, to_leave = _by_label(metric, shares[:, 1])
    else:
        to_label, to_leave = (_by_cells if metric.needs_matrix else _by_sums)(metric, shares)
    # The sign of a cost cancels.
    odds = to_leave / to_label
    odds = torch.where(odds.isnan() | (odds < 0), 1, odds)  # 0/0 for m itself; nothing to trade
    return odds.clamp(1 / ODDS, ODDS).log()


def _by_cells(metric: Metric, shares: Tensor) -> tuple[Tensor, Tensor]:
    """G_jj − G_jm and G_mm − G_mj of every class j."""
    right = torch.eye(len(shares), dtype=shares.dtype, device=shares.device)
    matrix = shares.unsqueeze(1) * (SKILL * right + (1 - SKILL) * shares)
    (gain,) = _slopes(lambda m: metric(Confusion.from_matrix(m)), metric, matrix)
    own, most = gain.diagonal(), shares.argmax(0, keepdim=True)
    to_most, of_most = gain.index_select(1, most)[:, 0], gain.index_select(0, most)[0]
    return own - to_most, own.gather(0, most) - of_most


def _by_sums(metric: Metric, shares: Tensor) -> tuple[Tensor, Tensor]:
    """The same without the matrix: G_ij is ∂M/∂predicted_j, plus ∂M/∂tp_j if i = j, up to a
    constant of the row that cancels.
    """

    def score(tp: Tensor, predicted: Tensor) -> Tensor:
        return metric(Confusion(tp, predicted, shares, shares.sum()))

    by_tp, by_predicted = _slopes(score, metric, _right(shares), shares)
    most = shares.argmax(0, keepdim=True)
    gained = by_predicted - by_predicted.gather(0, most)
    return by_tp + gained, by_tp.gather(0, most) - gained


def _by_label(metric: Metric, shares: Tensor) -> tuple[Tensor, Tensor]:
    """The gain of predicting a label where it is true, and the cost where it is false."""

    def score(tp: Tensor, predicted: Tensor) -> Tensor:
        return metric(Confusion(tp, predicted, shares, torch.ones_like(shares), multilabel=True))

    by_tp, by_predicted = _slopes(score, metric, _right(shares), shares)
    return by_tp + by_predicted, -by_predicted


def _right(shares: Tensor) -> Tensor:
    return shares * (SKILL + (1 - SKILL) * shares)


def _slopes(score: Callable[..., Tensor], metric: Metric, *at: Tensor) -> tuple[Tensor, ...]:
    if traced():  # autograd is not, and torch.func takes seconds to load
        return torch.func.grad(score, tuple(range(len(at))))(*at)
    with torch.enable_grad():
        leaves = [x.detach().clone().requires_grad_() for x in at]
        value = score(*leaves)
    if not value.requires_grad or (values_readable(value) and not value.isfinite()):
        allowed = "be finite, and differentiable: a function of the Confusion's tensors"
        got = f"{value.item():g} of {metric!r}"
        raise ValueError(complaint("AlignedLoss", "metric", allowed, got))
    return torch.autograd.grad(value, leaves, materialize_grads=True)
