"""The table of goals: its search for learning rates, its gains, and the check of promises."""

from pathlib import Path

import numpy as np
import pytest
from evalign_study.goals import plan, standings
from evalign_study.goals.standings import TRAINED, collected
from evalign_study.goals.table import NAMES, GoalsTable
from evalign_study.pipeline.formats import markdown, on_page
from evalign_study.pipeline.writing import fill
from evalign_study.trainers import choice
from evalign_study.trainers.goal_methods import AP, BOUNDED, GOALS, METHODS, OURS, share
from evalign_study.trainers.goals import PREFIX

from study.tests.papers.made_tables import record

ROOT = Path(__file__).parents[3]
KEPT = [[1900, 10], [10, 190]]  # keeps every bound
BROKEN = [[1900, 100], [100, 100]]  # a recall, a precision and a specificity that break every one


def made(run, *, matrix=KEPT, promised=True, gain=0.0, validation=0.5):
    """Make a record in which every goal has 0.6, and what the method has more."""
    picks = {}
    for goal in METHODS[run.method.removeprefix(PREFIX)].goals:
        level = 0.6 + gain + 0.01 * run.split_seed
        picks[goal] = {"epoch": 3, "validation": validation, "test": level + 0.1}
        if goal in BOUNDED:
            told = {"test": level, "validation_matrix": KEPT, "matrix": matrix}
            rules = {"met": told | {"promised": None}, "promised": told | {"promised": promised}}
            picks[goal]["rules"] = rules
    return record(run, picks)


def everything(gains=None, datasets=("adult", "campaign"), **told):
    """Make the records of the search and of the runs that count, by key."""
    found = {run.key: made(run) for run in plan.search(datasets)}
    for run in plan.runs(found, datasets):
        gain = (gains or {}).get(run.method.removeprefix(PREFIX), 0.0)
        found[run.key] = made(run, gain=gain, **told)
    return found


def counting(found, datasets=("adult", "campaign")):
    return [found[run.key] for run in plan.runs(found, datasets)]


def test_the_rate_is_the_best_of_the_validation_rows_on_other_splits():
    runs = plan.search(["adult"], methods=["weighted"])
    assert {run.split_seed for run in runs}.isdisjoint(plan.SPLITS)
    # The second rate is better on average, the third on one split.
    scores = {(100, 3e-4): 0.5, (101, 3e-4): 0.5, (100, 1e-3): 0.7, (101, 1e-3): 0.7}
    scores |= {(100, 3e-3): 0.9, (101, 3e-3): 0.4}
    found = {
        run.key: made(run, validation=scores[run.split_seed, run.learning_rate]) for run in runs
    }
    assert plan.chosen(found, "adult", "weighted") == 1e-3
    counted = plan.runs(found, ["adult"])
    assert [run.split_seed for run in counted] == [*plan.SPLITS]  # of this method alone
    assert {run.learning_rate for run in counted} == {1e-3}
    found.popitem()
    assert plan.chosen(found, "adult", "weighted") is None
    assert plan.runs(found, ["adult"]) == []


def test_every_method_has_as_many_tries_and_a_trainer():
    runs = plan.search()
    number = {method: sum(run.method == PREFIX + method for run in runs) for method in METHODS}
    assert set(number.values()) == {len(plan.SETS) * len(plan.DEVELOPMENT) * len(plan.RATES)}
    assert {choice.trainer_of(run) for run in runs} == {choice.GOALS}
    assert len({run.key for run in runs}) == len(runs)
    assert {run.imbalance for run in runs if run.dataset in plan.IMAGES} == {plan.IMBALANCE}


def test_ours_is_the_loss_for_the_goal():
    goal = "recall_at_fpr_1"
    scores = collected(counting(everything({OURS[goal]: 0.05, AP: 0.02})))
    told = scores["adult", "", goal]
    assert set(told) == {*NAMES}
    assert told[TRAINED][1] - told["cross_entropy"][1] == pytest.approx(0.05)
    assert scores["adult", "", AP][TRAINED] == scores["adult", "", AP][AP]
    assert standings.gain(scores, [goal]).mean == pytest.approx(5)
    assert standings.gain(scores, [AP]).mean == pytest.approx(2)
    assert standings.gain(scores, GOALS).mean == pytest.approx((5 + 2) / 7)
    assert standings.gain(scores, GOALS).trials == 2  # data sets, not their goals
    assert standings.level(scores, goal, TRAINED) == pytest.approx(67)  # the mean split is 2
    best = collected(counting(everything()), None)
    assert standings.level(best, goal, TRAINED) == pytest.approx(72)


@pytest.mark.parametrize("goal", BOUNDED)
def test_a_bound_is_broken_beyond_the_error_of_the_test_rows(goal):
    """Where the bound just holds, one draw in twenty or fewer says otherwise."""
    sought, random, rows = BOUNDED[goal], np.random.default_rng(0), 300
    flagged = []
    for part in random.binomial(rows, sought.bound, 2000):
        rest = rows - part
        matrix = {
            "recall": [[900, 0], [rest, part]],
            "precision": [[900, rest], [0, part]],
            "fpr": [[rest, part], [0, 50]],
        }[sought.bounded]
        assert share(sought.bounded, matrix) == (part, rows)
        flagged.append(standings.broken(goal, matrix))
    assert 0.005 < np.mean(flagged) <= 0.065  # three standard errors above 5%
    assert standings.broken(goal, BROKEN)
    assert not standings.broken(goal, KEPT)
    assert not standings.broken("recall_at_precision_90", [[900, 0], [100, 0]])  # no row labelled


def test_only_promises_are_judged():
    good, bad = (counting(everything(matrix=matrix)) for matrix in (KEPT, BROKEN))
    silent = counting(everything(matrix=BROKEN, promised=False))
    kept = standings.promises(good + bad[:1])
    number = len(good[0]["picks"].keys() & BOUNDED)
    assert number == 5
    assert (kept.broken, kept.missed) == (number, number)
    assert kept.rules == kept.promised == kept.judged
    assert kept.positives == (200, 200)
    told = standings.promises(silent)
    assert (told.promised, told.judged, told.broken) == (0, 0, 0)
    assert standings.promises(silent, rule="met").broken == told.rules
    assert standings.promises([], []).positives == (0, 0)


@pytest.mark.parametrize(("wrong", "met"), [(3, True), (7, True), (30, False)])
def test_so_many_broken_promises_are_chance_or_not(wrong, met):
    """Of 100, seven or more have a chance of 23%, and 30 next to none."""
    goal = "precision_at_recall_90"
    run = plan.quick(["adult"])[0]
    records = [made(run, matrix=BROKEN if i < wrong else KEPT) for i in range(100)]
    for told in records:
        told["picks"] = {goal: told["picks"][goal]}
    kept = standings.promises(records)
    assert (kept.judged, kept.broken) == (100, wrong)
    assert (kept.chance >= 0.05) == met
    assert kept.chance == pytest.approx({3: 0.88, 7: 0.23, 30: 0}[wrong], abs=0.005)


def test_bars():
    gains = dict.fromkeys(OURS.values(), 0.02) | {"libauc_pauc": 0.03, "libauc_tpauc": 0.01}
    promise, trained, ap, pauc = standings.bars(counting(everything(gains)))
    assert (promise.value, promise.met) == (0, True)
    assert (trained.value, trained.met) == (pytest.approx(2), True)
    assert (ap.value, ap.met) == (pytest.approx(-1), False)  # the best was not made for it
    assert (pauc.value, pauc.met) == (pytest.approx(-1), False)
    _, trained, ap, _ = standings.bars(counting(everything(matrix=BROKEN, promised=True)))
    assert not trained.met
    assert ap.met
    assert not standings.bars(counting(everything(matrix=BROKEN)))[0].met


def uneven(adult, campaign):
    """Ours has these gains on two data sets."""
    found = []
    for dataset, gain in (("adult", adult), ("campaign", campaign)):
        gains = dict.fromkeys(OURS.values(), gain)
        found += counting(everything(gains, datasets=[dataset]), [dataset])
    return found


@pytest.mark.parametrize(
    ("gains", "told"),
    [
        ((0.02, 0.021), "training for it pays beside the rule: "),
        ((0.005, -0.01), "the rule alone is enough: "),
        # Five points on average, all of them from one of two data sets.
        ((0.1, 0.0), "these data sets do not tell whether training for it pays"),
    ],
)
def test_the_verdict_says_when_the_rule_is_enough(gains, told):
    records = uneven(*gains)
    assert f"Under a bound, {told}" in standings.verdict(collected(records))
    bar = standings.bars(records)[1]
    assert bar.value == pytest.approx(100 * np.mean(gains))
    assert bar.met == told.startswith("training")


def test_the_text(tmp_path):
    found = everything({OURS["recall_at_fpr_1"]: 0.05})
    findings = GoalsTable(["adult", "campaign"]).findings(found, tmp_path)
    text = markdown(findings.parts)
    assert "nan" not in text
    assert "Not run" not in text
    assert "| recall, FPR ≤ 1% | +5.0 (+5.0 to +5.0) | +5.0 (+5.0 to +5.0) |" in text
    rules = sum(goal in method.goals for method in METHODS.values() for goal in BOUNDED) * 10
    assert f"| all, with confidence | {rules} | {rules} | 200 to 200 | 0 | 0 | 0.0% | 1 |" in text
    assert "| weighted | 0.0003 | 0.0003 |" in text  # the first of equal rates
    assert len(findings.sheets[""].head) == len(findings.sheets[""].rows[0])
    assert {len(row) for row in findings.sheets[""].rows} == {len(findings.sheets[""].head)}
    part = GoalsTable(trials=2, datasets=["adult"])
    text = markdown(part.findings(found, tmp_path).parts)
    assert "campaign" not in text
    assert len(part.runs(found)) == 2 * len(METHODS)


def test_what_is_missing_is_said(tmp_path):
    assert markdown(GoalsTable().findings({}, tmp_path).parts).endswith("\nNot run.\n")
    found = everything(datasets=["adult"])
    text = markdown(GoalsTable(["adult", "campaign"]).findings(found, tmp_path).parts)
    assert f"Not run: {5 * len(METHODS)} of {10 * len(METHODS)} runs." in text
    assert "| weighted | 0.0003 | – |" in text
    with pytest.raises(ValueError, match="dataset of goals must be one of creditcard"):
        GoalsTable(["adults"])


def test_a_quick_look(tmp_path):
    table = GoalsTable().part(quick=True)
    (stage,) = table.stages({})
    assert all(METHODS[run.method.removeprefix(PREFIX)].loss is not None for run in stage)
    assert all(run.rows is not None and run.imbalance is None for run in stage)
    found = {run.key: made(run) for run in stage}
    text = markdown(table.findings(found, tmp_path).parts)
    assert "its numbers mean nothing" in text
    assert "| partial AUC | – |" in text  # one split has no interval
    assert "nan" not in text


def test_documentation_shows_the_records(committed):
    """If not, run: evalign-study render goals --page docs/evidence/goals.md."""
    page = (ROOT / "docs/evidence/goals.md").read_text(encoding="utf-8")
    found = GoalsTable().findings(committed, ROOT)
    assert fill(page, "goals", markdown(on_page(found.parts))) == page
