"""The protocol for tables: the same split for all, a grid, and trials of the chosen setting."""

import numpy as np
import pytest
import torch
from evalign_study import data
from evalign_study.data import Dataset
from evalign_study.records.run import Run, scores, triples
from evalign_study.trainers import stacks, tabular
from evalign_study.trainers.prepared import prepare
from evalign_study.trainers.tabular import train, units

from tests import tolerances


@pytest.fixture
def made(monkeypatch):
    """Replace every data set by 400 made rows, each of which occurs twice."""
    numbers = np.random.default_rng(0)
    X = numbers.normal(3, 2, (200, 4)).astype(np.float32).repeat(2, 0)
    y = (X[:, 0] + X[:, 1] > 8).astype(np.int64)
    card = data.card("mammography")
    dataset = Dataset(X, y, ("no", "yes"), np.arange(200).repeat(2), None, card)
    monkeypatch.setattr(data, "load", lambda name, preparation: dataset)
    return dataset


BASE = Run(
    dataset="mammography",
    variant="paper",
    method="cross_entropy",
    batch_size=64,
    learning_rate=0.01,
    epochs=4,
    patience=3,
    seed=1,
)


def test_split_of_a_real_set(real):
    paper, sound = prepare("mammography", "paper"), prepare("mammography", "sound")
    assert [len(y) for _, y in paper[:3]] == [7157, 1789, 2237]
    for prepared in (paper, sound):
        X, _ = prepared.training
        assert X.mean(0).abs().max() < tolerances.FLOAT32_MOMENTS
        assert (X.std(0, correction=0) - 1).abs().max() < tolerances.FLOAT32_MOMENTS
        counts = sum(torch.bincount(y) for _, y in prepared[:3])
        assert counts.tolist() == list(data.card("mammography").counts)
    assert _shared_rows(paper) > 0
    assert _shared_rows(sound) == 0


def _shared_rows(prepared):
    training, test = ({tuple(row) for row in part[0].tolist()} for part in prepared[:3:2])
    return len(training & test)


def test_a_split_is_the_same_whenever_it_is_made(made):
    first = prepare("mammography", "sound")
    prepare.cache_clear()
    again, other = prepare("mammography", "sound"), prepare("mammography", "sound", 1)
    assert torch.equal(first.test[0], again.test[0])
    assert not torch.equal(first.test[0], other.test[0])


def test_imbalance_leaves_out_rows_of_the_rarer_class(made):
    rare = min(np.bincount(made.y))
    common = len(made.y) - rare
    prepared = prepare("mammography", "paper", 0, common / 40)
    counts = sum(torch.bincount(y) for _, y in prepared[:3])
    assert sorted(counts.tolist()) == [40, common]
    with pytest.raises(ValueError, match=r"imbalance of prepare must leave 1 to \d+ rows"):
        prepare("mammography", "paper", 0, 1.0)


def test_records_hold_what_the_pick_says(made):
    runs = [BASE, BASE.but(method="east_f1", rate=0.9), BASE.but(network="mlp32")]
    records = [record for part in units(runs) for record in train(part)]
    by_key = {record["key"]: record for record in records}
    assert by_key.keys() == {run.key for run in runs}
    for run in runs:
        record = by_key[run.key]
        assert 0 < record["epochs"] <= run.epochs
        assert record["picks"].keys() == {"loss", "f1", "accuracy", "matthews_corrcoef"}
        decisions = {"argmax", "tuned"}
        if run.network == "mlp32":
            decisions |= {f"0.{i}" for i in range(1, 10)}
        for name, pick in record["picks"].items():
            assert pick["decisions"].keys() == decisions
            assert 0 <= pick["auroc"] <= 1
            for decision in pick["decisions"].values():
                again = scores(decision["matrix"], 2, ("f1", "accuracy", "matthews_corrcoef"))
                assert sum(count for *_, count in decision["matrix"]) == 80
                assert again == pytest.approx(decision["test"], abs=1e-6)
            if name != "loss":
                best = max(p["validation"][name] for p in record["picks"].values())
                assert pick["validation"][name] == best
            assert pick["validation_loss"] >= record["picks"]["loss"]["validation_loss"]


def test_a_point_of_the_grid_is_validated_like_a_trial_and_not_tested(made, monkeypatch):
    (trial,) = train([BASE])
    monkeypatch.setattr(tabular, "GRID_SEED", BASE.seed)
    (point,) = train([BASE])
    assert point["picks"].keys() == trial["picks"].keys()
    for name, pick in point["picks"].items():
        assert pick.keys() == {"epoch", "validation_loss", "validation"}
        assert {key: trial["picks"][name][key] for key in pick} == pick
    assert [point[k] for k in ("epochs", "capped")] == [trial[k] for k in ("epochs", "capped")]


def test_a_run_does_not_depend_on_its_company(made):
    (alone,) = train([BASE])
    _, other, together = train([BASE.but(method="dice"), BASE.but(seed=2), BASE])
    loss, same, different = (
        record["picks"]["loss"]["validation_loss"] for record in (alone, together, other)
    )
    assert same == pytest.approx(loss, abs=tolerances.TRAINED)
    assert different != pytest.approx(loss, abs=tolerances.TRAINED)


def test_the_prior_is_added_back(made):
    """Labels of the anchored method come from its probabilities, as in the estimator."""
    (record,) = train([BASE.but(method="anchored_f1")])
    prepared = prepare("mammography", "paper")
    method = tabular.make("anchored_f1", prepared.counts)
    share = prepared.counts / prepared.counts.sum()
    torch.testing.assert_close(method.offsets.softmax(0), share.sqrt().float() / share.sqrt().sum())
    settings = {"epochs": 4, "batch_size": 64, "patience": 3, "watch": "loss"}
    (trained,) = tabular.fit_many(
        lambda: tabular.NETWORKS["mlp"](4, 2, 0.0),
        [tabular.Member(method.loss, BASE.learning_rate, BASE.seed)],
        *prepared.training,
        validation=prepared.validation,
        metric="f1",
        settings=tabular.Settings(**settings, **tabular.OPTIMIZER),
    )
    network = tabular.NETWORKS["mlp"](4, 2, 0.0)
    X, y = prepared.test
    labels = (stacks.logits_of(network, trained.weights, X) + method.offsets).argmax(1)
    assert record["picks"]["loss"]["decisions"]["argmax"]["matrix"] == triples(labels, y)
