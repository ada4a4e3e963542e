"""The Triton kernels compile for a GPU, without one: the interpreter checks no types.

Without a GPU's driver `triton.compile` still runs the whole way to a binary for one that is named.
"""

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from evalign import metrics
from evalign.kernels.closed import closed_form
from evalign.kernels.fused.finish import TASKS, finish
from evalign.kernels.fused.labels import label_gradient, label_sums
from evalign.kernels.fused.metric import AVERAGES, KINDS
from evalign.kernels.fused.slopes import gradient
from evalign.kernels.fused.sums import whole_rows
from evalign.kernels.fused.totals import add_up

TARGET = GPUTarget("cuda", 90, 32)
# Numbers that Triton hands over as float32.
NUMBERS = ("main_weight", "more_weight")
# float64 whatever the logits are
WIDE = ("temperature", "shift", "cross", "seen", "running", "counts", "offsets", "totals")
EPS = {"fp32": torch.finfo(torch.float32).eps, "fp64": torch.finfo(torch.float64).eps}


# Triton's own notice about a default of its next version.
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """Compile anew: what lies in a cache would not be."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def compiled(kernel, constants, *, logits="fp32", target="i64", sums="fp32"):
    """Compile a kernel for tensors of these types; every other number that changes is an i32."""
    compute = "fp64" if logits == "fp64" else "fp32"
    of_tensors = {"logits": logits, "grad": logits, "target": target, "partial": sums}
    of_tensors |= dict.fromkeys(("weight", "stats", "slopes", "outer", "out"), compute)
    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in WIDE:
            signature[name] = "*fp64"
        elif name in NUMBERS:
            signature[name] = "fp32"
        else:
            signature[name] = f"*{of_tensors[name]}" if name in of_tensors else "i32"
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    assert "cubin" in triton.compile(source, target=TARGET).asm


# Every kind and average, with each of these once in every task that has it. The cross-entropy is
# 0 for none, 1, or 2 where the classes have factors.
ENDS = [
    ("multiclass", "f1_macro", True, 2, "fp32"),
    ("multiclass", "precision_micro", False, 0, "fp64"),
    ("multiclass", "balanced_accuracy", False, 0, "fp32"),
    ("multiclass", "matthews_corrcoef", True, 2, "fp32"),
    ("multiclass", "cohen_kappa", False, 1, "fp32"),
    ("binary", "f1", True, 2, "fp32"),
    ("multilabel", "jaccard_weighted", True, 2, "fp32"),
]


# Each takes seconds: one of a kind in every run, all for a release.
SOME = ("precision_micro", "matthews_corrcoef", "f1", "jaccard_weighted")


@pytest.mark.parametrize(
    ("task", "name", "running", "cross", "sums"),
    [end if end[1] in SOME else pytest.param(*end, marks=pytest.mark.slow) for end in ENDS],
)
def test_end(task, name, running, cross, sums):
    form = closed_form(metrics.resolve(name))
    constants = {
        "CLASSES": 2 if task == "binary" else 13,
        "TASK": TASKS[task],
        "CROSS_ENTROPY": cross,
        "BY_COUNTS": 0.5 if running and task != "multilabel" else 0.0,
        "RUNNING": running,
        "MOMENTUM": 0.1,
        "PSEUDO": 0.02 if running else 0.0,
        "FOLLOW": running,
        "ODDS": 1000.0,
        "FLAT": 1e-9,
        "KIND": KINDS[form.kind],
        "AVERAGE": AVERAGES[form.average],
        "ZERO_DIVISION": 0.0,
        "LEAVE_OUT": running,
        "COLUMNS": 16,
        "PROGRAMS": 4,
        **{factor.upper(): value for factor, value in form.ratio._asdict().items()},
    }
    compiled(finish, constants, sums=sums)


def test_add_up():
    compiled(add_up, {"COLUMNS": 16, "PROGRAMS": 4})


def test_ends_cover_all_kinds_and_averages():
    forms = [closed_form(metrics.resolve(name)) for _, name, *_ in ENDS]
    assert {form.kind for form in forms} == set(KINDS)
    assert {form.average for form in forms} == set(AVERAGES)
    assert {task for task, *_ in ENDS} == set(TASKS)


@pytest.mark.parametrize(
    ("rows", "columns", "cross", "logits", "target"),
    [
        (32, 4, 0, "fp64", "u8"),
        (1, 512, 1, "bf16", "i32"),
        pytest.param(32, 4, 2, "fp32", "i64", marks=pytest.mark.slow),
        pytest.param(1, 512, 2, "fp16", "i64", marks=pytest.mark.slow),
    ],
)
def test_rows_of_a_tile(rows, columns, cross, logits, target):
    constants = settings(columns - 1, columns, cross, logits) | {"ROWS": rows}
    constants |= {"ADJACENT": 4 if rows == 1 else 0}
    compute = "fp64" if logits == "fp64" else "fp32"
    compiled(whole_rows, constants, logits=logits, target=target, sums=compute)
    compiled(gradient, constants, logits=logits, target=target)


@pytest.mark.parametrize(
    ("labels", "cross", "logits", "target"),
    [
        (1, 2, "bf16", "fp32"),
        (80, 2, "fp64", "i1"),
        pytest.param(1, 1, "fp32", "i64", marks=pytest.mark.slow),
    ],
)
def test_labels(labels, cross, logits, target):
    binary = labels == 1
    constants = settings(labels, 1 if binary else 16, cross, logits)
    constants |= {"LABELS": constants.pop("CLASSES"), "ROWS": 64, "BINARY": binary}
    compute = "fp64" if logits == "fp64" else "fp32"
    compiled(label_sums, constants, logits=logits, target=target, sums=compute)
    compiled(label_gradient, constants, logits=logits, target=target)


def settings(classes, columns, cross, logits):
    return {
        "CLASSES": classes,
        "WEIGHTED": cross > 0,
        "CROSS_ENTROPY": cross,
        "EPS": EPS["fp64" if logits == "fp64" else "fp32"],
        "COLUMNS": columns,
    }
