"""One trained model of a study: what identifies it, and how its labels are scored."""

import dataclasses
import hashlib
import json
from typing import Any, Literal

import torch
from torch import Tensor

from evalign import Confusion
from evalign.metrics import resolve

# The best epoch is the best by the validation loss (the papers' selection), or by a metric of the
# validation rows (the strict selection).
LOSS = "loss"
BINARY = ("f1", "accuracy", "matthews_corrcoef")
MULTICLASS = ("f1_macro", "accuracy", "matthews_corrcoef")

Triples = list[list[int]]  # [true class, predicted class, count], the counts that are not 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """All that the result of a training depends on, except the machine.

    The runs of a stack (`trainers.many`) share the noise of their dropout, so that a run has other
    noise in another stack.

    Args:
        dataset: its name in `evalign_study.data`.
        variant: "paper" has the papers' features and a random split; "sound" has properly prepared
            features, and keeps equal rows, or rows of one frame, on one side of the split.
        method: its name in `evalign_study.trainers.methods` or `evalign_study.trainers.classical`.
        network: its name in `evalign_study.trainers.methods`; "" for a method without one.
        batch_size: the number of rows per step.
        learning_rate: the learning rate of the optimiser.
        dropout: the probability of all dropout layers.
        rate: the rate of the annealing; None for a method without annealing.
        epochs: the largest number of epochs.
        cross_entropy_first: how many of them, the first, are trained by cross-entropy instead of
            the method's loss; for images alone.
        patience: epochs without a new best before the training ends, None for never.
        seed: the seed of the initial weights and of the order of the rows.
        split_seed: the seed of the split.
        imbalance: majority rows per minority row, where rows were left out to reach it.
        rows: the largest number of rows of each part, for a quick look; None for all.
    """

    dataset: str
    variant: Literal["paper", "sound"]
    method: str
    network: str = "mlp"
    batch_size: int = 0
    learning_rate: float = 0.0
    dropout: float = 0.0
    rate: float | None = None
    epochs: int = 0
    patience: int | None = None
    seed: int = 0
    split_seed: int = 0
    imbalance: float | None = None
    rows: int | None = None
    cross_entropy_first: int = 0

    @property
    def key(self) -> str:
        """The run's identity: 16 hex digits of a checksum, which are the same for equal runs.

        Fields at their defaults are left out, so that a new field does not change any key.

        Examples:
            >>> Run(dataset="adult", variant="paper", method="cross_entropy").key
            'bb25ea21cf8b2243'
        """
        values = {field: getattr(self, field.name) for field in dataclasses.fields(self)}
        given = {field.name: x for field, x in values.items() if x != field.default}
        text = json.dumps(given, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def capped(self, epochs: int, best: int) -> bool:
        """Tell whether only the cap ended a training of `epochs` epochs with the best at `best`."""
        return self.patience is not None and epochs >= self.epochs and epochs - best < self.patience

    def but(self, **changes: Any) -> "Run":
        """Copy the run with changes."""
        return dataclasses.replace(self, **changes)


def triples(predicted: Tensor, target: Tensor) -> Triples:
    """Count the confusion matrix without its zeros, which stays small even for many classes.

    Examples:
        >>> triples(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
        [[0, 0, 1], [0, 1, 1], [1, 1, 1]]
    """
    classes = int(torch.maximum(target, predicted).amax()) + 1
    # One number per cell, as `unique` over rows of pairs takes a hundred times as long.
    cells, counts = (target * classes + predicted).unique(return_counts=True)
    return torch.stack([cells // classes, cells % classes, counts], 1).tolist()


def scores(matrix: Triples, classes: int, names: tuple[str, ...]) -> dict[str, float]:
    """Compute metrics from a confusion matrix.

    Examples:
        >>> scores([[0, 0, 1], [0, 1, 1], [1, 1, 1]], 2, ("accuracy",))
        {'accuracy': 0.6666666666666666}
    """
    confusion = Confusion.from_matrix(_full([matrix], classes)[0])
    return {name: float(resolve(name)(confusion)) for name in names}


def scores_of_each(matrices: list[Triples], classes: int, name: str) -> list[float]:
    """Compute a metric from each of several confusion matrices, in one go.

    Examples:
        >>> scores_of_each([[[0, 0, 1], [1, 1, 1]], [[0, 1, 1], [1, 1, 1]]], 2, "accuracy")
        [1.0, 0.5]
    """
    metric = resolve(name)
    of_one = lambda full: metric(Confusion.from_matrix(full))  # noqa: E731
    return torch.vmap(of_one)(_full(matrices, classes)).tolist()


def _full(matrices: list[Triples], classes: int) -> Tensor:
    cells = torch.tensor([[i, *cell] for i, matrix in enumerate(matrices) for cell in matrix])
    *places, counts = cells.T
    full = torch.zeros(len(matrices), classes, classes, dtype=torch.float64)
    full[*places] = counts.double()
    return full
