"""Rules from scores to labels: exact where possible, not worse than argmax with few labels."""

import contextlib
import itertools
import json
import math
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit, log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_predict

from evalign import Confusion, metrics
from evalign.decisions import DecisionRule, fit_decision, formula
from evalign.decisions.calibration import LEAST_FACTOR, factor_and_offset, factor_and_offsets
from evalign.decisions.confusions import ScoredRows, gain_matrix
from evalign.decisions.gain_search import best_rule
from evalign.decisions.inputs import FLOOR
from evalign.decisions.objective import Objective
from evalign.decisions.threshold import best_threshold, threshold_gains
from evalign.decisions.tuned import (
    ENOUGH,
    EVIDENCE,
    FOLDS,
    folds,
    search_gains,
    search_threshold,
)
from tests.ground.decisions.problems import problem, value
from tests.tolerances import SAME

COST = "expected_cost[[0,1,2],[3,0,1],[5,1,0]]"
BINARY = [*metrics.names(), "expected_cost[[0,1],[5,0]]"]


def search(logits, target, weight, objective):
    """The best gain matrix for the classes of the logits."""
    if logits.shape[1] == 2:
        return search_threshold(logits, target, weight, objective)
    return search_gains(softmax(logits, 1), target, weight, objective)


def by_labels(logits, y, metric, weight=None, constraint=None):
    """Search over labels alone, without the guard for few rows."""
    weight = np.ones(len(y)) if weight is None else weight
    objective = Objective.of("test", metric, constraint)
    gain = search(logits, y, weight, objective)
    return DecisionRule(gain, "tuned", "labels", metric)


def all_labelings(eta):
    """Yield the expected confusion matrix of every labeling."""
    rows, classes = eta.shape
    labelings = np.array(list(itertools.product(range(classes), repeat=rows)))
    return np.einsum("ny,knj->kyj", eta, np.eye(classes)[labelings])


def brute_force(z, y, metric, weight=None, feasible=lambda labels: True):
    """Find the best score over every threshold on one logit, and its rows' labels."""
    cuts = [z.min() - 1, *np.unique(z)]
    labels = [(z > cut).astype(int) for cut in cuts]
    return max(value(metric, x, y, weight=weight) for x in labels if feasible(x))


# Two classes: exact.


@pytest.mark.parametrize("metric", BINARY)
def test_threshold_is_the_best_of_all(metric):
    for seed in range(5):
        generator = np.random.default_rng(seed)
        z = np.round(4 * generator.standard_normal(25)) / 4  # ties
        y = (z + generator.standard_normal(25) > 0.7).astype(int)
        weight = generator.random(25)
        logits = np.stack([np.zeros_like(z), z], 1)
        rule = by_labels(logits, y, metric, weight)
        reached = value(metric, rule(logits), y, weight=weight)
        assert reached == pytest.approx(brute_force(z, y, metric, weight), abs=SAME)


def test_labels_of_probabilities():
    """They are the labels of the logits, and by hand the j with the largest Σ_y η_y G[y, j]."""
    gain = np.array([[1.0, 0.0, 0.2], [0.0, 5.0, 0.0], [0.3, 0.0, 2.0]])
    rule = DecisionRule(gain, "tuned", "labels", offsets=[0.5, -1.0, 0.0])
    eta = np.array([[0.7, 0.1, 0.2], [0.6, 0.2, 0.2], [0.2, 0.1, 0.7]])
    scores = [[0.76, 0.5, 0.54], [0.66, 1.0, 0.52], [0.41, 0.5, 1.44]]
    expected = np.array(scores)
    gains = formula.expected_gains(eta, rule.gain, multilabel=False)
    np.testing.assert_allclose(gains, expected)
    assert formula.labels(gains, multilabel=False).tolist() == [0, 1, 2]
    logits = np.log(eta) - rule.offsets
    np.testing.assert_allclose(rule.probabilities(logits), eta)
    np.testing.assert_allclose(rule.scores(logits), expected)
    assert rule(logits).tolist() == [0, 1, 2]


def test_threshold_lies_in_the_middle():
    z = np.array([-2.0, 1.0, 2.0, 4.0])
    target = np.eye(2)[np.array([0, 0, 1, 1])]
    objective = Objective.of("test", "f1", None)
    ones = np.ones(4)
    threshold = best_threshold(z, target, ones, objective)
    assert threshold == 1.5
    assert np.trace(threshold_gains(threshold)) == pytest.approx(1)


def test_equal_cuts_stay_near_the_default():
    # Precision is 1 from 0.5 up to the last row.
    z = np.array([-1.0, 0.2, 0.8, 2.0, 3.0])
    y = np.array([0, 0, 1, 1, 1])
    target = np.eye(2)[y]
    ones = np.ones(5)
    threshold = best_threshold(z, target, ones, Objective.of("test", "precision", None))
    assert threshold == pytest.approx(0.5)
    # Recall is 1 up to -0.5.
    threshold = best_threshold(-z, 1 - target, ones, Objective.of("test", "recall", None))
    assert threshold == pytest.approx(-0.5)


@pytest.mark.parametrize(("all_true", "side"), [(0, 1), (1, 0)])
def test_threshold_beyond_all_rows(all_true, side):
    z = np.array([-0.5, 0.5])
    logits = np.stack([np.zeros_like(z), z], 1)
    rule = by_labels(logits, np.array([all_true] * 2), "accuracy")
    assert rule(z).tolist() == [all_true] * 2
    far = np.array([3.0 if side else -3.0])  # the rule is not constant
    assert rule(far).item() == side
    away = np.array([3.0, 5.0]) * (1 if all_true else -1)
    target, ones = np.eye(2)[[all_true] * 2], np.ones(2)
    accuracy = Objective.of("test", "accuracy", None)
    assert best_threshold(away, target, ones, accuracy) == 0  # the default is beyond them


def test_saturated_logits():
    z = np.array([-1e4, -300.0, -290.0, 300.0, 1e4])
    y = np.array([0, 0, 1, 1, 1])
    rule = by_labels(np.stack([np.zeros_like(z), z], 1), y, "f1")
    assert rule(z).tolist() == y.tolist()
    # No probabilities tell the last two rows apart: the best that is left labels both 1.
    z = np.array([-1.0, 1.0, 750.0, 800.0])
    y = np.array([0, 0, 0, 1])
    rule = by_labels(np.stack([np.zeros_like(z), z], 1), y, "f1")
    assert rule(z).tolist() == [0, 0, 1, 1]


# More classes.


def expected_and_best(logits, metric):
    """The expected metric of the labels by probabilities, and the best of all labelings."""
    eta, objective = softmax(logits, 1), Objective.of("test", metric, None)
    labels = fit_decision(logits, metric=metric, decision="expected")(logits)
    chosen = np.eye(logits.shape[1])[labels]
    reached = objective.scores((eta.T @ chosen)[None]).item()
    return reached, objective.scores(all_labelings(eta)).max().item()


# Of the seeds above 5 the slopes of the metric end short of the best, or at a class without rows.
EXACT = [
    *[(metric, 3, 7, range(6)) for metric in ("f1_macro", "f1_weighted", "g_mean", "accuracy")],
    *[(metric, 3, 7, range(6)) for metric in ("balanced_accuracy", "cohen_kappa", COST)],
    *[(metric, 2, 10, range(2)) for metric in ("f1", "matthews_corrcoef", "precision", "f1_macro")],
    ("precision_macro", 3, 6, [22]),
    ("precision_macro", 3, 7, [43, 55]),
    ("g_mean", 3, 4, [13, 61]),
]


@pytest.mark.parametrize(("metric", "classes", "rows", "seeds"), EXACT)
def test_expected_is_the_best_of_all_labelings(metric, classes, rows, seeds):
    for seed in seeds:
        generator = np.random.default_rng(seed)
        logits = 2 * generator.standard_normal((rows, classes))
        reached, best = expected_and_best(logits, metric)
        assert reached == pytest.approx(best, abs=SAME)


# Metrics with many local optima: mostly the best, never far from it.
@pytest.mark.parametrize("metric", ["matthews_corrcoef", "precision_macro"])
def test_expected_is_near_the_best_of_all_labelings(metric):
    regrets = []
    for seed in range(10):
        generator = np.random.default_rng(seed)
        logits = 2 * generator.standard_normal((6, 3))
        reached, best = expected_and_best(logits, metric)
        regrets.append(best - reached)
    assert np.mean(np.array(regrets) < SAME) >= 0.7
    assert max(regrets) < 0.05


@pytest.mark.parametrize(
    "metric", ["f1_macro", "f2_weighted", "precision_macro", "matthews_corrcoef", "cohen_kappa"]
)
@pytest.mark.parametrize("constraint", [None, "recall_macro >= 0.5"])
def test_sums_find_what_matrices_find(metric, constraint):
    """The slopes by the sums are those by the matrix, up to numbers that move no label."""
    logits, y = problem(4, 300)
    eta, target = softmax(logits, 1), np.eye(4)[y]
    weight = 1 + np.arange(300) % 3
    objective = Objective.of("test", metric, constraint)
    assert objective.compacted().compact
    found = []
    for form in (objective, objective.compacted()):
        rule = best_rule(ScoredRows(eta, target, weight), form)
        found.append((eta @ gain_matrix(rule, form)).argmax(-1))
    assert np.array_equal(*found)


@pytest.mark.parametrize("constraint", [None, "recall[0] >= 0.8"])
@pytest.mark.parametrize("metric", ["f1_macro", "g_mean"])
@pytest.mark.parametrize("decision", ["tuned", "expected"])
def test_the_order_of_a_sum_does_not_choose_the_rule(decision, metric, constraint, monkeypatch):
    """A GPU sums in any order, so that of starts that end alike another may be ahead by a bit."""
    logits, y = problem(5, 500)
    how = {"metric": metric, "decision": decision, "constraint": constraint}
    rule = fit_decision(logits, y, **how)
    exact, noise = ScoredRows.confusions, np.random.default_rng(0)

    def in_any_order(*args):
        found = exact(*args)
        return found * (1 + 1e-15 * noise.random(found.shape))

    monkeypatch.setattr(ScoredRows, "confusions", in_any_order)
    assert fit_decision(logits, y, **how).gain == pytest.approx(rule.gain, abs=1e-9)


def test_a_rule_labels_ties_alike_in_any_order_of_rows():
    """Shares of votes, as of a forest, tie often: the last digit of a gain would part labels."""
    metric = metrics.ExpectedCost([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
    generator, ties = np.random.default_rng(0), 0
    for _ in range(10):
        votes = generator.integers(1, 6, size=(24, 3))
        shares = votes / votes.sum(1, keepdims=True)
        rules = [
            fit_decision(probabilities=shares[order], metric=metric, decision="expected")
            for order in (generator.permutation(24) for _ in range(4))
        ]
        labels = [rule(probabilities=shares) for rule in rules]
        assert all(np.array_equal(each, labels[0]) for each in labels)
        gains = np.sort(shares @ rules[0].gain, axis=1)
        ties += int((gains[:, -1] == gains[:, -2]).sum())
    assert ties > 0  # such rows occur


def test_linear_metric_takes_one_step():
    logits, _ = problem(3, 50)
    rule = fit_decision(logits, metric=COST, decision="expected")
    cost = np.array([[0, 1, 2], [3, 0, 1], [5, 1, 0]])
    assert np.array_equal(rule(logits), (softmax(logits, 1) @ cost).argmin(1))


def test_many_rows_start_from_a_part():
    logits, y = problem(3, 40_000)
    rule = fit_decision(logits, y, metric="f1_macro")
    assert rule.source == "labels"
    fresh, labels = problem(3, 40_000, 1)
    gain = value("f1_macro", rule(fresh), labels, 3) - value("f1_macro", fresh.argmax(1), labels, 3)
    assert gain > 0


def test_functions_of_a_confusion():
    logits, y = problem(3, 60)

    def worst_recall(c):
        return (c.tp / c.actual.clip(1)).min()

    def diagonal(c):
        return c.matrix.diagonal().sum() / c.total

    def branching(c):
        return c.tp.sum() / c.total if c.total > 0 else c.total

    assert np.array_equal(
        fit_decision(logits, metric=diagonal, decision="expected").gain,
        fit_decision(logits, metric=branching, decision="expected").gain,
    )
    rule = fit_decision(logits, metric=worst_recall, decision="expected")
    assert value(worst_recall, rule(logits), y, 3) >= 0
    cost = metrics.Minimize(lambda c: -c.tp.sum() / c.total)
    labels = fit_decision(logits, metric=cost, decision="expected")(logits)
    assert np.array_equal(labels, logits.argmax(1))


# Constraints.


@pytest.mark.parametrize("decision", ["tuned", "expected"])
def test_constraint_with_more_classes(decision):
    logits, y = problem(4, 400)
    constraint = "recall_macro >= 0.7"
    target = np.eye(4)[y] if decision == "tuned" else softmax(logits, 1)
    y = y if decision == "tuned" else None
    free = fit_decision(logits, y, metric="accuracy", decision=decision)
    rule = fit_decision(logits, y, metric="accuracy", decision=decision, constraint=constraint)

    def reached(metric, rule):
        labels = np.eye(4)[rule(logits)]
        return metrics.resolve(metric)(Confusion.from_matrix(target.T @ labels)).item()

    assert reached("recall_macro", free) < 0.7 <= reached("recall_macro", rule) + SAME
    # The rule gives up no more than one that only maximises the constrained metric.
    safest = fit_decision(
        logits, y, metric="recall_macro", decision=decision, constraint=constraint
    )
    assert reached("accuracy", safest) <= reached("accuracy", rule)


def test_a_constraint_that_argmax_meets_is_met():
    """Also where the search looks at probabilities that are corrected first."""
    logits, _ = problem(4, 300)
    rule = fit_decision(logits, logits.argmax(1), metric="f1_macro", constraint="accuracy >= 0.999")
    assert np.array_equal(rule(logits), logits.argmax(1))


# Few labels.


def advantage(classes, rows, kind, metric, seeds, fit=fit_decision):
    """Compute the mean and standard error of the tuned rule's score minus argmax's, on new rows."""
    gains = []
    for seed in range(seeds):
        logits, y = problem(classes, rows, seed, kind=kind)
        fresh, labels = problem(classes, 20_000, 1000 + seed, kind=kind)
        tuned = value(metric, fit(logits, y, metric=metric)(fresh), labels, classes)
        gains.append(tuned - value(metric, fresh.argmax(1), labels, classes))
    return np.mean(gains), np.std(gains, ddof=1) / seeds**0.5


# 100 rows, the rarest class with 2 to 5 of them. They are calibrated, so argmax is nearly right.
# The rule must not lose more than the noise of the simulation, and less than a rule by labels
# alone.
@pytest.mark.parametrize(
    ("classes", "metric", "seeds"),
    [(2, "f1", 20), pytest.param(5, "f1_macro", 12, marks=pytest.mark.slow)],
)
def test_few_labels_do_not_hurt(classes, metric, seeds):
    mean, error = advantage(classes, 100, "calibrated", metric, seeds)
    alone, _ = advantage(classes, 100, "calibrated", metric, seeds, fit=by_labels)
    assert mean > -error
    assert mean > alone


# Training with a prior correction that nobody added back: argmax is wrong, and 100 rows show it.
@pytest.mark.parametrize(("classes", "metric"), [(2, "f1"), (5, "f1_macro")])
def test_few_labels_gain_where_there_is_something_to_gain(classes, metric):
    mean, error = advantage(classes, 100, "adjusted", metric, 8)
    assert mean - error > 0.01


def with_one_row_of_the_last(rows, seed, strength=3.0):
    """Rows of three classes, one of the last, and fresh rows with the same shares."""
    rng = np.random.default_rng(seed)
    shares = np.array([0.66, 0.33, 0]) * (1 - 1 / rows) + [0, 0, 1 / rows]
    shares = shares / shares.sum()
    y = rng.choice(2, rows, p=[2 / 3, 1 / 3])
    y[0] = 2
    fresh = rng.choice(3, 5000, p=shares)
    x = [strength * np.eye(3)[labels] + rng.normal(size=(len(labels), 3)) for labels in (y, fresh)]
    return x[0], y, x[1], fresh, np.log(shares)


# The search used to lose 0.03 and 0.06 of macro-F1 here.
@pytest.mark.parametrize(
    ("model", "rows"),
    [pytest.param("posterior", 1000, marks=pytest.mark.slow), ("classifier", 60)],
)
def test_a_class_with_one_row_does_no_harm(model, rows):
    gains, given = [], []
    for seed in range(12):
        x, y, new_x, new_y, prior = with_one_row_of_the_last(rows, seed)
        scores, new_scores = ((3.0 * part + prior) for part in (x, new_x))
        if model == "classifier":
            fitted = LogisticRegression()
            with warnings.catch_warnings():  # of the class with one row
                warnings.simplefilter("ignore")
                out = cross_val_predict(fitted, x, y, cv=3, method="predict_proba")
            new = fitted.fit(x, y).predict_proba(new_x)
            scores, new_scores = (np.log(np.clip(p, 1e-7, 1)) for p in (out, new))
        labels = fit_decision(scores, y, metric="f1_macro")(new_scores)
        argmax = new_scores.argmax(1)
        f1 = [f1_score(new_y, each, average="macro") for each in (labels, argmax)]
        gains.append(f1[0] - f1[1])
        given.append([(each == 2).mean() for each in (labels, argmax)])
    assert np.mean(gains) >= -np.std(gains) / len(gains) ** 0.5
    tuned, own = np.mean(given, 0)
    assert tuned <= 1.2 * own


def test_two_classes_of_which_one_has_a_single_row_are_not_tuned():
    logits, y = problem(2, 50)
    rows = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:1]])
    rule = fit_decision(logits[rows], y[rows], metric="f1")
    assert rule.source == "argmax"
    assert np.array_equal(rule(logits), logits.argmax(1))


def test_enough_labels_decide_alone():
    """The score is then that of all rows; with a row less it is of rows held out."""
    logits, y = problem(2, 2 * ENOUGH + 400, ratio=1.0)
    rows = np.concatenate([np.flatnonzero(y == k)[:ENOUGH] for k in (0, 1)])
    for some, alone in ((rows, True), (rows[1:], False)):
        rule = fit_decision(logits[some], y[some], metric="f1")
        assert rule.source == "labels"
        seen = value("f1", rule(logits[some]), y[some])
        assert (rule.score == pytest.approx(seen, abs=SAME)) == alone
    by_hand = by_labels(logits[rows], y[rows], "f1")
    assert np.array_equal(fit_decision(logits[rows], y[rows], metric="f1").gain, by_hand.gain)


def blended(logits, y, metric, weight):
    """Search by hand over labels and Platt's probabilities, which count as EVIDENCE rows."""
    margin, positive = logits[:, 1] - logits[:, 0], y
    a, b = factor_and_offset(margin, positive, weight)
    p = expit(a * margin + b)
    columns = []
    for actual, probability in ((1 - positive, 1 - p), (positive, p)):
        mass = (weight * actual).sum()
        columns.append((mass * actual + EVIDENCE * probability) / (mass + EVIDENCE))
    objective = Objective.of("test", metric, None)
    target = np.stack(columns, 1)
    gain = search(logits, target, weight, objective)
    return DecisionRule(gain, "tuned", "labels", metric)


@pytest.mark.parametrize("kind", ["adjusted", "calibrated"])
def test_the_score_of_a_tuned_rule_is_not_flattered(kind):
    """By hand, the rule is scored on rows that it did not learn from."""
    logits, y = problem(2, 600, 5, kind=kind, ratio=4)
    rule = fit_decision(logits, y, metric="f1")
    whole = blended(logits, y, "f1", np.ones(600))
    assert np.allclose(rule.gain, whole.gain, atol=SAME)
    labels = rule(logits)
    for held_out in (folds(y) == k for k in range(FOLDS)):
        learned = blended(logits, y, "f1", (~held_out))
        labels[held_out] = learned(logits[held_out])
    assert rule.score == pytest.approx(value("f1", labels, y), abs=SAME)
    assert rule.score < value("f1", rule(logits), y)


@pytest.mark.parametrize("classes", [2, 3])
def test_labels_correct_the_probabilities_of_the_expected_rule(classes):
    """Logits that are twice too large: with labels the rule is that of the right ones."""
    logits, y = problem(classes, 20_000)
    how = {"metric": "f1_macro", "decision": "expected"}
    right, mended = fit_decision(logits, **how), fit_decision(2 * logits, y, **how)
    assert mended.factor == pytest.approx(0.5, abs=0.03)
    assert (mended(2 * logits) == right(logits)).mean() > 0.99
    wrong = fit_decision(2 * logits, **how)
    assert (wrong(2 * logits) == right(logits)).mean() < 0.99


@pytest.mark.parametrize("constraint", [None, "recall >= 0.9"])
def test_the_score_is_of_all_rows_where_labels_decide_alone(constraint):
    """The score is weighted, and minus the metric for a cost, as all scores are."""
    rows = 100 if constraint else 2 * ENOUGH + 100
    logits, y = problem(2, rows, ratio=1.0)
    weight = np.random.default_rng(0).random(rows)
    for metric in ("f1", "expected_cost[[0,1],[5,0]]"):
        how = {"metric": metric, "sample_weight": weight, "constraint": constraint}
        rule = fit_decision(logits, y, **how)
        assert rule.source == "labels"
        expected = value(metric, rule(logits), y, weight=weight)
        assert rule.score == pytest.approx(expected, abs=SAME)
        assert (rule.score < 0) == (metric != "f1")


@pytest.mark.parametrize(("metric", "scale"), [("g_mean", 0.3), ("precision_macro", 3.0)])
@pytest.mark.parametrize("decision", ["tuned", "expected"])
def test_a_class_that_no_row_has_is_never_given(metric, scale, decision):
    """Labels that correct the other probabilities must not raise a probability of 0."""
    z, y = problem(2, 200, ratio=2.0)
    p = expit(scale * (z[:, 1] - z[:, 0]))
    given = np.stack([1 - p, p, np.zeros_like(p)], 1)
    rule = fit_decision(probabilities=given, y=y, metric=metric, decision=decision)
    assert np.unique(rule(probabilities=given)).tolist() == [0, 1]


@pytest.mark.parametrize("slope", [-1.0, 0.0])
def test_calibration_of_scores_that_say_nothing_or_the_opposite(slope):
    """The factor stays positive, and the offset is the one that goes with it: scipy finds it."""
    chance = np.random.default_rng(0)
    margin = 10 + 3 * chance.standard_normal(2000)
    rare = expit(slope * (margin - 10) - 2)
    y = (chance.random(2000) < rare).astype(int)

    def loss(offset):
        z = LEAST_FACTOR * margin + offset
        return np.logaddexp(0, z).sum() - y @ z + offset**2 / 2

    best = optimize.minimize_scalar(loss, bounds=(-20, 20), method="bounded").x
    ones = np.ones_like(margin)
    a, b = factor_and_offset(margin, y, ones)
    assert (a.item(), b.item()) == (LEAST_FACTOR, pytest.approx(best, abs=1e-4))
    logits = np.stack([-margin / 2, margin / 2], 1)
    a, both = factor_and_offsets(logits, y, ones)
    assert a == LEAST_FACTOR
    mean = softmax(a * logits + both, 1)[:, 1].mean().item()
    assert mean == pytest.approx(y.mean().item(), abs=0.01)
    reverse = "the area under the curve is 0.0"
    told = pytest.warns(UserWarning, match=reverse) if slope < 0 else nullcontext()
    with told:
        rule = fit_decision(margin, y.astype(int), metric="f1", decision="expected")
    assert rule.class_prior[1].item() == pytest.approx(y.mean().item(), abs=0.01)


@pytest.mark.parametrize("classes", [2, 3, 70])
def test_calibration_is_the_most_probable_one(classes):
    """No slope is left of a posterior by hand, with normal priors: of offsets 1, of the factor ½.

    With many classes the factor is not searched for.
    """
    logits, y = problem(classes, 40, ratio=3.0)
    weight = np.random.default_rng(0).random(40) * 2
    found = [factor_and_offsets(2 * logits, y, weight)]
    if classes == 2:
        margin = 2 * (logits[:, 1] - logits[:, 0])
        a, b = factor_and_offset(margin, y, weight)
        found.append((a, np.stack([np.zeros_like(b), b])))
    for a, b in found:
        half = 1 if b[0] == 0 or classes > 2 else 2  # two offsets share the variance of one

        def posterior(a, b, half=half):
            likely = weight @ log_softmax(2 * a * logits + b, 1)[np.arange(40), y]
            return likely - half * (b**2).sum() / 2 - ((a - 1) / 0.5) ** 2 / 2

        step = 1e-5  # the rounding of a value near 100, over the step, is 1e-9
        of_a = (posterior(a + step, b) - posterior(a - step, b)) / (2 * step)
        of_b = np.array(
            [
                (posterior(a, b + step * unit) - posterior(a, b - step * unit)) / (2 * step)
                for unit in np.eye(classes)
            ]
        )
        if classes == 70:
            assert a == 1
        else:
            assert a != 1
            assert np.abs(of_a) < 1e-6
        assert np.abs(of_b[b != 0]).max() < 1e-6


def test_columns_are_calibrated_as_each_alone():
    """Also where the factor of one of them has to be held, and another has floors."""
    logits, y = problem(2, 300)
    margin, ones = logits[:, 1] - logits[:, 0], np.ones(300)
    floored = np.where(np.arange(300) % 50 == 0, math.log(FLOOR), margin)
    margins, weights = np.stack([margin, -margin, floored], 1), np.stack([ones] * 3, 1)
    weights[:100, 0] = 0
    labels = np.stack([y] * 3, 1)
    a, b = factor_and_offset(margins, labels, weights)
    assert a[1] == LEAST_FACTOR
    for k in range(3):
        alone = factor_and_offset(margins[:, k], labels[:, k], weights[:, k])
        assert (a[k].item(), b[k].item()) == pytest.approx([x.item() for x in alone], abs=SAME)


def test_calibration_is_not_of_the_floor():
    """A few probabilities of 0 and 1 count as one row in twice as many, wherever the floor is."""
    logits, y = problem(2, 500)
    margin, ones = (logits[:, 1] - logits[:, 0]).clip(-2, 2), np.ones(500)
    sure, bound = math.log(FLOOR), math.log(1001)
    floored = np.where(np.arange(500) % 50 == 0, sure, margin)
    least = np.where(np.arange(500) % 50 == 0, -bound, margin)
    for sign in (1, -1):
        found, expected = (factor_and_offset(sign * m, y, ones) for m in (floored, least))
        assert found[0].item() == pytest.approx(expected[0].item(), abs=1e-6)  # FLOOR is 6e-8


def test_calibration_without_rows_changes_nothing():
    logits, y = problem(3, 10)
    a, b = factor_and_offsets(logits, y, np.zeros(10))
    assert (a, np.abs(b).max()) == (1, 0)


# What changes nothing.


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("decision", ["argmax", "tuned", "expected"])
def test_a_constant_per_row_changes_nothing(classes, decision):
    logits, y = problem(classes, 60)
    shift = np.linspace(-50, 50, 60)[:, None]
    rule = fit_decision(logits, y, metric="f1_macro", decision=decision)
    shifted = fit_decision(logits + shift, y, metric="f1_macro", decision=decision)
    assert np.array_equal(rule(logits), shifted(logits + shift))
    assert rule.gain == pytest.approx(shifted.gain, abs=1e-9)


@pytest.mark.parametrize("decision", ["tuned", "expected"])
def test_weight_two_is_two_copies(decision):
    logits, y = problem(3, 60)
    weight = np.where(np.arange(60) < 20, 2.0, 1.0)
    target = np.eye(3)[y] if decision == "tuned" else softmax(logits, 1)
    objective = Objective.of("test", "f1_macro", None)
    twice = np.concatenate([np.arange(60), np.arange(20)])
    ones = np.ones(80)
    copied = search(logits[twice], target[twice], ones, objective)
    weighted = search(logits, target, weight, objective)
    assert np.allclose(copied, weighted)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("rows", [60, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("decision", ["tuned", "expected"])
def test_the_scale_of_weights_does_not_matter(classes, rows, decision):
    logits, y = problem(classes, rows)
    weight = 0.5 + np.random.default_rng(0).random(rows)
    how = {"metric": "f1_macro", "decision": decision}
    rule = fit_decision(logits, y, sample_weight=weight, **how)
    for scale in (1e-300, 1e-15, 1e15, 1e30, 1e307):
        other = fit_decision(logits, y, sample_weight=scale * weight, **how)
        assert other.source == rule.source
        assert other.gain == pytest.approx(rule.gain, abs=1e-9)
        assert other.score == pytest.approx(rule.score, abs=1e-9)
    same = fit_decision(logits, y, sample_weight=np.full((rows,), 1e30), **how)
    assert same.gain == pytest.approx(fit_decision(logits, y, **how).gain, abs=1e-9)


# Offsets, of a network whose probabilities are softmax(logits + offsets).


OFFSETS = {2: np.array([0.4, -0.9]), 3: np.array([0.0, -1.1, 0.6])}


@pytest.mark.parametrize("classes", OFFSETS)
@pytest.mark.parametrize("decision", ["expected", "tuned"])
def test_offsets_make_the_probabilities(classes, decision):
    """The rule is as if they had been added to these logits and to others.

    The labels of the network itself are one of the starts of a tuned search, and offsets change
    them, so that the search may end at another local optimum.
    """
    kind = "calibrated" if decision == "expected" else "adjusted"
    (logits, y), (fresh, _) = (
        problem(classes, n, seed, kind=kind) for n, seed in ((80, 3), (500, 1))
    )
    how = {"metric": "f1_macro", "decision": decision}
    offsets, expected = OFFSETS[classes], fit_decision(logits, y, **how)
    rule = fit_decision(logits - offsets, y, offsets=offsets, **how)
    same = (rule(fresh - offsets) == expected(fresh)).mean()
    assert same == 1 if decision == "expected" or classes == 2 else same > 0.95
    assert not np.array_equal(rule(fresh - offsets), rule(fresh))


@pytest.mark.parametrize("classes", OFFSETS)
def test_argmax_is_of_logits_without_offsets(classes):
    logits, _ = problem(classes, 200)
    offsets = OFFSETS[classes]
    rule = fit_decision(logits, metric="f1_macro", decision="argmax", offsets=offsets)
    assert np.array_equal(rule(logits), logits.argmax(1))
    assert not np.array_equal(rule(logits), (logits + offsets).argmax(1))
    large, y = 1000 * logits, logits.argmax(1)  # scores beyond log-odds are scaled by labels
    large[::4] = logits[::4]
    rule = fit_decision(large, y, metric="f1_macro", decision="argmax", offsets=offsets)
    assert np.array_equal(rule(large), y)


def test_offsets_go_with_the_rule():
    (logits, y), (fresh, _) = problem(3, 60), problem(3, 200, 1)
    how = {"metric": "f1_macro", "decision": "expected", "offsets": OFFSETS[3]}
    rule = fit_decision(logits, **how)
    copy = DecisionRule.from_state_dict(json.loads(json.dumps(rule.state_dict())))
    assert np.array_equal(copy(fresh), rule(fresh))
    mended = fit_decision(logits, y, **how)
    same = DecisionRule.from_state_dict(json.loads(json.dumps(mended.state_dict())))
    assert np.array_equal(same(fresh), mended(fresh))
    assert same.factor == mended.factor != 1
    state = rule.state_dict()
    del state["offsets"]  # of a rule that was saved before there were any, and takes other logits
    with pytest.raises(ValueError, match=r"Got a state without \['offsets'\].*Fit again"):
        DecisionRule.from_state_dict(state)


# The rule.


def test_a_function_does_not_go_through_json():
    logits, _ = problem(3, 60)
    metric = metrics.FBeta(beta=[1, 1, 5], average="macro")
    rule = fit_decision(logits, metric=metric, decision="expected")
    state = json.loads(json.dumps(rule.state_dict()))
    assert DecisionRule.from_state_dict(state).metric is None
    again = DecisionRule.from_state_dict(state, metric=metric)
    assert again.metric is metric
    assert np.array_equal(again(logits), rule(logits))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("decision", ["argmax", "tuned", "expected"])
@pytest.mark.parametrize("case", ["one row", "one class", "equal rows"])
def test_degenerate_rows(classes, decision, case):
    logits, y = problem(classes, 1 if case == "one row" else 30)
    y = np.zeros_like(y) if case == "one class" else y
    logits = np.repeat(logits[:1], 30, axis=0) if case == "equal rows" else logits
    doubt = contextlib.nullcontext()
    if decision == "tuned" and case != "equal rows":
        doubt = pytest.warns(UserWarning, match="one class only")
    for metric in ("f1_macro", "matthews_corrcoef", "g_mean"):
        with doubt:
            rule = fit_decision(logits, y, metric=metric, decision=decision)
        assert np.isfinite(rule.gain).all()
        assert rule(logits).shape == (len(logits),)


def fit(*args, metric="f1_macro", **kwargs):
    return fit_decision(*args, metric=metric, **kwargs)


ROWS, _ = problem(3, 4)
LABELS = np.array([0, 1, 0, 2])
BAD = {
    "no labels": (lambda: fit(ROWS), 'y of .* Got None. Without labels use decision="expected".'),
    "decision": (
        lambda: fit(ROWS, LABELS, decision="best"),
        "decision of fit_decision must be one of argmax, tuned, expected. Got 'best'.",
    ),
    "NaN": (lambda: fit(ROWS * np.nan, LABELS), "logits of fit_decision must be finite"),
    "no rows": (lambda: fit(ROWS[:0], LABELS[:0]), "leave at least one row"),
    "cube": (lambda: fit(ROWS[None], LABELS), r"y .* shape \(1, 3\). Got \(4,\)"),
    "short y": (lambda: fit(ROWS, LABELS[:2]), r"y of fit_decision must have shape \(4,\)"),
    "half y": (lambda: fit(ROWS, LABELS + 0.5), "y of fit_decision must hold integers"),
    "large y": (lambda: fit(ROWS, LABELS + 3), "hold class indices from 0 to 2"),
    "weight": (lambda: fit(ROWS, LABELS, sample_weight=-np.ones(4)), "sample_weight .* not neg"),
    "argmax": (
        lambda: fit(ROWS, LABELS, decision="argmax", constraint="recall_macro >= 0.1"),
        "constraint of fit_decision must be None for argmax",
    ),
    "offsets": (
        lambda: fit(ROWS, LABELS, offsets=np.zeros(2)),
        r"offsets of fit_decision must hold a finite number for each of the 3 classes. Got array",
    ),
    "classes": (lambda: fit(ROWS, LABELS)(ROWS[:, :2]), "logits of DecisionRule must have 3"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    action, text = BAD[case]
    with pytest.raises((ValueError, TypeError), match=text):
        action()


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_any_scale_are_tuned(classes):
    """Scores of a margin may lie far beyond log-odds; what counts is their order and ratios."""
    logits, y = problem(classes, 600)
    plain = fit_decision(logits, y, metric="f1_macro")(logits)
    scaled = fit_decision(1e4 * logits, y, metric="f1_macro")(1e4 * logits)
    assert (plain == scaled).mean() > 0.97
