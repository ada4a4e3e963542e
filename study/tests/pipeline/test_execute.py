"""Units of work, in this process, in others and on a cluster, and after interruptions."""

import subprocess
import sys

import pytest
from evalign_study.pipeline.execute import ExecutionError, execute
from evalign_study.records.results import Results, ResultsWarning

from study.tests.pipeline.made_units import KEYS, UNITS, by_company, train, train_but_three


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results.jsonl.gz")


def keys(results):
    """Read the keys as they stand in the file."""
    return [record["key"] for record in Results(results.path).records()]


# Processes import torch, which takes them seconds.
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_run_is_recorded_once(results, jobs):
    told = []
    execute(UNITS, train, results, jobs=jobs, progress=lambda *said: told.append(said))
    assert sorted(keys(results)) == sorted(KEYS)
    assert [total for _, total, _ in told] == [8] * 4
    assert told[-1] == (8, 8, 0.0)
    assert all(left >= 0 for *_, left in told)


def test_what_is_recorded_is_not_done_again(results):
    execute(UNITS[:2], train, results)
    asked = []

    def listen(unit):
        asked.extend(unit)
        return train(unit)

    execute([*UNITS, UNITS[3]], listen, results)
    assert asked == [*UNITS[2], *UNITS[3]]
    assert sorted(keys(results)) == sorted(KEYS)


def test_a_unit_of_which_a_part_is_recorded_is_trained_whole(results, tmp_path):
    """Its runs share random numbers, so that the new ones alone would have other results."""
    whole = Results(tmp_path / "whole.jsonl.gz")
    execute(UNITS, by_company, whole)
    results.append(by_company(UNITS[2])[1:2])
    execute(UNITS, by_company, results)
    found = {record["key"]: record["seconds"] for record in results.records()}
    assert found == {record["key"]: record["seconds"] for record in whole.records()}


def test_a_failing_unit_loses_no_other(results):
    with pytest.raises(ExecutionError, match=r"1 of 4 units failed(?s:.*)ArithmeticError: three"):
        execute(UNITS, train_but_three, results)
    failed = {run.key for run in UNITS[1]}
    assert set(keys(results)) == KEYS - failed
    execute(UNITS, train, results)
    assert sorted(keys(results)) == sorted(KEYS)


@pytest.mark.slow
def test_killed_inside_a_unit_and_run_again_gives_the_same_records(results, tmp_path):
    script = "import sys; from study.tests.pipeline.made_units import die; die(sys.argv[1])"
    killed = subprocess.run([sys.executable, "-c", script, results.path], timeout=120)
    assert killed.returncode == -9
    assert set(keys(results)) == {run.key for unit in UNITS[:2] for run in unit}
    with results.path.open("ab") as file:
        file.write(results.path.read_bytes()[:40])  # and a write was cut off
    with pytest.warns(ResultsWarning, match="was cut off"):
        again = Results(results.path)
    execute(UNITS, by_company, again)
    whole = Results(tmp_path / "whole.jsonl.gz")
    execute(UNITS, by_company, whole)
    found, wanted = (
        [(record["key"], record["seconds"]) for record in Results(path).records()]
        for path in (results.path, whole.path)
    )
    assert found == wanted


@pytest.mark.slow
def test_on_a_cluster(results):
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):
        execute(UNITS, train, results, jobs=2, backend="dask")
    assert sorted(keys(results)) == sorted(KEYS)
