"""The task that shapes and dtypes imply, and the rows that a batch becomes."""

import pytest
import torch

from evalign import MetricLoss
from evalign.core.checks import checked
from evalign.membership.batch import as_batch
from evalign.membership.checks import values_readable
from tests import tolerances


def logits_of(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def zeros(*shape, dtype=torch.int64):
    return torch.zeros(*shape, dtype=dtype)


FLOAT, INT, BOOL = torch.float32, torch.int64, torch.bool
# logits, target shape and dtype, declared task -> task, shapes of logits and of target
TABLE = {
    "vector, int": ((6,), (6,), INT, None, "binary", (6,), (6,)),
    "vector, bool": ((6,), (6,), BOOL, None, "binary", (6,), (6,)),
    "vector, float": ((6,), (6,), FLOAT, None, "binary", (6,), (6,)),
    "vector, column": ((6,), (6, 1), FLOAT, None, "binary", (6,), (6,)),
    "column, vector": ((6, 1), (6,), INT, None, "binary", (6,), (6,)),
    "column, column": ((6, 1), (6, 1), FLOAT, None, "binary", (6,), (6,)),
    "one channel, no channel": ((2, 1, 3, 4), (2, 3, 4), INT, None, "binary", (24,), (24,)),
    "one channel each": ((2, 1, 3, 4), (2, 1, 3, 4), BOOL, None, "binary", (24,), (24,)),
    "classes, int": ((6, 3), (6,), INT, None, "multiclass", (6, 3), (6,)),
    "two classes": ((6, 2), (6,), INT, None, "multiclass", (6, 2), (6,)),
    "sequence": ((2, 3, 5), (2, 5), INT, None, "multiclass", (10, 3), (10,)),
    "image": ((2, 3, 4, 5), (2, 4, 5), INT, None, "multiclass", (40, 3), (40,)),
    "labels, bool": ((6, 3), (6, 3), BOOL, None, "multilabel", (6, 3), (6, 3)),
    "labels, float": ((6, 3), (6, 3), FLOAT, None, "multilabel", (6, 3), (6, 3)),
    "two labels": ((6, 2), (6, 2), FLOAT, None, "multilabel", (6, 2), (6, 2)),
    "label image": ((2, 3, 2, 2), (2, 3, 2, 2), BOOL, None, "multilabel", (8, 3), (8, 3)),
    "label tokens": ((2, 3, 4), (2, 3, 4), BOOL, "multilabel", "multilabel", (8, 3), (8, 3)),
    "labels, int": ((6, 3), (6, 3), INT, "multilabel", "multilabel", (6, 3), (6, 3)),
    "one label": ((6, 1), (6, 1), FLOAT, "multilabel", "multilabel", (6, 1), (6, 1)),
    "pair as binary": ((6, 2), (6,), INT, "binary", "binary", (6,), (6,)),
    "pair as binary, column": ((6, 2), (6, 1), FLOAT, "binary", "binary", (6,), (6,)),
    "image of pairs": ((2, 2, 3, 4), (2, 3, 4), INT, "binary", "binary", (24,), (24,)),
    "empty vector": ((0,), (0,), INT, None, "binary", (0,), (0,)),
    "empty classes": ((0, 3), (0,), INT, None, "multiclass", (0, 3), (0,)),
    "empty labels": ((0, 3), (0, 3), BOOL, None, "multilabel", (0, 3), (0, 3)),
}


@pytest.mark.parametrize("case", TABLE)
def test_task_by_shape_and_dtype(case):
    shape, target, dtype, declared, task, rows, labels = TABLE[case]
    batch = as_batch("test", logits_of(*shape), zeros(*target, dtype=dtype), task=declared)
    assert batch.task == task
    assert tuple(batch.logits.shape) == rows
    assert batch.target.shape == batch.weight.shape == labels
    assert batch.target.dtype == (INT if task == "multiclass" else FLOAT)
    assert batch.logits.dtype == batch.weight.dtype == FLOAT
    assert batch.num_classes == (2 if task == "binary" else shape[1])


def test_declared_float_rows_are_class_probabilities():
    target = logits_of(2, 3, 4).softmax(1)
    batch = as_batch("test", logits_of(2, 3, 4), target, task="multiclass")
    assert batch.task == "multiclass"
    assert batch.target.shape == (8, 3)
    assert batch.weight.shape == (8,)
    assert batch.target.sum(-1).allclose(torch.ones(8), rtol=0, atol=tolerances.FLOAT32_SUM)
    assert batch.target_probabilities().equal(batch.target)


def test_task_does_not_change_with_the_values():
    logits = logits_of(4, 3)
    for target in (zeros(4, 3, dtype=FLOAT), torch.ones(4, 3), torch.eye(4, 3)):
        assert as_batch("test", logits, target).task == "multilabel"


@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision_is_float32_at_least(given):
    weight, logits = torch.ones(4, dtype=torch.float64), logits_of(4, 3, dtype=given)
    batch = as_batch("test", logits, zeros(4, 3, dtype=BOOL), sample_weight=weight)
    inside = torch.promote_types(given, torch.float32)
    assert batch.logits.dtype == batch.target.dtype == batch.weight.dtype == inside


def test_rows_are_in_the_order_of_the_pixels():
    logits = torch.arange(24.0).reshape(2, 3, 4)
    target = torch.arange(8).reshape(2, 4) % 3
    batch = as_batch("test", logits, target)
    assert batch.logits[5].tolist() == logits[1, :, 1].tolist()
    assert batch.target.tolist() == target.flatten().tolist()


def test_pair_is_the_logit_of_class_1_minus_that_of_class_0():
    pair, target = logits_of(6, 2), torch.tensor([0, 1, 1, 0, -100, 1])
    expected = torch.where(target >= 0, pair[:, 1] - pair[:, 0], 0)
    declared = as_batch("test", pair, target, task="binary")
    asked = as_batch("test", pair, target).as_binary("test")
    for batch in (declared, asked):
        assert batch.task == "binary"
        assert batch.logits.equal(expected)
        assert batch.target.tolist() == [0, 1, 1, 0, 0, 1]
        assert batch.weight.tolist() == [1, 1, 1, 1, 0, 1]


def test_as_binary_of_probability_rows_takes_class_1():
    target = torch.tensor([[0.3, 0.7], [1.0, 0.0]])
    batch = as_batch("test", logits_of(2, 2), target, task="multiclass").as_binary("test")
    assert batch.target.equal(target[:, 1])


def test_ignored_entries_have_weight_and_target_0():
    target = torch.tensor([0, 2, 7, 1])
    batch = as_batch("test", logits_of(4, 3), target, ignore_index=7)
    assert batch.weight.tolist() == [1, 1, 0, 1]
    assert batch.target.tolist() == [0, 2, 0, 1]

    labels = torch.tensor([[1.0, -100.0, 0.0], [1.0, 1.0, 1.0]])
    batch = as_batch("test", logits_of(2, 3), labels)
    assert batch.weight.tolist() == [[1, 0, 1], [1, 1, 1]]
    assert batch.target.tolist() == [[1, 0, 0], [1, 1, 1]]

    rows = torch.tensor([[0.5, -100.0, 0.5], [0.0, 0.5, 0.5]])
    batch = as_batch("test", logits_of(2, 3), rows, task="multiclass")
    assert batch.weight.tolist() == [0, 1]


@pytest.mark.parametrize("shape", [(2,), (2, 4), (2, 1, 4)])
def test_weights_are_per_example_or_per_row(shape):
    weight = torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)
    batch = as_batch("test", logits_of(2, 3, 4), zeros(2, 4), sample_weight=weight)
    expected = weight.repeat_interleave(4) if shape == (2,) else weight.flatten()
    assert batch.weight.equal(expected)


def test_weights_of_a_column_and_of_labels():
    column, integers = torch.tensor([[1.0], [2.0]]), torch.tensor([3, 0])
    batch = as_batch("test", logits_of(2, 1), zeros(2, 1, dtype=FLOAT), sample_weight=column)
    assert batch.weight.tolist() == [1, 2]
    batch = as_batch("test", logits_of(2, 3), zeros(2, 3, dtype=BOOL), sample_weight=integers)
    assert batch.weight.tolist() == [[3, 3, 3], [0, 0, 0]]


def test_probabilities_and_targets_have_one_shape():
    for target, task in (
        (zeros(5), None),
        (zeros(5, 3, dtype=BOOL), None),
        (logits_of(5, 3).softmax(1), "multiclass"),
    ):
        batch = as_batch("test", logits_of(5, 3), target, task=task)
        log_p, t = batch.log_probabilities(), batch.target_probabilities()
        assert log_p.shape == t.shape
        assert log_p.exp().sum(-1).allclose(torch.ones(()), rtol=0, atol=tolerances.FLOAT32_SUM)
        assert t.sum(-1).allclose(torch.ones(()), rtol=0, atol=tolerances.FLOAT32_SUM)


# When values are looked at.


def test_values_are_readable_on_the_cpu_only():
    assert values_readable(torch.zeros(1))
    assert not values_readable(torch.zeros(1, device="meta"))
    with checked():
        assert not values_readable(torch.zeros(1, device="meta"))


@checked()
def test_values_are_not_readable_under_torch_func():
    seen = []

    def look(x):
        seen.append(values_readable(x))
        return x.sum()

    torch.func.vmap(look)(torch.zeros(2, 3))
    torch.func.grad(look)(torch.zeros(3))
    torch.func.jacrev(look)(torch.zeros(3))
    assert seen == [False] * 3
    assert values_readable(torch.zeros(1))  # and again outside


@checked()
def test_values_are_not_readable_under_compile():
    @torch.compile(backend="eager", fullgraph=True)
    def look(x):
        return x + 1 if values_readable(x) else x - 1

    assert look(torch.zeros(1)).item() == -1


@pytest.mark.parametrize(
    "dtype", ["bool", "int64", *(f"{u}int{n}" for n in (8, 16, 32) for u in ("", "u"))]
)
def test_labels_are_of_any_integer_type(dtype):
    labels = torch.tensor([0, 1, 1, 0])
    given, logits = labels.to(getattr(torch, dtype)), logits_of(4, 3)
    assert torch.equal(as_batch("test", logits, given).target, labels)
    assert torch.equal(as_batch("test", logits[:, 0], given).target, labels.float())
    loss = MetricLoss("f1_macro")
    assert torch.equal(loss(logits, given), loss(logits, labels))
