"""Fit a rule to a stream of batches, in bounded memory and over all ranks.

For two classes, or a multilabel problem, histograms of the log-odds hold all that a threshold
needs. For more classes a sample is kept that is even within each class: the rows with the smallest
pseudo-random keys, so that the samples of several ranks make one of all rows.
"""

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from evalign.core.checks import complaint, require, values_readable
from evalign.core.metrics import MetricFunction
from evalign.core.rows import Task
from evalign.decisions.fit_rows import FitSettings, check_groups, fit_rows, labels_missing
from evalign.decisions.inputs import Values, as_labels, as_scores, as_weights, tensor_of
from evalign.decisions.objective import Objective
from evalign.decisions.rule import Decision, DecisionRule
from evalign.decisions.stream_memory import BINS, WIDTH, Histogram, Sample
from evalign.decisions.threshold import constant_beyond

Ranks = Literal["all", "own"]
Form = tuple[Task, int]  # the task and the number of columns
OWNER = "DecisionFitter"


class DecisionFitter:
    """Fits a rule to a stream of batches, as a validation loop has them, in bounded memory.

    - Two classes, or a multilabel problem: exact for log-odds rounded to 1/128 (at most 0.002 in
      probability), from −32 to 32. A label takes a quarter of a megabyte, whatever the number of
      rows: 1,000 labels 250 MB, and at least twice that while `compute` runs.
    - More classes, or a confidence: from a sample that is even within each class and weighed like
      all its rows. A class of up to `max_rows` / C rows is kept whole.

    `compute` sums over the processes of `torch.distributed`, all of which must call it.

    Args:
        max_rows: the size of the sample. Up to twice as many rows are held.
        ranks: "all", or "own" for a rule from the rows of this process alone.

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
        check_groups(Objective.of(OWNER, metric, constraint, classes))
        require(max_rows >= 1, OWNER, "max_rows", "be at least 1", max_rows)
        known = get_args(Ranks)
        require(ranks in known, OWNER, "ranks", f"be one of {', '.join(known)}", repr(ranks))
        self.offsets, self.max_rows, self.ranks = offsets, max_rows, ranks
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._memory: Histogram | Sample | None = None
        self._form: Form | None = None
        self._labelled = True  # whether every row came with a label

    @torch.no_grad()
    def update(
        self,
        logits: Values | None = None,
        y: Values | None = None,
        *,
        probabilities: Values | None = None,
        sample_weight: Values | None = None,
    ) -> None:
        """Add the rows of a batch, which may be empty, as in `fit_decision`.

        Values on a GPU are not read here: `compute` refuses them if they are unsound.
        """
        given = probabilities if logits is None else logits
        if given is not None and len(given) == 0:
            return
        how = self.settings
        if how.decision == "tuned" and y is None:
            raise labels_missing(OWNER)
        labels = None if y is None else tensor_of(OWNER, "y", y)
        read = not isinstance(given, Tensor) or values_readable(given)
        task = how.task if self._form is None else self._form[0]
        scores = as_scores(
            OWNER, logits, probabilities, labels, task=task, class_dim=how.class_dim, read=read
        )
        rows, weight = scores.rows, as_weights(OWNER, sample_weight, scores, read=read)
        form: Form = ("multilabel" if scores.multilabel else "multiclass", rows.shape[1])
        if self._form is None:
            self._form, self._memory = form, self._empty(form, rows.device)
        allowed = f"be {self._form[0]} with {self._form[1]} columns, as before"
        require(form == self._form, OWNER, "logits", allowed, f"{form[0]} with {form[1]}")
        if labels is None:
            self._labelled, labels = False, torch.zeros_like(weight, dtype=torch.int64)
        else:
            labels, seen = as_labels(OWNER, labels, scores, how.ignore_index, read=read)
            weight = weight * seen
        # Unsound rows leave NaN in the mass, where `compute` finds it.
        unsound = rows.isnan() if scores.multilabel else rows.isnan().any(1)
        assert self._memory is not None
        self._memory.add(rows.nan_to_num(), labels, weight.masked_fill(unsound, torch.nan))

    def _empty(self, form: Form, device: torch.device) -> Histogram | Sample:
        task, columns = form
        # A confidence counts rows, which the bins of a histogram do not tell apart.
        if task == "multilabel" or (columns == 2 and self.settings.confidence is None):
            return Histogram.empty(columns, device, two_classes=task != "multilabel")
        first = dist.get_rank() << 40 if self._summed() else 0
        return Sample.empty(columns, self.max_rows, device, first)

    def _summed(self) -> bool:
        return self.ranks == "all" and dist.is_available() and dist.is_initialized()

    @torch.no_grad()
    def over_ranks(self) -> "DecisionFitter":
        """A fitter that holds the rows of all ranks, whose `compute` one rank may call alone."""
        whole = copy(self)  # but for what changes in place: sums, and offsets that a loss learns
        whole._memory, whole.offsets = deepcopy(self._memory), deepcopy(self.offsets)
        if not self._summed():
            return whole
        whole.ranks = "own"
        ranks: list[Any] = [None] * dist.get_world_size()
        place = None if self._memory is None else (self._form, self._memory.mass.device.type)
        dist.all_gather_object(ranks, (place, self._labelled))
        found = {place for place, _ in ranks if place is not None}
        allowed = "have the same columns on every rank, on one kind of device"
        require(len(found) <= 1, OWNER, "logits", allowed, sorted(found))
        whole._labelled = all(labelled for _, labelled in ranks)
        for form, device in found:
            memory = self._memory or self._empty(form, torch.device(device))
            whole._form, whole._memory = form, memory.over_ranks()
        return whole

    @torch.no_grad()
    def compute(self) -> DecisionRule:
        """The rule for all rows since the start or the last `reset`, the same on all ranks."""
        whole = self.over_ranks() if self._summed() else self
        memory = whole._memory
        if memory is None or not memory.mass.any():
            cure = "Call update first, with rows that are not ignored."
            raise ValueError(complaint(OWNER, "rows", "hold at least one", "none", cure))
        allowed = "hold finite scores, labels of the classes, and weights of at least 0"
        sound = bool(memory.mass.isfinite().all())
        require(
            sound, OWNER, "rows", allowed, "other values", "Move a batch to the CPU to see them."
        )
        rows, labels, weight = memory.rows()
        rule = fit_rows(
            self.settings,
            rows,
            labels if whole._labelled else None,
            weight,
            many=whole._form is not None and whole._form[0] == "multilabel",
            offsets=self.offsets,
            number_of_rows=memory.number_of_rows(),
        )
        if isinstance(memory, Histogram):  # whose last bins hold all rows beyond them
            gain = constant_beyond(rule.gain, rule.log_odds, BINS / 2 * WIDTH)
            rule = replace(rule, gain=gain)
        return rule
