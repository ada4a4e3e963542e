"""Data for the tests of estimators."""

import numpy as np


def imbalanced(rows=600, *, classes=2, seed=0):
    """Make overlapping normal clouds; the share of class k falls with k."""
    rng = np.random.default_rng(seed)
    share = 0.2 ** np.arange(classes)
    y = rng.choice(classes, rows, p=share / share.sum())
    X = rng.normal(size=(rows, 4))
    X[:, 0] += 2.5 * y
    X[:, 1] += 2.5 * (y % 2)
    return X, y
