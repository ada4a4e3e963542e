"""Made images in the place of a data set, and small networks in the place of large ones."""

import pytest
from evalign_study.trainers import images, methods
from evalign_study.trainers.prepared import prepare
from torch import nn

from study.tests.trainers import made_data


@pytest.fixture(autouse=True)
def fresh():
    """Forget the rows that another test prepared."""
    prepare.cache_clear()
    yield
    prepare.cache_clear()


@pytest.fixture
def give(monkeypatch):
    """Put made images in the place of a data set."""

    def given(name="cifar10", **changes):
        made = made_data.images(name, **changes)
        monkeypatch.setattr(images, "load", lambda asked: made)
        images._stored.cache_clear()
        return made

    yield given
    images._stored.cache_clear()


def small(n_features, n_classes, dropout):
    layers = [nn.Conv2d(3, 8, 3, stride=8), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, n_classes))


@pytest.fixture
def quick(monkeypatch):
    """Small networks under the names of large ones."""
    for name in ("tiny_darknet", "resnet18"):
        monkeypatch.setitem(methods.NETWORKS, name, small)
