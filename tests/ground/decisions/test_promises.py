"""Promises for new rows, held against known distributions; gaps between groups."""

import json
import math
import re
import time
import warnings

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import beta, binom, binomtest, norm

from evalign import Confusion, DecisionFitter, fit_decision
from evalign.core.constraints import parse
from evalign.decisions import DecisionRule, ladder
from evalign.decisions.confusions import ScoredRows
from evalign.decisions.families import family_of
from evalign.decisions.ladder import climbed
from evalign.decisions.objective import Objective
from evalign.decisions.p_values import (
    CellSums,
    p_values,
    slack_and_error,
    tail,
)
from evalign.decisions.promise import NotPromisedWarning
from evalign.decisions.tuned import LogitRows
from tests.ground.decisions.problems import one_hot
from tests.tolerances import SAME

PRIOR, APART = 0.3, 2.0


def two(rows, seed):
    """Scores of two normal distributions, `APART` from each other."""
    generator = np.random.default_rng(seed)
    y = (generator.random(rows) < PRIOR).astype(int)
    return generator.standard_normal(rows) + APART * y, y


def truth(rule):
    """The rates of a threshold in the population."""
    t = rule.log_odds
    recall, fpr = norm.sf(t - APART), norm.sf(t)
    labelled = PRIOR * recall + (1 - PRIOR) * fpr
    accuracy = PRIOR * recall + (1 - PRIOR) * (1 - fpr)
    precision = PRIOR * recall / labelled if labelled else 0.0
    return {"recall": recall, "fpr": fpr, "precision": precision, "accuracy": accuracy}


def consistent(broken, draws, level=0.05):
    """Whether so many broken promises are no more than the level says, by a binomial test."""
    return binomtest(broken, draws, level, "greater").pvalue > 0.01


@pytest.mark.parametrize(
    ("constraint", "metric", "rows"),
    [
        ("recall >= 0.9", "precision", 150),
        pytest.param("fpr <= 0.1", "recall", 150, marks=pytest.mark.slow),
        pytest.param("precision >= 0.8", "recall", 400, marks=pytest.mark.slow),
        pytest.param("accuracy >= 0.8", "recall", 400, marks=pytest.mark.slow),
        ("recall >= 0.75, fpr <= 0.25", "f1", 200),
    ],
)
def test_promises_are_kept_in_the_population(constraint, metric, rows):
    draws, broken, promised, plain = 50, 0, 0, 0
    for seed in range(draws):
        z, y = two(rows, seed)
        rule = quietly(z, y, metric=metric, constraint=constraint)
        promised += rule.promised
        broken += rule.promised and not kept(constraint, rule)
        plain += not kept(constraint, fit_decision(z, y, metric=metric, constraint=constraint))
    assert promised > draws / 3  # else there is nothing to break
    assert consistent(broken, draws)
    assert not consistent(plain, draws) or metric == "f1"  # a rule without a margin breaks them


def quietly(*rows, **how):
    """Fit a rule, whether or not it promises."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* does not promise")
        return fit_decision(*rows, confidence=0.95, **how)


def kept(constraint, rule):
    found = truth(rule)
    return all(
        found[each.metric.name] >= each.bound
        if each.at_least
        else found[each.metric.name] <= each.bound
        for each in parse(constraint)
    )


def test_scores_that_tell_nothing_promise_no_precision():
    """Where every threshold breaks the bound by little, testing all would pass one of them."""
    passed, alone, draws = 0, 0, 300
    (constraint,) = parse("precision >= 0.8")
    below = np.arange(601)
    for seed in range(draws):
        y = np.random.default_rng(seed).random(600) < 0.799
        tp = np.concatenate([[0], y[::-1].cumsum()])[::-1]  # above each cut
        above = 600 - below
        p = tail(tp / np.maximum(above, 1), above.astype(float), 0.8)
        passed += climbed(constraint, p, below, 0.05).any()
        alone += (p <= 0.05).any()
    assert consistent(passed, draws)
    assert not consistent(alone, draws)


def test_a_ladder_with_many_starts_spends_its_level_once():
    """Of p-values that are chance alone, some may pass in one draw of twenty."""
    (constraint,) = parse("accuracy >= 0.8")
    draws = np.random.default_rng(0).random((300, 601))
    passed = sum(climbed(constraint, p, np.arange(601), 0.05).any() for p in draws)
    assert passed > 0
    assert consistent(passed, len(draws))


# More than two classes.

SHARES = np.array([0.6, 0.3, 0.1])
CENTRES = 1.3 * np.random.default_rng(5).standard_normal((3, 3))


def three(rows, seed):
    """Logits of the true posterior of three classes, the last of which is rare."""
    generator = np.random.default_rng(seed)
    y = generator.choice(3, rows, p=SHARES)
    x = generator.standard_normal((rows, 3)) + CENTRES[y]
    return np.log(SHARES) + x @ CENTRES.T - (CENTRES**2).sum(1) / 2, y


FRESH, TRUE = three(20_000, 10**6)


def outcomes(constraint, rows, draws, metric="accuracy", scale=1.0):
    """How many rules are promised, and are broken in the population, and their mean metric."""
    promised, broken, scores = 0, 0, []
    groups = np.arange(rows) % 2 if "gap" in constraint else None
    for seed in range(draws):
        logits, y = three(rows, seed)
        rule = quietly(
            scale * logits, y, metric=metric, constraint=constraint, constraint_groups=groups
        )
        if not rule.promised:
            continue
        labels = rule(scale * FRESH)
        fresh_groups = np.arange(len(TRUE)) % 2
        promised += 1
        broken += not met(constraint, labels, TRUE, fresh_groups, 3)
        scores.append((labels == TRUE).mean())
    return promised, broken, np.mean(scores) if scores else None


def test_a_promise_of_few_rows_of_three_classes():
    """A search that saw the labels broke its promise in 8 to 13% of such draws."""
    promised, broken, _ = outcomes("recall[2] >= 0.7", rows=100, draws=300)
    assert promised > 150
    assert consistent(broken, 300)


def test_a_promise_of_three_classes_is_made_and_useful():
    promised, broken, accuracy = outcomes("recall[2] >= 0.7", rows=500, draws=100)
    assert promised >= 95
    assert consistent(broken, 100)
    assert accuracy >= 0.74


@pytest.mark.parametrize(
    ("constraint", "rows"),
    [
        ("precision[2] >= 0.45", 1000),
        ("recall[2] >= 0.3, precision[2] >= 0.3", 1000),
        ("recall[1] >= 0.5, recall[2] >= 0.5", 300),
        ("accuracy >= 0.75", 300),
        ("gap(recall[1]) <= 0.2", 500),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_promises_of_three_classes_are_kept(constraint, rows, scale):
    """Also where the probabilities are far too sure."""
    draws = 40
    promised, broken, _ = outcomes(constraint, rows, draws, metric="f1_macro", scale=scale)
    assert promised > draws / 5  # else there is nothing to break
    assert consistent(broken, draws)


def objective_of(metric, constraint, groups=0):
    return Objective.of("test", metric, constraint, groups=groups)


@pytest.mark.parametrize("metric", ["f1_macro", "matthews_corrcoef"])
@pytest.mark.parametrize("constraint", ["recall[2] >= 0.7", "recall[1] >= 0.5, recall[2] >= 0.5"])
def test_labels_choose_no_rule_of_a_family(metric, constraint):
    """Whatever the labels are, the same rules are tested."""
    logits, y = three(80, 0)
    objective = objective_of(metric, constraint)
    families = [
        family_of(LogitRows(logits, labels, np.ones(80), np.eye(3)), objective)
        for labels in (y, np.random.default_rng(0).permutation(y), np.zeros_like(y))
    ]
    for k in range(len(families[0].tilts)):
        one, *others = (family.gain(k) for family in families)
        assert all(np.array_equal(one, other) for other in others)


@pytest.mark.parametrize("metric", ["f1_macro", "matthews_corrcoef", "accuracy"])
@pytest.mark.parametrize("groups", [0, 2])
def test_the_cells_of_a_family_are_those_of_its_rules(metric, groups):
    logits, y = three(80, 0)
    generator = np.random.default_rng(0)
    weight = generator.random(80)
    group = generator.integers(2, size=80) if groups else None
    name = "gap(recall[2]) <= 0.2" if groups else "recall[2] >= 0.7"
    rows = LogitRows(np.round(logits), y, weight, np.eye(3), group)
    family = family_of(rows, objective_of(metric, name, groups))
    gains = np.stack([family.gain(k) for k in range(len(family.tilts))])
    eta = softmax(rows.logits, 1)
    for cells, mass in ((family.mass, weight), (family.squares, weight**2)):
        by_hand = ScoredRows(eta, rows.target, mass, groups or 1).matrices(gains)
        assert cells == pytest.approx(by_hand, abs=SAME)


def test_a_promise_takes_at_most_three_times_as_long():
    generator = np.random.default_rng(0)
    y = np.arange(100) % 4
    logits = generator.standard_normal((100, 4)) + 1.5 * one_hot(y, 4)
    how = {"metric": "f1_macro", "constraint": "recall[3] >= 0.6"}
    plain = seconds(lambda: fit_decision(logits, y, **how))
    assert seconds(lambda: quietly(logits, y, **how)) <= 3 * plain


def test_a_bound_takes_at_most_five_times_as_long():
    generator = np.random.default_rng(0)
    y = np.arange(60) % 12
    logits = generator.standard_normal((60, 12)) + 1.5 * one_hot(y, 12)
    how = {"metric": "matthews_corrcoef"}
    plain = seconds(lambda: fit_decision(logits, y, **how))
    bounded = seconds(lambda: fit_decision(logits, y, constraint="recall[1] >= 0.5", **how))
    assert bounded <= 5 * plain


def seconds(call):
    """The shortest time of three calls, of this process alone."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("confidence", [None, 0.95])
def test_a_bound_that_is_repeated_is_one_bound(confidence):
    logits, y = three(200, 0)
    how = {"metric": "accuracy", "confidence": confidence}
    once = fit_decision(logits, y, constraint="recall[2] >= 0.5", **how)
    often = fit_decision(logits, y, constraint=", ".join(300 * ["recall[2] >= 0.5"]), **how)
    assert np.array_equal(once.gain, often.gain)
    assert once.promised == often.promised
    assert once.slacks == often.slacks


# More confidence.

CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.95, 0.975, 0.99, 0.999)


def test_a_precision_is_promised_at_any_smaller_confidence():
    r = np.random.default_rng(0)
    p = r.random(1000)
    y = (p > 0.97).astype(int) | (r.random(1000) < 0.05 * (p < 0.97)).astype(int)
    how = {"metric": "f1", "constraint": "precision >= 0.8"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPromisedWarning)
        made = [
            fit_decision(probabilities=p, y=y, confidence=confidence, **how).promised
            for confidence in CONFIDENCES
        ]
    assert made == [confidence <= 0.99 for confidence in CONFIDENCES]


@pytest.mark.parametrize(
    "bound", ["precision >= 0.8", "npv >= 0.8", "accuracy >= 0.8", "gap(recall) <= 0.1"]
)
def test_a_larger_level_passes_whatever_a_smaller_one_passes(bound):
    (constraint,) = parse(bound)
    generator = np.random.default_rng(0)
    levels = np.sort(np.concatenate([10 ** generator.uniform(-7, -0.31, 60), [0.01, 0.05, 0.2]]))
    for _ in range(10):
        p = generator.random(801) ** 6
        passes = np.stack([climbed(constraint, p, np.arange(801), level) for level in levels])
        assert (passes[1:] >= passes[:-1]).all()
    assert passes.any()


@pytest.mark.parametrize("bound", ["precision >= 0.8", "npv >= 0.8", "accuracy >= 0.8"])
@pytest.mark.parametrize("level", [1e-9, 0.003, 0.05, 0.5])
def test_a_ladder_spends_its_level(bound, level):
    """The parts of its starts are no more than the level together."""
    (constraint,) = parse(bound)
    parts = []

    def spent(p, order, given):
        parts.append(given.sum())
        return p < 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ladder, "_fallback", spent)
        climbed(constraint, np.zeros(501), np.arange(501), level)
    assert parts == [pytest.approx(level)]


# The tests themselves.


def test_tails_are_binomial():
    for rows, found in ((29, 29), (50, 47), (50, 0), (3, 1)):
        exact = binom.sf(found - 1, rows, 0.9)
        assert tail(np.array(found / rows), np.array(float(rows)), 0.9) == pytest.approx(exact)
    # The bound is where Clopper and Pearson's limit is.
    limit = beta.ppf(0.05, 47, 4)
    assert tail(np.array(47 / 50), np.array(50.0), limit) == pytest.approx(0.05)


def test_if_all_are_right_the_bound_to_the_power_of_rows_is_the_p_value():
    for bound in (0.5, 0.8, 0.9, 0.99):
        assert tail(np.array(1.0), np.array(29.0), bound) == pytest.approx(bound**29)


def evidence(matrices, weight=1.0):
    mass = np.array(matrices)
    return CellSums(weight * mass, weight**2 * mass)


@pytest.mark.parametrize("name", ["recall", "accuracy", "gap(recall)", "gap(precision)"])
def test_standard_errors_are_those_of_resampling(name):
    """The deviation over multinomial draws, with 1/√(2·draws) = 1% of error of its own.

    What is left out are terms of second order, some per cent with hundreds of rows.
    """
    cells = np.array([[[300, 40], [30, 90]], [[220, 60], [25, 35]]])
    gap = name.startswith("gap")
    sign = "<= 0.5" if gap else ">= 0.5"
    (constraint,) = parse(f"{name} {sign}")
    slack, error = slack_and_error(constraint, evidence([cells.tolist()]), 0.0)
    parts = cells if gap else cells.sum(0, keepdims=True)
    drawn = [
        np.random.default_rng(k).multinomial(part.sum(), part.flatten() / part.sum(), 5000)
        for k, part in enumerate(parts)
    ]

    matrices = np.stack(drawn, 1).reshape(5000, -1, 2, 2)
    confusions = [Confusion.from_matrix(part) for part in np.moveaxis(matrices, 1, 0)]
    values = constraint.slack(Confusion.from_matrix(matrices.sum(1)), confusions)
    assert error.item() == pytest.approx(values.std(ddof=1), rel=0.04)
    assert slack.item() == pytest.approx(values.mean().item(), abs=0.1 * error.item())


def test_few_perfect_rows_are_not_certain():
    (constraint,) = parse("gap(recall) <= 0.1")
    for rows, sure in ((10, False), (1000, True)):
        p = p_values(constraint, evidence([2 * [[[rows, 0], [0, rows]]]]))
        assert (p[0] <= 0.05) == sure


def test_weights_count_as_kishs_rows():
    """Twice the weight of all changes nothing; two halves that differ are worth fewer rows."""
    for text in ("recall >= 0.8", "gap(recall) <= 0.3"):
        (constraint,) = parse(text)
        cells = [[[[50, 5], [4, 41]], [[50, 5], [9, 36]]]]
        same = p_values(constraint, evidence(cells, 3.0))
        assert same == pytest.approx(p_values(constraint, evidence(cells)), abs=SAME)
        mass, squares = evidence(cells)
        uneven = p_values(constraint, CellSums(mass, 2 * squares))
        assert uneven[0] > same[0]
    z, y = two(200, 0)
    weight = np.where(np.arange(200) % 2 == 0, 1.9, 0.1)
    how = {"metric": "precision", "constraint": "recall >= 0.8", "confidence": 0.95}
    even, uneven = fit_decision(z, y, **how), fit_decision(z, y, sample_weight=weight, **how)
    assert uneven.slacks["recall >= 0.8"] > even.slacks["recall >= 0.8"]
    numpys = fit_decision(z, y, **(how | {"confidence": np.float32(0.9)}))
    assert json.loads(json.dumps(numpys.state_dict()))["confidence"] == pytest.approx(0.9)


def test_a_gap_is_broken_by_its_worst_pair():
    cells = [[[50, 5], [10, 90]], [[50, 5], [12, 88]], [[50, 5], [30, 70]]]
    (constraint,) = parse("gap(recall) <= 0.3")
    z = 1.645
    slack, error = slack_and_error(constraint, evidence([cells]), z**2)
    n = 100 + z**2
    p, q = ((k + z**2 / 2) / n for k in (90, 70))
    assert slack.item() == pytest.approx(0.3 - (p - q))
    assert error.item() == pytest.approx(math.sqrt((p * (1 - p) + q * (1 - q)) / n))


def test_a_group_is_not_paired_with_itself():
    """Of a large and a small group that are alike, the error is not twice that of the small one."""
    (constraint,) = parse("gap(recall) <= 0.3")
    z = 1.645
    cells = [[[50, 5], [20, 80]], [[50, 5], [2000, 8000]]]
    slack, error = slack_and_error(constraint, evidence([cells]), z**2)
    (p, n), (q, m) = (((0.8 * k + z**2 / 2) / (k + z**2), k + z**2) for k in (100, 10_000))
    assert slack.item() == pytest.approx(0.3 - (q - p))
    assert error.item() == pytest.approx(math.sqrt(p * (1 - p) / n + q * (1 - q) / m))


def test_added_rows_of_three_classes():
    """Half of z² rows are right."""
    (constraint,) = parse("accuracy >= 0.5")
    z, cells = 2.0, np.array([[20.0, 5, 5], [4, 10, 6], [2, 3, 5]])
    slack, error = slack_and_error(constraint, evidence([[cells.tolist()]]), z**2)
    n = cells.sum().item() + z**2
    p = (cells.trace().item() + z**2 / 2) / n
    assert slack.item() == pytest.approx(p - 0.5)
    assert error.item() == pytest.approx(math.sqrt(p * (1 - p) / n))


def test_the_safest_of_rules_that_promise_nothing():
    """By hand, it has the smallest of the larger p-values of two constraints."""
    z, y = two(26, 1)
    how = {"metric": "f1", "constraint": "recall >= 0.7, fpr <= 0.3", "confidence": 0.95}
    with pytest.warns(UserWarning, match="does not promise"):
        labels = fit_decision(z, y, **how)(z)
    n = y.sum().item()

    def worst(labels):
        found, false = (labels[y == 1].sum().item(), labels[y == 0].sum().item())
        if found < 0.7 * n or false > 0.3 * (26 - n):
            return 1.0
        return max(binom.sf(found - 1, n, 0.7), binom.cdf(false, 26 - n, 0.3))

    assert worst(labels) == pytest.approx(min(worst((z > cut).astype(int)) for cut in z))


@pytest.mark.parametrize("classes", [2, 3])
def test_nothing_is_promised_of_a_group_without_a_row_of_the_class(classes):
    y = np.arange(900) % classes
    logits = 5.0 * one_hot(y, classes)
    group = (np.arange(900) // classes) % 2
    how = {"metric": "f1_macro", "constraint": "gap(recall[1]) <= 0.2", "confidence": 0.9}
    assert fit_decision(logits, y, constraint_groups=group, **how).promised
    with pytest.warns(UserWarning, match="does not promise"):
        rule = fit_decision(logits, y, constraint_groups=np.where(y == 1, 0, group), **how)
    assert rule.promised is False
    with pytest.raises(
        ValueError, match="constraint_groups of fit_decision must name at least two groups"
    ):
        fit_decision(logits, y, constraint_groups=group, sample_weight=group, **how)


# What comes out.


def test_too_few_rows_promise_nothing():
    z = np.concatenate([np.linspace(-3, 1, 40), np.linspace(0, 4, 20)])
    y = np.arange(60) >= 40
    how = {"metric": "precision", "constraint": "recall >= 0.9", "confidence": 0.95}
    text = (
        "The rule does not promise its constraint with confidence 0.95: it holds on these rows, "
        "but may not on new data. The rule is the safest one found. These rows prove 'recall >= "
        "0.86'. 'recall >= 0.9' takes 29 rows of the class, even if all of them are right. Here "
        "are 20. Provide more labelled rows, or lower the confidence."
    )
    with pytest.warns(UserWarning, match=re.escape(text)):
        rule = fit_decision(z, y.astype(int), **how)
    assert rule.promised is False
    # The safest: it finds any row of class 1, also of new ones.
    assert rule.slacks["recall >= 0.9"] == pytest.approx(0.1)
    assert (rule([-1000.0, *z]) == 1).all()
    copies = fit_decision(np.tile(z, 2), np.tile(y, 2).astype(int), **how)  # 40 rows of class 1
    assert copies.promised is True
    state = json.loads(json.dumps(copies.state_dict()))
    again = DecisionRule.from_state_dict(state)
    assert (again.promised, again.confidence) == (True, 0.95)
    assert "promised=True" in repr(again)
    assert fit_decision(z, y.astype(int), metric="f1").promised is None


def test_the_rule_without_a_promise_is_as_safe_as_one_label_for_all_rows():
    """Cuts through few rows of a class would break a bound on new rows in about half of draws."""
    for seed in range(30):
        generator = np.random.default_rng(seed)
        y = np.arange(60) < 6
        z = generator.standard_normal(60) + 1.5 * y
        how = {"metric": "f1", "confidence": 0.95}
        text = r"prove 'recall >= 0\.606'.* takes 29 rows of the class, .* Here are 6\."
        with pytest.warns(NotPromisedWarning, match=text):
            rule = fit_decision(z, y.astype(int), constraint="recall >= 0.9", **how)
        assert (rule(np.linspace(-500, 500, 101)) == 1).all()
        text = r"'fpr <= 0\.01' takes 299 rows of other classes, .* Here are 54\."
        with pytest.warns(NotPromisedWarning, match=text):
            rule = fit_decision(z, y.astype(int), constraint="fpr <= 0.01", **how)
        assert (rule(np.linspace(-500, 500, 101)) == 0).all()


def test_the_rule_without_a_promise_of_three_classes():
    logits, y = three(40, 2)
    with pytest.warns(NotPromisedWarning, match="takes 29 rows of the class"):
        rule = fit_decision(
            logits, y, metric="accuracy", constraint="recall[2] >= 0.9", confidence=0.95
        )
    assert (rule(50 * FRESH) == 2).all()
    assert not rule.promised


def test_what_is_proven_would_have_been_promised():
    z, y = two(200, 3)
    how = {"metric": "recall", "confidence": 0.95}
    with pytest.warns(NotPromisedWarning, match="These rows prove") as caught:
        fit_decision(z, y, constraint="precision >= 0.95", **how)
    proven = float(re.search(r"'precision >= ([0-9.]+)'", str(caught[0].message))[1])
    assert fit_decision(z, y, constraint=f"precision >= {proven}", **how).promised
    with pytest.warns(NotPromisedWarning):
        fit_decision(z, y, constraint=f"precision >= {proven + 0.002}", **how)


def test_more_confidence_takes_more():
    z, y = two(500, 0)
    slacks = [
        fit_decision(z, y, metric="precision", constraint="recall >= 0.8", confidence=c).slacks
        for c in (0.5, 0.8, 0.95, 0.99)
    ]
    values = [each["recall >= 0.8"] for each in slacks]
    assert values == sorted(values)
    assert values[0] < values[-1]


# Gaps: one rule for all groups.


def grouped(rows, classes, seed):
    generator = np.random.default_rng(seed)
    y = generator.integers(classes, size=rows)
    groups = generator.integers(3, size=rows)
    x = generator.standard_normal((rows, classes))
    x[np.arange(rows), y] += 1.0 + 0.6 * groups
    return x, y, groups


def met(constraint, labels, y, groups, classes):
    def of(rows):
        return Confusion.from_predictions(labels[rows], y[rows], num_classes=classes, matrix=True)

    parts = [of(groups == k) for k in np.unique(groups)]
    whole = of(np.ones_like(y, dtype=bool))
    return all(each.slack(whole, parts) >= -SAME for each in parse(constraint))


@pytest.mark.parametrize(
    "constraint", ["gap(recall) <= 0.1", "gap(recall) <= 0.2, gap(fpr) <= 0.2"]
)
def test_gaps_of_two_classes_are_the_best_of_all_cuts(constraint):
    for seed in range(4):
        logits, y, groups = grouped(60, 2, seed)
        z = logits[:, 1] - logits[:, 0]
        objective = Objective.of("test", "f1", None)
        eye = np.eye(2)
        scores = [
            objective.scores((eye[y].T @ eye[labels])[None]).item()
            for labels in ((z > cut).astype(int) for cut in [z.min() - 1, *z])
            if met(constraint, labels, y, groups, 2)
        ]
        rule = fit_decision(logits, y, metric="f1", constraint=constraint, constraint_groups=groups)
        assert met(constraint, rule(logits), y, groups, 2)
        assert rule.score == pytest.approx(max(scores), abs=SAME)
        words = np.array(["b", "a", "c c"])[groups]
        same = fit_decision(logits, y, metric="f1", constraint=constraint, constraint_groups=words)
        assert np.array_equal(same.gain, rule.gain)


def test_gaps_of_three_classes_are_near_brute_force():
    constraint, generator = "gap(recall[2]) <= 0.15", np.random.default_rng(0)
    tried = generator.random((300, 3))
    logits, y, groups = grouped(90, 3, 0)
    eta = softmax(logits, 1)
    scores = []
    for weights in tried:
        labels = (weights * eta).argmax(1)
        if met(constraint, labels, y, groups, 3):
            scores.append((labels == y).mean().item())
    rule = fit_decision(
        logits, y, metric="accuracy", constraint=constraint, constraint_groups=groups
    )
    assert met(constraint, rule(logits), y, groups, 3)
    assert rule.score >= max(scores) - 2 / 90  # two rows, as for other constraints


def test_a_gap_that_does_not_bind_changes_nothing():
    logits, y, groups = grouped(3000, 2, 0)
    free = fit_decision(logits, y, metric="accuracy", decision="expected")
    how = {"metric": "accuracy", "constraint": "gap(recall) <= 0.9", "constraint_groups": groups}
    assert np.array_equal(fit_decision(logits, y, decision="expected", **how).gain, free.gain)
    promised = fit_decision(logits, y, confidence=0.95, **how)
    assert promised.promised
    weight = np.arange(3000) < 2000
    part = fit_decision(logits, y, sample_weight=weight, **how)  # rows of weight 0 are left out
    alone = how | {"constraint_groups": groups[:2000]}
    assert np.array_equal(part.gain, fit_decision(logits[:2000], y[:2000], **alone).gain)


Z, Y = two(40, 0)
GAP = {"metric": "f1", "constraint": "gap(recall) <= 0.5"}
# name: (arguments, full text)
WRONG = {
    "no groups": (
        GAP,
        "constraint_groups of fit_decision must be given for a constraint with a gap. Got none. "
        'Use fit_decision with both: constraint="gap(recall) <= 0.05", constraint_groups=groups.',
    ),
    "groups without a gap": (
        {"metric": "f1", "constraint_groups": Y},
        "constraint_groups of fit_decision must be None without a gap. Got groups. "
        'Use fit_decision with both: constraint="gap(recall) <= 0.05", constraint_groups=groups.',
    ),
    "one group": (
        GAP | {"constraint_groups": ["a"] * 40},
        "constraint_groups of fit_decision must name at least two groups. Got 1.",
    ),
    "numbers with fractions": (
        GAP | {"constraint_groups": Z},
        "constraint_groups of fit_decision must be integers or strings. Got float64. "
        "Give rows that lack one a group of their own.",
    ),
    "a confidence of nothing": (
        {"metric": "f1", "confidence": 0.95},
        'confidence of fit_decision must come with a constraint, such as "recall >= 0.9", and '
        "decision tuned. Got constraint None and decision tuned. A promise is of labels.",
    ),
    "a confidence of probabilities": (
        {"metric": "f1", "constraint": "recall >= 0.5", "confidence": 0.9, "decision": "expected"},
        'confidence of fit_decision must come with a constraint, such as "recall >= 0.9", and '
        "decision tuned. Got constraint 'recall >= 0.5' and decision expected. A promise is of "
        "labels.",
    ),
    "a confidence of a metric that is no rate": (
        {"metric": "f1", "constraint": "f1 >= 0.5, recall >= 0.5", "confidence": 0.9},
        "confidence of fit_decision must come with bounds on recall, fnr, specificity, fpr, "
        "predicted_rate, accuracy, precision, npv, each of one class, or on their gaps. Got "
        "'f1 >= 0.5'.",
    ),
    "per cent": (
        {"metric": "f1", "constraint": "recall >= 0.5", "confidence": 95},
        "confidence of fit_decision must lie from 0.5 to below 1. Got 95.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_say_what_to_write(name):
    arguments, text = WRONG[name]
    with pytest.raises(ValueError, match=re.escape(text) + "$"):
        fit_decision(Z, Y, **arguments)


def test_what_has_no_groups_or_promises():
    many = np.stack([Y, Y], 1)
    with pytest.raises(
        ValueError,
        match="constraint_groups and confidence of fit_decision must be None for multilabel",
    ):
        quietly(np.stack([Z, Z], 1), many, metric="f1_macro", constraint="recall[0] >= 0.1")
    with pytest.raises(
        ValueError, match="constraint_groups of DecisionFitter must be given for a constraint"
    ):
        DecisionFitter("f1", constraint="gap(recall) <= 0.5")
    bounds = "recall >= 0.99, precision >= 0.99"
    with pytest.raises(ValueError, match="must be met by some rule on these rows"):
        fit_decision(Z, Y, metric="f1", constraint=bounds, confidence=0.95)
