"""What the tests of the estimator share: a classifier that fits in a moment, and data."""

import numpy as np
from torch import nn

from evalign.estimator import AlignedClassifier


class SmallNetwork:
    """One hidden layer. Not a function: its name holds no address, so that tests keep theirs."""

    def __call__(self, n_features, n_classes):
        return nn.Sequential(nn.Linear(n_features, 32), nn.ReLU(), nn.Linear(32, n_classes))

    def __repr__(self):
        return "SmallNetwork()"


def quick(metric="f1_macro", **arguments):
    """A small network, few epochs, a high learning rate."""
    quick = {"network": SmallNetwork(), "epochs": 10, "batch_size": 32, "learning_rate": 0.02}
    return AlignedClassifier(metric, **({"random_state": 0, "device": "cpu"} | quick | arguments))


def imbalanced(rows=600, *, classes=2, seed=0):
    """Overlapping normal clouds; class k has a share that falls with k."""
    rng = np.random.default_rng(seed)
    share = 0.2 ** np.arange(classes)
    y = rng.choice(classes, rows, p=share / share.sum())
    X = rng.normal(size=(rows, 4))
    X[:, 0] += 2.5 * y
    X[:, 1] += 2.5 * (y % 2)
    return X, y
