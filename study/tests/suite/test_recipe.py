"""The suite as a table: its runs and its text."""

from pathlib import Path

import numpy as np
import pytest
from evalign_study.pipeline.formats import Grid, markdown, on_page
from evalign_study.pipeline.running import run as run_table
from evalign_study.pipeline.writing import fill
from evalign_study.records.results import recorded
from evalign_study.suite import plan, recipe, standings
from evalign_study.suite.recipe import Outcome, RecipeTable, figures, parts
from evalign_study.suite.standings import Choice
from evalign_study.trainers import recipe as trainer
from evalign_study.trainers.decisions import DECISIONS
from evalign_study.trainers.methods import OPPONENTS

from study.tests.papers.made_tables import record

LEVELS = {"aligned": 0.7, "cross_entropy": 0.6, "unadjusted": 0.68}


def made(run):
    """Make a record whose decisions all score the method's level; ours rises with the split."""
    name = next((name for name in LEVELS if run.method.startswith(f"{name}_")), run.method)
    level = LEVELS.get(name, 0.5) + 0.01 * run.split_seed * (name == "aligned")
    goals = ["f1", "f2"] if run.method in OPPONENTS else [run.method[-2:]]
    picks = {
        goal: {
            "epoch": 1,
            "decisions": {name: {"validation": level, "test": {goal: level}} for name in DECISIONS},
        }
        for goal in goals
    }
    return record(run, picks, diverged=False)


def outcome(
    *,
    splits=range(3),
    variants=("aligned", "unadjusted"),
    sets=("adult", "magic_gamma"),
    time=None,
):
    runs = plan.runs(sets, splits=splits, seeds=[1], variants=variants)
    found = [made(run) for run in runs if run.method in OPPONENTS or run.method[-2] == "f"]
    return Outcome(runs, found, time=time)


def planned(datasets=None, **how):
    return RecipeTable(datasets, **how).runs()


def grid(outcome, start):
    return next(p for p in parts(outcome) if isinstance(p, Grid) and p.caption.startswith(start))


def test_the_headline_and_its_bars():
    rows = {row[0]: row[1:] for row in grid(outcome(), "What the recipe").rows}
    # 0.70, 0.71 and 0.72 against 0.60
    assert rows["mean gain over the best opponent, points"] == ["11", "1.0 or more", "met"]
    assert rows["share of cells with a gain of 0 or more"] == ["100%", "80% or more", "met"]
    assert rows["cells wholly below −0.5 points"] == ["0", "none", "met"]
    assert rows["place by average rank"] == ["1", "first", "met"]
    assert rows["p of Wilcoxon's test over data sets"] == ["0.5", "below 0.01", "not met"]
    assert len(rows) == 6  # no time was measured


def test_cells_with_their_intervals():
    rows = grid(outcome(), "Gains in points").rows
    assert [row[:3] for row in rows[:2]] == [["adult", "f1", "3"], ["adult", "f2", "3"]]
    # 11 ± 4.303·√((1/3 + 1/4)·1)
    assert rows[0][3] == rows[0][4] == "+11.00 (+7.71 to +14.29)"
    alone = grid(outcome(splits=[0]), "Gains in points").rows
    assert alone[0][2:] == ["1", "+10.00", "+10.00"]


def test_ranks():
    ranks = grid(outcome(), "Average rank").rows
    assert ranks[0] == ["aligned, tuned", "1.00"]
    assert ranks[1][1] == "3.00"  # three ways of cross-entropy share the ranks 2 to 4
    assert len(figures(outcome())) == 2


@pytest.mark.slow
def test_a_quick_look_end_to_end_and_again(made_rows, tmp_path, monkeypatch):
    look = plan.runs(["waveform"], splits=[0], seeds=[1], variants=["aligned"], epochs=2)
    monkeypatch.setattr(RecipeTable, "runs", lambda table: look)
    table, told = RecipeTable(quick=True), []
    run_table(table, tmp_path, progress=lambda *said: told.append(said))
    records = recorded(tmp_path)
    assert len(records) == len(look) == 8
    assert told[-1][:3] == ("recipe, stage 1, networks of rows", 8, 8)
    found = table.findings(records, tmp_path)
    assert len(found.data) == 6
    assert "its numbers mean nothing" in markdown(found.parts)

    before = (tmp_path / "recipe.jsonl.gz").read_bytes()
    monkeypatch.setattr(trainer, "fit_many", None)
    run_table(table, tmp_path)
    assert (tmp_path / "recipe.jsonl.gz").read_bytes() == before


def test_documentation_shows_the_records(committed):
    """If not, run: evalign-study render recipe --page docs/evidence/training.md."""
    root = Path(__file__).parents[3]
    page, results = (
        (root / "docs/evidence/training.md").read_text(encoding="utf-8"),
        root / "study/results",
    )
    runs = planned()
    there = [committed[run.key] for run in runs if run.key in committed]
    found = Outcome(runs, there, time=recipe.time_in(results))
    assert fill(page, "recipe", markdown(on_page(parts(found)))) == page


def test_what_the_page_says_of_the_records(committed):
    page = (Path(__file__).parents[3] / "docs/evidence/training.md").read_text(encoding="utf-8")
    scores = standings.scores(committed[run.key] for run in planned() if run.key in committed)

    def cells(ours, rival):
        return standings.intervals(standings.gains(scores, ours, rival))

    def metrics_part(dataset, decision):
        ours, rival = (Choice((name,), (decision,)) for name in ("aligned", "unaligned"))
        found = cells(ours, rival).items()
        return round(np.mean([gain.mean for (name, _), gain in found if name == dataset]), 1)

    by_metric = {}
    plain = cells(recipe.BY_ARGMAX, Choice(("cross_entropy",), ("argmax",)))
    for (_, metric), gain in plain.items():
        by_metric.setdefault(metric.removesuffix("_macro"), []).append(gain.mean)
    means = {metric: np.mean(gains) for metric, gains in by_metric.items()}
    assert [round(means[name]) for name in ("balanced_accuracy", "f2")] == [4, 4]
    assert min(means["f1"], means["matthews_corrcoef"]) > 0
    assert max(means["f1"], means["matthews_corrcoef"]) < 1
    assert "four for balanced accuracy and F2, less than one for F1 and MCC" in page
    assert not any(gain.high < 0 for gain in plain.values())  # no cell is lost

    best = cells(recipe.CHOICE, standings.OPPONENT)
    won = {cell for cell, gain in best.items() if gain.low > 0}
    assert won == {
        ("waveform", "f1"),
        ("waveform", "matthews_corrcoef"),
        ("fashion_mnist 1:10", "f1_macro"),
    }
    assert not any(gain.high < 0 for gain in best.values())
    assert f"By their 95% intervals, three of {len(best)} cells are won" in page
    others = np.mean([gain.mean for (name, _), gain in best.items() if name != "waveform"])
    assert f"without it, the gain over the best opponent is {others:.2f}." in page

    fraud = sorted(-gain.mean for (name, _), gain in best.items() if name == "creditcard")
    assert f"all four cells are behind, by {fraud[0]:.1f} to {fraud[-1]:.1f} points" in page
    costs = [-metrics_part("creditcard", decision) for decision in ("expected", "argmax")]
    assert f"{costs[0]} points with the expected rule and {costs[1]} with argmax" in page
    parts_of = [metrics_part(name, "expected") for name in ("waveform", "yeast", "page_blocks")]
    assert f"waveform loses {parts_of[0]} points and yeast {parts_of[1]}" in page
    assert f"page_blocks and credit card fraud gain {-parts_of[2]}" in page
    assert parts_of[2] == -costs[0]

    trials = scores["cifar10 1:100", "f1_macro"].values()
    for method in ("aligned", "cross_entropy"):
        first, second, third = (f"{x[method, 'argmax'].test:.3f}" for x in trials)
        assert f"{first}, {second} and {third}" in page
