"""The confusion matrix, soft or hard, stored as the sums that metrics need."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evalign.core import membership
from evalign.core.batch import Batch, Summed, as_batch
from evalign.core.checks import checked, complaint, refuse_masked, require, thresholds_tensor
from evalign.core.class_report import ClassReport
from evalign.core.numerics import full_precision, safe_ratio, sum_dtype
from evalign.core.rows import Task, check_task, per_row
from evalign.core.values import check_indices, check_weights, label_tensor, refuse, tensor_of


@dataclass(frozen=True, eq=False)
class Confusion(Summed):
    """True positives, predicted and actual mass of each class, and the total: sums, not means.

    All are float64, because metrics subtract nearly equal sums.

    A binary problem has two classes, the negative one first. In a multilabel problem every label
    is a binary problem of its own: the vectors hold its positive class, and `total` has an entry
    per label. The d × d matrix (rows true) is kept only when asked for. A soft Confusion of
    exclusive classes also holds its number of rows of positive weight.

    Examples:
        >>> c = Confusion.from_predictions(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
        >>> c.tp.tolist(), c.fp.tolist(), c.total.item()
        ([1.0, 1.0], [0.0, 1.0], 3.0)
    """

    tp: Tensor
    predicted: Tensor
    actual: Tensor
    total: Tensor
    full: Tensor | None = None
    multilabel: bool = False
    rows: Tensor | None = None

    @property
    def fp(self) -> Tensor:
        return self.predicted - self.tp

    @property
    def fn(self) -> Tensor:
        return self.fp.flip(-1) if self.two else self.actual - self.tp

    @property
    def tn(self) -> Tensor:
        return self.tp.flip(-1) if self.two else self.negatives - self.fp

    @property
    def negatives(self) -> Tensor:
        """The mass of the other classes, fp + tn."""
        return self.total - self.actual

    @property
    def rejected(self) -> Tensor:
        """The mass predicted as another class, fn + tn.

        Of exclusive classes the total is that of the predictions: it differs by rounding.
        """
        if self.two:
            return self.predicted.flip(-1)
        return (self.total if self.multilabel else self.predicted.sum()) - self.predicted

    @property
    def size(self) -> str:
        """How many classes or labels, in words."""
        return f"{self.num_classes} {'labels' if self.multilabel else 'classes'}"

    @property
    def two(self) -> bool:
        """Whether there are two exclusive classes: sums of the other keep a complement's digits."""
        return not self.multilabel and self.tp.shape[-1] == 2

    @property
    def matrix(self) -> Tensor:
        """The d × d matrix, rows true, columns predicted."""
        if self.full is None:
            cure = "Pass matrix=True, or give your metric the attribute needs_matrix = True."
            cure = "A multilabel Confusion has none." if self.multilabel else cure
            raise ValueError(f"The d x d matrix of this Confusion was not built. {cure}")
        return self.full

    @property
    def num_classes(self) -> int:
        return self.tp.shape[0]

    def __add__(self, other: "Confusion") -> "Confusion":
        cure = "Pass num_classes and task where they are made."
        got = f"{self.size} and {other.size}"
        require(self.size == other.size, "Confusion", "both sides of +", "agree", got, cure)
        return super().__add__(other)

    def __radd__(self, other: int) -> "Confusion":
        """Make `sum` work, which starts with 0."""
        return self if other == 0 else NotImplemented

    def __mul__(self, factor: float | Tensor) -> "Confusion":
        return self.map(lambda x: x * factor)

    __rmul__ = __mul__

    def to(self, *args: Any, **kwargs: Any) -> "Confusion":
        """Move or cast, with the arguments of `Tensor.to`."""
        return self.map(lambda x: x.to(*args, **kwargs))

    def detach(self) -> "Confusion":
        return self.map(Tensor.detach)

    @classmethod
    def from_logits(
        cls,
        logits: Tensor,
        target: Tensor,
        *,
        task: Task | None = None,
        temperature: float | Tensor = 0.2,
        heaviside: membership.Heaviside = "linear",
        threshold: float | Tensor | None = None,
        sample_weight: Tensor | None = None,
        ignore_index: int = -100,
        matrix: bool = False,
        class_dim: int | None = None,
    ) -> "Confusion":
        """The soft confusion of logits, differentiable; shapes and tasks as in `core.rows`.

        Examples:
            >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.9]])
            >>> c = Confusion.from_logits(logits, torch.tensor([0, 2]), temperature=1e-6)
            >>> c.tp.round().tolist()
            [1.0, 0.0, 0.0]
        """
        owner = "Confusion.from_logits"
        membership.check_step(owner, heaviside, temperature)
        if threshold is not None:
            threshold = thresholds_tensor(owner, "threshold", threshold)
        step = {"temperature": temperature, "heaviside": heaviside, "threshold": threshold}
        reading = {"task": task, "ignore_index": ignore_index, "class_dim": class_dim}
        with full_precision(logits):
            batch = as_batch(owner, logits, target, sample_weight=sample_weight, **reading)
            soft = membership.of_batch(owner, batch, **step)
            return cls.from_membership(batch, soft, matrix=matrix)

    @classmethod
    def from_membership(cls, batch: Batch, soft: Tensor, *, matrix: bool = False) -> "Confusion":
        """Sum memberships into the matrix (EAST Definition 5.5): row r adds w_r·t_r ⊗ soft_r.

        `soft` is in the shape of the batch's logits: for a binary problem, the positive class.
        """
        dtype = sum_dtype(soft)
        if batch.task == "multilabel":
            target, weight = batch.target, batch.weight
            return cls(
                tp=(weight * target * soft).sum(0, dtype=dtype),
                predicted=(weight * soft).sum(0, dtype=dtype),
                actual=(weight * target).sum(0, dtype=dtype),
                total=weight.sum(0, dtype=dtype),
                multilabel=True,
            )
        if batch.task == "binary":
            soft = torch.stack([1 - soft, soft], -1)
        soft = batch.weight.unsqueeze(1) * soft
        if batch.task == "multiclass" and batch.target.ndim == 1:
            of_target = soft.gather(1, batch.target.unsqueeze(1)).squeeze(1)
            tp = _sum_by_class(of_target, batch)
            actual = _sum_by_class(batch.weight, batch)
            full = _sum_by_class(soft, batch) if matrix else None
        else:
            target = batch.target_probabilities()
            tp = (target * soft).sum(0, dtype=dtype)
            actual = (target * batch.weight.unsqueeze(1)).sum(0, dtype=dtype)
            full = target.T.to(dtype) @ soft.to(dtype) if matrix else None
        # The total is the sum of `actual`, so that a batch of one class has exactly 0 negatives.
        predicted, rows = soft.sum(0, dtype=dtype), (batch.weight > 0).sum(dtype=dtype)
        return cls(tp, predicted, actual, actual.sum(), full, rows=rows)

    @classmethod
    def from_matrix(cls, matrix: Tensor) -> "Confusion":
        """The confusion of a d × d matrix, rows true."""
        owner = "Confusion.from_matrix"
        refuse_masked(owner, "matrix", matrix)
        matrix = torch.as_tensor(matrix)
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
        require(square, owner, "matrix", "be square", tuple(matrix.shape))
        matrix = matrix.to(sum_dtype(matrix))
        actual = matrix.sum(1)
        return cls(matrix.diagonal(), matrix.sum(0), actual, actual.sum(), matrix)

    @classmethod
    def from_predictions(
        cls,
        predictions: Tensor,
        target: Tensor,
        *,
        num_classes: int | None = None,
        task: Task | None = None,
        sample_weight: Tensor | None = None,
        ignore_index: int = -100,
        matrix: bool = False,
    ) -> "Confusion":
        """The hard confusion of predicted labels, as exact counts in float64.

        Integer labels of one shape are classes; bool or float 0/1 of shape (N, L, ...) are
        multilabel, and so are integers 0/1 with `task="multilabel"`. True labels equal to
        `ignore_index` are left out. Without `num_classes` every class up to the largest has to
        occur (or there are 2), so that a mark for "no label", such as 255, is no class.
        """
        owner = "Confusion.from_predictions"
        check_task(owner, task)
        predictions, target = [
            label_tensor(owner, name, given)
            for name, given in {"predictions": predictions, "target": target}.items()
        ]
        same, got = predictions.shape == target.shape, tuple(predictions.shape)
        allowed = f"have the shape of target, {tuple(target.shape)}"
        require(same, owner, "predictions", allowed, got, "Pass labels, e.g. logits.argmax(1).")
        if sample_weight is not None:
            sample_weight = tensor_of(owner, "sample_weight", sample_weight)
        dtype = sum_dtype(target)
        indicators = target.is_floating_point() or target.dtype == torch.bool
        if task == "multilabel" or (task is None and target.ndim > 1 and indicators):
            rows = {"sample_weight": sample_weight, "ignore_index": ignore_index, "look": False}
            with checked():
                scores = predictions.to(dtype), target.to(dtype)
                batch = as_batch(owner, *scores, task="multilabel", **rows)
            for name, values in {"predictions": batch.logits, "target": batch.target}.items():
                cure = f"Pass labels, e.g. {name} > 0.5; predictions come first."
                wrong = (values != 0) & (values != 1)
                refuse(wrong, values, owner, name, "hold 0 and 1 only", cure)
            return cls.from_membership(batch, batch.logits)

        num_classes = 2 if task == "binary" else num_classes
        weight = (target != ignore_index).to(dtype)
        if sample_weight is not None:
            check_weights(owner, sample_weight)
            weight = weight * per_row(owner, "sample_weight", sample_weight, target.shape)
        predicted, true, size = _as_indices(predictions, target, num_classes, ignore_index)
        weight, zeros = weight.flatten(), weight.new_zeros(size)
        tp = zeros.index_add(0, true, weight * (predicted == true))
        actual, full = zeros.index_add(0, true, weight), None
        if matrix:
            cells = weight.new_zeros(size**2).index_add(0, true * size + predicted, weight)
            full = cells.view(size, size)
        return cls(tp, zeros.index_add(0, predicted, weight), actual, actual.sum(), full)

    def report(self, classes: Sequence[object] | None = None) -> ClassReport:
        """Precision, recall, F1 and counts of each class, by their names in order, as a table.

        Examples:
            >>> c = Confusion.from_predictions(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
            >>> print(c.report(["ham", "spam"]))
            class   precision      recall          f1     correct   predicted        true
            ham         1.000       0.500       0.667           1           1           2
            spam        0.500       1.000       0.667           1           2           1
        """
        names = [*map(str, range(self.num_classes) if classes is None else classes)]
        ok = len(names) == len(set(names)) == self.num_classes
        allowed = f"be {self.num_classes} different names"
        require(ok, "Confusion.report", "classes", allowed, classes)
        columns = {
            "precision": safe_ratio(self.tp, self.predicted),
            "recall": safe_ratio(self.tp, self.actual),
            "f1": safe_ratio(2 * self.tp, self.predicted + self.actual),
            "correct": self.tp,
            "predicted": self.predicted,
            "true": self.actual,
        }
        table = zip(*(column.tolist() for column in columns.values()), strict=True)
        rows = (dict(zip(columns, values, strict=True)) for values in table)
        return ClassReport(dict(zip(names, rows, strict=True)))

    def __str__(self) -> str:
        return str(self.report())


def _as_indices(
    predictions: Tensor, target: Tensor, num_classes: int | None, ignore_index: int
) -> tuple[Tensor, Tensor, int]:
    """Flat class indices, 0 where ignored, and the number of classes: by default, those seen."""
    owner, ignored = "Confusion.from_predictions", target == ignore_index
    flat = {}
    for name, labels in {"target": target, "predictions": predictions}.items():
        if labels.is_floating_point():
            cure = "Pass labels, e.g. logits.argmax(1) or target.long()."
            raise TypeError(complaint(owner, name, "be integer labels", labels.dtype, cure))
        flat[name] = labels.long().masked_fill(ignored, 0).flatten()
    if num_classes is None:
        seen = torch.cat([flat["target"], flat["predictions"]]).unique()
        seen = seen[seen >= 0]
        num_classes = max([2, *(seen[-1:] + 1).tolist()])
        got = f"labels up to {num_classes - 1}, of which {len(seen)} occur"
        allowed = "be given where a class below the largest label does not occur"
        cure = f"A label that is not a class is left out by ignore_index={num_classes - 1}."
        require(num_classes in (2, len(seen)), owner, "num_classes", allowed, got, cure)
    for name, labels in flat.items():
        check_indices(owner, name, labels, num_classes, "num_classes")
    return flat["predictions"], flat["target"], num_classes


def _sum_by_class(rows: Tensor, batch: Batch) -> Tensor:
    """Sum the rows of each true class."""
    rows = rows.to(sum_dtype(rows))
    zeros = rows.new_zeros(batch.num_classes, *rows.shape[1:])
    # `index_add` would be simpler, but `vmap` takes it member by member.
    index = batch.target.view(-1, *[1] * (rows.ndim - 1)).expand_as(rows)
    return zeros.scatter_add(0, index, rows)
