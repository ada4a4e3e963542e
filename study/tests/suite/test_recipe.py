"""The suite written down, and the way there."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evalign_study import data
from evalign_study.data import DataError, Dataset
from evalign_study.papers.formats import Grid, Text, markdown
from evalign_study.papers.render import fill
from evalign_study.records.execute import ExecutionError
from evalign_study.records.results import Results
from evalign_study.suite import recipe
from evalign_study.suite import tables as suite
from evalign_study.suite.recipe import Outcome, figures, parts, planned, reproduce, write
from evalign_study.suite.rulings import DECISIONS
from evalign_study.trainers import tailed
from evalign_study.trainers.prepared import prepare

from study.tests.commands import done, refused
from study.tests.papers.made_tables import record

LEVELS = {"aligned": 0.7, "cross_entropy": 0.6, "unadjusted": 0.68}


def made(run):
    """Every way of a method scores its level, and ours a little more in every further split."""
    name = next((name for name in LEVELS if run.method.startswith(f"{name}_")), run.method)
    level = LEVELS.get(name, 0.5) + 0.01 * run.split_seed * (name == "aligned")
    decisions = {decision: {"validation": level, "test": level} for decision in DECISIONS}
    goals = ["f1", "f2"] if run.method in suite.OPPONENTS else [run.method[-2:]]
    picks = {goal: {"epoch": 1, "decisions": decisions} for goal in goals}
    return record(run, picks, diverged=False)


def outcome(
    *,
    splits=range(3),
    variants=("aligned", "unadjusted"),
    sets=("adult", "magic_gamma"),
    time=None,
):
    runs = suite.runs(sets, splits=splits, seeds=[1], variants=variants)
    found = [made(run) for run in runs if run.method in suite.OPPONENTS or run.method[-2] == "f"]
    return Outcome(runs, found, time=time)


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
    """Trainings for two metrics are not there, those of the other two are."""
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
        f"{of}, {metric}" for of in ("adult", "magic_gamma") for metric in ("f1", "f2")
    }
    assert dots.error_x.array[0] == pytest.approx(3.286, abs=1e-3)
    (dots,) = ranked.data
    assert (dots.y[-1], dots.x[-1]) == ("aligned, tuned", 1)
    assert dots.error_x.array == pytest.approx([dots.error_x.array[0]] * len(dots.y))


def test_files(tmp_path):
    paths = write(outcome(), tmp_path)
    assert [path.name for path in paths] == ["recipe.md", "recipe.html", "recipe.csv"]
    with paths[2].open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2
    assert {row["over"] for row in rows} == {"best opponent", "cross-entropy of today"}
    assert float(rows[0]["gain"]) == pytest.approx(11)
    page = paths[1].read_text(encoding="utf-8")
    assert "Average ranks; bars that do not overlap" in page


def test_what_is_planned():
    runs, ours = planned(), [f"aligned_{goal}" for goal in suite.GOALS]
    images = [run for run in runs if run.imbalance is not None]
    assert len(runs) == 15 * 3 * (2 * 32 + 3 * 8) + len(images)
    assert {run.dataset for run in images} == {"cifar10", "fashion_mnist"}
    assert len(images) == 4 * 3 * 8
    assert {run.method for run in images} == {*suite.OPPONENTS, *ours}
    assert {run.dataset for run in planned(["yeast"])} == {"yeast"}
    assert planned(["cifar10"]) == [run for run in images if run.dataset == "cifar10"]
    look = planned(quick=True)
    assert {(run.split_seed, run.seed, run.epochs) for run in look} == {(0, 1, 2)}
    assert {run.dataset for run in look} == set(suite.QUICK_SETS)
    refusal = r"dataset of recipe must be one of adult, .* Got 'cifar'\. Did you mean 'cifar10'\?"
    with pytest.raises(ValueError, match=refusal):
        planned(["cifar"])
    with pytest.raises(ValueError, match="must be one with a quick look, which images have not"):
        planned(["cifar10"], quick=True)


@pytest.fixture
def rows(monkeypatch):
    """200 rows in the place of any data set."""
    prepare.cache_clear()
    X = np.random.default_rng(0).normal(3, 2, (200, 4)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] > 8).astype(np.int64)
    dataset = Dataset(X, y, ("no", "yes"), np.arange(200), None, data.card("mammography"))
    monkeypatch.setattr(data, "load", lambda name, preparation: dataset)
    monkeypatch.setattr(recipe, "fetch", lambda card: None)
    yield
    prepare.cache_clear()


def test_a_quick_look_end_to_end_and_again(rows, tmp_path, monkeypatch):
    look = suite.runs(["waveform"], splits=[0], seeds=[1], variants=["aligned"], epochs=2)
    monkeypatch.setattr(recipe, "planned", lambda datasets, quick: look)
    told, where = [], {"out": tmp_path / "out", "results": tmp_path / "results", "quick": True}
    found = reproduce(**where, progress=lambda *of: told.append(of))
    assert len(found.records) == len(look) == 8
    assert told[-1][:3] == ("recipe", 8, 8)
    assert len(found.headline) == 6
    path = tmp_path / "out" / "quick" / "recipe.jsonl"
    before = path.read_bytes()
    assert not (tmp_path / "results").exists()
    text = (tmp_path / "out" / "quick" / "recipe.md").read_text(encoding="utf-8")
    assert "its numbers mean nothing" in text

    monkeypatch.setattr(suite, "train", None)
    again = reproduce(**where)
    assert path.read_bytes() == before
    assert again.headline == found.headline


def test_tables_and_images_have_their_own_trainings(monkeypatch):
    monkeypatch.setattr(suite, "train", lambda unit: [("table", run) for run in unit])
    monkeypatch.setattr(tailed, "train", lambda run: ("image", run))
    parts = suite.units([*planned(["yeast"])[:2], *planned(["cifar10"])])
    assert len(parts) == 1 + 2 * 3  # of images, by imbalance and split
    for part in parts:
        kind = "table" if part[0].dataset == "yeast" else "image"
        assert list(recipe.train(part)) == [(kind, run) for run in part]


def test_images_that_were_not_run_are_told_with_their_imbalance():
    found = outcome()
    runs = [*found.runs, *planned(["cifar10"])]
    text = markdown(parts(replace(found, runs=runs)))
    assert "runs, of adult, magic_gamma, cifar10 1:10, cifar10 1:100." in text


def fail(runs):
    raise ArithmeticError("no networks today")


def test_what_fails_is_told_when_all_else_is_written(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "train", fail)
    with pytest.raises(ExecutionError, match="4 of 4 units failed"):
        reproduce(out=tmp_path, results=tmp_path, quick=True)
    assert (tmp_path / "quick" / "recipe.md").read_text(encoding="utf-8").endswith("Not run.\n")


def test_absent_data_is_told_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALIGN_DATA", str(tmp_path))
    with pytest.raises(DataError, match="caltech256_clip"):
        reproduce(out=tmp_path / "out", results=tmp_path, datasets=["caltech256_clip"])
    assert list(tmp_path.iterdir()) == []


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
    result = done("reproduce", "recipe", "--render-only", *where)
    assert f"{recipe.TITLE} (recipe)\nNot run." in result.out
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".md", ".html", ".csv"}
    assert "Not run." in page.read_text(encoding="utf-8")
    assert not list(results.iterdir())


def test_the_command_line_tells_the_bars(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "reproduce", lambda **how: outcome())
    result = done("reproduce", "recipe", "--out", tmp_path)
    assert "5 of 6 bars met." in result.out
    bars = json.loads(done("reproduce", "recipe", "--json", "--out", tmp_path).out)["tables"]
    assert [bar["met"] for bar in bars["recipe"]] == [True] * 5 + [False]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--trials", "2"], "--trials is for tables: recipe has its splits and seeds."),
        (["--dataset", "cifar"], "dataset of recipe must be one of adult, mammography"),
    ],
)
def test_bad_input_is_one_line(arguments, text):
    assert text in refused("reproduce", "recipe", *arguments)


def test_the_list_ends_with_the_recipe():
    assert done("reproduce", "--list").out.splitlines()[-1].split()[0] == "recipe"


def test_documentation_shows_the_records():
    """If not: evalign reproduce recipe --render-only --page docs/recipe.md."""
    root = Path(__file__).parents[3]
    page = (root / "docs/recipe.md").read_text(encoding="utf-8")
    known = {
        record["key"]: record for record in Results(root / "study/results/recipe.jsonl").records()
    }
    runs = planned()
    there = [known[run.key] for run in runs if run.key in known]
    found = Outcome(runs, there, time=recipe.time_in(root / "study" / "results"))
    text = markdown(parts(found))
    assert fill(page, recipe.NAME, text) == page
    # The README's table has the same numbers, to one digit.
    readme = (root / "README.md").read_text(encoding="utf-8")
    shown = [float(gain) for gain in re.findall(r"^\| .* \| \+(\d\.\d) \|$", readme, re.M)]
    opponent, today = (bar.value for bar in found.headline[:2])
    by_argmax = [float(row[2].split()[0]) for row in grid(found, "Mean gains").rows[:2]]
    assert shown == [round(gain, 1) for gain in (*by_argmax, today, opponent)]
