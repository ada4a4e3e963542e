"""From logits to soft-set memberships: how much each row belongs to each class.

A row of `logits` is one example; the last dimension holds the classes. `heaviside` is "linear"
(EAST eq. 4 at the temperature), "sigmoid" (BtG's, with k = 2 / T, so that cooling sharpens it and
T = 0.2 is k = 10), or any function (p, threshold) -> H, for which the temperature has no meaning.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from evalign.core.checks import require
from evalign.membership.batch import Batch
from evalign.membership.checks import check_temperature
from evalign.membership.heaviside import tempered
from evalign.membership.numerics import beside, upcast

Step = Callable[[Tensor, Tensor], Tensor]
Heaviside = Literal["linear", "sigmoid"] | Step


def binary(
    logits: Tensor,
    *,
    threshold: float | Tensor = 0.5,
    temperature: float | Tensor = 0.2,
    heaviside: Heaviside = "linear",
) -> Tensor:
    """Membership in the positive class, H(σ(z), τ) (BtG eq. 6), or in each label of (R, L)."""
    p = upcast(logits).sigmoid()
    return step(heaviside, temperature)(p, beside(threshold, p))


def multiclass(
    logits: Tensor, *, temperature: float | Tensor = 0.2, heaviside: Heaviside = "linear"
) -> Tensor:
    """EAST eq. 3–5 for logits (R, C): H at the dynamic threshold, normalised to sum to 1.

    τ is the mean of the two largest probabilities, so H exceeds ½ for the argmax alone. It is a
    function of the logits, and its gradient flows.
    """
    p = upcast(logits).softmax(-1)
    tau = p.topk(2, dim=-1).values.mean(-1, keepdim=True)
    h = step(heaviside, temperature)(p, tau)
    return h / h.sum(-1, keepdim=True)  # at least ½: the largest p is never below τ


def of_batch(
    owner: str,
    batch: Batch,
    *,
    temperature: float | Tensor = 0.2,
    heaviside: Heaviside = "linear",
    threshold: float | Tensor | None = None,
) -> Tensor:
    """The membership for the batch's task, in the shape of its logits."""
    if batch.task == "multiclass":
        allowed = "be None for a multiclass task, whose threshold is dynamic"
        cure = 'For one class against the other pass task="binary".'
        require(threshold is None, owner, "threshold", allowed, threshold, cure)
        return multiclass(batch.logits, temperature=temperature, heaviside=heaviside)
    threshold = 0.5 if threshold is None else threshold
    shape = threshold.shape if isinstance(threshold, Tensor) else ()
    sizes = [()] if batch.task == "binary" else [(), batch.logits.shape[1:]]
    allowed = "be one number" + (", or one per label" if batch.task == "multilabel" else "")
    require(shape in sizes, owner, "threshold", allowed, f"shape {tuple(shape)}")
    return binary(batch.logits, threshold=threshold, temperature=temperature, heaviside=heaviside)


def hard(batch: Batch) -> Tensor:
    """0 or 1: the argmax of classes, the sign of a logit or label; in the shape of the logits."""
    if batch.task != "multiclass":
        return (batch.logits > 0).to(batch.logits.dtype)
    largest = batch.logits.detach().argmax(-1, keepdim=True)
    return torch.zeros_like(batch.logits).scatter(-1, largest, 1)


def check_step(owner: str, heaviside: Heaviside, temperature: float | Tensor) -> None:
    known = callable(heaviside) or heaviside in ("linear", "sigmoid")
    allowed = 'be "linear", "sigmoid" or a function (p, threshold) -> H'
    require(known, owner, "heaviside", allowed, repr(heaviside))
    check_temperature(owner, temperature)


def step(heaviside: Heaviside, temperature: float | Tensor) -> Step:
    """The function (p, threshold) -> H that a `heaviside` argument names."""
    if callable(heaviside):
        return heaviside
    if heaviside == "linear":
        return partial(tempered, temperature=temperature)
    check_step("membership", heaviside, temperature)

    def logistic(p: Tensor, tau: Tensor) -> Tensor:
        # A sigmoid sharper than the rounding of p is a step already, and k must not overflow.
        t = beside(temperature, p).clamp(min=torch.finfo(p.dtype).eps)
        return torch.sigmoid(2 / t * (p - tau))

    return logistic
