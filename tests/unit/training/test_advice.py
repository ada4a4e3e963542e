"""Each warning fires where it should, once, and is silent where all is well."""

import warnings

import pytest
import torch
from torch import nn

from evalign import MetricLoss, metrics
from evalign.training.advice import TrainingWarning, batch_advice
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
    assert not any(run(mlp(), MetricLoss("f1_macro"), epochs=40))


@pytest.mark.parametrize(
    "metric", ["f1_macro", "balanced_accuracy", "matthews_corrcoef", "g_mean", "cohen_kappa"]
)
def test_too_few_examples_of_a_class(metric):
    assert batch_advice(MetricLoss(metric), RARE, 100) == (
        "A batch of 100 rows holds 1 examples of the rarest class on average, too few for the "
        "loss's metric: below 12 its recall in a batch is mostly noise. Use batches of 1200 rows, "
        "or a loss that averages over batches, as AlignedLoss does."
    )
    assert batch_advice(nn.ModuleList([nn.CrossEntropyLoss(), MetricLoss(metric)]), RARE, 100)
    assert batch_advice(MetricLoss(metric), RARE.repeat(10), 1100)
    assert batch_advice(MetricLoss(metric), RARE.repeat(10), 1200) is None


FREQUENT = metrics.Recall(average="macro", labels=(0, 1, 7))
IGNORED = torch.tensor([0, 2] * 500 + [-100] * 10)
PIXELS = torch.zeros(10, 100, 100, dtype=torch.int64)
PIXELS[:, 0, :5] = 1


@pytest.mark.parametrize(
    ("loss", "target", "batch_size"),
    [
        (MetricLoss("accuracy"), RARE, 100),
        (MetricLoss("f1_weighted"), RARE, 100),
        (MetricLoss("f1_macro", momentum=0.1), RARE, 100),
        (nn.CrossEntropyLoss(), RARE, 100),
        (lambda logits, target: logits.sum(), RARE, 100),
        (MetricLoss(FREQUENT), RARE, 300),  # a rare class that the metric leaves out
        (MetricLoss("f1_macro"), IGNORED, 100),  # a class without a row
        (MetricLoss("f1_macro"), PIXELS, 4),
    ],
)
def test_enough_examples(loss, target, batch_size):
    assert batch_advice(loss, target, batch_size) is None


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_the_positive_class_of_two(shape, dtype):
    """F1 is about class 1, however rare class 0 is."""
    y = (torch.arange(1000) < 50).to(dtype).reshape(shape)
    assert batch_advice(MetricLoss("f1"), y, 100)
    assert batch_advice(MetricLoss("f1"), 1 - y, 100) is None
    assert batch_advice(MetricLoss("f1_macro"), 1 - y, 100)


def test_multilabel():
    y = torch.zeros(1000, 3, dtype=torch.bool)
    y[:500] = True
    assert batch_advice(MetricLoss("f1_macro"), y, 100) is None
    y[20:, 1] = False
    assert batch_advice(MetricLoss("f1_macro"), y, 100)


def test_small_batches_in_a_run():
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
    X, y = rows()  # with one class alone it is right
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
    X, network = rows()[0], Saturated()
    with torch.no_grad():  # a solved problem
        y = network(X).argmax(1)
    assert not run(network, MetricLoss("f1_macro"), data=(X, y), epochs=6)[0]


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
