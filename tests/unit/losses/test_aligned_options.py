"""AlignedLoss: many labels, images, class weights, smoothing, counts that it learns, and scale."""

import copy
import io

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score
from torch.nn import functional as F

from evalign import (
    AlignedLoss,
    MetricLoss,
    TemperatureAnnealing,
    exact_backward,
    fit_decision,
    metrics,
)
from evalign.losses.offsets import metric_offsets
from tests import tolerances
from tests.kernels.fused_loss import assert_one_is_as_several, learning, pairs, rows_of

COUNTS = [50, 30, 15, 5]
NEAR = {"rtol": 0, "atol": tolerances.SAME}


def images(seed=0, classes=4):
    """Make logits (3, C, 5, 4), and labels of which some are ignored: all of the last image."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(3, classes, 5, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (3, 5, 4), generator=generator)
    y[:, 0, ::2] = -100
    y[2] = -100
    return logits.requires_grad_(), y


def labels(seed=0, count=4, rows=40):
    """Make logits (N, L), and 0/1 labels of which some are ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, count, generator=generator, dtype=torch.float64)
    y = (torch.rand(rows, count, generator=generator) < 0.3).double()
    y[::6, 1] = -100
    return logits.requires_grad_(), y


def assert_same(value, expected, logits):
    torch.testing.assert_close(value, expected, **NEAR)
    gradients = (torch.autograd.grad(loss, logits, retain_graph=True) for loss in (value, expected))
    torch.testing.assert_close(*gradients, **NEAR)


# Many labels a row.


def pairs_of(y):
    """Count the negatives and positives of every label that are not ignored."""
    return torch.stack([(y == 0).sum(0), (y == 1).sum(0)], 1).double()


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize(("stem", "score"), [("f1", f1_score), ("jaccard", jaccard_score)])
def test_offsets_of_labels_are_those_of_differences(stem, score, average):
    """A label is given from the odds on at which a few rows more change nothing, to first order.

    The score is scikit-learn's of every label, of a classifier that is right half of the time.
    """
    shares, few = np.array([0.02, 0.3, 0.7]), 1e-6
    negative = 1 - shares
    guessed = np.stack([[negative**2, negative * shares], [shares * negative, shares**2]])
    right = np.stack([[negative, 0 * shares], [0 * shares, shares]])
    cells = (guessed + right) / 2  # true, predicted, label

    def scored(cells):
        if average == "micro":
            cells = cells.sum(2, keepdims=True)
        each = [
            score([0, 0, 1, 1], [0, 1, 0, 1], sample_weight=cells[..., k].ravel())
            for k in range(cells.shape[2])
        ]
        return np.average(each, weights=shares if average == "weighted" else None)

    def slope(true, predicted, label):
        moved = np.zeros_like(cells)
        moved[true, predicted, label] = few
        return (scored(cells + moved) - scored(cells - moved)) / (2 * few)

    expected = [
        (slope(0, 0, k) - slope(0, 1, k)) / (slope(1, 1, k) - slope(1, 0, k)) for k in range(3)
    ]
    found = metric_offsets(metrics.resolve(f"{stem}_{average}"), np.stack([negative, shares], 1))
    np.testing.assert_allclose(found, np.log(expected), rtol=0, atol=tolerances.SLOPES)


def test_labels_are_binary_cross_entropies_and_the_metric():
    first, second = labels(), labels(1)
    loss = AlignedLoss("f1_macro", pairs_of(first[1]), momentum=0.3)
    alone = MetricLoss("f1_macro", statistics="running", momentum=0.3)
    for logits, y in (first, second):
        seen = y != -100
        entropy = F.binary_cross_entropy_with_logits((logits + loss.offsets)[seen], y[seen])
        assert_same(loss(logits, y), entropy + alone(logits, y), logits)


def test_a_rule_for_labels_takes_the_offsets():
    logits, y = labels(rows=300)
    y[y == -100] = 0
    loss = AlignedLoss("f1_macro", pairs_of(y))
    rule = fit_decision(
        logits.detach(), y.bool(), metric="f1_macro", decision="expected", offsets=loss.offsets
    )
    probable = fit_decision(
        probabilities=(logits + loss.offsets).sigmoid().detach(),
        metric="f1_macro",
        decision="expected",
        task="multilabel",
    )
    given = probable(probabilities=(logits + loss.offsets).sigmoid().detach())
    assert torch.equal(torch.as_tensor(rule(logits.detach())), torch.as_tensor(given))


# Class weights and smoothing are those of torch.


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, [0.5, 1.0, 2.0, 8.0]])
def test_cross_entropy_of_images_is_that_of_torch(weights, smoothing):
    logits, y = images()
    loss = AlignedLoss(
        "jaccard_macro",
        COUNTS,
        metric_weight=0,
        class_weight=weights,
        label_smoothing=smoothing,
    )
    factor = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    shift = loss.offsets if factor is None else loss.offsets + factor.log()
    moved = logits + shift.view(-1, 1, 1)
    expected = F.cross_entropy(moved, y, weight=factor, label_smoothing=smoothing)
    assert_same(loss(logits, y), expected, logits)


def test_weights_and_smoothing_of_two_classes():
    logits, y = images(classes=1)
    y = torch.where(y == 0, torch.arange(20).view(5, 4) % 3 // 2, y)
    loss = AlignedLoss(
        "f1", [9, 4], metric_weight=0, class_weight=[1, 5], label_smoothing=0.2, task="binary"
    )
    two = torch.cat([torch.zeros_like(logits), logits], 1)
    weight = torch.tensor([1.0, 5.0], dtype=torch.float64)
    moved = two + (loss.offsets + weight.log()).view(-1, 1, 1)
    expected = F.cross_entropy(moved, y, weight=weight, label_smoothing=0.2)
    assert_same(loss(logits, y), expected, logits)


def test_weights_and_smoothing_of_labels():
    logits, y = labels()
    loss = AlignedLoss(
        "f1_macro", [[3, 1]] * 4, metric_weight=0, class_weight=COUNTS, label_smoothing=0.2
    )
    weight = torch.tensor(COUNTS) * (y != -100)
    target = torch.where(y == -100, 0, 0.8 * y + 0.1)
    each = F.binary_cross_entropy_with_logits(logits + loss.offsets, target, reduction="none")
    assert_same(loss(logits, y), (weight * each).sum() / weight.sum(), logits)


@pytest.mark.parametrize("weight", [None, [3.0, 1.0, 0.2, 5.0], "balanced"])
def test_weights_leave_probabilities_and_offsets_alone(weight):
    """Where softmax(logits + offsets) are the probabilities of the rows, no logit has a slope."""
    loss = AlignedLoss(
        "jaccard_macro", COUNTS, metric_weight=0, class_weight=weight, task="multiclass"
    )
    asked = metric_offsets(metrics.resolve("jaccard_macro"), torch.tensor(COUNTS))
    torch.testing.assert_close(loss.offsets, asked, **NEAR)
    p = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)
    logits = (p.log() - loss.offsets).requires_grad_()
    (slope,) = torch.autograd.grad(loss(logits, p), logits)
    torch.testing.assert_close(slope, torch.zeros_like(slope), **NEAR)


@pytest.mark.parametrize("learnt", [False, True])
@pytest.mark.parametrize("classes", [1, 4])
def test_pixels_are_weighted_by_the_roots_of_the_counts(classes, learnt):
    logits, y = images(classes=classes)
    if classes == 1:
        y = torch.where(y == 0, torch.arange(20).view(5, 4) % 3 // 2, y)
    counts = y[y >= 0].bincount(minlength=max(2, classes)).double()
    given = None if learnt else counts
    loss, plain = AlignedLoss("f1_macro", given), AlignedLoss("f1_macro", given, class_weight=None)
    explicit = AlignedLoss("f1_macro", given, class_weight=counts**-0.5)
    if learnt:  # nothing is known before the first batch
        assert torch.equal(loss(logits, y), plain(logits, y))
        explicit(logits, y)
    assert_same(loss(logits, y), explicit(logits, y), logits)
    assert not torch.isclose(loss(logits, y), plain(logits, y))


def test_other_rows_have_no_weights():
    logits, y = images()
    many = labels(), (logits.flatten(2), y.flatten(1)), (logits[:, :, 0, 0], y[:, 0, 0])
    for rows in many:
        values = []
        for weight in ("auto", None):
            loss = AlignedLoss("f1_macro", class_weight=weight)
            loss(*rows)
            values.append(loss(*rows))
        assert torch.equal(*values)


@pytest.mark.parametrize("learnt", [False, True])
def test_balanced_weights_are_those_by_the_counts(learnt):
    logits, y = images()
    counts = y[y >= 0].bincount(minlength=4).double()
    loss = AlignedLoss("jaccard_macro", None if learnt else counts, class_weight="balanced")
    if learnt:
        loss(logits, y)
        loss.metric_loss.running.reset()
    moved = logits + (loss.offsets - counts.log()).view(-1, 1, 1)
    expected = F.cross_entropy(moved, y, 1 / counts) + MetricLoss("jaccard_macro")(logits, y)
    torch.testing.assert_close(loss(logits, y), expected, **NEAR)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_of_weights_and_counts_does_not_matter(scale):
    logits, y = images()
    numbers = torch.tensor(COUNTS).double()
    for make in (
        lambda scale: AlignedLoss("f1_macro", COUNTS, class_weight=scale * numbers),
        lambda scale: AlignedLoss("f1_macro", scale * numbers, class_weight="balanced"),
        lambda scale: AlignedLoss("f1_macro", scale * numbers),
    ):
        assert_same(make(scale)(logits, y), make(1)(logits, y), logits)


# Images, and some of the classes.


@pytest.mark.parametrize("metric", ["jaccard_macro", "matthews_corrcoef", "cohen_kappa_quadratic"])
def test_the_metric_of_each_image(metric):
    logits, y = images()
    y[0][y[0] == 3] = 2  # a class that this image alone lacks
    alone = MetricLoss(metric)
    expected = torch.stack([alone(logits[i : i + 1], y[i : i + 1]) for i in range(2)]).mean()
    assert_same(MetricLoss(metric, per_image=True)(logits, y), expected, logits)
    with_entropy = AlignedLoss(metric, COUNTS, per_image=True).eval()
    entropy = AlignedLoss(metric, COUNTS, metric_weight=0).eval()(logits, y)
    assert_same(with_entropy(logits, y), entropy + expected, logits)


@pytest.mark.parametrize("by_row", [False, True])
def test_an_image_of_weight_nine_is_nine_images(by_row):
    logits, y = images()
    weight, copies = torch.tensor([1.0, 9.0, 5.0]), [0, *[1] * 9, 2]
    if by_row:
        weight = weight.view(-1, 1, 1).expand(y.shape)
    for loss in (MetricLoss("f1_macro", per_image=True), AlignedLoss("f1_macro", per_image=True)):
        repeated = loss.eval()(logits[copies], y[copies])
        assert_same(loss(logits, y, sample_weight=weight), repeated, logits)


def test_rows_of_labels_are_images():
    """Then micro-F1 is what scikit-learn calls the F1 of samples."""
    logits, y = labels(rows=25)
    y[y == -100] = 0
    sharp = MetricLoss("f1_micro", per_image=True, temperature=1e-9)
    expected = f1_score(y, logits.detach() > 0, average="samples", zero_division=0)
    assert 1 - sharp(logits, y).item() == pytest.approx(expected, abs=tolerances.LIMIT)


def test_images_without_rows_are_left_out_and_none_give_nothing():
    loss = AlignedLoss("jaccard_macro", COUNTS, per_image=True)
    for rows in (slice(2, 3), slice(0, 0)):
        logits, y = (x[rows] for x in images())
        value = loss(logits, y)
        assert value == 0
        assert not torch.autograd.grad(value, logits)[0].any()


@pytest.mark.parametrize(
    "metric",
    [
        metrics.Recall(average="macro", labels=[3], zero_division=float("nan")),
        metrics.MatthewsCorrcoef(zero_division=float("nan")),
    ],
    ids=["recall", "mcc"],
)
def test_images_without_a_score_are_left_out(metric):
    """They would count as perfect ones."""
    logits, y = images()
    y[0] = 1
    expected = MetricLoss(metric)(logits[1:2], y[1:2])
    assert expected > 0
    assert_same(MetricLoss(metric, per_image=True)(logits, y), expected, logits)


def test_a_function_that_looks_at_values_is_asked_image_by_image():
    def accuracy(c):
        return c.tp.sum() / c.total if c.total > 0 else c.total

    logits, y = images()
    expected = MetricLoss("accuracy", per_image=True)(logits, y)
    assert_same(MetricLoss(accuracy, per_image=True)(logits, y), expected, logits)


def test_labels_of_images_have_thresholds_of_their_own():
    logits, y = labels(count=2, rows=6)
    logits, y, taus = logits.view(3, 2, 2), y.view(3, 2, 2), [0.3, 0.7]
    settings = {"threshold": taus, "task": "multilabel"}
    alone = MetricLoss("f1_macro", **settings)
    expected = torch.stack([alone(logits[i : i + 1], y[i : i + 1]) for i in range(3)]).mean()
    assert_same(MetricLoss("f1_macro", per_image=True, **settings)(logits, y), expected, logits)


def test_two_classes_in_images_have_one_threshold():
    loss = MetricLoss("f1", threshold=[0.3, 0.7], per_image=True)
    with pytest.raises(ValueError, match="be one number with per_image in a binary task"):
        loss(torch.zeros(2, 1, 3), torch.zeros(2, 1, 3))


def test_running_statistics_are_not_of_images():
    with pytest.raises(ValueError, match='statistics of MetricLoss must be "batch" with per_image'):
        MetricLoss("f1_macro", per_image=True, statistics="running")


def test_the_background_may_be_left_out():
    logits, y = images()
    subset = metrics.Jaccard(average="macro", labels=(1, 2, 3))
    loss = AlignedLoss("jaccard_macro", COUNTS, labels=[1, 2, 3])
    twin = AlignedLoss(subset, COUNTS)
    torch.testing.assert_close(loss.offsets, twin.offsets, rtol=0, atol=0)
    assert loss.metric_loss.metric == subset
    assert_same(loss(logits, y), twin(logits, y), logits)


# The counts that are learnt.


@pytest.mark.parametrize(
    "kind", ["rows", "full matrix", "weights", "balanced", "images", "labels", "binary"]
)
def test_counts_are_those_of_the_batches(kind):
    settings = {
        "images": {"per_image": True},
        "weights": {"class_weight": COUNTS},
        "balanced": {"class_weight": "balanced"},
    }.get(kind, {})
    metric = {"full matrix": "cohen_kappa_quadratic", "binary": "f1"}.get(kind, "f1_macro")
    loss = AlignedLoss(metric, **settings)
    assert loss.offsets is None
    counts = 0
    for seed in range(3):
        logits, y = labels(seed) if kind == "labels" else images(seed)
        if kind == "binary":
            logits, y = logits[:, :1], torch.where(y > 0, 1, y)
        here = pairs_of(y) if kind == "labels" else y[y != -100].bincount(minlength=4)
        counts = counts + (here[:2] if kind == "binary" else here)
        loss(logits, y)
        loss.eval()(logits, y)  # only training counts
        with torch.no_grad():
            loss.train()(logits, y)
    assert torch.equal(loss.counts, counts.double())
    expected = AlignedLoss(metric, counts, **settings).offsets
    torch.testing.assert_close(loss.offsets, expected, **NEAR)


def test_a_batch_has_the_offsets_of_the_batches_before():
    loss, (first, second) = AlignedLoss("f1_macro"), [images(seed) for seed in range(2)]
    entropy = F.cross_entropy(*first)
    metric = MetricLoss("f1_macro")(*first)
    torch.testing.assert_close(loss(*first), entropy + metric, **NEAR)
    given = AlignedLoss("f1_macro", first[1][first[1] >= 0].bincount())
    given.metric_loss.load_state_dict(loss.metric_loss.state_dict())
    assert_same(loss(*second), given(*second), second[0])


def test_one_function_learns_as_several():
    loss, twin = pairs(lambda: learning("multiclass", metric_weight=0.7))
    batches = [rows_of("multiclass", seed=seed) for seed in range(3)]
    assert_one_is_as_several(loss, twin, batches, atol=tolerances.SAME)
    assert loss.counts.sum() > 16


def test_a_class_that_has_not_come_is_rare():
    loss = AlignedLoss("balanced_accuracy")
    logits = torch.randn(6, 3, requires_grad=True)
    loss(logits, torch.full((6,), -100))
    assert loss.offsets.tolist() == [0, 0, 0]  # nothing is known
    loss(logits, torch.tensor([0, 0, 0, 0, 1, 1]))
    assert loss.offsets.exp().tolist() == pytest.approx([1, 0.5, 1e-4])
    assert loss(logits, torch.arange(6) % 3).isfinite()
    with pytest.raises(ValueError, match="logits of AlignedLoss must keep the 3 classes of the ba"):
        loss(torch.randn(6, 4, requires_grad=True), torch.arange(6) % 3)


def test_a_batch_without_rows_teaches_nothing():
    for metric, target in [("f1", torch.arange(6) % 3 == 0), ("f1_macro", torch.eye(3) == 1)]:
        logits = torch.randn(target.shape, requires_grad=True)
        loss = AlignedLoss(metric)
        loss(logits[:0], target[:0])
        assert not loss.offsets.any()  # nor has a label that has not come an offset
        assert_same(loss(logits, target), AlignedLoss(metric)(logits, target), logits)


def test_what_was_learnt_is_in_the_state_dict():
    first, second = images(), images(1)
    loss, other, fresh = (AlignedLoss("f1_macro", class_weight="balanced") for _ in range(3))
    loss(*first)
    loss(*second)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other.offsets, loss.offsets)
    assert_same(other(*second), copy.deepcopy(loss)(*second), second[0])
    other.load_state_dict(fresh.state_dict())
    assert other.offsets is None
    assert other.counts is None
    given = AlignedLoss("f1_macro", COUNTS)
    changed = AlignedLoss("f1_macro", COUNTS)
    changed.offsets.zero_()
    given.load_state_dict(changed.state_dict())
    assert not given.offsets.any()


def test_micro_batches_teach_what_the_whole_batch_does():
    model = torch.nn.Linear(6, 4).double()
    x, y = torch.randn(30, 6, dtype=torch.float64), torch.arange(30) % 4
    whole, parts = AlignedLoss("f1_macro"), AlignedLoss("f1_macro")
    for _ in range(2):
        model.zero_grad()
        value = whole(model(x), y)
        value.backward()
        expected = model.weight.grad.clone()
        model.zero_grad()
        found = exact_backward(parts, model, list(zip(x.split(7), y.split(7), strict=True)))
        torch.testing.assert_close(found, value, check_dtype=False, **NEAR)
        torch.testing.assert_close(model.weight.grad, expected, **NEAR)
        assert torch.equal(parts.counts, whole.counts)
        torch.testing.assert_close(parts.offsets, whole.offsets, **NEAR)


# As other losses with a step, and as a function.


def test_annealing_cools_it():
    loss, (logits, y) = AlignedLoss("f1_macro", COUNTS, temperature=0.3), images()
    annealing = TemperatureAnnealing(loss, start=0.2, rate=0.5, patience=1)
    for score in (0.5, 0.5):
        annealing.step(score)
    assert loss.temperature == loss.metric_loss.temperature == 0.1
    cool = AlignedLoss("f1_macro", COUNTS, temperature=0.1)
    assert torch.equal(loss(logits, y), cool(logits, y))


@pytest.mark.parametrize("settings", [{}, {"per_image": True, "class_weight": COUNTS}])
@pytest.mark.parametrize("counts", [COUNTS, None])
def test_a_function_in_training_leaves_no_trace(counts, settings):
    """What torch.func transforms has no state: statistics and counts stay as they are."""
    batches = [rows_of("multiclass", seed=seed)[:2] for seed in range(3)]
    logits, y = (torch.stack(parts) for parts in zip(*batches, strict=True))
    for trained in (False, True):
        loss = AlignedLoss("f1_macro", counts, **settings)
        if trained:
            loss(logits[0].clone().requires_grad_(), y[0])
        before = copy.deepcopy(loss)
        gradients, values = torch.func.vmap(torch.func.grad_and_value(loss))(logits, y)
        for i in range(3):
            leaf = logits[i].clone().requires_grad_()
            value = copy.deepcopy(before)(leaf, y[i])
            (gradient,) = torch.autograd.grad(value, leaf)
            torch.testing.assert_close((values[i], gradients[i]), (value, gradient), **NEAR)
        state = loss.state_dict()
        assert state.keys() == before.state_dict().keys()
        assert all(torch.equal(state[name], value) for name, value in before.state_dict().items())


def test_a_stack_learns_as_each_alone():
    """With its state as an argument, a function of many losses moves the state of each."""
    steps = [[rows_of("multiclass", seed=3 * step + i)[:2] for i in range(2)] for step in range(3)]
    alone = [AlignedLoss("f1_macro") for _ in range(2)]
    for loss, (logits, y) in zip(alone, steps[0], strict=True):
        loss(logits.requires_grad_(), y)
    stack = copy.deepcopy(alone)
    _, state = torch.func.stack_module_state(stack)

    def value_of(state, logits, y):
        return torch.func.functional_call(stack[0], state, (logits, y))

    for batches in steps[1:]:
        logits, y = (torch.stack(parts) for parts in zip(*batches, strict=True))
        found = torch.func.vmap(value_of)(state, logits.requires_grad_(), y)
        for i, (loss, batch) in enumerate(zip(alone, batches, strict=True)):
            expected = loss(batch[0].clone().requires_grad_(), batch[1])
            torch.testing.assert_close(found[i], expected, **NEAR)
    for i, loss in enumerate(alone):
        torch.testing.assert_close(state["offsets"][i], loss.offsets, **NEAR)
        torch.testing.assert_close(state["counts"][i], loss.counts, **NEAR)
