"""Bounds on the difference between groups of rows, in training."""

import copy

import numpy as np
import pytest
import torch

from evalign import AlignedLoss, Confusion, MetricLoss, exact_backward, metrics
from evalign.core import membership
from evalign.core.batch import Batch
from evalign.core.constraints import OfClass, parse
from evalign.core.groups import MOST, confusion_by_group
from evalign.losses.multipliers import PENALTY, RATE, _room
from tests import tolerances

TASKS = ("binary", "multiclass", "multilabel")
BOUND = 0.05


def rows(task, seed=0, count=40):
    """Make logits, a target and three groups, of which the second has higher logits."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count,) if task == "binary" else (count, 3)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    groups = torch.randint(3, (count,), generator=generator)
    logits[groups == 1] += torch.tensor(1.0 if task == "binary" else [0.0, 1.0, 0.0])
    if task == "multiclass":
        return logits, torch.arange(count) % 3, groups
    return logits, torch.rand(shape, generator=generator) < 0.5, groups


def name_of(task, metric="recall"):
    return metric if task == "binary" else f"{metric}[1]"


def bounded(task, metric="recall", make=MetricLoss, **settings):
    goal = "f1" if task == "binary" else "f1_macro"
    return make(goal, constraint=f"gap({name_of(task, metric)}) <= {BOUND}", **settings)


def multipliers(loss):
    return (loss.metric_loss if isinstance(loss, AlignedLoss) else loss).multipliers


def slope(loss, logits, target, **more):
    logits = logits.clone().requires_grad_()
    value = loss(logits, target, **more)
    return value.detach(), *torch.autograd.grad(value, logits)


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerances.SAME)


def hard_recalls(task, logits, target, groups):
    """Count with numpy, label by label."""
    if task == "multiclass":
        labels, truth = logits.argmax(1) == 1, target == 1
    else:
        labels, truth = logits > 0, target
        labels, truth = (labels[:, 1], truth[:, 1]) if task == "multilabel" else (labels, truth)
    labels, truth, groups = labels.numpy(), truth.numpy(), groups.numpy()
    return [
        (labels & truth & (groups == g)).sum() / (truth & (groups == g)).sum() for g in range(3)
    ]


def soft_gap(task, metric, logits, target, groups):
    """The gap of the soft matrix of each group's rows by themselves, from the cells by hand."""
    values = []
    for g in groups.unique():
        c = Confusion.from_logits(logits[groups == g], target[groups == g])
        total = c.total[1] if task == "multilabel" else c.total
        of = {
            "recall": c.tp[1] / c.actual[1],
            "fpr": c.fp[1] / (total - c.actual[1]),
            "precision": c.tp[1] / c.predicted[1],
            "predicted_rate": c.predicted[1] / total,
        }
        values.append(of[metric])
    return torch.stack(values).amax() - torch.stack(values).amin()


@pytest.mark.parametrize("metric", ["recall", "fpr", "precision", "predicted_rate"])
@pytest.mark.parametrize("task", TASKS)
def test_what_a_batch_adds_is_the_gap_of_the_groups_by_themselves(task, metric):
    logits, target, groups = rows(task)
    logits.requires_grad_()
    loss = bounded(task, metric)
    loss.multipliers.values.fill_(0.7)
    before = MetricLoss(loss.metric)(logits, target)
    value = loss.eval()(logits, target, groups=groups)
    # The weight, λ + PENALTY·missing, is of labels and without a slope: it is read off the values.
    missing = (soft_gap(task, metric, logits, target, groups) - BOUND) / BOUND
    weight = ((value - before) / missing).detach()
    assert abs(weight.item() - 0.7) <= PENALTY + tolerances.SAME
    expected = before + weight * missing
    found, reference = (torch.autograd.grad(x, logits)[0] for x in (value, expected))
    torch.testing.assert_close(found, reference, rtol=0, atol=tolerances.SAME)


@pytest.mark.parametrize("make", [MetricLoss, AlignedLoss])
@pytest.mark.parametrize("task", TASKS)
def test_what_labels_miss_moves_the_multiplier(task, make):
    logits, target, groups = rows(task)
    loss, free = bounded(task, make=make), make("f1" if task == "binary" else "f1_macro")
    recalls = hard_recalls(task, logits, target, groups)
    gap = max(recalls) - min(recalls)
    missing = np.clip((gap - BOUND) / BOUND, -1, 1)
    lacking = (soft_gap(task, "recall", logits, target, groups).item() - BOUND) / BOUND
    expected = slope(free, logits, target)[0].item() + max(0, PENALTY * missing) * lacking
    value, _ = slope(loss, logits, target, groups=groups)
    assert value.item() == pytest.approx(expected, abs=tolerances.SAME)
    assert multipliers(loss).values.item() == pytest.approx(max(0, RATE * missing))
    (reached,) = multipliers(loss).reached().values()
    assert reached == pytest.approx(gap, abs=tolerances.SAME)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_what_is_reached_is_the_gap_of_the_labels_for_every_metric(task):
    """One group is a single row: classes that it lacks, true and as labels, must not count."""
    logits, target, groups = rows(task)
    groups[0] = 60
    classes = 2 if task == "binary" else 3
    labels = (logits > 0).long() if task == "binary" else logits.argmax(1)
    for name in metrics.names():
        (bound,) = parse(f"gap({name}) <= {BOUND}")
        if task == "multiclass" and isinstance(bound.metric, OfClass):
            continue
        loss = MetricLoss("f1_macro", constraint=bound.text)
        loss(logits, target, groups=groups)
        parts = [
            Confusion.from_predictions(
                labels[groups == g], target[groups == g].long(), num_classes=classes, matrix=True
            )
            for g in groups.unique()
        ]
        values = torch.stack([bound.metric(part) for part in parts])
        values = values[~values.isnan()]
        expected = (values.amax() - values.amin()).item() if len(values) else 0.0
        found = loss.multipliers.reached()[bound.text]
        assert found == pytest.approx(expected, abs=tolerances.SAME), name


@pytest.mark.parametrize("task", TASKS)
def test_gradcheck(task):
    logits, target, groups = rows(task, count=12)

    def value(z):
        loss = bounded(task)
        loss.multipliers.values.fill_(0.5)
        return loss(z, target, groups=groups)

    assert torch.autograd.gradcheck(value, logits.clone().requires_grad_())


@pytest.mark.parametrize("task", TASKS)
def test_sums_of_groups_are_those_of_their_rows(task):
    """Also with a matrix, weights and probabilities; nothing for a group without rows."""
    logits, target, groups = rows(task)
    weight = torch.rand(len(groups), generator=torch.Generator().manual_seed(3)).double()
    loss = bounded(task)
    given = loss.rows(logits, target, weight, groups)
    batch = Batch.of(given)
    soft = membership.of_batch("test", batch)
    found = confusion_by_group(batch, soft, matrix=task != "multilabel")
    assert found.tp.shape[0] == MOST
    for g in range(MOST):
        own = groups == g
        expected = Confusion.from_logits(
            logits[own], target[own], sample_weight=weight[own], matrix=task != "multilabel"
        )
        for x, y in zip(found.tensors(), expected.tensors(), strict=True):
            torch.testing.assert_close(x[g], y, rtol=0, atol=tolerances.SAME)


@pytest.mark.parametrize("make", [MetricLoss, AlignedLoss])
@pytest.mark.parametrize("task", TASKS)
def test_a_gap_that_does_not_bind_changes_nothing(make, task):
    free = make("f1" if task == "binary" else "f1_macro")
    loose = make(
        free.metric_loss.metric if make is AlignedLoss else free.metric,
        constraint=f"gap({name_of(task)}) <= 0.99",
    )
    for seed in range(3):
        logits, target, groups = rows(task, seed)
        assert_same(slope(loose, logits, target, groups=groups), slope(free, logits, target))


def test_the_best_that_meets_the_bound_is_found():
    """A shift for each of two groups is learnt; a grid of all pairs of shifts knows the answer."""
    generator = torch.Generator().manual_seed(0)
    groups, y = torch.arange(1200) % 2, torch.arange(1200) // 2 % 3 == 0
    apart = torch.tensor([2.5, 1.0], dtype=torch.float64)[groups]  # the second group is harder
    z = torch.randn(1200, generator=generator, dtype=torch.float64) + apart * (y.double() - 0.5)
    z = 3 * z  # beside which the step is narrow, and soft labels are nearly labels

    def judged(shifts):
        """Count the accuracy and the gap of pairs of shifts (K, 2)."""
        labels = z + shifts[:, groups] > 0
        recalls = [labels[:, y & (groups == g)].double().mean(1) for g in (0, 1)]
        return (labels == y).double().mean(1), (recalls[0] - recalls[1]).abs()

    line = torch.linspace(-4, 4, 33, dtype=torch.float64)
    accuracy, gap = judged(torch.cartesian_prod(line, line))
    assert gap[accuracy.argmax()] > 0.3  # there is something to do
    best = accuracy[gap <= BOUND].amax()

    loss = MetricLoss(
        "accuracy", constraint=f"gap(recall) <= {BOUND}", momentum=1.0, temperature=0.05
    )
    shift = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([shift], 1.0)
    for _ in range(200):
        optimizer.zero_grad()
        loss(z + shift[groups], y.long(), groups=groups).backward()
        optimizer.step()
    (found,), (left,) = judged(shift.detach().unsqueeze(0))
    assert left <= BOUND + 0.01  # it swings about the bound by a row or two of 200
    assert found > best - 0.01
    assert loss.multipliers.values.item() > 0


def test_groups_may_come_and_go():
    """The average remembers a group that a batch lacks, and one group alone has no gap."""
    logits, target, groups = rows("binary", count=200)
    loss = bounded("binary", momentum=0.5)
    for g in (0, 1):
        slope(loss, logits[groups == g], target[groups == g], groups=groups[groups == g])
        if g == 0:
            assert list(loss.multipliers.reached().values()) == [0.0]
    first, second, _ = hard_recalls("binary", logits, target, groups)
    (reached,) = loss.multipliers.reached().values()
    assert reached == pytest.approx(abs(first - second), abs=tolerances.SAME)


def test_a_group_without_a_row_of_the_class_does_not_count():
    logits, target, groups = rows("binary")
    without = target & (groups != 2)
    loss, two = bounded("binary"), bounded("binary")
    some = groups != 2
    found, expected = (
        slope(loss, logits, without, groups=groups),
        hard_recalls("binary", logits, target, groups),
    )
    (reached,) = loss.multipliers.reached().values()
    assert reached == pytest.approx(abs(expected[0] - expected[1]), abs=tolerances.SAME)
    slope(two, logits[some], without[some], groups=groups[some])
    assert torch.equal(loss.multipliers.values, two.multipliers.values)
    assert all(x.isfinite().all() for x in found)


def test_the_numbers_of_groups_do_not_matter_nor_do_rows_that_do_not_count():
    logits, target, groups = rows("multiclass")
    expected = slope(bounded("multiclass"), logits, target, groups=groups)
    other = torch.tensor([MOST - 1, 7, 0])[groups].to(torch.int16)
    assert_same(slope(bounded("multiclass"), logits, target, groups=other), expected)
    more = torch.cat([logits, logits]), torch.cat([target, torch.full_like(target, -100)])
    value, gradient = slope(bounded("multiclass"), *more, groups=torch.cat([groups, 2 - groups]))
    assert_same((value, gradient[: len(target)]), expected)
    assert not gradient[len(target) :].any()


def test_an_image_has_one_group_or_each_pixel_its_own():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, 4, 5, generator=generator, dtype=torch.float64)
    target = torch.randint(3, (6, 4, 5), generator=generator)
    groups = torch.arange(6) % 2
    pixels = groups.view(6, 1, 1).expand(6, 4, 5)
    expected = slope(bounded("multiclass"), logits, target, groups=pixels)
    assert_same(slope(bounded("multiclass"), logits, target, groups=groups), expected)
    last = logits.movedim(1, -1)
    value, gradient = slope(bounded("multiclass", class_dim=-1), last, target, groups=groups)
    assert_same((value, gradient.movedim(-1, 1)), expected)


@pytest.mark.parametrize("make", [MetricLoss, AlignedLoss])
def test_micro_batches_and_the_state_dict(make):
    logits, target, groups = rows("multiclass")
    whole, model = bounded("multiclass", make=make), torch.nn.Linear(3, 3).double()
    parts, again = copy.deepcopy(whole), copy.deepcopy(whole)
    value = whole(model(logits), target, groups=groups)
    expected = torch.autograd.grad(value, list(model.parameters()))
    batches = [
        (x, y, None, g)
        for x, y, g in zip(logits.split(7), target.split(7), groups.split(7), strict=True)
    ]
    found = exact_backward(parts, model, batches)
    assert_same([found, *(p.grad for p in model.parameters())], [value.detach(), *expected])
    again.load_state_dict(parts.state_dict())
    batch = rows("multiclass", seed=5)
    results = [slope(loss, *batch[:2], groups=batch[2]) for loss in (whole, parts, again)]
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])


@pytest.mark.parametrize("size", [0.0, 1e4, torch.nan])
def test_hostile_logits(size):
    for task in TASKS:
        logits, target, groups = rows(task)
        loss = bounded(task, make=AlignedLoss)
        slope(loss, logits, target, groups=groups)
        before = multipliers(loss).values.clone()
        found = slope(loss, size * logits.sign(), target, groups=groups)
        if size == size:
            assert all(x.isfinite().all() for x in found)
        else:
            assert found[0].isnan()
            assert torch.equal(multipliers(loss).values, before)
        nothing = loss(logits[:0].requires_grad_(), target[:0], groups=groups[:0])
        assert nothing == 0
        assert nothing.requires_grad


@pytest.mark.slow  # loading the compiler takes most of it
def test_a_compiled_graph():
    torch._dynamo.reset()
    eager = bounded("multiclass")
    graph = torch.compile(copy.deepcopy(eager), fullgraph=True, backend="aot_eager")
    for seed in range(2):
        logits, target, groups = rows("multiclass", seed)
        expected = slope(eager, logits, target, groups=groups)
        assert_same(slope(graph, logits, target, groups=groups), expected)
    assert eager.multipliers.values > 0
    torch.testing.assert_close(graph.multipliers.values, eager.multipliers.values)


def test_the_room_of_a_gap_begins_at_0():
    """Whatever the metric's own bounds are: no gap is below it."""
    (constraint,) = parse("gap(informedness) <= 0.1")
    assert _room(constraint) == pytest.approx(0.1)


def test_the_first_number_that_no_group_may_have():
    loss = MetricLoss("f1", constraint="gap(recall) <= 0.1")
    rows = torch.zeros(4), torch.tensor([0, 1, 0, 1])
    loss(*rows, groups=torch.full((4,), MOST - 1))
    with pytest.raises(ValueError, match=rf"from 0 to {MOST - 1}, .* Got \[{MOST}\]"):
        loss(*rows, groups=torch.full((4,), MOST))
