"""Where floating point could lose digits: extremes against 60-digit arithmetic (mpmath)."""

import itertools

import mpmath
import pytest
import torch

from evalign import Confusion, losses, metrics
from evalign.membership import heaviside
from tests import tolerances

LOGITS = [-700.0, -40.0, -1e-8, 0.0, 1e-8, 40.0, 700.0]


@pytest.fixture(autouse=True)
def sixty_digits():
    with mpmath.workdps(60):
        yield


def sigmoid(z):
    return 1 / (1 + mpmath.exp(-mpmath.mpf(z)))


def of_one_row(loss, z, y):
    return loss(torch.tensor([z], dtype=torch.float64), torch.tensor([y])).item()


@pytest.mark.parametrize("z", LOGITS)
@pytest.mark.parametrize("q", [0.0, 1e-9, 0.3, 1.0])
@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0])
def test_surrogate_fbeta(z, q, beta):
    loss = losses.SurrogateFBetaLoss(0.01, beta=beta, q=q, class_balanced=False)
    f, shift = sigmoid(z), mpmath.mpf(beta) ** 2 * mpmath.mpf(0.01) / (1 - mpmath.mpf(0.01))

    def power(x):
        return (x**q - 1) / q if q else mpmath.log(x)

    assert of_one_row(loss, z, 1) == pytest.approx(float(-power(f)), rel=tolerances.FEW_ULPS)
    expected = float(power(shift + f))
    assert of_one_row(loss, z, 0) == pytest.approx(
        expected, rel=tolerances.FEW_ULPS, abs=tolerances.FEW_ULPS
    )


@pytest.mark.parametrize("z", LOGITS)
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal(z, gamma):
    p = sigmoid(z)
    expected = float(-((1 - p) ** gamma) * mpmath.log(p))
    value = of_one_row(losses.FocalLoss(gamma), z, 1)
    assert value == pytest.approx(expected, rel=tolerances.FEW_ULPS)


@pytest.mark.parametrize("temperature", [1e-9, 0.2, 0.39, 0.3999])
@pytest.mark.parametrize("tau", [1e-5, 0.3, 0.5, 0.9999])
def test_tempered_heaviside(temperature, tau):
    """EAST eq. 4 as printed, in exact arithmetic."""
    t, m = mpmath.mpf(temperature), mpmath.mpf(tau)
    width = 5 * t * min(m, 1 - m)
    m1, m2 = t / (m - width / 2), (1 - 2 * t) / width
    m3 = t / (1 - m - width / 2)
    edges = [float(m - width / 2), float(m + width / 2)]
    points = [0.0, 1e-12, 0.999 * edges[0], tau, 1.001 * edges[1], 1 - 1e-12, 1.0]
    for x in (x for x in points if x <= 1):
        p = mpmath.mpf(x)
        if p < m - width / 2:
            expected = p * m1
        elif p > m + width / 2:
            expected = p * m3 + (1 - t - m3 * (m + width / 2))
        else:
            expected = p * m2 + (0.5 - m2 * m)
        value = heaviside.tempered(
            torch.tensor(x, dtype=torch.float64), tau, temperature=temperature
        )
        assert value.item() == pytest.approx(float(expected), abs=tolerances.HEAVISIDE)


SURE = [166.0, 98.0, 33.0]  # of the positive class: what is not predicted as it is rounding


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("zero_division", [0.0, 1.0])
def test_a_rate_among_rows_that_rounding_alone_has_rejected(columns, zero_division):
    """It is undefined, as if none were: `rejected` and `tn` are differences of equal sums."""
    loss = losses.MetricLoss(metrics.NegativePredictiveValue(zero_division=zero_division))
    for target in itertools.product((0, 1), repeat=3):
        logits = torch.tensor(SURE, dtype=torch.float64)
        if columns == 2:
            logits = torch.stack([torch.zeros_like(logits), logits], 1)
        logits.requires_grad_()
        value = loss(logits, torch.tensor(target))
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.item() == 1 - zero_division
        assert (gradient == 0).all()


def nearly_one_class(lead, seed, true=None, classes=4):
    """Float32 logits with one class `lead` and more ahead of the others in every row."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(300, classes, generator=generator)
    logits[:, 1] += lead * (1 + 0.1 * torch.rand(300, generator=generator))
    weight = torch.rand(300, generator=generator)
    target = torch.randint(classes, (300,), generator=generator)
    return logits, target if true is None else torch.full_like(target, true), weight


def by_core_and_by_kernel(name, logits, target, weight):
    """The metric and the largest slope of a logit, from the Confusion and from the loss."""
    leaf = logits.detach().requires_grad_()
    c = Confusion.from_logits(leaf, target, sample_weight=weight.to(leaf))
    whole = losses.MetricLoss(name)(leaf, target, sample_weight=weight.to(leaf))
    for value in (metrics.resolve(name)(c), 1 - whole):
        (slopes,) = torch.autograd.grad(value, leaf, retain_graph=True)
        yield value.item(), slopes


LEADS = [10.0, 16.0, 22.0, 28.0]  # the others have 10⁻⁵ to 10⁻¹³ of the mass
SEEDS = range(5)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", ["npv", "specificity", "informedness"])
def test_rates_of_rows_that_float32_rounds_away(name, classes):
    """They stay in their range, and no slope is more than a row of so few can have."""
    name = name if classes == 2 else f"{name}_macro"
    low, high = metrics.resolve(name).bounds
    for lead, seed in itertools.product(LEADS, SEEDS):
        batch = nearly_one_class(lead, seed, classes=classes)
        for value, slopes in by_core_and_by_kernel(name, *batch):
            assert low - tolerances.FLOAT32 <= value <= high + tolerances.FLOAT32
            assert slopes.abs().amax() <= 1


def exact_matrix(logits, target, weight):
    """The soft confusion matrix of two classes at T = 0.2, where τ = ½."""

    def membership(p):
        if p < 0.25:
            return p * 4 / 5
        return 1 - (1 - p) * 4 / 5 if p > 0.75 else (p - 0.5) * 6 / 5 + 0.5

    matrix = mpmath.zeros(2)
    for (first, second), y, w in zip(*(x.tolist() for x in (logits, target, weight)), strict=True):
        for label, margin in enumerate((first - mpmath.mpf(second), second - mpmath.mpf(first))):
            matrix[y, label] += mpmath.mpf(w) * membership(sigmoid(margin))
    return matrix


@pytest.mark.parametrize("name", ["npv", "matthews_corrcoef"])
def test_two_classes_of_few_rows_that_float32_rounds_away(name):
    """What is predicted as the other class is its sum, which no membership near 1 has rounded."""
    for lead, seed in itertools.product(LEADS, SEEDS):
        logits, target, weight = (x[: 2 + seed] for x in nearly_one_class(lead, seed, classes=2))
        target[:2] = torch.tensor([0, 1])
        m = exact_matrix(logits, target, weight)
        tn, fp, fn, tp = m[0, 0], m[0, 1], m[1, 0], m[1, 1]
        determinant = tp * tn - fp * fn
        masses = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        expected = {
            "npv": tn / (tn + fn),
            "matthews_corrcoef": determinant / mpmath.sqrt(masses),
        }[name]
        (_, of_logits), _ = by_core_and_by_kernel(name, logits.double(), target, weight)
        for value, slopes in by_core_and_by_kernel(name, logits, target, weight):
            assert value == pytest.approx(float(expected), abs=tolerances.FLOAT32)
            assert torch.allclose(slopes.double(), of_logits, atol=tolerances.FLOAT32)


@pytest.mark.parametrize("true", [None, 1, 2])
@pytest.mark.parametrize("name", ["matthews_corrcoef", "cohen_kappa"])
def test_agreement_of_rows_that_float32_rounds_away(name, true):
    """It is that of float64, also where all rows are of one class, the one predicted or another."""
    for lead, seed in itertools.product(LEADS, SEEDS):
        logits, target, weight = nearly_one_class(lead, seed, true)
        (expected, of_logits), _ = by_core_and_by_kernel(name, logits.double(), target, weight)
        for value, slopes in by_core_and_by_kernel(name, logits, target, weight):
            assert value == pytest.approx(expected, abs=tolerances.SATURATED)
            assert torch.allclose(slopes.double(), of_logits, atol=tolerances.SATURATED)


@pytest.mark.parametrize("momentum", [None, 0.1])
@pytest.mark.parametrize(
    "name",
    [
        "f1_macro",
        "f1_micro",
        "f1_weighted",
        "jaccard_macro",
        "precision_macro",
        "npv_macro",
        "informedness_macro",
        "accuracy",
        "matthews_corrcoef",
        "cohen_kappa",
        "g_mean",
    ],
)
def test_nan_logits_stay_visible(name, momentum):
    """A loss that looks sound would hide a network that has diverged."""
    logits, target = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    logits[2] = torch.nan
    for true in (target % 3, target % 2):  # with every class, and without one
        assert losses.MetricLoss(name, momentum=momentum)(logits, true).isnan()


@pytest.mark.parametrize("margin", [14.0, 16.0, 20.0])
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_what_is_rejected_keeps_its_digits_in_float32(task, margin):
    """Almost all mass is on one class, less than a millionth on the others."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(500, 3, generator=generator)
    logits[:, 1] += margin
    target = torch.randint(3, (500,), generator=generator)
    if task != "multiclass":
        target = torch.nn.functional.one_hot(target, 3).float()
    if task == "binary":
        logits, target = logits[:, 1], target[:, 1]
    loss = losses.MetricLoss("npv" if task == "binary" else "npv_macro", task=task)
    value = loss(logits, target)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(loss(logits.double(), target).item(), abs=1e-6)
