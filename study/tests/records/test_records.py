"""Results files, which are only ever added to, whatever happens."""

import dataclasses
import gzip
import json
import subprocess

import pytest
from evalign_study.records import members
from evalign_study.records.made import NOT_IN_HISTORY, commit, made, record
from evalign_study.records.results import Results, ResultsError, ResultsWarning
from evalign_study.records.run import Run
from joblib import Parallel, delayed

from study.tests.records.made_runs import append_some, run
from study.tests.records.made_runs import made as made_record


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results" / "table.jsonl.gz"


def filled(path, count=3):
    results = Results(path)
    for seed in range(count):
        results.append([made_record(run(seed))])
    return results


def test_what_was_added_is_read_again(path):
    results = filled(path)
    again = Results(path)
    assert again.records() == results.records()
    assert again.keys == results.keys == {run(seed).key for seed in range(3)}
    lines = gzip.decompress(path.read_bytes()).splitlines()  # as zcat reads it
    assert [json.loads(line) for line in lines] == results.records()


def test_a_run_is_recorded_once(path):
    results, before = filled(path), path.read_bytes()
    results.append([made_record(run(1)) | {"seconds": 5.0}])
    assert path.read_bytes() == before
    assert results.records()[1]["seconds"] == 0.0


@pytest.mark.slow
def test_many_processes_write_at_once(path):
    Parallel(n_jobs=2)(delayed(append_some)(path, 30 * k, 30 * k + 40) for k in range(4))
    seeds = [record["run"]["seed"] for record in Results(path).records()]
    assert sorted(seeds) == list(range(130))


def test_a_file_that_has_become_shorter_is_not_added_to(path):
    results = filled(path)
    path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(ResultsError, match=r"table\.jsonl\.gz has become shorter"):
        results.append([made_record(run(3))])
    assert path.stat().st_size == 10


def test_what_is_added_together_is_there_as_a_whole_or_not_at_all(path):
    filled(path, 1)
    before = len(path.read_bytes())
    Results(path).append([made_record(run(seed)) for seed in (1, 2)])
    whole = path.read_bytes()
    for size in range(before + 1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.warns(ResultsWarning, match="was cut off; its runs are taken as not done"):
            results = Results(path)
        assert results.keys == {run(0).key}
    results.append([made_record(run(2))])
    assert Results(path).keys == {run(0).key, run(2).key}


def flip(written, place):
    flipped = bytearray(written)
    flipped[place // 8] ^= 1 << place % 8
    return bytes(flipped)


def test_every_flipped_bit_is_noticed():
    """That includes bits that gzip ignores, and bits that do not change the content."""
    part = members.pack(json.dumps(made_record(run(1))).encode())
    for place in range(8 * len(part)):
        with pytest.raises(members.Damaged):
            members.unpack(flip(part, place), 0)


def test_a_flipped_bit_is_never_taken_for_a_cut(path):
    """This also holds in the last part, whose length the bit may change."""
    filled(path, 2)
    whole = path.read_bytes()
    for place in range(0, 8 * len(whole), 29):
        path.write_bytes(flip(whole, place))
        with pytest.raises(ResultsError, match=r"Part [12] of .*table\.jsonl\.gz is damaged"):
            Results(path)


@pytest.mark.parametrize("damage", ["{}", "[1]", '{"key": "a', "", "other run", "other key"])
def test_a_line_that_is_not_a_record_is_named(path, damage):
    """Its checksum is right, so another program must have written it."""
    filled(path)
    record = made_record(run(3))
    changed = {"other run": {"run": vars(run(4))}, "other key": {"key": run(4).key}}
    line = json.dumps(record | changed[damage]) if damage in changed else damage
    part = members.pack(f"{json.dumps(record)}\n{line}\n".encode())
    path.write_bytes(path.read_bytes() + part)
    with pytest.raises(ResultsError, match=r"Line 2 in part 4 of .*table\.jsonl\.gz is not a"):
        Results(path)


def git(folder, *arguments):
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_commit_that_cannot_be_checked_out_says_so(tmp_path):
    assert commit(tmp_path) == f"unknown{NOT_IN_HISTORY}"
    commit.cache_clear()
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "one")
    name = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert commit(tmp_path) == name
    commit.cache_clear()
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == f"{name}-dirty{NOT_IN_HISTORY}"
    commit.cache_clear()
    git(tmp_path, "checkout", "-q", "--detach")
    git(tmp_path, "commit", "-qam", "two")  # in no branch
    name = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert commit(tmp_path) == name + NOT_IN_HISTORY
    commit.cache_clear()


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
    """A field can then be added later, and old runs keep their keys."""
    assert run(1).key == run(1, rows=None).key != run(1, rows=20).key
    assert run(1, imbalance=10.0).key != run(1, rate=10.0).key
    again = Run(**{k: v for k, v in dataclasses.asdict(run(4)).items() if k != "rows"})
    assert again.key == run(4).key
