"""`evalign demo`: every gain it tells is there, and beyond chance."""

import re

import numpy as np

from evalign.cli import demo
from tests.ground.cli.commands import done


def test_demo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = done("demo").out
    helped = re.findall(r"It helped: .* better by .* \(95% interval 0\.\d+ to 0\.\d+\)\.", said)
    assert len(helped) == 3
    bound = float(demo.BOUND.split()[-1])
    assert float(re.search(r"(\d\.\d+) on new rows", said)[1]) >= bound
    assert demo.AVERAGES in said
    assert str(tmp_path / demo.PAGE) in said
    assert "It helped" in (tmp_path / demo.PAGE).read_text(encoding="utf-8")


def test_digits_are_long_tailed():
    X, X_test, y, y_test, tail = demo.digits()
    assert X.shape == (len(y), 16)
    assert X_test.shape == (len(y_test), 16)
    counts = np.bincount(y[tail])
    assert (np.diff(counts) < 0).all()
    assert (counts[0], counts[9]) == (80, 7)
    assert len(np.unique(tail)) == len(tail)
