"""The contents of a report: test rows, and the answers of one or two models."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import Accuracy, ExpectedCost, Metric, resolve
from evalign.core.resampling import FEW


@dataclass(frozen=True, eq=False)
class Scored:
    """One model on the test rows.

    Args:
        name: what it is called: its recipe ("aligned", "cross_entropy") or its kind ("blend").
        predicted: (n,) class codes, by its decision rule.
        probabilities: (n, C).
        history: the records of `evalign.training.fit`.
    """

    name: str
    predicted: np.ndarray
    probabilities: np.ndarray
    history: list[dict[str, Any]]

    @property
    def label(self) -> str:
        return self.name.replace("_", "-")


@dataclass(frozen=True)
class TriedModels:
    """The models that were tried before one was made of them, on rows that they had not seen.

    Args:
        rows: for each model, and last for what was made of them, a "candidate" (its name), its
            "weight", "rule_score" and "argmax_score" (the metric), "gain" (what the last one is
            better by), each with "_low" and "_high", and "seconds". Scores are None where rows
            are too few for them.
        gain: of the last one over the best by argmax, "against": "value", "low", "high", and, where
            groups are too few to trust these, "few_groups", their number.
        left_out: why a model was not tried, by its name.
    """

    rows: list[dict[str, Any]]
    gain: dict[str, Any]
    left_out: dict[str, str]

    def __post_init__(self) -> None:
        ends = ("", "_low", "_high")
        scores = [f"{stem}{end}" for stem in ("rule_score", "argmax_score", "gain") for end in ends]
        ok = len(self.rows) > 0
        for row in self.rows:
            texts = [row["candidate"], *self.left_out, *self.left_out.values()]
            ok = ok and all(isinstance(text, str) for text in texts)
            ok = ok and isinstance(row["weight"], int | float)
            numbers = [row[name] for name in (*scores, "seconds")]
            ok = ok and all(isinstance(value, int | float | None) for value in numbers)
        ok = ok and isinstance(self.gain["against"], str)
        gain = [self.gain[key] for key in ("value", "low", "high")]
        ok = ok and (gain == [None] * 3 or all(isinstance(value, int | float) for value in gain))
        require(ok, "TriedModels", "rows", "hold names and numbers", self.rows[:1])


@dataclass(frozen=True)
class ModelFindings:
    """What was found out about the models beyond their answers.

    Args:
        notes: the warnings that were given on the way.
        against: the code of the class that the others are held against: of two the first, of more
            the most frequent one.
        cuts: for each model and each class, the probability from which the rule gives the class
            where all others but `against` have none. None where there is no such probability.
        columns: of the table, the most important first, each with its "column" (the name) and how
            much worse the metric gets if its values are shuffled: "value" is the mean, "low" and
            "high" are the least and the most.
        rows: how many rows were shuffled.
    """

    notes: list[str]
    against: int
    cuts: list[list[float | None]]
    columns: list[dict[str, Any]]
    rows: int

    def __post_init__(self) -> None:
        def is_number(value: Any) -> bool:
            return isinstance(value, int | float) and math.isfinite(value)

        def check(name: str, ok: bool, allowed: str) -> None:
            require(ok, "ModelFindings", name, allowed, repr(getattr(self, name))[:100])

        check("notes", all(isinstance(note, str) for note in self.notes), "hold texts")
        every = [cut for cuts in self.cuts for cut in cuts if cut is not None]
        ok = all(is_number(cut) and 0 <= cut <= 1 for cut in every)
        check("cuts", ok, "hold probabilities or None")
        ok = all(isinstance(row["column"], str) for row in self.columns)
        ok = ok and all(is_number(row[k]) for row in self.columns for k in ("value", "low", "high"))
        check("columns", ok, "hold names and numbers")
        check("rows", isinstance(self.rows, int), "be a number of rows")


@dataclass(frozen=True, eq=False)
class Contents:
    """All that a report shows.

    Args:
        metric: the name of the metric that was trained for. A metric for two classes ("f1") is
            that of the class with code 1.
        classes: their names, in the order of the codes.
        y: (n,) the true class codes of the test rows.
        aligned: the model that was made for the metric.
        baseline: a usual model, trained with cross-entropy, with the same kind of decision rule.
        temperature: of the aligned model's loss at the end; None for a loss without one.
        weight: (n,) a weight per row; None counts rows.
        groups: (n,) rows of one group are resampled together.
        seed: of the resampling.
        cards: {title: {name: value}}, shown as they are.
        seen: the models were trained on these rows, or chosen by them: they are not a test.
        tried: the models that the aligned one was made of, or chosen from.
        findings: what else is known of the models.
        how: how to get a method, by its key (see `scores`), such as a command.
        constrained: the rules keep to a constraint, which the most probable classes do not.
        columns: the columns of the table as they were read, each with its "name", "kind", "gaps"
            and "values" (how many missing and distinct values it has) and "examples" (texts).
    """

    metric: str
    classes: list[str]
    y: np.ndarray
    aligned: Scored
    baseline: Scored | None
    temperature: float | None
    weight: np.ndarray | None
    groups: np.ndarray | None
    seed: int
    cards: dict[str, dict[str, str]]
    seen: bool = False
    tried: TriedModels | None = None
    findings: ModelFindings | None = None
    how: dict[str, str] = field(default_factory=dict)
    constrained: bool = False
    columns: list[dict[str, Any]] = field(default_factory=list)

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
        for model in self.models:
            check_codes(f"predicted of {model.name}", model.predicted)
            check(f"probabilities of {model.name}", model.probabilities, rows, classes)
        if self.findings is not None:
            given = [len(cuts) for cuts in self.findings.cuts]
            ok, against = given == [classes] * len(self.models), self.findings.against
            require(ok, "Contents", "cuts", f"be of {classes} classes for each model", given)
            known = isinstance(against, int) and 0 <= against < classes
            require(known, "Contents", "against", "be the code of a class", repr(against))

    @property
    def models(self) -> list[Scored]:
        """The models, the aligned one first."""
        return [self.aligned] if self.baseline is None else [self.aligned, self.baseline]

    @property
    def keys(self) -> list[str]:
        """What the numbers of the models are called: "aligned", and the name of the baseline."""
        return ["aligned"] if self.baseline is None else ["aligned", self.baseline.name]

    @property
    def weights(self) -> np.ndarray:
        return np.ones(len(self.y)) if self.weight is None else np.asarray(self.weight, float)

    @property
    def scarce(self) -> np.ndarray:
        """The codes of the classes with few rows, whatever these weigh."""
        return np.flatnonzero(np.bincount(self.y, minlength=len(self.classes)) < FEW)

    @property
    def one_class(self) -> bool:
        """Whether all rows are of one class, by which only a mean over rows is to be judged."""
        mean = isinstance(self.resolved, Accuracy | ExpectedCost)
        return not mean and len(np.unique(self.y)) == 1

    @property
    def kind(self) -> str:
        """What the rows are called."""
        return "rows seen in training" if self.seen else "test rows"

    @property
    def metric_name(self) -> str:
        """The name of the metric; that of a cost is without its matrix."""
        return self.metric.split("[")[0]

    @property
    def resolved(self) -> Metric:
        return resolve(self.metric, owner="Contents")

    def hard(self, predicted: np.ndarray, *, matrix: bool, rows: Any = slice(None)) -> Confusion:
        """The confusion matrix of predicted codes, of all rows or some."""
        return Confusion.from_predictions(
            torch.tensor(predicted[rows]),
            torch.tensor(self.y[rows]),
            num_classes=len(self.classes),
            sample_weight=torch.tensor(self.weights[rows]),
            matrix=matrix,
        )

    def soft(self, model: Scored) -> Confusion | None:
        """The soft confusion matrix at the final temperature. Log-probabilities serve as logits."""
        if self.temperature is None:
            return None
        probabilities = torch.tensor(model.probabilities, dtype=torch.float64)
        return Confusion.from_logits(
            probabilities.clamp(min=torch.finfo(torch.float64).tiny).log(),
            torch.tensor(self.y),
            task="multiclass",
            temperature=self.temperature,
            sample_weight=torch.tensor(self.weights),
            matrix=True,
        )
