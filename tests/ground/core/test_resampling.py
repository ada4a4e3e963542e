"""The bootstrap against a plain one, and the coverage of its intervals."""

import numpy as np
import pytest
from sklearn import metrics as reference

from evalign.core import resampling
from evalign.core.resampling import MIN_FOR_INTERVAL, bootstrap, interval
from evalign.metrics import resolve
from tests.tolerances import FALSE_ALARM, SAME

COST = [[0, 1, 2], [3, 0, 1], [5, 1, 0]]
METRICS = {
    "f1_macro": lambda y, p, w: reference.f1_score(y, p, sample_weight=w, average="macro"),
    "balanced_accuracy": lambda y, p, w: reference.recall_score(
        y, p, sample_weight=w, average="macro", labels=np.unique(y)
    ),
    "matthews_corrcoef": lambda y, p, w: reference.matthews_corrcoef(y, p, sample_weight=w),
    "cohen_kappa_quadratic": lambda y, p, w: reference.cohen_kappa_score(
        y, p, sample_weight=w, weights="quadratic", labels=[0, 1, 2]
    ),
    f"expected_cost{COST}": lambda y, p, w: np.average(np.array(COST)[y, p], weights=w),
}


def rows(number=60, *, classes=3, seed=0):
    """Make true codes, the codes of two methods, and weights."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=number)
    methods = [
        np.where(rng.random(number) < q, rng.integers(classes, size=number), y) for q in (0.3, 0.5)
    ]
    return y, methods, rng.random(number)


def slow(score, y, predictions, weight, strata, *, seed, resamples):
    """Draw the units of each stratum, which are arrays of rows, one by one, and join them."""
    generators = np.random.default_rng(seed).spawn(len(strata))
    values = np.empty((len(predictions), resamples))
    for resample in range(resamples):
        index = np.concatenate(
            [
                units[drawn]
                for rng, units in zip(generators, strata, strict=True)
                for drawn in rng.integers(len(units), size=len(units))
            ]
        )
        for method, predicted in enumerate(predictions):
            values[method, resample] = score(y[index], predicted[index], weight[index])
    return values


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("grouped", [False, True])
def test_agrees_with_a_plain_bootstrap(metric, grouped):
    """The bootstrap draws rows of each true class, or groups."""
    y, predictions, weight = rows()
    groups, strata = None, [[[row] for row in np.flatnonzero(y == code)] for code in range(3)]
    if grouped:
        groups = np.random.default_rng(1).permutation(len(y)) // 4
        strata = [[np.flatnonzero(groups == name) for name in range(15)]]
    given = {"seed": 7, "resamples": 40}
    expected = slow(METRICS[metric], y, predictions, weight, strata, **given)
    values = bootstrap(
        resolve(metric), y, predictions, classes=3, weight=weight, groups=groups, **given
    )
    np.testing.assert_allclose(values, expected, rtol=0, atol=SAME)


def test_a_metric_with_a_branch():
    """Decisions take one as well: it must not fail after all candidates were trained."""
    y, predictions, _ = rows()

    def branching(c):
        return c.tp.sum() / c.total if c.tp[2] > 14 else c.total * 0

    def plain(c):
        return (c.tp[2] > 14) * c.tp.sum() / c.total

    values, expected = (
        bootstrap(resolve(metric), y, predictions, classes=3, resamples=40)
        for metric in (branching, plain)
    )
    assert 0 < (expected == 0).sum() < expected.size
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_alike_are_drawn_as_rows(weighted):
    y, predictions, weight = rows(300)
    weight = weight.round(0) + 1 if weighted else np.ones(300)
    resamples = 4000
    given = {"classes": 3, "resamples": resamples}
    metric = resolve("f1_macro")
    quick = bootstrap(metric, y, predictions, seed=1, weight=weight, **given)
    unlike = weight + 1e-12 * np.arange(300)
    plain = bootstrap(metric, y, predictions, seed=2, weight=unlike, **given)
    for one, other in zip(quick, plain, strict=True):
        error = other.std() * (2 / resamples) ** 0.5
        assert abs(one.mean() - other.mean()) < FALSE_ALARM * error
        assert abs(one.std() - other.std()) < FALSE_ALARM * error / 2**0.5


def test_no_resample_lacks_a_rare_class():
    """Otherwise some macro averages would be over fewer classes than others."""
    y = np.array([0] * 200 + [1] * 200 + [2] * 2)
    predicted = np.where(y == 2, 0, y)
    values = bootstrap(resolve("f1_macro"), y, [predicted], classes=3)
    assert values.max() < 0.7


def test_a_weight_of_two_is_no_second_row():
    # Two rows in one are drawn together: the interval is wider than that of as many rows.
    y, predictions, _ = rows(100)
    metric = resolve("accuracy")

    def width(**given):
        low, high = interval(bootstrap(metric, classes=3, **given)[0])
        return high - low

    alone = width(y=y, predictions=predictions)
    twice = np.concatenate([y, y])
    assert width(y=y, predictions=predictions, weight=np.full(100, 2.0)) == pytest.approx(alone)
    copies = [np.concatenate([p, p]) for p in predictions]
    assert width(y=twice, predictions=copies) < 0.85 * alone
    pairs = np.tile(np.arange(100), 2)
    together = width(y=twice, predictions=copies, groups=pairs)
    assert together == pytest.approx(alone, rel=0.1)


def test_blocks_and_seeds(monkeypatch):
    y, predictions, weight = rows()
    metric = resolve("matthews_corrcoef")

    def values(**given):
        return bootstrap(metric, y, predictions, classes=3, resamples=52, **given)

    for given in ({}, {"weight": weight}):
        whole = values(seed=3, **given)
        assert not np.array_equal(whole, values(seed=4, **given))
        with monkeypatch.context() as patch:
            patch.setattr(resampling, "BLOCK", 7 * len(y))
            np.testing.assert_array_equal(values(seed=3, **given), whole)


def test_intervals_cover():
    """The true score lies in 95 of 100 intervals, and so does the true difference."""
    metric, trials, number = resolve("accuracy"), 300, 200
    true = np.array([0.8, 0.7])
    covered = np.zeros(3)
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        y = rng.integers(2, size=number)
        luck = rng.random(number)  # the methods err together: pairing matters
        predictions = [np.where(luck < share, y, 1 - y) for share in true]
        values = bootstrap(metric, y, predictions, classes=2, seed=trial, resamples=400)
        for i, (draws, truth) in enumerate(
            [(values[0], true[0]), (values[1], true[1]), (values[0] - values[1], true[0] - true[1])]
        ):
            low, high = interval(draws)
            covered[i] += low <= truth <= high
    assert (covered / trials > 0.92).all()
    assert (covered / trials < 0.98).all()


def test_intervals_with_few_rows_of_a_class():
    """Of two equally good labellers one should seem better in 5% of tests; with one row half do."""
    metric, trials = resolve("f1_macro"), 100
    alarms = {1: 0, MIN_FOR_INTERVAL: 0}
    for rare in alarms:
        y = np.repeat([0, 1, 2], [100, 40, rare])
        for trial in range(trials):
            rng = np.random.default_rng(trial)
            right = rng.random((2, len(y))) < np.where(y == 2, 0.5, 0.8)
            predictions = [np.where(r, y, (y + 1) % 2) for r in right]
            drawn = bootstrap(metric, y, predictions, classes=3, seed=trial, resamples=200)
            low, high = interval(drawn[0] - drawn[1])
            alarms[rare] += low > 0 or high < 0
    assert alarms[1] / trials > 0.4
    assert alarms[MIN_FOR_INTERVAL] / trials < 0.2


def test_many_classes_and_methods():
    """Their combinations would not fit into an integer."""
    y = np.arange(40) * 250
    values = bootstrap(resolve("accuracy"), y, [y] * 5, classes=10_000, resamples=2)
    np.testing.assert_array_equal(values, np.ones((5, 2)))
