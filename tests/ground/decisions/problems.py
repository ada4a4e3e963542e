"""Problems that the tests of decisions share: scores of known distributions, and their labels."""

import numpy as np

from evalign import Confusion, metrics


def problem(classes, rows, seed=0, *, kind="calibrated", strength=1.6, ratio=20.0):
    """Make logits whose softmax is the posterior of long-tailed classes, or is off by the prior."""
    generator = np.random.default_rng(seed)
    prior = ratio ** -np.linspace(0, 1, classes)
    prior = prior / prior.sum()
    y = generator.choice(classes, rows, p=prior)
    x = generator.standard_normal((rows, classes))
    x[np.arange(rows), y] += strength
    logits = strength * x if kind == "adjusted" else strength * x + np.log(prior)
    return logits, y


def value(metric, labels, y, classes=2, weight=None):
    """Compute the metric, or minus the metric if it is a cost."""
    metric = metrics.resolve(metric)
    c = Confusion.from_predictions(
        labels, y, num_classes=classes, matrix=True, sample_weight=weight
    )
    return (1 if metric.greater_is_better else -1) * metric(c).item()


def one_hot(y, classes):
    return np.eye(classes)[y]
