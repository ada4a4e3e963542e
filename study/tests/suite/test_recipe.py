"""The suite as a table: its runs and its text."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evalign_study.pipeline import writing
from evalign_study.pipeline.execute import ExecutionError
from evalign_study.pipeline.formats import Grid, Text, markdown
from evalign_study.pipeline.running import run as run_table
from evalign_study.pipeline.writing import fill
from evalign_study.records.results import recorded
from evalign_study.suite import plan, recipe, standings
from evalign_study.suite.recipe import Outcome, RecipeTable, figures, findings, parts
from evalign_study.suite.standings import Choice
from evalign_study.trainers import choice
from evalign_study.trainers import recipe as trainer
from evalign_study.trainers.decisions import DECISIONS
from evalign_study.trainers.methods import GOALS, OPPONENTS

from study.tests.commands import done, refused
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


def test_nothing_was_run():
    nothing = Outcome(planned(), [])
    assert markdown(parts(nothing)).endswith("Not run.\n")
    assert figures(nothing) == {}
    assert nothing.headline == []


def test_the_headline_and_its_bars():
    rows = {row[0]: row[1:] for row in grid(outcome(), "What the recipe").rows}
    # 0.70, 0.71 and 0.72 against 0.60
    assert rows["mean gain over the best opponent, points"] == ["11", "1.0 or more", "met"]
    assert rows["share of cells with a gain of 0 or more"] == ["100%", "80% or more", "met"]
    assert rows["cells wholly below −0.5 points"] == ["0", "none", "met"]
    assert rows["place by average rank"] == ["1", "first", "met"]
    assert rows["p of Wilcoxon's test over data sets"] == ["0.5", "below 0.01", "not met"]
    assert len(rows) == 6  # no time was measured


@pytest.mark.parametrize(("ratio", "met"), [(1.234, "met"), (1.42, "not met")])
def test_a_measured_time_has_its_bar(ratio, met, tmp_path):
    (tmp_path / recipe.TIME).write_text(json.dumps({"ratio": ratio}), encoding="utf-8")
    told = grid(outcome(time=recipe.time_in(tmp_path)), "What the recipe").rows[-1]
    assert told[1:] == [f"{ratio:.3g}", "1.3 or less", met]


def test_cells_with_their_intervals():
    rows = grid(outcome(), "Gains in points").rows
    assert [row[:3] for row in rows[:2]] == [["adult", "f1", "3"], ["adult", "f2", "3"]]
    # 11 ± 4.303·√((1/3 + 1/4)·1)
    assert rows[0][3] == rows[0][4] == "+11.00 (+7.71 to +14.29)"
    alone = grid(outcome(splits=[0]), "Gains in points").rows
    assert alone[0][2:] == ["1", "+10.00", "+10.00"]


def test_the_ablation_says_what_was_not_run():
    rows = {row[0]: row[1:] for row in grid(outcome(), "Our gain").rows}
    # 0.70 and 0.71 against 0.68: it was run on two splits of the three.
    assert rows["without offsets"] == ["+2.50 (+2.50 to +2.50)"] * 2 + ["2"]
    assert rows["without cross-entropy"][0] == "not run"


def test_what_was_not_run_is_said():
    """Trainings for two of the four metrics are missing."""
    found = outcome()
    text = markdown(parts(found))
    assert f"Not run: 20 of {len(found.runs)} runs, of adult, magic_gamma." in text


def test_ranks_and_plots():
    ranks = grid(outcome(), "Average rank").rows
    assert ranks[0] == ["aligned, tuned", "1.00"]
    assert ranks[1][1] == "3.00"  # three ways of cross-entropy share the ranks 2 to 4
    gains, ranked = figures(outcome()).values()
    (dots,) = gains.data
    assert set(dots.y) == {
        f"{name}, {metric}" for name in ("adult", "magic_gamma") for metric in ("f1", "f2")
    }
    assert dots.error_x.array[0] == pytest.approx(3.286, abs=1e-3)
    (dots,) = ranked.data
    assert (dots.y[-1], dots.x[-1]) == ("aligned, tuned", 1)
    assert dots.error_x.array == pytest.approx([dots.error_x.array[0]] * len(dots.y))


def test_files(tmp_path):
    paths = writing.write("recipe", findings(outcome()), tmp_path)
    assert [path.name for path in paths] == ["recipe.md", "recipe.html", "recipe.csv"]
    with paths[2].open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2
    assert {row["over"] for row in rows} == {"best opponent", "cross-entropy of today"}
    assert float(rows[0]["gain"]) == pytest.approx(11)
    page = paths[1].read_text(encoding="utf-8")
    assert "Average ranks; bars that do not overlap" in page


def test_what_is_planned():
    runs, ours = planned(), [f"aligned_{goal}" for goal in GOALS]
    images = [run for run in runs if run.imbalance is not None]
    assert len(runs) == 15 * 3 * (2 * 32 + 3 * 8) + len(images)
    assert {run.dataset for run in images} == {"cifar10", "fashion_mnist"}
    assert len(images) == 4 * 3 * 8
    assert {run.method for run in images} == {*OPPONENTS, *ours}
    assert {run.dataset for run in planned(["yeast"])} == {"yeast"}
    assert planned(["cifar10"]) == [run for run in images if run.dataset == "cifar10"]
    look = planned(quick=True)
    assert {(run.split_seed, run.seed, run.epochs) for run in look} == {(0, 1, 2)}
    assert {run.dataset for run in look} == set(plan.QUICK_SETS)
    refusal = r"dataset of recipe must be one of adult, .* Got 'cifar'\. Did you mean 'cifar10'\?"
    with pytest.raises(ValueError, match=refusal):
        planned(["cifar"])
    with pytest.raises(ValueError, match="must be one with a quick look, which images have not"):
        planned(["cifar10"], quick=True)


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


def test_tables_and_images_have_their_own_trainings():
    (rows,) = {choice.trainer_of(run) for run in planned(["yeast"])}
    (images,) = {choice.trainer_of(run) for run in planned(["cifar10"])}
    assert rows.train is trainer.train
    assert images is choice.TAILED_IMAGES
    assert {len(unit) for unit in images.units(planned(["cifar10"]))} == {1}


def test_images_that_were_not_run_are_told_with_their_imbalance():
    found = outcome()
    runs = [*found.runs, *planned(["cifar10"])]
    text = markdown(parts(replace(found, runs=runs)))
    assert "runs, of adult, magic_gamma, cifar10 1:10, cifar10 1:100." in text


def test_what_fails_is_told(made_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "fit_many", None)
    with pytest.raises(ExecutionError, match="4 of 4 units failed"):
        run_table(RecipeTable(quick=True), tmp_path)
    found = RecipeTable(quick=True).findings(recorded(tmp_path), tmp_path)
    assert found.lines == ["Not run."]


def test_some_of_the_data_sets_are_never_taken_for_all():
    said = "Of waveform alone, while the bars are for all."
    assert Outcome(planned(["waveform"]), []).part == said
    assert Text(said) in list(parts(outcome(sets=["waveform"])))
    assert Outcome(planned(), []).part == Outcome(planned(quick=True), [], quick=True).part == ""


def test_a_quick_look_is_never_taken_for_a_run():
    assert not {run.key for run in planned(quick=True)} & {run.key for run in planned()}


def test_the_command_line_renders_what_there_is(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- recipe -->\n<!-- end of recipe -->\n", encoding="utf-8")
    results = tmp_path / "results"
    results.mkdir()
    where = ["--out", tmp_path / "out", "--results", results, "--page", page]
    result = done("render", "recipe", *where)
    assert f"{RecipeTable.title} (recipe)\nNot run." in result.out
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".md", ".html", ".csv"}
    assert "Not run." in page.read_text(encoding="utf-8")
    assert not list(results.iterdir())


def test_the_command_line_tells_the_bars(tmp_path, monkeypatch):
    monkeypatch.setattr(RecipeTable, "findings", lambda *given: findings(outcome()))
    where = ["--out", tmp_path, "--results", tmp_path]
    assert "5 of 6 bars met." in done("render", "recipe", *where).out
    bars = json.loads(done("render", "recipe", "--json", *where).out)["tables"]
    assert [bar["met"] for bar in bars["recipe"]] == [True] * 5 + [False]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--trials", "2"], "trials of recipe must be left out: it has its own seeds. Got 2."),
        (["--dataset", "cifar"], "dataset of recipe must be one of adult, mammography"),
    ],
)
def test_bad_input_is_one_line(arguments, text):
    assert text in refused("run", "recipe", *arguments)


def test_documentation_shows_the_records(committed):
    """If not, run: evalign-study render recipe --page docs/recipe.md --results study/results."""
    root = Path(__file__).parents[3]
    page, results = (root / "docs/recipe.md").read_text(encoding="utf-8"), root / "study/results"
    runs = planned()
    there = [committed[run.key] for run in runs if run.key in committed]
    found = Outcome(runs, there, time=recipe.time_in(results))
    assert fill(page, "recipe", markdown(parts(found))) == page
    # The README's table has the same numbers, to one digit.
    readme = (root / "README.md").read_text(encoding="utf-8")
    shown = [float(gain) for gain in re.findall(r"^\| [^|]* \| \+(\d\.\d) \|$", readme, re.M)]
    opponent, today = (bar.value for bar in found.headline[:2])
    by_argmax = [float(row[2].split()[0]) for row in grid(found, "Mean gains").rows[:2]]
    assert shown == [round(gain, 1) for gain in (*by_argmax, today, opponent)]


def test_what_the_page_says_of_the_records(committed):
    page = (Path(__file__).parents[3] / "docs/recipe.md").read_text(encoding="utf-8")
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
    assert f"Of {len(best)} cells three are won by their 95% intervals" in page
    others = np.mean([gain.mean for (name, _), gain in best.items() if name != "waveform"])
    assert f"without it, the gain over the best opponent is {others:.2f}." in page

    fraud = sorted(-gain.mean for (name, _), gain in best.items() if name == "creditcard")
    assert f"all four cells are behind, by {fraud[0]:.1f} to {fraud[-1]:.1f} points" in page
    costs = [-metrics_part("creditcard", decision) for decision in ("expected", "argmax")]
    assert f"{costs[0]} points by the expected rule and {costs[1]} by argmax" in page
    parts_of = [metrics_part(name, "expected") for name in ("waveform", "yeast", "page_blocks")]
    assert f"waveform loses {parts_of[0]} points and yeast {parts_of[1]}" in page
    assert f"page_blocks and credit card fraud gain {-parts_of[2]}" in page
    assert parts_of[2] == -costs[0]

    trials = scores["cifar10 1:100", "f1_macro"].values()
    for method in ("aligned", "cross_entropy"):
        first, second, third = (f"{x[method, 'argmax'].test:.3f}" for x in trials)
        assert f"{first}, {second} and {third}" in page
    # A tuned rule was never behind the others on validation rows.
    for trial in (each for found in scores.values() for each in found.values()):
        for (method, decision), score in trial.items():
            tuned = trial.get((method, "tuned"), score)
            assert tuned.validation >= score.validation, (method, decision)
