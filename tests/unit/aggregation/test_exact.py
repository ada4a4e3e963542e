"""Exact accumulation: the gradient of the whole batch from micro-batches."""

import re

import pytest
import torch
from torch import nn

from evalign import AlignedLoss, MetricLoss, exact_backward, losses, metrics
from evalign.aggregation import ExactAccumulation
from tests import dtype_tolerances, tolerances

PRIOR = [5.0, 3.0, 1.0]
LOSSES = {
    "O(classes)": lambda: MetricLoss("f1_macro"),
    "full matrix": lambda: MetricLoss(metrics.CohenKappa(weights="quadratic")),
    "cost": lambda: MetricLoss(metrics.ExpectedCost([[0, 1, 1], [1, 0, 1], [9, 9, 0]])),
    "running": lambda: MetricLoss("matthews_corrcoef", momentum=0.1),
    "focal": losses.FocalLoss,
    "mean": lambda: losses.LogitAdjustedLoss(PRIOR),
    "soft F": lambda: losses.SoftFBetaLoss(average="macro"),
    "aligned": lambda: AlignedLoss("f1_macro"),
    "one threshold": lambda: MetricLoss("f1"),
    "surrogate": lambda: losses.SurrogateFBetaLoss(0.3),
}


def microbatches(classes, dtype=torch.float64, *, rows=(5, 1, 7, 0, 3)):
    """Make uneven micro-batches, one of them empty, with weights and some ignored rows."""
    generator = torch.Generator().manual_seed(0)
    for count in rows:
        x = torch.randn(count, 6, generator=generator, dtype=dtype)
        y = torch.randint(classes, (count,), generator=generator)
        y[2::3] = -100
        yield x, y, torch.rand(count, generator=generator, dtype=dtype)


def network(outputs, dtype=torch.float64, dropout=0.0):
    torch.manual_seed(1)
    layers = nn.Linear(6, 8), nn.Dropout(dropout), nn.Tanh(), nn.Linear(8, outputs)
    return nn.Sequential(*layers).to(dtype)


def gradients(model):
    return [p.grad for p in model.parameters()]


def whole(loss, model, parts):
    """Compute value and gradients by one graph over all micro-batches."""
    logits = torch.cat([model(x) for x, *_ in parts]).squeeze(1)
    y, w = (torch.cat([part[i] for part in parts]) for i in (1, 2))
    value = loss(logits, y, sample_weight=w)
    value.backward()
    return value


def check(make, outputs, dtype=torch.float64, dropout=0.0):
    parts = list(microbatches(max(2, outputs), dtype))
    one, other = network(outputs, dtype, dropout), network(outputs, dtype, dropout)
    one.train(), other.train()
    torch.manual_seed(2)
    expected = whole(make(), one, parts)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    value = exact_backward(make(), other, parts)
    tolerance = dtype_tolerances.RANKS[dtype]
    assert value.item() == pytest.approx(expected.item(), abs=tolerance)
    for got, wanted in zip(gradients(other), gradients(one), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=tolerance)
    assert torch.equal(state, torch.get_rng_state())  # as if each dropout mask had been drawn once


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_of_the_whole_batch(name):
    check(LOSSES[name], 1 if name in ("one threshold", "surrogate") else 3)


@pytest.mark.parametrize(("dtype", "dropout"), [(torch.float32, 0.0), (torch.float64, 0.5)])
def test_in_float32_and_with_the_same_dropout_masks_in_both_passes(dtype, dropout):
    check(LOSSES["O(classes)"], 3, dtype, dropout)


def test_running_statistics_count_the_batch_once():
    loss, parts = LOSSES["running"](), list(microbatches(3))
    exact_backward(loss, network(3), parts)
    assert loss.running.seen == pytest.approx(0.1)


def test_gradients_add_to_those_there_are():
    model, parts = network(3), list(microbatches(3))
    exact_backward(MetricLoss("f1_macro"), model, parts)
    once = [g.clone() for g in gradients(model)]
    exact_backward(MetricLoss("f1_macro"), model, parts)
    for got, first in zip(gradients(model), once, strict=True):
        torch.testing.assert_close(got, 2 * first)


def test_with_a_gradient_scaler():
    plain, scaled, parts = network(3), network(3), list(microbatches(3))
    exact_backward(MetricLoss("f1_macro"), plain, parts)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    exact_backward(MetricLoss("f1_macro"), scaled, parts, scaler=scaler)
    for got, wanted in zip(gradients(scaled), gradients(plain), strict=True):
        torch.testing.assert_close(got / 1024, wanted)


def test_under_autocast():
    model, parts = network(3, torch.float32), list(microbatches(3, torch.float32))
    with torch.autocast("cpu", torch.bfloat16):
        exact_backward(MetricLoss("f1_macro"), model, parts)
    exact = network(3, torch.float32)
    exact_backward(MetricLoss("f1_macro"), exact, parts)
    for got, wanted in zip(gradients(model), gradients(exact), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=tolerances.BFLOAT16_STEP)


def test_no_graph_is_kept_of_pass_one():
    exact, model = ExactAccumulation(MetricLoss("f1_macro")), network(3)
    with exact.counting():
        for x, y, w in microbatches(3):
            exact.count(model(x), y, w)
            assert not any(c.tp.requires_grad for c in exact._total)
    assert not exact.value.requires_grad


@pytest.mark.parametrize(
    ("microbatches", "error", "text"),
    [
        (iter([]), TypeError, "read twice. Got a list_iterator."),
        ([torch.ones(8, 6)], TypeError, "read twice. Got a Tensor."),
        ([(torch.ones(8, 6),)], TypeError, "read twice. Got a tuple of 1."),
        (torch.zeros(3, 2), TypeError, "must be a list of (x, target) or"),
        ([], ValueError, "microbatches of exact_backward must not be empty."),
    ],
)
def test_microbatches_are_checked(microbatches, error, text):
    with pytest.raises(error, match=re.escape(text)):
        exact_backward(MetricLoss("f1_macro"), network(3), microbatches)


def test_loss_and_model_are_checked():
    """Behind a function the passes would see neither DDP nor batch statistics."""
    model, parts = network(3), list(microbatches(3))
    with pytest.raises(TypeError, match="must be a function of sums over rows"):
        exact_backward(losses.LovaszSoftmaxLoss(), model, parts)
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, .* Got function"):
        exact_backward(MetricLoss("f1_macro"), lambda x: model(x), parts)


def test_batch_statistics_are_warned_of():
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)).double()
    parts = [part[:2] for part in microbatches(3, rows=(4, 4))]
    with pytest.warns(UserWarning, match="the model has batch statistics in training mode"):
        exact_backward(MetricLoss("f1_macro"), model, parts)
    model[0].eval()
    exact_backward(MetricLoss("f1_macro"), model, parts)  # a warning would be an error here


def test_the_steps_of_a_pass_belong_inside_it():
    exact, logits, y = ExactAccumulation(MetricLoss("f1_macro")), torch.ones(2, 3), torch.ones(2)
    with pytest.raises(RuntimeError, match=re.escape("call `count` inside `with counting()`")):
        exact.count(logits, y.long())
    with exact.counting():
        exact.count(logits, y.long())
        with pytest.raises(RuntimeError, match=re.escape("call `loss` inside `with replaying()`")):
            exact.loss(logits, y.long())
    # Here dropout would draw other masks, and a loss that learns would have learnt.
    with pytest.raises(RuntimeError, match=re.escape("call `loss` inside `with replaying()`")):
        exact.loss(logits, y.long())


def test_slopes_of_an_earlier_batch_are_not_replayed():
    exact, model, parts = ExactAccumulation(MetricLoss("f1_macro")), network(3), [*microbatches(3)]
    with exact.counting():
        exact.count(model(parts[0][0]), parts[0][1])
    with pytest.raises(ValueError, match="from 0 to 2"), exact.counting():
        exact.count(model(parts[0][0]), parts[0][1] + 7)
    with pytest.raises(RuntimeError, match="comes before `replaying`"), exact.replaying():
        pass
