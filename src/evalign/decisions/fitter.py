"""Fit a rule to a stream of batches, in bounded memory and across ranks.

The rows with the smallest random keys are kept: a uniform sample, and those of several ranks
combine into a sample of all rows.
"""

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from evalign.core.checks import complaint, require
from evalign.core.metrics import MetricFunction
from evalign.core.rows import Task
from evalign.decisions.fit_rows import FitSettings, fit_rows, read_rows
from evalign.decisions.inputs import Values
from evalign.decisions.objective import Objective
from evalign.decisions.rule import Decision, DecisionRule

Ranks = Literal["all", "own"]
Form = tuple[Task, int]  # the task and the number of columns
OWNER = "DecisionFitter"


class Rows(NamedTuple):
    """Rows (R, ...) with labels, weights and random keys (R,)."""

    logits: Tensor
    y: Tensor
    weight: Tensor
    keys: Tensor


class DecisionFitter:
    """Fits a rule to a stream of batches, such as a validation loop, in bounded memory.

    Up to `max_rows` rows the rule is that of `fit_decision`. Beyond, it is fitted to a uniform
    random sample of them, the same in every run. `compute` gathers the samples of all processes of
    `torch.distributed`, which must all call it.

    Args:
        max_rows: the number of rows to keep; up to twice as many are held in memory.
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
        Objective.of(OWNER, metric, constraint, classes).check_groups(given=False)
        require(max_rows >= 1, OWNER, "max_rows", "be at least 1", max_rows)
        require(ranks in ("all", "own"), OWNER, "ranks", "be one of all, own", repr(ranks))
        self.offsets, self.max_rows, self.ranks = offsets, max_rows, ranks
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._parts: list[Rows] = []
        self._form: Form | None = None
        self._labelled = True  # whether every row came with a label
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
        given = probabilities if logits is None else logits
        if given is not None and len(given) == 0:
            return
        settings = self.settings
        if self._form is not None:
            settings = replace(settings, task=self._form[0])
        scores, labels, weight = read_rows(settings, logits, y, probabilities, sample_weight)
        form: Form = "multilabel" if scores.multilabel else "multiclass", scores.rows.shape[1]
        before = self._form or form
        require(form == before, OWNER, "logits", f"have {before[1]} columns, as before", form[1])
        self._form = form
        if labels is None:
            self._labelled, labels = False, torch.zeros_like(weight, dtype=torch.int64)
        keys = torch.rand(len(weight), generator=self._generator, dtype=torch.float64)
        counted = (weight > 0).view(len(weight), -1).any(1)  # rows without weight come last
        keys = keys.to(weight.device).masked_fill(~counted, torch.inf)
        self._keep(Rows(scores.rows, labels, weight, keys))

    def _keep(self, rows: Rows) -> None:
        self._parts.append(rows)
        if sum(len(part.keys) for part in self._parts) >= 2 * self.max_rows:
            self._parts = [self._sample()]

    def _sample(self) -> Rows:
        """The rows with the smallest keys, in their original order."""
        whole = Rows(*map(torch.cat, zip(*self._parts, strict=True)))
        if len(whole.keys) <= self.max_rows:
            return whole
        kept = whole.keys.topk(self.max_rows, largest=False).indices.sort().values
        return Rows(*(part[kept] for part in whole))

    @torch.no_grad()
    def over_ranks(self) -> "DecisionFitter":
        """A fitter that holds the rows of all ranks, whose `compute` one rank may call alone."""
        whole = copy(self)
        whole._parts = list(self._parts)
        whole.offsets = deepcopy(self.offsets)  # which a loss may learn
        if not self._gathers():
            return whole
        whole.ranks, whole._form, whole._parts = "own", None, []
        own = self._sample() if self._parts else None
        kept = None if own is None else (own.keys.device.type, [part.cpu() for part in own])
        for rank in range(dist.get_world_size()):  # one by one, to hold few at a time
            sent: list[Any] = [(self._form, self._labelled, kept)]
            dist.broadcast_object_list(sent, src=rank)
            form, labelled, rows = sent[0]
            whole._labelled &= labelled
            if rows is not None:
                before, whole._form = whole._form or form, form
                allowed = "have the same columns on every rank"
                require(form == before, OWNER, "logits", allowed, [before, form])
                device, parts = rows
                whole._keep(Rows(*(part.to(device) for part in parts)))
        return whole

    @torch.no_grad()
    def compute(self) -> DecisionRule:
        """Fit the rule to all rows since the last `reset`. It is the same on all ranks."""
        whole = self.over_ranks() if self._gathers() else self
        if whole._form is None:
            cure = "Call update first."
            raise ValueError(complaint(OWNER, "rows", "hold at least one", "none", cure))
        rows, labels, weight, _ = whole._sample()
        labels = labels if whole._labelled else None
        multilabel = whole._form[0] == "multilabel"
        return fit_rows(
            self.settings, rows, labels, weight, multilabel=multilabel, offsets=whole.offsets
        )
