"""`evalign.comparison`: the same folds for all, an honest test, a plain verdict."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from evalign.comparison import (
    METHODS,
    PLAIN,
    TUNED,
    FoldScore,
    compare,
    estimate,
    least_shown,
    summarize,
    verdict,
)
from scipy import sparse, stats
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from evalign.estimators import FrameEncoder
from evalign.estimators import compare as trainer
from tests.estimator.models import imbalanced, quick

X, Y = imbalanced(240)
TREES, FOREST = "gradient boosting (argmax)", "random forest (argmax)"
FEW = [PLAIN, TUNED, FOREST]
# With few rows and epochs, batches and predictions are poor, and cause these warnings.
pytestmark = pytest.mark.filterwarnings("ignore::evalign.training.TrainingWarning")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Limit gradient boosting to one thread, as more would compete for the workers' cores."""
    with threadpool_limits(1):
        yield


def run(**arguments):
    few = {"methods": FEW, "folds": 3, "seeds": [0]}
    classifier = arguments.pop("classifier", quick("f1", epochs=3))
    return list(compare(classifier, X, Y, **(few | arguments)))


def scores(records):
    return [record[:-1] for record in records]  # all but the seconds


@pytest.fixture
def fits(monkeypatch):
    """Collect each training's model, its rows (the last column is a row's number), and the rest."""
    seen = []
    build = trainer._model

    def spy(name, *arguments):
        model = build(name, *arguments)
        fit = model.fit
        model.fit = lambda X, y, **kw: (
            seen.append((name, model, X[:, -1].astype(int), kw)),
            fit(X, y, **kw),
        )
        return model

    monkeypatch.setattr(trainer, "_model", spy)
    return seen


NUMBERED = np.column_stack([X, np.arange(len(X))])


# Folds


# The training that each method needs, and the rule by which it decides.
NETWORKS = {
    "cross_entropy": "tuned",  # which gives the argmax too
    "east": "argmax",
    "aligned": "tuned",
}
ENSEMBLES = {
    "random_forest": RandomForestClassifier,
    "gradient_boosting": HistGradientBoostingClassifier,
}


def test_every_method_is_trained_and_scored_on_the_same_folds(fits):
    records = list(compare(quick("f1", epochs=1), NUMBERED, Y, folds=2, seeds=[0, 5]))
    expected = {(method, seed, fold) for method in METHODS for seed in (0, 5) for fold in (0, 1)}
    assert {record[:3] for record in records} == expected
    assert len(records) == len(expected)
    assert all(0 <= record.score <= 1 and record.seconds > 0 for record in records)

    number = len(NETWORKS) + len(ENSEMBLES)  # the two of cross-entropy share one
    splits = [fits[i : i + number] for i in range(0, len(fits), number)]
    assert len(splits) == 2 * 2
    for split, seed in zip(splits, [0, 0, 5, 5], strict=True):
        assert {name for name, *_ in split} == {*NETWORKS, *ENSEMBLES}
        for name, model, rows, _ in split:
            assert np.array_equal(rows, split[0][2])
            assert model.random_state == seed
            if name in NETWORKS:
                assert (model.recipe, model.decision) == (name, NETWORKS[name])
            else:
                assert type(model) is ENSEMBLES[name]
    assert not np.array_equal(splits[0][0][2], splits[2][0][2])  # another seed, other folds


def test_the_score_is_the_metric_of_the_held_out_fold():
    records = run(methods=[PLAIN, TUNED], seeds=[4])
    folds = StratifiedKFold(3, shuffle=True, random_state=4).split(X, Y)
    for fold, (training, test) in enumerate(folds):
        network = quick("f1", epochs=3, recipe="cross_entropy", random_state=4)
        network.fit(X[training], Y[training])
        labels = {PLAIN: network.predict_proba(X[test]).argmax(1), TUNED: network.predict(X[test])}
        for method, predicted in labels.items():
            score = next(r.score for r in records if r[:3] == (method, 4, fold))
            assert score == pytest.approx(f1_score(Y[test], predicted), abs=1e-12)


def test_networks_see_the_frame_and_trees_its_numbers(monkeypatch):
    """What is learnt of the columns is learnt from the training rows of a fold."""
    frame = pd.DataFrame({"number": X[:, 0], "level": np.where(X[:, 1] > 0, "high", "low")})
    given, learnt = [], []
    monkeypatch.setattr(trainer, "_fit", lambda model, X, *_: given.append((model, X)))
    monkeypatch.setattr(trainer, "_codes", lambda *_: Y[:120])
    fit = FrameEncoder.fit
    monkeypatch.setattr(
        FrameEncoder, "fit", lambda self, X: (learnt.append(X.index.tolist()), fit(self, X))[1]
    )
    list(compare(quick("f1"), frame, Y, methods=FEW, folds=2, seeds=[0]))
    parts = [
        rows.tolist() for rows, _ in StratifiedKFold(2, shuffle=True, random_state=0).split(X, Y)
    ]
    assert learnt == parts
    for (network, rows), (forest, matrix), part in zip(given[::2], given[1::2], parts, strict=True):
        assert type(network).__name__ == "AlignedClassifier"
        pd.testing.assert_frame_equal(rows, frame.iloc[part])
        assert type(forest) is RandomForestClassifier
        np.testing.assert_array_equal(matrix[:, 0], frame["number"].iloc[part])
        assert matrix.shape == (120, 3)  # the number, and a flag for each level


def test_groups_never_straddle(fits):
    groups = np.random.default_rng(0).integers(30, size=len(Y))
    list(
        compare(quick("f1", epochs=1), NUMBERED, Y, methods=FEW, folds=3, seeds=[0], groups=groups)
    )
    assert len(fits) == 2 * 3
    for name, _, rows, arguments in fits:
        test = np.setdiff1d(np.arange(len(Y)), rows)
        assert not np.intersect1d(groups[rows], groups[test]).size
        if name == "cross_entropy":  # whose own validation rows are whole groups too
            assert np.array_equal(arguments["groups"], groups[rows])


def test_weights_count_in_training_and_score():
    weight = np.where(Y == 1, 5.0, 1.0)
    records = run(methods=[FOREST], sample_weight=weight, seeds=[0])
    folds = StratifiedKFold(3, shuffle=True, random_state=0).split(X, Y)
    for record, (training, test) in zip(records, folds, strict=True):
        forest = RandomForestClassifier(random_state=0).fit(
            X[training], Y[training], weight[training]
        )
        expected = f1_score(Y[test], forest.predict(X[test]), sample_weight=weight[test])
        assert record.score == pytest.approx(expected, abs=1e-12)
    assert scores(run(methods=[PLAIN], sample_weight=weight)) != scores(run(methods=[PLAIN]))


def test_the_positive_class_of_the_score_is_that_of_the_classifier():
    first = run(classifier=quick("f1", pos_label=0), methods=[FOREST])
    folds = StratifiedKFold(3, shuffle=True, random_state=0).split(X, Y)
    for record, (training, test) in zip(first, folds, strict=True):
        labels = RandomForestClassifier(random_state=0).fit(X[training], Y[training])
        expected = f1_score(Y[test], labels.predict(X[test]), pos_label=0)
        assert record.score == pytest.approx(expected, abs=1e-12)


def test_sparse_rows_and_several_classes_of_any_type():
    rows, codes = imbalanced(400, classes=3)
    given = {"methods": [PLAIN, TREES], "folds": 2, "seeds": [0]}
    plain, other = (
        list(compare(quick("f1_macro", epochs=1), X, y, **given))
        for X, y in ((rows, codes), (sparse.csr_array(rows), np.array(["a", "b", "c"])[codes]))
    )
    assert scores(plain) == scores(other)


# The statistics


def test_corrected_t_agrees_with_an_independent_computation():
    values = np.random.default_rng(0).normal(0.01, 0.02, size=15)
    # In t of the plain test the variance of the mean is s²/15; the correction stretches it.
    plain = stats.ttest_1samp(values, 0)
    stretch = math.sqrt((1 / 15) / (1 / 15 + 20 / 80))
    p = 2 * stats.t.cdf(-abs(plain.statistic) * stretch, df=14)
    interval = plain.confidence_interval(0.95)
    reach = (interval.high - interval.low) / 2 / stretch
    got = estimate(values.tolist(), folds=5)
    assert got == pytest.approx((values.mean(), values.mean() - reach, values.mean() + reach, p))


def test_intervals_stay_within_bounds():
    values = [0.99, 0.9, 1.0, 1.0, 0.96, 1.0]
    plain, bounded = estimate(values, folds=3), estimate(values, 3, (0, 1))
    assert plain.high > 1 >= bounded.high > bounded.value > bounded.low > 0
    assert (plain.value, plain.p) == (bounded.value, bounded.p)
    # On a scale of another unit it is the same interval; far from the bounds, the plain one.
    scaled = estimate([2 * value - 1 for value in values], 3, (-1, 1))
    assert scaled[:3] == pytest.approx([2 * value - 1 for value in bounded[:3]])
    assert estimate(values, 3, (-1e6, 1e6)) == pytest.approx(plain, abs=1e-4)
    assert estimate([1.0] * 6, 3, (0, 1)) == (1, 1, 1, 1)
    assert estimate(values, 3, (0, 0.5)) == plain  # bounds that it does not keep are none
    assert estimate(values, 3, (0, math.inf)) == plain


def test_coverage_near_a_bound():
    """Of scores with mean 0.97 that correlate as folds do; the symmetric interval has 0.87."""
    rng, folds, mean = np.random.default_rng(0), 5, 0.97
    shared, own = rng.normal(size=(1500, 1)), rng.normal(size=(1500, folds))
    drawn = stats.norm.cdf(math.sqrt(1 / folds) * shared + math.sqrt(1 - 1 / folds) * own)
    scores = stats.beta.ppf(drawn, mean * 30, (1 - mean) * 30).tolist()

    def coverage(*bounds):
        found = [estimate(row, folds, *bounds) for row in scores]
        return np.mean([low <= mean <= high for _, low, high, _ in found])

    assert coverage((0, 1)) == pytest.approx(0.95, abs=0.02)
    assert coverage() < 0.9


def test_size_under_the_correlation_it_assumes():
    # Scores of two folds correlate by n_test / n; the statistic then has a t distribution exactly.
    rng = np.random.default_rng(0)
    draws, folds, n = 4000, 5, 15
    shared, own = rng.normal(size=(draws, 1)), rng.normal(size=(draws, n))
    values = math.sqrt(1 / folds) * shared + math.sqrt(1 - 1 / folds) * own
    rejected = np.mean([estimate(row, folds).p < 0.05 for row in values])
    assert abs(rejected - 0.05) < 4 * math.sqrt(0.05 * 0.95 / draws)
    naive = np.mean(stats.ttest_1samp(values, 0, axis=1).pvalue < 0.05)
    assert naive > 0.3  # what the correction is for


def made(spread=0.002, **means):
    """Make records of three folds and two seeds; each method has its own mean and spread."""
    rng = np.random.default_rng(0)
    names = {"plain": PLAIN, "tuned": TUNED, "aligned": "aligned (tuned)", "trees": TREES}
    shared = rng.normal(0, 0.03, size=6)
    records = []
    for name, mean in means.items():
        off = shared + rng.normal(0, spread, size=6)
        values = mean + off - off.mean()
        records += [
            FoldScore(names[name], i // 3, i % 3, values[i].item(), 1.0 + i) for i in range(6)
        ]
    return records


def test_summary_is_best_first_and_paired():
    rng = np.random.default_rng(0)
    records = made(plain=0.7, tuned=0.75, trees=0.6)
    rows = summarize(records)
    assert [row.method for row in rows] == [TUNED, PLAIN, TREES]
    assert [row.method for row in summarize(records, greater_is_better=False)] == [
        TREES,
        PLAIN,
        TUNED,
    ]
    best, plain, _ = rows
    assert plain.difference is None
    assert best.difference is not None
    a, b = (np.array([r.score for r in records if r.method == m]) for m in (TUNED, PLAIN))
    assert best.difference.value == pytest.approx((a - b).mean())
    assert best.score.value == pytest.approx(a.mean())
    assert best.seconds == pytest.approx(3.5)
    # The folds move both alike: the difference is known far better than either score.
    width = best.difference.high - best.difference.low
    assert width < 0.3 * (best.score.high - best.score.low)
    mixed = summarize([records[i] for i in rng.permutation(len(records))])  # pairs go by fold
    assert mixed[0].difference == pytest.approx(best.difference)


def test_p_values_are_holms():
    records = made(plain=0.7, tuned=0.703, aligned=0.701, trees=0.699)
    raw, adjusted = {}, {}
    for row in summarize(records):
        if row.difference is not None:
            alone = [r for r in records if r.method in (PLAIN, row.method)]
            raw[row.method] = next(r for r in summarize(alone) if r.difference).difference.p
            adjusted[row.method] = row.difference.p
    least, middle, most = sorted(raw, key=raw.__getitem__)
    assert 0 < 3 * raw[least] < 1
    assert adjusted[least] == pytest.approx(3 * raw[least])
    assert adjusted[middle] == pytest.approx(min(1, max(3 * raw[least], 2 * raw[middle])))
    assert adjusted[most] == pytest.approx(min(1, max(adjusted[middle], raw[most])))


# The verdict


@pytest.mark.parametrize(
    ("means", "first", "last"),
    [
        (
            {"plain": 0.8, "tuned": 0.7, "aligned": 0.7},
            "Plain cross-entropy wins: no other method has a better mean f1.",
            "Plain cross-entropy wins: no other method has a better mean f1.",
        ),
        (
            {"plain": 0.7, "tuned": 0.7003, "aligned": 0.69},
            "cross-entropy (tuned) has the best mean f1.",
            "No method is shown to beat plain cross-entropy on these rows.",
        ),
        (
            {"plain": 0.7, "tuned": 0.8, "aligned": 0.75},
            "cross-entropy (tuned) has the best mean f1.",
            "A tuned decision is all that cross-entropy needs on these rows.",
        ),
        (
            {"plain": 0.7, "tuned": 0.75, "trees": 0.8},
            "gradient boosting (argmax) has the best mean f1.",
            "Its difference to cross-entropy (tuned), +0.05, is beyond chance (p < 0.001).",
        ),
    ],
)
def test_verdict(means, first, last):
    sentences = verdict(made(**means), metric="f1")
    assert (sentences[0], sentences[-1]) == (first, last)


def test_verdict_names_both_differences():
    first, plain, tuned, last = verdict(made(plain=0.7, tuned=0.8, aligned=0.801), metric="f1")
    assert first == "aligned (tuned) has the best mean f1."
    assert re.fullmatch(r"Its .*\(argmax\), \+0\.\d+, is beyond chance \(p < 0\.001\)\.", plain)
    assert re.fullmatch(r"Its .*\(tuned\), \+0\.00\d+, may be chance \(p = [\d.]+\)\.", tuned)
    assert last == "Cross-entropy with a tuned decision may be just as good on these rows."


def test_least_difference_that_would_be_shown():
    """Just above it a difference of the same spread has p < 0.05 among all methods, not below."""
    means = {"plain": 0.7, "tuned": 0.7, "aligned": 0.7, "trees": 0.7}
    records = made(**means)
    least = least_shown(records)

    def p(shift):
        moved = [r._replace(score=r.score + shift) if r.method == moves else r for r in records]
        return next(row.difference.p for row in summarize(moved) if row.method == moves)

    rows = [row for row in summarize(records) if row.difference]
    moves = sorted(rows, key=lambda row: row.difference.high - row.difference.value)[1].method
    own = next(row.difference.value for row in rows if row.method == moves)
    assert p(1.001 * least - own) < 0.05 < p(0.999 * least - own)


def test_few_folds_cannot_tell():
    values = {PLAIN: 0.7, TUNED: 0.75, TREES: 0.8}
    records = [
        FoldScore(method, 0, fold, score + 1e-6 * (fold % 2), 1.0)
        for method, score in values.items()
        for fold in range(4)
    ]
    assert verdict(records, metric="f1") == [
        "gradient boosting (argmax) has the best mean f1.",
        "4 folds are too few to tell whether that is more than chance.",
    ]


def test_a_tie_is_no_win():
    records = [FoldScore(m, 0, fold, 0.5, 1.0) for fold in range(3) for m in (PLAIN, TUNED, TREES)]
    same = "No method has a better mean f1 than plain cross-entropy."
    assert verdict(records, metric="f1") == [same]
    assert verdict(records[::-1], metric="f1") == [same]


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["aligned"]}, r"methods .* be some of cross-entropy \(argmax\), .*'aligned'"),
        ({"folds": 1}, "folds of compare must be at least 2. Got 1."),
        ({"folds": 100}, "folds of compare must be at most 51, the rows of the rarest class. Got"),
        ({"seeds": [0, 1, 0]}, r"seeds of compare must be different numbers, .*\[0, 1, 0\]"),
        (
            {"classifier": quick("f1", constraint="recall >= 0.9"), "methods": [TUNED, FOREST]},
            "methods of compare must be tuned ones for 'recall >= 0.9', which labels by argmax do "
            r"not keep. Got \['random forest",
        ),
        ({"groups": np.arange(len(Y)) % 2}, "groups of compare must name at least 3 groups. Got 2"),
        (
            {"groups": np.where(Y == 1, 3, np.arange(len(Y)) % 3)},
            "groups of compare must leave every class in every fold. Got no class 1 in one. Use",
        ),
        ({"sample_weight": [1.0]}, r"sample_weight of compare must have shape \(240,\). Got"),
        ({"classifier": quick("f3x")}, "metric of compare must be a name"),
        ({"y": np.stack([Y, Y], 1)}, r"y of compare must hold one class per row. Got shape \(240"),
        ({"y": np.zeros_like(Y)}, "y of compare must hold two classes or more"),
        ({"y": np.arange(240) % 3}, r"classes of f1 must be two\. Got 3 classes\. Use f1_macro"),
    ],
)
def test_errors_come_before_training(arguments, message):
    given = {"classifier": quick("f1"), "X": X, "y": Y, "methods": FEW, "folds": 3}
    with pytest.raises(ValueError, match=message):
        compare(**(given | arguments))


@pytest.mark.parametrize("score", [np.nan, np.inf, None])
def test_summary_needs_a_score_of_each_method_for_every_fold(score):
    *records, last = made(plain=0.5, tuned=0.6)
    records += [] if score is None else [last._replace(score=score)]
    message = rf"a finite score of each method for every fold. Got others for {re.escape(TUNED)}\."
    with pytest.raises(ValueError, match=message):
        summarize(records)
