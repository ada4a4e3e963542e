"""Small data sets that can be learned, to replace the real ones."""

import numpy as np
from evalign_study.data import Dataset, card
from evalign_study.records.run import Run

IMAGE_RUN = Run(
    dataset="cifar10",
    variant="paper",
    method="cross_entropy",
    network="tiny_darknet",
    batch_size=8,
    learning_rate=0.001,
    epochs=2,
    patience=50,
)


def dataset(name, X, y, classes):
    """Make a data set whose first four fifths are the publisher's training part."""
    part = np.where(np.arange(len(y)) < 0.8 * len(y), "train", "test").astype(object)
    return Dataset(X, y, tuple(map(str, range(classes))), np.arange(len(y)), part, card(name))


def images(name, *, rows=100, classes=2, shape=(32, 32, 3), seed=0):
    """Make images of noise whose brightness tells the class; classes take turns."""
    y = np.arange(rows) % classes
    noise = np.random.default_rng(seed).integers(0, 40, (rows, *shape))
    bright = (200 * y / classes).astype(int).reshape(-1, *[1] * len(shape))
    return dataset(name, (noise + bright).astype(np.uint8), y, classes)


def frames(rows=100, people=4, seed=0):
    """Make frames of people in two groups, four metres apart, with a label for each pair."""
    random = np.random.default_rng(seed)
    group = random.integers(0, 2, (rows, people))
    X = random.normal(size=(rows, people, 4)).astype(np.float32)
    X[..., 0] += 4 * group
    i, j = np.triu_indices(people, 1)
    return dataset("cocktailparty_frames", X, (group[:, i] == group[:, j]).astype(int), 2)
