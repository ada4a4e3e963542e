"""A printed protocol on a table and with a loss of one's own, by the command."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from study.tests.commands import done, refused

LOSSES = """
from torch import nn

def smooth(task):
    return nn.CrossEntropyLoss(label_smoothing=0.1)

def rows(task):
    return nn.CrossEntropyLoss(reduction="none")

def endless(task):
    class Endless(nn.Module):
        def forward(self, logits, target):
            return logits.sum() * float("inf")
    return Endless()
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a table and losses of one's own."""
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3))
    frame = pd.DataFrame(X, columns=list("abc")).assign(kind=np.where(X[:, 1] > 0, "u", None))
    frame["y"] = np.where(X[:, 0] + random.normal(size=200) > 0.5, "yes", "no")
    frame.to_csv(tmp_path / "my.csv", index=False)
    (tmp_path / "my_losses.py").write_text(LOSSES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


OWN = ["run", "east-table1", "--data", "my.csv", "--target", "y", "--quick", "--out", "out"]


def test_a_table_and_a_loss_of_ones_own(here):
    options = [*OWN, "--loss", "my_losses:smooth", "--line", "CE", "--line", "my_losses:smooth"]
    first = json.loads(done(*options, "--json").out)
    assert (first["trained"], first["reused"]) == (6, 0)
    again = done(*options).out.splitlines()
    assert "0 trained, 6 reused." in again
    with open("out/quick/east-table1.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["line"] for row in rows} == {"CE", "my_losses:smooth"}
    assert all("±" in row["ours"] for row in rows)
    page = (here / "out/quick/east-table1.md").read_text(encoding="utf-8")
    assert "| my_losses:smooth | – |" in page
    # Another setting is another run.
    changed = json.loads(done(*options, "--set", "patience=2", "--json").out)
    assert (changed["trained"], changed["reused"]) == (6, 0)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (["--target", "z"], "--target of run must be a column of my.csv: a, b, c, kind, y. Got"),
        (["--data", "no.csv"], "--data must be a CSV file. Got 'no.csv', which is none."),
        (["--set", "patienc=3"], "Got 'patienc'. Did you mean 'patience'?"),
        (["--set", "patience"], "--set of run must be name=value. Got 'patience'."),
        (["--line", "F1"], "line of evalign-study must be one of F1*, Acc*, MCC*, Dice, CE."),
        (["--loss", "my_losses"], "--loss of run must be package.module:factory."),
        (["--loss", "my_losse:rows"], "Got 'my_losse:rows': No module named 'my_losse'."),
        (["--loss", "my_losses:smoth"], "Got smoth. Did you mean 'smooth'?"),
        (["--loss", "my_losses:rows"], "must be a scalar tensor. Got shape (8,)."),
        (["--loss", "my_losses:endless"], "the value of --loss of run must be finite."),
    ],
)
def test_bad_input_is_one_line(here, changes, text):
    assert text in refused(*OWN, *changes)


def test_a_table_of_settings_that_is_not_there(here):
    assert "Got 'mine.toml'." in refused("run", "mine.toml")
    assert "are for the tables" in refused("run", "recipe", "--set", "patience=2")


def test_pages_are_written_from_printed_records(here):
    done("render", "east-readings", "--results", here, "--out", here / "out")
    page = (here / "out/protocols/east-readings.md").read_text(encoding="utf-8")
    assert "runs are there, 0 of them capped." in page
