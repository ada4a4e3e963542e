"""Results are only ever added to, whatever happens."""

import dataclasses
import json

import pytest
from evalign_study.records.results import Results, ResultsError, ResultsWarning, made, record
from evalign_study.records.run import Run
from joblib import Parallel, delayed

from study.tests.records.made_runs import append_some, run
from study.tests.records.made_runs import made as made_record


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
    results.append(made_record(run(1)) | {"seconds": 5.0})
    assert path.read_bytes() == before
    assert results.records()[1]["seconds"] == 0.0


def test_adding_never_changes_what_is_there(path):
    results, before = filled(path), path.read_bytes()
    results.append(made_record(run(3)))
    assert path.read_bytes().startswith(before)


def test_two_writers_lose_nothing(path):
    one, two = Results(path), Results(path)
    for results, seed in ((one, 1), (one, 2), (two, 3), (one, 4), (two, 2), (one, 3)):
        results.append(made_record(run(seed)))
    written = [record["run"]["seed"] for record in Results(path).records()]
    assert written == [1, 2, 3, 4]
    assert one.keys == two.keys == {run(seed).key for seed in range(1, 5)}
    assert one.records() == two.records()


def test_many_processes_write_at_once(path):
    Parallel(n_jobs=2)(delayed(append_some)(path, 30 * k, 30 * k + 40) for k in range(4))
    seeds = [record["run"]["seed"] for record in Results(path).records()]
    assert sorted(seeds) == list(range(130))


def test_a_file_that_has_become_shorter_is_not_added_to(path):
    results = filled(path)
    path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(ResultsError, match=r"table\.jsonl has become shorter"):
        results.append(made_record(run(3)))
    assert path.stat().st_size == 10


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
    versions = {"python", "torch", "sklearn", "evalign"}
    assert made().keys() == {"at", "commit", "device", "precision"} | versions
    assert all(made().values())
    assert made(precision="tf32")["precision"] == "tf32"
    json.dumps(found, allow_nan=False)


def test_a_key_is_of_what_differs_from_the_defaults():
    """So that a field may be added later, and the runs of before keep their keys."""
    assert run(1).key == run(1, rows=None).key != run(1, rows=20).key
    assert run(1, imbalance=10.0).key != run(1, rate=10.0).key
    again = Run(**{k: v for k, v in dataclasses.asdict(run(4)).items() if k != "rows"})
    assert again.key == run(4).key
