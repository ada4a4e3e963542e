"""Fit a rule to a stream of batches, or to parts of the data that several processes hold."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from evalign.core import stairs
from evalign.core.checks import complaint, require
from evalign.core.metrics import MetricFunction, resolve
from evalign.core.metrics.function import FunctionMetric
from evalign.core.task import Task
from evalign.decisions.classes import CODED, codes_of, is_multilabel, is_truth
from evalign.decisions.fit_rows import fit_rows
from evalign.decisions.objective import Objective
from evalign.decisions.rule import DecisionRule
from evalign.decisions.saved_rule import Decision
from evalign.decisions.settings import FitSettings, Rows, read_rows

if TYPE_CHECKING:
    from evalign.decisions.inputs import Values

Ranks = Literal["all", "own"]
OWNER = "DecisionFitter"


class Part(NamedTuple):
    """Rows of a stream in their order, with a random key for each; the label −1 means none.

    `truth` tells labels that were False and True from those that were 0 and 1.
    """

    rows: Rows
    keys: np.ndarray
    truth: bool = False

    def with_keys_up_to(self, most: np.uint64) -> "Part":
        kept = np.flatnonzero(self.keys <= most)
        return self._replace(rows=self.rows.chosen(kept), keys=self.keys[kept])


# The stream of a fitter, and the rank of its process.
Source = tuple[int, int]


class DecisionFitter:
    """Fits a rule to a stream of batches, such as a validation loop, in bounded memory.

    Up to `max_rows` rows the rule is that of `fit_decision`. Beyond, it is fitted to a uniform
    random sample of the rows, the same in every run: those with the smallest random keys, so that
    the samples of several processes combine. Fitters of parts of the data, made anywhere and
    pickled, become one by `merge`. All processes of `torch.distributed` must call `compute`.

    Args:
        stream: the number of this part of the data, if others are merged with it. It seeds the
            random keys.
        max_rows: the number of rows to keep; up to twice as many are held in memory.
        ranks: "all" processes, or "own" for a rule from the rows of this process alone.

    The other arguments are those of `fit_decision`.

    Examples:
        >>> fitter = DecisionFitter("f1", decision="expected")
        >>> for logits in np.array([[-2.0, -0.5], [-0.4, -2.0]]):
        ...     fitter.update(logits)
        >>> fitter.compute()(np.array([-2.0, -0.4]))
        array([0, 1])
        >>> parts = [DecisionFitter("f1", stream=k) for k in range(2)]
        >>> for k, part in enumerate(parts):
        ...     part.update([-1.0, 0.5 * k, 2.0], [0, k, 1])
        >>> parts[0].merge(parts[1]).compute().rows
        6
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
        pos_label: Any = None,
        offsets: "Values | None" = None,
        ignore_index: int = -100,
        class_dim: int | None = None,
        stream: int = 0,
        max_rows: int = 2**17,
        ranks: Ranks = "all",
    ) -> None:
        self.settings = FitSettings(
            OWNER,
            metric,
            decision,
            task,
            constraint,
            confidence,
            classes,
            ignore_index,
            class_dim,
            pos_label,
            classes,
        )
        Objective.of(OWNER, metric, constraint, classes)  # refuses a gap
        require(max_rows >= 1, OWNER, "max_rows", "be at least 1", max_rows)
        require(ranks in ("all", "own"), OWNER, "ranks", "be one of all, own", repr(ranks))
        require(
            isinstance(stream, Integral) and 0 <= stream < 2**64,
            OWNER,
            "stream",
            "be an integer from 0 to 2**64 - 1",
            repr(stream),
        )
        self.offsets = offsets
        self.max_rows = max_rows
        self.ranks = ranks
        self.stream = int(stream)
        self.reset()

    def reset(self) -> None:
        """Forget all rows, also those of merged fitters."""
        process = stairs.ranks() if self.ranks == "all" else None
        self._source: Source = (self.stream, 0 if process is None else process.rank)
        # Its raw numbers are the same in every version of NumPy, and never those of another source.
        self._generator = np.random.Philox(key=np.array(self._source, dtype=np.uint64))
        self._parts: dict[Source, list[Part]] = {self._source: []}

    def update(
        self,
        logits: "Values | None" = None,
        y: "Values | None" = None,
        *,
        probabilities: "Values | None" = None,
        sample_weight: "Values | None" = None,
    ) -> None:
        """Add the rows of a batch, which may be empty, with arguments as of `fit_decision`."""
        settings = self.settings
        first = self._first()
        if first is not None:
            settings = replace(settings, task="multilabel" if first.multilabel else "multiclass")
        scores = logits if probabilities is None else probabilities
        if y is not None and not is_multilabel(scores, y, settings.task):
            codes = codes_of(OWNER, y, settings.classes, settings.ignore_index)
            if codes is not None:
                y = codes
                settings = replace(settings, ignore_index=CODED)
        rows, _ = read_rows(settings, logits, y, probabilities, sample_weight)
        if first is not None:
            columns = first.logits.shape[1]
            require(
                rows.logits.shape[1] == columns,
                OWNER,
                "logits",
                f"have {columns} columns, as before",
                rows.logits.shape[1],
            )
        keys = self._generator.random_raw(len(rows.logits))
        if rows.y is None:
            rows = rows._replace(y=np.full(rows.weight.shape, -1))
        counted = np.flatnonzero(rows.counted)
        truth = is_truth(y) and not rows.multilabel
        self._parts[self._source].append(Part(rows.chosen(counted), keys[counted], truth))
        self._drop_surplus(2 * self.max_rows)

    def merge(self, other: "DecisionFitter") -> Self:
        """Add the rows of another fitter, which stays as it is, and return this one.

        The other needs the same arguments, but for a `stream` of its own. The order of merging
        does not matter: the rows count in the order of their streams.

        Raises:
            ValueError: if the fitters disagree, or have the same stream, also without rows yet.
        """
        self._check_settings(other)
        self._add(other._parts)
        return self

    def compute(self) -> DecisionRule:
        """Fit the rule to all rows since the last `reset`. It is the same on all ranks."""
        whole = self._of_all_ranks()
        whole._drop_surplus(whole.max_rows)
        every = [part for _, parts in sorted(whole._parts.items()) for part in parts]
        parts = [part.rows for part in every]
        if not parts:
            cure = "Call update first."
            raise ValueError(complaint(OWNER, "rows", "hold at least one", "none", cure))
        logits, y, weight = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        labels = None if (y < 0).any() else y  # labels of some rows alone say little of the others
        rows = Rows(np.asfortranarray(logits), labels, weight)
        settings = self.settings
        if settings.classes is None and rows.logits.shape[1] == 2 and all(p.truth for p in every):
            settings = replace(settings, classes=[False, True])
        return fit_rows(settings, rows, self.offsets)

    def _first(self) -> Rows | None:
        """Some of the rows, which tell the form of all others."""
        return next((parts[0].rows for parts in self._parts.values() if parts), None)

    def _drop_surplus(self, most: int) -> None:
        """Keep the `max_rows` rows with the smallest keys, where there are more than `most`."""
        keys = [part.keys for parts in self._parts.values() for part in parts]
        if sum(map(len, keys)) <= most:
            return
        last = self.max_rows - 1
        largest_kept = np.partition(np.concatenate(keys), last)[last]
        for parts in self._parts.values():
            parts[:] = [part.with_keys_up_to(largest_kept) for part in parts]

    def _add(self, others: dict[Source, list[Part]]) -> None:
        """Add the parts of others, whose form and sources are checked first."""
        repeated = sorted(self._parts.keys() & others.keys())
        require(
            not repeated,
            OWNER,
            "stream",
            "differ between fitters that are merged",
            f"{repeated[0][0]} in both" if repeated else "",
            "Rows of one stream have the same random keys. Give each part a number of its own: "
            "DecisionFitter(..., stream=k).",
        )
        mine = self._first()
        theirs = next((parts[0].rows for parts in others.values() if parts), None)
        if mine is not None and theirs is not None:
            forms = [
                f"{rows.logits.shape[1]} {'labels' if rows.multilabel else 'classes'}"
                for rows in (mine, theirs)
            ]
            require(
                forms[0] == forms[1],
                OWNER,
                "other",
                f"have rows of {forms[0]}, as this fitter",
                forms[1],
            )
        for source, parts in others.items():
            self._parts[source] = list(parts)
        self._drop_surplus(2 * self.max_rows)

    def _check_settings(self, other: "DecisionFitter") -> None:
        """Check that another fitter has the same arguments."""
        if not isinstance(other, DecisionFitter):
            allowed = "be a DecisionFitter"
            raise TypeError(complaint(OWNER, "other", allowed, type(other).__name__))
        mine = self._arguments()
        theirs = other._arguments()
        for name, value in mine.items():
            require(
                value == theirs[name],
                OWNER,
                "other",
                f"be made with {name}={value!r}, as this fitter",
                repr(theirs[name]),
            )

    def _arguments(self) -> dict[str, object]:
        """The arguments that decide about the rule, in a form that can be compared."""
        metric = resolve(self.settings.metric, owner=OWNER)
        # A function that was pickled comes back as a copy, and its name is what stays.
        metric = metric.name if isinstance(metric, FunctionMetric) else metric
        classes = self.settings.classes
        offsets = self.offsets
        return {
            "metric": metric,
            "decision": self.settings.decision,
            "task": self.settings.task,
            "constraint": self.settings.constraint,
            "confidence": self.settings.confidence,
            "classes": None if classes is None else list(classes),
            "offsets": None if offsets is None else np.asarray(stairs.as_numpy(offsets)).tolist(),
            "ignore_index": self.settings.ignore_index,
            "class_dim": self.settings.class_dim,
            "max_rows": self.max_rows,
        }

    def _of_all_ranks(self) -> "DecisionFitter":
        """A fitter with the rows of all ranks, or with those of this process alone."""
        whole = copy(self)
        if self.ranks == "own" or stairs.ranks() is None:
            whole._parts = {source: list(parts) for source, parts in self._parts.items()}
            return whole
        mine = copy(self)
        mine._parts = {source: list(parts) for source, parts in self._parts.items()}
        mine._drop_surplus(mine.max_rows)
        whole._parts = {}
        for parts in stairs.gathered(mine._parts):
            whole._add(parts)
        return whole
