"""Small tables: the networks of folds, trained side by side, each row held out once."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from evalign import AlignedClassifier
from evalign.decisions import fit_decision
from evalign.estimators.members import Folds, Members
from evalign.estimators.network import Size
from evalign.estimators.rows import SMALL_CLASS, LabelledRows
from tests import tolerances
from tests.estimator.models import SmallNetwork, imbalanced

X, Y = imbalanced(200, classes=3)
pytestmark = pytest.mark.filterwarnings(
    "ignore:All validation rows were predicted:evalign.training.TrainingWarning"
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Make the networks small: what these tests look at does not depend on their size."""
    monkeypatch.setattr("evalign.estimators.fitting.size_of_members", lambda *given: Size(2, 8))


def classifier(**arguments):
    given = {"epochs": 3, "device": "cpu", "random_state": 0, "learning_rate": 0.02}
    return AlignedClassifier(**(given | arguments))


def folded(fold):
    rows = torch.randn(len(fold), 4, generator=torch.Generator().manual_seed(0))
    return rows, torch.cat([rows, torch.tensor(fold, dtype=torch.float32).unsqueeze(1)], 1)


def networks(kind):
    def one(seed):
        torch.manual_seed(seed)
        edges = [torch.linspace(-1, 1, 5), None, None, None]
        if kind == "members":
            return Members(edges, 3, members=2, width=8, dropout=0.0)
        return nn.Linear(4, 3)

    with torch.random.fork_rng([]):
        return [one(seed) for seed in range(3)]


FOLD = [0, 1, 2, 2, 1, 0, 0]


@pytest.mark.parametrize("kind", ["members", "linear"])
def test_a_row_trains_the_networks_of_the_other_folds(kind):
    each, (rows, x) = networks(kind), folded(FOLD)
    found = Folds(each, 4, 3).train()(x)
    for i, own in enumerate(FOLD):
        others = [each[f](rows[i : i + 1]).view(-1, 3) for f in range(3) if f != own]
        torch.testing.assert_close(found[i], torch.cat(others), rtol=0, atol=1e-6)
    found[torch.tensor(FOLD) == 0].sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in each[0].parameters())
    assert any(p.grad.any() for p in each[1].parameters())


@pytest.mark.parametrize("kind", ["members", "linear"])
def test_a_row_is_judged_by_the_network_of_its_fold(kind):
    each, (rows, x) = networks(kind), folded(FOLD)
    net = Folds(each, 4, 3).eval()
    wanted = torch.cat([each[own](rows[i : i + 1]) for i, own in enumerate(FOLD)])
    torch.testing.assert_close(net(x), wanted, rtol=0, atol=tolerances.FLOAT32_SUM)
    torch.testing.assert_close(net(x[:2]), wanted[:2], rtol=0, atol=1e-6)  # a fold without rows


def test_new_rows_get_the_mean_of_the_networks():
    each, (rows, _) = networks("linear"), folded([0] * 7)
    net = Folds(each, 4, 3).eval()
    net.offsets.copy_(torch.tensor([0.0, -1.0, 2.0]))
    mean = torch.stack([(one(rows) + net.offsets).softmax(1) for one in each]).mean(0)
    found = (net(rows) + net.offsets).softmax(1)
    torch.testing.assert_close(found, mean, rtol=0, atol=tolerances.FLOAT32_SUM)


@pytest.mark.parametrize("network", ["auto", "linear"])
def test_the_epoch_and_the_rule_are_of_all_rows(network):
    clf = classifier(network=network).fit(X, Y)
    assert isinstance(clf.network_, Folds)
    fold = LabelledRows(X, Y, np.ones(200)).folds(clf._seed)
    assert sorted(np.unique(fold)) == [0, 1, 2, 3, 4]
    scaled = clf._scaler(torch.from_numpy(X)).float()
    logits = torch.empty(200, 3, dtype=torch.float64)
    with torch.no_grad():
        for number, network in enumerate(clf.network_.networks):
            logits[fold == number] = network(scaled[fold == number]).double()
    best = max(record["validation_metric"] for record in clf.history_)
    assert best == pytest.approx(f1_score(Y, logits.argmax(1), average="macro"))
    offsets = clf.network_.offsets.double()
    rule = fit_decision(logits, torch.from_numpy(Y), metric="f1_macro", offsets=offsets)
    assert rule.rows == clf.rule_.rows == 200
    # Rows go through the network in blocks there, which round differently.
    torch.testing.assert_close(rule.gain, clf.rule_.gain, rtol=1e-3, atol=1e-3)


def test_when_there_are_folds():
    def kind(y, **arguments):
        clf = classifier(epochs=1, network="linear", **arguments)
        return type(clf.fit(np.random.default_rng(0).normal(size=(len(y), 2)), y).network_)

    enough = np.repeat([0, 1], [300, SMALL_CLASS])
    assert kind(enough[:-1]) is Folds
    assert kind(enough) is not Folds
    assert kind(enough[:-1], validation_fraction=0.2) is not Folds
    mine = classifier(epochs=1, network=SmallNetwork()).fit(X, Y)
    assert type(mine.network_) is nn.Sequential
    given = classifier(epochs=1, network="linear").fit(X, Y, validation_data=(X, Y))
    assert type(given.network_) is nn.Sequential


def test_groups_stay_in_one_fold():
    groups = np.arange(200) // 8
    rows = LabelledRows(X, Y, np.ones(200), groups)
    fold = rows.folds(0)
    assert all(len(np.unique(fold[groups == g])) == 1 for g in range(25))
    assert len(np.unique(fold)) == 5
    assert rows._replace(groups=groups % 2).folds(0).max() == 1


def test_rows_of_weight_0_are_in_no_fold():
    weight = np.where(np.arange(200) % 2, 1.0, 0.0)
    broken = np.where(weight[:, None] > 0, X, 1e9)
    groups = np.arange(200)
    clf = classifier(network="linear", epochs=20).fit(broken, Y, weight, groups=groups)
    assert clf.rule_.rows == 100
    assert clf.score(X, Y) > 0.5


def test_equal_calls_saved_and_resumed(tmp_path):
    clf = classifier().fit(X, Y)
    probabilities = clf.predict_proba(X)
    clf.save(tmp_path / "model")
    again = AlignedClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(X), probabilities)

    def stop(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        classifier(on_epoch=stop).fit(X, Y, checkpoint=tmp_path / "training")
    resumed = classifier().fit(X, Y, checkpoint=tmp_path / "training")
    assert np.array_equal(resumed.predict_proba(X), probabilities)


@pytest.mark.filterwarnings("ignore::evalign.training.TrainingWarning")
@pytest.mark.parametrize("y", [[0, 0, 0, 1], [0, 1], [0, 0, 1, 1, 2, 2]])
def test_a_handful_of_rows(y):
    clf = classifier(network="linear").fit(X[: len(y)], y)
    assert np.isfinite(clf.predict_proba(X)).all()
