"""One training, epoch by epoch, and its best epochs: by the validation loss, and by each metric.

`tabular` trains many networks of rows at once; here is what images, frames and AP-Perf share.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from joblib import Parallel, delayed
from torch import Tensor, nn

from evalign.core.metrics import MetricFunction
from evalign.losses.base import SoftSetLoss
from evalign.study.methods import Method, cooling
from evalign.study.prepared import Rows
from evalign.study.records import Record, record
from evalign.study.run import BINARY, LOSS, MULTICLASS, Run, scores, triples
from evalign.study.tabular import OPTIMIZER, THRESHOLDS, assess
from evalign.training import Settings, TemperatureAnnealing, TrainingWarning, fit


class Picks:
    """Told of every epoch, it keeps the logits of the best ones: all that is needed to assess them.

    Args:
        validation: labels of the validation rows.
        test: labels of the test rows.
        classes: how many there are.
    """

    def __init__(self, validation: Tensor, test: Tensor, classes: int) -> None:
        self.labels = validation.cpu(), test.cpu()
        self.classes = classes
        self.names = BINARY if classes == 2 else MULTICLASS
        self.best: dict[str, _Pick] = {}

    def tell(
        self, epoch: int, loss: float, validation: Tensor, test: Callable[[], Tensor]
    ) -> dict[str, float]:
        """Take note of an epoch.

        Args:
            epoch: its number.
            loss: of the validation rows.
            validation: their logits.
            test: the logits of the test rows, asked for where the epoch is a best one.

        Returns:
            The metrics of the validation rows.
        """
        validation = _finite(validation)
        matrix = triples(validation.argmax(1), self.labels[0])
        metrics = scores(matrix, self.classes, self.names)
        better = {
            name: score
            for name, score in {LOSS: -loss, **metrics}.items()
            if name not in self.best or score > self.best[name].score
        }
        if better:
            logits = _finite(test())
            for name, score in better.items():
                self.best[name] = _Pick(epoch, score, loss, metrics, validation, logits)
        return metrics

    def assessed(self, target: str | MetricFunction) -> dict[str, Any]:
        """The "picks" of a record. For the pick by loss, decisions are tuned for `target`."""
        validation, test = self.labels
        calls = (
            delayed(assess)(
                (pick.validation, validation),
                (pick.test, test),
                target if name == LOSS else name,
                self.names,
                thresholds=THRESHOLDS if self.classes == 2 else (),
            )
            for name, pick in self.best.items()
        )
        # A GPU must not wait for one core of many.
        at_once = len(self.best) if torch.cuda.is_available() else 1
        found: Any = Parallel(n_jobs=at_once, prefer="threads")(calls)
        return {
            name: {
                "epoch": pick.epoch,
                "validation_loss": pick.loss,
                "validation": pick.metrics,
                **assessed,
            }
            for (name, pick), assessed in zip(self.best.items(), found, strict=True)
        }


class _Pick(NamedTuple):
    epoch: int
    score: float  # by its criterion, larger is better
    loss: float
    metrics: dict[str, float]
    validation: Tensor
    test: Tensor


def fit_binary(
    run: Run,
    build: Callable[[], nn.Module],
    method: Method,
    training: Rows,
    validation: Rows,
    test: Rows,
) -> Record:
    """Train a network of two classes by itself, with `fit`.

    Args:
        run: how.
        build: makes the network, from rows to logits (N, 2, ...).
        method: with what.
        training: (X, y), like `validation` and `test`, y of shape (N, ...).
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(run.seed)
        network = build()
    picks = Picks(validation[1].flatten(), test[1].flatten(), 2)

    def logits(X: Tensor) -> Tensor:
        with torch.no_grad():
            return flat(network(X))

    def on_epoch(epoch: dict[str, Any]) -> None:
        loss = epoch["validation_loss"]
        picks.tell(epoch["epoch"], loss, logits(validation[0]), lambda: logits(test[0]))

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
    with warnings.catch_warnings():  # a method that fails is a result
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
        capped=run.capped(len(history), picks.best[LOSS].epoch),
        seconds=time.perf_counter() - start,
        picks=picks.assessed(method.target),
    )


def annealing(run: Run, method: Method) -> TemperatureAnnealing | None:
    """By the validation loss; None for a run that is not annealed."""
    if run.rate is None:
        return None
    soft = next(part for part in method.loss.modules() if isinstance(part, SoftSetLoss))
    return TemperatureAnnealing(soft, greater_is_better=False, **cooling(run.rate, run.patience))


def flat(logits: Tensor) -> Tensor:
    """From (N, C, ...) to a row of C logits for each label."""
    return logits.movedim(1, -1).flatten(0, -2)


def _finite(logits: Tensor) -> Tensor:
    """On the CPU. A network that has diverged says nothing: all classes alike."""
    return torch.where(logits.isfinite().all(1, keepdim=True), logits, 0.0).cpu()
