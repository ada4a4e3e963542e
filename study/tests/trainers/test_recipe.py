"""The suite's trainings, which equal those of the estimator, and their records."""

import json
import math

import numpy as np
import pytest
import torch
from evalign_study import data
from evalign_study.data import Dataset
from evalign_study.records.run import scores, triples
from evalign_study.suite.plan import runs
from evalign_study.trainers import prepared, recipe, stacks
from evalign_study.trainers.batch_size import usual_batch_size
from evalign_study.trainers.many import fit_many
from evalign_study.trainers.methods import (
    EAST,
    GOALS,
    OPPONENTS,
    OURS,
    make,
)
from evalign_study.trainers.prepared import prepare
from evalign_study.trainers.recipe import USUAL, decided_as, train

from evalign.decisions import fit_decision
from evalign.training import Settings


@pytest.fixture
def kept(monkeypatch):
    """Collect what `fit_many` returns."""
    found = []

    def remembered(*arguments, **more):
        found.extend(fit_many(*arguments, **more))
        return found

    monkeypatch.setattr(recipe, "fit_many", remembered)
    return found


@pytest.fixture
def made(monkeypatch):
    """Replace every data set by 300 made rows."""
    X = np.random.default_rng(0).normal(3, 2, (300, 4)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] > 8).astype(np.int64)
    dataset = Dataset(X, y, ("no", "yes"), np.arange(300), None, data.card("mammography"))
    monkeypatch.setattr(data, "load", lambda name, preparation: dataset)
    return dataset


def small(**more):
    return runs(["mammography"], **{"splits": [0], "epochs": 2} | more)


def test_the_usual_trainer(made, monkeypatch):
    asked = {}

    def note(build, members, *rows, settings, **more):
        asked.update(members=members, settings=settings, network=build())
        raise InterruptedError

    monkeypatch.setattr(recipe, "fit_many", note)
    with pytest.raises(InterruptedError):
        list(train(runs(["mammography"], splits=[0])))
    settings = asked["settings"]
    for name in ("epochs", "weight_decay", "ema_decay"):
        assert getattr(settings, name) == getattr(USUAL, name)
    assert settings.patience is None
    default = Settings()
    for name in ("schedule", "warmup", "clip_norm"):
        assert getattr(settings, name) == getattr(default, name)
    assert settings.batch_size == usual_batch_size(192) == 32
    members = asked["members"]
    assert {member.learning_rate for member in members} == {USUAL.learning_rate}
    assert {member.dropout for member in members} == {USUAL.dropout}
    assert {member.seed for member in members} == {1}
    cooled = [member.annealing["rate"] for member in members if member.annealing]
    assert cooled == [0.9] * len(GOALS)  # EAST's
    widths = [m.out_features for m in asked["network"].modules() if isinstance(m, torch.nn.Linear)]
    assert widths == [512, 256, 128, 2]


def test_records_hold_every_decision(made):
    part = small()
    records = list(train(part))
    assert [record["key"] for record in records] == [run.key for run in part]
    for record in records:
        method = record["run"]["method"]
        wanted = ["f1", "matthews_corrcoef", "balanced_accuracy", "f2"]
        if method not in OPPONENTS:
            wanted = [GOALS[method.removeprefix(f"{OURS}_").removeprefix(f"{EAST}_")]]
        assert list(record["picks"]) == wanted
        assert (record["epochs"], record["batch_size"], record["diverged"]) == (2, 32, False)
        for metric, pick in record["picks"].items():
            assert pick["epoch"] in (1, 2)
            assert pick["decisions"].keys() == {"argmax", "tuned", "expected"}
            for decided in pick["decisions"].values():
                assert sum(count for *_, count in decided["matrix"]) == 60
                again = scores(decided["matrix"], 2, (metric,))[metric]
                assert decided["test"] == pytest.approx({metric: again}, abs=1e-6)
    json.dumps(records, allow_nan=False)


def test_the_picks_are_the_best_epochs(made, kept):
    """By hand, the pick of each metric is the first epoch that no other one exceeds."""
    part = [run for run in small(epochs=6) if run.method == "cross_entropy"]
    (record,) = train(part)
    (trained,) = kept
    f1 = [epoch["validation_metric"] for epoch in trained.history]
    f2 = [epoch["also"]["f2"] for epoch in trained.history]
    for metric, values in (("f1", f1), ("f2", f2)):
        pick = record["picks"][metric]
        assert pick["epoch"] == 1 + int(np.argmax(values))
        # Labels by argmax are those that epochs are chosen by.
        assert pick["decisions"]["argmax"]["validation"] == pytest.approx(max(values), abs=1e-6)


@pytest.mark.parametrize(
    "method",
    [
        f"{OURS}_balanced_accuracy",
        pytest.param("logit_adjusted", marks=pytest.mark.slow),
        pytest.param("balanced_cross_entropy", marks=pytest.mark.slow),
    ],
)
def test_argmax_is_of_logits_and_expected_of_probabilities(made, kept, method):
    """These methods take log π out of their logits, so log π has to be added back."""
    (record,) = train([run for run in small(epochs=6) if run.method == method])
    prepared = prepare("mammography", "sound")
    network = recipe.NETWORKS["mlp"](4, 2, 0.0).eval()
    known, unseen = (
        stacks.logits_of(network, kept[0].best["balanced_accuracy"], X)
        for X, _ in (prepared.validation, prepared.test)
    )

    def expected(offsets):
        how = {"metric": "balanced_accuracy", "decision": "expected"}
        return triples(fit_decision(known + offsets, **how)(unseen + offsets), prepared.test[1])

    found = record["picks"]["balanced_accuracy"]["decisions"]
    assert found["argmax"]["matrix"] == triples(unseen.argmax(1), prepared.test[1])
    offsets = (prepared.counts / prepared.counts.sum()).log()
    assert found["expected"]["matrix"] == expected(offsets)
    assert found["expected"]["matrix"] != expected(torch.zeros(2))


def test_the_prior_is_added_back_to_logits_that_lack_it():
    counts = torch.tensor([90, 10, 0])
    kinds = {name: decided_as(name, make(name, counts), counts)["offsets"] for name in OPPONENTS}
    for name, offsets in kinds.items():
        if name in ("logit_adjusted", "balanced_cross_entropy"):
            assert offsets.exp().tolist() == pytest.approx([90, 10, 1])  # no rows count as one
        else:
            assert offsets is None


def test_weights_of_classes_take_the_prior_out():
    """Where p is proportional to the prior times softmax(z), the weighted loss has no slope."""
    counts = torch.tensor([90.0, 10.0])
    z = torch.tensor([0.7, -0.2], dtype=torch.float64, requires_grad=True)
    p = (z + counts.log()).softmax(0).detach()
    loss = make("balanced_cross_entropy", counts).loss
    of_class = [loss(z.unsqueeze(0), torch.tensor([label])) for label in (0, 1)]
    (slope,) = torch.autograd.grad((p * torch.stack(of_class)).sum(), z)
    torch.testing.assert_close(slope, torch.zeros_like(slope))


def test_the_methods_of_before_are_what_they_say():
    counts = torch.tensor([90.0, 10.0])
    torch.manual_seed(0)
    logits, y = torch.randn(40, 2), torch.arange(40) % 2
    metric = make("mcfbeta_f1", counts).loss(logits, y)
    half = (counts / 100).log() / 2
    f1 = torch.tensor([0, math.log(0.55 / 1.45)])  # F/2 over 1 − F/2, of F = ½ + ½·0.1
    entropy = torch.nn.functional.cross_entropy
    for name, offsets in {"aligned": f1, "anchored": half}.items():
        found = make(f"{name}_f1", counts)
        value = entropy(logits + offsets, y) + metric
        torch.testing.assert_close(found.loss.eval()(logits, y), value)
        # Probabilities are made with the offsets that were used in training.
        torch.testing.assert_close(found.offsets.softmax(0), offsets.softmax(0))


def test_texts_become_features_of_the_training_rows_alone(monkeypatch):
    monkeypatch.setattr(prepared, "DIMENSIONS", 3)
    topics = ("ship port sea", "wheat corn grain", "bank rate money")
    y = np.arange(90) % 3
    texts = np.array([f"{topics[c]} number{i}" for i, c in enumerate(y)], dtype=object)
    made = Dataset(texts, y, ("a", "b", "c"), np.arange(90), None, data.card("reuters_r8"))
    monkeypatch.setattr(data, "load", lambda name, preparation: made)
    found = prepare("reuters_r8", "sound")
    X, _ = found.training
    assert X.shape[1] == 3
    assert X.mean(0).abs().max() < 1e-5

    # The other rows do not affect the preparation of the training rows.
    _, validation, test = prepared.three_way_split(y, groups=np.arange(90), seed=0)
    texts[[*validation, *test]] = "other words altogether"
    prepare.cache_clear()
    again = prepare("reuters_r8", "sound")
    assert torch.equal(again.training[0], X)
    assert not torch.equal(again.test[0], found.test[0])
