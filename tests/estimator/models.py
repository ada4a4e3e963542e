"""A classifier that fits fast, for the tests of the estimator."""

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
