"""What is printed while an estimator is fitted."""

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


def test_a_log_has_a_passing_line_a_minute(clock, capsys):
    with progress.narrated(1) as tell:
        for epoch in range(30):
            tell(f"epoch {epoch}", passing=True, left=None if epoch else 150)
            clock.now += 5
        tell("done")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["epoch 0, about 0:02:30 left", "epoch 12", "epoch 24", "done"]
    with progress.narrated(0) as tell:
        tell("done")
    assert not capsys.readouterr().err


def test_on_a_terminal(clock, monkeypatch, capsys):
    """Lines of what was done stay. Names are not markup."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.narrated(1) as tell:
        tell("pass[b]es", passing=True, left=30)
        tell("linear[/b] done")
    said = capsys.readouterr().err
    assert "linear[/b] done\n" in said
    assert "pass[b]es, about 0:00:30 left" in said


def test_the_time_left_goes_by_the_pace(clock):
    """Of 40 guessed seconds the first 10 took 30: the pace is (30 + 40) / (10 + 40)."""
    told = []
    tell = progress.Remaining(lambda text, **more: told.append((text, more)), 40.0)
    tell("a", passing=True)
    assert told.pop() == ("a", {"passing": True, "left": 40.0})
    clock.now += 30
    tell("a: done", done=10.0)
    assert told.pop() == ("a: done", {"passing": False, "left": pytest.approx(30 * 70 / 50)})
    clock.now += 10
    tell("b: left out", done=30.0)
    assert told.pop()[1]["left"] == 0.0


def test_without_rich(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with progress.narrated(1) as tell:
        tell("done")
    assert capsys.readouterr().err == "done\n"
