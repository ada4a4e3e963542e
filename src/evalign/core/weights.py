"""Read and check the weights of rows."""

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import complaint, native, refuse_masked, require

CURE = "A weight of 0 leaves a row out."


def weight_tensor(owner: str, sample_weight: object) -> Tensor:
    """Weights as a tensor: as they came, or in float64 from an array, a list or a column."""
    if isinstance(sample_weight, Tensor):
        return sample_weight
    refuse_masked(owner, "sample_weight", sample_weight)
    array = np.asarray(sample_weight)
    if array.dtype.kind not in "biuf":
        allowed, got = "hold numbers", f"dtype {array.dtype}"
        raise TypeError(complaint(owner, "sample_weight", allowed, got, CURE))
    return torch.from_numpy(native(array.astype(np.float64)))


def weights_of_rows(owner: str, sample_weight: object, rows: int) -> Tensor:
    """A checked weight for each row, in float64 on the CPU."""
    weight = weight_tensor(owner, sample_weight).detach().cpu().double()
    shape = tuple(weight.shape)
    require(shape == (rows,), owner, "sample_weight", f"have shape {(rows,)}", shape)
    check_weights(owner, weight)
    return weight


def check_weights(owner: str, weight: Tensor) -> None:
    """Check that weights are finite and not negative."""
    wrong = weight[~((weight >= 0) & weight.isfinite())]
    if wrong.numel():
        allowed = "be finite and not negative"
        raise ValueError(complaint(owner, "sample_weight", allowed, wrong[0].item(), CURE))
