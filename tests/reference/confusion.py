"""From memberships and targets to confusion matrices: rows true, columns predicted."""

import numpy as np


def one_hot(labels, classes):
    """Integer labels as rows of class probabilities."""
    rows = np.zeros((len(labels), classes))
    for r, label in enumerate(labels):
        rows[r, label] = 1.0
    return rows


def two_columns(values):
    """The class-1 share of every row as a row of two: (1 - v, v)."""
    return np.array([[1 - v, v] for v in values], dtype=float).reshape(-1, 2)


def element_weights(weights, rows, labels):
    """One weight per row, or one per element, as one per element."""
    weights = np.asarray(weights, dtype=float)
    if weights.ndim == 1:
        weights = weights.reshape(rows, 1)
    return np.broadcast_to(weights, (rows, labels))


def multiclass(memberships, targets, weights):
    """The sum of w phi(y, y_hat) over the rows (EAST, Definition 5.5).

    A probabilistic target spreads the row over the true classes: phi_ij = t_i y_hat_j.
    """
    rows, classes = np.shape(targets)
    matrix = np.zeros((classes, classes))
    for r in range(rows):
        for i in range(classes):
            for j in range(classes):
                matrix[i, j] += weights[r] * targets[r][i] * memberships[r][j]
    return matrix


def binary(memberships, targets, weights):
    """[[TN, FP], [FN, TP]] from the memberships in class 1 (BtG eq. 6)."""
    return multiclass(two_columns(memberships), two_columns(targets), weights)


def multilabel(memberships, targets, weights):
    """A list of 2 x 2 matrices, one per label."""
    rows, labels = np.shape(targets)
    weights = element_weights(weights, rows, labels)
    memberships, targets = np.asarray(memberships), np.asarray(targets)
    return [binary(memberships[:, k], targets[:, k], weights[:, k]) for k in range(labels)]


def per_class(matrix):
    """tp, predicted and actual mass of every class: diagonal, column sums, row sums."""
    classes = len(matrix)
    tp = [matrix[k, k] for k in range(classes)]
    predicted = [sum(matrix[i, k] for i in range(classes)) for k in range(classes)]
    actual = [sum(matrix[k, j] for j in range(classes)) for k in range(classes)]
    return np.array(tp), np.array(predicted), np.array(actual)
