"""The table of evidence on training, from the record of its parts."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[3]
COLUMNS = [
    ("cross_entropy", "argmax"),
    ("cross_entropy", "tuned"),
    ("ce_dice", "argmax"),
    ("counted", "argmax"),
    ("following", "argmax"),
]
ROWS = {
    "9 tables": "tables",
    "6 multilabel tables": "multilabel",
    "membranes": "membrane",
    "CamVid": "camvid",
    "Fashion-MNIST 1:100": "tail",
}


@pytest.mark.parametrize("name", ROWS)
def test_the_page_shows_the_means_over_data_sets(name):
    """Runs named "following" have the defaults, on splits or seeds that did not choose them."""
    text = ROOT.joinpath("study/benchmarks/results/following.jsonl").read_text(encoding="utf-8")
    lines = pd.DataFrame(json.loads(line) for line in text.splitlines())
    lines = lines[lines["part"] == ROWS[name]]
    where = ["set", "split", "seed", "epochs"]
    lines = lines.merge(lines.loc[lines["method"] == "following", where], on=where)
    means = 100 * lines.groupby(["method", "set"])[["argmax", "tuned"]].mean()
    means = means.groupby("method").mean()
    wanted = [
        f"{means.loc[method, how]:.1f}" if method in means.index else "" for method, how in COLUMNS
    ]
    page = ROOT.joinpath("docs/evidence/training.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {name},(.*) \|$", page, re.M)
    assert [cell.strip().strip("*") for cell in row.split("|")[1:]] == wanted
