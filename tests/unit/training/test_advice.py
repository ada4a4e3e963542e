"""Each warning fires where it should, once, and is silent where all is well."""

import warnings

import pytest
import torch
from torch import nn

from evalign import MetricLoss
from evalign.training import TrainingWarning
from evalign.training.loop import fit
from tests.unit.training.runs import mlp, rows, settings


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
