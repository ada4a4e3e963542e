"""Rules under several constraints, held against brute force on small problems."""

import json
import math
import re

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import f1_score

from evalign import Confusion
from evalign.core.constraints import parse
from evalign.core.metrics import resolve
from evalign.decisions import DecisionRule, calibration, fit_decision
from evalign.decisions.confusions import ScoredRows, gain_matrix
from evalign.decisions.gain_search import best_rule
from evalign.decisions.local_search import best_neighbour, standings
from evalign.decisions.objective import ROUNDING, Objective
from tests.ground.decisions.problems import one_hot
from tests.ground.decisions.problems import problem as long_tailed
from tests.tolerances import SAME

recall, precision = resolve("recall"), resolve("precision")


def problem(classes, rows, seed=0):
    return long_tailed(classes, rows, seed, ratio=4.0)


def ones(rows):
    return np.ones(rows)


def met(constraint, labels, y, classes):
    """Check each constraint by itself on the counts of labels."""
    c = Confusion.from_predictions(labels, y, num_classes=classes, matrix=True)
    return all(each.slack(c) >= -ROUNDING for each in parse(constraint))


# Two classes: exact.


@pytest.mark.parametrize(
    "constraint",
    [
        "recall >= 0.8, specificity >= 0.8",
        "fpr <= 0.1, fnr <= 0.4, predicted_rate <= 0.3",
        "precision[0] >= 0.8, precision[1] >= 0.7",
        "predicted_rate <= 0.05",
        "recall >= 0.7, expected_cost[[0, 1], [3, 0]] <= 0.4",
    ],
)
def test_two_classes_are_the_best_of_all_cuts(constraint):
    feasible = 0
    for seed in range(6):
        logits, y = problem(2, 50, seed)
        z = logits[:, 1] - logits[:, 0]
        objective = Objective.of("test", "f1", None)
        scores = [
            objective.scores((one_hot(y, 2).T @ one_hot(labels, 2))[None]).item()
            for labels in ((z > cut).astype(int) for cut in [z.min() - 1, *z])
            if met(constraint, labels, y, 2)
        ]
        if not scores:
            with pytest.raises(ValueError, match="must be met by some rule on these rows"):
                fit_decision(logits, y, metric="f1", constraint=constraint)
            continue
        feasible += 1
        rule = fit_decision(logits, y, metric="f1", constraint=constraint)
        assert met(constraint, rule(logits), y, 2)
        assert rule.score == pytest.approx(max(scores), abs=SAME)
    assert feasible >= 3


def test_bounds_that_exclude_each_other_say_what_is_possible():
    """On each side of two bounds, over all cuts; of three classes and of many labels, by search."""
    logits, y = problem(2, 50)
    z = logits[:, 1] - logits[:, 0]
    bounds = "recall >= 0.95, precision >= 0.9"
    cuts = [(z > cut).astype(int) for cut in [z.min() - 1, *z]]
    found = [Confusion.from_predictions(labels, y, num_classes=2) for labels in cuts]
    pairs = [(recall(c).item(), precision(c).item()) for c in found]
    most_precise = max(p for r, p in pairs if r >= 0.95)
    most_found = max(r for r, p in pairs if p >= 0.9)
    text = (
        f"'precision >= 0.9' is possible with recall up to {most_found:.4g}. "
        f"'recall >= 0.95' is possible with precision up to {most_precise:.4g}."
    )
    for confidence in (None, 0.9):
        with pytest.raises(ValueError, match=re.escape(text)):
            fit_decision(z, y, metric="f1", constraint=bounds, confidence=confidence)

    bounds = "recall[2] >= 0.9, predicted_rate[2] <= 0.05"
    logits, y = problem(3, 60)
    side = r"'recall\[2\] >= 0.9' is possible with predicted_rate\[2\] down to (0\.\d+)\."
    for labels, task in ((y, None), (one_hot(y, 3), "multilabel")):
        with pytest.raises(ValueError, match=side) as caught:
            fit_decision(logits, labels, task=task, metric="f1_macro", constraint=bounds)
        least = float(re.search(side, str(caught.value))[1])
        ranked = logits[:, 2] - logits[:, :2].max(1) if labels.ndim == 1 else logits[:, 2]
        cut = np.sort(ranked[y == 2])[int(0.1 * (y == 2).sum())]
        assert 0.05 < least <= (ranked >= cut).mean() + SAME


def test_each_side_of_an_infeasible_constraint_is_searched_once():
    """Not once more for each order of the others, of which there are k! for k parts."""
    parts = "recall >= 1, precision >= 1, accuracy >= 1, specificity >= 1"
    objective = Objective.of("fit_decision", "f1", parts)
    wrong, searched = np.ones((2, 2)), []

    def search(side):
        searched.append(len(side.constraints))
        return wrong

    with pytest.raises(ValueError, match=r"reaches recall = 0\.5, precision = 0\.5, accur"):
        objective.check_met(wrong, search)
    assert searched == [3, 3, 3, 3, 0]  # and once for all of them


# More classes. The brute force tries rules argmax_j (a_j η_j + b_j), half of them without b.


def random_rules(classes, number=2000):
    generator = np.random.default_rng(0)
    a, b = generator.random((2, number, classes))
    b[: number // 2] = 0
    return (a**2)[:, :, None] * np.eye(classes) + (b * b[:, :1])[:, None]


@pytest.mark.parametrize(
    ("metric", "constraint"),
    [
        pytest.param("accuracy", "recall_macro >= 0.65", marks=pytest.mark.slow),
        pytest.param("f1_macro", "recall[2] >= 0.7, precision[2] >= 0.3", marks=pytest.mark.slow),
        ("f1_macro", "recall[0] >= 0.6, recall[1] >= 0.6, recall[2] >= 0.6"),
        ("matthews_corrcoef", "predicted_rate[2] <= 0.1, fpr[1] <= 0.15, recall[2] >= 0.3"),
        ("expected_cost[[0,1,2],[3,0,1],[5,1,0]]", "accuracy >= 0.7, fnr[2] <= 0.3"),
    ],
)
def test_three_classes_are_near_brute_force(metric, constraint):
    """Within two rows of 60, where the metric's steps are single rows."""
    objective, feasible = Objective.of("test", metric, constraint), 0
    for seed, rows in ((0, 30), (1, 60)):
        logits, y = problem(3, rows, seed)
        eta, target = softmax(logits, 1), one_hot(y, 3)
        gains = random_rules(3)
        tried = ScoredRows(eta, target, ones(rows)).matrices(gains)
        best = objective.scores(tried).max().item()
        if best == -np.inf:
            continue
        feasible += 1
        compact = objective.compacted()
        found = gain_matrix(best_rule(ScoredRows(eta, target, ones(rows)), compact), compact)
        reached = ScoredRows(eta, target, ones(rows)).matrices(found[None])
        assert objective.scores(reached).item() >= best - 2 / 60
        assert met(constraint, (eta @ found).argmax(1), y, 3)
    assert feasible


def test_many_rows():
    """Where rows are many, bounds that bind are met and nothing is left of them."""
    logits, y = problem(3, 20_000)
    bounds = "recall[2] >= 0.75, precision[2] >= 0.55, predicted_rate[0] <= 0.7"
    free = fit_decision(logits, y, metric="f1_macro")
    rule = fit_decision(logits, y, metric="f1_macro", constraint=bounds)
    assert not met(bounds, free(logits), y, 3)
    assert met(bounds, rule(logits), y, 3)
    assert 0 <= min(rule.slacks.values()) < 1e-3
    gains = random_rules(3, 300)
    tried = ScoredRows(softmax(logits, 1), one_hot(y, 3), ones(20_000)).matrices(gains)
    brute_force = Objective.of("test", "f1_macro", bounds).scores(tried).max()
    assert brute_force <= rule.score < free.score


def test_a_constraint_that_does_not_bind_changes_nothing():
    logits, y = problem(3, 3000)
    free = fit_decision(logits, y, metric="accuracy", decision="expected")
    loose = "recall[0] >= 0.1, fpr[2] <= 0.9"
    bound = fit_decision(logits, y, metric="accuracy", decision="expected", constraint=loose)
    assert np.array_equal(free(logits), bound(logits))
    assert list(bound.slacks) == ["recall[0] >= 0.1", "fpr[2] <= 0.9"]


@pytest.mark.parametrize("classes", [2, 3])
def test_infeasible_constraints_say_how_far_one_gets(classes):
    logits, y = problem(classes, 60)
    constraint = "f1[1] >= 0.99"
    text = r"The best rule found reaches f1\[1\] = 0.\d+\.$"
    if classes == 2:  # exact
        z = logits[:, 1] - logits[:, 0]
        best = max(f1_score(y, z > cut) for cut in z)
        text = re.escape(f"f1[1] = {best:.4g}.")
    with pytest.raises(ValueError, match=text):
        fit_decision(logits, y, metric="f1_macro", constraint=constraint)


def test_slacks_go_with_the_rule():
    logits, y = problem(3, 60)
    names = ["fine", "odd", "fraud"]
    rule = fit_decision(
        logits, y, metric="f1_macro", constraint="recall[fraud] >= 0.5", classes=names
    )
    recall = (rule(logits)[y == 2] == "fraud").mean().item()
    assert rule.slacks == pytest.approx({"recall[fraud] >= 0.5": recall - 0.5})
    copy = DecisionRule.from_state_dict(json.loads(json.dumps(rule.state_dict())))
    assert copy.slacks == rule.slacks
    assert fit_decision(logits, y, metric="f1_macro").slacks is None


# The parts.


@pytest.mark.parametrize("constraint", ["recall[1] >= 0.7, fpr[2] <= 0.2", "accuracy >= 0.72"])
@pytest.mark.parametrize("metric", ["f1_macro", "expected_cost[[0,1,2],[3,0,1],[5,1,0]]"])
def test_the_standing_of_a_nearby_rule_is_its_own(metric, constraint):
    """It comes from sums over cuts, and has to be that of the rule's labels."""
    logits, y = problem(3, 80)
    eta, target, weight = softmax(logits, 1), one_hot(y, 3), 0.5 + np.arange(80) % 3
    objective = Objective.of("test", metric, constraint)
    for form in (objective, objective.compacted()):
        start = np.eye(3)
        if form.compact:
            start = np.stack([start.diagonal(), 0 * start[0], 0 * start[0]])
        start = start[None]

        def standing(rules, form=form):
            gains = np.stack([gain_matrix(rule, form) for rule in rules])
            return standings(objective, ScoredRows(eta, target, weight).matrices(gains))

        before = standing(start)
        rule, after = best_neighbour(ScoredRows(eta, target, weight), start, form)
        assert after.tolist() == pytest.approx(standing(rule[None])[0].tolist(), abs=SAME)
        assert after.tolist() > before[0].tolist()


def test_more_evidence_never_counts_against_a_label():
    """Here it would pay: the logits of class 0 are turned round."""
    logits, y = problem(3, 120, seed=2)
    logits[:, 0] *= -2
    gain = fit_decision(logits, y, metric="f1_macro", constraint="precision[0] >= 0.5").gain
    others = np.where(np.eye(3) == 1, -np.inf, gain).max(0)
    assert (gain.diagonal() >= others).all()


@pytest.mark.parametrize("kind", ["none", "ones", "several"])
def test_offsets_of_many_classes_are_the_best(kind, monkeypatch):
    """Where the posterior is greatest, the mass of each class is what its rows and prior ask."""
    logits, y = problem(20, 600)
    weight = {"none": np.zeros(600), "ones": np.ones(600), "several": np.arange(600) % 4}
    weight = weight[kind]
    monkeypatch.setattr(calibration, "MOST_CLASSES_WITH_FACTOR", 10)
    factor, offsets = calibration.factor_and_offsets(logits, y, weight)
    assert factor == 1
    mass = weight @ softmax(logits + offsets, 1)
    slope = mass - weight @ one_hot(y, 20) + calibration.OFFSET_PRECISION * offsets
    # The last step is below `CONVERGED`, and a step is the slope over at most the rows of a class.
    assert np.abs(slope).max() < 600 * calibration.CONVERGED
    assert (np.abs(offsets).max() > 0.01) == (kind != "none")


def test_slacks_are_shares_of_what_a_metric_spans():
    objective = Objective.of("test", "f1", "expected_cost[[0,5],[10,0]] <= 2")
    counts = np.array([[[6.0, 2.0], [1.0, 1.0]]])
    assert objective.smallest_slack(counts).item() == pytest.approx(
        (2 - (2 * 5 + 1 * 10) / 10) / 10
    )
    counts[0, 1] = np.array([2.0, 0.0])
    assert objective.smallest_slack(counts).item() == pytest.approx(
        (2 - (2 * 5 + 2 * 10) / 10) / 10
    )


def test_a_metric_without_a_slope():
    logits, _ = problem(3, 30)
    rule = fit_decision(logits, metric=lambda c: np.ones(()), decision="expected")
    assert np.array_equal(rule(logits), logits.argmax(1))


@pytest.mark.parametrize("far", [40.0, 702.0, 5000.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_rule_of_one_label_also_gives_it_to_rows_far_away(far, sign):
    # One row in four has a score whose probability rounds to 0, and has to be on the other side.
    z = sign * np.array([0.0, 0.0, 0.0, -far]).repeat(20)
    y = (np.array([1, 1, 0, 1]).repeat(20) == (sign > 0)).astype(int)
    always = np.full_like(y, int(sign > 0))
    constraint = "recall >= 0.9" if sign > 0 else "specificity >= 0.9"
    objective = {"metric": "accuracy", "constraint": constraint}
    for confidence in (None, 0.9):
        rule = fit_decision(z, y, **objective, confidence=confidence)
        assert np.array_equal(rule(z), always)
        assert rule.slacks[constraint] == pytest.approx(0.1)
        assert rule.score == pytest.approx(0.75)
        assert rule.promised in (None, True)

    z, y = np.stack([z, z], 1), np.stack([y, y], 1).astype(bool)
    name, bound = constraint.split(" >= ")
    objective = {
        "metric": "f1_micro" if sign > 0 else "npv_micro",
        "constraint": f"{name}_micro >= {bound}",
    }
    rule = fit_decision(z, y, **objective)
    assert np.array_equal(rule(z), np.stack([always, always], 1))
    assert rule.score == pytest.approx(6 / 7 if sign > 0 else 0.75)


def test_a_goal_mixes_the_metric_with_what_is_missing():
    """By hand, with recall 0.75, precision 0.6 and accuracy 0.75; the span of MCC is 2."""
    matrix = np.array([[30.0, 10.0], [5.0, 15.0]])[None]
    quarter, t = np.array([0.25]), 0.01

    def mixed(constraint, *slacks):
        objective = Objective.of("test", "accuracy", constraint)
        least = -t * math.log(sum(math.exp(-slack / t) for slack in slacks))
        missing = t * math.log1p(math.exp(-least / t))
        expected = pytest.approx(0.75 * 0.75 - 0.25 * missing, abs=SAME)
        assert objective.mixed(matrix, quarter).item() == expected

    mixed("recall >= 0.9", -0.15)
    mixed("recall >= 0.74, precision >= 0.61", 0.01, -0.01)
    mcc = (30 * 15 - 10 * 5) / math.sqrt(40 * 20 * 35 * 25)
    mixed("matthews_corrcoef >= 0.5", (mcc - 0.5) / 2)


def test_slopes_of_groups_count_by_their_share_of_a_class():
    """A rule does not see groups: a row of a class is of each with the probability of its share."""
    objective = Objective.of("test", "accuracy", "gap(recall) <= 0.1", groups=2)
    slopes = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    actual = np.array([10.0, 1.0, 30.0, 9.0])  # by group, then by class
    expected = [[0.25 * 1 + 0.75 * 5, 0.25 * 2 + 0.75 * 6], [0.1 * 3 + 0.9 * 7, 0.1 * 4 + 0.9 * 8]]
    found = objective.mean_over_groups(slopes[None], actual)[0]
    np.testing.assert_allclose(found, np.array(expected))


def test_an_expected_rule_keeps_its_bound_on_what_it_expects():
    """A group without an expected row of the class has no recall, and cannot violate a gap."""
    arguments = {"metric": "f1", "constraint": "gap(recall) <= 0.1", "decision": "expected"}
    rule = fit_decision(
        probabilities=[0.0, 1.0, 0.0], constraint_groups=["a", "a", "b"], **arguments
    )
    assert rule.slacks["gap(recall) <= 0.1"] == pytest.approx(0.1)
    generator = np.random.default_rng(0)
    for classes in (2, 3):
        hard = np.eye(classes)[generator.integers(classes, size=300)]
        groups = np.arange(300) % 3
        hard[groups == 2] = np.eye(classes)[0]
        arguments = {"metric": "f1_macro", "decision": "expected", "probabilities": hard}
        bound = "gap(recall[1]) <= 0.1"
        assert (
            min(
                fit_decision(
                    constraint=bound, constraint_groups=groups, **arguments
                ).slacks.values()
            )
            >= 0
        )
        bounds = "recall[1] >= 0.9, precision[1] >= 0.9"
        assert min(fit_decision(constraint=bounds, **arguments).slacks.values()) >= 0
