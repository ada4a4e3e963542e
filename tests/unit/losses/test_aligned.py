"""AlignedLoss: its two terms, its state, class shares, class weights, images, and training."""

import copy
import io
import math
import pickle
import re

import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn
from torch.nn import functional as F

from evalign import (
    AlignedLoss,
    Confusion,
    MetricLoss,
    TemperatureAnnealing,
    exact_backward,
    fit_decision,
    metrics,
)
from evalign.aggregation import RunningConfusion
from evalign.losses.offsets import metric_offsets, with_pseudo_rows
from evalign.training import Settings, fit
from tests import tolerances

NEAR = {"rtol": 0, "atol": tolerances.SAME}
METRICS = {"binary": "f1", "multiclass": "matthews_corrcoef", "multilabel": "f1_macro"}
METRICS |= {"images": "jaccard_macro", "matrix": "cohen_kappa_quadratic"}


def batch(kind, seed=0, rows=40):
    """Make logits, a target of which some is ignored, and weights of the rows."""
    generator = torch.Generator().manual_seed(seed)
    shape = {"binary": (rows,), "images": (rows // 20, 3, 5, 4)}.get(kind, (rows, 3))
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind == "multilabel":
        y = (torch.rand(shape, generator=generator) < 0.3).double()
        y[::7, 1] = -100
    else:
        y = torch.rand(shape[:1] + shape[2:], generator=generator) < 0.3
        more = torch.rand(y.shape, generator=generator) < 0.5
        y = y.long() if kind == "binary" else y.long() + more
        y[..., ::7] = -100
    weight = torch.rand(len(logits), generator=generator, dtype=torch.float64) + 0.1
    return logits.requires_grad_(), y, weight


def assert_same(value, expected, logits):
    torch.testing.assert_close(value, expected, **NEAR)
    gradients = (torch.autograd.grad(loss, logits, retain_graph=True) for loss in (value, expected))
    torch.testing.assert_close(*gradients, **NEAR)


def assert_same_state(one, other, atol=tolerances.SAME):
    state, expected = one.state_dict(), other.state_dict()
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, rtol=0, atol=atol, msg=name)
    torch.testing.assert_close(one.score, other.score, rtol=0, atol=atol, equal_nan=True)


def cross_entropy(logits, y, weight, offsets):
    if y.is_floating_point():
        each = F.binary_cross_entropy_with_logits(
            logits + offsets, y.clamp(min=0), reduction="none"
        )
        weight = weight.unsqueeze(1) * (y >= 0)
    else:
        if logits.ndim == 1:
            logits = torch.stack([torch.zeros_like(logits), logits], 1)
        each = F.cross_entropy(logits + offsets, y, reduction="none")
        weight = weight * (y >= 0)
    return (weight * each).sum() / weight.sum()


# The two terms.


@pytest.mark.parametrize("kind", ["binary", "multiclass", "multilabel", "matrix"])
def test_value_and_gradient_are_the_sum_of_both_terms(kind):
    """The offsets are those that the batches before have left."""
    loss = AlignedLoss(METRICS[kind], metric_weight=0.7, momentum=0.3)
    running, counts, offsets = RunningConfusion(0.3), 0, torch.zeros(3 if kind != "binary" else 2)
    for seed in range(3):
        logits, y, weight = batch(kind, seed)
        value = loss(logits, y, sample_weight=weight)
        matrix = loss.metric.needs_matrix
        soft, hard = (
            Confusion.from_logits(logits, y, temperature=t, sample_weight=weight, matrix=matrix)
            for t in (0.2, 1e-20)
        )
        many = kind == "multilabel"
        here = torch.stack([soft.negatives, soft.actual], 1) if many else soft.actual
        counts = counts + here.detach()
        point, labels = running.with_hard(soft, hard)
        expected = cross_entropy(logits, y, weight, offsets) + 0.7 * (1 - loss.metric(point))
        assert_same(value, expected, logits)
        offsets = metric_offsets(loss.metric, with_pseudo_rows(labels, counts), counts)
        torch.testing.assert_close(loss.offsets, offsets, **NEAR)
        torch.testing.assert_close(loss.counts, counts, **NEAR)
    before = copy.deepcopy(loss)
    with torch.no_grad():
        loss(logits, y)
    value = loss.eval()(logits, y, sample_weight=weight)
    alone = MetricLoss(METRICS[kind])(logits, y, sample_weight=weight)
    assert_same(value, cross_entropy(logits, y, weight, offsets) + 0.7 * alone, logits)
    assert_same_state(loss, before)  # looking teaches nothing


def test_the_score_is_that_of_the_argmax():
    for kind in ("binary", "multilabel", "multiclass"):
        loss = AlignedLoss("f1" if kind == "binary" else "f1_macro", momentum=1.0)
        assert loss.score.isnan()
        for seed in range(2):
            logits, y, weight = batch(kind, seed, rows=200)
            y = y.clamp(min=0)
            loss(logits, y, sample_weight=weight)
        labels = logits.argmax(1) if kind == "multiclass" else logits > 0
        average = "binary" if kind == "binary" else "macro"
        expected = f1_score(y, labels, average=average, sample_weight=weight)
        assert loss.score.item() == pytest.approx(expected, abs=tolerances.HARD)


def test_a_batch_that_says_nothing_teaches_nothing():
    """All rows are ignored or without weight, or a logit is NaN, as float16 may overflow once."""
    for kind in METRICS:
        loss = AlignedLoss(METRICS[kind])
        logits, y, weight = batch(kind)
        nothing = torch.full_like(y, -100)
        assert loss(logits, nothing) == 0
        assert loss.score.isnan()
        loss(logits, y)
        before = copy.deepcopy(loss)
        for rows in ((logits[:0], y[:0]), (logits, nothing)):
            value = loss(*rows)
            assert value == 0
            assert not torch.autograd.grad(value, rows[0], materialize_grads=True)[0].any()
            assert_same_state(loss, before)
        assert loss(logits * torch.nan, y).isnan()
        torch.testing.assert_close(loss.offsets, before.offsets, **NEAR)
        torch.testing.assert_close(loss.score, before.score, **NEAR)
        assert loss(logits, y, sample_weight=weight).isfinite()


# State.


@pytest.mark.parametrize(
    "settings", [{}, {"class_shares": [3, 2, 1]}, {"class_weight": "balanced"}]
)
@pytest.mark.parametrize("kind", ["binary", "multiclass", "multilabel", "matrix"])
def test_microbatches_teach_what_the_whole_batch_does(kind, settings):
    if kind == "binary":
        settings = {name: [3, 1] if name == "class_shares" else x for name, x in settings.items()}
    elif kind == "multilabel":
        settings = {"class_shares": [[3, 1]] * 3} if "class_shares" in settings else {}
    outputs = 1 if kind == "binary" else 3
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, outputs), nn.Flatten(0 if kind == "binary" else 1)).double()
    whole, parts = (AlignedLoss(METRICS[kind], **settings) for _ in range(2))
    for seed in range(3):
        x = torch.randn(40, 6, dtype=torch.float64, generator=torch.manual_seed(seed))
        rows = x, *batch(kind, seed)[1:]
        model.zero_grad()
        value = whole(model(x), rows[1], sample_weight=rows[2])
        value.backward()
        expected = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        micro = list(zip(*(part.split(7) for part in rows), strict=True))
        found = exact_backward(parts, model, micro)
        torch.testing.assert_close(found, value, check_dtype=False, **NEAR)
        for p, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, gradient, **NEAR)
        assert_same_state(parts, whole)


def restored(loss):
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other = AlignedLoss(loss.metric, task=loss.task)
    other.load_state_dict(torch.load(file))
    return other


@pytest.mark.parametrize("kind", METRICS)
@pytest.mark.parametrize(
    "again",
    [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss)), restored, lambda x: x.half()],
    ids=["deepcopy", "pickle", "state dict", "half"],
)
def test_a_copy_goes_on_where_the_loss_was(kind, again):
    loss = AlignedLoss(METRICS[kind])
    for seed in range(2):
        loss(*batch(kind, seed)[:2])
    kept = copy.deepcopy(loss)
    other = again(loss)
    logits, y, _ = batch(kind, 3)
    assert torch.equal(other(logits, y), kept(logits, y))
    assert_same_state(other, kept, atol=0)
    assert {value.dtype for value in other.state_dict().values()} == {torch.float64}


def test_a_state_before_the_first_batch():
    new, trained = AlignedLoss("f1_macro"), AlignedLoss("f1_macro")
    logits, y, _ = batch("multiclass")
    trained(logits, y)
    trained.load_state_dict(new.state_dict())
    assert trained.offsets is trained.counts is None
    assert trained.score.isnan()
    assert torch.equal(trained(logits, y), new(logits, y))


@pytest.mark.parametrize("kind", METRICS)
def test_autocast_changes_nothing(kind):
    plain, other = AlignedLoss(METRICS[kind]), AlignedLoss(METRICS[kind])
    for seed in range(2):
        logits, y, _ = batch(kind, seed)
        with torch.autocast("cpu", torch.bfloat16):
            value = other(logits, y)
        assert_same(value, plain(logits, y), logits)
    assert_same_state(other, plain)


# A graph takes seconds; the contract compiles one of this loss in every run.
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binary", "multilabel", "matrix"])
def test_compiled_as_eager(kind):
    """From the second batch on: that of the first, without a state, is in `tests/contract`."""
    torch._dynamo.reset()
    plain, other = AlignedLoss(METRICS[kind]), AlignedLoss(METRICS[kind])
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    logits, y, _ = batch(kind, 3)
    assert torch.equal(other(logits, y), plain(logits, y))
    for seed in range(3):
        logits, y, _ = batch(kind, seed)
        assert_same(compiled(logits, y), plain(logits, y), logits)
        assert_same_state(other, plain)


def stacked(kind, step):
    rows = [batch(kind, 2 * step + i)[:2] for i in range(2)]
    logits, y = (torch.stack(parts) for parts in zip(*rows, strict=True))
    return logits.detach().requires_grad_(), y


@pytest.mark.parametrize("kind", METRICS)
def test_a_stack_learns_as_each_alone(kind):
    """Under `vmap` the state moves if it is an argument, and stays as it is if it is not."""
    alone = [AlignedLoss(METRICS[kind]) for _ in range(2)]
    for loss, logits, y in zip(alone, *stacked(kind, 0), strict=True):
        loss(logits, y)
    stack = copy.deepcopy(alone)
    _, state = torch.func.stack_module_state(stack)

    def value_of(state, logits, y):
        return torch.func.functional_call(stack[0], state, (logits, y))

    for step in (1, 2):
        logits, y = stacked(kind, step)
        found = torch.func.vmap(value_of)(state, logits, y)
        expected = [loss(*rows) for loss, *rows in zip(alone, logits, y, strict=True)]
        torch.testing.assert_close(found, torch.stack(expected), **NEAR)
    for i, loss in enumerate(alone):
        for name in ("offsets", "counts", "running.sums"):
            torch.testing.assert_close(state[name][i], loss.state_dict()[name], **NEAR)
    for loss in (AlignedLoss(METRICS[kind]), alone[0]):
        before = copy.deepcopy(loss)
        slopes, values = torch.func.vmap(torch.func.grad_and_value(loss))(logits.detach(), y)
        for i in range(2):
            leaf = logits[i].detach().requires_grad_()
            value = copy.deepcopy(before)(leaf, y[i])
            torch.testing.assert_close(values[i], value, **NEAR)
            torch.testing.assert_close(slopes[i], torch.autograd.grad(value, leaf)[0], **NEAR)
        assert_same_state(loss, before, atol=0)


def test_annealing_cools_it():
    loss, cool = AlignedLoss("f1_macro", temperature=0.3), AlignedLoss("f1_macro", temperature=0.1)
    annealing = TemperatureAnnealing(loss, start=0.2, rate=0.5, patience=1)
    for score in (0.5, 0.5):
        annealing.step(score=score)
    logits, y, _ = batch("multiclass")
    assert torch.equal(loss(logits, y), cool(logits, y))


# Class weights and smoothing are those of torch.


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, [0.5, 1.0, 4.0], [0.5e-30, 1e-30, 4e-30], "balanced"])
@pytest.mark.parametrize("kind", ["binary", "multiclass", "images", "multilabel"])
def test_cross_entropy_is_that_of_torch(kind, weight, smoothing):
    weight = weight[:2] if kind == "binary" and isinstance(weight, list) else weight
    if kind == "multilabel" and weight == "balanced":
        return
    loss = AlignedLoss("f1_macro", metric_weight=0, class_weight=weight, label_smoothing=smoothing)
    loss(*batch(kind, 1)[:2])
    logits, y, _ = batch(kind)
    factor = 1 / loss.counts if weight == "balanced" else weight
    factor = None if factor is None else torch.as_tensor(factor, dtype=torch.float64)
    if kind == "multilabel":
        factor = torch.ones(3) if factor is None else factor
        share = factor * (y != -100)
        target = (1 - smoothing) * y.clamp(min=0) + smoothing / 2
        shifted = logits + loss.offsets
        each = F.binary_cross_entropy_with_logits(shifted, target, reduction="none")
        expected = (share * each).sum() / share.sum()
    else:
        two = torch.stack([torch.zeros_like(logits), logits], 1) if kind == "binary" else logits
        shift = loss.offsets if factor is None else loss.offsets + factor.log()
        shift = shift.view(-1, *[1] * (two.ndim - 2))
        expected = F.cross_entropy(two + shift, y, factor, label_smoothing=smoothing)
    assert_same(loss(logits, y), expected, logits)


def test_weights_leave_probabilities_and_offsets_alone():
    """Where softmax(logits + offsets) are the probabilities of the rows, no logit has a slope."""
    p = torch.tensor([[0.1, 0.2, 0.7], [0.7, 0.1, 0.2]], dtype=torch.float64)
    offsets = []
    for weight in (None, [3.0, 1.0, 0.2], "balanced"):
        loss = AlignedLoss("f1_macro", metric_weight=0, class_weight=weight, task="multiclass")
        loss(*batch("multiclass")[:2])
        offsets.append(loss.offsets.clone())
        logits = (p.log() - loss.offsets).requires_grad_()
        (slope,) = torch.autograd.grad(loss(logits, p), logits)
        torch.testing.assert_close(slope, torch.zeros_like(slope), **NEAR)
    torch.testing.assert_close(torch.stack(offsets), offsets[0].expand(3, -1), **NEAR)


@pytest.mark.parametrize("kind", METRICS)
def test_pixels_alone_are_weighted_by_the_roots_of_the_counts(kind):
    auto, plain = AlignedLoss("f1_macro"), AlignedLoss("f1_macro", class_weight=None)
    first, (logits, y, _) = batch(kind, 1)[:2], batch(kind)
    assert torch.equal(auto(*first), plain(*first))  # nothing is known before the first batch
    if kind == "images":
        explicit = AlignedLoss("f1_macro", class_weight=auto.counts**-0.5)
        explicit.load_state_dict(auto.state_dict())
        assert not torch.isclose(plain(logits, y), explicit.eval()(logits, y))
        plain = explicit.train()
    assert_same(auto(logits, y), plain(logits, y), logits)


# Shares of the classes to come.


def linear(rows, seed):
    """Make rows with log-odds 2·x₀ − 3: one in eight is positive, and few are surely so."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 4, generator=generator)
    return x, (torch.rand(rows, generator=generator) < (2 * x[:, 0] - 3).sigmoid()).long()


def trained(network, loss, x, y, *, epochs, lr, size=64, sampler=None):
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        if sampler is not None:
            order = torch.multinomial(sampler, len(x), replacement=True, generator=generator)
        for rows in order.split(size):
            optimizer.zero_grad()
            loss(network(x[rows]), y[rows]).backward()
            optimizer.step()
    return network.eval()


@torch.no_grad()
def logits_of(network, x):
    return network(x)


@pytest.mark.parametrize("kind", ["binary", "multiclass", "multilabel"])
def test_a_balanced_sampler_and_the_true_shares(kind):
    """The argmax is that of training without the sampler."""
    (x, y), (fresh, truth) = linear(3000, 0), linear(20_000, 1)
    counts, many = y.bincount().double(), kind == "multilabel"
    target = y.unsqueeze(1).double() if many else y

    def f1(sampler, **shares):
        torch.manual_seed(0)
        network = nn.Linear(4, 2 if kind == "multiclass" else 1)
        loss = AlignedLoss("f1_macro" if many else "f1", task=kind, **shares)
        trained(network, loss, x, target, epochs=5, lr=0.1, size=256, sampler=sampler)
        logits = logits_of(network, fresh)
        return f1_score(truth, logits.argmax(1) if kind == "multiclass" else logits[:, 0] > 0)

    balanced, plain = 1 / counts[y], f1(None)
    shares = counts.unsqueeze(0) if many else counts
    found = f1(balanced, class_shares=shares)
    assert found > plain - 0.01
    assert f1(balanced, class_shares=shares / len(y)) == found
    assert f1(balanced) < plain - 0.05


def test_rows_that_are_sampled_as_they_come_need_no_shares():
    logits, y, _ = batch("multiclass", rows=400)
    y = y.clamp(min=0)
    loss, plain = AlignedLoss("f1_macro", class_shares=y.bincount()), AlignedLoss("f1_macro")
    for _ in range(3):
        assert_same(loss(logits, y), plain(logits, y), logits)
    assert_same_state(loss, plain)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"metric": "f1_marco"}, "metric of AlignedLoss must be a name of metrics.names(). Got"),
        ({"metric_weight": -1}, "metric_weight of AlignedLoss must be"),
        ({"metric_weight": "much"}, "metric_weight of AlignedLoss must be"),
        ({"label_smoothing": 1}, "label_smoothing of AlignedLoss must lie in [0, 1). Got 1."),
        ({"class_weight": "balance"}, 'class_weight of AlignedLoss must be "auto", "balanced", nu'),
        ({"class_weight": [0, 1]}, "class_weight of AlignedLoss must"),
        ({"class_shares": [0.5, 0.0]}, "class_shares of AlignedLoss must hold two or more"),
        ({"class_shares": [0.5, math.nan]}, "class_shares of AlignedLoss must hold two or more"),
        (
            {"class_shares": 0.5},
            "class_shares of AlignedLoss must hold two or more positive numbers",
        ),
        ({"class_shares": [[1, 2, 3]]}, "class_shares of AlignedLoss must hold two or more"),
        ({"temperature": 0.5}, "temperature of AlignedLoss must lie in (0, 0.4]. Got 0.5."),
        ({"momentum": 0}, "momentum of AlignedLoss must lie in (0, 1]"),
        ({"momentum": None}, "momentum of AlignedLoss must lie in (0, 1]"),
    ],
)
def test_what_is_refused(arguments, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        AlignedLoss(**{"metric": "f1"} | arguments)


@pytest.mark.parametrize(
    ("argument", "value", "kind", "allowed"),
    [
        ("class_shares", [4, 2], "multiclass", "have shape (3,), one number for each class. Got"),
        ("class_shares", [4, 2, 1], "binary", "have shape (2,), one number for each class. Got"),
        ("class_shares", [4, 2, 1], "multilabel", "have shape (3, 2), a pair (absent, present)"),
        ("class_shares", [[4, 2]] * 3, "multiclass", "have shape (3,), one number for each class."),
        ("class_shares", [4, 2, 1], "mixup", "be None for rows of class probabilities. Got shares"),
        ("class_weight", [4, 2], "multiclass", "hold a number for each of the 3 classes. Got 2"),
        ("class_weight", "balanced", "multilabel", "be numbers or None for a multilabel problem."),
        ("metric", lambda c: c.tp.detach().sum(), "multiclass", "be finite, and differentiable"),
        ("metric", lambda c: c.tp.sum() * math.nan, "multiclass", "be finite, and differentiable"),
    ],
)
def test_what_a_batch_shows_to_be_wrong(argument, value, kind, allowed):
    settings = {"metric": "f1_macro", argument: value}
    logits, y, _ = batch("multiclass" if kind == "mixup" else kind)
    if kind == "mixup":
        settings, y = settings | {"task": "multiclass"}, logits.detach().softmax(1)
    with pytest.raises(ValueError, match=re.escape(f"{argument} of AlignedLoss must {allowed}")):
        AlignedLoss(**settings)(logits, y)


def test_the_number_of_classes_is_kept():
    loss = AlignedLoss("f1_macro")
    loss(*batch("multiclass")[:2])
    with pytest.raises(
        ValueError, match="logits of AlignedLoss must keep the task and the 3 classes of the ba"
    ):
        loss(torch.randn(6, 4, requires_grad=True), torch.arange(6) % 3)


# Images.


@pytest.mark.parametrize("metric", ["jaccard_macro", "matthews_corrcoef", "cohen_kappa_quadratic"])
def test_the_metric_of_each_image(metric):
    """The offsets are those of all images together."""
    loss, pooled = AlignedLoss(metric, per_image=True), AlignedLoss(metric)
    for seed in range(2):
        logits, y, _ = batch("images", seed)
        y[0][y[0] == 2] = 1  # a class that this image alone lacks
        loss(logits, y), pooled(logits, y)
    assert_same_state(loss, pooled)
    alone = MetricLoss(metric)
    expected = torch.stack([alone(logits[i : i + 1], y[i : i + 1]) for i in range(2)]).mean()
    assert_same(MetricLoss(metric, per_image=True)(logits, y), expected, logits)
    entropy = AlignedLoss(metric, metric_weight=0)
    entropy.load_state_dict(loss.state_dict())
    value = loss.eval()(logits, y)
    assert_same(value, entropy.eval()(logits, y) + 0.3 * expected, logits)


@pytest.mark.parametrize("by_row", [False, True])
def test_an_image_of_weight_nine_is_nine_images(by_row):
    logits, y, _ = batch("images")
    weight, copies = torch.tensor([1.0, 9.0]), [0, *[1] * 9]
    if by_row:
        weight = weight.view(-1, 1, 1).expand(y.shape)
    for loss in (MetricLoss("f1_macro", per_image=True), AlignedLoss("f1_macro", per_image=True)):
        repeated = loss.eval()(logits[copies], y[copies])
        assert_same(loss(logits, y, sample_weight=weight), repeated, logits)


def test_rows_of_labels_are_images():
    """Then micro-F1 is what scikit-learn calls the F1 of samples."""
    logits, y, _ = batch("multilabel")
    y = y.clamp(min=0)
    sharp = MetricLoss("f1_micro", per_image=True, temperature=1e-9)
    expected = f1_score(y, logits.detach() > 0, average="samples", zero_division=0)
    assert 1 - sharp(logits, y).item() == pytest.approx(expected, abs=tolerances.LIMIT)


@pytest.mark.parametrize(
    "metric",
    [
        metrics.Recall(average="macro", labels=[2], zero_division=float("nan")),
        metrics.MatthewsCorrcoef(zero_division=float("nan")),
    ],
    ids=["recall", "mcc"],
)
def test_images_without_a_score_are_left_out(metric):
    """They would count as perfect ones."""
    logits, y, _ = batch("images")
    y[0] = 1
    expected = MetricLoss(metric)(logits[1:2], y[1:2])
    assert expected > 0
    assert_same(MetricLoss(metric, per_image=True)(logits, y), expected, logits)


def test_a_function_that_looks_at_values_is_asked_image_by_image():
    def accuracy(c):
        return c.tp.sum() / c.total if c.total > 0 else c.total

    logits, y, _ = batch("images")
    expected = MetricLoss("accuracy", per_image=True)(logits, y)
    assert_same(MetricLoss(accuracy, per_image=True)(logits, y), expected, logits)


def test_labels_of_images_have_thresholds_of_their_own():
    logits, y, _ = batch("multilabel", rows=6)
    logits, y = logits.view(3, 3, 2), y.view(3, 3, 2)
    settings = {"threshold": [0.3, 0.5, 0.7], "task": "multilabel"}
    alone = MetricLoss("f1_macro", **settings)
    expected = torch.stack([alone(logits[i : i + 1], y[i : i + 1]) for i in range(3)]).mean()
    assert_same(MetricLoss("f1_macro", per_image=True, **settings)(logits, y), expected, logits)


# Training.


def test_who_validates_leaves_out_the_same_rows():
    """`fit` asks the loss which label to ignore."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.arange(60) % 2
    y[::5] = 255
    loss = AlignedLoss("f1", ignore_index=255)
    settings = Settings(epochs=1, batch_size=32)
    (record,) = fit(nn.Linear(4, 2), loss, x, y, validation=(x, y), metric="f1", settings=settings)
    assert 0 <= record["validation_metric"] <= 1


def patches(rows, seed):
    """Make images of noise, with a faint bright patch somewhere in one of eight."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(rows, generator=generator) < 1 / 8).long()
    x = torch.randn(rows, 1, 12, 12, generator=generator)
    where = torch.randint(9, (rows, 2), generator=generator)
    for image, (i, j), label in zip(x, where.tolist(), y.tolist(), strict=True):
        image[:, i : i + 4, j : j + 4] += 0.7 * label
    return x, y


def convolutional():
    torch.manual_seed(0)
    features = nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten()
    return nn.Sequential(*features, nn.Linear(8, 2))


@pytest.mark.slow
def test_in_the_place_of_cross_entropy_in_a_network_of_images():
    (x, y), (held_out, known), (fresh, truth) = patches(2000, 0), patches(1000, 1), patches(5000, 2)
    loss = AlignedLoss("f1")
    aligned, plain = (
        trained(convolutional(), criterion, x, y, epochs=8, lr=0.01)
        for criterion in (loss, nn.CrossEntropyLoss())
    )
    rule = fit_decision(logits_of(aligned, held_out), known, metric="f1", offsets=loss.offsets)
    baseline = f1_score(truth, logits_of(plain, fresh).argmax(1))
    logits = logits_of(aligned, fresh)
    # Of 5,000 images some 625 are positive: an F1 has a standard error of about 0.017.
    for labels in (logits.argmax(1), rule(logits)):
        assert f1_score(truth, labels) > baseline + 0.02


def test_a_rule_for_labels_takes_the_offsets():
    logits, y, _ = batch("multilabel", rows=300)
    y, loss, logits = y.clamp(min=0), AlignedLoss("f1_macro"), logits.detach()
    loss(logits.clone().requires_grad_(), y)
    how = {"metric": "f1_macro", "decision": "expected"}
    rule = fit_decision(logits, y.bool(), offsets=loss.offsets, **how)
    p = (logits + loss.offsets).sigmoid()
    probable = fit_decision(probabilities=p, task="multilabel", **how)
    given = probable(probabilities=p)
    assert torch.equal(torch.as_tensor(rule(logits)), torch.as_tensor(given))
