"""EAST Section 5.1: what memberships, metrics and their optima become as T falls to 0.

Prop. 5.2 is about memberships, Thm 5.3 about metrics where they are continuous (and here also
about what happens where they are not), Thm 5.4 about the parameters that optimise them.
"""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from evalign import Confusion, metrics
from evalign.membership import soft_sets
from tests.tolerances import EXPONENT, LIMIT, RATE, SAME

COLD = 1e-9  # the temperature at which limits are compared
MARGIN = 1e-6  # the smallest gap between the two largest probabilities, or between p and τ


def top_two(logits):
    """Return the two largest probabilities of every row."""
    return logits.softmax(-1).topk(2, dim=-1).values.unbind(-1)


def exponent(temperatures, errors):
    """Compute a in error ~ T^a from the first and the last error."""
    return math.log(errors[-1] / errors[0]) / math.log(temperatures[-1] / temperatures[0])


# Proposition 5.2.


@st.composite
def rows(draw, margin):
    """Draw one row of logits whose arg max leads by at least `margin` in probability."""
    logits = draw(st.lists(st.floats(-5, 5), min_size=1, max_size=5))
    lead = 10 ** draw(st.floats(-5, 0.5))
    winner = draw(st.integers(0, len(logits)))
    logits.insert(winner, max(logits) + lead)
    row = torch.tensor([logits], dtype=torch.float64)
    first, second = top_two(row)
    assume((first - second).item() >= margin)
    return row, winner


def deviation(row, winner, temperature):
    """Compute the distance of g_T(p) from the one-hot row, the sum over the other classes."""
    g = soft_sets.multiclass(row, temperature=temperature)[0]
    assert g.sum().item() == pytest.approx(1, abs=SAME)
    g[winner] = 0  # 1 − g without cancellation
    return g.sum().item()


@given(rows(margin=0.06), st.floats(1e-8, 1e-2))
def test_membership_is_one_hot_up_to_a_multiple_of_the_temperature(problem, temperature):
    row, winner = problem
    first, second = (p.item() for p in top_two(row))
    tau = (first + second) / 2
    assert 2.5 * temperature * tau < (first - second) / 2  # T small, as in the paper's proof
    # Σ_k≠1 H_k = T (1 − p1) / (τ (1 − 2.5 T)), over a norm of at least H_1 ≥ 1 − T
    bound = temperature * (1 - first) / tau / ((1 - 2.5 * temperature) * (1 - temperature))
    assert deviation(row, winner, temperature) <= bound * (1 + SAME)


@given(rows(margin=MARGIN))
def test_membership_deviates_by_one_minus_p_over_tau_times_the_temperature(problem):
    row, winner = problem
    first, second = (p.item() for p in top_two(row))
    temperature = 1e-7
    others = row.softmax(-1)[0]
    others[winner] = 0  # 1 − p1 without cancellation
    slope = others.sum().item() / ((first + second) / 2)
    assert deviation(row, winner, temperature) / temperature == pytest.approx(slope, rel=RATE)


# Theorem 5.3, against scikit-learn.


def negative_predictive_value(true, predicted):
    return sk.precision_score(true, predicted, pos_label=0)


def g_mean(true, predicted):
    recalls = sk.recall_score(true, predicted, average=None)
    return math.prod(recalls) ** (1 / len(recalls))


def expected_cost(cost, true, predicted):
    return (np.array(cost) * sk.confusion_matrix(true, predicted, normalize="all")).sum()


# scikit-learn averages these itself,
AVERAGED = {
    "precision": sk.precision_score,
    "recall": sk.recall_score,
    "f1": sk.f1_score,
    "f2": partial(sk.fbeta_score, beta=2),
    "f0.5": partial(sk.fbeta_score, beta=0.5),
    "jaccard": sk.jaccard_score,
}
# and of these it has the score of one class: often as a score of the other class.
ONE_CLASS = AVERAGED | {
    "specificity": partial(sk.recall_score, pos_label=0),
    "npv": negative_predictive_value,
    "informedness": partial(sk.balanced_accuracy_score, adjusted=True),
}
WHOLE = {
    "accuracy": sk.accuracy_score,
    "balanced_accuracy": sk.balanced_accuracy_score,
    "matthews_corrcoef": sk.matthews_corrcoef,
    "cohen_kappa": sk.cohen_kappa_score,
    "cohen_kappa_linear": partial(sk.cohen_kappa_score, weights="linear"),
    "cohen_kappa_quadratic": partial(sk.cohen_kappa_score, weights="quadratic"),
    "g_mean": g_mean,
}


def averaged(base, average, true, predicted):
    """The opponent of a per-class metric, for labels (n,) or indicators (n, labels)."""
    if base in AVERAGED:
        return AVERAGED[base](true, predicted, average=average)
    if true.ndim == 1:
        true, predicted = (np.eye(true.max() + 1, dtype=int)[x] for x in (true, predicted))
    if average == "micro":
        return ONE_CLASS[base](true.ravel(), predicted.ravel())
    scores = [ONE_CLASS[base](t, p) for t, p in zip(true.T, predicted.T, strict=True)]
    return np.average(scores, weights=true.sum(0) if average == "weighted" else None)


AVERAGES = {
    f"{base}_{average}": partial(averaged, base, average)
    for base in ONE_CLASS
    for average in ("macro", "micro", "weighted")
}
COST_2 = [[0, 1], [5, -1]]
COST_4 = [[0, 1, 2, 3], [5, 0, 1, 1], [2, 2, -1, 2], [9, 1, 1, 0]]
COSTS = {
    classes: {metrics.ExpectedCost(cost): partial(expected_cost, cost)}
    for classes, cost in {2: COST_2, 4: COST_4}.items()
}


def every(opponents):
    return pytest.mark.parametrize(
        ("metric", "opponent"),
        [
            pytest.param(metrics.resolve(m) if isinstance(m, str) else m, f, id=str(m))
            for m, f in opponents.items()
        ],
    )


def test_every_metric_has_an_opponent():
    assert set(ONE_CLASS) | set(AVERAGES) | set(WHOLE) == set(metrics.names())


def noise(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels(*shape, seed, high):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def multiclass_problem(classes, seed):
    """Logits and labels in the theorem's domain; every tenth row at the smallest margin."""
    target = labels(200, seed=seed, high=classes)
    logits = noise(200, classes, seed=seed) + torch.nn.functional.one_hot(target, classes)
    best, index = logits[::10].topk(2, dim=-1)
    # p1 − p2 = p1 (1 − exp(−gap)) with p1 ≥ 1 / classes
    logits[::10] = logits[::10].scatter(1, index[:, 1:], best[:, :1] - 1.01 * MARGIN * classes)
    first, second = top_two(logits)
    assert MARGIN <= (first - second).min() <= classes * 1.02 * MARGIN
    assert (torch.bincount(target, minlength=classes) > 0).all()
    assert (torch.bincount(logits.argmax(1), minlength=classes) > 0).all()
    return logits, target


def thresholded_problem(thresholds, shape, seed):
    """Logits of labels in the theorem's domain; every tenth row as close to τ as allowed."""
    target = labels(*shape, seed=seed, high=2)
    p = (noise(*shape, seed=seed) + target + thresholds.logit()).sigmoid()
    side = torch.where(noise(*shape, seed=seed + 1) > 0, 1, -1)
    p[::10] = (thresholds + side * 1.01 * MARGIN)[::10]
    logits = p.logit()
    assert MARGIN <= (logits.sigmoid() - thresholds).abs().min() <= 1.02 * MARGIN
    predicted = (logits.sigmoid() >= thresholds).long()
    for x in (target, predicted):
        assert ((x.sum(0) > 0) & (x.sum(0) < len(x))).all()
    return logits, target, predicted


@every(AVERAGES | WHOLE | COSTS[4])
@pytest.mark.parametrize("seed", [0, 1])
def test_multiclass_metrics_become_scikit_learns(metric, opponent, seed):
    logits, target = multiclass_problem(4, seed)
    c = Confusion.from_logits(logits, target, temperature=COLD, matrix=True)
    expected = opponent(target.numpy(), logits.argmax(1).numpy())
    assert metric(c).item() == pytest.approx(expected, abs=LIMIT)


@every(ONE_CLASS | AVERAGES | WHOLE | COSTS[2])
@pytest.mark.parametrize("threshold", [0.03, 0.5, 0.8])
def test_binary_metrics_become_scikit_learns(metric, opponent, threshold):
    tau = torch.tensor(threshold, dtype=torch.float64)
    logits, target, predicted = thresholded_problem(tau, (200,), seed=0)
    c = Confusion.from_logits(logits, target, temperature=COLD, threshold=tau, matrix=True)
    expected = opponent(target.numpy(), predicted.numpy())
    assert metric(c).item() == pytest.approx(expected, abs=LIMIT)


@every(AVERAGES)
def test_multilabel_metrics_become_scikit_learns(metric, opponent):
    tau = torch.tensor([0.1, 0.5, 0.75], dtype=torch.float64)
    logits, target, predicted = thresholded_problem(tau, (200, 3), seed=0)
    c = Confusion.from_logits(logits, target.bool(), temperature=COLD, threshold=tau)
    expected = opponent(target.numpy(), predicted.numpy())
    assert metric(c).item() == pytest.approx(expected, abs=LIMIT)


@pytest.mark.parametrize("name", ["f1_macro", "accuracy", "precision_macro", "matthews_corrcoef"])
def test_metrics_converge_in_proportion_to_the_temperature(name):
    logits, target = multiclass_problem(3, seed=3)
    hard = Confusion.from_predictions(logits.argmax(1), target)
    metric, temperatures = metrics.resolve(name), [1e-7, 1e-8]
    soft = [Confusion.from_logits(logits, target, temperature=t) for t in temperatures]
    errors = [abs(metric(c) - metric(hard)).item() for c in soft]
    assert exponent(temperatures, errors) == pytest.approx(1, abs=EXPONENT)


# Where Theorem 5.3 does not apply: the metric jumps, or the arg max is not unique.


def one_class_always_wins(seed):
    """Three classes in the labels; class 0 is predicted everywhere."""
    target = labels(60, seed=seed, high=3)
    logits = noise(60, 3, seed=seed) + torch.nn.functional.one_hot(target, 3)
    logits[:, 0] = logits.max(1).values + 0.5
    return logits, target


def test_precision_of_a_class_never_predicted_has_another_limit():
    logits, target = one_class_always_wins(seed=4)
    c = Confusion.from_logits(logits, target, temperature=COLD)
    p, (first, second) = logits.softmax(-1), top_two(logits)
    # The memberships of a loser are T p / τ to first order; their quotient forgets the T.
    share = p / ((first + second) / 2).unsqueeze(1)
    limit = [(share[target == k, k].sum() / share[:, k].sum()).item() for k in (1, 2)]
    precision = metrics.Precision(average=None)(c)
    assert precision[1:].tolist() == pytest.approx(limit, abs=LIMIT)

    scored = sk.precision_score(target, logits.argmax(1), average=None, zero_division=0)
    assert scored[1:].tolist() == [0, 0]
    macro = metrics.resolve("precision_macro")(c).item()
    assert macro == pytest.approx((scored[0] + sum(limit)) / 3, abs=LIMIT)
    assert macro > scored.mean() + 0.1


def test_correlation_converges_with_the_root_of_the_temperature_when_one_class_wins_all():
    logits, target = one_class_always_wins(seed=4)
    metric, temperatures = metrics.MatthewsCorrcoef(), [1e-5, 1e-7, 1e-9]
    assert sk.matthews_corrcoef(target, logits.argmax(1)) == 0
    soft = [
        metric(Confusion.from_logits(logits, target, temperature=t)).item() for t in temperatures
    ]
    assert exponent(temperatures, soft) == pytest.approx(0.5, abs=EXPONENT)
    assert soft[-1] > LIMIT


@pytest.mark.parametrize("temperature", [0.4, 0.2, 1e-3, COLD, 1e-15])
@pytest.mark.parametrize("tied", [2, 3])
def test_ties_never_become_hard(temperature, tied):
    logits = torch.tensor([[1.0] * tied + [0.0]], dtype=torch.float64)
    g = soft_sets.multiclass(logits, temperature=temperature)[0]
    assert (g[:tied] == g[0]).all()
    assert g[-1] <= temperature  # T p / (τ − w) over a norm of at least 1, with p below τ − w
    at_threshold = soft_sets.binary(torch.zeros(1).double(), temperature=temperature)
    assert at_threshold.item() == 0.5


# Theorem 5.4: an ordinal classifier of a number x with two boundaries a < b, each on a grid.

POINTS = torch.arange(16, dtype=torch.float64)
BOUNDARIES = torch.arange(0.5, 15, dtype=torch.float64)  # half-way: no row comes near a tie


def ordinal_logits(x, a, b):
    """The arg max is 0 below a, 1 between a and b, 2 above b."""
    return torch.stack([torch.zeros_like(x), x - a, 2 * x - a - b], -1)


def ordinal_problem(seed):
    """Five noisy labels at every point, the last class rare."""
    x = POINTS.repeat_interleave(5)
    latent = x + 4 * noise(len(x), seed=seed)
    return x, (latent > 4).long() + (latent > 13)


OTHERS = [pytest.param(x, marks=pytest.mark.slow) for x in ("accuracy", "matthews_corrcoef")]


@pytest.mark.parametrize("name", ["f1_macro", *OTHERS])
def test_optimal_parameters_become_those_of_the_true_metric(name):
    x, target = ordinal_problem(seed=20)
    metric = metrics.resolve(name)
    grid = list(itertools.combinations(BOUNDARIES.tolist(), 2))
    outputs = [ordinal_logits(x, *boundaries) for boundaries in grid]
    margins = [(first - second).min() for first, second in map(top_two, outputs)]
    assert min(margins) > 0.1  # bounded away from 0, as the theorem assumes

    def scores(temperature):
        soft = (Confusion.from_logits(z, target, temperature=temperature) for z in outputs)
        return torch.stack([metric(c) for c in soft])

    true = torch.stack([metric(Confusion.from_predictions(z.argmax(1), target)) for z in outputs])
    best, runner_up = true.topk(2).values
    assert best > runner_up  # a unique optimum

    annealed = [scores(0.2 * 0.25**k) for k in range(8)]
    optima = [score.argmax().item() for score in annealed]
    gaps = [(score - true).abs().max().item() for score in annealed]
    assert optima[0] != true.argmax()  # the warm surrogate has another optimum,
    assert gaps == sorted(gaps, reverse=True)  # annealing converges uniformly,
    assert gaps[-1] < (best - runner_up) / 2
    arrived = next(k for k, gap in enumerate(gaps) if gap < (best - runner_up) / 2)
    assert set(optima[arrived:]) == {true.argmax().item()}  # and then has arrived
