"""A classifier that fits fast, and data, for the tests of the estimator."""

import numpy as np
from torch import nn

from evalign.estimators import AlignedClassifier
from evalign.training import fitting


class SmallNetwork:
    """A network of one hidden layer; a function's repr would put an address in test ids."""

    def __call__(self, n_features, n_classes):
        return nn.Sequential(nn.Linear(n_features, 32), nn.ReLU(), nn.Linear(32, n_classes))

    def __repr__(self):
        return "SmallNetwork()"


def quick(metric="f1_macro", **arguments):
    """Make a classifier with a small network, few epochs and a high learning rate."""
    quick = {"network": SmallNetwork(), "epochs": 3, "batch_size": 64, "learning_rate": 0.03}
    return AlignedClassifier(metric, **({"random_state": 0, "device": "cpu"} | quick | arguments))


def noted_losses(monkeypatch):
    """Return a list that grows by the loss of every classifier that is trained."""
    losses, ingredients = [], fitting.ingredients

    def noted(*given):
        loss, annealing = ingredients(*given)
        losses.append(loss)
        return loss, annealing

    monkeypatch.setattr(fitting, "ingredients", noted)
    return losses


def imbalanced(rows=600, *, classes=2, seed=0):
    """Make overlapping normal clouds; the share of class k falls with k."""
    rng = np.random.default_rng(seed)
    share = 0.2 ** np.arange(classes)
    y = rng.choice(classes, rows, p=share / share.sum())
    X = rng.normal(size=(rows, 4))
    X[:, 0] += 2.5 * y
    X[:, 1] += 2.5 * (y % 2)
    return X, y
