"""What README and the start page promise, and the verdicts of the evidence, are in the records."""

import json
from pathlib import Path

import pytest
from evalign_study.decided import plan as decided_plan
from evalign_study.decided import standings as decided
from evalign_study.decided.table import DecisionsTable
from evalign_study.goals import standings as goals
from evalign_study.goals.table import GoalsTable
from evalign_study.modelled import table as modelled
from evalign_study.modelled.table import ModelsTable
from evalign_study.pipeline.formats import Grid
from evalign_study.suite.recipe import BESIDE, Outcome, RecipeTable, over_datasets
from evalign_study.suite.standings import label
from evalign_study.trainers.deciding import MODELS, PREDICT

from evalign.cli.demo import AVERAGES

ROOT = Path(__file__).parents[3]
FIRST = ("README.md", "docs/index.md")


def text(name):
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def evidence(name):
    return text(f"docs/evidence/{name}.md")


@pytest.fixture(scope="module")
def of_decisions(committed):
    runs = DecisionsTable().runs()
    return decided_plan.complete(committed[run.key] for run in runs if run.key in committed)


def test_the_gain_of_a_rule(of_decisions):
    scores = decided.collected(of_decisions)
    cells = decided.compared(scores, PREDICT)

    def ends(*metrics):
        means = [
            decided.mean(decided.chosen(cells.gains, [model], metric))
            for model in MODELS
            for metric in metrics
        ]
        return f"{round(min(means))} to {round(max(means))}"

    f1, others = ends("f1"), ends("balanced_accuracy", "f2")
    assert f"a rule adds {f1} points of F1 to predict" in AVERAGES
    for name in FIRST:
        assert f"{f1} points of F1 over `predict`" in text(name)
        assert f"{others} of balanced accuracy and F2" in text(name)
    page = evidence("decisions")
    assert f"**{f1} points of F1** to the `predict`" in page
    assert f"F2 it adds {others} points**; for MCC {ends('matthews_corrcoef')}" in page
    assert f"in {len(cells.won)} of {len(cells.gains)} cells and worse in none" in page
    assert not cells.lost


def test_the_gain_of_training(committed):
    runs = RecipeTable().runs()
    outcome = Outcome(runs, [committed[run.key] for run in runs if run.key in committed])
    found = {
        f"{label(ours)} over {label(rival)}": over_datasets(outcome.over(ours, rival))
        for ours, rival in BESIDE
    }
    plain, tuned, best, east = (
        found[f"ours, argmax over {rival}"]
        for rival in (
            "cross-entropy, argmax",
            "cross-entropy, tuned",
            "best opponent, any decision",
            "EAST, argmax",
        )
    )
    assert plain.low > 0
    assert max(tuned.low, best.low) < 0 < min(tuned.mean, best.mean)  # "within chance"
    page = evidence("training")
    demo = (ROOT / "examples" / "loss_on_digits.py").read_text(encoding="utf-8")
    assert f"adds {plain.mean:.1f} points of F1 to cross-entropy" in demo
    for name in FIRST:
        assert f"{plain.mean:.1f} points over the argmax of cross-entropy" in text(name)
        level = f"the best of five losses with the best decision (+{best.mean:.1f}, within chance)"
        assert f"level with {level}" in text(name)
    assert f"is {plain.mean:.1f} points ahead of cross-entropy** on 15 tables" in page
    assert f"cross-entropy with a tuned rule (+{tuned.mean:.1f}, within chance)" in page
    assert f"chosen on validation rows**: +{best.mean:.1f} is within chance" in page
    assert f"stays {east.mean:.1f} points behind" in page


def test_the_gain_of_models(committed, of_decisions):
    there = [committed[run.key] for run in ModelsTable().runs() if run.key in committed]
    scores = {
        cell: told
        for cell, told in modelled.collected(there, of_decisions).items()
        if cell[2] == "f1"
    }

    def gain(rival):
        return decided.mean(decided.compared(scores, rival, modelled.BLEND).gains)

    boosting, catboost = gain("hist_gradient_boosting tuned"), gain("catboost tuned")
    for name in FIRST:
        told = f"{boosting:.1f} points of F1 over histogram gradient boosting with our rule"
        assert f"{told}, {catboost:.1f} over CatBoost with our rule" in text(name)


def test_autogluon(committed):
    scores = next(part for part in modelled.beside(committed) if isinstance(part, Grid))
    quick, medium, best = scores.rows[0][1:]
    told = f"{medium} points (medium quality) and {best} (best) on {len(scores.rows) - 2} tables"
    assert f"{told} where the three quick models have {quick}" in evidence("models")


def test_bounds(committed):
    there = [committed[x.key] for x in GoalsTable().runs(committed) if x.key in committed]
    bounded = list(goals.BOUNDED)
    kept, plain = (goals.promises(there, bounded, rule) for rule in ("promised", "met"))
    shares = [f"{one.broken / one.judged:.{digits}%}" for one, digits in ((kept, 1), (plain, 0))]
    assert f"of {kept.judged:,} bounds" in evidence("goals")
    assert f"test rows broke {shares[0]} beyond sampling error, and {shares[1]}" in evidence(
        "goals"
    )
    assert f"{shares[0]} of promised ones are broken, {shares[1]} of the others" in evidence(
        "index"
    )


def test_the_time_of_a_whole_fit():
    file = ROOT / "benchmarks" / "results" / "whole_fit.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    linear, forest = found["seconds"].values()
    told = (
        f"takes {linear['evalign']:.1f} s against {linear['scikit-learn']:.1f} s for logistic "
        f"regression and {forest['evalign']:.0f} s against {forest['scikit-learn']:.0f} s for a "
        f"random forest ({found['rows']:,} rows{', a busy machine' if found['busy'] else ''})"
    )
    assert told in text("README.md")
