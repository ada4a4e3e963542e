"""`evalign.score` against scikit-learn's functions of the same name."""

import re
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sk

import evalign
from evalign import metrics
from tests.reference import metrics as reference

ROUNDING = 1e-12  # quotients of float64 sums of a hundred terms
WORDS = np.array(["ant", "bee", "cat", "dog"])

AVERAGED = {
    "precision": sk.precision_score,
    "recall": sk.recall_score,
    "jaccard": sk.jaccard_score,
    "f1": partial(sk.fbeta_score, beta=1),
    "f2": partial(sk.fbeta_score, beta=2),
    "f0.5": partial(sk.fbeta_score, beta=0.5),
}
WHOLE = {
    "accuracy": sk.accuracy_score,
    "balanced_accuracy": sk.balanced_accuracy_score,
    "matthews_corrcoef": sk.matthews_corrcoef,
    "cohen_kappa": sk.cohen_kappa_score,
    "cohen_kappa_linear": partial(sk.cohen_kappa_score, weights="linear"),
    "cohen_kappa_quadratic": partial(sk.cohen_kappa_score, weights="quadratic"),
}
SCIKIT_LEARNS = WHOLE | {
    f"{name}_{average}": partial(function, average=average, zero_division=0)
    for name, function in AVERAGED.items()
    for average in ("macro", "micro", "weighted")
}
OTHERS = {
    "specificity": reference.specificity,
    "npv": reference.negative_predictive_value,
    "informedness": reference.informedness,
}


def rows(classes, *, seed, size=60):
    generator = np.random.default_rng(seed)
    true = generator.integers(classes, size=size)
    guessed = generator.integers(classes, size=size)
    given = np.where(generator.random(size) < 0.6, true, guessed)
    return given, true, generator.uniform(0.1, 3, size)


def assert_score(name, given, true, expected, **settings):
    value = evalign.score(name, y_true=true, y_pred=given, **settings)
    assert type(value) is float
    assert value == pytest.approx(expected, abs=ROUNDING)


def test_every_name_is_compared():
    of_two = {*AVERAGED, *OTHERS}
    others = {f"{name}_{average}" for name in OTHERS for average in ("macro", "micro", "weighted")}
    assert {*SCIKIT_LEARNS, *of_two, *others, "g_mean"} == set(metrics.names())


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize("name", SCIKIT_LEARNS)
def test_several_classes(name):
    for seed in range(2):
        given, true, weight = rows(4, seed=seed)
        for kept in (true >= 0, true != 1, (true != 1) & (given != 1)):  # not true; nowhere
            a, b, w = given[kept], true[kept], weight[kept]
            for values in (np.arange(4), np.array([-7, 3, 20, 21]), WORDS):
                plain = SCIKIT_LEARNS[name](b, a)
                text = values.dtype.kind == "U" and name.endswith(("_linear", "_quadratic"))
                ordered = {"classes": values[np.union1d(a, b)]} if text else {}
                assert_score(name, values[a], values[b], plain, **ordered)
            expected = SCIKIT_LEARNS[name](b, a, sample_weight=w)
            assert_score(name, a, b, expected, sample_weight=w)


@pytest.mark.parametrize("name", AVERAGED)
def test_two_classes(name):
    function = partial(AVERAGED[name], zero_division=0)
    given, true, weight = rows(2, seed=3)
    expected = function(true, given, sample_weight=weight)
    for values in (np.arange(2), np.array([False, True]), np.array([-1, 1]), WORDS[:2]):
        assert_score(name, values[given], values[true], expected, sample_weight=weight)
    other = function(true, given, pos_label=0, sample_weight=weight)
    for values in (np.arange(2), WORDS[:2]):
        settings = {"pos_label": values[0], "sample_weight": weight}
        assert_score(name, values[given], values[true], other, **settings)
        settings = {"classes": values[[1, 0]], "sample_weight": weight}
        assert_score(name, values[given], values[true], other, **settings)


@pytest.mark.parametrize("name", AVERAGED)
@pytest.mark.parametrize("label", [-1, 0, 1, 7])
def test_one_integer_alone_is_negative_unless_it_is_one(name, label):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of an undefined score
        expected = AVERAGED[name]([label] * 3, [label] * 3)
    assert_score(name, [label] * 3, [label] * 3, expected)


@pytest.mark.parametrize("name", SCIKIT_LEARNS)
@pytest.mark.parametrize("scale", [1e307, 1e-300])
def test_only_the_ratios_of_weights_count(name, scale):
    given, true, weight = rows(3, seed=8)
    expected = SCIKIT_LEARNS[name](true, given, sample_weight=weight)
    assert_score(name, given, true, expected, sample_weight=weight * scale)


def test_a_function_has_the_weights_as_they_came():
    assert (
        evalign.score(lambda c: c.tp.sum(), y_true=[0, 1], y_pred=[0, 1], sample_weight=[2, 3]) == 5
    )


@pytest.mark.parametrize("name", OTHERS)
def test_metrics_that_scikit_learn_does_not_have(name):
    given, true, weight = rows(4, seed=5)
    matrix = sk.confusion_matrix(true, given, sample_weight=weight)
    for average in ("macro", "micro", "weighted"):
        expected = OTHERS[name](matrix, average=average)
        assert_score(f"{name}_{average}", given, true, expected, sample_weight=weight)
    given, true, _ = rows(2, seed=6)
    assert_score(name, given, true, OTHERS[name](sk.confusion_matrix(true, given)))
    assert_score("g_mean", given, true, reference.g_mean(sk.confusion_matrix(true, given)))


@pytest.mark.parametrize("name", [name for name in SCIKIT_LEARNS if name not in WHOLE])
@pytest.mark.parametrize("dtype", [bool, int, float])
def test_multilabel(name, dtype):
    generator = np.random.default_rng(7)
    true, given = generator.random((2, 40, 3)) < 0.4
    true[:, 2] = given[:, 2] = False  # a label that never occurs counts all the same
    weight = generator.uniform(0.1, 3, 40)
    expected = SCIKIT_LEARNS[name](true, given, sample_weight=weight)
    settings = {"sample_weight": weight}
    assert_score(name, given.astype(dtype), true.astype(dtype), expected, **settings)


@pytest.mark.parametrize(
    "convert",
    [
        list,
        pd.Series,
        lambda labels: np.array(labels, dtype=np.uint8),
        lambda labels: np.array(labels, dtype=np.float16)[:, None],
        lambda labels: np.array(labels, dtype=">i4")[::-1][::-1],
        lambda labels: np.array(labels, dtype=object),
        lambda labels: pd.Series(WORDS[labels], dtype="category"),
        lambda labels: list(WORDS[labels]),
    ],
)
def test_whatever_holds_labels(convert):
    given, true, weight = rows(3, seed=8)
    expected = sk.f1_score(true, given, average="macro", sample_weight=weight)
    settings = {"sample_weight": pd.Series(weight)}
    assert_score("f1_macro", convert(given.tolist()), convert(true.tolist()), expected, **settings)


def test_a_metric_that_goes_by_the_place_of_a_class():
    cost = metrics.ExpectedCost([[0, 1, 9], [2, 0, 1], [9, 3, 0]])
    given, true = ["low", "mid", "mid"], ["low", "low", "mid"]
    order = ["low", "mid", "high"]
    assert_score(cost, given, true, 1 / 3, classes=order)
    given, true = [0, 3, 0, 3], [0, 3, 3, 0]
    near, far = ([0, 3], [0, 1, 2, 3])
    for classes in (near, far):
        expected = sk.cohen_kappa_score(true, given, weights="linear", labels=classes)
        assert_score("cohen_kappa_linear", given, true, expected, classes=classes)


@pytest.mark.parametrize("ignored", [-100, 1, 255])
def test_ignored_rows_are_as_good_as_absent(ignored):
    given, true, weight = rows(4, seed=5)
    kept = true != 1
    expected = sk.f1_score(true[kept], given[kept], average="macro", sample_weight=weight[kept])
    true[~kept] = ignored
    assert_score("f1_macro", given, true, expected, sample_weight=weight, ignore_index=ignored)
    true, given = (np.random.default_rng(6).random((2, 30, 3)) < 0.4).astype(int)
    table = [[reference.fbeta(sk.confusion_matrix(true[3:, k], given[3:, k])) for k in range(3)]]
    true[:3] = ignored
    if ignored != 1:  # a label of a multilabel row
        assert_score("f1_macro", given, true, np.mean(table), ignore_index=ignored)


def test_the_labels_are_passed_by_name_alone():
    with pytest.raises(TypeError, match="positional"):
        evalign.score("f1", [0, 1], [0, 1])


WRONG = [
    ([[0.1, 2.0], [1.5, 0.3]], [1, 0], {}, "y_pred of score must hold labels."),
    ([[0.0, 1.0], [1.0, 0.0]], [1, 0], {}, "have the shape of y_true, (2,). Got (2, 2). If these"),
    ([0, 1], [0.0, float("nan")], {}, "y_true of score must hold labels. Got nan. For scores, use"),
    (["a", "b"], ["a", None], {}, "y_true of score must hold labels of one type. Got NoneType, s"),
    (["0", "1"], [0, 1], {}, "y_pred of score must hold labels of the type of y_true, integer"),
    ([], [], {}, "must have shape (N,), or (N, L) if multilabel, with at least one row. Got (0,)."),
    (np.zeros((2, 3, 3)), np.zeros((2, 3, 3)), {}, "Got (2, 3, 3). If every position has a label"),
    ([0, 1], [0, 1], {"sample_weight": [1, 1, 1]}, "sample_weight of score must have shape (2,)."),
    ([0, 1], [0, 1], {"sample_weight": [1, -1]}, "be finite and not negative. Got -1.0. A weight"),
    ([0, 1], [0, 2], {"classes": [0, 1]}, "hold every class that occurs, each once. Got [0, 1]. I"),
    (["a", "b"], ["a", "b"], {"pos_label": "c"}, "pos_label of score must be one of two classes, "),
    (["no"], ["no"], {"metric": "f1"}, "classes of score must name both classes where only one oc"),
    ([[0, 1]], [[0, 1]], {"classes": [0, 1]}, "classes of score must be None for a multilabel pro"),
    ([[0, 2]], [[0, 1]], {}, "y_pred of score must hold 0 and 1 only, as it has a column per"),
    ([0, 1, 2], [0, 1, 2], {"metric": "f1"}, "classes of f1 must be two. Got 3 classes. Use f1_m"),
    ([0, 1], [0, -100], {}, "y_true of score must hold classes only. Got -100. Leave them out by"),
    ([0, 1], np.array([0, 2**63], np.uint64), {}, "y_true of score must hold integers below 2**63"),
    (
        [0, 1],
        [0, 1j],
        {},
        "y_true of score must hold integers below 2**63, bools or strings. Got",
    ),
    ([0], [0], {"metric": "f1_makro"}, "metric of score must be a name of metrics.names(). Got 'f"),
]


@pytest.mark.parametrize(("predictions", "target", "more", "text"), WRONG)
def test_error(predictions, target, more, text):
    call = {"metric": "f1_macro", "y_pred": predictions, "y_true": target} | more
    with pytest.raises((ValueError, TypeError), match=re.escape(text)):
        evalign.score(**call)


def test_rows_that_none_count_have_no_score():
    with pytest.raises(ValueError, match=r"^y_true of .* must leave a row with a label and a"):
        evalign.score("f1", y_true=[0, 1], y_pred=[0, 1], sample_weight=[0, 0])


def test_an_order_of_text():
    """Text has none of its own: it is named, by `classes` or by the metric."""
    true, given = ["low", "mid", "high", "high"], ["low", "high", "mid", "high"]
    names = ["low", "mid", "high"]
    expected = sk.cohen_kappa_score(true, given, weights="quadratic", labels=names)
    assert_score("cohen_kappa_quadratic", given, true, expected, classes=names)
    own = metrics.CohenKappa(weights="quadratic", order=names)
    assert_score(own, given, true, expected)
    assert_score(own, given, true, expected, classes=["high", "low", "mid"])
    with pytest.raises(ValueError, match=r'as in classes=\["high", "low", "mid"\]'):
        evalign.score("cohen_kappa_quadratic", y_true=true, y_pred=given)
    matrix = metrics.CohenKappa(weights="linear", order=[2, 0, 1])
    assert_score(
        matrix,
        [0, 1, 2, 2],
        [2, 1, 2, 0],
        sk.cohen_kappa_score([2, 1, 2, 0], [0, 1, 2, 2], weights="linear", labels=[2, 0, 1]),
    )
