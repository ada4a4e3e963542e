"""Metrics of a confusion, from the textbook's one-versus-rest counts.

A confusion is a d x d array (rows true) or, for a multilabel problem, a list of 2 x 2 arrays. A
soft one of exclusive classes is a `SoftMatrix`.
"""

import math

import numpy as np


class SoftMatrix(np.ndarray):
    """A d x d array that knows of how many rows of positive weight it is the sum."""

    rows: int


def one_versus_rest(matrix, k):
    """(TP, FP, FN, TN) of class k (EAST eq. 1)."""
    others = [i for i in range(len(matrix)) if i != k]
    tp = matrix[k, k]
    fp = sum(matrix[i, k] for i in others)
    fn = sum(matrix[k, i] for i in others)
    tn = sum(matrix[i, j] for i in others for j in others)
    return tp, fp, fn, tn


def counts(confusion):
    """(TP, FP, FN, TN) of every class or label."""
    if isinstance(confusion, list):
        return [one_versus_rest(matrix, 1) for matrix in confusion]
    return [one_versus_rest(confusion, k) for k in range(len(confusion))]


def ratio(numerator, denominator, zero_division):
    if denominator == 0:
        return zero_division
    return numerator / denominator


# One class: a function of its four counts. `zero` is the value of a score that has no value.


def precision_of(tp, fp, fn, tn, zero):
    return ratio(tp, tp + fp, zero)


def recall_of(tp, fp, fn, tn, zero):
    return ratio(tp, tp + fn, zero)


def specificity_of(tp, fp, fn, tn, zero):
    return ratio(tn, tn + fp, zero)


def negative_predictive_value_of(tp, fp, fn, tn, zero):
    return ratio(tn, tn + fn, zero)


def fbeta_of(tp, fp, fn, tn, zero, beta):
    """SurF eq. 1 where precision and recall are positive, else MC-Fbeta eq. 6."""
    if tp > 0:
        precision = tp / (tp + fp)
        recall = tp / (tp + fn)
        return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)
    return ratio((1 + beta**2) * tp, (1 + beta**2) * tp + fp + beta**2 * fn, zero)


def jaccard_of(tp, fp, fn, tn, zero):
    """Intersection over union of the true and the predicted set."""
    return ratio(tp, tp + fp + fn, zero)


def informedness_of(tp, fp, fn, tn, zero):
    """Recall + specificity - 1; without a value where either part has none."""
    if tp + fn == 0 or tn + fp == 0:
        return zero
    return tp / (tp + fn) + tn / (tn + fp) - 1


def chosen_classes(confusion, labels):
    """The classes an average runs over.

    As scikit-learn: all of `labels`; without it, the classes that occur in the true or predicted
    labels. Every label of a multilabel problem occurs, unless no row of it has any weight.
    """
    every = counts(confusion)
    if labels is not None:
        return list(labels)
    if isinstance(confusion, list):
        return [k for k in range(len(every)) if sum(every[k]) > 0]
    return [k for k, (tp, fp, fn, _) in enumerate(every) if tp + fp + fn > 0]


def share_of(confusion, k):
    """How much class k counts in an average by default: without true rows, as many predicted rows
    of mean weight as it has, at most 1. Of labels, which are whole rows, that is always 1.
    """
    if not isinstance(confusion, SoftMatrix) or confusion[k].sum() > 0:
        return 1.0
    one_row = confusion.sum() / confusion.rows
    return min(1.0, confusion[:, k].sum() / one_row)


def averaged(confusion, score, average, labels, zero_division):
    """`score(tp, fp, fn, tn, zero, k)` of the classes, averaged as scikit-learn does.

    None: one value per class, absent ones included. Scores of nan are left out of an average with
    their weight; if all are left out the average is nan; weights that are all zero are ignored.
    Without any class to average, as in a batch without mass, the value is `zero_division`.
    """
    every = counts(confusion)
    if average == "binary":
        assert len(every) == 2
        assert not isinstance(confusion, list)
        return score(*every[1], zero_division, 1)
    if average is None:
        classes = range(len(every)) if labels is None else labels
        return np.array([score(*every[k], zero_division, k) for k in classes])

    classes = chosen_classes(confusion, labels)
    if average == "micro":
        tp, fp, fn, tn = (sum(every[k][entry] for k in classes) for entry in range(4))
        if labels is None:  # a class has true negatives among its share of the rows
            tn -= sum((1 - share_of(confusion, k)) * sum(every[k]) for k in classes)
        return score(tp, fp, fn, tn, zero_division, None)

    weight_sum, score_sum, plain_sum, number = 0.0, 0.0, 0.0, 0.0
    for k in classes:
        value = score(*every[k], zero_division, k)
        if math.isnan(value):
            continue
        tp, _, fn, _ = every[k]
        share = share_of(confusion, k) if labels is None else 1.0
        weight = tp + fn if average == "weighted" else share
        weight_sum += weight
        score_sum += weight * value
        plain_sum += share * value
        number += share
    if number == 0:
        return zero_division if not classes else math.nan
    if weight_sum == 0:
        return plain_sum / number
    return score_sum / weight_sum


def plain(score_of):
    """The averaged metric of a one-class score without further parameters."""

    def metric(confusion, average="binary", labels=None, zero_division=0.0):
        return averaged(
            confusion,
            lambda tp, fp, fn, tn, zero, k: score_of(tp, fp, fn, tn, zero),
            average,
            labels,
            zero_division,
        )

    metric.__doc__ = score_of.__doc__
    return metric


precision = plain(precision_of)
recall = plain(recall_of)
specificity = plain(specificity_of)
negative_predictive_value = plain(negative_predictive_value_of)
jaccard = plain(jaccard_of)
informedness = plain(informedness_of)


def fbeta(confusion, beta=1.0, average="binary", labels=None, zero_division=0.0):
    """F-beta (SurF eq. 1, MC-Fbeta eq. 6; macro: EAST eq. 2); `beta` one number or one per class.

    The micro average of a beta per class is the sum of eq. 6's numerators over the sum of its
    denominators, which for one beta is the F-beta of the summed counts.
    """
    every = counts(confusion)
    betas = np.broadcast_to(beta, (len(every),))
    if average == "micro":
        numerator = denominator = 0.0
        for k in chosen_classes(confusion, labels):
            tp, fp, fn, _ = every[k]
            numerator += (1 + betas[k] ** 2) * tp
            denominator += (1 + betas[k] ** 2) * tp + fp + betas[k] ** 2 * fn
        return ratio(numerator, denominator, zero_division)
    return averaged(
        confusion,
        lambda tp, fp, fn, tn, zero, k: fbeta_of(tp, fp, fn, tn, zero, betas[k]),
        average,
        labels,
        zero_division,
    )


# The whole matrix.


def accuracy(matrix):
    """The share of correct predictions (BtG eq. 3)."""
    return ratio(sum(matrix[k, k] for k in range(len(matrix))), matrix.sum(), 0.0)


def recalls_of_true_classes(matrix):
    recalls = []
    for k in range(len(matrix)):
        tp, _, fn, _ = one_versus_rest(matrix, k)
        if tp + fn > 0:
            recalls.append(tp / (tp + fn))
    return recalls


def balanced_accuracy(matrix):
    """The mean recall of the classes with true mass."""
    recalls = recalls_of_true_classes(matrix)
    return ratio(sum(recalls), len(recalls), 0.0)


def g_mean(matrix):
    """The geometric mean of the recalls of the classes with true mass."""
    recalls = recalls_of_true_classes(matrix)
    if not recalls:
        return 0.0
    return math.prod(recalls) ** (1 / len(recalls))


def matthews_corrcoef(matrix):
    """Gorodkin's R_K, by its sums over the entries of the matrix; 0 where it has no value."""
    d = range(len(matrix))
    covariance = 0.0
    for k in d:
        for i in d:
            for j in d:
                covariance += matrix[k, k] * matrix[i, j] - matrix[k, i] * matrix[j, k]
    true_variance = predicted_variance = 0.0
    for k in d:
        true_k = sum(matrix[k, j] for j in d)
        true_others = sum(matrix[i, j] for i in d if i != k for j in d)
        true_variance += true_k * true_others
        predicted_k = sum(matrix[i, k] for i in d)
        predicted_others = sum(matrix[i, j] for j in d if j != k for i in d)
        predicted_variance += predicted_k * predicted_others
    if true_variance == 0 or predicted_variance == 0:
        return 0.0
    return covariance / (math.sqrt(true_variance) * math.sqrt(predicted_variance))


def cohen_kappa(matrix, weights=None):
    """1 - sum w_ij O_ij / sum w_ij E_ij (Cohen 1960, 1968); 0 where it has no value."""
    d = range(len(matrix))
    total = matrix.sum()
    if total == 0:
        return 0.0
    observed = expected = 0.0
    for i in d:
        for j in d:
            if weights is None:
                disagreement = float(i != j)
            elif weights == "linear":
                disagreement = abs(i - j)
            else:
                disagreement = (i - j) ** 2
            true_i = sum(matrix[i, m] for m in d)
            predicted_j = sum(matrix[m, j] for m in d)
            observed += disagreement * matrix[i, j]
            expected += disagreement * true_i * predicted_j / total
    if expected == 0:
        return 0.0
    return 1 - observed / expected


def expected_cost(matrix, cost):
    """The mean of cost[true][predicted]; the smaller the better."""
    d = range(len(matrix))
    return ratio(sum(matrix[i, j] * cost[i][j] for i in d for j in d), matrix.sum(), 0.0)
