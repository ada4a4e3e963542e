"""Lipschitz constants hold for random pairs, and where they are sharp they are attained.

BtG Thm 4.1 (the step) and 4.2 (entries of the binary matrix), MC-Fβ Thm 5.1 (memberships and
entries of the d × d matrix), and the constants of metrics that EAST Thm 5.9 needs. Distances are
the largest of the entries' distances; matrices are scaled to sum to 1.
"""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evalign import Confusion, metrics
from evalign.membership import heaviside, soft_sets
from tests.theorems import bounds, btg
from tests.tolerances import SAME, SECANT

probabilities = st.floats(0, 1)
thresholds = st.floats(0.02, 0.98)
deltas = st.floats(0.01, 0.49)
temperatures = st.floats(1e-3, 0.39)
seeds = st.integers(0, 2**32 - 1)


def tensor(x):
    return torch.as_tensor(x, dtype=torch.float64)


def distance(a, b):
    return (a - b).abs().max().item()


def within(moved, constant, step):
    """Check |f(a) − f(b)| ≤ L |a − b|, with room for the rounding of f and of the step."""
    return moved <= constant * (step + SAME) + SAME


# BtG Theorem 4.1: the step. Its segments end at τ − w and τ + w, w = share · min(τ, 1 − τ).


def steepest_secant(step, tau, share):
    width = share * min(tau, 1 - tau)
    p = tensor([0, tau - width, tau + width, 1])
    return (step(p, tau).diff() / p.diff()).max().item()


@given(probabilities, probabilities, thresholds, deltas)
def test_linear_step(a, b, tau, delta):
    moved = distance(*(btg.linear(tensor(p), tau, delta=delta) for p in (a, b)))
    assert within(moved, bounds.linear_lipschitz(tau, delta=delta), abs(a - b))


@given(thresholds, deltas)
def test_constant_of_the_linear_step_is_attained(tau, delta):
    slope = steepest_secant(lambda p, t: btg.linear(p, t, delta=delta), tau, 0.5)
    assert bounds.linear_lipschitz(tau, delta=delta) == pytest.approx(slope, rel=SECANT)


@given(probabilities, probabilities, thresholds, temperatures)
def test_tempered_step(a, b, tau, temperature):
    moved = distance(*(heaviside.tempered(tensor(p), tau, temperature=temperature) for p in (a, b)))
    assert within(moved, bounds.tempered_lipschitz(tau, temperature=temperature), abs(a - b))


@given(thresholds, temperatures)
def test_constant_of_the_tempered_step_is_attained(tau, temperature):
    def step(p, t):
        return heaviside.tempered(p, t, temperature=temperature)

    slope = steepest_secant(step, tau, 2.5 * temperature)
    expected = bounds.tempered_lipschitz(tau, temperature=temperature)
    assert expected == pytest.approx(slope, rel=SECANT)


# BtG Theorem 4.2: entries of the binary matrix.


def binary_matrix(p, target, tau, temperature):
    c = Confusion.from_logits(
        p.logit(), target, threshold=tau, temperature=temperature, matrix=True
    )
    return c.matrix / c.total


@given(seeds, thresholds, temperatures)
def test_entries_of_the_binary_matrix(seed, tau, temperature):
    random = np.random.default_rng(seed)
    target = torch.from_numpy(random.integers(0, 2, 10))
    p = tensor(random.uniform(0.01, 0.99, 10))
    step = 10 ** random.uniform(-4, 0)
    q = (p + step * tensor(random.uniform(-1, 1, 10))).clamp(0.01, 0.99)
    moved = distance(*(binary_matrix(x, target, tau, temperature) for x in (p, q)))
    constant = bounds.tempered_lipschitz(tau, temperature=temperature)
    assert within(moved, constant, distance(p, q))


@pytest.mark.parametrize("tau", [0.2, 0.5, 0.9])
def test_constant_of_the_binary_matrix_is_attained(tau):
    # all rows of one class, all moving along the steepest segment
    width = 0.5 * min(tau, 1 - tau)
    target = torch.ones(5, dtype=torch.long)
    p, q = (torch.full((5,), x, dtype=torch.float64) for x in (tau, tau + width / 2))
    moved = distance(*(binary_matrix(x, target, tau, 0.2) for x in (p, q)))
    assert moved / distance(p, q) == pytest.approx(bounds.linear_lipschitz(tau), rel=SECANT)


# MC-Fβ Theorem 5.1: memberships with a dynamic threshold, and entries of the d × d matrix.


def pair_of_rows(random, classes, rows):
    """Draw rows of probabilities, and others near or far from them."""
    p, other = (random.dirichlet(np.full(classes, 0.5), rows) for _ in range(2))
    nearness = 10 ** random.uniform(-4, 0)
    return [tensor(x) + 1e-12 for x in (p, p + nearness * (other - p))]


@given(seeds, st.integers(2, 6), temperatures)
def test_memberships_and_entries_of_the_matrix(seed, classes, temperature):
    random = np.random.default_rng(seed)
    p, q = pair_of_rows(random, classes, rows=20)
    constant = bounds.membership_lipschitz(classes, temperature=temperature)
    soft = [soft_sets.multiclass(x.log(), temperature=temperature) for x in (p, q)]
    for k in range(20):
        assert within(distance(soft[0][k], soft[1][k]), constant, distance(p[k], q[k]))

    target = torch.from_numpy(random.integers(0, classes, 20))
    matrices = [
        Confusion.from_logits(x.log(), target, temperature=temperature, matrix=True).matrix / 20
        for x in (p, q)
    ]
    assert within(distance(*matrices), constant, distance(p, q))


def test_constant_of_memberships_by_hand():
    # T = 0.2: the segments' |∂H/∂p| + |∂H/∂τ| are at most 0.6 d, 1.5 d and 2, times 2 (1 + d)
    assert bounds.membership_lipschitz(2) == pytest.approx(2 * 3 * 3, rel=SAME)
    assert bounds.membership_lipschitz(10) == pytest.approx(2 * 11 * 15, rel=SAME)
    # T = 0.36, nine tenths of the way: 0.36 · 1.1 d / 0.1, 0.14 · 2.9 d / 0.9, 0.72 · 2.9 / 0.1
    warm = bounds.membership_lipschitz(2, temperature=0.36)
    assert warm == pytest.approx(2 * 3 * 20.88, rel=SAME)


# The metrics of EAST Theorem 5.9, over matrices whose classes have a true share of at least π.

COST = [[0, 1, 2], [5, -1, 1], [1, 1, 0]]
METRICS = [
    metrics.Accuracy(),
    metrics.BalancedAccuracy(),
    metrics.Recall(average="macro"),
    metrics.FBeta(average="macro"),
    metrics.FBeta(beta=0.3, average="macro"),
    metrics.FBeta(beta=(1, 2, 0.5), average="macro"),
    metrics.Jaccard(average="macro"),
    metrics.Recall(average="macro", labels=(0,)),
    metrics.FBeta(average="macro", labels=(0,)),
    metrics.Jaccard(average="macro", labels=(0,)),
    metrics.Specificity(average="macro", labels=(0,)),
    metrics.Informedness(average="macro", labels=(0,)),
    metrics.CohenKappa(),
    metrics.ExpectedCost(COST),
]


def random_matrix(random, classes, rarest):
    """Draw a matrix that sums to 1, with rows of at least `rarest`, of a good, bad or one-sided
    classifier.
    """
    shares = rarest + (1 - classes * rarest) * random.dirichlet(np.full(classes, 0.3))
    rows = random.dirichlet(np.full(classes, 0.2), classes)
    return tensor(shares[:, None] * rows)


@cache
def random_matrices(rarest):
    random = np.random.default_rng(0)
    return torch.stack([random_matrix(random, 3, rarest) for _ in range(3000)])


@pytest.mark.parametrize("metric", METRICS, ids=str)
@pytest.mark.parametrize("rarest", [0.02, 0.3])
def test_steepest_slopes_of_metrics(metric, rarest):
    slope = torch.func.grad(lambda matrix: metric(Confusion.from_matrix(matrix)))
    g = torch.vmap(slope)(random_matrices(rarest)).flatten(1)
    # max g·v over |v| ≤ 1 whose entries sum to 0, as steps between matrices that sum to 1 do
    steepest = (g - g.median(1, keepdim=True).values).abs().sum(1).max().item()
    assert steepest <= bounds.metric_lipschitz(metric, 3, rarest=rarest) * (1 + SAME)


@pytest.mark.parametrize("metric", [m for m in METRICS if hasattr(m, "average")], ids=str)
@given(seeds, st.floats(0.01, 1 / 3))
def test_one_of_the_two_matrices_may_have_rarer_classes(metric, seed, rarest):
    # N′/D′ − N/D = (ΔN − ΔD · N′/D′) / D: only one denominator counts. So a bound for samples
    # needs the population's rarest share only.
    random = np.random.default_rng(seed)
    population = random_matrix(random, 3, rarest)
    sample = random_matrix(random, 3, 1e-6)
    moved = distance(*(metric(Confusion.from_matrix(x)) for x in (population, sample)))
    constant = bounds.metric_lipschitz(metric, 3, rarest=rarest)
    assert within(moved, constant, distance(population, sample))


H = 0.2  # a share π
E = 1e-9  # a step
SHARP = {
    "accuracy": (metrics.Accuracy(), [[0.3, 0.2], [0.2, 0.3]], [[E, -E], [-E, E]]),
    "cost": (
        metrics.ExpectedCost([[-1, 2], [3, -4]]),
        [[0.3, 0.2], [0.2, 0.3]],
        [[-E, E], [E, -E]],
    ),
    "balanced accuracy": (
        metrics.BalancedAccuracy(),
        [[0.3, 0.2], [0.2, 0.3]],
        [[E, -E], [-E, E]],
    ),
    "recall": (metrics.Recall(), [[0.5, 0.3], [0.1, 0.1]], [[0, 0], [-E, E]]),
    "specificity": (metrics.Specificity(), [[0.1, 0.1], [0.3, 0.5]], [[E, -E], [0, 0]]),
    "informedness": (metrics.Informedness(), [[0.3, 0.2], [0.2, 0.3]], [[E, -E], [-E, E]]),
    "recall of three classes": (
        metrics.Recall(average="macro", labels=(0,)),
        [[H, 0, 0], [0.1, 0.2, 0.1], [0.1, 0.1, 0.2]],
        [[0, E, E], [0, -E, 0], [0, 0, -E]],
    ),
    "F1": (metrics.FBeta(), [[1 - H, 0], [H, 0]], [[0, 0], [-E, E]]),
    "F3": (metrics.FBeta(beta=3), [[1 - H, 0], [H, 0]], [[0, 0], [-E, E]]),
    "Jaccard": (metrics.Jaccard(), [[1 - H, 0], [0, H]], [[-E, E], [E, -E]]),
    "Jaccard of three classes": (
        metrics.Jaccard(average="macro", labels=(0,)),
        [[H, 0, 0], [0, 0.4, 0], [0, 0, 0.4]],
        [[0, E, E], [E, -E, -E], [E, -E, -E]],
    ),
}


@pytest.mark.parametrize("name", SHARP)
def test_constants_of_metrics_are_attained(name):
    metric, matrix, step = SHARP[name]
    matrix, step = tensor(matrix), tensor(step)
    assert matrix.sum().item() == pytest.approx(1, abs=SAME)
    assert step.sum().item() == pytest.approx(0, abs=SAME)
    rarest = min(matrix.sum(1).min().item(), 1 / len(matrix))
    moved = distance(*(metric(Confusion.from_matrix(x)) for x in (matrix, matrix + step)))
    constant = bounds.metric_lipschitz(metric, len(matrix), rarest=rarest)
    assert moved / E == pytest.approx(constant, rel=SECANT)


NOT_LIPSCHITZ = [
    metrics.Precision(),
    metrics.NegativePredictiveValue(),
    metrics.GMean(),
    metrics.MatthewsCorrcoef(),
]


@pytest.mark.parametrize("metric", NOT_LIPSCHITZ, ids=lambda metric: type(metric).__name__)
def test_other_metrics_have_no_constant(metric):
    # A class that is never predicted gets its first row right: a jump, or the slope of √x at 0.
    never = tensor([[0.6, 0], [0.4, 0]])
    if isinstance(metric, metrics.NegativePredictiveValue):  # there the other class is it
        never = never.flip(0, 1)
    step = 1e-12
    first = never + step * (never == 0) * torch.eye(2)
    moved = distance(*(metric(Confusion.from_matrix(x)) for x in (never, first)))
    assert moved / step > 1e5
    with pytest.raises(ValueError, match="metric_lipschitz"):
        bounds.metric_lipschitz(metric, 2, rarest=0.2)


@pytest.mark.parametrize("temperature", [1e-9, 1e-12, 1e-15])
def test_steepest_slope_of_a_cold_step(temperature):
    """The middle segment's (½ − T) / (2.5 T · ½): its width must not come from a difference."""
    slope = bounds.tempered_lipschitz(0.5, temperature=temperature)
    assert slope == pytest.approx((0.5 - temperature) / (1.25 * temperature), rel=SAME)
    assert np.isfinite(bounds.tempered_lipschitz(0.5, temperature=1e-300))
