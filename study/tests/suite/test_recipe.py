"""The suite as a table: its runs and its text."""

from pathlib import Path

import pytest
from evalign_study.pipeline.formats import Grid, Text, markdown, on_page
from evalign_study.pipeline.running import run as run_table
from evalign_study.pipeline.writing import fill
from evalign_study.records.results import recorded
from evalign_study.suite import plan
from evalign_study.suite.recipe import Outcome, RecipeTable, figures, findings, parts
from evalign_study.trainers import recipe as trainer
from evalign_study.trainers.decisions import DECISIONS
from evalign_study.trainers.methods import OPPONENTS, OURS

from study.tests.papers.made_tables import record

PAGE = Path(__file__).parents[3] / "docs/evidence/training.md"


def made(run, ours=0.7):
    """Make a record whose decisions all score the method's level; ours rises with the split."""
    level = {OURS: ours + 0.01 * run.split_seed, "cross_entropy": 0.6}
    name = next((name for name in level if run.method.startswith(name)), run.method)
    goals = ["f1", "f2"] if run.method in OPPONENTS else [run.method[-2:]]
    picks = {
        goal: {
            "epoch": 1,
            "decisions": {name: {"validation": score, "test": {goal: score}} for name in DECISIONS},
        }
        for score in [level.get(name, 0.5)]
        for goal in goals
    }
    return record(run, picks, diverged=False)


def outcome(*, splits=range(3), sets=("adult", "magic_gamma", "yeast"), ours=(0.7, 0.72, 0.74)):
    runs = plan.runs(sets, splits=splits)
    level = dict(zip(sets, ours, strict=True))
    some = [run for run in runs if run.method in OPPONENTS or run.method[-2] == "f"]
    return Outcome(runs, [made(run, level[run.dataset]) for run in some])


def grid(outcome, start):
    return next(p for p in parts(outcome) if isinstance(p, Grid) and p.caption.startswith(start))


def told(outcome):
    return " ".join(part.text for part in parts(outcome) if isinstance(part, Text))


def test_the_verdict_follows_the_criterion():
    found = outcome()
    # 0.71, 0.73 and 0.75 on average against 0.60: 13 ± 4.303·2/√3
    assert tuple(found.verdict) == pytest.approx((13, 8.03, 17.97, 3), abs=0.01)
    assert "It wins: +13.00 (+8.03 to +17.97) points over 3 data sets." in told(found)
    assert findings(found).lines == ["It wins: +13.00 (+8.03 to +17.97) points over 3 data sets."]
    assert "It does not win" in told(outcome(ours=(0.5, 0.7, 0.6)))


def test_gains_beside_each_rival():
    rows = {tuple(row[:2]): row[2:] for row in grid(outcome(), "Mean gains in points").rows}
    gain, won, lost = rows["ours, argmax", "cross-entropy, argmax"]
    assert (gain, won, lost) == ("+13.00 (+8.03 to +17.97)", "6", "0")
    assert rows["ours, argmax", "focal, argmax"][0].startswith("+23.00")
    assert rows["ours, tuned", "ours, argmax"] == ["+0.00 (+0.00 to +0.00)", "0", "0"]


def test_cells_lost_are_named():
    found = outcome(ours=(0.5, 0.7, 0.7))
    wanted = "Of 6 cells, lost beyond chance to cross-entropy, argmax: adult f1 −9.00"
    assert wanted in told(found)
    by_set = grid(found, "Mean gains of ours by argmax, by data set").rows
    assert by_set[0] == ["adult", "−9.00", "−9.00"]
    by_metric = grid(found, "Mean gains of ours by argmax, by metric").rows
    assert [row[0] for row in by_metric] == ["f1", "f2"]
    assert len(figures(found)) == 1


@pytest.mark.slow
def test_a_quick_look_end_to_end_and_again(made_rows, tmp_path, monkeypatch):
    look = plan.runs(["waveform"], splits=[0], epochs=2)
    monkeypatch.setattr(RecipeTable, "runs", lambda table: look)
    table, said = RecipeTable(quick=True), []
    run_table(table, tmp_path, progress=lambda *words: said.append(words))
    records = recorded(tmp_path)
    assert len(records) == len(look) == 13
    assert said[-1][:3] == ("recipe, stage 1, networks of rows", 13, 13)
    found = table.findings(records, tmp_path)
    assert "its numbers mean nothing" in markdown(found.parts)

    before = (tmp_path / "recipe.jsonl.gz").read_bytes()
    monkeypatch.setattr(trainer, "fit_many", None)
    run_table(table, tmp_path)
    assert (tmp_path / "recipe.jsonl.gz").read_bytes() == before


def test_documentation_shows_the_records(committed):
    """If not, run: evalign-study render recipe --page docs/evidence/training.md."""
    page = PAGE.read_text(encoding="utf-8")
    runs = RecipeTable().runs()
    there = [committed[run.key] for run in runs if run.key in committed]
    found = Outcome(runs, there)
    assert fill(page, "recipe", markdown(on_page(parts(found)))) == page
