"""Every loss, from logits, targets and weights to one number. Total weight 0 gives 0."""

import math
from itertools import pairwise

import numpy as np

from . import confusion, membership, metrics
from .membership import log_sigmoid, log_softmax, sigmoid_function, softmax

# Shared shapes.


def columns(logits, targets, weights, task):
    """(probabilities, targets, weights) of the rows for every class scored by itself.

    binary: class 1 only. multiclass: softmax, each class against the rest. multilabel: sigmoids.
    """
    logits = np.asarray(logits, dtype=float)
    targets = np.asarray(targets, dtype=float)
    if task == "binary":
        f = np.array([sigmoid_function(z) for z in logits])
        return [(f, targets, np.asarray(weights, dtype=float))]
    rows, classes = logits.shape
    p = np.zeros((rows, classes))
    for r in range(rows):
        if task == "multiclass":
            p[r] = softmax(logits[r])
        else:
            p[r] = [sigmoid_function(z) for z in logits[r]]
    weights = confusion.element_weights(weights, rows, classes)
    return [(p[:, k], targets[:, k], weights[:, k]) for k in range(classes)]


def log_probability_rows(logits, targets, weights, task):
    """(log p, target row, weight, index of the label) for every row, or for every element.

    A binary row, and every element of a multilabel row, has the two classes 0 and 1.
    """
    logits = np.asarray(logits, dtype=float)
    rows = []
    if task == "multiclass":
        for z, t, w in zip(logits, targets, weights, strict=True):
            rows.append((log_softmax(z), t, w, None))
    elif task == "binary":
        for z, y, w in zip(logits, targets, weights, strict=True):
            rows.append(([log_sigmoid(-z), log_sigmoid(z)], [1 - y, y], w, None))
    else:
        weights = confusion.element_weights(weights, *logits.shape)
        for r in range(logits.shape[0]):
            for k in range(logits.shape[1]):
                z, y = logits[r, k], targets[r][k]
                rows.append(([log_sigmoid(-z), log_sigmoid(z)], [1 - y, y], weights[r, k], k))
    return rows


def mean_over_rows(rows, loss_of_class, class_weight):
    """sum_r w_r sum_y t_y weight_y L_y / sum_r w_r (the mean of SurF eq. 15).

    `class_weight` has one entry per class, for a multilabel problem one per label.
    """
    total = value = 0.0
    for log_p, target, weight, label in rows:
        total += weight
        for y in range(len(target)):
            if target[y] == 0:
                continue
            factor = 1.0
            if class_weight is not None:
                factor = class_weight[y if label is None else label]
            value += weight * target[y] * factor * loss_of_class(log_p, y)
    if total == 0:
        return 0.0
    return value / total


def one_minus(log_p, y):
    """1 - p_y, as the sum of the other probabilities."""
    return sum(math.exp(log_p[j]) for j in range(len(log_p)) if j != y)


# The metric as a loss (EAST, Section 4.2; BtG, Section 3.2).


def soft_confusion(logits, targets, weights, task, heaviside, threshold=0.5):
    """The soft confusion of a batch."""
    if task == "multiclass":
        memberships = membership.multiclass(logits, heaviside)
        return of_rows(confusion.multiclass(memberships, targets, weights), weights)
    if task == "binary":
        memberships = membership.binary(logits, threshold, heaviside)
        return of_rows(confusion.binary(memberships, targets, weights), weights)
    memberships = membership.multilabel(logits, threshold, heaviside)
    return confusion.multilabel(memberships, targets, weights)


def of_rows(matrix, weights):
    soft = np.asarray(matrix).view(metrics.SoftMatrix)
    soft.rows = np.count_nonzero(weights)
    return soft


def metric_loss(metric, logits, targets, weights, task, heaviside, threshold=0.5, minimised=False):
    """1 - metric(soft confusion), or the metric itself where smaller is better.

    A list of thresholds of a binary problem gives the mean of the losses; of a multilabel problem
    it is one threshold per label.
    """
    if np.sum(weights) == 0:
        return 0.0
    thresholds = [threshold]
    if task == "binary" and np.ndim(threshold) == 1:
        thresholds = threshold
    values = []
    for tau in thresholds:
        value = metric(soft_confusion(logits, targets, weights, task, heaviside, tau))
        values.append(value if minimised else 1 - value)
    return sum(values) / len(values)


# Binary losses.


def auroc(logits, targets, weights, thresholds, heaviside, task="binary"):
    """1 - the trapezoid of soft TPR over soft FPR, from (0, 0) to (1, 1) (BtG, Section 2).

    The curve is run through from the highest threshold to the lowest. 0 without two classes.
    """

    def area(z, p, y, w):
        points = [(0.0, 0.0)]
        for tau in sorted(thresholds, reverse=True):
            tp, fp, positives, negatives = _counts([heaviside(x, tau) for x in p], y, w)
            points.append((fp / negatives, tp / positives))
        points.append((1.0, 1.0))
        return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))

    return _mean_of_classes(area, logits, targets, weights, task)


def average_precision(logits, targets, weights, task, thresholds=101):
    """1 - the sum of gains in recall times precision, from the highest threshold on."""

    def area(z, p, y, w):
        total, before = 0.0, 0.0
        for tp, fp, positives, _ in _curve(z, y, w, thresholds):
            if tp + fp > 0:
                total += (tp - before) / positives * tp / (tp + fp)
            before = tp
        return total

    return _mean_of_classes(area, logits, targets, weights, task)


def _curve(z, y, w, thresholds, reach=10.0):
    """Counts at evenly spaced thresholds of asinh(z), a row fading out one step above itself."""
    width = 2 * reach / (thresholds - 1)
    u = [min(max(np.arcsinh(x), -reach), reach) for x in z]
    taus = [reach - k * width for k in range(thresholds)]
    return [_counts([min(max(1 - (tau - x) / width, 0), 1) for x in u], y, w) for tau in taus]


def _counts(h, y, w):
    tp = fp = positives = negatives = 0.0
    for h_r, y_r, w_r in zip(h, y, w, strict=True):
        tp += w_r * y_r * h_r
        fp += w_r * (1 - y_r) * h_r
        positives += w_r * y_r
        negatives += w_r * (1 - y_r)
    return tp, fp, positives, negatives


def _mean_of_classes(score, logits, targets, weights, task):
    """1 - the mean of score(log odds, p, y, w) over classes with rows and others; 0 if none has."""
    if task == "binary":
        columns = [(logits, [sigmoid_function(z) for z in logits], targets)]
    elif task == "multilabel":
        columns = [
            (z, [sigmoid_function(x) for x in z], y)
            for z, y in zip(logits.T, targets.T, strict=True)
        ]
    else:
        columns = []
        for c in range(logits.shape[1]):
            others = np.delete(logits, c, axis=1)
            odds = [
                row[c] - np.log(np.sum(np.exp(o))) for row, o in zip(logits, others, strict=True)
            ]
            columns.append((odds, [sigmoid_function(x) for x in odds], targets[:, c]))
    scores = []
    for z, p, y in columns:
        _, _, positives, negatives = _counts([0.0] * len(p), y, weights)
        if positives > 0 and negatives > 0:
            scores.append(score(z, p, y, weights))
    return 1 - sum(scores) / len(scores) if scores else 0.0


def wmw(logits, targets, weights, gamma=0.3, p=2.0):
    """The mean over pairs (positive i, negative j) of max(gamma - (x_i - x_j), 0)^p (Yan 2003).

    A pair weighs w_i y_i w_j (1 - y_j). 0 without pairs.
    """
    x = [sigmoid_function(z) for z in logits]
    total = value = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            pair = weights[i] * targets[i] * weights[j] * (1 - targets[j])
            total += pair
            if x[i] - x[j] < gamma:
                value += pair * (gamma - (x[i] - x[j])) ** p
    if total == 0:
        return 0.0
    return value / total


def surrogate_fbeta(logits, targets, weights, positive_rate, beta=1.0, q=0.0, class_balanced=True):
    """SurF eq. 20 for q = 0, eq. 25 for q > 0, with the class weights of eq. 21."""
    p = positive_rate
    w1, w0 = (1 / p, 1 / (1 - p)) if class_balanced else (1.0, 1.0)
    total = value = 0.0
    for z, y, w in zip(logits, targets, weights, strict=True):
        f = sigmoid_function(z)
        shifted = beta**2 * p / (1 - p) + f
        if q == 0:
            positive, negative = -log_sigmoid(z), math.log(shifted)
        else:
            positive, negative = (1 - f**q) / q, (shifted**q - 1) / q
        total += w
        value += w * (y * w1 * positive + (1 - y) * w0 * negative)
    if total == 0:
        return 0.0
    return value / total


# Losses of the sums over the batch.


def smoothed_fbeta(f, y, w, beta):
    """SurF eq. 24 through p_n (eq. 4) and the smoothed proportions (eq. 7), weighted.

    A proportion among no rows is multiplied by p_n = 0 or 1 - p_n = 0; it is written as 0.
    """
    rows = range(len(f))
    n1 = sum(w[i] * y[i] for i in rows)
    n0 = sum(w[i] * (1 - y[i]) for i in rows)
    p_n = n1 / (n0 + n1)
    q0 = sum(w[i] * y[i] * (1 - f[i]) for i in rows) / n1 if n1 > 0 else 0.0
    q1 = sum(w[i] * (1 - y[i]) * f[i] for i in rows) / n0 if n0 > 0 else 0.0
    numerator = (1 + beta**2) * p_n * (1 - q0)
    denominator = p_n * (beta**2 + 1 - q0 - q1) + q1
    return metrics.ratio(numerator, denominator, 0.0)


def soft_fbeta(logits, targets, weights, task, beta=1.0, average="binary"):
    """SurF eq. 23: 1 - smoothed F-beta, per class against the rest, then averaged."""
    if np.sum(weights) == 0:
        return 0.0
    classes = columns(logits, targets, weights, task)
    if task == "binary":
        f, y, w = classes[0]
        classes = [(1 - f, 1 - y, w), (f, y, w)]
    classes = [(f, y, w) for f, y, w in classes if np.sum(w) > 0]
    if average == "binary":
        assert task != "multilabel"
        assert len(classes) == 2
        return 1 - smoothed_fbeta(*classes[1], beta)
    if average == "micro":
        f, y, w = (np.concatenate([c[entry] for c in classes]) for entry in range(3))
        return 1 - smoothed_fbeta(f, y, w, beta)
    scores = [smoothed_fbeta(f, y, w, beta) for f, y, w in classes]
    if average == "weighted":
        shares = [np.sum(w * y) for _, y, w in classes]
    elif task == "multilabel":
        shares = [1.0 for _ in classes]
    else:  # a class without true rows counts as much as it has predicted rows, at most 1
        row = np.mean(weights[weights > 0])
        shares = [1.0 if np.any(w * y) else min(1.0, np.sum(w * f) / row) for f, y, w in classes]
    if sum(shares) == 0:
        shares = [1.0 for _ in classes]
    return 1 - sum(s * score for s, score in zip(shares, scores, strict=True)) / sum(shares)


def mean_or_zero(values):
    return sum(values) / len(values) if values else 0.0


def dice(logits, targets, weights, task):
    """1 - 2 sum(p g) / (sum p^2 + sum g^2) (Milletari 2016), mean over classes with mass."""
    values = []
    for p, g, w in columns(logits, targets, weights, task):
        rows = range(len(p))
        overlap = sum(w[i] * p[i] * g[i] for i in rows)
        squares = sum(w[i] * p[i] ** 2 for i in rows) + sum(w[i] * g[i] ** 2 for i in rows)
        if squares > 0:
            values.append(1 - 2 * overlap / squares)
    return mean_or_zero(values)


def sigmoid_f1(logits, targets, weights, task, beta=1.0, eta=0.0):
    """1 - 2 tp / (2 tp + fp + fn) with S = sigmoid(beta (z + eta)) (Benedict 2021), mean over
    classes with mass. Classes are scored by sigmoids, in a multiclass problem too."""
    logits = np.asarray(logits, dtype=float)
    stretched = beta * (logits + eta)
    values = []
    sigmoids = "binary" if task == "binary" else "multilabel"
    for s, y, w in columns(stretched, targets, weights, sigmoids):
        rows = range(len(s))
        tp = sum(w[i] * s[i] * y[i] for i in rows)
        fp = sum(w[i] * s[i] * (1 - y[i]) for i in rows)
        fn = sum(w[i] * (1 - s[i]) * y[i] for i in rows)
        if 2 * tp + fp + fn > 0:
            values.append(1 - 2 * tp / (2 * tp + fp + fn))
    return mean_or_zero(values)


def jaccard_set_loss(mispredicted, y, w):
    """Delta_J(M) = |M| / |Y u M| (Berman 2018), Y the foreground and |.| the sum of weights.

    A row outside M is in the union to the degree y, which is 0 or 1 for hard labels.
    """
    inside = sum(w[i] for i in range(len(y)) if i in mispredicted)
    outside = sum(w[i] * y[i] for i in range(len(y)) if i not in mispredicted)
    return metrics.ratio(inside, inside + outside, 0.0)


def lovasz_extension(errors, y, w):
    """sum_i m_i (Delta(first i) - Delta(first i - 1)), errors decreasing (Berman 2018)."""
    order = sorted(range(len(errors)), key=lambda i: -errors[i])
    value = 0.0
    for n, i in enumerate(order):
        step = jaccard_set_loss(set(order[: n + 1]), y, w) - jaccard_set_loss(set(order[:n]), y, w)
        value += errors[i] * step
    return value


def lovasz_softmax(logits, targets, weights, task):
    """The Lovasz extension at |y - p| per class, mean over classes (Berman 2018).

    A multiclass class without true rows is left out; a label without positives counts.
    """
    values = []
    for p, y, w in columns(logits, targets, weights, task):
        present = sum(w * y) > 0 if task == "multiclass" else sum(w) > 0
        if present:
            errors = [abs(y[i] - p[i]) for i in range(len(p))]
            values.append(lovasz_extension(errors, y, w))
    return mean_or_zero(values)


# Losses of one row.


def cross_entropy(logits, targets, weights, task, class_weight=None):
    """-log p_y (SurF eq. 13), mean over rows, for a multilabel problem over rows and labels."""
    rows = log_probability_rows(logits, targets, weights, task)
    return mean_over_rows(rows, lambda log_p, y: -log_p[y], class_weight)


def mae(logits, targets, weights, task, class_weight=None):
    """2 - 2 p_y (SurF eq. 14), mean over rows."""
    rows = log_probability_rows(logits, targets, weights, task)
    return mean_over_rows(rows, lambda log_p, y: 2 * one_minus(log_p, y), class_weight)


def focal(logits, targets, weights, task, gamma=2.0, class_weight=None):
    """-(1 - p_y)^gamma log p_y (Lin 2017), mean over rows."""
    rows = log_probability_rows(logits, targets, weights, task)
    return mean_over_rows(
        rows, lambda log_p, y: -(one_minus(log_p, y) ** gamma) * log_p[y], class_weight
    )


def logit_adjusted(logits, targets, weights, task, class_counts, tau=1.0):
    """Cross-entropy of z + tau log pi (Menon 2021); binary: of z + tau log(pi_1 / pi_0)."""
    prior = [c / sum(class_counts) for c in class_counts]
    logits = np.asarray(logits, dtype=float)
    if task == "binary":
        adjusted = logits + tau * (math.log(prior[1]) - math.log(prior[0]))
    else:
        assert task == "multiclass"
        adjusted = logits + tau * np.array([math.log(pi) for pi in prior])
    return cross_entropy(adjusted, targets, weights, task)


# Class weights.


def inverse_frequency_weights(counts):
    """w_y = n / n_y (SurF, Section 3.1)."""
    return np.array([sum(counts) / n_y for n_y in counts])


def effective_number_weights(counts, beta=0.999):
    """(1 - beta) / (1 - beta^n_y), scaled to sum to the number of classes (Cui 2019)."""
    raw = [(1 - beta) / (1 - beta**n_y) for n_y in counts]
    return np.array([len(counts) * r / sum(raw) for r in raw])
