"""Checks of the values of labels and weights, in arrays of NumPy or tensors alike."""

from contextlib import suppress
from typing import Any

import numpy as np

from evalign.core import stairs
from evalign.core.checks import complaint, refuse_masked, require


def array_of(owner: str, argument: str, values: object, cure: str = "") -> np.ndarray:
    """An array of numbers, made from an array, a tensor, a list or a data frame's column."""
    refuse_masked(owner, argument, values)
    with suppress(TypeError, ValueError):  # a ragged list, a sparse tensor
        array = np.asarray(stairs.as_numpy(values))
        if array.dtype.kind in "biuf":
            return array.astype(array.dtype.newbyteorder("="), copy=False)
    raise TypeError(
        complaint(
            owner,
            argument,
            "be an array, a tensor or a list of numbers",
            type(values).__name__,
            cure,
        )
    )


def signed(labels: np.ndarray) -> np.ndarray:
    """Unsigned labels as int64: compared with -100, a uint8 of 156 might match."""
    return labels.astype(np.int64) if labels.dtype.kind == "u" else labels


def refuse(
    wrong: Any, values: Any, owner: str, argument: str, allowed: str, cure: str = ""
) -> None:
    """Name the first of the values that are wrong, in the cure too as {got}."""
    if bool(wrong.any()):
        got = values[wrong][0].item()
        raise ValueError(complaint(owner, argument, allowed, got, cure.format(got=got)))


def check_indices(
    owner: str,
    argument: str,
    labels: Any,
    num_classes: int,
    source: str = "the size of logits' dimension 1",
) -> None:
    """Check that class indices lie in 0 … num_classes − 1, a number that comes from `source`."""
    wrong = (labels < 0) | (labels >= num_classes)
    if not bool(wrong.any()):
        return
    allowed = f"hold class indices from 0 to {num_classes - 1} ({source})"
    cure = f"Number the classes from 0 to {num_classes - 1}."
    if marks_no_class(labels[wrong], labels[~wrong]):
        cure = f"{cure[:-1]}, or leave such rows out by ignore_index={{got}}."
    refuse(wrong, labels, owner, argument, allowed, "" if argument == "predictions" else cure)


def marks_no_class(outside: Any, inside: Any) -> bool:
    """Whether labels outside of the class indices are one number that marks rows without a class.

    Others may be classes, whose rows must not be dropped: −1 beside 1 is a class.
    """
    first = outside[0]
    several = len(inside) > 0 and bool((inside != inside[0]).any())
    usual = bool(first == 255) or (bool(first < 0) and several)
    return usual and bool((outside == first).all())


def check_weights(owner: str, weight: Any) -> None:
    """Check that weights are finite and not negative."""
    wrong = ~((weight >= 0) & (weight < np.inf))
    allowed = "be finite and not negative"
    refuse(wrong, weight, owner, "sample_weight", allowed, "A weight of 0 leaves a row out.")


def per_row(owner: str, argument: str, values: Any, shape: tuple[int, ...]) -> Any:
    """Expand weights to one per row; they may be given per row or per example."""
    shape = tuple(shape)
    given_shape = tuple(values.shape)
    if values.ndim == len(shape) + 1 and values.shape[1] == 1:
        values = values.squeeze(1)
    if tuple(values.shape) == shape:
        return values
    if tuple(values.shape) == shape[:1]:
        one_per_example = values.reshape(-1, *[1] * (len(shape) - 1))
        if stairs.is_tensor(values):
            return one_per_example.expand(shape)
        return np.broadcast_to(one_per_example, shape)
    shapes = dict.fromkeys([f"{shape[:1]}", f"{shape}"])
    raise ValueError(complaint(owner, argument, f"have shape {' or '.join(shapes)}", given_shape))


def weights_of_rows(owner: str, sample_weight: object, rows: int) -> np.ndarray:
    """A checked weight for each row, in float64."""
    weight = array_of(owner, "sample_weight", sample_weight).astype(np.float64)
    require(weight.shape == (rows,), owner, "sample_weight", f"have shape {(rows,)}", weight.shape)
    check_weights(owner, weight)
    return weight
