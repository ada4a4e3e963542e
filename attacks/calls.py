"""Hostile calls of every loss: shapes, dtypes, values, weights, class indices."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attacks.judge import Case, one_sentence
from evalign import losses

MULTICLASS: dict[str, Callable[[], Any]] = {
    "f1_macro": lambda: losses.MetricLoss("f1_macro"),
    "mcc": lambda: losses.MetricLoss("matthews_corrcoef"),
    "precision_macro": lambda: losses.MetricLoss("precision_macro", temperature=1e-6),
    "running": lambda: losses.MetricLoss("jaccard_macro", momentum=0.1),
    "aligned": lambda: losses.AlignedLoss("f1_macro"),
    "soft_fbeta": lambda: losses.SoftFBetaLoss(average="macro"),
    "focal": lambda: losses.FocalLoss(),
    "logit_adjusted": lambda: losses.LogitAdjustedLoss([5, 3, 1, 1]),
    "mae": lambda: losses.MAELoss(),
    "dice": lambda: losses.DiceLoss(),
    "lovasz": lambda: losses.LovaszSoftmaxLoss(),
    "auroc": lambda: losses.AUROCLoss(),
    "average_precision": lambda: losses.AveragePrecisionLoss(),
    "sigmoid_f1": lambda: losses.SigmoidF1Loss(),
}
BINARY: dict[str, Callable[[], Any]] = {
    "f1": lambda: losses.MetricLoss("f1"),
    "aligned_f1": lambda: losses.AlignedLoss("f1"),
    "auroc_binary": lambda: losses.AUROCLoss(),
    "wmw": lambda: losses.WMWLoss(),
    "surrogate": lambda: losses.SurrogateFBetaLoss(positive_rate=0.3),
    "focal_binary": lambda: losses.FocalLoss(),
}
DTYPES = [getattr(torch, name) for name in (
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool",
    "complex64")]  # fmt: skip
CLASSES, ROWS = 4, 12


def judged(make: Callable[[], Any], logits: Tensor, target: Tensor, **more: Any) -> Any:
    """The loss and its gradient, or the sentence it is refused with."""
    leaf = logits.clone()
    if leaf.is_floating_point():
        leaf.requires_grad_()
    try:
        value = make()(leaf, target, **more)
        if value.requires_grad:
            value.backward()
    except (ValueError, TypeError) as error:
        return one_sentence(error) or "refused"
    if value.shape != ():
        return f"not a scalar: {tuple(value.shape)}"
    return value.detach().double().item(), leaf.grad


def fine(found: Any, *, finite: bool) -> str | None:
    if isinstance(found, str):
        return None if found == "refused" else found
    value, gradient = found
    if finite and not math.isfinite(value):
        return f"the loss is {value}"
    if finite and gradient is not None and not gradient.isfinite().all():
        return "the gradient is not finite"
    return None


def rows(rng: np.random.Generator, binary: bool) -> tuple[Tensor, Tensor]:
    shape = (ROWS,) if binary else (ROWS, CLASSES)
    logits = torch.from_numpy(rng.normal(size=shape) * 10 ** rng.uniform(-2, 2))
    target = torch.from_numpy(rng.integers(2 if binary else CLASSES, size=ROWS))
    return logits.float(), target


def shapes(rng: Any) -> Iterator[Case]:
    for number in range(300):
        binary = bool(rng.integers(2))
        name = rng.choice(list(BINARY if binary else MULTICLASS))
        make = (BINARY if binary else MULTICLASS)[name]
        sizes = [tuple(rng.integers(0, 5, size=rng.integers(0, 5)).tolist()) for _ in range(3)]
        logits, target = torch.randn(sizes[0]), torch.zeros(sizes[1], dtype=torch.int64)
        more = {"sample_weight": torch.ones(sizes[2])} if rng.integers(2) else {}
        yield Case(
            f"{name} {sizes} #{number}",
            lambda m=make, z=logits, y=target, k=more: fine(judged(m, z, y, **k), finite=True),
        )


def dtypes(rng: Any) -> Iterator[Case]:
    for binary in (False, True):
        for name, make in (BINARY if binary else MULTICLASS).items():
            logits, target = rows(rng, binary)
            for one in DTYPES:
                for other in (one, torch.int64):
                    z, y = logits.to(one), target.to(other)
                    finite = bool(z.isfinite().all()) if not z.is_complex() else False
                    yield Case(
                        f"{name} {one} {other}",
                        lambda m=make, z=z, y=y, f=finite: fine(judged(m, z, y), finite=f),
                    )


def values(rng: Any) -> Iterator[Case]:
    """NaN stays visible, infinities do no more harm than they must, huge logits are finite."""

    def visible(make: Any, z: Tensor, y: Tensor) -> str | None:
        found = judged(make, z, y)
        if isinstance(found, str):
            return None if found == "refused" else found
        return None if math.isnan(found[0]) else f"NaN logits give the loss {found[0]}"

    for number in range(200):
        binary = bool(rng.integers(2))
        name = rng.choice(list(BINARY if binary else MULTICLASS))
        make = (BINARY if binary else MULTICLASS)[name]
        logits, target = rows(rng, binary)
        where = rng.integers(ROWS)
        kind = rng.choice(["nan", "inf", "-inf", "huge", "equal"])
        if kind == "nan":
            logits[where] = math.nan
            act = lambda m=make, z=logits, y=target: visible(m, z, y)  # noqa: E731
        else:
            logits[where] = {"inf": math.inf, "-inf": -math.inf, "huge": 3e38, "equal": 0.0}[kind]
            finite = kind in ("huge", "equal")
            act = lambda m=make, z=logits, y=target, f=finite: fine(judged(m, z, y), finite=f)  # noqa: E731
        yield Case(f"{name} {kind} #{number}", act)


def masks(rng: Any) -> Iterator[Case]:
    """A class masked with −∞ where it is not the target, and in rows that do not count."""
    for number in range(120):
        name = rng.choice([name for name in MULTICLASS if name not in ("sigmoid_f1",)])
        logits, target = rows(rng, binary=False)
        masked = torch.from_numpy(rng.random((ROWS, CLASSES)) < 0.3)
        masked[torch.arange(ROWS), target] = False
        masked.sum(1)
        logits[masked] = -math.inf
        weight = torch.ones(ROWS)
        weight[:2], target[2] = 0, -100
        logits[0] = -math.inf  # all of a row that does not count
        logits[0, 0] = 0
        yield Case(
            f"{name} #{number}",
            lambda m=MULTICLASS[name], z=logits, y=target, w=weight: fine(
                judged(m, z, y, sample_weight=w), finite=True
            ),
        )


def weights(rng: Any) -> Iterator[Case]:
    """A factor on all weights changes no mean and no ratio, however large or small."""

    def same(make: Any, z: Tensor, y: Tensor, w: Tensor, factor: float) -> str | None:
        plain, scaled = (judged(make, z, y, sample_weight=v) for v in (w, w * factor))
        if isinstance(scaled, str) or isinstance(plain, str):
            return None if scaled == "refused" else str(scaled)
        close = math.isclose(plain[0], scaled[0], rel_tol=1e-4, abs_tol=1e-5)
        return None if close else f"{plain[0]} becomes {scaled[0]} with weights of {factor:g}"

    for binary in (False, True):
        for name, make in (BINARY if binary else MULTICLASS).items():
            for factor in (1e-15, 1e-6, 1e6, 1e15, 1e30):
                logits, target = rows(rng, binary)
                weight = torch.from_numpy(rng.uniform(0.1, 1, ROWS))
                yield Case(
                    f"{name} × {factor:g}",
                    lambda m=make, z=logits, y=target, w=weight, f=factor: same(m, z, y, w, f),
                )
    for bad in (-1.0, math.nan, math.inf):
        for name, make in MULTICLASS.items():
            logits, target = rows(rng, binary=False)
            weight = torch.full((ROWS,), bad)
            yield Case(
                f"{name} weight {bad}",
                lambda m=make, z=logits, y=target, w=weight: fine(
                    judged(m, z, y, sample_weight=w), finite=True
                ),
            )


def indices(rng: Any) -> Iterator[Case]:
    """Classes that there are not are refused, not looked up in memory."""

    def refused(make: Any, z: Tensor, y: Tensor) -> str | None:
        found = judged(make, z, y)
        return None if found == "refused" else f"it took it, or said {found}"

    for name, make in MULTICLASS.items():
        for index in (CLASSES, 255, 2**31, 10**12, 2**63 - 1, -1, -(2**63)):
            logits, target = rows(rng, binary=False)
            target[rng.integers(ROWS)] = index
            yield Case(f"{name} class {index}", lambda m=make, z=logits, y=target: refused(m, z, y))


ATTACKS = {
    "loss calls: shapes": shapes,
    "loss calls: dtypes": dtypes,
    "loss calls: NaN, infinite, huge": values,
    "loss calls: −∞ masks": masks,
    "loss calls: weights to 1e30": weights,
    "loss calls: class indices": indices,
}
