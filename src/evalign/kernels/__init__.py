"""Soft sums, and on a GPU the whole loss, forward and backward; `core/` is the reference.

`cpu` is torch in blocks of rows of classes, and `labels` of labels or one logit; `fused` are Triton
kernels, for CUDA; `sums` makes one differentiable operation of each. `closed` holds the metrics
that a kernel can differentiate. May import `membership` and `core`.
"""

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

LONGEST = 4096  # classes of a row that a kernel of a GPU keeps on chip
DEVICES = ("cpu", "cuda") if find_spec("triton") else ("cpu",)


class KernelSettings(NamedTuple):
    """How memberships are made, and the cross-entropy beside them.

    Args:
        temperature: of the linear step.
        shift: what the cross-entropy adds to the logits, (C,); None for no cross-entropy.
        factor: of each class in the cross-entropy, (C,), or of a label's two, (L, 2); None for 1.
        smoothing: of the labels in the cross-entropy, on a CPU alone.
    """

    temperature: Tensor
    shift: Tensor | None = None
    factor: Tensor | None = None
    smoothing: float = 0.0

    @property
    def cross(self) -> Tensor | None:
        """Shift and factors as a kernel of a GPU takes them: one for both of a label's classes."""
        if self.shift is None or self.factor is None:
            return self.shift
        return torch.stack([self.shift, self.factor.view(len(self.factor), -1)[:, 0]])
