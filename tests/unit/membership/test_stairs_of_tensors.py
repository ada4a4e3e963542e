"""The stairs between the floors, where tensors come: as arrays downward, as they came upward."""

import sys

import numpy as np
import pytest
import torch

from evalign import Confusion
from evalign.core import stairs
from evalign.core.arrays import library


def test_a_tensor_is_one_of_any_kind():
    for value in (
        torch.zeros(2),
        torch.nn.Parameter(torch.zeros(2)),
        torch.zeros(2, device="meta"),
        torch.zeros(2).to_sparse(),
    ):
        assert stairs.is_tensor(value)
    assert not stairs.is_tensor(torch.zeros(2).numpy())
    assert not stairs.is_tensor(torch.float32)
    assert stairs.has_torch()
    assert library(torch.zeros(2)) is torch


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint8", "bool"])
def test_a_tensor_as_an_array_keeps_its_dtype(dtype):
    tensor = torch.tensor([0, 1, 1]).to(getattr(torch, dtype))
    array = stairs.as_numpy(tensor)
    assert array.dtype == np.dtype(dtype)
    assert array.tolist() == [0, 1, 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_half_precision_comes_in_float32(dtype):
    values = torch.tensor([0.25, -3.0, torch.inf]) if dtype.itemsize == 2 else torch.tensor([0.25])
    array = stairs.as_numpy(values.to(dtype))
    assert array.dtype == np.float32
    assert array.tolist() == values.tolist()


def test_a_tensor_within_a_graph_and_one_of_no_dimensions():
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    assert stairs.as_numpy(2 * leaf).tolist() == [2, 4]
    one = stairs.as_numpy(torch.tensor(0.5))
    assert one.shape == ()
    with torch.inference_mode():
        assert stairs.as_numpy(2 * leaf.detach()).tolist() == [2, 4]


def test_lazy_conjugates_and_negatives_are_carried_out():
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert z.conj().is_conj()
    assert stairs.as_numpy(z.conj()).tolist() == [1 - 2j, 3 + 4j]
    negative = z.conj().imag
    assert negative.is_neg()
    assert stairs.as_numpy(negative).tolist() == [-2, 4]


LIKE = torch.zeros(1, dtype=torch.float16)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6).reshape(2, 3).T,
        np.arange(3, dtype=np.int32)[::-1],
        np.broadcast_to(np.float32(2), (2, 3)),
        np.array(0.5),
        np.array([True, False]),
        np.zeros((0, 3)),
    ],
    ids=["rows", "transposed", "backwards", "broadcast", "one number", "bool", "nothing"],
)
def test_an_array_comes_back_as_a_tensor(array):
    tensor = stairs.in_form_of(array, like=LIKE)
    assert torch.is_tensor(tensor)
    assert tensor.shape == array.shape
    assert tensor.numpy().dtype == array.dtype
    assert tensor.tolist() == array.tolist()


def test_a_tensor_shares_no_memory_with_the_array():
    array = np.arange(3.0)
    array.flags.writeable = False
    tensor = stairs.in_form_of(array, like=LIKE)  # a warning would be an error here
    tensor += 1
    assert array.tolist() == [0, 1, 2]


def test_an_array_goes_to_the_device_of_the_tensor():
    assert stairs.in_form_of(np.arange(3), like=torch.zeros(1, device="meta")).is_meta
    with torch.device("meta"):  # where tensors are made by default does not count
        assert stairs.in_form_of(np.arange(3), like=LIKE).tolist() == [0, 1, 2]


def test_labels_beside_a_tensor():
    of_list = stairs.label_tensor("test", "y", [0, 1], "")
    assert of_list.tolist() == [0, 1]
    assert stairs.label_tensor("test", "y", np.array([156], np.uint8), "").dtype == torch.int64
    tensor = torch.tensor([1, 0])
    assert stairs.label_tensor("test", "y", tensor, "") is tensor
    with pytest.raises(TypeError, match=r"^y of test must be .* Got list\. A cure\.$"):
        stairs.label_tensor("test", "y", ["a"], "A cure.")
    with pytest.raises(ValueError, match=r"^y of test must be dense, and neither complex nor"):
        stairs.label_tensor("test", "y", torch.tensor([1j]), "")


def test_a_confusion_of_arrays_in_tensors():
    c = Confusion.from_matrix([[1, 2], [3, 4]])
    (tensors,) = stairs.as_tensors(c)
    assert {x.dtype for x in tensors.tensors()} == {torch.float64}
    assert [x.tolist() for x in tensors.tensors()] == [x.tolist() for x in c.tensors()]


def test_torch_that_is_blocked_is_not_there(monkeypatch):
    tensor = torch.zeros(2)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not stairs.has_torch()
    assert not stairs.is_tensor(tensor)
