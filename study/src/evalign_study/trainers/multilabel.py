"""Networks for multilabel tables, and the thresholds that turn their logits into labels.

The network and its trainer are those of `AlignedClassifier` with an MLP, for every loss. The epoch
is the best by the macro-F1 of the validation rows, of probabilities above 0.5. Thresholds are
fitted on these rows too. F1 of samples is the mean over rows of the F1 of a row's labels; no rule
is fitted for it, and those for micro-F1, which also weighs labels by their number, stand in.
"""

import time
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import f1_score
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from evalign import fit_decision, losses
from evalign.training import Settings, TrainingWarning, fit, three_way_split
from evalign_study.data import load
from evalign_study.data.standardizer import Standardizer
from evalign_study.networks import mlp
from evalign_study.records.made import Record, record
from evalign_study.records.run import Run
from evalign_study.refusals import require
from evalign_study.refuted.counted import CountedLoss
from evalign_study.trainers.batch_size import usual_batch_size
from evalign_study.trainers.decisions import DECISIONS
from evalign_study.trainers.following import FOLLOWING, offsets_now, settings_of
from evalign_study.trainers.methods import Method
from evalign_study.trainers.prepared import Rows
from evalign_study.trainers.recipe import USUAL

MACRO, MICRO, SAMPLES = METRICS = ("f1_macro", "f1_micro", "f1_samples")
FITTED = {MACRO: MACRO, MICRO: MICRO, SAMPLES: MICRO}  # what rules are fitted for


class AsymmetricLoss(nn.Module):
    """Binary cross-entropy in which easy negatives count little (Ridnik et al., ICCV 2021).

    With their γ+ = 0, γ− = 4 and m = 0.05: −log p for a label, and −q⁴ log(1 − q) where it is
    absent, with q = max(p − m, 0).
    """

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        q = (logits.sigmoid() - 0.05).clamp(min=0)
        absent = -(q**4) * (1 - q).log()
        return torch.where(target > 0, -nn.functional.logsigmoid(logits), absent).mean()


def _aligned(metric: str, y: Tensor) -> Method:
    counts = torch.stack([(1 - y).sum(0), y.sum(0)], 1).clamp(min=1)
    loss = CountedLoss(metric, counts, task="multilabel")
    return Method(loss, False, metric, loss.offsets.float())


def _following(method: str) -> Method:
    """Our loss with offsets that follow the classifier, for macro-F1 or as its name ends."""
    settings, end = settings_of(method)
    metric = f"f1_{end or 'macro'}"
    loss = losses.AlignedLoss(metric, ranks="own", task="multilabel", **settings)
    return Method(loss, False, metric, None)


OURS = {MACRO: "following_macro", MICRO: "following_micro", SAMPLES: "following_micro"}
RIVALS: dict[str, Callable[[Tensor], Method]] = {
    "binary_cross_entropy": lambda y: Method(nn.BCEWithLogitsLoss(), False, MACRO),
    "asymmetric": lambda y: Method(AsymmetricLoss(), False, MACRO),
    "sigmoid_f1": lambda y: Method(losses.SigmoidF1Loss(task="multilabel"), False, MACRO),
}
METHODS = RIVALS | {  # ours of before, with offsets from counts
    "aligned_macro": partial(_aligned, MACRO),
    "aligned_micro": partial(_aligned, MICRO),
}


def make(method: str, y: Tensor) -> Method:
    """Make a method for the labels that it is to be trained on."""
    if method.startswith(FOLLOWING):
        return _following(method)
    allowed = f"be one of {', '.join(METHODS)}"
    require(method in METHODS, "train_multilabel", "method", allowed, repr(method))
    return METHODS[method](y)


class Parts(NamedTuple):
    """Rows (X, y) of the three parts."""

    training: Rows
    validation: Rows
    test: Rows


class MultilabelOutcome(NamedTuple):
    """A trained network's logits and the labels of the validation and test rows.

    `offsets` turn the logits into log-odds; `history` and `best` are the epochs of training.
    """

    logits: Tensor
    known: Tensor
    test: Tensor
    unseen: Tensor
    offsets: Tensor | float
    history: list[dict[str, Any]]
    best: int


def train_multilabel(run: Run) -> Record:
    """Train a network, fit the rules, and score the labels of each."""
    start, trained = time.perf_counter(), train_network(run)
    picks = {metric: decided(metric, *trained[:5]) for metric in METRICS}
    return record(
        run,
        epochs=len(trained.history),
        capped=False,
        seconds=time.perf_counter() - start,
        picks={
            metric: {"epoch": trained.best, "decisions": found} for metric, found in picks.items()
        },
    )


def train_network(run: Run) -> MultilabelOutcome:
    """Train a network on one core, so that runs side by side do not wait for each other."""
    rows = prepare(run.dataset, run.split_seed, run.rows)
    (X, y), (_, known), (_, unseen) = rows
    method = make(run.method, y)
    with threadpool_limits(1), torch.random.fork_rng([]):
        torch.set_num_threads(1)
        torch.manual_seed(run.seed)
        network = mlp(X.shape[1], y.shape[1], dropout=USUAL.dropout)
        settings = Settings(
            epochs=run.epochs,
            batch_size=usual_batch_size(len(X)),
            learning_rate=USUAL.learning_rate,
            weight_decay=USUAL.weight_decay,
            ema_decay=USUAL.ema_decay,
            patience=None,
            seed=run.seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)
            history = fit(
                network,
                method.loss,
                X,
                y,
                validation=rows.validation,
                metric=MACRO,
                settings=settings,
            )
        with torch.no_grad():
            logits, test = (network(x).nan_to_num() for x, _ in rows[1:])
    best = max((epoch["epoch"] for epoch in history if epoch["best"]), default=0)
    now = offsets_now(method.loss)  # of the weights that are kept
    offsets = method.offsets if now is None else now.float()
    assert offsets is not None, "only a loss with offsets of its own leaves them open"
    return MultilabelOutcome(logits, known, test, unseen, offsets, history, best)


@lru_cache(maxsize=1)
def prepare(name: str, split_seed: int, most: int | None) -> Parts:
    """Load and split a data set. Numbers are standardised; words, 0 or 1, stay as they are."""
    dataset = load(name)
    parts = three_way_split(dataset.y, groups=dataset.groups, seed=split_seed)
    X, y = torch.from_numpy(dataset.X), torch.from_numpy(dataset.y).float()
    if not np.isin(dataset.X, (0, 1)).all():
        X = Standardizer(X[parts[0]])(X)
    return Parts(*((X[part[:most]], y[part[:most]]) for part in parts))


def decided(
    metric: str,
    logits: Tensor,
    known: Tensor,
    test: Tensor,
    unseen: Tensor,
    offsets: Tensor | float,
) -> dict[str, dict[str, object]]:
    """Score every decision on the validation rows and on the test rows.

    Only a tuned rule is given labels, and its own score is of rows that it has not seen.
    """
    found: dict[str, dict[str, object]] = {}
    for decision in DECISIONS:
        rule = fit_decision(
            logits,
            known if decision == "tuned" else None,
            metric=FITTED[metric],
            decision=decision,
            task="multilabel",
            offsets=offsets + torch.zeros(known.shape[1]),
        )
        own = rule.score if FITTED[metric] == metric else None
        validation = score(metric, rule(logits), known) if own is None else own
        found[decision] = {
            "validation": validation,
            "test": {metric: score(metric, rule(test), unseen)},
        }
    return found


def score(metric: str, labels: Tensor, y: Tensor) -> float:
    """Compute the F1 of labels (N, L); labels that neither occur nor are given count as 0."""
    average = metric.removeprefix("f1_")
    none: Any = 0
    return float(f1_score(y.numpy(), labels.numpy(), average=average, zero_division=none))
