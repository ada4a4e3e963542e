"""Read and check the weights of rows."""

import reprlib
from decimal import Decimal
from numbers import Real

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
    try:
        array = np.asarray(sample_weight)
    except ValueError:  # lists of different lengths
        array = np.asarray(sample_weight, dtype=object)
    values = () if array.dtype.kind in "biuf" else array.flat
    numbers, durations = (Real, Decimal, np.bool_), np.timedelta64  # which numpy calls a Real
    wrong = [x for x in values if not isinstance(x, numbers) or isinstance(x, durations)]
    if wrong:  # pd.NA, None, text, dates
        first = str(wrong[0]) if isinstance(wrong[0], str) else wrong[0]  # numpy has its own str
        text = complaint(owner, "sample_weight", "hold numbers", reprlib.repr(first), CURE)
        raise TypeError(text)
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
