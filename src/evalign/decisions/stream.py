"""A rule from a stream of batches, in bounded memory and over all ranks.

For two classes, or many labels a row, a threshold is all there is to find, and histograms of the
log-odds hold what it needs. For more classes a sample is kept that is even within each class: the
rows with the smallest of pseudo-random keys, so that samples of several ranks make one of all.
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
from evalign.core.text import counted
from evalign.decisions.cuts import one_label_beyond
from evalign.decisions.fit import check_arguments, check_promise
from evalign.decisions.found import check_groups, fit_rows
from evalign.decisions.goal import Goal
from evalign.decisions.inputs import Values, as_labels, as_scores, as_weights, layout
from evalign.decisions.kept import BINS, WIDTH, Histogram, Sample
from evalign.decisions.rule import Decision, DecisionRule

Ranks = Literal["all", "own"]
SOUND = {
    "logits": "be finite",
    "probabilities": "lie from 0 to 1, and sum to 1 over classes",
    "y": "hold indices of classes, or 0 and 1 for many labels a row",
    "sample_weight": "be finite and not negative",
}


class DecisionFitter:
    """Fits a rule to a stream of batches, as a validation loop has them, in bounded memory.

    - Two classes, or many labels a row: exact for log-odds that are rounded to 1/128 (in
      probability, at most 0.002), from −32 to 32. A label takes a quarter of a megabyte, whatever
      the number of rows: 1,000 labels 250 MB, and at least twice that while `compute` runs.
    - More classes, or a confidence: from a sample that is even within each class and weighed like
      all its rows. Up to `max_rows` / C rows of a class, it is the class itself.

    `compute` sums over the processes of `torch.distributed`, all of which must call it. `update`
    reads no values and does not wait for a GPU: what is wrong with them is told by `compute`.

    Args:
        max_rows: the most rows to find a rule with, for more than two classes. Up to twice as many
            are held.
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
        owner = "DecisionFitter"
        check_arguments(owner, metric, decision, task, constraint, classes)
        check_promise(owner, decision, constraint, confidence)
        check_groups(owner, Goal.of(owner, metric, constraint, classes), many=False)
        require(max_rows >= 1, owner, "max_rows", "be at least 1", max_rows)
        known = get_args(Ranks)
        require(ranks in known, owner, "ranks", f"be one of {', '.join(known)}", repr(ranks))
        self.decision: Decision = decision
        self.task: Task | None = task
        self.constraint, self.confidence = constraint, confidence
        self.classes, self.offsets = classes, offsets
        self.ignore_index, self.class_dim = ignore_index, class_dim
        self.metric, self.max_rows, self.ranks = metric, max_rows, ranks
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._state: Histogram | Sample | None = None
        self._form: tuple[str, int] | None = None  # the task and the number of classes
        self._seen, self._scores = 0, "logits"  # and what scores were called
        self._wrong = torch.zeros(3, dtype=torch.int64)  # rows: of scores, labels and weights
        self._labelled = True  # whether no row came without a label

    @torch.no_grad()
    def update(
        self,
        logits: Values | None = None,
        y: Values | None = None,
        *,
        probabilities: Values | None = None,
        sample_weight: Values | None = None,
    ) -> None:
        """Add the rows of a batch, if any, as in `fit_decision`; weights count by their ratios."""
        owner = "DecisionFitter"
        given = probabilities if logits is None else logits
        if given == [] if isinstance(given, list) else getattr(given, "shape", ())[:1] == (0,):
            return
        if self.decision == "tuned" and y is None:
            cure = 'Without labels use decision="expected".'
            raise ValueError(complaint(owner, "y", "hold labels for tuned", None, cure))
        self.class_dim, many = layout(owner, self.task, given, y, self.class_dim)
        many = many or (self._form is not None and self._form[0] == "multilabel")
        scores = as_scores(
            owner, logits, probabilities, multilabel=many, class_dim=self.class_dim, read=False
        )
        rows, weight = scores.rows, as_weights(owner, sample_weight, scores, read=False)
        if many:
            weight = weight.unsqueeze(1).expand_as(rows)
        labels = torch.zeros_like(weight, dtype=torch.int64)
        self._labelled = self._labelled and y is not None
        form = ("multilabel" if many else "multiclass", rows.shape[1])
        if self._form is None:
            self._form, self._state = form, self._empty(form, rows.device)
            self._wrong = self._wrong.new_zeros(3, device=rows.device)  # a copy would wait for it
        allowed = f"be {self._form[0]} with {self._form[1]} columns, as before"
        require(form == self._form, owner, "logits", allowed, f"{form[0]} with {form[1]}")
        if y is not None:
            labels, seen = as_labels(
                owner, y, scores, multilabel=many, ignore_index=self.ignore_index, read=False
            )
            weight = weight * seen
        highest = 1 if many else rows.shape[1] - 1
        of_scores = rows.isfinite() if many else rows.isfinite().all(1)
        of_labels = (labels >= 0) & (labels <= highest)
        of_weights = weight.isfinite() & (weight >= 0)
        parts = torch.stack([of_scores, of_labels, of_weights])
        self._wrong = self._wrong.to(rows.device) + (~parts).flatten(1).sum(1)
        self._scores = "logits" if probabilities is None else "probabilities"
        fine = parts.all(0)
        labels, weight = (torch.where(fine, each, 0) for each in (labels, weight))
        if isinstance(self._state, Histogram):
            margin = rows if many else rows[:, 1:] - rows[:, :1]
            pair = (labels, weight) if many else (labels.unsqueeze(1), weight.unsqueeze(1))
            self._state.add(margin.nan_to_num(0), *pair)
        elif self._state is not None:
            self._state.add(rows, labels, weight, self._keys(len(rows), rows.device))
        self._seen += len(rows)

    def _empty(self, form: tuple[str, int], device: torch.device) -> Histogram | Sample:
        task, columns = form
        # A confidence counts rows, which the bins of a histogram do not tell apart.
        if task == "multilabel" or (columns == 2 and self.confidence is None):
            return Histogram.empty(columns if task == "multilabel" else 1, device)
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
        """One that holds the rows of all ranks, and whose `compute` may be called on one alone."""
        whole = copy(self)  # but for what changes in place: sums, and offsets that a loss learns
        whole._state, whole.offsets = deepcopy(self._state), deepcopy(self.offsets)
        if not self._summed():
            return whole
        whole.ranks = "own"
        forms: list[Any] = [None] * dist.get_world_size()
        place = self._form and (self._form, self._wrong.device.type)
        dist.all_gather_object(forms, (place, self._wrong.tolist(), self._labelled))
        found = {place for place, _, _ in forms if place is not None}
        allowed = "have the same columns on every rank, on one kind of device"
        require(len(found) <= 1, "DecisionFitter", "logits", allowed, sorted(found))
        whole._wrong = torch.tensor([wrong for _, wrong, _ in forms]).sum(0)
        whole._labelled = all(labelled for _, _, labelled in forms)
        for form, device in found:
            state = self._state or self._empty(form, torch.device(device))
            whole._form, whole._state = form, state.over_ranks()
        return whole

    @torch.no_grad()
    def compute(self) -> DecisionRule:
        """The rule for all rows since the start or the last `reset`, on all ranks the same."""
        owner, whole = "DecisionFitter", self.over_ranks() if self._summed() else self
        state, form = whole._state, whole._form
        for name, wrong in zip((self._scores, "y", "sample_weight"), whole._wrong, strict=True):
            got = f"other values in {counted(int(wrong))}"
            require(int(wrong) == 0, owner, name, SOUND[name], got)
        if state is None or form is None or not state.mass.any():
            cure = "Call update first, with rows that are not ignored."
            raise ValueError(complaint(owner, "rows", "hold at least one", "none", cure))
        rows, labels, weight = state.rows()
        many = form[0] == "multilabel"
        if isinstance(state, Histogram) and not many:
            rows = torch.cat([torch.zeros_like(rows), rows], 1)
            labels, weight = labels.squeeze(1), weight.squeeze(1)
        rule = fit_rows(
            owner,
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
            counted=int(state.counts.sum() / (len(state.counts) if many else 1)),
        )
        if isinstance(state, Histogram):  # whose last bins hold all rows beyond them
            gain = one_label_beyond(rule.gain, rule.log_odds, BINS / 2 * WIDTH)
            rule = replace(rule, gain=gain)
        return rule
