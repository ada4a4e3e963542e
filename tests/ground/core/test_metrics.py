"""Metrics in NumPy, against scikit-learn and the reference; their names."""

import itertools
import math
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn import config_context
from sklearn import metrics as sk
from sklearn.base import BaseEstimator

from evalign import Confusion, metrics
from tests import tolerances
from tests.reference import metrics as reference

CLASSES = (2, 3, 5)  # two, three and more; the formulas know no other cases
AVERAGES = ("macro", "micro", "weighted", None)
ZERO_DIVISIONS = (0.0, 1.0, math.nan)


# Confusion matrices, with the degenerate ones first. Each maker takes (generator, counts).


def one_row(random, counts):
    cell = random.integers(counts.size)
    return (np.arange(counts.size) == cell).reshape(counts.shape).astype(int)


def one_cell(random, counts):
    return one_row(random, counts) * random.integers(2, 50)


def without(random, counts, *, true=False, predicted=False, all_but=False):
    """Remove one true or predicted class, or all but one."""
    one = np.arange(len(counts)) == random.integers(len(counts))
    kept = one if all_but else ~one
    counts = counts * kept[:, None] if true else counts
    return counts * kept if predicted else counts


SMALL = {
    "plain": lambda random, counts: counts,
    "sparse": lambda random, counts: counts * (random.random(counts.shape) < 0.3),
    "absent": partial(without, true=True, predicted=True),
    "never predicted": partial(without, predicted=True),
    "one true class": partial(without, true=True, all_but=True),
    "one predicted class": partial(without, predicted=True, all_but=True),
    "all wrong": lambda random, counts: counts - np.diag(np.diag(counts)),
    "all right": lambda random, counts: np.diag(np.diag(counts)),
    "one row": one_row,
    "one cell": one_cell,
}
# Rare classes among many rows, where a formula that subtracts shares loses its digits.
LARGE = {
    "imbalanced": lambda random, counts: (10 ** (6 * random.random(counts.shape))).astype(int),
    "one large cell": lambda random, counts: counts + 10**7 * one_row(random, counts),
}


def matrices(classes, kinds, repeats, seed=0):
    """Yield matrices of every kind, but none that is empty, which scikit-learn refuses."""
    random = np.random.default_rng([seed, classes])
    for kind in list(kinds.values()) * repeats:
        counts = kind(random, random.integers(0, 10, (classes, classes)))
        if not counts.any():
            counts[0, classes - 1] = 3
        yield counts


def cells(matrix):
    """Convert the matrix to rows (true, predicted, weight), one for each cell that is not empty."""
    true, predicted = np.nonzero(matrix)
    return true, predicted, matrix[true, predicted].astype(float)


def rows(matrix):
    """Convert the matrix to labels, one row for each count."""
    true, predicted, weight = cells(matrix)
    return [np.repeat(x, weight.astype(int)) for x in (predicted, true)]


def assert_same(actual, expected, tolerance=tolerances.HARD, context=""):
    assert actual.dtype == np.float64
    expected = np.asarray(expected, dtype=float)
    assert actual.shape == expected.shape
    with np.errstate(invalid="ignore"):
        same = (np.abs(actual - expected) <= tolerance) | (np.isnan(actual) & np.isnan(expected))
    assert same.all(), f"{actual} instead of {expected}: {context}"


@pytest.fixture(autouse=True)
def scikit_learn_without_ceremony():
    """Switch off its argument checks, which double the time, and its warnings, but not ours."""
    with config_context(skip_parameter_validation=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", module=r"evalign\.")
        yield


# Against scikit-learn.


def subset(random, classes):
    return random.permutation(classes)[: random.integers(1, classes + 1)].tolist()


def class_metrics(beta, **kwargs):
    return (
        metrics.Precision(**kwargs),
        metrics.Recall(**kwargs),
        metrics.FBeta(beta=beta, **kwargs),
        metrics.Jaccard(**kwargs),
    )


def scikit_learn_class_metrics(true, predicted, beta, zero_division, **kwargs):
    """Precision, recall, F-beta, and Jaccard where it takes the zero_division (0 and 1)."""
    *three, _ = sk.precision_recall_fscore_support(
        true, predicted, beta=beta, zero_division=zero_division, **kwargs
    )
    if math.isnan(zero_division):
        return three
    return (*three, sk.jaccard_score(true, predicted, zero_division=zero_division, **kwargs))


def compare_with_scikit_learn(c, true, predicted, weight, beta, average, labels, zero_division):
    kwargs = {"average": average, "zero_division": zero_division}
    expected = scikit_learn_class_metrics(
        true, predicted, beta, sample_weight=weight, labels=labels, **kwargs
    )
    every = average is None and labels == list(range(c.num_classes))
    ours = class_metrics(beta, labels=None if every else labels, **kwargs)
    for metric, value in zip(ours, expected, strict=False):
        assert_same(metric(c), value, context=(metric, c))


@pytest.mark.parametrize("classes", [CLASSES[0], CLASSES[-1]])
def test_class_metrics_are_scikit_learns(classes):
    random = np.random.default_rng(classes)
    number = 0
    for average, zero_division in itertools.product(AVERAGES, ZERO_DIVISIONS):
        # scikit-learn gives a score per class that occurs, unless told the classes
        every = list(range(classes)) if average is None else None
        for matrix in matrices(classes, SMALL | LARGE, repeats=1, seed=number):
            labels = subset(random, classes) if random.random() < 0.5 else every
            beta = random.choice([0.25, 0.5, 1.0, 2.0])
            c = Confusion.from_matrix(matrix)
            compare_with_scikit_learn(c, *cells(matrix), beta, average, labels, zero_division)
            number += 1
    assert number == 4 * 3 * 12


def test_binary_class_metrics_are_scikit_learns():
    for zero_division in ZERO_DIVISIONS:
        for matrix in matrices(2, SMALL | LARGE, repeats=4):
            c = Confusion.from_matrix(matrix)
            compare_with_scikit_learn(c, *cells(matrix), 2.0, "binary", None, zero_division)


def test_beta_per_class_may_be_an_array():
    expected = metrics.FBeta(beta=[1.0, 2.0, 0.5], average="macro")
    for beta in (np.array([1.0, 2.0, 0.5]), np.array([1, 2, 0.5], dtype=np.float32), (1, 2, 0.5)):
        assert metrics.FBeta(beta=beta, average="macro") == expected
    for beta in (np.array(2.0), np.float32(2), np.int8(2), 2):  # of one number, too
        assert type(metrics.FBeta(beta=beta).beta) is float


@pytest.mark.parametrize("beta", [None, "two", [1, [2, 3]], {1, 2}, [[1.0, 2.0]]])
def test_a_beta_that_is_not_numbers_in_order(beta):
    with pytest.raises(ValueError, match=r"^beta of FBeta must lie from 1e-9 to 1e9\. Got "):
        metrics.FBeta(beta=beta, average="macro")


@pytest.mark.filterwarnings("ignore")  # of 0/0
@pytest.mark.parametrize("classes", CLASSES)
def test_whole_matrix_metrics_are_scikit_learns(classes):
    for matrix in matrices(classes, SMALL | LARGE, repeats=3):
        c = Confusion.from_matrix(matrix)
        true, predicted, weight = cells(matrix)
        for metric, expected in {
            metrics.Accuracy(): sk.accuracy_score,
            metrics.BalancedAccuracy(): sk.balanced_accuracy_score,
            metrics.MatthewsCorrcoef(): sk.matthews_corrcoef,
        }.items():
            value = expected(true, predicted, sample_weight=weight)
            assert_same(metric(c), value, context=(metric, matrix))
        for weights in (None, "linear", "quadratic"):
            value = sk.cohen_kappa_score(
                true,
                predicted,
                labels=range(classes),  # else the distances would be counted without absent ones
                weights=weights,
                sample_weight=weight,
            )
            value = np.nan_to_num(value)  # 0/0 is 0 here and NaN there
            assert_same(metrics.CohenKappa(weights=weights)(c), value, context=matrix)


# Multilabel.


def multilabel_data(repeats):
    """Make (true, predicted) of shape (rows, labels), with values 0 and 1."""
    random = np.random.default_rng(0)
    kinds = ("plain", "no true", "no predicted", "all true", "all wrong", "all right", "one row")
    for labels, kind in itertools.product((2, 3, 5), kinds * repeats):
        shape = (1 if kind == "one row" else random.integers(2, 20), labels)
        true, predicted = random.integers(0, 2, (2, *shape))
        if kind == "no true":
            true[:, 0] = 0
        elif kind == "no predicted":
            predicted[:, 0] = 0
        elif kind == "all true":
            true[:] = 1
        elif kind == "all wrong":
            predicted = 1 - true
        elif kind == "all right":
            predicted = true
        yield true, predicted


@pytest.mark.parametrize("zero_division", ZERO_DIVISIONS)
@pytest.mark.parametrize("average", AVERAGES)
def test_multilabel_metrics_are_scikit_learns(average, zero_division):
    random = np.random.default_rng(1)
    for true, predicted in multilabel_data(repeats=1):
        weight = random.integers(1, 5, len(true)).astype(float)
        c = Confusion.from_predictions(predicted > 0, true > 0, sample_weight=weight)
        labels = subset(random, true.shape[1]) if random.random() < 0.5 else None
        compare_with_scikit_learn(c, true, predicted, weight, 0.5, average, labels, zero_division)


# Against the reference: the metrics nobody else has, and every metric of fractional entries.


def reference_class_metrics(classes):
    betas = tuple(0.5 + k for k in range(classes))
    return {
        metrics.Precision: reference.precision,
        metrics.Recall: reference.recall,
        metrics.Specificity: reference.specificity,
        metrics.NegativePredictiveValue: reference.negative_predictive_value,
        metrics.Jaccard: reference.jaccard,
        metrics.Informedness: reference.informedness,
        lambda **kwargs: metrics.FBeta(beta=2.0, **kwargs): (
            lambda *args: reference.fbeta(args[0], 2.0, *args[1:])
        ),
        lambda **kwargs: metrics.FBeta(beta=betas, **kwargs): (
            lambda *args: reference.fbeta(args[0], betas, *args[1:])
        ),
    }


@pytest.mark.parametrize("fractional", [False, True], ids=["counts", "fractions"])
@pytest.mark.parametrize("classes", [2, 4])
def test_class_metrics_are_the_references(classes, fractional):
    random = np.random.default_rng(classes)
    averages = [*AVERAGES, "binary"] if classes == 2 else AVERAGES
    for metric, expected in reference_class_metrics(classes).items():
        for average, zero_division in itertools.product(averages, ZERO_DIVISIONS):
            try:
                ours = metric(average=average, zero_division=zero_division)
            except ValueError:
                assert average == "micro"  # a beta per class has no micro average
                continue
            for matrix in matrices(classes, SMALL, repeats=1, seed=len(str(average))):
                if fractional:
                    matrix = matrix * random.random(matrix.shape)
                c = Confusion.from_matrix(matrix)
                value = expected(matrix, average, None, zero_division)
                assert_same(ours(c), value, context=(ours, matrix))


@pytest.mark.parametrize("fractional", [False, True], ids=["counts", "fractions"])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_whole_matrix_metrics_are_the_references(classes, fractional):
    random = np.random.default_rng(classes)
    for matrix in matrices(classes, SMALL, repeats=4):
        if fractional:
            matrix = matrix * random.random(matrix.shape)
        c = Confusion.from_matrix(matrix)
        cost = random.random((classes, classes)).tolist()
        assert_same(metrics.Accuracy()(c), reference.accuracy(matrix))
        assert_same(metrics.BalancedAccuracy()(c), reference.balanced_accuracy(matrix))
        assert_same(metrics.GMean()(c), reference.g_mean(matrix))
        assert_same(metrics.ExpectedCost(cost)(c), reference.expected_cost(matrix, cost))
        for weights in (None, "linear", "quadratic"):
            value = reference.cohen_kappa(matrix, weights)
            assert_same(metrics.CohenKappa(weights=weights)(c), value, context=(weights, matrix))
        value = reference.matthews_corrcoef(matrix)
        assert_same(metrics.MatthewsCorrcoef()(c), value, context=matrix)


def test_multilabel_metrics_are_the_references_on_fractions():
    random = np.random.default_rng(0)
    for index in range(30):
        tables = list(random.random((4, 2, 2)) * random.integers(0, 2, (4, 2, 2)))
        tables[0][:, index % 2] = 0  # a label always or never predicted
        tables[1][index % 2] = 0  # a label always or never true
        tp, fp, fn, tn = np.array(reference.counts(tables)).T
        c = Confusion(tp, tp + fp, tp + fn, tp + fp + fn + tn, multilabel=True)
        for metric, expected in reference_class_metrics(4).items():
            for average in ("macro", "weighted", None):
                value = expected(tables, average, None, 0.0)
                assert_same(metric(average=average)(c), value, context=(metric, tables))


# Identities, on soft and hard matrices alike.


def some_confusions(classes):
    random = np.random.default_rng(classes)
    for matrix in matrices(classes, {"plain": SMALL["plain"]}, repeats=20):
        yield Confusion.from_matrix(matrix + 1)
        yield Confusion.from_matrix(matrix * random.random(matrix.shape) + 0.1)


def test_two_class_identities():
    for c in some_confusions(2):
        swapped = Confusion.from_matrix(c.matrix[::-1, ::-1])
        transposed = Confusion.from_matrix(c.matrix.T)
        recall, specificity = metrics.Recall()(c), metrics.Specificity()(c)
        informedness, markedness = (metrics.Informedness()(x) for x in (c, transposed))
        assert_same(specificity, metrics.Recall()(swapped))
        assert_same(metrics.NegativePredictiveValue()(c), metrics.Precision()(swapped))
        assert_same(metrics.Recall()(c), metrics.Precision()(transposed))
        assert_same(metrics.GMean()(c), np.sqrt(recall * specificity))
        assert_same(metrics.MatthewsCorrcoef()(c) ** 2, informedness * markedness)
        true, predicted, weight = cells(c.matrix)
        adjusted = sk.balanced_accuracy_score(true, predicted, sample_weight=weight, adjusted=True)
        assert_same(informedness, adjusted)


@pytest.mark.parametrize("classes", CLASSES)
def test_identities(classes):
    for c in some_confusions(classes):
        f1 = metrics.FBeta(average=None)(c)
        precision = metrics.Precision(average=None)(c)
        recall = metrics.Recall(average=None)(c)
        assert_same(metrics.Jaccard(average=None)(c), f1 / (2 - f1))
        assert_same(f1, 2 * precision * recall / (precision + recall))
        accuracy = metrics.Accuracy()(c)
        assert_same(metrics.FBeta(average="micro")(c), accuracy)
        assert_same(metrics.Recall(average="weighted")(c), accuracy)
        assert_same(metrics.BalancedAccuracy()(c), recall.mean())
        wrong_is_one = (1 - np.eye(classes)).tolist()
        assert_same(metrics.ExpectedCost(wrong_is_one)(c), 1 - accuracy)
        ordinal = [[abs(i - j) for j in range(classes)] for i in range(classes)]
        chance = c.actual[:, None] * c.predicted / c.total
        ratio = metrics.ExpectedCost(ordinal)(c) / metrics.ExpectedCost(ordinal)(
            Confusion.from_matrix(chance)
        )
        assert_same(metrics.CohenKappa(weights="linear")(c), 1 - ratio)


def test_g_mean_of_a_class_without_hits_is_exactly_zero():
    """The eighth root of the smallest recall that the logarithm sees would not be small."""
    right = np.eye(8)
    right[3, 3], right[3, 4] = 0, 1
    assert metrics.GMean()(Confusion.from_matrix(right)) == 0


def test_only_costs_are_minimised_and_only_some_metrics_need_the_matrix():
    for name in metrics.names():
        assert metrics.resolve(name).greater_is_better
        ordinal = name in ("cohen_kappa_linear", "cohen_kappa_quadratic")
        assert metrics.resolve(name).needs_matrix == ordinal
    cost = metrics.ExpectedCost([[0, 1], [5, 0]])
    assert cost.needs_matrix
    assert not cost.greater_is_better
    assert metrics.CohenKappa(weights="linear").needs_matrix
    assert not metrics.Minimize(metrics.Accuracy()).greater_is_better


def test_a_name_an_object_and_a_function_become_metrics():
    c = Confusion.from_matrix([[3, 1], [2, 4]])

    def share_of_hits(c):
        return c.tp.sum() / c.total

    accuracy = metrics.Accuracy()
    assert metrics.resolve(accuracy) is accuracy
    for given in ("accuracy", accuracy, share_of_hits):
        metric = metrics.resolve(given)
        assert isinstance(metric, metrics.Metric)
        assert metric(c) == 0.7
        assert metric.greater_is_better
        assert not metric.needs_matrix
    assert metrics.resolve(share_of_hits).name == "share_of_hits"
    assert not metrics.resolve(lambda c: c.tp[40] / c.actual[40]).needs_matrix


@pytest.mark.parametrize("kind", ["Specificity", "NegativePredictiveValue", "Informedness"])
def test_rates_of_tiny_masses_stay_within_their_bounds(kind):
    """Their mass is a difference of large sums, and may be rounding alone."""
    metric = getattr(metrics, kind)(average=None)
    low, high = metric.bounds
    for seed in range(32):
        random = np.random.default_rng(seed)
        lead = [0, 8, 20, 28][seed % 4]
        first_class = 1 / (1 + np.exp(random.normal(lead, 1, 1000)))
        weight = random.random(1000) + 0.5
        weight[0] = [1e-12, 1e-9, 1e-13, 1][seed // 4 % 4]
        rows = weight[:, None] * np.stack([first_class, 1 - first_class], 1)
        score = metric(Confusion.from_matrix([rows[0], rows[1:].sum(0)]))
        assert ((score >= low) & (score <= high)).all()


@pytest.mark.parametrize("kind", ["MatthewsCorrcoef", "CohenKappa"])
def test_predictions_of_one_class_up_to_rounding_are_undefined(kind):
    """Disagreement of 1e-16 is none, and a quotient by it would be noise with a steep slope."""
    predicted = np.array([100 - 1.5e-14, 3e-14])
    tp, actual = np.array([[100.0, 0.0]] * 2)
    if kind == "MatthewsCorrcoef":  # that of one true class would be undefined by itself
        tp, actual = np.array([60.0, 8e-16]), np.array([60.0, 40.0])
    metric = getattr(metrics, kind)(zero_division=1.0)
    c = Confusion(tp, predicted, actual, actual.sum())
    assert metric(c) == 1
    assert (metric.slopes(c).predicted == 0).all()


def test_the_score_of_class_1_is_not_that_of_label_1():
    labels = np.array([[True, False], [True, True]])
    with pytest.raises(ValueError, match=r"classes of f1 must be two\. Got 2 labels"):
        metrics.resolve("f1")(Confusion.from_predictions(labels, labels))


def test_the_attributes_of_a_users_metric_count():
    class Errors:
        greater_is_better = False
        needs_matrix = True

        def __call__(self, c):
            return c.fn.sum()

    metric = metrics.resolve(Errors())
    assert (metric.name, metric.greater_is_better, metric.needs_matrix) == ("Errors", False, True)


@pytest.mark.parametrize(
    "metric",
    [
        *map(metrics.resolve, metrics.names()),
        metrics.FBeta(beta=0.25, average="macro"),
        metrics.ExpectedCost([[0, 1.5, 2], [3, 0, 1], [1, 1, 0]]),
    ],
    ids=lambda metric: metric.name,
)
def test_a_metric_is_found_again_by_its_name(metric):
    assert metrics.resolve(metric.name) == metric


def test_names_tell_the_beta_the_average_and_the_costs():
    assert metrics.resolve("f0.25_macro") == metrics.FBeta(beta=0.25, average="macro")
    assert metrics.resolve("npv_weighted") == metrics.NegativePredictiveValue(average="weighted")
    assert metrics.resolve("expected_cost[[0,1],[5,0]]") == metrics.ExpectedCost([[0, 1], [5, 0]])
    assert len(metrics.names()) == len(set(metrics.names())) == 7 + 9 * 4


def test_a_vector_is_not_a_metric_of_a_training():
    with pytest.raises(ValueError, match="metric of fit must be one number"):
        metrics.resolve(metrics.Recall(average=None), owner="fit")
    with pytest.raises(TypeError, match="metric of fit must return one number"):
        metrics.resolve(lambda c: c.tp, owner="fit")


# Names.


SCIKIT_LEARN_NAMES = {
    "accuracy",
    "balanced_accuracy",
    "matthews_corrcoef",
    *(
        base + average
        for base in ("f1", "precision", "recall", "jaccard")
        for average in ("", "_macro", "_micro", "_weighted")
    ),
}


class Identity(BaseEstimator):
    """A classifier that predicts its input, so that a scorer scores given predictions."""

    def predict(self, predictions):
        return predictions


def resolves(name):
    try:
        metrics.resolve(name)
    except ValueError:
        return False
    return True


def test_scikit_learns_scorer_names_resolve():
    """Those of our metrics do; clustering indices and ranking scores do not."""
    assert {name for name in sk.get_scorer_names() if resolves(name)} == SCIKIT_LEARN_NAMES


@pytest.mark.parametrize("name", sorted(SCIKIT_LEARN_NAMES))
def test_metric_of_a_scorer_name_is_the_scorer(name):
    binary = "_" not in name.removeprefix("balanced_").removeprefix("matthews_")
    for matrix in matrices(2 if binary else 4, SMALL, repeats=3):
        predicted, true = rows(matrix)
        score = sk.get_scorer(name)(Identity(), predicted, true)
        c = Confusion.from_matrix(matrix)
        assert_same(metrics.resolve(name)(c), score, context=matrix)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("f1_marco", " Did you mean 'f1_macro'?"),
        ("balanced_acuracy", " Did you mean 'balanced_accuracy'?"),
        ("expected_cost", " Did you mean 'expected_cost[[0, 1], [5, 0]]'?"),
        ("F1", " Did you mean 'f1'?"),
        ("", " `evalign metrics` lists them."),
        ("xyzzy", " `evalign metrics` lists them."),
    ],
)
def test_unknown_name_suggests_the_nearest(name, cure):
    with pytest.raises(ValueError, match=r"^metric of metrics\.resolve must be a name of") as error:
        metrics.resolve(name)
    assert str(error.value).endswith(f"Got {name!r}.{cure}")


@pytest.mark.parametrize("name", [*metrics.names(), "expected_cost[[0, 1], [5, 0]]"])
def test_values_keep_to_the_bounds(name):
    metric, random = metrics.resolve(name), np.random.default_rng(0)
    low, high = metric.bounds
    assert -1 <= low < high <= 5
    matrices = 10 * random.random((100, 2, 2)) ** 4
    extremes = [[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0, 0], [1, 1]], [[1, 1], [0, 0]]
    for matrix in [*matrices, *extremes]:
        value = metric(Confusion.from_matrix(matrix))
        assert low - 1e-12 <= value <= high + 1e-12


@pytest.mark.parametrize("zero_division", ZERO_DIVISIONS)
@pytest.mark.parametrize("trace", [0.0, 1e-40, 1e-31])
def test_a_skill_is_undefined_if_a_trace_of_mass_is_all_that_one_rate_has(trace, zero_division):
    matrix = [[7, 3], [trace, trace]]
    metric = metrics.Informedness(zero_division=zero_division)
    value = metric(Confusion.from_matrix(matrix))
    assert value == pytest.approx(zero_division, nan_ok=True)
