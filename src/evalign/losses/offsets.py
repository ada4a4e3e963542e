"""Logit offsets: the log-odds from which predicting a class or a label gains by the metric."""

import torch
from torch import Tensor

from evalign.core.checks import complaint
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric
from evalign.membership.checks import values_readable

SKILL = 0.5  # of the pseudo-rows' classifier: the share it knows; it guesses the rest
PSEUDO_ROWS = 0.02  # their share, so that a class not seen or not predicted cannot run away
ODDS = 1000.0  # the largest odds: where one kind of mistake alone counts, they are infinite
TINY = 1e-30  # a count where none was seen, so that all classes are equal
FLAT = 1e-9  # a gain below this share of the largest one counts as none


def positive(counts: Tensor) -> Tensor:
    """Counts of classes, or pairs of labels, with those of unseen classes raised above 0."""
    most = counts.amax(-1, keepdim=True).clamp(min=TINY)
    return counts.clamp(min=most / ODDS)


def half_skilled(counts: Tensor, *, matrix: bool = False) -> Confusion:
    """The Confusion of a classifier that knows half of the rows and guesses the others by share.

    Counts are those of classes (C,), or of the absence and presence of labels (L, 2). The total
    is 1.
    """
    shares = positive(counts)
    shares = shares / shares.sum(-1, keepdim=True)
    if counts.ndim == 2:
        shares = shares[:, 1]
        return Confusion(_right(shares), shares, shares, torch.ones_like(shares), multilabel=True)
    full = None
    if matrix:
        known = torch.eye(len(shares), dtype=shares.dtype, device=shares.device)
        full = shares.unsqueeze(1) * (SKILL * known + (1 - SKILL) * shares)
    return Confusion(_right(shares), shares, shares, shares.sum(), full)


def _right(shares: Tensor) -> Tensor:
    return shares * (SKILL + (1 - SKILL) * shares)


def with_pseudo_rows(c: Confusion, counts: Tensor) -> Confusion:
    """Replace a small share of the rows by those of `half_skilled`."""
    mass = torch.where(c.total == 0, 1, c.total)
    pseudo = half_skilled(counts, matrix=c.full is not None)
    pairs = zip(c.tensors(), pseudo.tensors(), strict=True)
    tp, predicted, actual, total, *full = (x.lerp(mass * y, PSEUDO_ROWS) for x, y in pairs)
    return Confusion(tp, predicted, actual, total, *full[:1], multilabel=c.multilabel)


def metric_offsets(metric: Metric, c: Confusion, counts: Tensor) -> Tensor:
    r"""The log-odds against the most frequent class m from which predicting class j pays.

    Let G = ∂M/∂C. To first order, predicting j instead of m gains η_j (G_jj − G_jm) and costs
    η_m (G_mm − G_mj): it pays above the odds η_j / η_m = (G_mm − G_mj) / (G_jj − G_jm). These are
    1 for accuracy and π_j / π_m for balanced accuracy, whatever C is. For F1 the threshold is F/2.
    The contribution of third classes, η_i (G_ij − G_im), is left out.

    In a multilabel problem each label is a binary problem with odds of its own.

    Args:
        metric: the metric; a cost is oriented first.
        c: where it is differentiated.
        counts: of the classes, of which the most frequent is m; of labels as in `half_skilled`.

    Examples:
        >>> from evalign.metrics import resolve
        >>> shares = torch.tensor([0.8, 0.2], dtype=torch.float64)
        >>> metric_offsets(resolve("balanced_accuracy"), half_skilled(shares), shares).exp()
        tensor([1.0000, 0.2500], dtype=torch.float64)
    """
    gain, cost = _gains_and_costs(metric, c, counts)
    if not metric.greater_is_better:
        gain, cost = -gain, -cost
    gain, cost = gain.clamp(min=0), cost.clamp(min=0)
    least = FLAT * torch.maximum(gain.amax(), cost.amax()) + torch.finfo(gain.dtype).tiny
    threshold = (cost + least) / (gain + cost + 2 * least)
    return threshold.clamp(1 / (1 + ODDS), ODDS / (1 + ODDS)).logit()


def _gains_and_costs(metric: Metric, c: Confusion, counts: Tensor) -> tuple[Tensor, Tensor]:
    """G_jj − G_jm and G_mm − G_mj of every class j, with G = ∂M/∂C.

    G_ij is ∂M/∂predicted_j, plus ∂M/∂tp_j if i = j, up to a constant of the row that cancels; a
    metric that reads the matrix has slopes of its cells too. Of a label they are the gain where
    the label is true, and the cost where it is not.
    """
    slopes = metric.slopes(c.detach())
    _check_finite(metric, slopes.tp + slopes.predicted, c)
    if c.multilabel:
        return slopes.tp + slopes.predicted, -slopes.predicted
    most = counts.argmax(0, keepdim=True)
    gained = slopes.predicted - slopes.predicted.gather(0, most)
    gain = slopes.tp + gained
    cost = slopes.tp.gather(0, most) - gained
    if slopes.full is not None:
        full = slopes.full
        own = full.diagonal()
        gain = gain + own - full.index_select(1, most)[:, 0]
        cost = cost + own.gather(0, most) - full.index_select(0, most)[0]
    return gain, cost


def _check_finite(metric: Metric, slopes: Tensor, c: Confusion) -> None:
    """Refuse a metric without slopes; a batch with NaN says nothing about it."""
    if not values_readable(slopes) or not (c.tp + c.predicted).isfinite().all():
        return
    if not slopes.isfinite().all():
        allowed = "be finite, and differentiable: a function of the Confusion's tensors"
        raise ValueError(complaint("AlignedLoss", "metric", allowed, repr(metric)))
