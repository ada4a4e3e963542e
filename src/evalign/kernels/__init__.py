"""Soft sums, and on a GPU the whole loss, forward and backward; `core/` is the reference.

`cpu` is torch in blocks of rows of classes, and `labels` of labels or one logit; `fused` are Triton
kernels, for CUDA; `sums` makes one differentiable operation of each. `closed` holds the metrics
that a kernel can differentiate. May import `core`.
"""

from importlib.util import find_spec

LONGEST = 4096  # classes of a row that a kernel of a GPU keeps on chip
DEVICES = ("cpu", "cuda") if find_spec("triton") else ("cpu",)
