"""The runs that a table of a paper needs."""

import pytest
from evalign_study import catalog
from evalign_study.papers import tables
from evalign_study.records.run import LOSS

from study.tests.papers.made_tables import pick, record


def cells(name):
    plan = catalog.tables()[name].plan
    return plan, list(plan.cells())


def test_a_grid_then_trials_of_what_it_chose():
    plan, found = cells("east-table1")
    first = next(cell for cell in found if cell.panel.dataset == "caltech256_clip")
    grid = plan.grid(first)
    assert {run.seed for run in grid.values()} == {0}
    assert {run.patience for run in grid.values()} == {50}
    assert {run.rate for run in grid.values()} == {0.8, 0.9}
    records = {key: record(run, _picks(0.5)) for key, run in grid.items()}
    assert plan.runs(first, LOSS, dict(list(records.items())[1:])) == []  # not yet complete
    best = list(grid)[7]
    records[best] = record(grid[best], _picks(0.4))
    runs = plan.runs(first, LOSS, records)
    assert [run.but(seed=0) for run in runs] == [grid[best]] * 10
    assert [run.seed for run in runs] == list(range(1, 11))


def _picks(loss):
    return {LOSS: pick(0.5) | {"validation_loss": loss}}


def test_images_have_a_recipe_and_a_search_over_learning_rates():
    plan, found = cells("east-table1")
    images = {cell.line.label: cell for cell in found if cell.panel.dataset == "cifar10"}
    for label, rate in {"F1*": 0.9, "CE": None}.items():
        grid = plan.grid(images[label])
        slow, fast = sorted(grid.values(), key=lambda run: run.learning_rate)
        assert (slow.learning_rate, fast.learning_rate) == (0.0001, 0.001)
        assert fast == slow.but(learning_rate=0.001)
        assert (slow.seed, slow.rate, slow.batch_size, slow.epochs) == (1, rate, 256, 60)
        records = {key: record(run, _picks(run.learning_rate)) for key, run in grid.items()}
        assert plan.runs(images[label], LOSS, {}) == []
        assert plan.runs(images[label], LOSS, records)[:2] == [slow, slow.but(seed=2)]


@pytest.mark.parametrize("name", tables.names())
def test_every_table_has_a_quick_slice_with_claims(name):
    part = catalog.tables()[name].part(quick=True)
    assert part.claims
    assert part.quick
    assert len(part.plan.all_runs({})) <= 30
