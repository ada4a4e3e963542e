"""Fit a rule to scores of any form, all at once or batch by batch."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist

from evalign.core.checks import complaint, require
from evalign.core.input_warnings import warn, warn_of_one_hot
from evalign.core.metrics import MetricFunction
from evalign.decisions.fit_rows import FitSettings, Rows, fit_rows, read_rows
from evalign.decisions.inputs import Groups, Values, codes_of, group_values, is_text
from evalign.decisions.objective import Objective
from evalign.decisions.rule import Decision, DecisionRule
from evalign.membership.rows import Task

Ranks = Literal["all", "own"]
OWNER = "DecisionFitter"


@torch.no_grad()
def fit_decision(
    logits: Values | None = None,
    y: Values | None = None,
    *,
    probabilities: Values | None = None,
    metric: str | MetricFunction,
    decision: Decision = "tuned",
    task: Task | None = None,
    sample_weight: Values | None = None,
    constraint: str | None = None,
    groups: Groups | None = None,
    confidence: float | None = None,
    classes: Sequence[str | float] | np.ndarray | None = None,
    offsets: Values | None = None,
    ignore_index: int = -100,
    class_dim: int | None = None,
) -> DecisionRule:
    """Find the rule from scores to labels that is best for a metric. Deterministic, in float64.

    - "argmax": the class with the largest logit.
    - "tuned": uses the labels of validation rows. For two classes the rule is the best of all
      thresholds, for more a gain matrix. If labels are few, probabilities calibrated with the
      labels count too.
    - "expected": uses probabilities, calibrated with labels `y` of exclusive classes if there are
      any. For two classes the rule is the best threshold for the expected confusion matrix; for
      more, a local optimum, which is surely global only for metrics linear in the matrix.

    Scores, labels and weights may be tensors, arrays or lists.

    Args:
        logits: (N, C) or (B, C, ...), or (N,) or (N, 1) for two classes.
        y: labels (N,) or (B, ...), integers from 0 to C − 1, or strings; 0 and 1 in the shape of
            the logits for a multilabel problem. After strings the rule returns strings.
        probabilities: instead of logits, in the same shapes; (N,) are of class 1. 0 and 1 are moved
            by 6e-8, for the logarithm. A frame's columns go by the names of the classes.
        metric: a name, a metric of `evalign.metrics`, or any function of a `Confusion` that returns
            a scalar tensor. A cost is minimised.
        decision: "argmax", "tuned" or "expected".
        task: "binary", "multiclass" or "multilabel"; inferred from the shapes by default.
        sample_weight: (N,) or (B, ...), not negative. Only ratios of weights matter.
        constraint: a bound that the rule has to meet on these rows, such as "recall >= 0.9".
            Commas separate several. "recall[2] >= 0.9" is about class 2, by index or by its name
            in `classes`. "fpr", "fnr" and "predicted_rate", the share of rows with a label, can be
            bounded too. "gap(recall) <= 0.05" bounds the difference between groups of rows.
        groups: (N,) or (B, ...), the group of each row for a gap: integers or strings. There is one
            rule for all groups. A group in which the metric is 0/0 is left out.
        confidence: the probability that the constraint holds on new data, such as 0.95, if these
            rows are independent draws; for recall, precision and other rates, and their gaps. If
            the rows are too few, `rule.promised` is False, with a warning.
        classes: the names of the classes, in order. Strings as labels are sorted by default, like
            scikit-learn's columns.
        offsets: (C,), of a network whose probabilities are softmax(logits + offsets), as after
            training with `AlignedLoss`. Pass logits without offsets, here and to the rule.
        ignore_index: the label of rows to leave out.
        class_dim: the dimension of the classes; -1 for tokens (B, T, C). The rule remembers it. The
            default is 1, with a warning if the shapes are ambiguous.

    Raises:
        ValueError: if no rule meets the constraint; the message says how close the best one comes.

    Examples:
        >>> logits = torch.tensor([[2.0, 0.0], [0.5, 0.0], [0.4, 0.0], [2.0, 0.0]])
        >>> rule = fit_decision(logits, metric="f1", decision="expected")
        >>> rule(logits)
        tensor([0, 1, 1, 0])
        >>> fit_decision(probabilities=[0.1, 0.4, 0.4], metric="f1", decision="expected")([0, 2])
        array([1, 1])
    """
    owner, named = "fit_decision", is_text(y)
    if named:
        y, classes = codes_of(owner, y, classes)
    settings = FitSettings(
        owner, metric, decision, task, constraint, confidence, classes, ignore_index, class_dim
    )
    rows, shape = read_rows(settings, logits, y, probabilities, sample_weight)
    if rows.multilabel and rows.y is not None and task is None:
        warn_of_one_hot(owner, rows.y, "y")
    kinds = [] if rows.y is None or rows.multilabel else rows.y[rows.weight > 0].unique()
    if decision == "tuned" and len(kinds) == 1:
        warn(f"y of {owner} holds one class only, which says nothing about the others.")
    of_rows = None if groups is None else group_values(owner, groups, shape).ravel()
    return replace(fit_rows(settings, rows, offsets, of_rows), named=named)


class DecisionFitter:
    """Fits a rule to a stream of batches, such as a validation loop, in bounded memory.

    Up to `max_rows` rows the rule is that of `fit_decision`. Beyond, it is fitted to a uniform
    random sample of the rows, the same in every run: those with the smallest random keys, so that
    the samples of several processes combine. All processes of `torch.distributed` must call
    `compute`.

    Args:
        max_rows: the number of rows to keep; up to twice as many are held in memory.
        ranks: "all" processes, or "own" for a rule from the rows of this process alone.

    The other arguments are those of `fit_decision`.

    Examples:
        >>> fitter = DecisionFitter("f1", decision="expected")
        >>> for logits in torch.tensor([[-2.0, -0.5], [-0.4, -2.0]]):
        ...     fitter.update(logits)
        >>> fitter.compute()(torch.tensor([-2.0, -0.4]))
        tensor([0, 1])
    """

    def __init__(
        self,
        metric: str | MetricFunction,
        *,
        decision: Decision = "tuned",
        task: Task | None = None,
        constraint: str | None = None,
        confidence: float | None = None,
        classes: Sequence[str | float] | np.ndarray | None = None,
        offsets: Values | None = None,
        ignore_index: int = -100,
        class_dim: int | None = None,
        max_rows: int = 2**17,
        ranks: Ranks = "all",
    ) -> None:
        self.settings = FitSettings(
            OWNER, metric, decision, task, constraint, confidence, classes, ignore_index, class_dim
        )
        Objective.of(OWNER, metric, constraint, classes)  # refuses a gap
        require(max_rows >= 1, OWNER, "max_rows", "be at least 1", max_rows)
        require(ranks in ("all", "own"), OWNER, "ranks", "be one of all, own", repr(ranks))
        self.offsets, self.max_rows, self.ranks = offsets, max_rows, ranks
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._parts: list[Rows] = []
        # On the CPU, so that keys are the same on every device.
        self._generator = torch.Generator().manual_seed(dist.get_rank() if self._gathers() else 0)

    def _gathers(self) -> bool:
        return self.ranks == "all" and dist.is_available() and dist.is_initialized()

    @torch.no_grad()
    def update(
        self,
        logits: Values | None = None,
        y: Values | None = None,
        *,
        probabilities: Values | None = None,
        sample_weight: Values | None = None,
    ) -> None:
        """Add the rows of a batch, which may be empty, with arguments as of `fit_decision`."""
        first, settings = self._parts[0] if self._parts else None, self.settings
        if first is not None:
            settings = replace(settings, task="multilabel" if first.multilabel else "multiclass")
        rows, _ = read_rows(settings, logits, y, probabilities, sample_weight)
        weight, number = rows.weight, rows.logits.shape[1]
        before = number if first is None else first.logits.shape[1]
        require(number == before, OWNER, "logits", f"have {before} columns, as before", number)
        keys = torch.rand(len(weight), generator=self._generator, dtype=torch.float64)
        counted = (weight.sum(1) if rows.multilabel else weight) > 0  # the others come last
        keys = keys.to(weight.device).masked_fill(~counted, torch.inf)
        labels = torch.full_like(weight, -1, dtype=torch.int64) if rows.y is None else rows.y
        self._keep(rows._replace(y=labels, keys=keys))

    def _keep(self, rows: Rows) -> None:
        self._parts.append(rows)
        if sum(len(part.logits) for part in self._parts) >= 2 * self.max_rows:
            self._parts = [self._sample()]

    def _sample(self) -> Rows:
        """The rows with the smallest keys, in their original order."""
        whole = [torch.cat(parts) for parts in zip(*self._parts, strict=True)]
        if len(whole[-1]) > self.max_rows:
            kept = whole[-1].topk(self.max_rows, largest=False).indices.sort().values
            whole = [part[kept] for part in whole]
        return Rows(*whole)

    def _over_ranks(self) -> "DecisionFitter":
        """A fitter with the rows of all ranks."""
        whole, own = copy(self), self._sample() if self._parts else None
        kept = own and (own.logits.device.type, own.to("cpu"))
        whole._parts = []
        for rank in range(dist.get_world_size()):  # one by one, to hold few at a time
            sent: list[Any] = [kept]
            dist.broadcast_object_list(sent, src=rank)
            if sent[0] is not None:
                device, rows = sent[0]
                whole._keep(rows.to(device))
        return whole

    @torch.no_grad()
    def compute(self) -> DecisionRule:
        """Fit the rule to all rows since the last `reset`. It is the same on all ranks."""
        whole = self._over_ranks() if self._gathers() else self
        if not whole._parts:
            cure = "Call update first."
            raise ValueError(complaint(OWNER, "rows", "hold at least one", "none", cure))
        rows = whole._sample()
        if rows.y is not None and (rows.y < 0).any():
            rows = rows._replace(y=None)  # labels of some rows alone say little of the others
        return fit_rows(self.settings, rows, whole.offsets)
