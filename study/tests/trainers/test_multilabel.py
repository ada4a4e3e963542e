"""Networks for many labels a row, and their thresholds."""

from functools import partial

import numpy as np
import pytest
import torch
from evalign_study.data import Dataset, card
from evalign_study.networks import mlp
from evalign_study.records.run import Run
from evalign_study.suite.standings import scores
from evalign_study.trainers import multilabel
from evalign_study.trainers.choice import LABELS, trainer_of
from evalign_study.trainers.multilabel import (
    METHODS,
    METRICS,
    SAMPLES,
    AsymmetricLoss,
    prepare,
    score,
    train_multilabel,
)

from evalign import score as evalign_score

RUN = Run(dataset="emotions", variant="sound", method="binary_cross_entropy", epochs=20, seed=1)


@pytest.fixture
def made(monkeypatch):
    """Put 300 made rows, each twice, with three labels of which one is rare, for a data set."""
    random = np.random.default_rng(0)
    X = np.repeat(random.normal(size=(300, 4)), 2, 0).astype(np.float32)
    y = (X[:, :3] + random.normal(size=(600, 3)) / 3 > [0, 0.5, 1]).astype(np.int64)
    groups = np.repeat(np.arange(300), 2)
    dataset = Dataset(3 * X + 1, y, ("a", "b", "c"), groups, None, card("emotions"))
    monkeypatch.setattr(multilabel, "load", lambda name: dataset)
    monkeypatch.setattr(multilabel, "mlp", partial(mlp, hidden=(32,)))
    prepare.cache_clear()
    yield dataset
    prepare.cache_clear()


def test_asymmetric_loss_is_its_formula():
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(50, 4, generator=random, dtype=torch.float64)
    y = (torch.rand(50, 4, generator=random) < 0.3).double()
    p = 1 / (1 + np.exp(-logits.numpy()))
    q = np.maximum(p - 0.05, 0)
    each = np.where(y > 0, -np.log(p), -(q**4) * np.log(1 - q))
    assert AsymmetricLoss()(logits, y).item() == pytest.approx(each.mean())
    # Extreme logits have finite gradients.
    far = torch.tensor([[-200.0, 200.0, 0.0]], requires_grad=True)
    AsymmetricLoss()(far, torch.tensor([[1.0, 0.0, 1.0]])).backward()
    assert torch.isfinite(far.grad).all()


def test_scores_are_those_of_their_definitions():
    y = torch.tensor([[1.0, 0, 1], [0, 1, 0], [0, 0, 0]])
    labels = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 0, 0]])
    # A row without labels, given none, counts as 0.
    assert score(SAMPLES, labels, y) == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    for metric in METRICS[:2]:
        found = score(metric, labels, y)
        assert found == pytest.approx(evalign_score(metric, y_true=y.long(), y_pred=labels))


def test_rows_are_split_with_their_copies_and_standardised(made):
    parts = prepare("emotions", 0, None)
    X = parts.training[0].double()
    torch.testing.assert_close(X.mean(0), torch.zeros(4).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(X.std(0, correction=0), torch.ones(4).double(), atol=1e-5, rtol=0)
    rows = [set(map(tuple, x.tolist())) for x, _ in parts]
    assert sum(map(len, rows)) == len(set.union(*rows)) == 300
    assert [len(x) for x, _ in prepare("emotions", 0, 30)] == [30, 30, 30]


@pytest.mark.parametrize(
    "method",
    [
        method if method == "following_w1" else pytest.param(method, marks=pytest.mark.slow)
        for method in [*METHODS, "following_w1"]
    ],
)
def test_every_method_learns(made, method):
    record = train_multilabel(RUN.but(method=method, epochs=40))
    assert trainer_of(RUN) is LABELS
    assert set(scores([record])) == {("emotions", metric) for metric in METRICS}
    for metric in METRICS:
        decided = record["picks"][metric]["decisions"]
        assert set(decided) == {"argmax", "tuned", "expected"}
        unseen = prepare("emotions", 0, None).test[1]
        every = score(metric, torch.ones_like(unseen).long(), unseen)  # all labels for every row
        assert decided["tuned"]["test"][metric] > every + 0.1
