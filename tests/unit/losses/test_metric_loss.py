"""MetricLoss beyond the contract: user functions, undefined scores, buffers, shapes."""

import math

import pytest
import torch

from evalign import MetricLoss, losses, metrics


def logits_and_target():
    return torch.randn(6, 3, generator=torch.manual_seed(0), requires_grad=True), torch.tensor(
        [0, 1, 2, 0, 1, 2]
    )


def test_user_function_on_a_batch_of_ignored_rows():
    logits, target = logits_and_target()
    value = MetricLoss(lambda c: c.tp.sum() / c.total)(logits, target.fill_(-100))
    value.backward()
    assert value == 0
    assert (logits.grad == 0).all()


def test_nan_of_a_user_function_is_not_taken_for_a_perfect_score():
    logits, _ = logits_and_target()
    loss = MetricLoss(lambda c: (c.tp / c.actual).mean())
    assert loss(logits, torch.zeros(6, dtype=torch.int64)).isnan()


@pytest.mark.parametrize(
    ("kind", "average"),
    [("Recall", "macro"), ("Recall", "weighted"), ("FBeta", "macro"), ("Precision", "micro")],
)
@pytest.mark.parametrize("zero_division", [0.0, math.nan])
def test_nan_logits_are_not_hidden(kind, average, zero_division):
    metric = getattr(metrics, kind)(average=average, zero_division=zero_division)
    logits, target = logits_and_target()
    logits = logits.detach().clone()
    logits[0] = math.nan
    assert MetricLoss(metric)(logits, target).isnan()
    assert MetricLoss(metric)(logits, logits > 0).isnan()
    # Nor is a target, where it is not read: as on a GPU.
    loss = torch.func.vmap(MetricLoss(metric))
    assert loss(torch.ones_like(logits).unsqueeze(0), logits.unsqueeze(0)).isnan()


def test_no_class_with_a_score_is_nothing_to_learn_from():
    logits = torch.randn(4, generator=torch.manual_seed(1), requires_grad=True)
    value = MetricLoss(metrics.Recall(zero_division=math.nan))(logits, torch.zeros(4))
    value.backward()
    assert value == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize(
    ("function", "needed"),
    [
        (lambda c: c.tp.sum() / c.total, False),
        (lambda c: c.tp[5] / c.actual[5], False),
        (lambda c: c.matrix[0, 1] / c.total, True),
        (lambda c: c.matrix[0, 1] / c.total if c.num_classes > 2 else c.tp[0], True),
        (lambda c: (c.tp * torch.ones(5)).sum() / c.total, True),  # fails on the probe
    ],
)
def test_probe_finds_who_needs_the_matrix(function, needed):
    assert MetricLoss(function).metric.needs_matrix is needed


def test_buffers_keep_their_digits_and_are_the_modules_own():
    weights = torch.tensor([0.1, 0.9], dtype=torch.float64)
    loss = losses.FocalLoss(class_weight=weights)
    weights.fill_(1)
    assert loss.half().class_weight.tolist() == [0.1, 0.9]
    assert MetricLoss("f1").bfloat16().temperature.item() == 0.2


def test_buffers_that_were_cast_are_refused():
    for loss in (MetricLoss("f1"), losses.AlignedLoss("f1")):
        loss(torch.zeros(3), torch.tensor([0, 1, 0]))  # a dry run before the network is wrapped
        for buffer in loss.buffers():
            buffer.data = buffer.bfloat16()  # as FSDP with a buffer_dtype does
        with pytest.raises(ValueError, match=r"Got torch.bfloat16\. Mixed .* ignored_modules="):
            loss(torch.zeros(3), torch.tensor([0, 1, 0]))


def test_flags_and_modules_of_a_loss_of_ones_own_are_not_refused():
    class Own(losses.DiceLoss):
        def __init__(self):
            super().__init__()
            self.register_buffer("flags", torch.ones(2, dtype=torch.bool))
            self.other = torch.nn.CrossEntropyLoss(torch.ones(2))

    logits, target = torch.zeros(3), torch.tensor([0, 1, 0])
    assert Own().bfloat16()(logits, target) == losses.DiceLoss()(logits, target)


def test_built_on_the_meta_device():
    with torch.device("meta"):
        loss = MetricLoss("f1")
    loss = loss.to_empty(device="cpu")
    loss.load_state_dict(MetricLoss("f1", temperature=0.1).state_dict())
    assert loss.temperature.item() == 0.1


def test_the_default_device_does_not_matter():
    loss = MetricLoss("f1_macro")
    logits, target = torch.randn(5, 3, requires_grad=True), torch.tensor([0, 1, 2, 0, 1])
    with torch.device("meta"):
        value = loss(logits, target)
        value.backward()
    assert value.device == logits.grad.device == logits.device


@pytest.mark.parametrize(
    ("logits", "target"),
    [
        ((4,), (4,)),
        ((4,), (4, 1)),
        ((4, 1), (4,)),
        ((4, 1), (4, 1)),
        ((4, 1, 1), (4, 1)),
        ((4, 1, 1), (4, 1, 1)),
        ((2, 1, 1, 8), (2, 1, 8)),
        ((2, 1, 3, 8), (2, 1, 3, 8)),
    ],
)
def test_shapes_of_binary_problems(logits, target):
    generator = torch.manual_seed(2)
    z, y = torch.randn(logits, generator=generator), torch.randint(2, target, generator=generator)
    flat = MetricLoss("f1")(z.flatten(), y.flatten())
    assert torch.equal(MetricLoss("f1")(z, y), flat)


def test_recall_at_a_tiny_threshold_stays_in_range():
    logits = torch.logit(1e-6 * (1 + torch.linspace(-0.1, 0.1, 64)))
    loss = MetricLoss("recall", threshold=1e-6, temperature=1e-6)
    assert 0 <= loss(logits, torch.ones(64, dtype=torch.int64)).item() <= 1
