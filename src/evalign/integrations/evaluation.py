"""The evaluation that all engines share: the metric of all rows, and the decision rule for them."""

import math
import warnings
from typing import Any

from torch import Tensor, nn

from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.constraints import Infeasible
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.decisions import DecisionFitter, DecisionRule
from evalign.decisions.reversed_scores import ReversedScoresWarning
from evalign.training import TemperatureAnnealing
from evalign.training.averaging import offsets_of
from evalign.training.validation import hard_confusion, hard_labels, reading


class Evaluation:
    """Adds up the rows of an evaluation batch by batch, and fits a rule to them.

    Rows are read as the loss reads them, unless its class_dim is `given`. The loss may hold offsets
    of the logits. `rule` are arguments of `DecisionFitter`.
    """

    def __init__(
        self,
        owner: str,
        loss: nn.Module,
        metric: str | MetricFunction,
        rule: dict[str, Any],
        **given: Any,
    ) -> None:
        cure = "Torch has modules of its functions, such as CrossEntropyLoss()."
        require(isinstance(loss, nn.Module), owner, "loss", "be a torch.nn.Module", loss, cure)
        self.owner, self.loss = owner, loss
        self.metric = resolve(metric, owner=owner)
        self.reading = reading(loss) | given
        self._fitter = DecisionFitter(metric, **rule, **self.reading)
        self.fitted: DecisionRule | Infeasible | None = None
        self.start()

    def start(self) -> None:
        """Forget the rows of the last evaluation, which may have been interrupted."""
        self.confusion: Confusion | int = 0
        self.by_rule: Confusion | int = 0
        self._fitter.reset()
        self._fitter.offsets = offsets_of(self.loss)

    def add(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, test: bool = False
    ) -> None:
        """Add the rows of a batch, for the metric of argmax, and for the rule or its test."""
        labels = hard_labels(target, **self.reading)
        how: dict[str, Any] = {"matrix": self.metric.needs_matrix, **self.reading}
        self.confusion = self.confusion + hard_confusion(logits, target, weight, **how)
        if test:
            # Doubled, because the scores of argmax are probabilities, which are refused as logits.
            scores, how = 2 * self.rule.scores(logits), how | {"task": self.rule.task}
            self.by_rule = self.by_rule + hard_confusion(scores, labels, weight, **how)
        else:
            self._fitter.update(logits, labels, sample_weight=weight)

    @property
    def rule_score(self) -> float | None:
        """The cross-fitted metric of the rule; NaN if no rule meets the constraint."""
        if (rule := self.saved_rule) is None:
            return math.nan
        return rule.score if rule.score is None or self.metric.greater_is_better else -rule.score

    def fit_rule(self) -> None:
        """Fit the rule to the rows of all ranks."""
        with warnings.catch_warnings():
            # A network that has not learnt yet may rank rows so.
            warnings.simplefilter("ignore", ReversedScoresWarning)
            try:
                self.fitted = self._fitter.compute()
            except Infeasible as error:
                self.fitted = error.with_traceback(None)  # which would hold the rows
        self._fitter.reset()

    @property
    def rule(self) -> DecisionRule:
        """The rule of the last evaluation, the same on all ranks."""
        if self.fitted is None:
            cure = "Call Trainer.validate or evaluate first, with labelled rows."
            raise RuntimeError(complaint(self.owner, "rule", "follow an evaluation", "none", cure))
        if isinstance(self.fitted, Infeasible):
            raise self.fitted
        return self.fitted

    @property
    def saved_rule(self) -> DecisionRule | None:
        """The rule to save; None before the first evaluation, or if none meets the constraint."""
        return self.fitted if isinstance(self.fitted, DecisionRule) else None

    def load_rule(self, state: dict[str, Any] | None) -> None:
        """Take the rule of a checkpoint by its `state_dict`, or have none if there is none."""
        given = self._fitter.settings.metric
        own = None if isinstance(given, str) else given
        self.fitted = None if state is None else DecisionRule.from_state_dict(state, metric=own)


def check_annealing(
    annealing: TemperatureAnnealing | None, loss: nn.Module, metric: Metric | None
) -> None:
    """Check that an annealing cools the loss being trained, and knows the metric it watches."""
    if annealing is None:
        return
    cooled = any(part is annealing.loss for part in loss.modules())
    allowed, cure = "be the one being trained, or a part of it", "A copy would not do."
    require(cooled, "TemperatureAnnealing", "loss", allowed, "another", cure)
    if metric is not None:
        check_direction("TemperatureAnnealing", annealing.greater_is_better, metric)


def check_direction(owner: str, greater_is_better: bool | None, metric: Metric) -> None:
    """Check that `owner`, which watches the metric, knows whether higher is better."""
    wanted, got = metric.greater_is_better, greater_is_better
    allowed = f"be {wanted} for the metric {metric.name}"
    cure = "Give a cost of your own as metrics.Minimize(function)." if wanted else ""
    require(got == wanted, owner, "greater_is_better", allowed, got, cure)
