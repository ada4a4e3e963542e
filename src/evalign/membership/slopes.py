"""Slopes of a metric that has no closed form, such as a user's function, by autograd."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from evalign.core.confusion import Confusion
from evalign.core.metrics.slopes import Slopes
from evalign.membership.checks import traced


def by_autograd(metric: Callable[[Confusion], Tensor], c: Confusion) -> Slopes:
    """The derivatives of the metric at a Confusion, with respect to its sums or its matrix."""
    zeros = torch.zeros_like(c.tp)
    if c.full is not None:
        (of_cells,) = _gradient(lambda full: metric(Confusion.from_matrix(full)), c.full)
        return Slopes(zeros, zeros, zeros, of_cells)

    def score(tp: Tensor, predicted: Tensor, actual: Tensor) -> Tensor:
        total = c.total if c.multilabel else actual.sum(-1)
        return metric(replace(c, tp=tp, predicted=predicted, actual=actual, total=total))

    return Slopes(*_gradient(score, c.tp, c.predicted, c.actual))


def _gradient(score: Callable[..., Tensor], *sums: Tensor) -> tuple[Tensor, ...]:
    sums = tuple(x.detach() for x in sums)
    if traced():  # autograd is not, and torch.func takes seconds to load
        return torch.func.grad(lambda *x: score(*x).sum(), tuple(range(len(sums))))(*sums)
    with torch.inference_mode(mode=False), torch.enable_grad():
        leaves = [x.clone().requires_grad_() for x in sums]
        value = score(*leaves).sum()
        if not value.requires_grad:
            return tuple(x * torch.nan for x in sums)  # nobody knows them
        return torch.autograd.grad(value, leaves, materialize_grads=True)
