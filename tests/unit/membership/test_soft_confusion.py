"""Confusions of tensors: soft ones of logits, hard ones, and what they never allocate."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from evalign import Confusion, MetricLoss, metrics
from evalign.core.checks import within_checked
from evalign.membership import rows
from tests import tolerances
from tests.reference import confusion as reference
from tests.reference import membership

FIELDS = ("tp", "predicted", "actual", "total", "fp", "fn", "tn")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def logits_of(*shape, seed=0, dtype=torch.float64):
    return 2 * torch.randn(*shape, generator=generator(seed), dtype=dtype)


def labels_of(*shape, classes, seed=1):
    return torch.randint(classes, shape, generator=generator(seed))


def weights_of(*shape, seed=2):
    return torch.rand(*shape, generator=generator(seed), dtype=torch.float64) + 0.1


def assert_same(a, b, tolerance=tolerances.SAME):
    assert (a.full is None) == (b.full is None)
    assert a.multilabel == b.multilabel
    for field in (*FIELDS, "full"):
        x, y = getattr(a, field), getattr(b, field)
        if x is not None:
            torch.testing.assert_close(x, y, rtol=0, atol=tolerance)


def assert_is(c, matrix, tolerance=tolerances.SAME):
    """Check that every field agrees with the matrix."""
    matrix = torch.as_tensor(matrix)
    one = torch.eye(len(matrix), dtype=bool)
    expected = {
        "tp": matrix.diagonal(),
        "predicted": matrix.sum(0),
        "actual": matrix.sum(1),
        "total": matrix.sum(),
        "fp": matrix.masked_fill(one, 0).sum(0),
        "fn": matrix.masked_fill(one, 0).sum(1),
        "tn": torch.stack([matrix[~row][:, ~row].sum() for row in one]),
    }
    for field, value in expected.items():
        torch.testing.assert_close(getattr(c, field), value, rtol=0, atol=tolerance)
    assert c.num_classes == len(matrix)
    if c.full is not None:
        torch.testing.assert_close(c.matrix, matrix, rtol=0, atol=tolerance)


# From labels: the counts are those of arrays, in tensors.


def assert_is_of_arrays(c, arrays):
    """Check that a Confusion of tensors holds what one of arrays does."""
    assert c.multilabel == arrays.multilabel
    for ours, theirs in zip(c.tensors(), arrays.tensors(), strict=True):
        assert ours.dtype == torch.float64
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("matrix", [False, True])
def test_from_predictions_counts_pairs(matrix):
    predicted, true = labels_of(200, classes=4, seed=1), labels_of(200, classes=4, seed=2)
    expected = torch.zeros(5, 5, dtype=torch.float64)
    for i, j in zip(true, predicted, strict=True):
        expected[i, j] += 1
    c = Confusion.from_predictions(predicted, true, num_classes=5, matrix=matrix)
    assert c.tp.dtype == torch.float64
    assert (c.full is not None) == matrix
    assert_is(c, expected, tolerance=0)


def test_one_tensor_among_labels_gives_tensors():
    predicted, true = labels_of(20, classes=2, seed=1), labels_of(20, classes=2, seed=2)
    weight = weights_of(20)
    arrays = Confusion.from_predictions(
        predicted.numpy(), true.numpy(), sample_weight=weight.numpy()
    )
    assert isinstance(arrays.tp, np.ndarray)
    for labels in (
        (predicted, true),
        (predicted.numpy(), true),
        (predicted, true.tolist()),
        (predicted.bool(), true.bool()),
        (predicted.to(torch.uint8), true.int()),
    ):
        for given in (weight, weight.numpy(), weight.tolist()):
            assert_is_of_arrays(Confusion.from_predictions(*labels, sample_weight=given), arrays)
    of_weights = Confusion.from_predictions(predicted.numpy(), true.numpy(), sample_weight=weight)
    assert isinstance(of_weights.tp, np.ndarray)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.bfloat16])
def test_from_predictions_multilabel(dtype):
    predicted, true = labels_of(30, 3, classes=2, seed=1), labels_of(30, 3, classes=2, seed=2)
    arrays = Confusion.from_predictions(predicted.bool().numpy(), true.bool().numpy())
    assert_is_of_arrays(Confusion.from_predictions(predicted.to(dtype), true.to(dtype)), arrays)


def test_from_predictions_of_nothing_is_zero():
    nothing = torch.tensor([], dtype=torch.int64)
    assert_is(Confusion.from_predictions(nothing, nothing), torch.zeros(2, 2).double())
    c = Confusion.from_predictions(nothing, nothing, num_classes=3, matrix=True)
    assert_is(c, torch.zeros(3, 3).double())
    ignored = Confusion.from_predictions(torch.tensor([1]), torch.tensor([-100]), num_classes=3)
    assert_is(ignored, torch.zeros(3, 3).double())


def test_weights_that_cannot_be_written_to_stand_beside_tensors():
    labels, weight = labels_of(12, classes=3), weights_of(12).numpy()
    weight.flags.writeable = False
    c = Confusion.from_predictions(labels, labels, sample_weight=weight)
    assert c.total.item() == pytest.approx(weight.sum())


# From a matrix.


def test_from_matrix():
    counts = torch.tensor([[8, 2, 0], [1, 3, 5], [0, 0, 7]])
    c = Confusion.from_matrix(counts)
    assert c.tp.dtype == torch.float64
    assert_is(c, counts.double(), tolerance=0)
    soft = torch.rand(4, 4, generator=generator())
    assert_is(Confusion.from_matrix(soft), soft.double())


def test_from_matrix_sums_in_float64():
    """float16 ends at 65,504, and float32 has no odd numbers above 2²⁴."""
    half = torch.tensor([[30_000, 1], [30_000, 30_000]], dtype=torch.float16)
    c = Confusion.from_matrix(half)
    assert {x.dtype for x in c.tensors()} == {torch.float64}
    assert c.total == half.double().sum()
    assert metrics.Accuracy()(c) == 2 * half[0, 0].double() / c.total
    assert Confusion.from_matrix(torch.tensor([[2.0**24, 1], [1, 1]])).total == 2**24 + 3


# From logits: the reference, for every task.


def soft_matrix(logits, target, weight, temperature=0.2):
    h = membership.heaviside_at(temperature)
    soft = membership.multiclass(logits.numpy(), h)
    return torch.tensor(reference.multiclass(soft, target.numpy(), weight.numpy()))


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("indices", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_from_logits_multiclass(classes, indices, matrix):
    logits, weight = logits_of(40, classes), weights_of(40)
    probabilities = target = logits_of(40, classes, seed=5).softmax(-1)
    if indices:
        target = labels_of(40, classes=classes)
        probabilities = torch.nn.functional.one_hot(target, classes)
    c = Confusion.from_logits(
        logits, target, task="multiclass", sample_weight=weight, matrix=matrix
    )
    assert (c.full is not None) == matrix
    assert {x.dtype for x in c.tensors()} == {torch.float64}
    assert_is(c, soft_matrix(logits, probabilities, weight), tolerances.REFERENCE)


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("threshold", [None, 0.3])
def test_from_logits_binary(threshold, matrix):
    logits, weight = logits_of(40), weights_of(40)
    target = torch.rand(40, generator=generator(4), dtype=torch.float64)
    c = Confusion.from_logits(
        logits, target, task="binary", threshold=threshold, sample_weight=weight, matrix=matrix
    )
    soft = membership.binary(logits.numpy(), threshold or 0.5, membership.heaviside_at(0.2))
    expected = reference.binary(soft, target.numpy(), weight.numpy())
    assert_is(c, expected, tolerances.REFERENCE)


@pytest.mark.parametrize("threshold", [None, 0.3, torch.tensor([0.2, 0.5, 0.9])])
def test_from_logits_multilabel(threshold):
    logits, weight = logits_of(40, 3), weights_of(40)
    target = labels_of(40, 3, classes=2).bool()
    c = Confusion.from_logits(logits, target, threshold=threshold, sample_weight=weight)
    taus = 0.5 if threshold is None else torch.as_tensor(threshold, dtype=torch.float64)
    soft = membership.multilabel(logits.numpy(), taus, membership.heaviside_at(0.2))
    tables = reference.multilabel(soft, target.numpy(), weight.numpy())
    assert c.multilabel
    for label, table in enumerate(tables):
        two = Confusion.from_matrix(torch.tensor(table))
        for field in FIELDS:
            expected = getattr(two, field)
            expected = expected if field == "total" else expected[1]
            actual = getattr(c, field)[label]
            torch.testing.assert_close(actual, expected, rtol=0, atol=tolerances.REFERENCE)


def test_from_logits_approaches_from_predictions():
    logits, target = logits_of(100, 5), labels_of(100, classes=5)
    hard = Confusion.from_predictions(logits.argmax(1), target, num_classes=5, matrix=True)
    soft = Confusion.from_logits(logits, target, temperature=1e-9, matrix=True)
    assert_same(soft, hard, tolerances.LIMIT)


# Layout.


def task_of(name):
    return {"task": "multiclass"} if name == "probabilities" else {}


def test_a_confusion_is_moved_and_cast_whole():
    c = Confusion.from_logits(*FLAT["multilabel"]())
    assert {x.dtype for x in c.to(dtype=torch.float32).tensors()} == {torch.float32}
    assert all(x.is_meta for x in c.to("meta").tensors())
    assert (2 * c).multilabel


FLAT = {
    "binary": lambda: (logits_of(12), labels_of(12, classes=2)),
    "binary column": lambda: (logits_of(12, 1), labels_of(12, 1, classes=2).double()),
    "multiclass": lambda: (logits_of(12, 3), labels_of(12, classes=3)),
    "probabilities": lambda: (logits_of(12, 3), logits_of(12, 3, seed=7).softmax(1)),
    "multilabel": lambda: (logits_of(12, 3), labels_of(12, 3, classes=2).double()),
}


@pytest.mark.parametrize("ignore_index", [-100, 255])
@pytest.mark.parametrize("name", FLAT)
def test_ignored_rows_are_dropped_rows(name, ignore_index):
    logits, target = FLAT[name]()
    ignored = torch.zeros(12, dtype=torch.bool)
    ignored[[0, 5, 11]] = True
    expected = Confusion.from_logits(logits[~ignored], target[~ignored], **task_of(name))
    target[ignored] = ignore_index
    c = Confusion.from_logits(logits, target, ignore_index=ignore_index, **task_of(name))
    assert_same(c, expected)


@pytest.mark.parametrize("name", ["binary", "multiclass"])
@pytest.mark.parametrize("ignored", [0, 1])
def test_ignored_class_among_indices(name, ignored):
    """As in torch, whose float targets take no ignored value of 0 or above."""
    logits, target = FLAT[name]()
    expected = Confusion.from_logits(logits[target != ignored], target[target != ignored])
    assert expected.total < 12
    assert_same(Confusion.from_logits(logits, target, ignore_index=ignored), expected)


def test_ignored_label_of_a_multilabel_row_leaves_the_others():
    logits, target = FLAT["multilabel"]()
    whole = Confusion.from_logits(logits, target)
    target[4, 1] = -100
    c = Confusion.from_logits(logits, target)
    rows = [r for r in range(12) if r != 4]
    dropped = Confusion.from_logits(logits[rows], target[rows])
    for field in FIELDS:
        value = getattr(c, field)
        for label, expected in ((0, whole), (1, dropped), (2, whole)):
            expected = getattr(expected, field)[label]
            torch.testing.assert_close(value[label], expected, rtol=0, atol=tolerances.SAME)


def test_label_156_of_a_uint8_mask_is_not_minus_100():
    """-100 as uint8 would be 156."""
    target = torch.tensor([156, 0], dtype=torch.uint8)
    assert Confusion.from_predictions(target, target, num_classes=160).total == 2
    assert Confusion.from_logits(logits_of(2, 160), target).total == 2


# Arithmetic.


@pytest.mark.parametrize("name", FLAT)
def test_sum_of_two_halves_is_the_whole(name):
    logits, target = FLAT[name]()
    halves = [
        Confusion.from_logits(logits[s], target[s], matrix=True, **task_of(name))
        for s in (slice(0, 5), slice(5, 12))
    ]
    whole = Confusion.from_logits(logits, target, matrix=True, **task_of(name))
    assert_same(halves[0] + halves[1], whole)


def test_product_scales_every_field():
    c = Confusion.from_matrix(torch.tensor([[1, 2], [3, 4]]))
    for scaled in (c * 0.5, 0.5 * c, c * torch.tensor(0.5)):
        assert_is(scaled, torch.tensor([[0.5, 1.0], [1.5, 2.0]], dtype=torch.float64))
        assert scaled.full is not None


def test_detach_cuts_the_graph():
    logits, target = FLAT["multiclass"]()
    c = Confusion.from_logits(logits.requires_grad_(), target, matrix=True)
    assert c.tp.requires_grad
    assert c.matrix.requires_grad
    detached = c.detach()
    assert not any(getattr(detached, field).requires_grad for field in FIELDS)
    assert not detached.matrix.requires_grad
    assert_same(detached, c)


# Errors of its own.


def test_matrix_that_was_not_built_says_so():
    c = Confusion.from_logits(*FLAT["multiclass"]())
    with pytest.raises(ValueError, match="was not built") as error:
        _ = c.matrix
    assert str(error.value) == (
        "The d x d matrix of this Confusion was not built. Pass matrix=True, or give "
        "your metric the attribute needs_matrix = True."
    )
    with pytest.raises(ValueError, match=r"A multilabel Confusion has none\.$"):
        _ = Confusion.from_logits(*FLAT["multilabel"](), matrix=True).matrix


# Size and precision.


class LargestTensor(TorchDispatchMode):
    """A mode that notes the largest tensor that any operation returns, backward included."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(result):
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.untyped_storage().nbytes() // x.itemsize)
        return result


@pytest.mark.parametrize("name", ["f1_macro", "matthews_corrcoef", "cohen_kappa", "jaccard_micro"])
@pytest.mark.parametrize("way", ["metric", "loss"])
def test_a_hundred_thousand_classes_never_meet_in_a_matrix(way, name):
    with LargestTensor() as seen:  # it sees a matrix that is built
        Confusion.from_logits(logits_of(4, 50), labels_of(4, classes=50), matrix=True)
    assert seen.elements == 50 * 50
    # If the matrix were built, the first would fail before the second fills the memory.
    for classes in (5_000, 100_000):
        logits = logits_of(8, classes, dtype=torch.float32).requires_grad_()
        target = labels_of(8, classes=classes)
        with LargestTensor() as seen:
            if way == "metric":
                value = metrics.resolve(name)(Confusion.from_logits(logits, target))
            else:
                value = MetricLoss(name)(logits, target)
            value.backward()
        assert 8 * classes <= seen.elements < classes**2 / 100
        assert value.isfinite()
        assert logits.grad.isfinite().all()
        assert logits.grad.any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_autocast_does_not_reach_the_matrix(dtype, monkeypatch):
    """Of the two it would take float32, which is what sums are where a device has no float64."""
    monkeypatch.setattr("evalign.membership.soft_confusion.sum_dtype", lambda like: dtype)
    logits, target = FLAT["probabilities"]()
    logits, target = logits.float(), target.float()
    expected = Confusion.from_logits(logits, target, task="multiclass", matrix=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        c = Confusion.from_logits(logits, target, task="multiclass", matrix=True)
    assert c.matrix.dtype == dtype
    assert_same(c, expected, tolerance=0)


def test_float32_sums_of_millions_of_rows():
    """Beyond 2²⁴ rows adding up ones in float32 comes to a halt; the first row stands for those."""
    weight = torch.ones(100_001)
    weight[0] = 2**24
    rows, target = 2**24 + 100_000, torch.ones(len(weight), dtype=torch.int64)
    c = Confusion.from_logits(torch.zeros(len(weight), 2), target, sample_weight=weight)
    assert c.actual.tolist() == [0, rows]
    assert c.tp[1].item() == pytest.approx(rows / 2, rel=tolerances.FLOAT32)


def test_labels_of_predictions_are_checked_on_every_device(monkeypatch):
    """A GPU, where other values are read within `checked` only, waits for these in any case."""
    monkeypatch.setattr(rows, "values_readable", lambda tensor: within_checked())
    right = torch.tensor([[1, 0], [0, 1]])
    for task, text in (
        ("multilabel", r"hold 0 and 1 only\. Got 2"),
        ("multiclass", "from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=text):
            Confusion.from_predictions(right, 2 * right, task=task, num_classes=2)


def test_a_mask_of_0_and_255_is_not_two_classes():
    labels = torch.tensor([0, 255], dtype=torch.uint8)
    with pytest.raises(ValueError, match="leave such rows out by ignore_index=255"):
        Confusion.from_predictions(labels, labels, num_classes=2)


def test_a_mark_among_labels_is_no_class():
    true = torch.cat([labels_of(48, classes=3), torch.tensor([255, 255])])
    with pytest.raises(ValueError, match="Got labels up to 255, of which 4 occur"):
        Confusion.from_predictions(true, true)
    assert Confusion.from_predictions(true, true, ignore_index=255).num_classes == 3


@pytest.mark.parametrize(
    "labels",
    [
        torch.eye(2).bool().to_sparse(),
        torch.tensor([1j, 0]),
        torch.tensor([0, 1]).to(torch.uint64),
    ],
)
def test_what_holds_no_labels_is_refused_in_one_line(labels):
    with pytest.raises(ValueError, match=r"^predictions of .* must .*\. Got [^\n]*$"):
        Confusion.from_predictions(labels, labels)


def test_sparse_weights_are_refused_by_name():
    labels = torch.tensor([0, 1])
    with pytest.raises(TypeError, match=r"^sample_weight of .* must be an array, a tensor or a"):
        Confusion.from_predictions(labels, labels, sample_weight=torch.ones(2).to_sparse())


# As a table.


def test_a_confusion_prints_as_a_table():
    c = Confusion.from_matrix(torch.tensor([[1, 1], [0, 2]]))
    assert str(c).splitlines()[2].split() == ["1", "0.667", "1.000", "0.800", "2", "3", "2"]
    assert c.report().to_dict() == Confusion.from_matrix([[1, 1], [0, 2]]).report().to_dict()
