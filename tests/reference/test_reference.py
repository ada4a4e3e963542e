"""The reference against numbers worked out by hand, and its metrics against scikit-learn."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn import metrics as sk

from . import confusion, losses, membership, metrics

T02 = membership.heaviside_at(0.2)


def close(value, expected):
    return value == pytest.approx(float(expected), rel=1e-12, abs=1e-12)


# Memberships.


@pytest.mark.parametrize(
    ("p", "tau", "temperature", "expected"),
    [
        # tau_m = 1/2, edges 1/4 and 3/4, slopes 4/5, 6/5, 4/5
        (0.0, 0.5, 0.2, 0),
        (0.125, 0.5, 0.2, Fraction(1, 10)),
        (0.25, 0.5, 0.2, Fraction(1, 5)),
        (0.5, 0.5, 0.2, Fraction(1, 2)),
        (0.75, 0.5, 0.2, Fraction(4, 5)),
        (0.875, 0.5, 0.2, Fraction(9, 10)),
        (1.0, 0.5, 0.2, 1),
        # tau_m = 3/20, edges 9/40 and 3/8, slopes 4/9, 16/3, 4/25
        (0.09, 0.3, 0.1, Fraction(1, 25)),
        (0.33, 0.3, 0.1, Fraction(33, 50)),
        (0.6, 0.3, 0.1, Fraction(117, 125)),
        # T = 0.4 at tau = 1/4: the ramp all but reaches 0, the last segment is half of [0, 1]
        (0.0, 0.25, 0.4, 0),
        (0.25, 0.25, 0.4, Fraction(1, 2)),
        (0.75, 0.25, 0.4, 1 - Fraction(2, 5) * Fraction(1, 4) / Fraction(2000001, 4000000)),
        (1.0, 0.25, 0.4, 1),
    ],
)
def test_tempered_heaviside_by_hand(p, tau, temperature, expected):
    assert close(membership.tempered(p, tau, temperature), expected)


def east_equation_4(p, tau, T):
    """As printed."""
    tau_m = 5 * T * min(tau, 1 - tau)
    m1, m2, m3 = T / (tau - tau_m / 2), (1 - 2 * T) / tau_m, T / (1 - tau - tau_m / 2)
    if p < tau - tau_m / 2:
        return p * m1
    if p > tau + tau_m / 2:
        return p * m3 + (1 - T - m3 * (tau + tau_m / 2))
    return p * m2 + (0.5 - m2 * tau)


@pytest.mark.parametrize("temperature", [0.01, 0.1, 0.2, 0.3, 0.39])
@pytest.mark.parametrize("tau", [0.05, 0.3, 0.5, 0.8])
def test_tempered_heaviside_is_the_printed_equation(tau, temperature):
    for p in np.linspace(0, 1, 101):
        printed = east_equation_4(p, tau, temperature)
        assert close(membership.tempered(p, tau, temperature), printed)


def test_sigmoid_heaviside():
    assert close(membership.sigmoid(0.5, 0.4, math.log(3) * 10), Fraction(3, 4))
    assert close(membership.heaviside_at(0.1, "sigmoid")(0.6, 0.5), 1 / (1 + math.exp(-2)))


def test_probabilities_of_extreme_logits():
    assert membership.softmax([1e4, -1e4]).tolist() == [1.0, 0.0]
    assert membership.log_softmax([1e4, -1e4]).tolist() == [0.0, -2e4]
    assert membership.sigmoid_function(-1e4) == 0.0
    assert membership.log_sigmoid(-1e4) == -1e4


def test_multiclass_membership_by_hand():
    # p = 1/2, 3/10, 1/5; tau = 2/5; H = 13/20, 7/20, 1/5, which sum to 6/5
    row = membership.multiclass_row([math.log(5), math.log(3), math.log(2)], T02)
    assert row == pytest.approx([13 / 24, 7 / 24, 1 / 6], rel=1e-12)


# Confusion matrices.


def test_multiclass_confusion_by_hand():
    memberships = [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]
    targets = [[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]]
    matrix = confusion.multiclass(memberships, targets, [1.0, 2.0])
    assert matrix.tolist() == [[0.5, 1.25, 0.25], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    tp, predicted, actual = confusion.per_class(matrix)
    assert tp.tolist() == [0.5, 0.0, 0.0]
    assert predicted.tolist() == [0.5, 2.25, 0.25]
    assert actual.tolist() == [2.0, 0.0, 1.0]


def test_binary_and_multilabel_confusion_by_hand():
    matrix = confusion.binary([0.75, 0.5], [1, 0], [1, 2])
    assert matrix.tolist() == [[1.0, 1.0], [0.25, 0.75]]
    first, second = confusion.multilabel(
        [[0.75, 1.0], [0.5, 0.0]], [[1, 0], [0, 1]], [[1, 0], [2, 1]]
    )
    assert first.tolist() == matrix.tolist()
    assert second.tolist() == [[0.0, 0.0], [1.0, 0.0]]


# Metrics.

MATRIX = np.array([[5.0, 2.0, 1.0], [1.0, 6.0, 3.0], [0.0, 1.0, 1.0]])
# tp 5, 6, 1; predicted 6, 9, 5; actual 8, 10, 2; tn 11, 7, 14; total 20


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (metrics.precision, [Fraction(5, 6), Fraction(2, 3), Fraction(1, 5)]),
        (metrics.recall, [Fraction(5, 8), Fraction(3, 5), Fraction(1, 2)]),
        (metrics.specificity, [Fraction(11, 12), Fraction(7, 10), Fraction(7, 9)]),
        (metrics.negative_predictive_value, [Fraction(11, 14), Fraction(7, 11), Fraction(14, 15)]),
        (metrics.fbeta, [Fraction(5, 7), Fraction(12, 19), Fraction(2, 7)]),
        (metrics.jaccard, [Fraction(5, 9), Fraction(6, 13), Fraction(1, 6)]),
        (metrics.informedness, [Fraction(13, 24), Fraction(3, 10), Fraction(5, 18)]),
    ],
)
def test_class_metrics_by_hand(metric, expected):
    expected = [float(e) for e in expected]
    assert metric(MATRIX, average=None) == pytest.approx(expected, rel=1e-12)
    assert close(metric(MATRIX, average="macro"), sum(expected) / 3)
    weighted = (8 * expected[0] + 10 * expected[1] + 2 * expected[2]) / 20
    assert close(metric(MATRIX, average="weighted"), weighted)
    assert close(metric(MATRIX, average="macro", labels=[0, 2]), (expected[0] + expected[2]) / 2)


def test_micro_by_hand():
    # TP 12, FP 8, FN 8, TN 32
    assert close(metrics.precision(MATRIX, average="micro"), Fraction(3, 5))
    assert close(metrics.specificity(MATRIX, average="micro"), Fraction(4, 5))
    assert close(metrics.informedness(MATRIX, average="micro"), Fraction(2, 5))
    # numerators 2*5, 5*6, 2*1; denominators 6+8, 9+40, 5+2
    per_class = metrics.fbeta(MATRIX, beta=[1, 2, 1], average="micro")
    assert close(per_class, Fraction(42, 70))


def test_whole_matrix_metrics_by_hand():
    assert close(metrics.accuracy(MATRIX), Fraction(3, 5))
    assert close(metrics.balanced_accuracy(MATRIX), Fraction(23, 40))
    assert close(metrics.g_mean(MATRIX), (3 / 16) ** (1 / 3))
    assert close(metrics.matthews_corrcoef(MATRIX), 92 / math.sqrt(258 * 232))
    assert close(metrics.cohen_kappa(MATRIX), Fraction(23, 63))
    assert close(metrics.cohen_kappa(MATRIX, "linear"), Fraction(31, 76))
    assert close(metrics.cohen_kappa(MATRIX, "quadratic"), Fraction(47, 102))
    cost = [[0, 1, 2], [5, 0, 1], [1, 1, 0]]  # 2 + 2 + 5 + 3 + 0 + 1
    assert close(metrics.expected_cost(MATRIX, cost), Fraction(13, 20))


def random_matrices(number, seed):
    """Counts with empty rows, empty columns, absent classes and one class only among them."""
    random = np.random.default_rng(seed)
    for n in range(number):
        classes = int(random.integers(2, 7))
        matrix = random.integers(0, 6, (classes, classes)) * (
            random.random((classes, classes)) < 0.5
        )
        matrix[:, random.random(classes) < 0.2] = 0
        matrix[random.random(classes) < 0.2] = 0
        if n % 10 == 0:
            matrix[:] = 0
        matrix[random.integers(classes), random.integers(classes)] += 1
        yield matrix.astype(float)


def expand(matrix):
    """The labels and predictions a matrix of counts stands for."""
    pairs = [(i, j) for (i, j), n in np.ndenumerate(matrix) for _ in range(int(n))]
    return [i for i, _ in pairs], [j for _, j in pairs]


def same(value, expected):
    if math.isnan(expected):
        return math.isnan(value)
    return close(value, expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("zero_division", [0.0, 1.0, math.nan])
def test_averages_are_scikit_learns(average, zero_division):
    for matrix in random_matrices(12, seed=1):
        true, predicted = expand(matrix)
        for labels in (None, [0], [1, 0]):
            options = {"labels": labels, "average": average, "zero_division": zero_division}
            p, r, f, _ = sk.precision_recall_fscore_support(true, predicted, beta=2.0, **options)
            assert same(metrics.precision(matrix, **options), p)
            assert same(metrics.recall(matrix, **options), r)
            assert same(metrics.fbeta(matrix, beta=2.0, **options), f)
            if not math.isnan(zero_division):
                assert same(
                    metrics.jaccard(matrix, **options), sk.jaccard_score(true, predicted, **options)
                )


def test_whole_matrix_metrics_are_scikit_learns():
    for matrix in random_matrices(50, seed=3):
        true, predicted = expand(matrix)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert close(metrics.accuracy(matrix), sk.accuracy_score(true, predicted))
            balanced = sk.balanced_accuracy_score(true, predicted)
            assert close(metrics.balanced_accuracy(matrix), balanced)
            assert close(metrics.matthews_corrcoef(matrix), sk.matthews_corrcoef(true, predicted))
            for weights in (None, "linear", "quadratic"):
                kappa = sk.cohen_kappa_score(
                    true, predicted, labels=range(len(matrix)), weights=weights
                )
                # 0/0 is 0 here and NaN there.
                assert close(metrics.cohen_kappa(matrix, weights), np.nan_to_num(kappa))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_multilabel_averages_are_scikit_learns(average):
    random = np.random.default_rng(4)
    for _ in range(50):
        rate = random.random(4) * (random.random(4) < 0.7)
        true = (random.random((6, 4)) < rate).astype(int)
        predicted = (random.random((6, 4)) < rate).astype(int)
        matrices = confusion.multilabel(predicted, true, np.ones(6))
        f1 = sk.f1_score(true, predicted, average=average, zero_division=0.0)
        assert close(metrics.fbeta(matrices, average=average), f1)


# Losses: f = 4/5, 1/2, 1/5 with weights 1, 2, 1.

LOGITS = [math.log(4), 0.0, -math.log(4)]
TARGETS = [1, 0, 1]
WEIGHTS = [1, 2, 1]
BATCH = (LOGITS, TARGETS, WEIGHTS)


def test_metric_loss_by_hand():
    # H = 21/25, 1/2, 4/25: TP 1, FP 1, FN 1, TN 1
    loss = losses.metric_loss(metrics.fbeta, *BATCH, "binary", T02)
    assert close(loss, Fraction(1, 2))
    # at tau = 1/4 the edges are 1/8, 3/8 and m2 = 12/5, m3 = 8/25:
    # H = 117/125, 21/25, 19/50; TP 1.316, FP 1.68, FN 0.684; F1 = 658/1249
    both = losses.metric_loss(metrics.fbeta, *BATCH, "binary", T02, threshold=[0.5, 0.25])
    assert close(both, (Fraction(1, 2) + Fraction(591, 1249)) / 2)
    cost = losses.metric_loss(
        lambda matrix: metrics.expected_cost(matrix, [[0, 1], [5, 0]]),
        *BATCH,
        "binary",
        T02,
        minimised=True,
    )
    assert close(cost, Fraction(6, 4))


def test_auroc_by_hand():
    # TPR = 21/25, FPR = (2/2 + 4/25) / 3 = 29/75
    loss = losses.auroc(LOGITS, [1, 0, 0], WEIGHTS, [0.5], T02)
    assert close(loss, Fraction(41, 150))
    assert losses.auroc(LOGITS, [1, 1, 1], WEIGHTS, [0.5], T02) == 0.0


def test_wmw_by_hand():
    # pairs (4/5, 1/2) and (1/5, 1/2), equal weights: 0 and (3/5)^2
    assert close(losses.wmw(*BATCH), Fraction(9, 50))
    assert losses.wmw(LOGITS, [1, 1, 1], WEIGHTS) == 0.0


def test_surrogate_fbeta_by_hand():
    # p = 1/4, beta = 2: beta^2 p / (1 - p) = 4/3, w_1 = 4, w_0 = 4/3
    eq20 = losses.surrogate_fbeta(*BATCH, positive_rate=0.25, beta=2.0)
    expected = 4 * math.log(5 / 4) + 2 * (4 / 3) * math.log(11 / 6) + 4 * math.log(5)
    assert close(eq20, expected / 4)
    eq25 = losses.surrogate_fbeta(*BATCH, positive_rate=0.25, beta=2.0, q=1.0)
    assert close(eq25, Fraction(14, 9))
    half_of_mae = losses.surrogate_fbeta(*BATCH, positive_rate=0.5, q=1.0, class_balanced=False)
    assert close(half_of_mae, losses.mae(*BATCH, "binary") / 2)


def test_soft_fbeta_by_hand():
    # p_n = q_0 = q_1 = 1/2
    assert close(losses.soft_fbeta(*BATCH, "binary"), Fraction(1, 2))
    assert close(losses.soft_fbeta(*BATCH, "binary", beta=2.0), Fraction(1, 2))
    # one class only: f of 4/5 and 1/5 among positives, TP 1, FN 1, so F1 = 2/3
    assert close(losses.soft_fbeta(LOGITS[::2], [1, 1], [1, 1], "binary"), Fraction(1, 3))
    assert close(losses.soft_fbeta(LOGITS[::2], [0, 0], [1, 1], "binary"), 1)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_soft_fbeta_is_the_metric_of_the_probabilities(average):
    random = np.random.default_rng(5)
    logits, weights = random.normal(size=(8, 3)), random.random(8)
    targets = confusion.one_hot(random.integers(0, 3, 8), 3)
    p = [membership.softmax(row) for row in logits]
    matrix = confusion.multiclass(p, targets, weights)
    expected = 1 - metrics.fbeta(matrix, beta=2.0, average=average)
    loss = losses.soft_fbeta(logits, targets, weights, "multiclass", beta=2.0, average=average)
    assert close(loss, expected)


def test_dice_by_hand():
    # sum p g = 1, sum p^2 = 59/50, sum g^2 = 2
    assert close(losses.dice(*BATCH, "binary"), Fraction(59, 159))
    # p = 3/4, 1/4 of class 0: overlaps 3/4, 1/4; squares 9/16 + 1, 1/16 + 0
    one_row = losses.dice([[math.log(3), 0.0]], [[1, 0]], [1], "multiclass")
    assert close(one_row, (1 - Fraction(24, 25) + 1) / 2)


def test_sigmoid_f1_by_hand():
    # tp = fp = fn = 1
    assert close(losses.sigmoid_f1(*BATCH, "binary"), Fraction(1, 2))
    # eta = log 4, beta = 1/2 gives S = 4/5, 2/3, 1/2: tp 13/10, fp 4/3, fn 7/10
    stretched = losses.sigmoid_f1(*BATCH, "binary", beta=0.5, eta=math.log(4))
    assert close(stretched, 1 - Fraction(26, 10) / Fraction(139, 30))


def test_lovasz_by_hand():
    # errors 4/5, 1/2, 1/5 reach the Jaccard losses 1/2, 3/4, 1
    assert close(losses.lovasz_softmax(*BATCH, "binary"), Fraction(23, 40))
    # without positives every set has loss 1: the largest error
    assert close(losses.lovasz_softmax(LOGITS, [0, 0, 0], WEIGHTS, "binary"), Fraction(4, 5))
    # p = 3/4, 1/4; class 1 has no true row and is left out
    assert close(
        losses.lovasz_softmax([[math.log(3), 0.0]], [[1, 0]], [1], "multiclass"), Fraction(1, 4)
    )


def test_lovasz_of_hard_predictions_is_the_jaccard_loss():
    random = np.random.default_rng(6)
    for _ in range(20):
        predicted, true = random.integers(0, 2, (2, 7))
        true[0] = 1
        weights = random.random(7)
        matrix = confusion.binary(predicted, true, weights)
        loss = losses.lovasz_softmax(800.0 * (2 * predicted - 1), true, weights, "binary")
        assert close(loss, 1 - metrics.jaccard(matrix))


def test_row_losses_by_hand():
    log2, log5, log54 = math.log(2), math.log(5), math.log(5 / 4)
    assert close(losses.cross_entropy(*BATCH, "binary"), (log54 + 2 * log2 + log5) / 4)
    assert close(losses.mae(*BATCH, "binary"), 1)
    focal = (log54 / 25 + 2 * log2 / 4 + 16 * log5 / 25) / 4
    assert close(losses.focal(*BATCH, "binary"), focal)
    # 2/5 * 3, 2 * 1 * 1/2, 8/5 * 3
    weighted = losses.mae(*BATCH, "binary", class_weight=[0.5, 3.0])
    assert close(weighted, Fraction(7, 4))


def test_row_losses_with_probabilistic_targets_by_hand():
    # p = 3/4, 1/4; target 1/3, 2/3: (1/3)(1/2) + (2/3)(3/2)
    row = ([[math.log(3), 0.0]], [[1 / 3, 2 / 3]], [5.0])
    assert close(losses.mae(*row, "multiclass"), Fraction(7, 6))
    entropy = (math.log(4 / 3) + 2 * math.log(4)) / 3
    assert close(losses.cross_entropy(*row, "multiclass"), entropy)


def test_multilabel_row_losses_leave_elements_of_weight_zero_out():
    logits, targets = [[math.log(4), 0.0]], [[1, 0]]
    # 2/5 and 1
    assert close(losses.mae(logits, targets, [1], "multilabel"), Fraction(7, 10))
    assert close(losses.mae(logits, targets, [[1, 0]], "multilabel"), Fraction(2, 5))
    # per label 3 and 1/2
    by_label = losses.mae(logits, targets, [1], "multilabel", class_weight=[3.0, 0.5])
    assert close(by_label, Fraction(17, 20))


def test_logit_adjusted_by_hand():
    # equal logits and prior 1/4, 3/4
    row = ([[0.0, 0.0]], [[1, 0]], [1])
    assert close(losses.logit_adjusted(*row, "multiclass", [1, 3]), math.log(4))
    assert close(losses.logit_adjusted([0.0], [0], [1], "binary", [1, 3]), math.log(4))
    # tau = 2: odds 1 to 9
    assert close(losses.logit_adjusted(*row, "multiclass", [1, 3], tau=2.0), math.log(10))


def test_class_weights_by_hand():
    assert losses.inverse_frequency_weights([1, 3]).tolist() == [4.0, 4 / 3]
    # beta = 1/2: 1 and 2/3
    weights = losses.effective_number_weights([1, 2], beta=0.5)
    assert weights == pytest.approx([6 / 5, 4 / 5], rel=1e-12)
