"""The choice between a kernel and `core` for the sums, which makes no difference."""

import pytest
import torch

from evalign import Confusion, MetricLoss, metrics
from evalign.kernels import operation, plain
from tests import tolerances
from tests.contract.cases import data
from tests.kernels.agreement import random_batch


@pytest.fixture
def calls(monkeypatch):
    """Count how often the kernel ran."""
    count = []
    forward = plain.forward
    monkeypatch.setattr(plain, "forward", lambda *x: count.append(1) or forward(*x))
    return count


def reference(name, logits, target, **settings):
    return 1 - metrics.resolve(name)(Confusion.from_logits(logits, target, **settings))


@pytest.mark.parametrize("settings", [{}, {"heaviside": "sigmoid"}])
def test_kernel_and_reference_give_one_loss(settings, calls):
    logits, target = data("multiclass")
    target[::5] = -100
    weight = torch.linspace(0, 2, len(target), dtype=torch.float64)
    logits.requires_grad_()
    ours = MetricLoss("f1_macro", temperature=0.1, **settings)(logits, target, sample_weight=weight)
    assert calls
    theirs = reference(
        "f1_macro", logits, target, temperature=0.1, sample_weight=weight, **settings
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerances.SAME)
    gradients = (torch.autograd.grad(2.5 * loss, logits)[0] for loss in (ours, theirs))
    torch.testing.assert_close(*gradients, rtol=0, atol=tolerances.SAME)


def of_steep(p, threshold):
    return torch.sigmoid(20 * (p - threshold))


@pytest.mark.parametrize(
    ("data_of", "settings"),
    [
        ("probabilities", {"metric": "f1_macro", "task": "multiclass"}),
        ("multiclass", {"metric": metrics.CohenKappa(weights="linear")}),
        ("multiclass", {"metric": "f1_macro", "heaviside": of_steep}),
        ("binary", {"metric": "f1"}),
        ("multilabel", {"metric": "f1_macro"}),
    ],
    ids=["class probabilities", "full matrix", "own step", "binary", "multilabel"],
)
def test_what_core_computes(data_of, settings, calls):
    logits, target = data("multiclass" if data_of == "probabilities" else data_of)
    if data_of == "probabilities":
        target = torch.nn.functional.one_hot(target).double()
    MetricLoss(**settings)(logits.requires_grad_(), target).backward()
    assert not calls
    assert logits.grad.abs().sum() > 0


def test_gradient_of_the_weights_is_cores(calls):
    logits, target = data("multiclass")
    weight = torch.ones(len(target), dtype=torch.float64, requires_grad=True)
    MetricLoss("f1_macro")(logits, target, sample_weight=weight).backward()
    assert not calls
    assert weight.grad.abs().sum() > 0


def test_keeps_one_of_the_size_of_the_logits():
    """Cross-entropy does the same; the kernels of a GPU keep none, see `tests/device`."""
    logits, target, *_ = random_batch(64, 500, dtype=torch.float32)
    logits.requires_grad_()
    kept = {}

    def keep(x):
        kept[x.untyped_storage().data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        MetricLoss("f1_macro")(logits, target)
    kept.pop(logits.untyped_storage().data_ptr())
    assert sum(kept.values()) < 64 * 500 + 20 * 64 + 50 * 500  # and numbers a row, and a class


@pytest.mark.parametrize("transposed", [False, True])
def test_operator_keeps_the_rules_of_torch(transposed):
    logits, target, weight, of_sums = random_batch(12, 5)
    if transposed:  # as those of a single image are
        logits = logits.t().contiguous().t()
    temperature = torch.tensor(0.2, dtype=torch.float64)
    batch = logits.requires_grad_(), target, weight, temperature
    torch.library.opcheck(operation._operator, (*batch, False))
    kept = [x.detach() for x in operation._operator(*batch, False)[1:]]
    arguments = (logits.detach(), *batch[1:], *kept, of_sums, False)
    torch.library.opcheck(operation._backward, arguments)
