"""Errors for bad input: the argument, what is allowed, what came, and the cure."""

import math
import re

import numpy as np
import pytest
import torch

from evalign import Confusion, MetricLoss, checked, losses, metrics
from evalign.membership import heaviside

LABELS = torch.tensor([0, 1, 2, 1])
COLD = "0.4 is the softest step; small values approach a hard one."
DECLARE = (
    "Leave out rows without a label by ignore_index. If these are probabilities, say so: "
    'task="multiclass" for a row of class probabilities per example, task="binary" or '
    '"multilabel" for one per label.'
)
NO_EXAMPLES = "Such as numpy.bincount(y); count a class without examples as one, or leave it out."


def logits(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def loss(*args, metric="f1_macro", sample_weight=None, **kwargs):
    return MetricLoss(metric, **kwargs)(*args, sample_weight=sample_weight)


def filled(module, temperature):
    """Make a module whose temperature buffer was overwritten directly."""
    module.temperature.fill_(temperature)
    return module


# name: (action, error, full text)
FULL = {
    # Logits.
    "integer logits": (
        lambda: loss(torch.ones(4, 3, dtype=torch.int64), LABELS),
        TypeError,
        "logits of MetricLoss must be floating point, not labels. Got torch.int64. Pass the "
        "network's raw outputs; labels belong in Confusion.from_predictions.",
    ),
    "scalar logits": (
        lambda: loss(torch.tensor(1.0), torch.tensor(1)),
        ValueError,
        "logits of MetricLoss must have shape (N,), (N, 1), (N, C) or (N, C, ...). Got a scalar.",
    ),
    "one logit for many classes": (
        lambda: loss(logits(4, 1), LABELS, task="multiclass"),
        ValueError,
        "logits of MetricLoss must have shape (N, C) or (N, C, ...), with at least 2 classes if "
        "multiclass. Got (4, 1).",
    ),
    "array of logits": (
        lambda: loss(np.zeros((4, 3)), LABELS),
        TypeError,
        "logits of MetricLoss must be a torch.Tensor. Got ndarray. Use "
        "torch.as_tensor(...) or output.logits.",
    ),
    "NaN logits": (
        checked()(lambda: loss(torch.full((4, 3), math.nan), LABELS)),
        ValueError,
        "logits of MetricLoss must be finite. Got nan. The network has diverged or its input "
        "holds such values.",
    ),
    "a loss of torch as the metric": (
        lambda: MetricLoss(torch.nn.CrossEntropyLoss()),
        TypeError,
        "metric of MetricLoss must be a name, a metric or a function of one Confusion. Got "
        "CrossEntropyLoss(). Of a function of labels, such as scikit-learn's, give the name: "
        '"f1_macro".',
    ),
    "classes in dimension 2": (
        lambda: losses.DiceLoss(class_dim=2),
        ValueError,
        "class_dim of DiceLoss must be 1, -1 or None. Got 2.",
    ),
    # Target.
    "list of targets": (
        lambda: loss(logits(4, 3), [0, 1, 2, 1]),
        TypeError,
        "target of MetricLoss must be a torch.Tensor. Got list. Use "
        "torch.as_tensor(...) or output.logits.",
    ),
    "too many targets": (
        lambda: loss(logits(4, 3), torch.zeros(5, dtype=torch.int64)),
        ValueError,
        "target of MetricLoss must have shape (4,) (class indices) or (4, 3) (a value per "
        "class). Got (5,).",
    ),
    "too many binary targets": (
        lambda: loss(logits(4), torch.zeros(5)),
        ValueError,
        "target of MetricLoss must have the shape of the binary logits, (4,). Got (5,).",
    ),
    "integer rows": (
        lambda: loss(logits(4, 3), torch.zeros(4, 3, dtype=torch.int64)),
        TypeError,
        "target of MetricLoss must be class indices of shape (4,), or float with a value per "
        "class. Got torch.int64 of shape (4, 3). For multilabel pass target.bool(); for one-hot "
        "rows pass target.argmax(1).",
    ),
    "float indices": (
        lambda: loss(logits(4, 3), LABELS.float()),
        TypeError,
        "target of MetricLoss must hold integer class indices. Got torch.float32. Use "
        "target.long().",
    ),
    "label too large": (
        lambda: loss(logits(4, 3), torch.tensor([0, 1, 7, 2])),
        ValueError,
        "target of MetricLoss must hold class indices from 0 to 2 (the size of logits' dimension "
        "1). Got 7. Number the classes from 0 to 2.",
    ),
    "negative label": (
        lambda: loss(logits(4, 3), torch.tensor([0, -1, 1, 2])),
        ValueError,
        "target of MetricLoss must hold class indices from 0 to 2 (the size of logits' dimension "
        "1). Got -1. Number the classes from 0 to 2, or leave such rows out by ignore_index=-1.",
    ),
    "classes in the last dimension": (
        lambda: loss(logits(2, 4, 3), torch.zeros(2, 4, dtype=torch.int64)),
        ValueError,
        "target of MetricLoss must have shape (2, 3) (class indices) or (2, 4, 3) (a value per "
        "class). Got (2, 4). If the classes come last, pass class_dim=-1.",
    ),
    "five columns for a binary task": (
        lambda: loss(logits(4, 5), torch.zeros(4, 5), metric="f1", task="binary"),
        ValueError,
        "logits of MetricLoss must have shape (N,), (N, 1, ...) or (N, 2, ...) for a binary task. "
        'Got (4, 5). Labels that do not exclude each other are task="multilabel".',
    ),
    "ignore_index that is no integer": (
        lambda: MetricLoss("f1", ignore_index=None),
        ValueError,
        "ignore_index of MetricLoss must be an integer. Got None.",
    ),
    "binary label 2": (
        lambda: loss(logits(4), LABELS, metric="f1"),
        ValueError,
        f"target of MetricLoss must hold 0 and 1 only. Got 2. {DECLARE}",
    ),
    "undeclared probability of a label": (
        lambda: loss(logits(4, 3), torch.full((4, 3), 0.75)),
        ValueError,
        f"target of MetricLoss must hold 0 and 1 only. Got 0.75. {DECLARE}",
    ),
    "NaN label": (
        lambda: loss(logits(4), torch.full((4,), math.nan), metric="f1"),
        ValueError,
        f"target of MetricLoss must hold 0 and 1 only. Got nan. {DECLARE}",
    ),
    "probability above 1": (
        lambda: loss(logits(4), torch.full((4,), 1.5), metric="f1", task="binary"),
        ValueError,
        "target of MetricLoss must hold probabilities from 0 to 1. Got 1.5.",
    ),
    "row of probabilities that sums to 1.5": (
        lambda: loss(logits(4, 3), torch.full((4, 3), 0.5), task="multiclass"),
        ValueError,
        "target of MetricLoss must hold rows of class probabilities that sum to 1. Got 1.5.",
    ),
    # Weights.
    "negative weight": (
        lambda: loss(logits(4, 3), LABELS, sample_weight=torch.tensor([1.0, 1, -2, 1])),
        ValueError,
        "sample_weight of MetricLoss must be finite and not negative. Got -2.0. A weight of 0 "
        "leaves a row out.",
    ),
    "too many weights": (
        lambda: loss(logits(4, 3), LABELS, sample_weight=torch.ones(5)),
        ValueError,
        "sample_weight of MetricLoss must have shape (4,). Got (5,).",
    ),
    "array of weights": (
        lambda: loss(logits(4, 3), LABELS, sample_weight=np.ones(4)),
        TypeError,
        "sample_weight of MetricLoss must be a torch.Tensor. Got ndarray. Use "
        "torch.as_tensor(...) or output.logits.",
    ),
    # Task, step, thresholds.
    "unknown task": (
        lambda: losses.DiceLoss(task="segmentation"),
        ValueError,
        'task of DiceLoss must be "binary", "multiclass", "multilabel" or None (inferred from '
        "the shapes). Got 'segmentation'.",
    ),
    "threshold of 1": (
        lambda: MetricLoss("f1", threshold=1.0),
        ValueError,
        "threshold of MetricLoss must be one or several numbers between 0 and 1. Got 1.0.",
    ),
    "AUROC threshold of 1.5": (
        lambda: losses.AUROCLoss(thresholds=[0.5, 1.5]),
        ValueError,
        "thresholds of AUROCLoss must be one or several numbers between 0 and 1. Got [0.5, 1.5].",
    ),
    "thresholds for two classes": (
        lambda: loss(logits(4), torch.ones(4), metric="f1", threshold=[0.1, 0.2]),
        ValueError,
        "threshold of MetricLoss must be one number. Got shape (2,).",
    ),
    "thresholds for other labels": (
        lambda: loss(logits(4, 3), torch.zeros(4, 3), threshold=[0.1, 0.2]),
        ValueError,
        "threshold of MetricLoss must be one number, or one per label. Got shape (2,).",
    ),
    # Metrics.
    "binary metric of 5 classes": (
        lambda: loss(logits(4, 5), LABELS, metric="f1"),
        ValueError,
        "classes of f1 must be two. Got 5 classes. Use f1_macro, f1_micro or f1_weighted.",
    ),
    "binary metric of labels": (
        lambda: loss(logits(4, 3), torch.zeros(4, 3), metric="npv"),
        ValueError,
        "classes of npv must be two. Got 3 labels. Use npv_macro, npv_micro or npv_weighted.",
    ),
    "MCC of labels": (
        lambda: loss(logits(4, 3), torch.zeros(4, 3), metric="matthews_corrcoef"),
        ValueError,
        "confusion of MatthewsCorrcoef must come from mutually exclusive classes. Got 3 labels. "
        'Use an averaged metric such as "f1_macro" or "jaccard_micro".',
    ),
    "unknown metric name": (
        lambda: MetricLoss("f1_marco"),
        ValueError,
        "metric of MetricLoss must be a name of metrics.names(). Got 'f1_marco'. Did you mean "
        "'f1_macro'?",
    ),
    "metric that returns a vector": (
        lambda: MetricLoss(lambda c: c.tp),
        TypeError,
        "metric of MetricLoss must return one number. Got shape (64,) for 64 classes. Reduce it "
        "with .mean() or .sum(), and do not call .item().",
    ),
    "metric that returns a float": (
        lambda: loss(logits(4, 3), LABELS, metric=lambda c: 0.5),
        TypeError,
        "metric of MetricLoss must return one number. Got float. Reduce it with .mean() or .sum(), "
        "and do not call .item().",
    ),
    "average=None as a loss": (
        lambda: MetricLoss(metrics.Recall(average=None)),
        ValueError,
        'metric of MetricLoss must be one number. Got average=None. Use average="macro".',
    ),
    "labels that are no classes": (
        lambda: loss(logits(4, 3), LABELS, metric=metrics.Recall(average="macro", labels=(1, 3))),
        ValueError,
        "labels of Recall must be classes from 0 to 2. Got (1, 3).",
    ),
    "costs of another problem": (
        lambda: loss(logits(4, 3), LABELS, metric="expected_cost[[0, 1], [5, 0]]"),
        ValueError,
        "cost of ExpectedCost must have a row and a column for each of the 3 classes. Got 2 x 2.",
    ),
    # Parameters of losses and metrics.
    "sparse logits": (
        lambda: loss(logits(4, 3).to_sparse(), LABELS),
        ValueError,
        "logits of MetricLoss must be dense, and neither complex nor uint64. Got torch.float32 in "
        "torch.sparse_coo.",
    ),
    "complex labels": (
        lambda: loss(logits(4, 3), LABELS * 1j),
        ValueError,
        "target of MetricLoss must be dense, and neither complex nor uint64. Got torch.complex64 "
        "in torch.strided.",
    ),
    "labels beyond int64": (
        lambda: loss(logits(4, 3), LABELS.to(torch.uint64)),
        ValueError,
        "target of MetricLoss must be dense, and neither complex nor uint64. Got torch.uint64 "
        "in torch.strided.",
    ),
    "float labels whose positives are ignored": (
        lambda: Confusion.from_logits(logits(4), torch.ones(4), ignore_index=1),
        ValueError,
        "ignore_index of Confusion.from_logits must be neither 0 nor 1 for a float or multilabel "
        "target, which holds them. Got 1. Mark what to leave out by another value, such as -100.",
    ),
    "beta per class of another problem": (
        lambda: loss(logits(4, 5), LABELS, metric=metrics.FBeta(beta=[1, 2, 3], average="macro")),
        ValueError,
        "beta of FBeta must be one number or one per class (5). Got 3 numbers.",
    ),
    "beta of soft F-beta": (
        lambda: losses.SoftFBetaLoss(beta=-1.0),
        ValueError,
        "beta of FBeta must lie from 1e-9 to 1e9. Got -1.0.",
    ),
    "positive rate of SurF": (
        lambda: losses.SurrogateFBetaLoss(1.0),
        ValueError,
        "positive_rate of SurrogateFBetaLoss must lie between 0 and 1. Got 1.0. It is the share "
        "of positives in the training data.",
    ),
    "q of SurF": (
        lambda: losses.SurrogateFBetaLoss(0.1, q=1.5),
        ValueError,
        "q of SurrogateFBetaLoss must lie in [0, 1]. Got 1.5.",
    ),
    "gamma of WMW": (
        lambda: losses.WMWLoss(gamma=0.0),
        ValueError,
        "gamma of WMWLoss must lie in (0, 1]. Got 0.0.",
    ),
    "p of WMW": (
        lambda: losses.WMWLoss(p=1.0),
        ValueError,
        "p of WMWLoss must be finite and above 1. Got 1.0.",
    ),
    "gamma of focal": (
        lambda: losses.FocalLoss(gamma=-0.5),
        ValueError,
        "gamma of FocalLoss must be finite and at least 0. Got -0.5.",
    ),
    "class_weight of 0": (
        lambda: losses.MAELoss(class_weight=[1.0, 0.0]),
        ValueError,
        "class_weight of MAELoss must hold two or more positive numbers, one for each class. "
        "Got [1.0, 0.0]. Such as inverse_frequency_weights(numpy.bincount(y)).",
    ),
    "class_weight of another problem": (
        lambda: losses.FocalLoss(class_weight=[1.0, 2.0])(logits(4, 3), LABELS),
        ValueError,
        "class_weight of FocalLoss must hold a number for each of the 3 classes. Got 2 numbers.",
    ),
    "count of 0": (
        lambda: losses.inverse_frequency_weights([3, 0]),
        ValueError,
        "class_counts of inverse_frequency_weights must hold two or more positive numbers, one for "
        f"each class. Got [3, 0]. {NO_EXAMPLES}",
    ),
    "beta of effective numbers": (
        lambda: losses.effective_number_weights([3, 1], beta=1.0),
        ValueError,
        "beta of effective_number_weights must lie in [0, 1). Got 1.0.",
    ),
    "WMW of 3 classes": (
        lambda: losses.WMWLoss()(logits(4, 3), LABELS),
        ValueError,
        "logits of WMWLoss must hold a binary problem. Got 3 classes. Reduce the problem to "
        "one class against the rest.",
    ),
    "momentum of a curve": (
        lambda: losses.AUROCLoss(momentum=0),
        ValueError,
        "momentum of AUROCLoss must lie in (0, 1], the weight of the new batch. Got 0.",
    ),
    "thresholds as probabilities": (
        lambda: losses.AveragePrecisionLoss(thresholds=[0.5]),
        ValueError,
        "thresholds of AveragePrecisionLoss must be an integer from 2 to 100,000. Got [0.5].",
    ),
    "logit adjustment of labels": (
        lambda: losses.LogitAdjustedLoss([1, 2, 3])(logits(4, 3), torch.zeros(4, 3)),
        ValueError,
        "logits of LogitAdjustedLoss must belong to mutually exclusive classes. Got a multilabel "
        "task.",
    ),
}


@pytest.mark.parametrize("case", FULL)
def test_error(case):
    action, error, text = FULL[case]
    with pytest.raises(error) as caught:
        action()
    assert str(caught.value) == text


# Temperature: every way in, and what every complaint says.

BAD_TEMPERATURES = [0.0, 0.41, math.nan]
TEMPERATURE = {
    "MetricLoss": lambda t: MetricLoss("f1", temperature=t),
    "AUROCLoss": lambda t: losses.AUROCLoss(temperature=t),
    "Confusion.from_logits": lambda t: Confusion.from_logits(logits(4, 3), LABELS, temperature=t),
    "tempered": lambda t: heaviside.tempered(logits(4).sigmoid(), 0.5, temperature=t),
}


def assert_complains_about_temperature(owner, temperature, action):
    with pytest.raises(ValueError, match="temperature") as caught:
        action(temperature)
    assert str(caught.value) == (
        f"temperature of {owner} must lie in (0, 0.4]. Got {temperature:g}. {COLD}"
    )


@pytest.mark.parametrize("temperature", BAD_TEMPERATURES)
@pytest.mark.parametrize("owner", TEMPERATURE)
def test_temperature_outside_its_domain(owner, temperature):
    assert_complains_about_temperature(owner, temperature, TEMPERATURE[owner])


@pytest.mark.parametrize("kind", ["linear", "sigmoid"])
@pytest.mark.parametrize(
    ("owner", "make"),
    [
        ("MetricLoss", lambda kind: MetricLoss("f1", heaviside=kind)),
        ("AUROCLoss", lambda kind: losses.AUROCLoss(heaviside=kind)),
    ],
)
def test_temperature_filled_behind_the_back_of_a_loss(owner, make, kind):
    def forward(temperature):
        filled(make(kind), temperature)(logits(4), torch.tensor([0, 1, 0, 1]))

    forward(0.4)
    assert_complains_about_temperature(owner, 0.7, forward)


@pytest.mark.parametrize("temperature", BAD_TEMPERATURES)
def test_bad_temperature_leaves_the_old_one(temperature):
    module = MetricLoss("f1_macro", temperature=0.1)
    with pytest.raises(ValueError, match=r"^temperature of MetricLoss must lie in \(0, 0\.4\]"):
        module.set_temperature(temperature)
    assert module.temperature.item() == 0.1


def test_float32_tensor_of_04_is_no_error():
    """0.4 in float32 is 0.4000000059604645; the user wrote 0.4."""
    soft = Confusion.from_logits(logits(4, 3), LABELS, temperature=torch.tensor(0.4))
    assert soft.tp.isfinite().all()


def test_bad_batch_leaves_the_module_as_it_was():
    module = losses.FocalLoss(class_weight=[1.0, 2.0, 3.0])
    before = module(logits(4, 3), LABELS)
    with pytest.raises(ValueError, match="class indices"):
        module(logits(4, 3), torch.tensor([0, 1, 2, 9]))
    assert module(logits(4, 3), LABELS).equal(before)
    soft_set = MetricLoss("f1_macro", threshold=None)
    state = {name: value.clone() for name, value in soft_set.state_dict().items()}
    with pytest.raises(ValueError, match="class indices"):
        soft_set(logits(4, 3), torch.tensor([0, 1, 2, 9]))
    assert all(value.equal(state[name]) for name, value in soft_set.state_dict().items())


# Complaints of which the telling parts count.

PARTS = {
    "threshold of a multiclass loss": (
        lambda: loss(logits(4, 3), LABELS, threshold=0.25),
        ValueError,
        ["threshold of MetricLoss must be None for a multiclass task", "0.25", 'task="binary"'],
    ),
    "unknown step of a loss": (
        lambda: MetricLoss("f1", heaviside="quadratic"),
        ValueError,
        [
            "heaviside of MetricLoss must",
            '"linear", "sigmoid" or a function (p, threshold) -> H',
            "Got 'quadratic'.",
        ],
    ),
    "metric that is no function": (
        lambda: MetricLoss(5),
        TypeError,
        ["metric of MetricLoss must", "Got"],
    ),
    "a score per class as a loss": (
        lambda: losses.SoftFBetaLoss(average=None),
        ValueError,
        ["average of SoftFBetaLoss must"],
    ),
}


@pytest.mark.parametrize("case", PARTS)
def test_telling_parts(case):
    action, error, parts = PARTS[case]
    with pytest.raises(error) as caught:
        action()
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_every_complaint_has_the_shape():
    """The shape is: which argument of what must be what. Got what."""
    shape = re.compile(r"^\w+ of [\w.]+ must .+\. Got .+\.", re.DOTALL)
    for _, _, text in FULL.values():
        assert shape.match(text), text


# What is not an error.


def test_nan_logits_are_not_looked_for_unasked():
    assert loss(torch.full((4, 3), math.nan), LABELS).isnan()


# Where tensors have no values to look at, nothing is looked at.


NEGATIVE = torch.tensor([1.0, 1.0, -2.0, 1.0])


def test_values_are_not_checked_under_vmap():
    module = MetricLoss("accuracy")
    z = logits(2, 4, 3)

    def of_one(z, weight):
        return module(z, LABELS, sample_weight=weight)

    values = torch.func.vmap(of_one, in_dims=(0, None))(z, NEGATIVE)
    assert values.shape == (2,)
    assert values.isfinite().all()
    with pytest.raises(ValueError, match=r"^sample_weight of MetricLoss"):
        of_one(z[0], NEGATIVE)


def test_shapes_are_checked_under_vmap():
    """Shapes are known there, so the check costs nothing."""
    module = MetricLoss("accuracy")
    with pytest.raises(ValueError, match=r"^target of MetricLoss must have shape"):
        torch.func.vmap(lambda z: module(z, torch.zeros(5, dtype=torch.int64)))(logits(2, 4, 3))
