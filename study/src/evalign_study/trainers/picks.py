"""The best epochs of a training, by the validation loss and each metric, and their test scores.

`tabular` trains many networks at once. Images, frames and AP-Perf train one at a time, for which
`fit_binary` is the common part.
"""

import math
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from joblib import Parallel, delayed
from torch import Tensor, nn

from evalign.core.metrics import MetricFunction
from evalign.training import Settings, TemperatureAnnealing, TrainingWarning, fit
from evalign.training.annealing import part_with_temperature
from evalign_study.records.made import Record, record
from evalign_study.records.run import BINARY, LOSS, MULTICLASS, Run, scores, triples
from evalign_study.trainers.decisions import THRESHOLDS, Pick, decide
from evalign_study.trainers.following import offsets_now
from evalign_study.trainers.methods import OPTIMIZER, Method, cooling
from evalign_study.trainers.prepared import Rows


class Picks:
    """The logits of the best epochs so far, by each criterion.

    An epoch whose loss is not finite is never the best. A training without any other epoch has
    diverged, and counts as a model that predicts the first class for every row.

    Args:
        validation: labels of the validation rows.
        test: labels of the test rows.
        classes: the number of classes.
        offsets: see `Method`.
    """

    def __init__(
        self, validation: Tensor, test: Tensor, classes: int, offsets: Tensor | float | None = 0.0
    ) -> None:
        self.labels = validation.cpu(), test.cpu()
        self.classes, self.offsets = classes, offsets
        self.names = BINARY if classes == 2 else MULTICLASS
        self.best: dict[str, _Candidate] = {}

    @property
    def diverged(self) -> bool:
        return not self.best

    @property
    def epoch(self) -> int:
        """The number of the best epoch by the loss; 0 before there is one."""
        return self.best[LOSS].pick.epoch if self.best else 0

    def tell(
        self,
        epoch: int,
        loss: float,
        validation: Tensor,
        test: Callable[[], Tensor],
        offsets: Tensor | None = None,
    ) -> dict[str, float]:
        """Take note of an epoch.

        Args:
            epoch: its number.
            loss: the loss of the validation rows.
            validation: the logits of the validation rows.
            test: computes the logits of the test rows; called only if the epoch is a best one.
            offsets: those of this epoch, where they change.

        Returns:
            The metrics of the validation rows.
        """
        validation = finite(validation)
        metrics = self._metrics(validation)
        found = {LOSS: -loss, **metrics} if math.isfinite(loss) else {}
        better = {
            name: score
            for name, score in found.items()
            if name not in self.best or score > self.best[name].score
        }
        if better:
            shift = self.offsets if offsets is None else offsets.float().cpu()
            assert shift is not None, "a loss without offsets of its own has those of its method"
            known, unseen = validation + shift, finite(test()) + shift
            for name, score in better.items():
                self.best[name] = _Candidate(Pick(epoch, known, unseen), score, loss, metrics)
        return metrics

    def assessed(self, target: str | MetricFunction, *, thresholds: bool = True) -> dict[str, Any]:
        """Make the "picks" of a record.

        Args:
            target: the metric for which the decisions of the pick by loss are tuned.
            thresholds: whether to add decisions by fixed thresholds, if there are two classes.
        """
        best = self.best or dict.fromkeys((LOSS, *self.names), self._constant())
        further = THRESHOLDS if thresholds and self.classes == 2 else ()
        calls = (
            delayed(decide)(
                candidate.pick,
                *self.labels,
                target if name == LOSS else name,
                names=self.names,
                decisions=("argmax", "tuned", *further),
            )
            for name, candidate in best.items()
        )
        # Rules are fitted in parallel, so that a GPU does not wait for a single core.
        at_once = len(best) if torch.cuda.is_available() else 1
        decided: Any = Parallel(n_jobs=at_once, prefer="threads")(calls)
        return {
            name: {"validation_loss": candidate.loss, "validation": candidate.metrics, **found}
            for (name, candidate), found in zip(best.items(), decided, strict=True)
        }

    def _metrics(self, validation: Tensor) -> dict[str, float]:
        matrix = triples(validation.argmax(1), self.labels[0])
        return scores(matrix, self.classes, self.names)

    def _constant(self) -> "_Candidate":
        validation, test = self.labels
        pick = Pick.constant(len(validation), len(test), self.classes)
        return _Candidate(pick, -math.inf, math.nan, self._metrics(pick.validation))


class _Candidate(NamedTuple):
    """A pick, its score by its criterion (larger is better), and its further fields."""

    pick: Pick
    score: float
    loss: float
    metrics: dict[str, float]


def fit_binary(
    run: Run,
    build: Callable[[], nn.Module],
    method: Method,
    training: Rows,
    validation: Rows,
    test: Rows,
) -> Record:
    """Train one network of two classes with `fit`.

    Args:
        run: how to train.
        build: makes the network, from rows to logits (N, 2, ...).
        method: the loss to train with.
        training: (X, y) with y of shape (N, ...), as are `validation` and `test`.
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(run.seed)
        network = build()
    picks = Picks(validation[1].flatten(), test[1].flatten(), 2, method.offsets)

    def logits(X: Tensor) -> Tensor:
        with torch.no_grad():
            return flat(network(X))

    def on_epoch(epoch: dict[str, Any]) -> None:
        loss = epoch["validation_loss"]
        known, unseen = logits(validation[0]), lambda: logits(test[0])
        picks.tell(epoch["epoch"], loss, known, unseen, offsets_now(method.loss))

    settings = Settings(
        epochs=run.epochs,
        batch_size=run.batch_size,
        learning_rate=run.learning_rate,
        patience=run.patience,
        watch="loss",
        seed=run.seed,
        **OPTIMIZER,
    )
    start = time.perf_counter()
    with warnings.catch_warnings():  # a method that fails is a result to be recorded
        warnings.simplefilter("ignore", TrainingWarning)
        history = fit(
            network,
            method.loss,
            *training,
            validation=validation,
            metric=method.target,
            settings=settings,
            annealing=annealing(run, method),
            on_epoch=on_epoch,
        )
    return record(
        run,
        epochs=len(history),
        capped=run.capped(len(history), picks.epoch),
        seconds=time.perf_counter() - start,
        picks=picks.assessed(method.target),
        diverged=picks.diverged,
    )


def annealing(run: Run, method: Method) -> TemperatureAnnealing | None:
    """Make the annealing by the validation loss; None for a run without annealing."""
    if run.rate is None:
        return None
    soft = part_with_temperature(method.loss)
    assert soft is not None, "a method without a temperature is not annealed"
    return TemperatureAnnealing(soft, greater_is_better=False, **cooling(run.rate, run.patience))


def flat(logits: Tensor) -> Tensor:
    """Reshape logits (N, C, ...) to a row of C logits for each label."""
    return logits.movedim(1, -1).flatten(0, -2)


def finite(logits: Tensor) -> Tensor:
    """Move logits to the CPU; set all of a row to one value if any of them is not finite."""
    return torch.where(logits.isfinite().all(1, keepdim=True), logits, 0.0).cpu()
