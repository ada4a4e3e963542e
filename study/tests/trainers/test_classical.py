"""Methods other than our own losses."""

import numpy as np
import pytest
import torch
from evalign_study.records.run import BINARY, LOSS, MULTICLASS, Run, scores
from evalign_study.trainers import classical
from evalign_study.trainers.classical import ESTIMATORS, train_classical
from evalign_study.trainers.prepared import Prepared
from sklearn.ensemble import RandomForestClassifier

from study.tests.trainers import made_data

RUN = Run(dataset="mammography", variant="paper", method="linear_ccs", network="", seed=1)


@pytest.fixture(autouse=True)
def forget():
    """Clear the caches, so that the data set of one test does not reach the next."""
    for cached in (classical._prepare, classical._fitted):
        cached.cache_clear()
    yield
    for cached in (classical._prepare, classical._fitted):
        cached.cache_clear()


def prepared(classes=3):
    """Make classes around the corners of a polygon."""
    y = torch.arange(300) % classes
    corner = torch.stack([torch.cos(6.2832 * y / classes), torch.sin(6.2832 * y / classes)], 1)
    X = corner + 0.3 * torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    training, validation, test = ((X[k : k + 100], y[k : k + 100]) for k in (0, 100, 200))
    return Prepared(training, validation, test, classes)


@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("method", ESTIMATORS)
def test_learns_and_has_one_model_for_all_criteria(method, classes, monkeypatch):
    monkeypatch.setattr(classical, "prepare", lambda *arguments: prepared(classes))
    found = train_classical(RUN.but(method=method))
    assert found["picks"].keys() == {LOSS, *(BINARY if classes == 2 else MULTICLASS)}
    tests = [pick["decisions"] for pick in found["picks"].values()]
    for what in ("test", "matrix"):
        assert all(test["argmax"][what] == tests[0]["argmax"][what] for test in tests)
    assert all({"argmax", "tuned"} <= test.keys() for test in tests)
    assert tests[0]["argmax"]["test"]["accuracy"] > 0.9


def test_the_validation_rows_choose_the_estimator(monkeypatch):
    def of_depth(seed):
        return [RandomForestClassifier(10, max_depth=depth, random_state=seed) for depth in (1, 5)]

    monkeypatch.setattr(classical, "prepare", lambda *arguments: prepared())
    monkeypatch.setitem(ESTIMATORS, "random_forest", of_depth)
    both = train_classical(RUN.but(method="random_forest"))["picks"][LOSS]
    losses = []
    for only in of_depth(RUN.seed):
        monkeypatch.setitem(ESTIMATORS, "random_forest", lambda seed, only=only: [only])
        classical._fitted.cache_clear()
        alone = train_classical(RUN.but(method="random_forest"))["picks"][LOSS]
        losses.append(alone["validation_loss"])
    assert both["validation_loss"] == min(losses) < max(losses)


def test_a_class_without_training_rows_is_never_predicted(monkeypatch):
    data = prepared()
    rows = data.training[1] < 2
    known = data._replace(training=tuple(part[rows] for part in data.training))
    monkeypatch.setattr(classical, "prepare", lambda *arguments: known)
    found = train_classical(RUN)["picks"]["accuracy"]["decisions"]["argmax"]
    assert {predicted for _, predicted, _ in found["matrix"]} == {0, 1}
    assert 0.6 < found["test"]["accuracy"] < 0.7


def test_images_become_the_components_with_four_fifths_of_their_variance(monkeypatch):
    made = made_data.images("cifar10", classes=3, rows=150, shape=(8, 8, 3))
    monkeypatch.setattr(classical, "load", lambda name: made)
    data = classical._prepare("cifar10", "paper", 0, None, None)
    pixels = torch.tensor(made.X).flatten(1) / 255
    rows = classical.images.split(made, RUN)[0]
    whole = pixels[rows].var(0).sum()
    shares = data.training[0].var(0).cumsum(0) / whole
    assert shares[-1] >= 0.8
    assert len(shares) == 1 or shares[-2] < 0.8
    assert [len(y) for _, y in (data.training, data.validation, data.test)] == [96, 24, 30]
    found = train_classical(RUN.but(dataset="cifar10"))
    assert found["picks"][LOSS]["decisions"]["argmax"]["test"]["accuracy"] > 0.9


def test_what_is_printed_of_ccs_cannot_be():
    """With ten classes of equal size, no matrix has a macro-F1 below 2/11 of its accuracy."""
    random = np.random.default_rng(0)
    for focus in (0.01, 1.0, 100.0):  # from one class for all rows to a random class for each
        shares = random.dirichlet(np.full(10, focus), 10)
        counts = [random.multinomial(1000, share) for share in shares]
        cells = [[i, j, int(counts[i][j])] for i in range(10) for j in range(10)]
        found = scores(cells, 10, ("f1_macro", "accuracy"))
        assert found["f1_macro"] >= 2 / 11 * found["accuracy"]
    constant = scores([[i, 3, 1000] for i in range(10)], 10, ("f1_macro", "accuracy"))
    assert constant["f1_macro"] == pytest.approx(2 / 11 * constant["accuracy"])
    assert 2 / 11 * 0.111 > 0.004
