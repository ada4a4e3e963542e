"""Confusion: its sources, its fields, its arithmetic, and its table, all in NumPy."""

import re

import numpy as np
import pytest
from sklearn.metrics import classification_report

from evalign import Confusion, metrics
from tests import tolerances
from tests.reference import confusion as reference

FIELDS = ("tp", "predicted", "actual", "total", "fp", "fn", "tn")


def labels_of(*shape, classes, seed=1):
    return np.random.default_rng(seed).integers(classes, size=shape)


def weights_of(*shape, seed=2):
    return np.random.default_rng(seed).random(shape) + 0.1


def assert_same(a, b, tolerance=tolerances.SAME):
    assert (a.full is None) == (b.full is None)
    assert a.multilabel == b.multilabel
    for field in (*FIELDS, "full"):
        x, y = getattr(a, field), getattr(b, field)
        if x is not None:
            assert x.dtype == y.dtype == np.float64
            np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


def assert_is(c, matrix, tolerance=tolerances.SAME):
    """Check that every field agrees with the matrix."""
    matrix = np.asarray(matrix)
    one = np.eye(len(matrix), dtype=bool)
    expected = {
        "tp": matrix.diagonal(),
        "predicted": matrix.sum(0),
        "actual": matrix.sum(1),
        "total": matrix.sum(),
        "fp": np.where(one, 0, matrix).sum(0),
        "fn": np.where(one, 0, matrix).sum(1),
        "tn": np.stack([matrix[~row][:, ~row].sum() for row in one]),
    }
    for field, value in expected.items():
        np.testing.assert_allclose(getattr(c, field), value, rtol=0, atol=tolerance)
        assert getattr(c, field).dtype == np.float64
    assert c.num_classes == len(matrix)
    if c.full is not None:
        np.testing.assert_allclose(c.matrix, matrix, rtol=0, atol=tolerance)


# From labels.


@pytest.mark.parametrize("matrix", [False, True])
def test_from_predictions_counts_pairs(matrix):
    predicted, true = labels_of(200, classes=4, seed=1), labels_of(200, classes=4, seed=2)
    expected = np.zeros((5, 5))
    for i, j in zip(true, predicted, strict=True):
        expected[i, j] += 1
    c = Confusion.from_predictions(predicted, true, num_classes=5, matrix=matrix)
    assert (c.full is not None) == matrix
    assert_is(c, expected, tolerance=0)


def test_from_predictions_finds_the_number_of_classes():
    def classes(predicted, true):
        return Confusion.from_predictions(predicted, true).num_classes

    assert classes([0, 0], [0, 0]) == 2  # at least two
    assert classes([0, 4, 3], [1, 0, 2]) == 5
    assert classes([0, 1, 2], [3, 0, 0]) == 4
    assert classes([9, 1], [-100, 0]) == 2  # what is ignored is not seen


@pytest.mark.parametrize(
    "dtype", ["bool", "int64", *(f"{u}int{n}" for n in (8, 16, 32) for u in ("", "u")), "uint64"]
)
def test_labels_are_of_any_integer_type(dtype):
    predicted, true = labels_of(20, classes=2, seed=1), labels_of(20, classes=2, seed=2)
    expected = Confusion.from_predictions(predicted, true)
    assert_same(Confusion.from_predictions(predicted.astype(dtype), true), expected, 0)
    assert_same(Confusion.from_predictions(predicted, true.astype(dtype)), expected, 0)
    swapped = true.astype(np.dtype(dtype).newbyteorder())
    assert_same(Confusion.from_predictions(predicted, swapped, ignore_index=255), expected, 0)


def test_labels_may_be_lists():
    predicted, true = labels_of(20, classes=3, seed=1), labels_of(20, classes=3, seed=2)
    expected = Confusion.from_predictions(predicted, true, sample_weight=np.arange(20))
    lists = Confusion.from_predictions(
        predicted.tolist(), true.tolist(), sample_weight=[*range(20)]
    )
    assert_same(lists, expected, 0)


@pytest.mark.parametrize("dtype", [bool, np.float32])
def test_from_predictions_multilabel(dtype):
    predicted, true = labels_of(30, 3, classes=2, seed=1), labels_of(30, 3, classes=2, seed=2)
    c = Confusion.from_predictions(predicted.astype(dtype), true.astype(dtype))
    assert c.multilabel
    tables = reference.multilabel(predicted, true, np.ones(30))
    for label, ((tn, fp), (fn, tp)) in enumerate(tables):
        for field, value in {"tp": tp, "fp": fp, "fn": fn, "tn": tn, "total": 30}.items():
            assert getattr(c, field)[label] == value


def test_from_predictions_of_nothing_is_zero():
    nothing = np.array([], dtype=np.int64)
    assert_is(Confusion.from_predictions(nothing, nothing), np.zeros((2, 2)))
    c = Confusion.from_predictions(nothing, nothing, num_classes=3, matrix=True)
    assert_is(c, np.zeros((3, 3)))
    ignored = Confusion.from_predictions([1], [-100], num_classes=3)
    assert_is(ignored, np.zeros((3, 3)))
    labels = Confusion.from_predictions(np.zeros((0, 2), bool), np.zeros((0, 2), bool))
    assert [x.tolist() for x in labels.tensors()] == [[0, 0]] * 4


# From a matrix.


def test_from_matrix():
    counts = np.array([[8, 2, 0], [1, 3, 5], [0, 0, 7]])
    assert_is(Confusion.from_matrix(counts), counts, tolerance=0)
    assert_is(Confusion.from_matrix(counts.tolist()), counts, tolerance=0)
    soft = np.random.default_rng(0).random((4, 4))
    assert_is(Confusion.from_matrix(soft), soft)


def test_from_matrix_sums_in_float64():
    """float16 ends at 65,504, and float32 has no odd numbers above 2²⁴."""
    half = np.array([[30_000, 1], [30_000, 30_000]], dtype=np.float16)
    c = Confusion.from_matrix(half)
    assert {x.dtype for x in c.tensors()} == {np.dtype(np.float64)}
    assert c.total == half.astype(float).sum()
    assert metrics.Accuracy()(c) == 2 * half[0, 0].astype(float) / c.total
    single = np.array([[2.0**24, 1], [1, 1]], dtype=np.float32)
    assert Confusion.from_matrix(single).total == 2**24 + 3


def test_from_many_matrices():
    several = np.random.default_rng(0).random((2, 5, 3, 3))
    together = Confusion.from_matrix(several)
    assert together.total.shape == (2, 5)
    assert together.num_classes == 3
    for place in np.ndindex(2, 5):
        alone = Confusion.from_matrix(several[place])
        for field in (*FIELDS, "negatives", "rejected", "matrix"):
            one = getattr(together, field)[place]
            np.testing.assert_allclose(one, getattr(alone, field), rtol=tolerances.SAME)


# What is left out, and weights.


def test_ignored_predictions_are_dropped_rows():
    predicted, true = labels_of(12, classes=3), labels_of(12, classes=3, seed=9)
    expected = Confusion.from_predictions(predicted[2:], true[2:], num_classes=3)
    true[:2] = 255
    c = Confusion.from_predictions(predicted, true, num_classes=3, ignore_index=255)
    assert_same(c, expected)


def test_ignored_label_of_a_multilabel_row_leaves_the_others():
    predicted, true = labels_of(12, 3, classes=2), labels_of(12, 3, classes=2, seed=9)
    whole = Confusion.from_predictions(predicted, true, task="multilabel")
    true[4, 1] = -100
    c = Confusion.from_predictions(predicted, true, task="multilabel")
    others = np.arange(12) != 4
    dropped = Confusion.from_predictions(predicted[others], true[others], task="multilabel")
    for field in FIELDS:
        expected = getattr(whole, field).copy()
        expected[1] = getattr(dropped, field)[1]
        np.testing.assert_array_equal(getattr(c, field), expected)


def test_label_156_of_a_uint8_mask_is_not_minus_100():
    """-100 as uint8 would be 156."""
    target = np.array([156, 0], dtype=np.uint8)
    assert Confusion.from_predictions(target, target, num_classes=160).total == 2


def test_a_small_type_may_lack_the_ignored_label():
    target = np.array([0, 1, 1], dtype=np.int8)
    assert Confusion.from_predictions(target, target, ignore_index=255).total == 3
    assert Confusion.from_predictions(target, target, ignore_index=-1000).total == 3


@pytest.mark.parametrize("multilabel", [False, True])
def test_weight_k_is_k_copies_of_predictions(multilabel):
    shape = (12, 3) if multilabel else (12,)
    predicted, true = labels_of(*shape, classes=2), labels_of(*shape, classes=2, seed=9)
    if multilabel:
        predicted, true = predicted.astype(bool), true.astype(bool)
    times = labels_of(12, classes=4, seed=3)
    weighted = Confusion.from_predictions(predicted, true, sample_weight=times)
    copies = [x.repeat(times, 0) for x in (predicted, true)]
    assert_same(weighted, Confusion.from_predictions(*copies))


@pytest.mark.parametrize("shape", [(2,), (2, 4), (2, 1, 4)])
@pytest.mark.parametrize("multilabel", [False, True])
def test_weights_are_per_example_or_per_row(shape, multilabel):
    labels_shape = (2, 3, 4) if multilabel else (2, 4)
    predicted, true = labels_of(*labels_shape, classes=2), labels_of(*labels_shape, classes=2)
    weight = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    task = "multilabel" if multilabel else "multiclass"
    c = Confusion.from_predictions(predicted, true, sample_weight=weight, task=task)
    of_rows = weight.repeat(4) if shape == (2,) else weight.ravel()
    flat = [
        np.moveaxis(x, 1, -1).reshape(-1, 3) if multilabel else x.ravel() for x in (predicted, true)
    ]
    assert_same(c, Confusion.from_predictions(*flat, sample_weight=of_rows, task=task))


def test_arrays_that_cannot_be_written_to_are_read():
    labels, weight = labels_of(12, classes=3), weights_of(12)
    expected = Confusion.from_predictions(labels, labels, sample_weight=weight)
    for values in (labels, weight):
        values.flags.writeable = False
    assert_same(Confusion.from_predictions(labels, labels, sample_weight=weight), expected, 0)


# Arithmetic.


def problems():
    weight, k = weights_of(12), {"num_classes": 3, "matrix": True}
    two = labels_of(12, 3, classes=2).astype(bool)
    yield labels_of(12, classes=3), labels_of(12, classes=3, seed=9), weight, k
    yield labels_of(12, classes=2), labels_of(12, classes=2, seed=9), weight, {"task": "binary"}
    yield two, labels_of(12, 3, classes=2, seed=9).astype(bool), weight, {}


@pytest.mark.parametrize("number", range(3))
def test_sum_of_two_halves_is_the_whole(number):
    *rows, settings = [*problems()][number]
    halves = []
    for part in (slice(0, 5), slice(5, 12)):
        predicted, true, weight = (x[part] for x in rows)
        halves.append(Confusion.from_predictions(predicted, true, sample_weight=weight, **settings))
    predicted, true, weight = rows
    whole = Confusion.from_predictions(predicted, true, sample_weight=weight, **settings)
    assert_same(halves[0] + halves[1], whole)


def test_sum_with_a_confusion_without_matrix_has_none():
    counts = np.array([[1, 2], [3, 4]])
    total = Confusion.from_matrix(counts) + Confusion.from_predictions([0, 1], [0, 1])
    assert total.full is None
    assert_is(total, counts + np.eye(2))


def test_product_scales_every_field():
    c = Confusion.from_matrix([[1, 2], [3, 4]])
    for scaled in (c * 0.5, 0.5 * c, c * np.array(0.5), np.float64(0.5) * c):
        assert_is(scaled, [[0.5, 1.0], [1.5, 2.0]])
        assert scaled.full is not None


def test_sum_of_confusions():
    parts = [Confusion.from_predictions([k], [0]) for k in (0, 1)]
    assert sum(parts).tp.tolist() == [1, 0]
    with pytest.raises(TypeError):  # only the 0 that `sum` begins with is nothing
        1 + parts[0]


def test_nothing_is_rejected_where_all_rows_have_one_label():
    target = np.array([0, 1] * 5)
    nothing = np.zeros_like(target)
    c = Confusion.from_predictions(nothing, target, sample_weight=np.full(10, 0.1))
    assert c.total != c.predicted[0]  # two sums of tenths, rounded in another order
    assert c.rejected[0] == 0


# Errors of its own.


def test_matrix_that_was_not_built_says_so():
    c = Confusion.from_predictions([0, 1, 2], [0, 1, 2])
    with pytest.raises(ValueError, match="was not built") as error:
        _ = c.matrix
    assert str(error.value) == (
        "The d x d matrix of this Confusion was not built. Pass matrix=True, or give "
        "your metric the attribute needs_matrix = True."
    )
    labels = np.zeros((4, 2), bool)
    with pytest.raises(ValueError, match=r"A multilabel Confusion has none\.$"):
        _ = Confusion.from_predictions(labels, labels, matrix=True).matrix


def test_sum_of_different_problems_is_refused():
    two, three = (Confusion.from_matrix(np.eye(n)) for n in (2, 3))
    with pytest.raises(ValueError, match=r"must agree\. Got 2 classes and 3 classes\."):
        _ = two + three
    labels = Confusion.from_predictions(*np.zeros((2, 4, 2), bool))
    with pytest.raises(ValueError, match=r"must agree\. Got 2 classes and 2 labels\. Pass .* task"):
        _ = two + labels


def test_integer_indicators_are_multilabel_when_said():
    labels = np.array([[0, 1, 1], [1, 0, 1]])
    c = Confusion.from_predictions(labels, labels, task="multilabel")
    assert c.multilabel
    assert c.tp.tolist() == [1, 1, 2]


def test_classes_of_tokens_are_classes():
    """Integers of two dimensions are no labels, unless the task says so."""
    tokens = labels_of(4, 3, classes=2)
    assert not Confusion.from_predictions(tokens, tokens).multilabel
    assert Confusion.from_predictions(tokens, tokens).total == 12


def test_labels_of_predictions_are_checked():
    right = np.array([[1, 0], [0, 1]])
    for task, text in (
        ("multilabel", r"hold 0 and 1 only\. Got 2"),
        ("multiclass", r"from 0 to 1 \(num_classes\)\. Got 2"),
    ):
        with pytest.raises(ValueError, match=text):
            Confusion.from_predictions(right, 2 * right, task=task, num_classes=2)
        with pytest.raises(ValueError, match=text):
            Confusion.from_predictions(2 * right, right, task=task, num_classes=2)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_a_mask_of_0_and_255_is_not_two_classes(dtype):
    labels = np.array([0, 255], dtype=dtype)
    with pytest.raises(ValueError, match="leave such rows out by ignore_index=255"):
        Confusion.from_predictions(labels, labels, num_classes=2)


def test_a_mark_among_labels_is_no_class():
    predicted, true = labels_of(50, classes=3), labels_of(50, classes=3, seed=9)
    expected = Confusion.from_predictions(predicted[2:], true[2:])
    true[:2] = 255
    assert_same(Confusion.from_predictions(predicted, true, ignore_index=255), expected)
    text = (
        r"num_classes of .* must be given where .* Got labels up to 255, of which 4 occur\. .*=255"
    )
    with pytest.raises(ValueError, match=text):
        Confusion.from_predictions(predicted, true)


@pytest.mark.parametrize(
    ("labels", "got"),
    [
        ([1j, 0], "list"),
        ([[0], [1, 2]], "list"),
        (["a", "b"], "list"),
        (np.array(["a", "b"]), "ndarray"),
        (None, "NoneType"),
    ],
)
def test_what_holds_no_labels_is_refused_in_one_line(labels, got):
    text = rf"^predictions of .* must .*\. Got {got}\. Of text, [^\n]*$"
    with pytest.raises(TypeError, match=text):
        Confusion.from_predictions(labels, labels)


def test_masked_cells_are_refused():
    masked = np.ma.masked_equal([[0, 9], [1, 0]], 9)
    with pytest.raises(ValueError, match=r"^matrix of .* must be without masked cells\. Got 1 of"):
        Confusion.from_matrix(masked)
    with pytest.raises(ValueError, match=r"^target of .* must be without masked cells\. Got 1 of"):
        Confusion.from_predictions([[0, 1], [1, 0]], masked)


@pytest.mark.parametrize("matrix", [[1, 2], 3, [[1, 2, 3], [4, 5, 6]]])
def test_a_matrix_is_square(matrix):
    shape = re.escape(str(np.shape(matrix)))
    text = rf"^matrix of Confusion\.from_matrix must be square\. Got {shape}\.$"
    with pytest.raises(ValueError, match=text):
        Confusion.from_matrix(matrix)


# As a table.


def test_report_against_scikit_learn():
    predicted, true, weight = labels_of(60, classes=4), labels_of(60, classes=4), weights_of(60)
    predicted = np.where(weight < 0.8, (predicted + 1) % 4, predicted) % 3  # none has label 3
    names = ["ant", "bee", "cat", "dog"]
    c = Confusion.from_predictions(predicted, true, num_classes=4, sample_weight=weight)
    expected = classification_report(
        true, predicted, target_names=names, sample_weight=weight, output_dict=True, zero_division=0
    )
    found = c.report(names).to_dict()
    for k, name in enumerate(names):
        keys = {"precision": "precision", "recall": "recall", "f1": "f1-score", "true": "support"}
        for ours, theirs in keys.items():
            assert found[name][ours] == pytest.approx(expected[name][theirs], abs=tolerances.SAME)
        assert found[name]["correct"] == c.tp[k]
        assert found[name]["predicted"] == c.predicted[k]
    lines = str(c.report(names)).splitlines()
    assert [line.split()[0] for line in lines] == ["class", *names]
    assert f"{expected['ant']['precision']:.3f}" in lines[1]


def test_a_confusion_prints_as_a_table():
    c = Confusion.from_matrix([[1, 1], [0, 2]])
    assert str(c).splitlines()[2].split() == ["1", "0.667", "1.000", "0.800", "2", "3", "2"]
    assert str(Confusion.from_matrix(np.eye(30))).splitlines()[-1] == "and 10 more classes"
    assert "\x1b" not in str(c.report(["\x1b[31m", "b"]))
    with pytest.raises(ValueError, match=r"Confusion\.report must be 2 different names"):
        c.report(["a", "a"])


def test_a_table_of_no_rows_warns_of_nothing():
    assert str(Confusion.from_matrix(np.zeros((2, 2)))).splitlines()[1].split()[1] == "0.000"
