"""The worked example on text, on made texts."""

import csv
import gzip
import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "examples" / "text_reuters.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path):
    topics = ["earn"] * 50 + ["trade"] * 14
    rows = [("train", topic, f"said {topic} reuter") for topic in topics]
    rows += [("test", topic, f"{topic} unheard of") for topic in topics]
    with gzip.open(path, "wt", newline="") as file:
        csv.writer(file).writerows([("split", "class", "text"), *rows])


@pytest.mark.slow
def test_it_prints_a_table_where_both_libraries_agree(example, tmp_path, capsys):
    write(tmp_path / "texts.csv.gz")
    example.main(["--data", str(tmp_path / "texts.csv.gz")])
    *_, head, cross_entropy, metric, both = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "f1_macro"
    for line, name in zip((cross_entropy, metric, both), example.LOSSES, strict=True):
        assert line.startswith(name)
        ours, *_, theirs = line.removeprefix(name).split()
        assert ours == theirs
        assert float(ours) > 0.4  # the larger topic at least
