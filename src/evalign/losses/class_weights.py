"""Class weights from class counts, for the losses that take `class_weight`."""

from collections.abc import Sequence

from torch import Tensor

from evalign.core.checks import complaint, require
from evalign.core.text import counted
from evalign.membership.checks import tensor_of_numbers


def inverse_frequency_weights(class_counts: Sequence[float] | Tensor) -> Tensor:
    """w_y = n / n_y (SurF, Section 3.1).

    Examples:
        >>> inverse_frequency_weights([30, 10])
        tensor([1.3333, 4.0000], dtype=torch.float64)
    """
    counts = class_vector("inverse_frequency_weights", "class_counts", class_counts)
    return counts.sum() / counts


def effective_number_weights(
    class_counts: Sequence[float] | Tensor, *, beta: float = 0.999
) -> Tensor:
    """w_y ∝ (1 − β) / (1 − β^n_y), scaled to sum to the number of classes (Cui et al. 2019).

    β = 0 weighs all classes alike, β → 1 by inverse frequency.

    Examples:
        >>> effective_number_weights([1000, 10], beta=0.99)
        tensor([0.1746, 1.8254], dtype=torch.float64)
    """
    owner = "effective_number_weights"
    counts = class_vector(owner, "class_counts", class_counts)
    require(0 <= beta < 1, owner, "beta", "lie in [0, 1)", beta)
    weights = (1 - beta) / (1 - beta**counts)
    return weights * len(weights) / weights.sum()


def class_vector(owner: str, argument: str, values: object, *, pairs: bool = False) -> Tensor:
    """Check for a positive number per class, or a pair per label, and return them as float64."""
    labels = getattr(values, "index", None)  # of a pandas Series
    if labels is not None and not callable(labels):
        ordered, cure = list(labels) == list(range(len(labels))), "Use .sort_index().to_numpy()."
        require(ordered, owner, argument, "be in the order of the classes", list(labels), cure)
    vector = tensor_of_numbers(values)
    shaped = vector.ndim == 1 or (pairs and vector.ndim == 2 and vector.shape[1] == 2)
    ok = shaped and vector.shape[-1] > 1 and bool(((vector > 0) & vector.isfinite()).all())
    cure = "Such as numpy.bincount(y); count a class without examples as one, or leave it out."
    if argument == "class_weight":
        cure = "Such as inverse_frequency_weights(numpy.bincount(y))."
    allowed = "hold two or more positive numbers, one for each class"
    allowed += ", or a pair (absent, present) for each label" if pairs else ""
    require(ok, owner, argument, allowed, values, cure)
    return vector


def check_length(owner: str, argument: str, vector: Tensor, classes: int) -> None:
    """Check that a vector given at construction has the number of classes of the batch."""
    if len(vector) != classes:  # a graph of any size can write no text of a size
        allowed = f"hold a number for each of the {classes} classes"
        raise ValueError(complaint(owner, argument, allowed, counted(len(vector), "number")))
