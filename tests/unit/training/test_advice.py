"""Each warning fires where it should, once, and is silent where all is well."""

import warnings

import pytest
import torch
from scipy import stats
from torch import nn

from evalign import MetricLoss, metrics
from evalign.training.advice import TrainingWarning, _rise, advice, batch_advice
from evalign.training.loop import fit
from tests.unit.training.runs import mlp, rows, settings

RARE = torch.tensor([0] * 940 + [1] * 50 + [2] * 10)


def run(network, loss, *, data=None, metric="f1_macro", **changes):
    """Return the kinds of a run's warnings, and the warnings."""
    data = data or rows()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = fit(
            network,
            loss,
            *data,
            validation=data,
            metric=metric,
            settings=settings(**{"ema_decay": None, "epochs": 20, **changes}),
        )
    assert all(w.category is TrainingWarning and w.filename == __file__ for w in caught)
    return [kind for record in history for kind in record["warnings"]], caught


def test_a_good_run_is_silent():
    kinds, caught = run(mlp(), MetricLoss("f1_macro"), epochs=40)
    assert not kinds
    assert not caught


class TestTooFewExamples:
    def test_text(self):
        assert batch_advice(MetricLoss("f1_macro"), RARE.repeat(10), 100) == (
            "A batch of 100 rows holds 1 examples of the rarest class on average, too few for the "
            "loss's metric: below 12 its recall in a batch is mostly noise. Use batches of 1200 "
            "rows, or a loss that averages over batches, as AlignedLoss does."
        )

    def test_the_cure_is_possible(self):
        """No batch is larger than the data."""
        loss = MetricLoss("f1_macro")
        assert "Use larger batches, or" in (batch_advice(loss, RARE, 100) or "")
        for size in (1000, 5000):
            assert "Use more data, or" in (batch_advice(loss, RARE, size) or "")

    @pytest.mark.parametrize(
        "metric", ["f1_macro", "balanced_accuracy", "matthews_corrcoef", "g_mean", "cohen_kappa"]
    )
    def test_metrics_of_rare_classes(self, metric):
        assert batch_advice(MetricLoss(metric), RARE, 100)
        assert batch_advice(nn.ModuleList([nn.CrossEntropyLoss(), MetricLoss(metric)]), RARE, 100)

    @pytest.mark.parametrize("metric", ["accuracy", "f1_micro", "f1_weighted"])
    def test_metrics_of_the_mass(self, metric):
        assert batch_advice(MetricLoss(metric), RARE, 100) is None

    def test_large_batches(self):
        y = RARE.repeat(10)
        assert batch_advice(MetricLoss("f1_macro"), y, 1100)
        assert batch_advice(MetricLoss("f1_macro"), y, 1200) is None

    def test_running_statistics(self):
        loss = MetricLoss("f1_macro")
        loss.statistics = "running"
        assert batch_advice(loss, RARE, 100) is None

    def test_other_losses(self):
        assert batch_advice(nn.CrossEntropyLoss(), RARE, 100) is None
        assert batch_advice(lambda logits, target: logits.sum(), RARE, 100) is None

    def test_labels_that_count(self):
        frequent = metrics.Recall(average="macro", labels=(0, 1))
        assert batch_advice(MetricLoss(frequent), RARE, 300) is None
        assert batch_advice(MetricLoss("recall_macro"), RARE, 300)
        unseen = metrics.Recall(average="macro", labels=(0, 1, 7))
        assert batch_advice(MetricLoss(unseen), RARE, 300) is None

    @pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
    @pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
    def test_the_positive_class_of_two(self, shape, dtype):
        """F1 is about class 1: where that is the frequent one, nothing is missing."""
        y = (torch.arange(1000) < 50).to(dtype).reshape(shape)
        assert batch_advice(MetricLoss("f1"), y, 100)
        assert batch_advice(MetricLoss("f1"), 1 - y, 100) is None
        assert batch_advice(MetricLoss("f1_macro"), 1 - y, 100)

    def test_multilabel(self):
        y = torch.zeros(1000, 3, dtype=torch.bool)
        y[:500] = True
        assert batch_advice(MetricLoss("f1_macro"), y, 100) is None
        y[20:, 1] = False
        assert batch_advice(MetricLoss("f1_macro"), y, 100)

    def test_pixels_count_as_rows(self):
        y = torch.zeros(10, 100, 100, dtype=torch.int64)
        y[:, 0, :5] = 1
        assert batch_advice(MetricLoss("f1_macro"), y, 2)
        assert batch_advice(MetricLoss("f1_macro"), y, 4) is None

    def test_ignored_and_absent_classes(self):
        y = torch.tensor([0, 2] * 500 + [-100] * 10)
        assert batch_advice(MetricLoss("f1_macro"), y, 100) is None

    def test_in_a_run(self):
        kinds, caught = run(mlp(), MetricLoss("f1_macro"), batch_size=10, epochs=2)
        assert not kinds
        assert [str(w.message)[:20] for w in caught] == ["A batch of 10 rows h"]


class Constant(nn.Module):
    """A network that predicts class 0 whatever it learns."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x):
        return self.inner(x) + torch.tensor([100.0, 0.0, 0.0])


def test_collapsed():
    kinds, caught = run(Constant(), nn.CrossEntropyLoss(), epochs=12)
    assert kinds == ["collapsed"]
    assert "All validation rows were predicted as one class for 5 epochs." in str(caught[0].message)
    assert not run(Constant(), nn.CrossEntropyLoss(), epochs=4)[0]


def test_one_class_to_predict_is_no_collapse():
    X, y = rows()
    assert not run(Constant(), nn.CrossEntropyLoss(), data=(X, 0 * y), metric="accuracy")[0]


class Saturated(nn.Module):
    """A network whose probabilities are exactly 0 and 1, so that no gradient comes through."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x):
        return 1e6 * self.inner(x)


def test_vanished_gradients():
    kinds, caught = run(Saturated(), MetricLoss("f1_macro"), epochs=6, clip_norm=None)
    assert kinds == ["vanished"]
    assert "The gradient has been below 1e-07 for 3 epochs" in str(caught[0].message)


def test_a_solved_problem_is_no_vanished_gradient():
    X, _ = rows()
    network = Saturated()
    with torch.no_grad():
        y = network(X).argmax(1)
    assert not run(network, MetricLoss("f1_macro"), data=(X, y), epochs=6)[0]


def test_drift():
    """The descent of this loss makes everything worse."""

    class Wrong(nn.CrossEntropyLoss):
        def forward(self, logits, target):
            return -super().forward(logits, target)

    network, data = mlp(), rows()
    run(network, nn.CrossEntropyLoss())
    kinds, caught = run(network, Wrong(), data=data, schedule="constant", learning_rate=3e-3)
    assert kinds == ["drift"]
    assert "the loss does not stand for the metric here" in str(caught[0].message)


def records(losses, scores, temperatures=None):
    fixed = {"loss": 1.0, "gradient_norm": 1.0, "collapsed": False}
    temperatures = temperatures or [0.2] * len(losses)
    return [
        {"validation_loss": a, "validation_metric": b, "temperature": t, **fixed}
        for a, b, t in zip(losses, scores, temperatures, strict=True)
    ]


FALLING = [1 - 0.01 * i for i in range(12)]
RISING = [0.5 + 0.01 * i for i in range(12)]
HALVES = [0.2] * 6 + [0.1] * 6
NOISE = [0.7, 0.5, 0.6, 0.8, 0.6, 0.5, 0.6, 0.5, 0.7, 0.4, 0.5, 0.6]
DRIFTING = {
    "both improve": (records(FALLING, RISING), True, False),
    "the metric falls": (records(FALLING, FALLING), True, True),
    "a cost falls": (records(FALLING, FALLING), False, False),
    "a cost rises": (records(FALLING, RISING), False, True),
    "both get worse": (records(RISING, FALLING), True, False),
    "too short": (records(FALLING[1:], FALLING[1:]), True, False),
    "noise": (records(FALLING, NOISE), True, False),
    "a flat metric": (records(FALLING, [0.7 - 1e-4 * i for i in range(12)]), True, False),
    "the temperature fell": (records(FALLING, FALLING, HALVES), True, False),
}


@pytest.mark.parametrize("name", DRIFTING)
def test_drift_of_records(name):
    history, greater_is_better, expected = DRIFTING[name]
    kinds = [kind for kind, _ in advice(history, greater_is_better=greater_is_better)]
    assert kinds == (["drift"] if expected else [])


def test_divergence_stops_the_run():
    X, y = rows()

    class Breaks(nn.Linear):
        epochs = 0

        def forward(self, x):
            self.epochs += not self.training
            return super().forward(x) * (float("nan") if self.epochs > 3 else 1.0)

    network = Breaks(6, 3)
    kinds, caught = run(network, nn.CrossEntropyLoss(), data=(X, y))
    assert kinds == ["diverged"]
    assert "The validation loss is nan; training stops here." in str(caught[0].message)
    assert network.weight.isfinite().all()  # the best epoch, from before


def test_said_once_also_after_resuming(tmp_path):
    given = {"validation": rows(), "metric": "f1_macro", "settings": settings(epochs=12)}
    given |= {"checkpoint": tmp_path / "run", "checkpoint_every": 0, "resume": True}

    def stop(record):
        if record["epoch"] == 7:
            raise KeyboardInterrupt

    with pytest.warns(TrainingWarning, match="one class"), pytest.raises(KeyboardInterrupt):
        fit(Constant(), nn.CrossEntropyLoss(), *rows(), **given, on_epoch=stop)
    history = fit(Constant(), nn.CrossEntropyLoss(), *rows(), **given)  # a warning is an error
    assert [r["epoch"] for r in history if r["warnings"]] == [5]


def test_a_rise_is_welchs_t():
    values = [0.1, 0.4, 0.2, 0.3, 0.6, 0.2, 0.5, 0.9]
    expected = stats.ttest_ind(values[4:], values[:4], equal_var=False).statistic
    assert _rise(values) == pytest.approx(expected)
