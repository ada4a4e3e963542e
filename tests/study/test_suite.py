"""What the suite compares, and that every training is that of the estimator."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from evalign import AlignedClassifier, data
from evalign.data import Dataset
from evalign.study import prepared, rulings, stacks, suite
from evalign.study.execute import execute
from evalign.study.methods import GOALS, VARIANTS, Problem, make
from evalign.study.prepared import prepare
from evalign.study.records import Results
from evalign.study.run import scores, triples
from evalign.study.suite import OPPONENTS, metrics, runs, train, units
from evalign.training import Settings
from evalign.training.many import fit_many
from evalign.training.settings import usual_batch_size


@pytest.fixture(autouse=True)
def fresh():
    prepare.cache_clear()
    yield
    prepare.cache_clear()


@pytest.fixture
def kept(monkeypatch):
    """What `fit_many` returns, to look at."""
    found = []

    def remembered(*arguments, **more):
        found.extend(fit_many(*arguments, **more))
        return found

    monkeypatch.setattr(suite, "fit_many", remembered)
    return found


@pytest.fixture
def made(monkeypatch):
    """300 rows in the place of any data set."""
    X = np.random.default_rng(0).normal(3, 2, (300, 4)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] > 8).astype(np.int64)
    dataset = Dataset(X, y, ("no", "yes"), np.arange(300), None, data.card("mammography"))
    monkeypatch.setattr(data, "load", lambda name, preparation: dataset)
    return dataset


def small(**more):
    return runs(["mammography"], **{"splits": [0], "seeds": [1], "epochs": 2} | more)


def test_what_is_compared():
    found = runs()
    assert len({run.key for run in found}) == len(found)
    methods = len(OPPONENTS) + len(VARIANTS) * len(GOALS)
    assert len(found) == 15 * 5 * 3 * methods
    parts = units(found)
    assert len(parts) == 15 * 5
    assert all(len({(run.dataset, run.split_seed) for run in part}) == 1 for part in parts)
    assert {run.variant for run in found} == {"sound"}
    for name in suite.SETS:
        data.card(name)  # is known


def test_the_trainer_is_the_estimators(made, monkeypatch):
    asked = {}

    def note(build, members, *rows, settings, **more):
        asked.update(members=members, settings=settings, network=build())
        raise InterruptedError

    monkeypatch.setattr(suite, "fit_many", note)
    with pytest.raises(InterruptedError):
        list(train(runs(["mammography"], splits=[0], variants=["anchored"])))
    wanted, settings = AlignedClassifier(), asked["settings"]
    assert (settings.epochs, settings.weight_decay) == (wanted.epochs, wanted.weight_decay)
    assert settings.patience is None
    default = Settings()
    for name in ("schedule", "warmup", "clip_norm"):
        assert getattr(settings, name) == getattr(default, name)
    assert settings.batch_size == usual_batch_size(192) == 32
    members = asked["members"]
    assert {member.learning_rate for member in members} == {wanted.learning_rate}
    assert {member.dropout for member in members} == {wanted.dropout}
    assert {member.seed for member in members} == {1, 2, 3}
    widths = [m.out_features for m in asked["network"].modules() if isinstance(m, torch.nn.Linear)]
    assert widths == [512, 256, 128, 2]


def test_records_hold_every_pick_and_decision(made):
    part = small(variants=["anchored"])
    records = list(train(part))
    assert [record["key"] for record in records] == [run.key for run in part]
    for record in records:
        method = record["run"]["method"]
        wanted = ["f1", "matthews_corrcoef", "balanced_accuracy", "f2"]
        if method not in OPPONENTS:
            wanted = [GOALS[method.removeprefix("anchored_")]]
        assert list(record["picks"]) == wanted
        assert (record["epochs"], record["batch_size"], record["diverged"]) == (2, 32, False)
        for metric, picks in record["picks"].items():
            assert picks.keys() == {"loss", "metric"}
            for pick in picks.values():
                assert pick["epoch"] in (1, 2)
                for ruled in pick["decisions"].values():
                    assert sum(count for *_, count in ruled["matrix"]) == 60
                    again = scores(ruled["matrix"], 2, (metric,))[metric]
                    assert ruled["test"] == pytest.approx(again, abs=1e-6)
    json.dumps(records, allow_nan=False)


def test_the_picks_are_the_best_epochs(made, kept):
    """By hand: for each metric the first epoch that no other one exceeds."""
    part = [run for run in small(epochs=6) if run.method == "cross_entropy"]
    (record,) = train(part)
    (trained,) = kept
    losses = [epoch["validation_loss"] for epoch in trained.history]
    f1 = [epoch["validation_metric"] for epoch in trained.history]
    f2 = [epoch["also"]["f2"] for epoch in trained.history]
    for metric, values in (("f1", f1), ("f2", f2)):
        picks = record["picks"][metric]
        assert picks["loss"]["epoch"] == 1 + int(np.argmin(losses))
        assert picks["metric"]["epoch"] == 1 + int(np.argmax(values))
    ruled = record["picks"]["f2"]["metric"]["decisions"]["argmax"]["validation"]
    assert ruled == pytest.approx(max(f2), abs=1e-6)  # it has no offsets


def test_the_prior_is_added_back(made, kept):
    """Labels of the anchored method are those of its probabilities."""
    (record,) = train([run for run in small(epochs=6) if run.method == "anchored_f1"])
    prepared = prepare("mammography", "sound")
    X, y = prepared.test
    network = suite.NETWORKS["mlp"](4, 2, 0.0).eval()
    logits = stacks.logits_of(network, kept[0].best["loss"], X)
    offsets = make("anchored_f1", prepared.counts).offsets
    found = record["picks"]["f1"]["loss"]["decisions"]["argmax"]["matrix"]
    assert found == triples((logits + offsets).argmax(1), y)
    assert found != triples(logits.argmax(1), y)


def test_more_than_two_classes(made, monkeypatch):
    y = made.y + (made.X[:, 2] > 4)
    three = Dataset(made.X, y, ("a", "b", "c"), made.groups, None, made.card)
    monkeypatch.setattr(data, "load", lambda name, preparation: three)
    monkeypatch.setattr(rulings, "MOST_TUNED", 2)  # tuning takes its time
    (record,) = train([run for run in small() if run.method == "unadjusted_f2"])
    (picks,) = record["picks"].values()
    assert list(record["picks"]) == ["f2_macro"]
    assert picks["metric"]["decisions"].keys() == {"argmax", "expected"}


def test_more_stacks_than_one(made, monkeypatch):
    part = small(variants=[])
    monkeypatch.setattr(stacks, "NUMBERS", 1)
    sizes = []
    once = suite._train_stack
    monkeypatch.setattr(
        suite, "_train_stack", lambda runs, *of: sizes.append(len(runs)) or once(runs, *of)
    )
    assert len(list(train(part))) == 4
    assert sizes == [1] * 4


def test_a_run_that_diverges_says_the_first_class(made):
    wild = small(variants=[])[0].but(learning_rate=1e30)
    (record,) = train([wild])
    assert record["diverged"]
    for picks in record["picks"].values():
        for pick in picks.values():
            assert pick["epoch"] == 0
            for ruled in pick["decisions"].values():
                assert {predicted for _, predicted, _ in ruled["matrix"]} == {0}


def test_what_is_recorded_is_not_trained_again(made, tmp_path):
    path = tmp_path / "recipe.jsonl"
    part = small(variants=[])
    execute(units(part[:1]), train, Results(path))
    before = path.read_bytes()
    execute(units(part), train, Results(path))
    assert path.read_bytes().startswith(before)
    assert [record["key"] for record in Results(path).records()] == [run.key for run in part]


def test_runs_of_two_units_are_refused(made):
    one, two = small(splits=[0, 1], variants=[])[::4]
    with pytest.raises(ValueError, match="runs of train must be of one split of one data set"):
        next(train([one, two]))


def test_training_needs_no_plots():
    """The machine that trains has no plotly."""
    code = "import sys, evalign.study.suite; assert 'plotly' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_metrics_by_problem():
    assert metrics(Problem(torch.ones(2), ""))[::3] == ["f1", "f2"]
    for classes in (2, 3):
        targets = [make(f"anchored_{goal}", torch.ones(classes)).target for goal in GOALS]
        assert targets == metrics(Problem(torch.ones(classes), ""))


def test_the_ablations_lack_what_they_say():
    counts = torch.tensor([90.0, 10.0])
    torch.manual_seed(0)
    logits, y = torch.randn(40, 2), torch.arange(40) % 2
    whole, by_batch, unadjusted, unanchored = (
        make(f"{variant}_f1", counts).loss for variant in VARIANTS
    )
    metric = make("mcfbeta_f1", counts).loss(logits, y)
    entropy, adjusted = (
        torch.nn.functional.cross_entropy(logits + tau * (counts / 100).log(), y)
        for tau in (0, 0.5)
    )
    for loss, value in (
        (whole, adjusted + metric),
        (by_batch, adjusted + metric),
        (unadjusted, entropy + metric),
        (unanchored, metric),
    ):
        torch.testing.assert_close(loss.eval()(logits, y), value)
    assert (by_batch.metric.running, whole.metric.running is None) == (None, False)
    assert unanchored.running is not None


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

    # What stands in the other rows changes nothing of the training rows.
    _, validation, test = prepared.three_way_split(y, groups=np.arange(90), seed=0)
    texts[[*validation, *test]] = "other words altogether"
    prepare.cache_clear()
    again = prepare("reuters_r8", "sound")
    assert torch.equal(again.training[0], X)
    assert not torch.equal(again.test[0], found.test[0])
