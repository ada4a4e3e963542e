"""Results are only ever added to, whatever happens."""

import dataclasses
import json

import pytest

from evalign.study.records import Results, ResultsError, ResultsWarning, made, record
from tests.study.made_runs import made as made_record
from tests.study.made_runs import run


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results" / "table.jsonl"


def filled(path, count=3):
    results = Results(path)
    for seed in range(count):
        results.append(made_record(run(seed)))
    return results


def test_what_was_added_is_read_again(path):
    results = filled(path)
    again = Results(path)
    assert again.records() == results.records()
    assert again.keys == results.keys == {run(seed).key for seed in range(3)}
    assert len(path.read_text().splitlines()) == 3


def test_a_file_that_is_not_there_is_empty(path):
    assert Results(path).records() == []
    assert not path.exists()


def test_a_run_is_recorded_once(path):
    results, before = filled(path), path.read_bytes()
    with pytest.raises(ValueError, match=r"record of Results\.append must have a new key"):
        results.append(made_record(run(1)))
    assert path.read_bytes() == before


def test_adding_never_changes_what_is_there(path):
    results, before = filled(path), path.read_bytes()
    results.append(made_record(run(3)))
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("cut", [1, 40])
def test_a_line_that_was_cut_off_is_done_again(path, cut):
    filled(path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.warns(ResultsWarning, match="was cut off; its run is taken as not done"):
        results = Results(path)
    assert results.keys == {run(0).key, run(1).key}
    results.append(made_record(run(2)))
    assert Results(path).keys == {run(seed).key for seed in range(3)}


@pytest.mark.parametrize("damage", ["{}", "[1]", '{"key": "a', ""])
def test_a_damaged_line_is_named(path, damage):
    filled(path)
    lines = path.read_text().splitlines()
    lines[1] = damage
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ResultsError, match=r"Line 2 of .*table\.jsonl is no record"):
        Results(path)


def test_a_record_says_what_was_run_and_where():
    picks = {"f1": {"epoch": 3, "validation_loss": 0.12345678, "validation": {"f1": float("nan")}}}
    found = record(run(4, imbalance=10.0), epochs=5, capped=True, seconds=1 / 3, picks=picks)
    assert found["key"] == run(4, imbalance=10.0).key
    assert found["run"] == dataclasses.asdict(run(4, imbalance=10.0))
    assert found["seconds"] == 0.333333
    pick = found["picks"]["f1"]
    assert pick == {"epoch": 3, "validation_loss": 0.123457, "validation": {"f1": None}}
    assert made().keys() == {"at", "commit", "device", "matmul", "python", "torch", "evalign"}
    assert all(made().values())
    json.dumps(found, allow_nan=False)
