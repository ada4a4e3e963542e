"""The contents of a report: test rows, and the predictions of one or two models."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.constraints import parse
from evalign.core.metrics import Accuracy, ExpectedCost, Metric, resolve
from evalign.core.resampling import MIN_FOR_INTERVAL


@dataclass(frozen=True, eq=False)
class Scored:
    """The predictions of one model on the test rows.

    Args:
        name: its recipe ("aligned", "cross_entropy") or its kind ("blend").
        predicted: (n,) class codes, by its decision rule.
        probabilities: (n, C).
    """

    name: str
    predicted: np.ndarray
    probabilities: np.ndarray

    @property
    def label(self) -> str:
        return self.name.replace("_", "-")


@dataclass(frozen=True)
class TriedModels:
    """The candidates that were cross-validated before one model was chosen or blended from them.

    Args:
        rows: for each candidate, and last for the final model, "candidate" (its name), "weight",
            "rule_score" and "argmax_score" (the metric), "gain" (the final model's lead), each
            also with "_low" and "_high", and "seconds". Scores are None if there are too few rows.
        gain: the lead of the final model over the best candidate by argmax, "against": "value",
            "low", "high" and, with too few groups to trust them, "few_groups", their number.
        left_out: for each candidate that was not tried, why.
    """

    rows: list[dict[str, Any]]
    gain: dict[str, Any]
    left_out: dict[str, str]

    def __post_init__(self) -> None:
        stems, ends = ("rule_score", "argmax_score", "gain"), ("", "_low", "_high")
        known = ["seconds", *(f"{stem}{end}" for stem in stems for end in ends)]
        texts = [self.gain["against"], *self.left_out.values()]
        texts += [row["candidate"] for row in self.rows]
        ok = len(self.rows) > 0 and all(isinstance(text, str) for text in texts)
        ok = ok and all(_is_number(row["weight"]) for row in self.rows)
        values = [row[name] for row in self.rows for name in known]
        ok = ok and all(value is None or _is_number(value) for value in values)
        gain = [self.gain[name] for name in ("value", "low", "high")]
        ok = ok and (gain == [None] * 3 or all(map(_is_number, gain)))
        require(ok, "TriedModels", "rows", "hold names and numbers", self.rows[:1])


@dataclass(frozen=True)
class ModelFindings:
    """What is known about the models beyond their predictions.

    Args:
        notes: the warnings of the run.
        rules: the decision rule of each model in words.
        columns: permutation importance, the most important column first: "column" (the name) and
            how much worse the metric gets, "value" (mean), "low" and "high" (over the repeats).
        rows: the number of rows that were shuffled.
    """

    notes: list[str]
    rules: list[str]
    columns: list[dict[str, Any]]
    rows: int

    def __post_init__(self) -> None:
        def check(name: str, ok: bool, allowed: str) -> None:
            require(ok, "ModelFindings", name, allowed, repr(getattr(self, name))[:100])

        for name in ("notes", "rules"):
            check(name, all(isinstance(text, str) for text in getattr(self, name)), "hold texts")
        ok = all(isinstance(row["column"], str) for row in self.columns)
        keys = ("value", "low", "high")
        ok = ok and all(_is_number(row[key]) for row in self.columns for key in keys)
        check("columns", ok, "hold names and numbers")
        check("rows", isinstance(self.rows, int), "be a number of rows")


@dataclass(frozen=True, eq=False)
class Contents:
    """Everything that a report shows.

    Args:
        metric: the name of the metric that the model optimises. A binary metric ("f1") is that of
            the class with code 1.
        classes: the names of the classes, in the order of their codes.
        y: (n,) the true class codes of the test rows.
        aligned: the model that was made for the metric.
        baseline: a standard model with a decision rule of the same kind.
        weight: (n,) sample weights.
        groups: (n,) rows of one group are resampled together.
        constraint_groups: (n,) the groups between which the constraint bounds a gap.
        seed: seed of the resampling.
        source: where the rows come from, for the head of the page.
        cards: {title: {name: value}}, shown verbatim.
        seen: the models were trained or selected on these rows, which are no test then.
        tried: the candidates of the model.
        findings: what else is known about the models.
        constraint: what the decision rules were held to, which argmax ignores; None for nothing.
        columns: the columns of the table as they were read, each with its "name", "kind", "gaps"
            and "values" (numbers of missing and of distinct values) and "examples" (texts).
    """

    metric: str
    classes: list[str]
    y: np.ndarray
    aligned: Scored
    baseline: Scored | None = None
    weight: np.ndarray | None = None
    groups: np.ndarray | None = None
    seed: int = 0
    source: str = ""
    cards: dict[str, dict[str, str]] = field(default_factory=dict)
    seen: bool = False
    tried: TriedModels | None = None
    findings: ModelFindings | None = None
    constraint: str | None = None
    columns: list[dict[str, Any]] = field(default_factory=list)
    constraint_groups: np.ndarray | None = None

    def __post_init__(self) -> None:
        rows, classes = len(self.y), len(self.classes)
        require(rows > 0 and classes > 1, "Contents", "y", "hold rows of two classes or more", rows)

        def check(name: str, value: np.ndarray | None, *shape: int) -> None:
            got = None if value is None else np.shape(value)
            require(got in (None, shape), "Contents", name, f"have shape {shape}", got)

        def check_codes(name: str, codes: np.ndarray) -> None:
            check(name, codes, rows)
            ok = codes.min() >= 0 and codes.max() < classes
            allowed = f"hold codes of the {classes} classes"
            require(ok, "Contents", name, allowed, f"{codes.min()} to {codes.max()}")

        check_codes("y", self.y)
        check("weight", self.weight, rows)
        check("groups", self.groups, rows)
        check("constraint_groups", self.constraint_groups, rows)
        for model in self.models:
            check_codes(f"predicted of {model.name}", model.predicted)
            check(f"probabilities of {model.name}", model.probabilities, rows, classes)
        if self.findings is not None:
            given, models = len(self.findings.rules), len(self.models)
            require(given == models, "Contents", "rules", f"be of {models} models", given)

    @property
    def models(self) -> list[Scored]:
        """The models, the aligned one first."""
        return [self.aligned] if self.baseline is None else [self.aligned, self.baseline]

    @property
    def keys(self) -> list[str]:
        """The keys of the models in `scores`: "aligned", and the name of the baseline."""
        return ["aligned"] if self.baseline is None else ["aligned", self.baseline.name]

    @property
    def weights(self) -> np.ndarray:
        return np.ones(len(self.y)) if self.weight is None else np.asarray(self.weight, float)

    @property
    def scarce(self) -> np.ndarray:
        """The codes of the classes with few rows, whatever their weight."""
        return np.flatnonzero(np.bincount(self.y, minlength=len(self.classes)) < MIN_FOR_INTERVAL)

    @property
    def one_class(self) -> bool:
        """Whether all rows are of one class, which only a mean over rows can judge."""
        mean = isinstance(self.resolved, Accuracy | ExpectedCost)
        return not mean and len(np.unique(self.y)) == 1

    @property
    def constrained(self) -> bool:
        return self.constraint is not None

    def keeps(self, predicted: np.ndarray) -> bool:
        """Whether predicted codes keep to the constraint on these rows."""
        hard = self.hard(predicted, matrix=True)
        of_groups = self.hard_by_group(predicted)
        parts = parse(self.constraint or "", self.classes)
        return all(each.slack(hard, of_groups).item() >= 0 for each in parts)

    @property
    def metric_name(self) -> str:
        """The name of the metric; for a cost, without its matrix."""
        return self.metric.split("[")[0]

    @property
    def resolved(self) -> Metric:
        return resolve(self.metric, owner="Contents")

    def hard(self, predicted: np.ndarray, *, matrix: bool, rows: Any = slice(None)) -> Confusion:
        """The confusion matrix of predicted codes, of all rows or some."""
        return Confusion.from_predictions(
            predicted[rows],
            self.y[rows],
            num_classes=len(self.classes),
            sample_weight=self.weights[rows],
            matrix=matrix,
        )

    def hard_by_group(self, predicted: np.ndarray) -> list[Confusion]:
        """The confusion matrix of predicted codes in each group of the constraint."""
        if self.constraint_groups is None:
            return []
        return [
            self.hard(predicted, matrix=True, rows=self.constraint_groups == group)
            for group in np.unique(self.constraint_groups)
        ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
