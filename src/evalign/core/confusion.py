"""The confusion matrix, soft or hard, stored as the sums that metrics need."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalign.core import stairs
from evalign.core.arrays import cast, is_numpy, library, safe_ratio, sum_by, sum_dtype, where
from evalign.core.checks import check_ignored, complaint, require
from evalign.core.class_report import ClassReport
from evalign.core.summed import Summed
from evalign.core.task import Task, check_task
from evalign.core.values import array_of, check_indices, check_weights, per_row, refuse, signed

# A difference of two sums below this many times their rounding is nothing but rounding.
ROUNDINGS = 8


@dataclass(frozen=True, eq=False)
class Confusion(Summed):
    """True positives, predicted and actual mass of each class, and the total: sums, not means.

    All are float64, because metrics subtract nearly equal sums. They are arrays of NumPy, or
    tensors where they were made from tensors. Many confusions stand side by side in leading
    dimensions: the sums of classes are (..., C), and `total` is (...).

    A binary problem has two classes, the negative one first. In a multilabel problem every label
    is a binary problem of its own: the sums hold its positive class, and `total` has an entry
    per label. The d × d matrix (rows true) is kept only when asked for. A soft Confusion of
    exclusive classes also holds its number of rows of positive weight.

    Examples:
        >>> c = Confusion.from_predictions([0, 1, 1], [0, 1, 0])
        >>> c.tp.tolist(), c.fp.tolist(), c.total.item()
        ([1.0, 1.0], [0.0, 1.0], 3.0)
    """

    tp: Any
    predicted: Any
    actual: Any
    total: Any
    full: Any = None
    multilabel: bool = False
    rows: Any = None

    @property
    def fp(self) -> Any:
        return self.predicted - self.tp

    @property
    def fn(self) -> Any:
        return _other(self.fp) if self.two else self.actual - self.tp

    @property
    def tn(self) -> Any:
        return _other(self.tp) if self.two else self.negatives - self.fp

    @property
    def total_of_each(self) -> Any:
        """The total beside each class or label, (..., 1) or (..., L)."""
        return self.total if self.multilabel else self.total[..., None]

    @property
    def negatives(self) -> Any:
        """The mass of the other classes, fp + tn."""
        return self.total_of_each - self.actual

    @property
    def rejected(self) -> Any:
        """The mass predicted as another class, fn + tn.

        Of exclusive classes the total is that of the predictions: it differs by rounding. What is
        no more than the rounding of the total counts as 0; NaN stays visible.
        """
        total = self.total if self.multilabel else self.predicted.sum(-1)[..., None]
        rest = _other(self.predicted) if self.two else total - self.predicted
        noise = ROUNDINGS * library(rest).finfo(rest.dtype).eps * total
        return where(rest <= noise, 0.0, rest)

    @property
    def size(self) -> str:
        """How many classes or labels, in words."""
        return f"{self.num_classes} {'labels' if self.multilabel else 'classes'}"

    @property
    def two(self) -> bool:
        """Whether there are two exclusive classes: sums of the other keep a complement's digits."""
        return not self.multilabel and self.tp.shape[-1] == 2

    @property
    def matrix(self) -> Any:
        """The d × d matrix, rows true, columns predicted."""
        if self.full is None:
            cure = "Pass matrix=True, or give your metric the attribute needs_matrix = True."
            cure = "A multilabel Confusion has none." if self.multilabel else cure
            raise ValueError(f"The d x d matrix of this Confusion was not built. {cure}")
        return self.full

    @property
    def num_classes(self) -> int:
        return self.tp.shape[-1]

    def __add__(self, other: "Confusion") -> "Confusion":
        cure = "Pass num_classes and task where they are made."
        got = f"{self.size} and {other.size}"
        require(self.size == other.size, "Confusion", "both sides of +", "agree", got, cure)
        return super().__add__(other)

    def __radd__(self, other: int) -> "Confusion":
        """Make `sum` work, which starts with 0."""
        return self if other == 0 else NotImplemented

    def __mul__(self, factor: Any) -> "Confusion":
        return self.map(lambda x: x * factor)

    __rmul__ = __mul__

    def to(self, *args: Any, **kwargs: Any) -> "Confusion":
        """Move or cast tensors, with the arguments of `Tensor.to`."""
        return self.map(lambda x: x.to(*args, **kwargs))

    def detach(self) -> "Confusion":
        """The same tensors without their graph."""
        return self.map(lambda x: x.detach())

    @classmethod
    def from_logits(cls, logits: Any, target: Any, **settings: Any) -> "Confusion":
        """The soft confusion of logits, differentiable; needs PyTorch.

        Args:
            logits: a tensor, in the shapes and tasks of the losses.
            target: class indices, or 0 and 1 in the shape of the logits.
            settings: `task`, `temperature` (0.2), `heaviside`, `threshold`, `sample_weight`,
                `ignore_index` (-100) and `class_dim`, as of `MetricLoss`; `matrix` builds the
                d × d matrix too.

        Examples:
            >>> import torch
            >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.9]])
            >>> c = Confusion.from_logits(logits, torch.tensor([0, 2]), temperature=1e-6)
            >>> c.tp.round().tolist()
            [1.0, 0.0, 0.0]
        """
        return stairs.soft_confusion(logits, target, **settings)

    @classmethod
    def from_matrix(cls, matrix: Any) -> "Confusion":
        """The confusion of a d × d matrix, or of many (..., d, d), rows true."""
        owner = "Confusion.from_matrix"
        if not stairs.is_tensor(matrix):
            matrix = array_of(owner, "matrix", matrix)
        square = matrix.ndim >= 2 and matrix.shape[-2] == matrix.shape[-1]
        require(square, owner, "matrix", "be square", tuple(matrix.shape))
        matrix = cast(matrix, sum_dtype(matrix))
        actual = matrix.sum(-1)
        tp = library(matrix).diagonal(matrix, 0, -2, -1)
        return cls(tp, matrix.sum(-2), actual, actual.sum(-1), matrix)

    @classmethod
    def from_predictions(
        cls,
        predictions: Any,
        target: Any,
        *,
        num_classes: int | None = None,
        task: Task | None = None,
        sample_weight: Any = None,
        ignore_index: int = -100,
        matrix: bool = False,
    ) -> "Confusion":
        """The hard confusion of predicted labels, as exact counts in float64.

        Integer labels of one shape are classes; bool or float 0/1 of shape (N, L, ...) are
        multilabel, and so are integers 0/1 with `task="multilabel"`. True labels equal to
        `ignore_index` are left out. Without `num_classes` every class up to the largest has to
        occur (or there are 2), so that a mark for "no label", such as 255, is no class. Tensors
        give a Confusion of tensors, on their device.
        """
        owner = "Confusion.from_predictions"
        check_task(owner, task)
        cure = "Of text, evalign.score takes the labels."
        if stairs.is_tensor(predictions) or stairs.is_tensor(target):
            predictions = stairs.label_tensor(owner, "predictions", predictions, cure)
            target = stairs.label_tensor(owner, "target", target, cure)
        else:
            predictions = signed(array_of(owner, "predictions", predictions, cure))
            target = signed(array_of(owner, "target", target, cure))
        require(
            predictions.shape == target.shape,
            owner,
            "predictions",
            f"have the shape of target, {tuple(target.shape)}",
            tuple(predictions.shape),
            "Pass labels, e.g. logits.argmax(1).",
        )
        dtype = sum_dtype(target)
        counted = target != ignore_index
        weight = cast(counted, dtype)
        several = task == "multilabel" or (
            task is None and target.ndim > 1 and _kind(target) in ("float", "bool")
        )
        rows_shape = tuple(target.shape)
        if several:
            rows_shape = rows_shape[:1] + rows_shape[2:]
            check_ignored(owner, ignore_index)
        if sample_weight is not None:
            sample_weight = array_of(owner, "sample_weight", sample_weight)
            check_weights(owner, sample_weight)
            sample_weight = per_row(owner, "sample_weight", sample_weight, rows_shape)
            sample_weight = cast(stairs.in_form_of(sample_weight, target), dtype)
            weight = weight * (sample_weight[:, None] if several else sample_weight)
        if several:
            return cls._of_labels(predictions, target, counted, weight)
        num_classes = 2 if task == "binary" else num_classes
        predicted, true, size = _as_indices(predictions, target, num_classes, ignore_index)
        weight = weight.reshape(-1)
        actual = sum_by(true, weight, size)
        full = None
        if matrix:
            full = sum_by(true * size + predicted, weight, size**2).reshape(size, size)
        return cls(
            tp=sum_by(true, weight * (predicted == true), size),
            predicted=sum_by(predicted, weight, size),
            actual=actual,
            total=actual.sum(),
            full=full,
        )

    @classmethod
    def _of_labels(cls, predictions: Any, target: Any, counted: Any, weight: Any) -> "Confusion":
        """The confusion of labels 0 and 1 of shape (N, L, ...); ignored ones are not `counted`."""
        owner = "Confusion.from_predictions"
        require(
            target.ndim > 1,
            owner,
            "predictions",
            "have shape (N, L) or (N, L, ...) for a multilabel task",
            tuple(target.shape),
        )
        for name, values in {"predictions": predictions, "target": target}.items():
            wrong = counted & (values != 0) & (values != 1)
            cure = f"Pass labels, e.g. {name} > 0.5; predictions come first."
            refuse(wrong, values, owner, name, "hold 0 and 1 only", cure)
        xp = library(target)
        labels = target.shape[1]
        weight = xp.moveaxis(weight, 1, -1).reshape(-1, labels)
        true = xp.moveaxis(counted & (target == 1), 1, -1).reshape(-1, labels)
        positive = xp.moveaxis(predictions == 1, 1, -1).reshape(-1, labels)
        return cls(
            tp=(weight * (true & positive)).sum(0),
            predicted=(weight * positive).sum(0),
            actual=(weight * true).sum(0),
            total=weight.sum(0),
            multilabel=True,
        )

    def report(self, classes: Sequence[object] | None = None) -> ClassReport:
        """Precision, recall, F1 and counts of each class, by their names in order, as a table.

        Examples:
            >>> c = Confusion.from_predictions([0, 1, 1], [0, 1, 0])
            >>> print(c.report(["ham", "spam"]))
            class   precision      recall          f1     correct   predicted        true
            ham         1.000       0.500       0.667           1           1           2
            spam        0.500       1.000       0.667           1           2           1
        """
        names = [*map(str, range(self.num_classes) if classes is None else classes)]
        require(
            len(names) == len(set(names)) == self.num_classes,
            "Confusion.report",
            "classes",
            f"be {self.num_classes} different names",
            classes,
        )
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


def _other(sums: Any) -> Any:
    """The sums of the other of two classes."""
    return library(sums).flip(sums, (-1,))


def _kind(labels: Any) -> str:
    """What the dtype holds: "float", "bool" or "int"."""
    name = str(labels.dtype).removeprefix("torch.")
    return next((kind for kind in ("float", "bool") if kind in name), "int")


def _as_indices(
    predictions: Any, target: Any, num_classes: int | None, ignore_index: int
) -> tuple[Any, Any, int]:
    """Flat class indices, 0 where ignored, and the number of classes: by default, those seen."""
    owner = "Confusion.from_predictions"
    xp = library(target)
    ignored = target == ignore_index
    flat = {}
    for name, labels in {"target": target, "predictions": predictions}.items():
        if _kind(labels) == "float":
            as_integers = "target.astype(int)" if is_numpy(labels) else "target.long()"
            cure = f"Pass labels, e.g. logits.argmax(1) or {as_integers}."
            raise TypeError(complaint(owner, name, "be integer labels", labels.dtype, cure))
        flat[name] = where(ignored, 0, cast(labels, xp.int64)).reshape(-1)
    size = num_classes
    if size is None:
        seen = {*xp.unique(flat["target"]).tolist(), *xp.unique(flat["predictions"]).tolist()}
        seen = {label for label in seen if label >= 0}
        size = max([2, *(label + 1 for label in seen)])
        require(
            size in (2, len(seen)),
            owner,
            "num_classes",
            "be given where a class below the largest label does not occur",
            f"labels up to {size - 1}, of which {len(seen)} occur",
            f"A label that is not a class is left out by ignore_index={size - 1}.",
        )
    for name, labels in flat.items():
        check_indices(owner, name, labels, size, "num_classes")
    return flat["predictions"], flat["target"], size
