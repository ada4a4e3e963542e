"""The losses and networks that a study compares, by name.

A loss takes logits (N, C), also for two classes, and can be stacked (`many`). The names end in the
metric or the β that is trained for; "f1" is the F1 of the positive class where there are two
classes, and macro-F1 otherwise.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evalign import losses
from evalign.membership.heaviside import tempered
from evalign.metrics import FBeta, MetricFunction
from evalign_study import networks
from evalign_study.networks import mlp
from evalign_study.refusals import require
from evalign_study.refuted.counted import CountedLoss
from evalign_study.trainers.following import FOLLOWING, settings_of

# AdamW with torch's defaults, at a constant learning rate (EAST E.4).
OPTIMIZER = {"schedule": "constant", "warmup": 0.0, "clip_norm": None, "weight_decay": 0.01}
T = 0.2  # EAST's first temperature, and the constant one of MC-Fβ and BtG
ROBUST = 0.7  # SurF prints no q; this one is from Zhang and Sabuncu 2018, whom it follows
SURF_BETAS = (0.5, 1.0, 2.0, 3.0)
CLASS_BETAS = {  # EAST Tables 4 to 6
    "dog": (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    "frog": (0.25, 5.0),
}
CLASSES = {  # EAST F.1: codes of two classes that both of its image data sets have
    "dog": {"cifar10": 5, "caltech256_clip": 55},
    "frog": {"cifar10": 6, "caltech256_clip": 79},
}


class Method(NamedTuple):
    """A loss, and what it is trained for.

    Args:
        loss: called as loss(logits, target).
        annealed: whether its temperature is to be cooled.
        target: the metric that it trains for; F1 for a loss without a metric.
        offsets: what is added to logits before they become probabilities, and in the papers' tables
            before they become labels. Epochs are chosen by the labels of logits without offsets.
            None: those of the loss at the epoch that is picked, as they change; where weights are
            averaged, so are they.
    """

    loss: nn.Module
    annealed: bool
    target: str | MetricFunction
    offsets: Tensor | float | None = 0.0


def cooling(rate: float, patience: int | None) -> dict[str, Any]:
    """Return the arguments of `TemperatureAnnealing` for EAST 4.3, with a shared patience."""
    if patience is None:
        return {"start": T, "rate": rate, "patience": 5, "coolings": 2**31}
    return {"start": T, "rate": rate, "patience": patience, "reading": "shared patience"}


class Problem(NamedTuple):
    """What a loss may depend on: the training rows of each class, and the data set's name."""

    counts: Tensor
    dataset: str

    @property
    def task(self) -> Any:
        return "binary" if len(self.counts) == 2 else "multiclass"

    @property
    def average(self) -> Any:
        return "binary" if len(self.counts) == 2 else "macro"

    def fbeta(self, beta: float = 1.0) -> str:
        """Name the F-beta of this problem."""
        return f"f{beta:g}" + ("" if self.average == "binary" else "_macro")

    def metric(self, name: str) -> str:
        return self.fbeta(float(name[1:])) if name in ("f1", "f2") else name


def make(method: str, counts: Tensor, dataset: str = "") -> Method:
    """Make a method for a problem.

    Args:
        method: a name of `METHODS`, or one that says the settings of our loss (`following`).
        counts: the training rows of each class; a class without any is given one.
        dataset: needed by methods for a single class ("east_dog_5").

    Examples:
        >>> make("east_f1", torch.tensor([90, 10])).target
        'f1'
        >>> make("surf_2", torch.tensor([90, 10])).loss.positive_rate
        0.1
    """
    problem = Problem(counts.double().cpu().clamp(min=1), dataset)
    if method.startswith(FOLLOWING):
        return _following(method, problem)
    known = method in METHODS
    require(known, "make", "method", f"be one of {', '.join(METHODS)}", repr(method))
    return METHODS[method](problem)


def _plain(loss: Callable[[Problem], nn.Module]) -> Callable[[Problem], Method]:
    """Make a method whose loss does not depend on a metric."""
    return lambda problem: Method(loss(problem), False, problem.fbeta())


def _cross_entropy(problem: Problem) -> nn.Module:
    return losses.LogitAdjustedLoss(problem.counts, tau=0.0, task="multiclass")


def _balanced_cross_entropy(problem: Problem) -> nn.Module:
    weight = losses.inverse_frequency_weights(problem.counts)
    return losses.FocalLoss(0.0, class_weight=weight, task="multiclass")


def _mae(problem: Problem) -> nn.Module:
    """Balance the classes, as all losses of SurF do."""
    weight = losses.inverse_frequency_weights(problem.counts)
    return losses.MAELoss(class_weight=weight, task="multiclass")


def _east(name: str, problem: Problem, *, annealed: bool = True) -> Method:
    target = problem.metric(name)
    loss = losses.MetricLoss(target, temperature=T, ranks="own", task="multiclass")
    return Method(loss, annealed, target)


def _east_class(animal: str, beta: float, problem: Problem, *, annealed: bool = True) -> Method:
    """Make macro F-beta with β for one class and 1 for the others (EAST F.1)."""
    known = CLASSES[animal]
    where, allowed = problem.dataset, f"have a {animal}: {', '.join(known)}"
    require(where in known, "make", "dataset", allowed, repr(where))
    betas = [1.0] * len(problem.counts)
    betas[known[where]] = beta
    target = FBeta(beta=betas, average="macro")
    loss = losses.MetricLoss(target, temperature=T, ranks="own", task="multiclass")
    return Method(loss, annealed, target)


def _half(p: Tensor, tau: Tensor) -> Tensor:
    """Compute EAST's step at the threshold ½ instead of the dynamic one."""
    return tempered(p, torch.full_like(tau, 0.5), temperature=T)


def _east_fixed(problem: Problem) -> Method:
    """Keep the threshold at ½ and the temperature constant, for a comparison with mcfbeta_f1."""
    target = problem.fbeta()
    loss = losses.MetricLoss(target, heaviside=_half, ranks="own", task="multiclass")
    return Method(loss, False, target)


def _btg(name: str, heaviside: Any, problem: Problem) -> Method:
    # The paper names no threshold for training F1 and accuracy; labels change at ½.
    step = {"temperature": T, "heaviside": heaviside, "task": "binary"}
    if name == "auroc":
        return Method(losses.AUROCLoss(**step), False, problem.fbeta())
    return Method(losses.MetricLoss(name, threshold=0.5, ranks="own", **step), False, name)


def _surf(beta: float, q: float, problem: Problem) -> Method:
    rate = (problem.counts[1] / problem.counts.sum()).item()
    loss = losses.SurrogateFBetaLoss(rate, beta=beta, q=q, task="binary")
    return Method(loss, False, problem.fbeta(beta))


def _soft(beta: float, problem: Problem) -> Method:
    loss = losses.SoftFBetaLoss(beta, average=problem.average, task=problem.task)
    return Method(loss, False, problem.fbeta(beta))


def _balanced_soft(beta: float, problem: Problem) -> Method:
    """Make SurF's macro soft loss: eq. 24, with every row weighted by its class (5.2)."""
    plain = _soft(beta, problem)
    weight = losses.inverse_frequency_weights(problem.counts)
    return plain._replace(loss=_Weighted(plain.loss, weight))


def _aligned(name: str, problem: Problem, offsets: Tensor | None = None, **settings: Any) -> Method:
    """Make our recipe with offsets from counts (`CountedLoss`), or with other offsets."""
    target = problem.metric(name)
    loss = CountedLoss(target, problem.counts, task="multiclass", **settings)
    if offsets is not None:
        loss.offsets.copy_(offsets)
    return Method(loss, False, target, loss.offsets.float())


def _following(method: str, problem: Problem) -> Method:
    """Make our recipe with offsets that follow the classifier (`AlignedLoss`)."""
    settings, goal = settings_of(method)
    allowed = f"end in one of {', '.join(GOALS)}"
    require(goal in GOALS, "make", "method", allowed, repr(method))
    target = problem.metric(GOALS[goal])
    loss = losses.AlignedLoss(target, ranks="own", task="multiclass", **settings)
    return Method(loss, False, target, None)


def _half_prior(name: str, problem: Problem) -> Method:
    """Take half of the log prior for every metric; the tables call this anchored."""
    return _aligned(name, problem, problem.counts.log() / 2)


METRICS = {"f1": "f1", "accuracy": "accuracy", "mcc": "matthews_corrcoef"}
# The suite: its opponents, ours and EAST's, the two of which have a training for each metric.
OPPONENTS = ("cross_entropy", "balanced_cross_entropy", "focal", "logit_adjusted", "soft_f1")
OURS, EAST = FOLLOWING, "east"
GOALS = {"f1": "f1", "mcc": METRICS["mcc"]} | {name: name for name in ("balanced_accuracy", "f2")}
METHODS: dict[str, Callable[[Problem], Method]] = {
    "cross_entropy": _plain(_cross_entropy),
    "balanced_cross_entropy": _plain(_balanced_cross_entropy),
    "focal": _plain(lambda problem: losses.FocalLoss(task="multiclass")),
    "logit_adjusted": _plain(
        lambda problem: losses.LogitAdjustedLoss(problem.counts, task="multiclass")
    ),
    "dice": _plain(lambda problem: losses.DiceLoss(task=problem.task)),
    "mae": _plain(_mae),
    "sigmoid_f1": _plain(lambda problem: losses.SigmoidF1Loss(task=problem.task)),
    "wmw": _plain(lambda problem: losses.WMWLoss(task="binary")),
    "soft_f1": partial(_soft, 1.0),
    **{f"macro_soft_{beta:g}": partial(_soft, beta) for beta in SURF_BETAS},
    **{f"balanced_macro_soft_{beta:g}": partial(_balanced_soft, beta) for beta in SURF_BETAS},
    **{f"{EAST}_{short}": partial(_east, name) for short, name in (METRICS | GOALS).items()},
    "mcfbeta_f1": partial(_east, "f1", annealed=False),
    "east_f1_fixed": _east_fixed,
    **{
        f"east_{animal}_{beta:g}": partial(_east_class, animal, beta)
        for animal, betas in CLASS_BETAS.items()
        for beta in betas
    },
    **{
        f"mcfbeta_dog_{beta:g}": partial(_east_class, "dog", beta, annealed=False)
        for beta in (0.25, 5.0)
    },
    **{
        f"{prefix}_{name}": partial(_btg, name, heaviside)
        for prefix, heaviside in {"btg": "linear", "btg_sigmoid": "sigmoid"}.items()
        for name in ("f1", "accuracy", "auroc")
    },
    "btg_f2": partial(_btg, "f2", "linear"),
    "btg_f3": partial(_btg, "f3", "linear"),
    **{f"surf_{beta:g}": partial(_surf, beta, 0.0) for beta in SURF_BETAS},
    "surf_general_1": partial(_surf, 1.0, ROBUST),
    **{
        f"anchored_{short}": partial(_half_prior, name) for short, name in (METRICS | GOALS).items()
    },
    **{f"aligned_{goal}": partial(_aligned, name) for goal, name in GOALS.items()},
    **{f"{FOLLOWING}_{goal}": partial(_following, f"{FOLLOWING}_{goal}") for goal in GOALS},
}


class _Weighted(nn.Module):
    """A loss in which rows are weighted by their class."""

    weight: Tensor

    def __init__(self, loss: nn.Module, weight: Tensor) -> None:
        super().__init__()
        self.loss = loss
        self.register_buffer("weight", weight)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.loss(logits, target, sample_weight=self.weight[target])


class Pair(nn.Sequential):
    """A network of one logit z, as two logits (0, z) with the same probabilities."""

    def forward(self, input: Tensor) -> Tensor:
        z = super().forward(input)
        return torch.cat([torch.zeros_like(z), z], 1)


def _mlp32(n_features: int, n_classes: int, dropout: float) -> nn.Module:
    require(n_classes == 2, "mlp32", "n_classes", "be 2", n_classes)
    return Pair(mlp(n_features, 1, hidden=(32, 16), dropout=dropout))


# (features, classes, dropout) -> module; networks for images ignore the features.
NETWORKS: dict[str, Callable[[int, int, float], nn.Module]] = {
    "mlp": lambda n, classes, dropout: mlp(n, classes, dropout=dropout),
    "mlp128": lambda n, classes, dropout: mlp(n, classes, hidden=(128, 128), dropout=dropout),
    "mlp32": _mlp32,
    "darknet19": lambda n, classes, dropout: networks.darknet19(classes, dropout=dropout),
    "tiny_darknet": lambda n, classes, dropout: networks.tiny_darknet(classes, dropout=dropout),
    "resnet18": lambda n, classes, dropout: networks.resnet18(classes),
    "resnet34": lambda n, classes, dropout: networks.resnet34(classes),
    "unet": lambda n, classes, dropout: networks.UNet(classes),
    "people": lambda n, classes, dropout: networks.PeopleNetwork(n, dropout=dropout),
}
