"""Multilabel problems: thresholds that are the best of all, and guarded where labels are few."""

import itertools
import json
from functools import partial

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.metrics import f1_score, jaccard_score, precision_score

from evalign import Confusion, metrics
from evalign.decisions import DecisionRule, fit_decision, multilabel, tuned
from evalign.decisions.objective import Objective
from evalign.decisions.threshold import best_threshold
from evalign.decisions.tuned import calibrate
from tests.tolerances import SAME


def problem(rows, labels, seed=0, *, shift=0.0, strength=1.5):
    """Make log-odds that are right if `shift` is 0, of labels that get rarer."""
    generator = np.random.default_rng(seed)
    share = np.linspace(0.4, 0.08, labels)
    y = (generator.random((rows, labels)) < share).astype(int)
    x = generator.standard_normal((rows, labels)) + strength * y
    z = strength * (x - strength / 2) + logit(share)
    return z + shift, y


def by_labels(z, y, metric, constraint=None):
    """Search over labels alone, without the guard for few rows."""
    objective = Objective.of("test", metric, constraint, multilabel=True)
    found = multilabel.thresholds(z, y, np.ones_like(z), objective)
    return (z > found).astype(int)


def all_cuts(z):
    """Make the labels (K, N, L) of every combination of thresholds."""
    columns = []
    for column in z.T:
        cuts = [column.min() - 1, *np.unique(column)]
        columns.append([(column > cut).astype(int) for cut in cuts])
    return np.stack([np.stack(chosen, 1) for chosen in itertools.product(*columns)])


REFERENCE = {
    "f1_macro": partial(f1_score, average="macro", zero_division=0),
    "f1_micro": partial(f1_score, average="micro", zero_division=0),
    "f1_weighted": partial(f1_score, average="weighted", zero_division=0),
    "jaccard_micro": partial(jaccard_score, average="micro", zero_division=0),
    "precision_macro": partial(precision_score, average="macro", zero_division=0),
}


def by_hand(metric, sums):
    """Score the sums (K, 3, L), true positives, predicted and actual."""
    name, average = metric.split("_")
    sums = sums.sum(-1, keepdims=True) if average == "micro" else sums
    tp, predicted, actual = np.moveaxis(sums, 1, 0)
    over = {
        "f1": (predicted + actual) / 2,
        "jaccard": predicted + actual - tp,
        "precision": predicted,
    }[name]
    scores = np.where(over > 0, tp / np.where(over > 0, over, 1), 0)
    weight = actual if average == "weighted" else np.ones_like(tp)
    return (weight * scores).sum(-1) / weight.sum(-1)


def best_by_hand(metric, labels, positive):
    """Find the best score of labels (K, N, L) for positives (N, L), labels or probabilities."""
    actual = np.broadcast_to(positive.sum(0), (len(labels), positive.shape[1]))
    sums = np.stack([(labels * positive).sum(1), labels.sum(1), actual], 1)
    return by_hand(metric, sums).max().item()


@pytest.mark.parametrize("metric", REFERENCE)
def test_thresholds_are_the_best_of_all(metric):
    for seed in range(4):
        z, y = problem(9, 3, seed)
        z = np.round(2 * z) / 2  # ties
        best = best_by_hand(metric, all_cuts(z), y)
        assert REFERENCE[metric](y, by_labels(z, y, metric)) == pytest.approx(best, abs=SAME)


@pytest.mark.parametrize("metric", REFERENCE)
def test_expected_thresholds_are_the_best_of_all(metric):
    z, _ = problem(8, 3)
    rule = fit_decision(z, metric=metric, decision="expected", task="multilabel")
    p = expit(z)
    best = best_by_hand(metric, all_cuts(z), p)
    assert best_by_hand(metric, rule(z)[None], p) == pytest.approx(best, abs=SAME)


@pytest.mark.parametrize("name", ["recall", "specificity", "npv", "informedness", "f2", "f0.5"])
def test_micro_averages_of_quotients_are_the_best_of_all(name):
    metric = metrics.resolve(f"{name}_micro")
    for seed in range(2):
        z, y = problem(6, 3, seed)

        def score(labels, y=y):
            return metric(Confusion.from_predictions(labels, y, task="multilabel")).item()

        best = max(map(score, all_cuts(z)))
        assert score(by_labels(z, y, metric)) == pytest.approx(best, abs=SAME)


def worst_f1(c):
    return (2 * c.tp / (c.actual + c.predicted).clip(1)).min()


def unknown_f1_macro(c):
    return metrics.resolve("f1_macro")(c)


@pytest.mark.parametrize(
    "metric", [worst_f1, metrics.FBeta(beta=[1, 2, 0.5], average="macro"), unknown_f1_macro]
)
def test_other_functions_are_climbed(metric):
    """The climb ends where no single threshold can be better."""
    z, y = problem(60, 3)
    found = by_labels(z, y, metric)

    def score(labels):
        return metric(Confusion.from_predictions(labels, y, task="multilabel")).item()

    for k in range(3):
        for cut in z[:, k]:
            other = found.copy()
            other[:, k] = (z[:, k] > cut).astype(int)
            assert score(other) <= score(found) + SAME
    assert score(found) >= score((z > 0).astype(int))
    if metric is unknown_f1_macro:  # a mean over labels has no other ends
        exact = by_labels(z, y, "f1_macro")
        assert score(found) == pytest.approx(score(exact), abs=SAME)


@pytest.mark.parametrize("metric", ["f1_macro", "f1_micro"])
@pytest.mark.parametrize("shift", [pytest.param(0.0, marks=pytest.mark.slow), -1.5])
def test_few_labels_do_not_hurt(metric, shift):
    """Tuned thresholds are about as good as the network's own, and better where those are off."""
    gains = []
    for seed in range(6):
        (z, y), (fresh, truth) = (
            problem(n, 4, s, shift=shift) for n, s in ((80, seed), (4000, 100 + seed))
        )
        rule = fit_decision(z, y, metric=metric)
        own, tuned = (REFERENCE[metric](truth, p) for p in ((fresh > 0).astype(int), rule(fresh)))
        gains.append(tuned - own)
    assert np.mean(gains) > (0.03 if shift else 0.01)


def test_enough_labels_decide_alone(monkeypatch):
    monkeypatch.setattr(tuned, "ENOUGH", 30)
    z, y = problem(500, 3)
    rule = fit_decision(z, y, metric="f1_macro")
    assert rule.source == "labels"
    assert np.array_equal(rule(z), by_labels(z, y, "f1_macro"))
    assert rule.score == pytest.approx(f1_score(y, rule(z), average="macro"), abs=SAME)


def test_the_score_is_of_rows_that_were_not_seen():
    z, y = problem(60, 5, shift=-1.0)
    rule = fit_decision(z, y, metric="f1_macro")
    assert rule.source == "labels"
    assert rule.score < f1_score(y, by_labels(z, y, "f1_macro"), average="macro")


def test_constraints_are_about_all_labels():
    z, y = problem(400, 3)
    free = fit_decision(z, y, metric="recall_macro", decision="expected")
    constraint = "precision_micro >= 0.8"
    rule = fit_decision(z, y, metric="recall_macro", constraint=constraint)
    assert precision_score(y, free(z), average="micro") < 0.8
    assert precision_score(y, rule(z), average="micro") >= 0.8
    assert rule(z).mean() > 0.05  # it still finds labels
    left = precision_score(y, rule(z), average="micro") - 0.8
    assert rule.slacks == pytest.approx({constraint: left}, abs=SAME)
    assert left >= 0
    with pytest.raises(ValueError, match=r"best rule found reaches precision_micro = 0\.\d+"):
        fit_decision(np.zeros_like(z), y, metric="f1_macro", constraint="precision_micro >= 0.9")


def test_slacks_of_probabilities():
    z, _ = problem(400, 3)
    how = {"metric": "recall_macro", "decision": "expected", "constraint": "precision_micro >= 0.8"}
    rule = fit_decision(z, task="multilabel", **how)
    p = expit(z)
    given = rule(z)
    left = ((given * p).sum() / given.sum()).item() - 0.8
    assert rule.slacks == pytest.approx({how["constraint"]: left}, abs=1e-6)  # of zeros: FLOOR
    assert fit_decision(z, task="multilabel", metric="f1_macro", decision="expected").slacks is None


def test_ignored_labels_and_weights():
    z, y = problem(300, 2)
    hidden = y.copy()
    hidden[::3, 0] = -100
    rule = fit_decision(z, hidden, metric="f1_macro", decision="expected")
    whole = fit_decision(z, metric="f1_macro", decision="expected", task="multilabel")
    kept = np.arange(300) % 3 != 0
    part = fit_decision(z[kept], metric="f1_macro", decision="expected", task="multilabel")
    assert np.allclose(rule.gain, np.stack([part.gain[0], whole.gain[1]]))
    shares = fit_decision(z, hidden, metric="f1_macro").class_prior
    expected = np.stack([y[kept, 0].mean(), y[:, 1].mean()])
    np.testing.assert_allclose(shares, expected)
    weight = np.arange(300) < 200
    some = fit_decision(z, y, metric="f1_macro", sample_weight=weight)
    assert np.array_equal(some.gain, fit_decision(z[:200], y[:200], metric="f1_macro").gain)


def test_forms():
    """Logits, probabilities and arrays; images; bools; JSON."""
    z, y = problem(120, 3)
    rule = fit_decision(z, y, metric="f1_macro", classes=["a", "b", "c"])
    assert rule(z).shape == (120, 3)
    assert rule(z).dtype == np.int64
    same = fit_decision(y=y, probabilities=expit(z), metric="f1_macro")
    assert np.array_equal(same(probabilities=expit(z)), rule(z))
    assert np.array_equal(fit_decision(z, y.astype(bool), metric="f1_macro").gain, rule.gain)
    assert np.array_equal(rule.scores(z) > 0, rule(z).astype(bool))
    np.testing.assert_allclose(rule.probabilities(z), expit(z))
    copy = DecisionRule.from_state_dict(json.loads(json.dumps(rule.state_dict())))
    assert np.array_equal(copy(z), rule(z))
    assert copy.task == "multilabel"
    images = np.moveaxis(z.reshape(4, 30, 3), -1, 1)
    dense = fit_decision(
        images, np.moveaxis(y.reshape(4, 30, 3), -1, 1), metric="f1_macro", class_dim=1
    )
    assert np.array_equal(dense.gain, rule.gain)
    assert np.array_equal(dense(images), np.moveaxis(rule(z).reshape(4, 30, 3), -1, 1))
    last = fit_decision(
        z.reshape(4, 30, 3), y.reshape(4, 30, 3), metric="f1_macro", class_dim=-1, task="multilabel"
    )
    assert np.array_equal(last(z.reshape(4, 30, 3)), rule(z).reshape(4, 30, 3))


def test_offsets_and_argmax():
    z, y = problem(200, 3)
    offsets = np.array([0.5, -1.0, 2.0])
    plain = fit_decision(z, metric="f1_macro", decision="expected", task="multilabel")
    rule = fit_decision(
        z - offsets, metric="f1_macro", decision="expected", task="multilabel", offsets=offsets
    )
    assert np.array_equal(rule(z - offsets), plain(z))
    argmax = fit_decision(z, y, metric="f1_macro", decision="argmax", offsets=offsets)
    assert np.array_equal(argmax(z), (z > 0).astype(int))


@pytest.mark.parametrize("decision", ["argmax", "tuned", "expected"])
@pytest.mark.parametrize("case", ["one row", "no positives", "equal rows", "sure"])
def test_degenerate_rows(decision, case):
    z, y = problem(1 if case == "one row" else 30, 3)
    y = np.zeros_like(y) if case == "no positives" else y
    z = np.repeat(z[:1], 30, axis=0) if case == "equal rows" else z
    z = z * 1e4 if case == "sure" else z
    for metric in ("f1_macro", "f1_micro", "jaccard_weighted", worst_f1):
        rule = fit_decision(z, y, metric=metric, decision=decision)
        assert np.isfinite(rule.gain).all()
        assert rule(z).shape == z.shape


Z, Y = problem(4, 3)
BAD = {
    "matrix metric": (
        lambda: fit_decision(Z, Y, metric="matthews_corrcoef"),
        'Use an averaged metric such as "f1_macro"',
    ),
    "binary metric": (lambda: fit_decision(Z, Y, metric="f1"), "classes of f1 must be two. Got 3"),
    "labels": (lambda: fit_decision(Z, Y + 1, metric="f1_macro"), "y .* from 0 to 1 "),
    "half": (lambda: fit_decision(Z, Y * 0.5, metric="f1_macro"), "y .* hold integers"),
    "shape": (
        lambda: fit_decision(Z, Y[:, :2], metric="f1_macro", task="multilabel"),
        "y of fit_decision must have the shape of the scores",
    ),
    "vector": (
        lambda: fit_decision(Z[:, 0], Y[:, 0], metric="f1_macro", task="multilabel"),
        r"logits of fit_decision must have shape \(N, L\)",
    ),
    "columns": (
        lambda: fit_decision(Z, Y, metric="f1_macro")(Z[:, :2]),
        "have 3 labels, as in the fit of the rule. Got 2",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    action, text = BAD[case]
    with pytest.raises(ValueError, match=text):
        action()


def test_a_label_that_all_rows_have_or_none_keeps_the_threshold_of_the_network():
    """Its probabilities alone would move the threshold, and nothing tells if they are right."""
    z, y = problem(150, 3)
    y[:, 1], y[:, 2] = 0, 1
    offsets = [0.5, -1.0, 2.0]
    rule = fit_decision(z, y, metric="f1_macro", offsets=offsets)
    assert rule.log_odds[1:].tolist() == pytest.approx([0, 0])
    assert rule.log_odds[0].item() != pytest.approx(0, abs=0.01)
    # A forest's zeros are not small chances: to label all rows would look better than none.
    p = expit(z)
    p[:, 1] = 0
    for decision in ("tuned", "expected"):
        rule = fit_decision(y=y, probabilities=p, metric="f1_macro", decision=decision)
        assert not rule(probabilities=p)[:, 1].any()


def test_thresholds_lie_halfway_between_labels_and_calibrated_probabilities():
    z, y = problem(150, 3, 7)
    z = 2.5 * z + 1
    rule = fit_decision(z, y, metric="f1_macro")
    for k, (column, labels) in enumerate(zip(z.T, y.T, strict=True)):
        both = np.stack([np.zeros_like(column), column], 1)
        ones = np.ones_like(column)
        objective = Objective.of("test", "f1", None)
        alone = best_threshold(column, labels, ones, objective)
        calibrated = calibrate(both, labels, ones)
        # Half of it is taken from class 0 and added to class 1.
        offset = calibrated.offsets[1] - calibrated.offsets[0]
        margin = calibrated.factor * column + offset
        believed = best_threshold(margin, calibrated.of(both), ones, objective)
        expected = (alone + (believed - offset) / calibrated.factor) / 2
        assert rule.log_odds[k] == pytest.approx(expected, abs=1e-5)
