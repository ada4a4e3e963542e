"""The contents of a report: test rows, and the answers of one or two models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric, resolve


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
            better by), each with "_low" and "_high", and "seconds".
        gain: of the last one over the best by argmax, "against": "value", "low", "high".
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
            numbers = [row["weight"], *(row[name] for name in scores)]
            numbers += [] if row["seconds"] is None else [row["seconds"]]
            ok = ok and all(isinstance(value, int | float) for value in numbers)
        ok = ok and isinstance(self.gain["against"], str)
        ok = ok and all(isinstance(self.gain[key], int | float) for key in ("value", "low", "high"))
        require(ok, "TriedModels", "rows", "hold names and numbers", self.rows[:1])


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
        seen: the models were trained on these rows, or chosen by them: they are no test.
        tried: the models that the aligned one was made of, or chosen from.
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
    def kind(self) -> str:
        """What the rows are called."""
        return "rows seen in training" if self.seen else "test rows"

    @property
    def resolved(self) -> Metric:
        return resolve(self.metric, owner="Contents")

    def hard(self, predicted: np.ndarray, *, matrix: bool) -> Confusion:
        """The confusion matrix of predicted codes."""
        return Confusion.from_predictions(
            torch.tensor(predicted),
            torch.tensor(self.y),
            num_classes=len(self.classes),
            sample_weight=torch.tensor(self.weights),
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
