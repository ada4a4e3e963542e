"""SurF's protocol: its images, a short run, and what is read from a curve."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from evalign_study import data
from evalign_study.planning import Known, cells, table
from evalign_study.protocols import surf
from torch import nn

from study.tests.protocols import made


def small(run):
    layers = [nn.Conv2d(3, 4, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4, 2))


@pytest.fixture(autouse=True)
def images(monkeypatch):
    """Put small images of two classes in the place of every data set, and a small network."""
    given = made.images(150)
    split = np.repeat(["train", "test"], [120, 30]).astype(object)
    y = (given.y == 0).astype(np.int64)
    pixels = given.X
    dataset = dataclasses.replace(given, X=pixels, y=y, split=split, classes=("others", "red"))
    monkeypatch.setattr(data, "load", lambda name, preparation: dataset)
    monkeypatch.setattr(surf, "network_of", small)
    surf._prepared.cache_clear()
    yield dataset
    surf._prepared.cache_clear()


RUN = surf.Run(dataset="made", epochs=3, batch_size=20)


def test_images_are_cut_and_centred(images):
    prepared = surf.images_of(RUN, "cpu")
    parts = [len(prepared.training), len(prepared.validation), len(prepared.test)]
    assert parts == [108, 12, 30]
    x = prepared.cut(prepared.training)
    assert x.mean(0).abs().max() < 1e-5
    whole = torch.from_numpy(images.X[prepared.training[:4]]).permute(0, 3, 1, 2) / 255
    torch.testing.assert_close(x[:4] + prepared.center, whole)
    cut = prepared.cut(prepared.training[:4], torch.Generator().manual_seed(0)) + prepared.center
    assert cut.shape == whole.shape
    assert not torch.equal(cut, whole)


@pytest.mark.parametrize("loss", ["surrogate", "macro_soft", "macro_soft_unweighted", "mae", "bce"])
def test_a_short_run_has_a_curve(loss):
    record = surf.train(RUN.but(loss=loss), "cpu")
    assert [point["epoch"] for point in record["curve"]] == [1, 2, 3]
    assert record["picks"]["last"]["epoch"] == 3
    best = min(record["curve"], key=lambda point: point["validation_loss"])
    assert record["picks"]["loss"]["epoch"] == best["epoch"]
    assert not record["capped"]
    assert surf.of_curve(record, "last:test_accuracy") == record["curve"][-1]["test_accuracy"]
    again = surf.train(RUN.but(loss=loss), "cpu")
    assert again["curve"] == record["curve"]


def test_correlations_are_those_of_the_curve():
    curve = [{"train_loss": -x, "train_f1": 2 * x} for x in (0.1, 0.2, 0.4)]
    assert surf.of_curve({"curve": curve}, "correlation:1") == pytest.approx(1)
    flat = [{"train_loss": -x, "train_f1": 0.5} for x in (0.1, 0.2)]
    assert math.isnan(surf.of_curve({"curve": flat}, "correlation:1"))


def test_each_repetition_has_a_validation_part_of_its_own():
    (cell,) = cells(table("surf-fig2"), lines=["MAE"])
    runs = cell.trials(Known([]))
    assert cell.grid() == []
    assert [(run.seed, run.split_seed, run.epochs) for run in runs] == [
        (seed, seed, 120) for seed in range(1, 6)
    ]
