"""Networks for goals beyond one number, their rules, and the losses of another library."""

import sys
import types

import numpy as np
import pytest
import torch
from evalign_study import data
from evalign_study.data import Dataset, card
from evalign_study.networks import mlp
from evalign_study.records.run import Run
from evalign_study.trainers import goals, images, methods
from evalign_study.trainers.choice import GOALS as TRAINER
from evalign_study.trainers.choice import trainer_of
from evalign_study.trainers.goal_methods import (
    AP,
    BOUNDED,
    GOALS,
    LIBAUC,
    METHODS,
    PAUC,
    reached,
    share,
)
from evalign_study.trainers.goals import PREFIX, prepare, thinned, train_goal
from sklearn.metrics import precision_recall_curve, roc_auc_score
from torch import nn

from evalign import fit_decision
from evalign import score as evalign_score
from study.tests.trainers import made_data

RUN = Run(
    dataset="mammography",
    variant="sound",
    method=PREFIX + "cross_entropy",
    network="mlp128",
    learning_rate=1e-2,
    epochs=2,
    seed=1,
)


@pytest.fixture
def made(monkeypatch):
    """Put 900 made rows for a table, the first of them 300 times, and a small network."""
    random = np.random.default_rng(0)
    X = random.normal(size=(900, 4)).astype(np.float32)
    X[:, 3] = random.integers(0, 2, 900)
    y = (X[:, 0] + random.normal(size=900) / 2 > 1).astype(np.int64)
    rows = np.concatenate([np.zeros(300, int), np.arange(900)])
    dataset = Dataset(X[rows] ** 3, y[rows], ("0", "1"), rows, None, card("mammography"))
    monkeypatch.setattr(data, "load", lambda name, preparation: dataset)
    small = {"mlp128": lambda n, classes, dropout: mlp(n, classes, hidden=(16,))}
    monkeypatch.setattr(goals, "NETWORKS", methods.NETWORKS | small)
    goals._table.cache_clear()
    yield dataset
    goals._table.cache_clear()


def scored(rows=400, seed=0):
    random = np.random.default_rng(seed)
    y = (random.random(rows) < 0.2).astype(np.int64)
    return y, np.round(random.normal(size=rows) + 2 * y, 1)  # with ties


@pytest.mark.parametrize("seed", range(3))
def test_what_the_best_threshold_reaches_is_what_a_rule_finds(seed):
    y, margin = scored(seed=seed)
    found = reached(y, margin)
    assert set(found) == {*GOALS}
    for name, goal in BOUNDED.items():
        rule = fit_decision(margin, y, metric=goal.metric, constraint=goal.constraint)
        expected = evalign_score(goal.metric, y_true=y, y_pred=rule(margin))
        assert found[name] == pytest.approx(expected), name


def test_areas_are_those_of_scikit_learn():
    y, margin = scored()
    found = reached(y, margin)
    precision, recall, _ = precision_recall_curve(y, margin)
    assert found[AP] == pytest.approx(-np.sum(np.diff(recall) * precision[:-1]))
    # McClish's correction, undone: 0.5 is the area under the diagonal, and 1 the largest.
    least, most = 0.1**2 / 2, 0.1
    standard = roc_auc_score(y, margin, max_fpr=0.1)
    area = (2 * standard - 1) * (most - least) + least
    assert found[PAUC] == pytest.approx(area / most)


def test_a_bound_out_of_reach_leaves_a_recall_of_0():
    y, margin = np.array([0, 0, 1, 1]), np.array([4.0, 3, 2, 1])
    assert reached(y, margin)["recall_at_precision_90"] == 0
    assert reached(y, margin)["precision_at_recall_80"] == 0.5


def test_shares_are_of_the_right_rows():
    matrix = [[90, 2], [1, 7]]
    assert share("precision", matrix) == (7, 9)
    assert share("recall", matrix) == (7, 8)
    assert share("fpr", matrix) == (2, 92)


def test_a_table_has_distinct_rows_and_normal_numbers(made):
    table = prepare(RUN)
    parts = table.training, table.validation, table.test
    assert len(torch.cat(parts)) == len(torch.cat(parts).unique()) == 900
    assert len(table.X[torch.cat(parts)].unique(dim=0)) == 900
    X = table.X[table.training]
    assert X[:, :3].mean().abs() < 0.05  # cubes of normal numbers, made normal again
    assert X[:, :3].std() == pytest.approx(1, abs=0.1)
    assert set(X[:, 3].tolist()) == {0, 1}
    labels = table.y[table.training]
    assert labels.tolist() == sorted(labels.tolist(), reverse=True)
    assert [len(part) for part in prepare(RUN.but(rows=50))[2:]] == [50, 50, 50]


QUICK = ("cross_entropy", AP, PAUC)  # for a release, all


@pytest.mark.parametrize(
    "method",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in METHODS
        if name not in LIBAUC
    ],
)
def test_every_loss_learns(made, method):
    run = RUN.but(method=PREFIX + method)
    record = train_goal(run)
    assert trainer_of(run) is TRAINER
    assert set(record["picks"]) == {*METHODS[method].goals}
    assert METHODS[method].aim in record["picks"]
    assert not record["diverged"]
    for goal, pick in record["picks"].items():
        assert 1 <= pick["epoch"] <= 2
        if goal in BOUNDED:
            _check_rules(goal, pick, prepare(run))
    # Recall at a precision hardly has a slope before some rows come near that precision.
    if AP in record["picks"] and method != "recall_at_precision":
        assert record["picks"][AP]["test"] > 0.5  # a guess has the positives' share, 0.2


def _check_rules(goal, pick, table):
    sought = BOUNDED[goal]
    assert set(pick["rules"]) == {"met", "promised"}
    for rule, told in pick["rules"].items():
        for name, part in (("validation_matrix", table.validation), ("matrix", table.test)):
            positives = int(table.y[part].sum())
            assert [sum(row) for row in told[name]] == [len(part) - positives, positives]
        part, whole = share(sought.metric, told["matrix"])
        assert told["test"] * whole == pytest.approx(part, abs=1e-3)  # of six digits
        part, whole = share(sought.bounded, told["validation_matrix"])
        assert (part >= sought.bound * whole) if sought.at_least else (part <= sought.bound * whole)
        assert told["promised"] in ((None,) if rule == "met" else (True, False))


def test_a_training_that_diverges_is_recorded(made):
    record = train_goal(RUN.but(learning_rate=1e30))
    assert record["diverged"]
    picks = record["picks"]
    positives = prepare(RUN).y[prepare(RUN).test].double().mean().item()
    assert picks[AP]["test"] == pytest.approx(positives, abs=1e-6)
    assert picks["recall_at_fpr_1"]["rules"]["promised"]["test"] == 0
    # No rule meets this bound, so that no row is labelled.
    assert picks["recall_at_precision_90"]["rules"]["met"]["matrix"][1][1] == 0


def test_images_keep_few_positives_in_every_part(monkeypatch, quick):
    dataset = made_data.images("cifar10_half", rows=400)
    monkeypatch.setattr(images, "load", lambda name: dataset)
    images._stored.cache_clear()
    run = RUN.but(dataset="cifar10_half", network="tiny_darknet", imbalance=10.0, epochs=1)
    parts = thinned(dataset, run)
    assert [len(part) for part in parts] == [141, 35, 44]  # of 200 negatives and 20 positives
    assert [int(dataset.y[part].sum()) for part in parts] == [13, 3, 4]
    record = train_goal(run)
    images._stored.cache_clear()
    assert sum(map(sum, record["picks"]["recall_at_fpr_1"]["rules"]["met"]["matrix"])) == 44
    assert trainer_of(run) is TRAINER


class Sampler:
    """As LibAUC's: half of each batch are positives."""

    def __init__(self, dataset, batch_size, *, sampling_rate, random_seed):
        assert sampling_rate == 0.5
        y, self.half = dataset.targets, batch_size // 2
        self.random = np.random.default_rng(random_seed)
        self.positive, self.negative = (np.flatnonzero(y == label) for label in (1, 0))
        assert self.positive.max() < self.negative.min()

    def __iter__(self):
        for rows in (self.positive, self.negative):
            yield from self.random.choice(rows, self.half)


@pytest.mark.parametrize("method", LIBAUC)
def test_the_losses_of_another_library_get_what_they_want(made, monkeypatch, method):
    asked = []

    class Loss(nn.Module):
        def __init__(self, **given):
            super().__init__()
            asked.append(given)

        def forward(self, p, y, place):
            assert p.shape == y.shape == (len(place), 1)
            asked.append((y[:, 0], place))
            return nn.functional.binary_cross_entropy(p, y)

    class Optimizer(torch.optim.Adam):
        def __init__(self, parameters, mode, device, eta=None, **given):
            assert mode == "adam"
            super().__init__(parameters, **given)

    names = {
        "libauc": {},
        "libauc.losses": dict.fromkeys(["APLoss", "pAUC_CVaR_Loss", "tpAUC_KL_Loss"], Loss),
        "libauc.optimizers": dict.fromkeys(["SOAP", "SOPA", "SOTAs"], Optimizer),
        "libauc.sampler": {"DualSampler": Sampler},
    }
    fakes = {name: types.ModuleType(name) for name in names}
    for name, fake in fakes.items():
        vars(fake).update(names[name])
        monkeypatch.setitem(sys.modules, name, fake)
    fakes["libauc"].losses = fakes["libauc.losses"]
    fakes["libauc"].optimizers = fakes["libauc.optimizers"]
    record = train_goal(RUN.but(method=PREFIX + method))
    given, *batches = asked
    labels = prepare(RUN).y[prepare(RUN).training]
    assert given["data_len"] == len(labels)
    assert given.get("pos_len", int(labels.sum())) == int(labels.sum())
    assert len(batches) == 2 * -(-len(labels) // 32)  # as many steps as any other loss has
    for y, place in batches:
        torch.testing.assert_close(y, labels[place].float())
    assert record["picks"][AP]["test"] > 0.5
