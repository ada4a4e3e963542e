"""The stairs between the floors, where no tensor comes: nothing slow is imported, least torch."""

import subprocess
import sys

import numpy as np
import pytest

from evalign.core import stairs
from evalign.core.arrays import constant, library

SLOW = {"torch", "scipy", "sklearn", "pandas", "narwhals"}


def loaded_by(code):
    """The slow packages in memory after this code has run in a process of its own."""
    tell = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tell}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return SLOW & set(done.stdout.split())


@pytest.fixture
def without_torch(monkeypatch):
    """An import of torch fails, as where it is not installed."""
    monkeypatch.setitem(sys.modules, "torch", None)


def test_metrics_and_constraints_import_numpy_alone():
    assert not loaded_by("import evalign.core.metrics, evalign.core.constraints")


def test_computing_with_arrays_imports_numpy_alone():
    assert not loaded_by("""
import numpy as np
from evalign import Confusion, metrics
from evalign.core import stairs
from evalign.core.constraints import parse
c = Confusion.from_predictions([0, 1, 1, 2], [0, 1, 2, 2], sample_weight=[1, 2, 1, 1], matrix=True)
str(c)
for metric in ("f1_macro", "g_mean", "cohen_kappa_linear", lambda c: c.tp.sum() / c.total):
    metrics.resolve(metric)(c)
    metrics.resolve(metric).slopes(c).of_matrix()
parse("gap(recall[2]) <= 0.5")[0].slack(c, [c, c])
stairs.has_torch()
assert not stairs.is_tensor(c.tp)
assert stairs.as_numpy(c.tp) is c.tp
assert stairs.in_form_of(c.tp, like=c.tp) is c.tp
""")


def test_what_is_no_tensor_stays_as_it_is():
    for value in (np.arange(3), [1, 2], "text", None, np.float64(1), {"a": 1}):
        assert not stairs.is_tensor(value)
        assert stairs.as_numpy(value) is value
        array = np.arange(3)
        assert stairs.in_form_of(array, like=value) is array


def test_something_named_tensor_is_none():
    class Tensor:
        pass

    assert not stairs.is_tensor(Tensor())
    assert not stairs.is_tensor(Tensor)


def test_the_error_names_the_extra():
    error = stairs.needs_torch("AlignedLoss")
    assert isinstance(error, ImportError)
    assert str(error) == "AlignedLoss needs PyTorch: pip install 'evalign[torch]'"


def test_without_torch_there_are_no_tensors(without_torch):
    assert not stairs.has_torch()
    assert not stairs.is_tensor(np.arange(3))
    assert stairs.as_tensors(None) == []
    assert stairs.ranks() is None


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: stairs.torch_of("This"), "This"),
        (lambda: stairs.rule_module(None, False), r"DecisionRule\.as_module"),
        (lambda: stairs.soft_confusion(None, None), r"Confusion\.from_logits"),
        (stairs.aligned_classifier, "AlignedClassifier"),
        (lambda: stairs.register_networks("A saved model"), "A saved model"),
        (lambda: next(stairs.gathered(1)), r"torch\.distributed"),
    ],
)
def test_a_call_upward_without_torch_names_the_extra(without_torch, call, name):
    with pytest.raises(
        ImportError, match=rf"^{name} needs PyTorch: pip install 'evalign\[torch\]'"
    ):
        call()


def test_the_library_of_arrays_is_numpy(without_torch):
    for value in (np.arange(3), np.float32(1), np.bool_(True), np.zeros(())):
        assert library(value) is np
    made = constant((1, 2), np.zeros(2, np.float32))
    assert made.dtype == np.float32
    assert constant((1, 2), made, dtype="int64").dtype == np.int64
