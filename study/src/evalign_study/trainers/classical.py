"""Methods other than our own losses: forest, boosting, linear CCS, and AP-Perf.

**CCS.** EAST compares with a linear classifier and the convex calibrated surrogates of Zhang,
Ramaswamy and Agarwal (ICML 2020). They are for rows with several labels: with s labels there are
s² + 1 logistic problems, "label j is there, and k labels in all" and "no label is there", and the
set to predict is the one with the largest expected F1 of that row. A row of a class problem has
one label. Then only the problems with k = 1 are left, one for each class against the rest. The
expected F1 of a set of one label is the probability of that class, so the best set is the most
probable class. So on classes CCS is a linear one-against-the-rest logistic regression, for two
classes plain logistic regression, which is what is trained here.

EAST Table 2 prints for it, on CIFAR-10, an accuracy of .111 beside a macro-F1 of .004. No
confusion matrix has both: an F1 of class c is 2 tp / (predicted + actual) and at least
2 tp / (N + N/10), so that ten classes with an accuracy of .111 have a macro-F1 of .0202 or more.
The printed baseline is broken, not the method.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from torch import Tensor, nn

from evalign_study.data import card, load
from evalign_study.records.made import Record, record
from evalign_study.records.run import Run
from evalign_study.refusals import require
from evalign_study.trainers import images
from evalign_study.trainers.methods import NETWORKS, Method
from evalign_study.trainers.picks import Picks, fit_binary
from evalign_study.trainers.prepared import Prepared, Rows, prepare

VARIANCE = 0.8  # share that the principal components of images keep (EAST Table 2)
OF_IMAGES = ("caltech256_clip",)  # features that were computed from images
RAREST = 1e-6  # the least probability, as a forest may give 0, whose logarithm is not finite

# Each maps a seed to estimators, of which the one with the smallest validation loss is taken. Their
# parameters are scikit-learn's defaults, except l2, without which boosting diverges on very rare
# classes.
ESTIMATORS: dict[str, Callable[[int], list[Any]]] = {
    "random_forest": lambda seed: [RandomForestClassifier(random_state=seed)],
    "gradient_boosting": lambda seed: [
        HistGradientBoostingClassifier(random_state=seed, l2_regularization=l2) for l2 in (0, 10)
    ],
    "linear_ccs": lambda seed: [OneVsRestClassifier(LogisticRegression(max_iter=1000))],
}
SEEDLESS = ("linear_ccs",)  # nothing is random, so all seeds have the same model
CLASSICAL = (*ESTIMATORS, "ap_perf")


def train_classical(run: Run) -> Record:
    """Train a classical method.

    An estimator is one model, so that picks differ only in the metric that decisions are tuned for.
    AP-Perf trains a network, with epochs to pick from.
    """
    ok = run.method in CLASSICAL
    allowed = f"be one of {', '.join(CLASSICAL)}"
    require(ok, "train_classical", "method", allowed, repr(run.method))
    if run.method == "ap_perf":
        return _train_ap_perf(run, *_prepared(run))
    return record(run, **_fitted(run.but(seed=0) if run.method in SEEDLESS else run))


@lru_cache(maxsize=1)
def _fitted(run: Run) -> dict[str, Any]:
    """Fit an estimator, and return what its record holds."""
    training, validation, test, classes = _prepared(run)

    def logits(model: Any, X: Tensor) -> Tensor:
        probabilities = np.zeros((len(X), classes))
        probabilities[:, model.classes_] = model.predict_proba(X.numpy())
        return torch.from_numpy(probabilities).clamp(min=RAREST).log()

    start, found = time.perf_counter(), []
    for estimator in ESTIMATORS[run.method](run.seed):
        model = estimator.fit(*(part.numpy() for part in training))
        known = logits(model, validation[0])
        found.append((nn.functional.cross_entropy(known, validation[1]).item(), known, model))
    seconds = time.perf_counter() - start
    loss, known, model = min(found, key=itemgetter(0))
    picks = Picks(validation[1], test[1], classes)
    picks.tell(0, loss, known, lambda: logits(model, test[0]))
    target = "f1" if classes == 2 else "f1_macro"
    return {
        "epochs": 0,
        "capped": False,
        "seconds": seconds,
        "picks": picks.assessed(target),
        "diverged": picks.diverged,
    }


def _prepared(run: Run) -> Prepared:
    return _prepare(run.dataset, run.variant, run.split_seed, run.imbalance, run.rows)


@lru_cache(maxsize=2)
def _prepare(
    name: str, variant: Any, split_seed: int, imbalance: float | None, rows: int | None
) -> Prepared:
    """Prepare rows of features; reduce images to their principal components."""
    image = len(card(name).shape) > 1
    if image:
        dataset = load(name)
        X, y = torch.from_numpy(dataset.X).flatten(1), torch.from_numpy(dataset.y)
        run = Run(dataset=name, variant=variant, method="", network="", split_seed=split_seed)
        training, validation, test = ((X[part], y[part]) for part in images.split(dataset, run))
        prepared = Prepared(training, validation, test, len(dataset.classes))
    else:
        prepared = prepare(name, variant, split_seed, imbalance)
    *parts, classes = prepared.thinned(rows)
    if image or name in OF_IMAGES:
        parts = [((X / 255 if image else X).numpy(), y) for X, y in parts]
        tall = len(parts[0][0]) > parts[0][0].shape[1]  # the covariance is smaller than the data
        pca = PCA(VARIANCE, svd_solver="covariance_eigh" if tall else "full").fit(parts[0][0])
        parts = [(torch.from_numpy(pca.transform(X)), y) for X, y in parts]
    training, validation, test = parts
    return Prepared(training, validation, test, classes)


def _train_ap_perf(run: Run, training: Rows, validation: Rows, test: Rows, classes: int) -> Record:
    """Train AP-Perf (Fathony and Kolter, AISTATS 2020), adversarial F1, by its authors' package.

    Every batch is a game between two distributions over its labels, which is solved on the CPU.
    That takes some tenths of a second for twenty rows and longer for more, so batches are small.
    """
    require(classes == 2, "ap_perf", "dataset", "have two classes", f"{classes} in {run.dataset}")
    method = Method(_AdversarialF1(run.batch_size), False, "f1")

    def build() -> nn.Module:
        return NETWORKS[run.network](training[0].shape[1], 2, run.dropout)

    return fit_binary(run, build, method, training, validation, test)


class _AdversarialF1(nn.Module):
    """The mean over batches of `size` rows; a larger batch of validation rows is divided."""

    def __init__(self, size: int) -> None:
        super().__init__()
        try:
            from ap_perf import (  # pyright: ignore[reportMissingImports]
                MetricLayer,
                PerformanceMetric,
            )
        except ImportError as error:
            text = "The method ap_perf needs the package of that name: pip install ap_perf"
            raise ImportError(text) from error

        class F1(PerformanceMetric):
            def define(self, C: Any) -> Any:
                return 2 * C.tp / (C.ap + C.pp)

        metric = F1()
        metric.initialize()
        metric.enforce_special_case_positive()
        self.size, self.layer = size, MetricLayer(metric)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        # The layer's backward pass ignores the incoming gradient, which is 1 for a single part.
        # Only validation has several parts, and needs no gradient.
        z, y = logits[:, 1] - logits[:, 0], target.to(logits)
        parts = zip(z.split(self.size), y.split(self.size), strict=True)
        return torch.cat([self.layer(*part) for part in parts]).mean()
