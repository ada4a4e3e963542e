"""From a plan to the written table, over small parts of real data."""

import json

import pytest
from evalign_study.data import DataError
from evalign_study.papers import tables
from evalign_study.papers.plan import Cell, Plan, missing, on, quick
from evalign_study.papers.reproduce import planned, recorded, reproduce
from evalign_study.papers.tables import read, table
from evalign_study.records.execute import ExecutionError
from evalign_study.records.run import LOSS
from evalign_study.trainers import tabular

from study.tests.papers.made_tables import pick, record

SMALL = {
    "sets": {"mammography": {"label": "Mammography", "variants": ["paper"]}},
    "labels": {"gradient_boosting": "Boosting"},
    "small": {
        "paper": "BtG",
        "title": "A small table",
        "network": "mlp32",
        "columns": [["F1", "f1"]],
        "added": ["gradient_boosting"],
        "lines": {"F1*": "btg_f1", "BCE": {"method": "cross_entropy", "dropout": 0.5}},
        "panels": [{"dataset": "mammography"}],
        "claims": [
            {"text": "Better", "better": "F1*", "than": "BCE", "column": "F1"},
            {"text": "Best", "better": "Boosting", "than": "F1*", "column": "F1"},
        ],
    },
}


@pytest.fixture
def small(real, monkeypatch):
    """A table of three lines in the place of all others, on real rows."""
    monkeypatch.setattr(tables, "_tables", lambda: read(SMALL))


def cells(name):
    plan = planned(name)
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
    found = {}
    for name in ("east-table2", "btg-table3", "surf-fig2"):
        plan, of = cells(name)
        runs = [run for cell in of if not cell.gridded for run in plan.runs(cell, LOSS, {})]
        found |= {kind: len(units) for kind, (units, _) in plan.work(runs).items()}
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
    part = quick(table("east-table1"), smallest=True)
    panels = {panel.label: panel for panel in part.panels}
    images, rows = panels["CIFAR-10"], panels["CocktailParty"]
    assert len(panels) == 2
    assert {line.label for line in images.lines} == {"F1*", "CE"}
    assert images.recipe["epochs"] == 2
    assert {line.label for line in rows.lines} == {"F1*", "Acc*", "MCC*", "Dice", "CE"}
    plan = Plan(part, 2, True)
    assert {len(plan.grid(Cell(rows, "paper", line))) for line in rows.lines} == {1}
    assert len(quick(table("east-table1"), smallest=False).panels) == 6


@pytest.mark.parametrize("name", tables.names())
def test_every_table_has_a_quick_slice_with_claims(name):
    plan = planned(name, quick=True)
    assert plan.table.claims
    assert len(plan.all_runs({})) <= 30


def test_end_to_end_and_again(small, tmp_path, monkeypatch):
    """A second time nothing is trained, and no data asked for; another trial adds only itself."""
    told = []
    options = {"out": tmp_path / "out", "results": tmp_path / "results", "quick": True}
    found = reproduce("small", **options, progress=lambda *said: told.append(said))
    # 2 grids of one setting and 2 trials of them, 2 trials of boosting
    assert len(found.used()) == 2 * (1 + 2) + 2
    assert {phase for phase, *_ in told} == {
        "small, grid of networks of rows",
        "small, trials of networks of rows",
        "small, trials of classical methods",
    }
    assert not (tmp_path / "results").exists()  # a quick look keeps its records to itself
    path = tmp_path / "out" / "quick" / "small.jsonl"
    before = path.read_bytes()
    assert {json.loads(line)["run"]["dropout"] for line in before.splitlines()} == {0.25, 0.5, 0.0}
    text = (tmp_path / "out" / "quick" / "small.md").read_text(encoding="utf-8")
    assert text.count("| F1\\* | 2 |") == 2

    with monkeypatch.context() as without_data:
        without_data.setenv("EVALIGN_DATA", str(tmp_path))
        reproduce("small", **options)
    assert path.read_bytes() == before
    reproduce("small", **options, trials=3)
    assert path.read_bytes().startswith(before)
    assert len(recorded(path.parent)) == 2 * (1 + 3) + 3

    # Tables have runs in common: what any file holds is not trained again.
    path.rename(path.with_name("other.jsonl"))
    reproduce("small", **options)
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "runs"),
    [("btg-table2", 2 * 2), ("btg-table3", 2 * 2)],  # 2 trials of F1* and BCE
)
def test_images_and_frames_end_to_end(name, runs, real, tmp_path):
    found = reproduce(name, out=tmp_path, results=tmp_path, quick=True)
    assert len(found.used()) == runs
    assert "| BCE | 2 |" in (tmp_path / "quick" / f"{name}.md").read_text(encoding="utf-8")


def test_what_fails_stops_nothing_else(small, tmp_path, monkeypatch):
    def fail(runs):
        raise ArithmeticError("no networks today")

    monkeypatch.setattr(tabular, "train", fail)
    options = {"out": tmp_path / "out", "results": tmp_path / "results", "quick": True}
    with pytest.raises(
        ExecutionError, match=r"1 of 1 units failed(?s:.*)no networks today"
    ) as told:
        reproduce("small", **options)
    assert len(told.value.failed) == 1
    found = recorded(tmp_path / "out" / "quick").values()
    assert [record["run"]["method"] for record in found] == ["gradient_boosting"] * 2
    text = (tmp_path / "out" / "quick" / "small.md").read_text(encoding="utf-8")
    assert "| Boosting (added) | 2 |" in text


def test_a_quick_look_says_so_in_its_runs():
    """So that no record of it can be taken for one of the table."""
    for name in ("east-table1", "east-table2"):
        for is_quick in (False, True):
            plan = Plan(table(name), 1, is_quick)
            given = [cell for cell in plan.cells() if not cell.gridded]
            assert given
            for cell in given:
                (run,) = plan.runs(cell, LOSS, {})
                assert (run.rows is not None) == is_quick


def test_absent_data_is_told_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALIGN_DATA", str(tmp_path))
    with pytest.raises(DataError, match="cocktailparty_frames"):
        reproduce("btg-table3", out=tmp_path / "out", results=tmp_path / "results")
    assert list(tmp_path.iterdir()) == []
