"""Constraints in training: multipliers that arrive where they should, and stay out where not."""

import copy
import math
import re
import warnings

import pytest
import torch

from evalign import AlignedLoss, Confusion, MetricLoss, exact_backward, score
from evalign.losses.multipliers import LARGEST, PENALTY, RATE
from tests import tolerances

BOUND = 0.9


def scores(rows=400):
    """Scores of a fixed classifier, and the truth: two normal distributions that overlap."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(rows) % 4 == 0
    return 1.5 * y + torch.randn(rows, generator=generator, dtype=torch.float64), y.long()


def moved(loss, z, y, steps=500, rate=0.05):
    """Learn the one number that is added to the scores."""
    shift = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([shift], rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(z + shift, y).backward()
        optimizer.step()
    return shift.detach()


def test_the_multiplier_arrives_at_its_known_value():
    """At the shift with a recall of 0.9, λ makes the slopes of loss and constraint cancel."""
    z, y = scores()
    loss = MetricLoss("precision", constraint=f"recall >= {BOUND}", momentum=1.0)
    shift = moved(loss, z, y, steps=400, rate=1.0)
    labels = (z + shift > 0).long()
    positives = z[y == 1].sort().values
    kept = math.ceil(BOUND * len(positives))
    best = (z >= positives[-kept]).long()  # the least that meets the bound, by brute force
    assert score("recall", labels, y) == pytest.approx(BOUND, abs=0.011)  # a row
    assert score("precision", labels, y) == pytest.approx(score("precision", best, y), abs=0.02)

    at = shift.clone().requires_grad_()
    soft = Confusion.from_logits(z + at, y)
    (of_loss,) = torch.autograd.grad(1 - soft.tp[1] / soft.predicted[1], at, retain_graph=True)
    room = 1 - BOUND
    (of_missing,) = torch.autograd.grad((BOUND - soft.tp[1] / soft.actual[1]) / room, at)
    (found,) = loss.multipliers.values
    # Labels change one row at a time, so λ swings by what a row, a hundredth of recall, is worth.
    assert found.item() == pytest.approx(-(of_loss / of_missing).item(), rel=0.05)
    assert 0 < found < 0.2


def test_labels_meet_the_bound_where_soft_labels_would_not_tell():
    z, y = scores()
    for make in (MetricLoss, AlignedLoss):
        loss = make("precision", constraint="recall >= 0.9")
        shift = moved(loss, z, y, steps=200, rate=2.0)
        assert score("recall", (z + shift > 0).long(), y) == pytest.approx(0.9, abs=0.02)


def test_a_budget_is_kept():
    z, y = scores()
    shift = moved(MetricLoss("recall", constraint="predicted_rate <= 0.2"), z, y, 200, rate=2.0)
    assert (z + shift > 0).double().mean() == pytest.approx(0.2, abs=0.01)


CONSTRAINTS = {
    "binary": "recall >= 0.01, fpr <= 0.99",
    "multiclass": "recall[2] >= 0.01, expected_cost[[0,1,1],[1,0,1],[1,1,0]] <= 1",
    "multilabel": "recall[2] >= 0.01, recall_macro >= 0.01",
}


def rows(task, seed=0, count=30):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, *[3] * (task != "binary"), generator=generator).double()
    if task == "multiclass":
        return logits, torch.arange(count) % 3
    target = torch.arange(logits.numel()).view_as(logits) % 2 == 0
    return logits, target


def slope(loss, logits, target):
    logits = logits.clone().requires_grad_()
    value = loss(logits, target)
    return value.detach(), *torch.autograd.grad(value, logits)


@pytest.mark.parametrize("task", CONSTRAINTS)
@pytest.mark.parametrize("make", [MetricLoss, AlignedLoss])
def test_a_constraint_that_does_not_bind_changes_nothing(make, task):
    metric = "f1" if task == "binary" else "f1_macro"
    free, bound = make(metric), make(metric, constraint=CONSTRAINTS[task])
    for seed in range(3):
        batch = rows(task, seed)
        for a, b in zip(slope(free, *batch), slope(bound, *batch), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=tolerances.SAME)
    found = bound.multipliers if make is MetricLoss else bound.metric_loss.multipliers
    assert found.values.tolist() == [0.0] * len(found.constraints)


@pytest.mark.parametrize("task", CONSTRAINTS)
def test_what_one_batch_adds_and_moves(task):
    """Against the formula, with rates of labels that numpy counts."""
    logits, target = rows(task)
    name = "recall" if task == "binary" else "recall[1]"
    loss = MetricLoss("accuracy" if task != "multilabel" else "f1_macro", constraint=f"{name} >= 1")
    free = MetricLoss(loss.metric)
    if task == "multiclass":
        labels, truth = logits.argmax(1) == 1, target == 1
    else:
        labels, truth = logits > 0, target
        labels, truth = (labels[:, 1], truth[:, 1]) if task == "multilabel" else (labels, truth)
    missing = 1 - (labels & truth).sum() / truth.sum()
    soft = Confusion.from_logits(logits, target)
    lacking = 1 - soft.tp[1] / soft.actual[1]
    weight = PENALTY * min(1, missing / 0.01)
    expected = free(logits, target) + weight * lacking / 0.01
    assert slope(loss, logits, target)[0] == pytest.approx(expected.item(), abs=tolerances.SAME)
    assert loss.multipliers.values.item() == pytest.approx(RATE * min(1, missing / 0.01))
    reached = loss.multipliers.reached()[f"{name} >= 1"]
    assert reached == pytest.approx(1 - missing.item(), abs=1e-6)  # of float32


def test_no_weight_is_greater_than_the_largest_multiplier():
    """Where it is reached, what the labels miss adds nothing to it."""
    z, y = scores()
    free, bound = MetricLoss("precision"), MetricLoss("precision", constraint="recall >= 0.9")
    bound.eval().multipliers.values.fill_(LARGEST)
    soft = Confusion.from_logits(z - 9, y)  # all labels are 0
    missing = (0.9 - soft.tp[1] / soft.actual[1]) / (1 - 0.9)
    added = bound(z - 9, y) - free(z - 9, y)
    torch.testing.assert_close(added, LARGEST * missing)


def test_the_unit_of_a_cost_does_not_matter():
    """Also where the bound leaves no room."""
    found = []
    for unit in (1.0, 0.001):
        cost = f"[[0, {unit}], [{5 * unit}, 0]]"
        loss = MetricLoss("f1", constraint=f"expected_cost{cost} <= {0.1 * unit}")
        none = MetricLoss("f1", constraint=f"expected_cost{cost} <= 0")
        for each in (loss, none):
            value, gradient = slope(each, *rows("binary"))
            found.append(torch.cat([value.view(1), gradient, each.multipliers.values]))
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=tolerances.SAME)
    torch.testing.assert_close(found[1], found[3], rtol=0, atol=tolerances.SAME)


def test_evaluation_does_not_move_them():
    loss, batch = MetricLoss("precision", constraint="recall >= 1"), rows("binary")
    slope(loss, *batch)
    before = copy.deepcopy(loss.state_dict())
    value = loss.eval()(*batch)
    with torch.no_grad():
        assert torch.equal(loss.train()(*batch), value)
    assert all(torch.equal(before[name], now) for name, now in loss.state_dict().items())


@pytest.mark.parametrize("make", [MetricLoss, AlignedLoss])
def test_batches_that_say_nothing_do_not_move_them(make):
    logits, target = rows("binary")
    loss = make("precision", constraint="recall >= 1")
    slope(loss, logits, target)
    module = loss if make is MetricLoss else loss.metric_loss
    before = module.multipliers.values.clone()
    assert before > 0
    broken = logits.clone()
    broken[0] = math.nan
    assert slope(loss, broken, target)[0].isnan()
    empty = target.long().fill_(-100)
    value, gradient = slope(loss, logits, empty)
    assert value == 0
    assert not gradient.any()
    assert torch.equal(module.multipliers.values, before)
    assert slope(loss, logits, target)[0].isfinite()


def test_a_label_that_is_given_up_does_not_meet_a_bound_on_precision():
    """No row has the third label, so its precision is 0, as for a rule."""
    logits = torch.tensor([[9.0, 0, 0], [0, 9, 0], [9, 0, 0]], requires_grad=True)
    loss = MetricLoss("f1_macro", constraint="precision_macro >= 0.8")
    loss(logits, torch.tensor([0, 1, 2]))
    assert loss.multipliers.reached()["precision_macro >= 0.8"] == pytest.approx(1.5 / 3)
    assert loss.multipliers.values.item() > 0


def test_a_class_that_has_not_come_yet_is_not_missed():
    logits, _ = rows("binary")
    loss = MetricLoss("precision", constraint="recall >= 0.9")
    slope(loss, logits, torch.zeros(len(logits)))
    assert loss.multipliers.values == 0
    assert loss.multipliers.reached()["recall >= 0.9"] != 0


@pytest.mark.parametrize("size", [0.0, 1e4])
def test_hostile_logits_stay_finite(size):
    for task, constraint in CONSTRAINTS.items():
        logits, target = rows(task)
        made = AlignedLoss("balanced_accuracy" if task != "multilabel" else "f1_macro")
        loss = AlignedLoss(made.metric_loss.metric, constraint=constraint.replace("0.01", "1"))
        for _ in range(3):
            found = slope(loss, size * logits.sign(), target)
            assert all(x.isfinite().all() for x in found)


def test_a_bound_out_of_reach_is_told_once():
    """Labels at random cannot have both; the multipliers stop at their largest value."""
    logits, target = rows("binary")
    loss = MetricLoss("f1", constraint="recall >= 0.99, fpr <= 0.01")
    loss.multipliers.values.fill_(LARGEST - RATE)
    with pytest.warns(UserWarning, match=r"'recall >= 0.99', at 0.\d+ and 'fpr <= 0.01', at 0.\d+"):
        slope(loss, logits, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            slope(loss, logits, target)
        loss.eval()
    assert loss.multipliers.values.tolist() == [LARGEST, LARGEST]
    assert slope(loss, logits, target)[0].isfinite()


@pytest.mark.parametrize("make", [MetricLoss, AlignedLoss])
def test_the_state_dict_goes_on_where_it_was_taken(make):
    def fresh():
        return make(
            "f1_macro", constraint="recall[2] >= 0.9, expected_cost[[0,1,1],[1,0,1],[9,9,0]] <= 0.1"
        )

    one, other = fresh(), fresh()
    for seed in range(3):
        slope(one, *rows("multiclass", seed))
    other.load_state_dict(one.state_dict())
    batch = rows("multiclass", 9)
    copies = [other, copy.deepcopy(one), one.half()]
    first = slope(copies[1], *batch)
    for again in (other, one):
        for a, b in zip(first, slope(again, *batch), strict=True):
            assert torch.equal(a, b)
    assert one.state_dict().keys() == other.state_dict().keys()


@pytest.mark.slow  # loading the compiler takes most of it
def test_a_compiled_graph_moves_them():
    torch._dynamo.reset()
    eager = MetricLoss("f1_macro", constraint="recall[2] >= 0.9")
    graph = torch.compile(copy.deepcopy(eager), fullgraph=True, backend="aot_eager")
    for seed in range(2):
        batch = rows("multiclass", seed)
        for a, b in zip(slope(eager, *batch), slope(graph, *batch), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=tolerances.SAME)
    assert eager.multipliers.values > 0
    torch.testing.assert_close(graph.multipliers.values, eager.multipliers.values)


def test_micro_batches_move_them_once():
    logits, target = rows("multiclass")
    whole = MetricLoss("f1_macro", constraint="recall[2] >= 0.9")
    parts = copy.deepcopy(whole)
    model = torch.nn.Linear(3, 3).double()
    slope(whole, model(logits).detach(), target)
    exact_backward(parts, model, list(zip(logits.split(7), target.split(7), strict=True)))
    torch.testing.assert_close(parts.multipliers.values, whole.multipliers.values)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"per_image": True}, "constraint of MetricLoss must be None with per_image"),
        ({"threshold": [0.3, 0.7]}, "threshold of MetricLoss must be one number with running"),
        ({"constraint": "recal >= 0.9"}, "metric of MetricLoss's constraint must"),
        ({"constraint": "recall >= 90"}, "For 90% write 0.9."),
        (
            {"constraint": "recall[cat] >= 0.9", "classes": ["dog", "cow"]},
            "name one of the classes",
        ),
    ],
)
def test_bad_settings(settings, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        MetricLoss("f1", **{"constraint": "recall >= 0.9", **settings})


def test_a_class_may_go_by_its_name():
    loss = MetricLoss("f1", constraint="recall[cat] >= 1", classes=["dog", "cat"])
    assert loss.multipliers.constraints[0].metric.index == 1
    with pytest.raises(ValueError, match="a name for each of the 3 classes"):
        loss(*rows("multiclass"))


def test_a_constraint_for_two_classes_names_its_cure_among_three():
    loss = MetricLoss("f1_macro", constraint="recall >= 0.9")
    with pytest.raises(ValueError, match="say which of the 3 classes it is about"):
        loss(*rows("multiclass"))
