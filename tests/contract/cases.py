"""Every loss, for every task it takes, with its independent reference and its exemptions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from evalign import losses, metrics
from tests.reference import losses as reference
from tests.reference import membership
from tests.reference import metrics as reference_metrics

RATE = 0.3  # share of positives that SurrogateFBetaLoss is given; the data may differ
COST = [[0, 1, 2], [3, 0, 1], [1, 5, 0]]
WEIGHTS = {"binary": [0.5, 2.0], "multiclass": [0.5, 1.0, 3.0], "multilabel": [1.0, 2.0, 0.25]}
CLASSES = 3


@dataclass
class Case:
    """A loss on a task. `exempt` maps the name of an invariant to why it does not hold."""

    id: str
    make: Callable[[], losses.MetricLoss]
    task: str
    reference: Callable[[np.ndarray, np.ndarray, np.ndarray], float]
    exempt: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.id}-{self.task}"


def data(task: str, *, rows: int = 24, seed: int = 0, dtype=torch.float64) -> tuple[Tensor, Tensor]:
    """Make random logits, and a target in which every class occurs."""
    generator = torch.Generator().manual_seed(seed)
    shape = (rows,) if task == "binary" else (rows, CLASSES)
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    if task == "multiclass":
        target = torch.randint(CLASSES, (rows,), generator=generator)
        target[:CLASSES] = torch.arange(CLASSES)
    else:
        target = torch.rand(shape, generator=generator) < 0.4
        target[0], target[1] = True, False
    return logits.to(dtype), target


def probabilities(task: str, target: Tensor) -> np.ndarray:
    """Convert the target to what the reference takes."""
    if task == "multiclass":
        target = torch.nn.functional.one_hot(target, CLASSES)
    return target.double().numpy()


def perfect(task: str, target: Tensor, dtype=torch.float64) -> Tensor:
    """Make logits that predict the target with a probability of 1 in floating point."""
    if task == "multiclass":
        target = torch.nn.functional.one_hot(target, CLASSES)
    return (2e3 * target.to(dtype) - 1e3).requires_grad_()


def _metric(id_, name, task, of_matrix, minimised=False, exempt=None, **settings) -> Case:
    metric = name if not callable(name) else name()
    temperature = settings.get("temperature", 0.2)
    heaviside = membership.heaviside_at(temperature, settings.get("heaviside", "linear"))
    thresholds = settings.get("threshold", 0.5)
    grid = thresholds if task == "binary" and isinstance(thresholds, list) else [thresholds]

    def expected(z, y, w):
        return np.mean(
            [
                reference.metric_loss(
                    of_matrix, z, y, w, task, heaviside, threshold=t, minimised=minimised
                )
                for t in grid
            ]
        )

    make = partial(losses.MetricLoss, metric, **settings)
    return Case(id_, make, task, expected, exempt or {})


def _own_function(c):
    """Compute a user's metric that needs the whole matrix: the smallest recall of a class."""
    return (c.matrix.diagonal() / c.actual.clamp(min=1e-30)).amin()


R = reference_metrics
_AVERAGED = {
    "precision": R.precision,
    "recall": R.recall,
    "specificity": R.specificity,
    "npv": R.negative_predictive_value,
    "f1": R.fbeta,
    "f2": partial(R.fbeta, beta=2.0),
    "f0.5": partial(R.fbeta, beta=0.5),
    "jaccard": R.jaccard,
    "informedness": R.informedness,
}
_WHOLE = {
    "accuracy": R.accuracy,
    "balanced_accuracy": R.balanced_accuracy,
    "matthews_corrcoef": R.matthews_corrcoef,
    "cohen_kappa": R.cohen_kappa,
    "g_mean": R.g_mean,
}
_ASYMMETRIC = {"classes": "names classes by their index"}

METRIC_CASES = [
    *(
        _metric(f"{name}_{average}", f"{name}_{average}", task, partial(f, average=average))
        for name, f in _AVERAGED.items()
        for average in ("macro", "micro", "weighted")
        for task in ("multiclass", "multilabel")
    ),
    *(_metric(name, name, "binary", partial(f, average="binary")) for name, f in _AVERAGED.items()),
    *(
        _metric(name, name, task, f)
        for name, f in _WHOLE.items()
        for task in ("binary", "multiclass")
    ),
    _metric(
        "quadratic_kappa",
        partial(metrics.CohenKappa, weights="quadratic"),
        "multiclass",
        partial(R.cohen_kappa, weights="quadratic"),
        exempt=_ASYMMETRIC,
    ),
    _metric(
        "expected_cost",
        partial(metrics.ExpectedCost, COST),
        "multiclass",
        partial(R.expected_cost, cost=COST),
        minimised=True,
        exempt=_ASYMMETRIC,
    ),
    _metric(
        "f_per_class",
        partial(metrics.FBeta, beta=[1, 0.5, 5], average="macro"),
        "multiclass",
        partial(R.fbeta, beta=[1, 0.5, 5], average="macro"),
        exempt=_ASYMMETRIC,
    ),
    _metric(
        "f1_subset",
        partial(metrics.FBeta, average="macro", labels=(0, 2)),
        "multiclass",
        partial(R.fbeta, average="macro", labels=[0, 2]),
        exempt=_ASYMMETRIC,
    ),
    _metric(
        "own_function",
        lambda: _own_function,
        "multiclass",
        lambda m: np.min(np.diag(m) / np.maximum(m.sum(1), 1e-30)),
    ),
    _metric(
        "f1_cold", "f1_macro", "multiclass", partial(R.fbeta, average="macro"), temperature=0.01
    ),
    _metric(
        "f1_hot", "f1_macro", "multiclass", partial(R.fbeta, average="macro"), temperature=0.39
    ),
    _metric(
        "f1_sigmoid",
        "f1_macro",
        "multiclass",
        partial(R.fbeta, average="macro"),
        heaviside="sigmoid",
        exempt={"perfect": "the sigmoid reaches 1 only for k → ∞"},
    ),
    _metric("f1_threshold", "f1", "binary", R.fbeta, threshold=0.3),
    _metric(
        "f1_label_thresholds",
        "f1_macro",
        "multilabel",
        partial(R.fbeta, average="macro"),
        threshold=[0.2, 0.5, 0.7],
        exempt=_ASYMMETRIC,
    ),
]

_TENTHS = [k / 10 for k in range(1, 10)]
_SURROGATE = {"perfect": "no distance: its minimum is log c, not 0"}
ALL_TASKS = ("binary", "multiclass", "multilabel")


def _loss(id_, make, task, expected, exempt=None) -> Case:
    return Case(id_, make, task, expected, exempt or {})


def _aligned(task: str) -> Case:
    """Make the case of our recipe, with offsets that were learnt before.

    It is in evaluation mode, where running statistics are not used.
    """
    offsets, counts = np.log(WEIGHTS[task]), torch.tensor(WEIGHTS[task], dtype=torch.float64)
    binary, labels = task == "binary", task == "multilabel"
    name = "f1" if binary else "f1_macro"

    def make(**settings):
        settings = {"class_weight": None, **settings}  # only pixels have them by default
        loss = losses.AlignedLoss(name, metric_weight=2.0, **settings).eval()
        loss.offsets = torch.tensor(offsets)
        loss.counts = torch.stack([counts, counts], 1) if labels else counts
        return loss

    def expected(z, y, w):
        moved = z + (offsets[1] - offsets[0] if binary else offsets)
        entropy = reference.cross_entropy(moved, y, w, task)
        step = membership.heaviside_at(0.2, "linear")
        f1 = partial(R.fbeta, average="binary" if binary else "macro")
        return entropy + 2 * reference.metric_loss(f1, z, y, w, task, step, threshold=0.5)

    return _loss("aligned", make, task, expected, _ASYMMETRIC)


LOSS_CASES = [
    _loss(
        "auroc",
        losses.AUROCLoss,
        "binary",
        lambda z, y, w: reference.auroc(z, y, w, _TENTHS, membership.heaviside_at(0.2)),
    ),
    _loss(
        "auroc_sigmoid",
        partial(losses.AUROCLoss, thresholds=[0.7, 0.3], heaviside="sigmoid", temperature=0.1),
        "binary",
        lambda z, y, w: reference.auroc(
            z, y, w, [0.7, 0.3], membership.heaviside_at(0.1, "sigmoid")
        ),
        {"perfect": "the sigmoid reaches 1 only for k → ∞"},
    ),
    *(
        _loss(
            "auroc",
            losses.AUROCLoss,
            task,
            partial(
                reference.auroc,
                thresholds=_TENTHS,
                heaviside=membership.heaviside_at(0.2),
                task=task,
            ),
        )
        for task in ("multiclass", "multilabel")
    ),
    *(
        _loss(id_, partial(make, momentum=None), task, partial(expected, task=task))
        for task in ALL_TASKS
        for id_, make, expected in [
            ("average_precision", losses.AveragePrecisionLoss, reference.average_precision),
        ]
    ),
    _loss("wmw", losses.WMWLoss, "binary", reference.wmw),
    _loss(
        "wmw_cubic",
        partial(losses.WMWLoss, gamma=0.7, p=3.0),
        "binary",
        partial(reference.wmw, gamma=0.7, p=3.0),
    ),
    *(
        _loss(
            f"surrogate_fbeta_{beta}_{q}_{balanced}",
            partial(losses.SurrogateFBetaLoss, RATE, beta=beta, q=q, class_balanced=balanced),
            "binary",
            partial(
                reference.surrogate_fbeta,
                positive_rate=RATE,
                beta=beta,
                q=q,
                class_balanced=balanced,
            ),
            _SURROGATE,
        )
        for beta, q, balanced in [(1.0, 0.0, True), (2.0, 0.5, True), (0.5, 1.0, False)]
    ),
    _loss(
        "soft_fbeta",
        partial(losses.SoftFBetaLoss, 2.0),
        "binary",
        partial(reference.soft_fbeta, task="binary", beta=2.0),
    ),
    *(
        _loss(
            "soft_fbeta",
            partial(losses.SoftFBetaLoss, average="macro"),
            task,
            partial(reference.soft_fbeta, task=task, average="macro"),
        )
        for task in ("multiclass", "multilabel")
    ),
    *(
        _loss(id_, make, task, partial(expected, task=task))
        for task in ALL_TASKS
        for id_, make, expected in [
            ("dice", losses.DiceLoss, reference.dice),
            ("sigmoid_f1", losses.SigmoidF1Loss, reference.sigmoid_f1),
            ("lovasz_softmax", losses.LovaszSoftmaxLoss, reference.lovasz_softmax),
            ("mae", losses.MAELoss, reference.mae),
            ("focal", losses.FocalLoss, reference.focal),
        ]
    ),
    *(
        _loss(
            f"{id_}_weighted",
            partial(make, class_weight=WEIGHTS[task], **settings),
            task,
            partial(expected, task=task, class_weight=WEIGHTS[task], **settings),
            _ASYMMETRIC,
        )
        for task in ALL_TASKS
        for id_, make, expected, settings in [
            ("mae", losses.MAELoss, reference.mae, {}),
            ("focal", losses.FocalLoss, reference.focal, {"gamma": 0.5}),
        ]
    ),
    _loss(
        "sigmoid_f1_steep",
        partial(losses.SigmoidF1Loss, beta=3.0, eta=-0.5),
        "multilabel",
        partial(reference.sigmoid_f1, task="multilabel", beta=3.0, eta=-0.5),
    ),
    *(
        _loss(
            "logit_adjusted",
            partial(losses.LogitAdjustedLoss, WEIGHTS[task], tau=1.5),
            task,
            partial(reference.logit_adjusted, task=task, class_counts=WEIGHTS[task], tau=1.5),
            _ASYMMETRIC,
        )
        for task in ("binary", "multiclass")
    ),
    *(_aligned(task) for task in ALL_TASKS),
]

CASES = METRIC_CASES + LOSS_CASES
# One case per Module and task, for what does not depend on the metric.
_TYPICAL = ("f1", "f1_macro", "expected_cost", "f_per_class", "f1_subset")
MODULE_CASES = [c for c in METRIC_CASES if c.id in _TYPICAL] + LOSS_CASES
