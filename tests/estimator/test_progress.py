"""What is printed while an estimator is fitted."""

import re
import sys

import pytest

from evalign.estimators import progress


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def record(epoch):
    scores = {"validation_loss": 1.0, "validation_metric": 0.5, "best": False}
    return {"epoch": epoch, "temperature": None, **scores}


def test_a_log_has_a_line_a_minute(clock, capsys):
    """Of a training also the first epoch."""
    with progress.progress("aligned", "f1", 100) as show:
        for epoch in range(1, 63):
            clock.now += 5
            show(record(epoch))
    lines = capsys.readouterr().err.splitlines()
    found = [int(re.search(r"epoch (\d+)/100", line)[1]) for line in lines]
    assert found == [*range(1, 62, 12)]
    with progress.narrated(1) as tell:
        for epoch in range(30):
            clock.now += 5
            tell(f"epoch {epoch}", passing=True)
        tell("done")
    assert capsys.readouterr().err.splitlines() == ["epoch 11", "epoch 23", "done"]


def test_on_a_terminal(clock, monkeypatch, capsys):
    """A bar for a training; of an ensemble, lines of what was done. Names are not markup."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.progress("aligned", "cost[/b]", 2) as show:
        show(record(1))
    bar = capsys.readouterr().err
    assert "aligned: loss 1.0000  cost[/b] 0.5000" in bar
    assert "100%" in bar
    with progress.narrated(1) as tell:
        tell("passes", passing=True)
        tell("linear[/b] done")
    assert "linear[/b] done\n" in capsys.readouterr().err


def test_without_rich(clock, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with progress.progress("aligned", "f1", 2) as show:
        show(record(1))
    with progress.narrated(1) as tell:
        tell("done")
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("aligned: epoch 1/2  loss 1.0000")
    assert last == "done"
