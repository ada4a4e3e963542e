"""Networks for pixels: parts of the data, mirrored images, decisions and their scores."""

import json
import sys
import types

import numpy as np
import pytest
import torch
from evalign_study.data import VOID, Dataset, card
from evalign_study.records.results import Results
from evalign_study.records.run import Run
from evalign_study.suite.standings import scores
from evalign_study.trainers import crops, dense, methods
from evalign_study.trainers.choice import PIXELS, trainer_of
from evalign_study.trainers.crops import Scenes
from evalign_study.trainers.dense import DICE, MIOU, DenseTraining, parts_of, train_dense
from sklearn.metrics import f1_score, jaccard_score
from torch import nn

RUN = Run(
    dataset="camvid",
    variant="sound",
    method="cross_entropy",
    network="unet",
    batch_size=4,
    learning_rate=0.01,
    epochs=3,
    seed=1,
    rows=100,
)


def small(n_features, n_classes, dropout):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, n_classes, 1))


def scenes(name, classes, rows=20, *, size=(8, 12), grey=False, published=True):
    """Make noisy images whose brightness tells the class of a pixel; a corner is void."""
    random = np.random.default_rng(0)
    y = random.integers(0, classes, (rows, *size)).astype(np.uint8)
    X = (40 + 160 * y // classes + random.integers(0, 40, y.shape)).astype(np.uint8)
    y[:, 0, :3] = VOID
    X = X if grey else np.repeat(X[..., None], 3, -1)
    part = np.repeat(np.array(["train", "validation", "test"], object), [rows - 8, 4, 4])
    names = tuple(map(str, range(classes)))
    split = part if published else None
    return Dataset(X, y, names, np.arange(rows), split, card(name))


@pytest.fixture(params=["camvid", "membrane"])
def made(request, monkeypatch):
    """Put made scenes in the place of a data set: three classes in colour, or two in grey."""
    two = request.param == "membrane"
    dataset = scenes(request.param, 2, size=(8, 8), grey=True) if two else scenes("camvid", 3)
    monkeypatch.setattr(dense, "load", lambda asked: dataset)
    monkeypatch.setitem(methods.NETWORKS, "unet", small)
    monkeypatch.setattr(dense, "SAMPLED", 300)
    monkeypatch.setitem(sys.modules, "rankseg", None)  # as if it were not installed
    dense._stored.cache_clear()
    dense.prepare.cache_clear()
    yield RUN.but(dataset=request.param)
    dense._stored.cache_clear()
    dense.prepare.cache_clear()


@pytest.mark.parametrize("published", [True, False])
def test_other_splits_are_stretches_without_the_publishers_test_images(published):
    dataset = scenes("camvid", 3, published=published)
    known, tests = 16 if published else 20, set()
    for seed in range(1, 9):
        parts = parts_of(dataset, seed)
        assert sorted(np.concatenate(parts)) == list(range(known))
        assert [len(part) for part in parts[1:]] == [known // 5] * 2
        for part in parts:  # one after the other, around the end
            assert set(np.diff(part) % known) == {1}
        tests.add(tuple(parts[2]))
    assert len(tests) == 8


@pytest.fixture
def numbered():
    """Two images in which each pixel has a class of its own, and a colour that tells it."""
    y = torch.arange(2 * 4 * 4, dtype=torch.uint8).view(2, 4, 4)
    rows = torch.arange(2)
    return Scenes(y.unsqueeze(-1).expand(-1, -1, -1, 3), y, rows, rows, rows, 32, turned=True)


def test_labels_are_mirrored_with_their_images(numbered, monkeypatch):
    monkeypatch.setattr(crops, "ZOOM", 1.0)
    monkeypatch.setattr(crops, "LIGHT", 0.0)
    rows, seen = numbered.training, set()
    for seed in range(40):
        views = numbered.draw(2, torch.Generator().manual_seed(seed))
        labels = numbered.labels(rows, views)
        x = 255 * numbered.crops(rows, views)
        torch.testing.assert_close(x, labels.float().unsqueeze(1).expand_as(x))
        seen.add(tuple(labels[0].flatten().tolist()))
    assert len(seen) == 8  # all ways to turn and mirror a square
    torch.testing.assert_close(numbered.labels(rows), numbered.y.long())
    still = numbered._replace(turned=False).draw(100, torch.Generator()).places
    torch.testing.assert_close(still[:, :, :2].abs(), torch.eye(2).expand(100, 2, 2))
    assert (still[:, 1, 1] > 0).all()
    assert 0 < (still[:, 0, 0] > 0).sum() < 100


def test_matrices_are_counted_by_image(made):
    training = DenseTraining(made)
    rows = training.images.test
    counts = training.counted(rows, {"argmax": lambda logits: logits.argmax(1)})["argmax"]
    found = training.learner.logits(rows).argmax(1)
    y = training.images.labels(rows)
    seen = y != VOID
    assert counts.sum() == seen.sum()
    whole = jaccard_score(y[seen], found[seen], average="macro")
    assert dense.score(MIOU, counts) == pytest.approx(whole)
    average = {"average": "macro"} if training.images.classes > 2 else {}
    each = [
        f1_score(image[ok], made_of[ok], **average)
        for image, made_of, ok in zip(y, found, seen, strict=True)
    ]
    assert dense.score(DICE, counts) == pytest.approx(np.mean(each))


def test_a_record(made, tmp_path):
    record = train_dense(made)
    Results(tmp_path / "records.jsonl.gz").append([record])  # it can be written
    assert json.loads(json.dumps(record)) == record
    assert trainer_of(made) is PIXELS
    miou, dice = record["picks"][MIOU], record["picks"][DICE]
    assert set(miou["decisions"]) == set(dice["decisions"]) == {"argmax", "tuned", "expected"}
    # The epoch is the best by the validation images, and its weights are what is tested.
    assert len(record["curve"]) == 3
    assert miou["decisions"]["argmax"]["validation"] == pytest.approx(max(record["curve"]))
    assert record["curve"][miou["epoch"] - 1] == max(record["curve"])
    for decision in miou["decisions"].values():
        assert np.sum(decision["matrix"]) == 4 * (8 * (12 if made.dataset == "camvid" else 8) - 3)
    assert set(scores([record])) == {(made.dataset, MIOU), (made.dataset, DICE)}


def test_offsets_that_follow_are_those_of_the_best_epoch(made):
    training = DenseTraining(made.but(method="following_w1"))
    kept = []
    while not training.finished:
        training.epoch()
        kept.append(training.learner.offsets.float().clone())
    best = training.curve.index(training.best)
    torch.testing.assert_close(training.offsets, kept[best])
    assert kept[best].any()


@pytest.mark.parametrize("made", ["membrane"], indirect=True)
def test_it_learns_and_repeats(made):
    run = made.but(epochs=20)
    first, second = train_dense(run), train_dense(run)
    assert first["picks"] == second["picks"]
    assert (
        first["picks"][MIOU]["decisions"]["argmax"]["test"][MIOU] > 0.5
    )  # a guess has 0.2 or 0.33


@pytest.mark.slow
def test_the_rule_of_another_package_gets_probabilities(made, monkeypatch):
    asked = []

    class RankSEG:
        def __init__(self, metric):
            self.metric = metric

        def __call__(self, probabilities):
            asked.append((self.metric, probabilities))
            return probabilities.argmax(1)

    fake = types.ModuleType("rankseg")
    fake.RankSEG = RankSEG
    monkeypatch.setitem(sys.modules, "rankseg", fake)
    record = train_dense(made.but(method="weighted"))
    assert {metric for metric, _ in asked} == {"IoU", "dice"}
    for _, p in asked:
        torch.testing.assert_close(p.sum(1), torch.ones_like(p[:, 0]))
    # It decides by probabilities, which class weights are taken from; argmax does not.
    decided = record["picks"][MIOU]["decisions"]
    assert decided["rankseg"]["matrix"] != decided["argmax"]["matrix"]
