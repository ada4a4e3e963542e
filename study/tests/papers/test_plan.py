"""The runs that a table of a paper needs."""

from collections import Counter

import pytest
from evalign_study import catalog
from evalign_study.papers import tables
from evalign_study.papers.plan import Cell, Plan, missing, on, quick_slice
from evalign_study.papers.tables import table
from evalign_study.records.run import LOSS
from evalign_study.trainers.choice import trainer_of

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


def test_a_line_may_fix_what_the_grid_searches():
    plan, found = cells("ablation-batch")
    for cell in found:
        sizes = {run.batch_size for run in plan.grid(cell).values()}
        assert sizes == {cell.line.fixed["batch_size"]}


def test_imbalance_reaches_every_run():
    plan, found = cells("ablation-imbalance")
    for cell in found:
        runs = list(plan.grid(cell).values()) or plan.runs(cell, LOSS, {})
        assert {run.imbalance for run in runs} == {cell.panel.imbalance}


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


def test_figures_have_a_recipe_and_no_grid():
    plan, found = cells("surf-fig2")
    assert not any(plan.grid(cell) for cell in found)


def test_kinds_of_work():
    found = Counter()
    for name in ("east-table2", "btg-table3", "surf-fig2"):
        plan, all_cells = cells(name)
        given = [cell for cell in all_cells if not cell.gridded]
        runs = [run for cell in given for run in plan.runs(cell, LOSS, {})]
        found.update(trainer_of(run).name for run in runs)
    # 10 trials of 3 and 2 classical methods, and of 5 lines of frames; 5 of 15 lines of images
    expected = {"classical methods": 50, "networks of frames": 50, "networks of images": 75}
    assert found == expected


def test_a_package_that_is_missing_is_not_asked_for(monkeypatch):
    plan, found = cells("btg-table1")
    monkeypatch.setattr("evalign_study.papers.plan.find_spec", lambda name: None)
    (line,) = {cell.line.label: cell.line for cell in found if missing(cell.line)}.values()
    assert line.method == "ap_perf"
    assert "ap_perf" not in {run.method for run in plan.all_runs({})}
    monkeypatch.setattr("evalign_study.papers.plan.find_spec", lambda name: name)
    assert "ap_perf" in {run.method for run in plan.all_runs({})}


def test_a_part_of_a_table():
    part = on(table("east-table1"), ["adult"])
    assert [panel.label for panel in part.panels] == ["Adult"]
    assert {claim.on for claim in part.claims} == {("Adult",)}
    with pytest.raises(ValueError, match=r"dataset of east-table1 must .* Got 'yeast'"):
        on(table("east-table1"), ["yeast"])


def test_a_quick_slice_is_small():
    part = quick_slice(table("east-table1"), smallest=True)
    panels = {panel.label: panel for panel in part.panels}
    images, rows = panels["CIFAR-10"], panels["CocktailParty"]
    assert len(panels) == 2
    assert {line.label for line in images.lines} == {"F1*", "CE"}
    assert images.recipe["epochs"] == 2
    assert {line.label for line in rows.lines} == {"F1*", "Acc*", "MCC*", "Dice", "CE"}
    plan = Plan(part, 2, True)
    assert {len(plan.grid(Cell(rows, "paper", line))) for line in rows.lines} == {1}
    assert len(quick_slice(table("east-table1"), smallest=False).panels) == 6


@pytest.mark.parametrize("name", tables.names())
def test_every_table_has_a_quick_slice_with_claims(name):
    part = catalog.tables()[name].part(quick=True)
    assert part.claims
    assert part.quick
    assert len(part.plan.all_runs({})) <= 30


def test_a_table_may_have_other_trials_than_the_papers():
    whole = catalog.tables()["btg-table4"]
    assert (whole.plan.trials, whole.part(trials=3).plan.trials) == (10, 3)
    assert whole.part(quick=True).plan.trials == 2
    assert whole.datasets == ["mammography"]


def test_the_grids_come_first_and_the_trials_wait_for_them():
    part = catalog.tables()["btg-table4"].part(datasets=["mammography"])
    records = {}
    stages = part.stages(records)
    grid = next(stages)
    assert {run.seed for run in grid} == {0}
    names = (LOSS, "f1", "accuracy", "matthews_corrcoef")
    for run in grid:
        value = {"validation_loss": 0.5, "validation": dict.fromkeys(names, 0.5)}
        records[run.key] = record(run, dict.fromkeys(names, value))
    trials = next(stages)
    assert {run.seed for run in trials} == set(range(1, 11))
    assert len({run.key for run in trials}) == len(trials)


def test_a_quick_look_says_so_in_its_runs():
    """Its records cannot be mistaken for those of the table."""
    for name in ("east-table1", "east-table2"):
        for is_quick in (False, True):
            plan = Plan(table(name), 1, is_quick)
            given = [cell for cell in plan.cells() if not cell.gridded]
            assert given
            for cell in given:
                (run,) = plan.runs(cell, LOSS, {})
                assert (run.rows is not None) == is_quick
