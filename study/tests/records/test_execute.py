"""Units of work: in this process, in others, on a cluster; after an end of any kind."""

import subprocess
import sys

import pytest
from evalign_study.records.execute import ExecutionError, execute
from evalign_study.records.results import Results, ResultsWarning

from study.tests.records.made_runs import KEYS, UNITS, train, train_but_three


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results.jsonl")


def keys(results):
    """As they stand in the file, one for each line."""
    return [record["key"] for record in Results(results.path).records()]


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_run_is_recorded_once(results, jobs):
    told = []
    execute(UNITS, train, results, jobs=jobs, progress=lambda *of: told.append(of))
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

    execute([UNITS[0][:1] + UNITS[2], *UNITS], listen, results)
    assert asked == [*UNITS[2], *UNITS[3]]
    assert sorted(keys(results)) == sorted(KEYS)


def test_a_failing_unit_loses_no_other(results):
    with pytest.raises(ExecutionError, match=r"1 of 4 units failed(?s:.*)ArithmeticError: three"):
        execute(UNITS, train_but_three, results)
    failed = {run.key for run in UNITS[1]}
    assert set(keys(results)) == KEYS - failed
    execute(UNITS, train, results)
    assert sorted(keys(results)) == sorted(KEYS)


def test_interrupted_and_run_again(results):
    def interrupt(done, total, left):
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(UNITS, train, results, progress=interrupt)
    assert len(keys(results)) == 4
    execute(UNITS, train, Results(results.path))
    assert sorted(keys(results)) == sorted(KEYS)


def test_killed_and_run_again(results):
    script = "import sys; from study.tests.records.made_runs import die; die(sys.argv[1])"
    killed = subprocess.run([sys.executable, "-c", script, results.path], timeout=120)
    assert killed.returncode == -9
    assert set(keys(results)) == {run.key for unit in UNITS[:2] for run in unit}
    with results.path.open("a") as file:
        file.write('{"key": "half a li')
    with pytest.warns(ResultsWarning, match="was cut off"):
        again = Results(results.path)
    execute(UNITS, train, again)
    assert sorted(keys(results)) == sorted(KEYS)


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
