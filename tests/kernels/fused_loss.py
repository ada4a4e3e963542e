"""Compare a loss as one function with the same loss by `core`, autograd and the running average."""

import itertools

import torch
from torch.testing import assert_close

from evalign import AlignedLoss, Confusion
from evalign.membership.batch import Batch
from tests import tolerances


def rows_of(task, *, seed=0, dtype=torch.float64, classes=4, images=False):
    """Make logits, a target of which some are ignored, and weights of which some are 0."""
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 5, 2) if images else (23,)
    channels = 1 if task == "binary" else classes
    size = shape if task == "binary" and not images else (shape[0], channels, *shape[1:])
    logits = 3 * torch.randn(size, generator=generator, dtype=torch.float64)
    if task == "multiclass":
        target = torch.randint(classes, shape, generator=generator)
        target = torch.where(target == 1, 0, target)
    else:
        target = torch.randint(2, size, generator=generator).double()
    target.view(-1)[::7] = -100
    weight = torch.rand(shape, generator=generator, dtype=torch.float64).round(decimals=1)
    return logits.to(dtype), target, weight.to(torch.promote_types(dtype, torch.float32))


def hard_to_average(task):
    """Make a metric, and batches that must not change its running average among those that do."""
    first, second = (rows_of(task, seed=seed) for seed in range(2))
    empty = second[0], torch.full_like(second[1], -100), second[2]
    broken = first[0].clone(), *first[1:]
    assert first[1].view(len(first[1]), -1)[3, 0] >= 0 < first[2][3]
    broken[0].view(len(first[0]), -1)[3, 0] = torch.nan
    return "f1" if task == "binary" else "f1_macro", (broken, first, empty, second, broken, second)


def counting_in_part():
    """Rows of which less than one is softly predicted as class 1, which is never true."""
    logits, target, weight = rows_of("multiclass")
    logits[:, 1] -= 6
    c = Confusion.from_logits(logits, target, sample_weight=weight)
    assert c.actual[1] == 0
    assert 0.01 < c.predicted[1] * c.rows / c.total < 0.99
    return logits, target, weight


def separately(loss, logits, target, weight):
    """The loss by the path that it takes where there are no kernels."""
    rows = loss.rows(logits, target, weight)
    to_come = getattr(loss, "_as_to_come", lambda given: given)(rows)
    batch = Batch.of(to_come)
    return loss.value(batch).to(torch.promote_types(logits.dtype, torch.float32))


def assert_one_is_as_several(loss, twin, batches, *, atol, rtol=0.0):
    """Require the same values, gradients and buffers of a loss and its twin, batch by batch.

    NaN has to stand in the same places.
    """
    near = {"atol": atol, "rtol": rtol, "equal_nan": True}
    for logits, target, weight in batches:
        ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
        value = loss(ours, target, sample_weight=weight)
        expected = separately(twin, theirs, target, weight)
        assert value.dtype == expected.dtype
        assert_close(value, expected, **near)
        (gradient,) = torch.autograd.grad(2.5 * value, ours)
        (expected_gradient,) = torch.autograd.grad(2.5 * expected, theirs)
        assert gradient.shape == logits.shape
        assert_close(gradient, expected_gradient, **near)
    states = loss.state_dict(), twin.state_dict()
    assert states[0].keys() == states[1].keys()
    # Sums are as large as the rows are many, and as precise as the values.
    near["rtol"] = max(rtol, atol, tolerances.SAME)
    for name in states[0]:
        assert_close(states[0][name], states[1][name], **near)


def pairs(make):
    """Two losses of one kind, with buffers of their own."""
    return make(), make()


AVERAGES = ("macro", "micro", "weighted")
STEMS = ("precision", "recall", "f2", "jaccard")


def metric_names(task):
    """The metrics that have a closed form for a task."""
    names = [f"{stem}_{average}" for stem, average in itertools.product(STEMS, AVERAGES)]
    if task != "multilabel":
        names += ["accuracy", "balanced_accuracy", "matthews_corrcoef", "cohen_kappa"]
    return names + (list(STEMS) if task == "binary" else [])


def aligned(task, **settings):
    """Make a loss that has seen a batch."""
    loss = AlignedLoss("f1_macro", **settings)
    seed = rows_of(task, seed=9)
    separately(loss.train(), *seed)
    return loss
