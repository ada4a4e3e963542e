"""The best epochs of a training, by the validation loss and by each metric, and their test.

`tabular` trains many networks of rows at once; images, frames and AP-Perf train one at a time, of
which `fit_binary` is the common part.
"""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from joblib import Parallel, delayed
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from evalign.core.metrics import MetricFunction
from evalign.decisions import fit_decision
from evalign.losses.temperature import HasTemperature
from evalign.training import Settings, TemperatureAnnealing, TrainingWarning, fit
from evalign_study.records.results import Record, record
from evalign_study.records.run import BINARY, LOSS, MULTICLASS, Run, scores, triples
from evalign_study.trainers.methods import OPTIMIZER, Method, cooling
from evalign_study.trainers.prepared import Rows

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # BtG averages over them
MOST_TUNED = 100  # classes; with more, fitting a rule takes longer than training


class Picks:
    """Told of epochs, it keeps the logits of the best ones: all that is needed to assess them.

    An epoch whose loss is not finite is no best one. A training without any other has diverged,
    and counts as a model that says the first class of every row.

    Args:
        validation: labels of the validation rows.
        test: labels of the test rows.
        classes: how many there are.
        offsets: see `Method`.
    """

    def __init__(
        self, validation: Tensor, test: Tensor, classes: int, offsets: Tensor | float = 0.0
    ) -> None:
        self.labels = validation.cpu(), test.cpu()
        self.classes, self.offsets = classes, offsets
        self.names = BINARY if classes == 2 else MULTICLASS
        self.best: dict[str, _Pick] = {}

    @property
    def diverged(self) -> bool:
        return not self.best

    @property
    def epoch(self) -> int:
        """The best by the loss; 0 before there is one."""
        return self.best[LOSS].epoch if self.best else 0

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
        validation = finite(validation)
        metrics = self._metrics(validation)
        found = {LOSS: -loss, **metrics} if math.isfinite(loss) else {}
        better = {
            name: score
            for name, score in found.items()
            if name not in self.best or score > self.best[name].score
        }
        if better:
            known, unseen = validation + self.offsets, finite(test()) + self.offsets
            for name, score in better.items():
                self.best[name] = _Pick(epoch, score, loss, metrics, known, unseen)
        return metrics

    def assessed(
        self,
        target: str | MetricFunction,
        *,
        thresholds: Sequence[float] = THRESHOLDS,
    ) -> dict[str, Any]:
        """The "picks" of a record.

        Args:
            target: what decisions of the pick by loss are tuned for.
            thresholds: on the probability of the positive class, where there are two.
        """
        best = self.best or dict.fromkeys((LOSS, *self.names), self._constant())
        validation, test = self.labels
        calls = (
            delayed(assess)(
                (pick.validation, validation),
                (pick.test, test),
                target if name == LOSS else name,
                self.names,
                thresholds=thresholds,
            )
            for name, pick in best.items()
        )
        # A GPU must not wait for one core of many.
        at_once = len(best) if torch.cuda.is_available() else 1
        found: Any = Parallel(n_jobs=at_once, prefer="threads")(calls)
        if self.diverged:  # no decision makes something of nothing
            for of in found:
                of["test"] = dict.fromkeys(of["test"], of["test"]["argmax"])
        return {
            name: {
                "epoch": pick.epoch,
                "validation_loss": pick.loss,
                "validation": pick.metrics,
                **assessed,
            }
            for (name, pick), assessed in zip(best.items(), found, strict=True)
        }

    def _metrics(self, validation: Tensor) -> dict[str, float]:
        matrix = triples(validation.argmax(1), self.labels[0])
        return scores(matrix, self.classes, self.names)

    def _constant(self) -> "_Pick":
        known, unseen = (torch.zeros(len(y), self.classes) for y in self.labels)
        return _Pick(0, -math.inf, math.nan, self._metrics(known), known, unseen)


class _Pick(NamedTuple):
    epoch: int
    score: float  # by its criterion, larger is better
    loss: float
    metrics: dict[str, float]
    validation: Tensor
    test: Tensor


def assess(
    validation: Rows,
    test: Rows,
    metric: str | MetricFunction,
    names: tuple[str, ...],
    *,
    thresholds: Sequence[float] = (),
) -> dict[str, Any]:
    """The "test" of a pick, and of two classes the "auroc".

    Args:
        validation: (logits, y), on which the tuned decision is fitted.
        test: (logits, y) to assess.
        metric: what the tuned decision is for; with more than MOST_TUNED classes there is none.
        names: the metrics to report.
        thresholds: on the probability of class 1 of two, as further decisions.
    """
    logits, y = test
    classes = logits.shape[1]
    labels = {"argmax": logits.argmax(1)}
    if classes <= MOST_TUNED:
        labels["tuned"] = fit_decision(*validation, metric=metric, decision="tuned")(logits)
    for threshold in thresholds if classes == 2 else ():
        labels[f"{threshold:g}"] = (logits.double().softmax(1)[:, 1] > threshold).long()
    found: dict[str, Any] = {}
    for decision, predicted in labels.items():
        matrix = triples(predicted, y)
        found[decision] = {"matrix": matrix, **scores(matrix, classes, names)}
    if classes > 2:
        return {"test": found}
    return {"test": found, "auroc": float(roc_auc_score(y, (logits[:, 1] - logits[:, 0]).double()))}


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
    picks = Picks(validation[1].flatten(), test[1].flatten(), 2, method.offsets)

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
        capped=run.capped(len(history), picks.epoch),
        seconds=time.perf_counter() - start,
        picks=picks.assessed(method.target),
        diverged=picks.diverged,
    )


def annealing(run: Run, method: Method) -> TemperatureAnnealing | None:
    """By the validation loss; None for a run that is not annealed."""
    if run.rate is None:
        return None
    soft = next(part for part in method.loss.modules() if isinstance(part, HasTemperature))
    return TemperatureAnnealing(soft, greater_is_better=False, **cooling(run.rate, run.patience))


def flat(logits: Tensor) -> Tensor:
    """From (N, C, ...) to a row of C logits for each label."""
    return logits.movedim(1, -1).flatten(0, -2)


def finite(logits: Tensor) -> Tensor:
    """On the CPU. Of a row with a logit that is not finite nothing is known: all classes alike."""
    return torch.where(logits.isfinite().all(1, keepdim=True), logits, 0.0).cpu()
