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

from evalign.core.checks import complaint, require
from evalign.core.metrics import MetricFunction
from evalign.core.rows import Task
from evalign.decisions.fit import check_arguments, check_promise
from evalign.decisions.fit_rows import check_groups, fit_rows, labels_missing
from evalign.decisions.inputs import Values, as_labels, as_scores, as_weights, tensor_of
from evalign.decisions.objective import Objective
from evalign.decisions.rule import Decision, DecisionRule
from evalign.decisions.stream_memory import BINS, WIDTH, Histogram, Sample
from evalign.decisions.threshold import constant_beyond

Ranks = Literal["all", "own"]
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
        check_arguments(OWNER, metric, decision, task, constraint, classes)
        check_promise(OWNER, decision, constraint, confidence)
        check_groups(Objective.of(OWNER, metric, constraint, classes), many=False)
        require(max_rows >= 1, OWNER, "max_rows", "be at least 1", max_rows)
        known = get_args(Ranks)
        require(ranks in known, OWNER, "ranks", f"be one of {', '.join(known)}", repr(ranks))
        self.metric = metric
        self.decision: Decision = decision
        self.task: Task | None = task
        self.constraint, self.confidence = constraint, confidence
        self.classes, self.offsets = classes, offsets
        self.ignore_index, self.class_dim = ignore_index, class_dim
        self.max_rows, self.ranks = max_rows, ranks
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._memory: Histogram | Sample | None = None
        self._form: tuple[Task, int] | None = None  # the task and the number of columns
        self._seen = 0
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
        """Add the rows of a batch, which may be empty, as in `fit_decision`."""
        given = probabilities if logits is None else logits
        if given is not None and len(given) == 0:
            return
        if self.decision == "tuned" and y is None:
            raise labels_missing(OWNER)
        labels = None if y is None else tensor_of(OWNER, "y", y)
        scores = as_scores(
            OWNER,
            logits,
            probabilities,
            labels,
            task=self.task if self._form is None else self._form[0],
            class_dim=self.class_dim,
        )
        rows, weight = scores.rows, as_weights(OWNER, sample_weight, scores)
        form: tuple[Task, int] = (
            "multilabel" if scores.multilabel else "multiclass",
            rows.shape[1],
        )
        if self._form is None:
            self._form, self._memory = form, self._empty(form, rows.device)
        allowed = f"be {self._form[0]} with {self._form[1]} columns, as before"
        require(form == self._form, OWNER, "logits", allowed, f"{form[0]} with {form[1]}")
        if labels is None:
            self._labelled, labels = False, torch.zeros_like(weight, dtype=torch.int64)
        else:
            labels, seen = as_labels(OWNER, labels, scores, self.ignore_index)
            weight = weight * seen
        if isinstance(self._memory, Histogram):
            if not scores.multilabel:
                rows, labels, weight = rows[:, 1:] - rows[:, :1], labels[:, None], weight[:, None]
            self._memory.add(rows, labels, weight)
        elif self._memory is not None:
            keys, counts = self._keys(len(rows), rows.device), weight > 0
            self._memory.add(*(each[counts] for each in (rows, labels, weight, keys)))
        self._seen += len(rows)

    def _empty(self, form: tuple[Task, int], device: torch.device) -> Histogram | Sample:
        task, columns = form
        if task == "multilabel":
            return Histogram.empty(columns, device)
        # A confidence counts rows, which the bins of a histogram do not tell apart.
        if columns == 2 and self.confidence is None:
            return Histogram.empty(1, device)
        return Sample.empty(columns, self.max_rows, device)

    def _keys(self, rows: int, device: torch.device) -> Tensor:
        """Pseudo-random numbers in [0, 1) of the next rows, the same on every device."""
        first = self._seen + (dist.get_rank() << 40 if self._summed() else 0)
        # SplitMix64, its constants as signed numbers
        x = torch.arange(first, first + rows, device=device) * -0x61C8864680B583EB
        x = (x ^ (x >> 30)) * -0x40A7B892E31B1A47
        x = (x ^ (x >> 27)) * -0x6B2FB644ECCEEE15
        return (x & (2**52 - 1)).double() / 2**52

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
        memory, form = whole._memory, whole._form
        if memory is None or form is None or not memory.mass.any():
            cure = "Call update first, with rows that are not ignored."
            raise ValueError(complaint(OWNER, "rows", "hold at least one", "none", cure))
        rows, labels, weight = memory.rows()
        many = form[0] == "multilabel"
        if isinstance(memory, Histogram) and not many:
            rows = torch.cat([torch.zeros_like(rows), rows], 1)
            labels, weight = labels.squeeze(1), weight.squeeze(1)
        rule = fit_rows(
            OWNER,
            rows,
            labels if whole._labelled else None,
            weight,
            metric=self.metric,
            decision=self.decision,
            task="multilabel" if many else self.task,
            constraint=self.constraint,
            confidence=self.confidence,
            classes=self.classes,
            offsets=self.offsets,
            class_dim=1 if self.class_dim is None else self.class_dim,
            number_of_rows=int(memory.counts.sum() / (len(memory.counts) if many else 1)),
        )
        if isinstance(memory, Histogram):  # whose last bins hold all rows beyond them
            gain = constant_beyond(rule.gain, rule.log_odds, BINS / 2 * WIDTH)
            rule = replace(rule, gain=gain)
        return rule
