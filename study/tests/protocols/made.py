"""Made rows in the place of a data set."""

import numpy as np
from evalign_study import data
from evalign_study.data import Dataset


def rows(classes=2, number=400, *, seed=0):
    """Rows of which a network can learn something, but not everything."""
    random = np.random.default_rng(seed)
    X = random.normal(3, 2, (number, 5)).astype(np.float32)
    noisy = X[:, :classes] + random.normal(0, 1.5, (number, classes))
    y = noisy.argmax(1) if classes > 2 else (noisy[:, 0] + noisy[:, 1] > 8)
    names = tuple(map(str, range(classes)))
    card = data.card("mammography" if classes == 2 else "yeast")
    return Dataset(X, y.astype(np.int64), names, np.arange(number) // 2, None, card)


def images(number=120, *, seed=0):
    """Small images of three classes, by their colour."""
    random = np.random.default_rng(seed)
    y = random.integers(3, size=number)
    X = random.integers(0, 200, (number, 32, 32, 3))
    X[np.arange(number), :, :, y] += 40
    card = data.card("cifar10")
    names = ("red", "green", "blue")
    return Dataset(X.astype(np.uint8), y.astype(np.int64), names, np.arange(number), None, card)
