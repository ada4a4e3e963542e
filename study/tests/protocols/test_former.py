"""Records that were made before the protocols, as far as they still hold."""

import pytest
from evalign_study.former import former, run_of
from evalign_study.planning import Known, cells, table
from evalign_study.records.results import Results

from study.tests.conftest import RESULTS


@pytest.fixture(scope="module")
def old():
    return Results(RESULTS / "east-table1.jsonl.gz").records()


def test_those_that_hold_are_of_the_papers_grid(old):
    known = Known(former(old))
    assert 500 < len(known.by_key) < len(old)
    (cell,) = cells(table("east-table1"), panels=["cocktailparty"], lines=["CE"])
    there = [record for run in cell.grid() if (record := known.find(run))]
    assert 15 < len(there) <= 30
    for record in there:
        assert not record["capped"]
        assert record["epochs"] < record["cap"]
        assert record["key"] == cell.protocol.run_from(record["run"]).key


def test_what_a_cap_ended_or_another_loss_trained_does_not_hold(old):
    for record in old:
        run = run_of(record)
        if run is None:
            continue
        assert not record["capped"]
        assert record["run"]["network"] == "mlp"
        assert run.reading == "shared patience"
        assert run.rate == (record["run"]["rate"] or 1.0)
        assert (run.average == "positive class") == ("f1" in record["picks"])
