"""The table of decisions: what its records show."""

from collections import Counter
from pathlib import Path

import pytest
from evalign_study.decided import plan, standings
from evalign_study.decided.table import DecisionsTable, parts
from evalign_study.pipeline.formats import markdown, on_page
from evalign_study.pipeline.writing import fill
from evalign_study.trainers.deciding import CUTOFFS, PREDICT, TUNER

from study.tests.papers.made_tables import record

ROOT = Path(__file__).parents[3]
SETS = ("adult", "yeast")


def made(run, gain=0.1, behind=(), seconds=0.1):
    """Make a record in which our rule gains, or is clearly behind in some data sets."""
    two = run.dataset != "yeast"
    level = 0.5 + 0.001 * run.split_seed
    ours = level - 0.05 - 0.002 * run.split_seed if run.dataset in behind else level + gain
    scores = {PREDICT: level, CUTOFFS: level + 0.02, "tuned": ours, "expected": level}
    if two:
        scores[TUNER] = level + 0.01
    times = {TUNER: 1.0, "tuned": seconds}
    picks = {n: {"test": x, "seconds": times.get(n, 0.0)} for n, x in scores.items()}
    return record(run, {"f1" if two else "f1_macro": picks})


def records(**how):
    return [made(run, **how) for run in plan.runs(SETS)]


def test_gains_are_paired_by_split():
    scores = standings.collected(records())
    gains = standings.compared(scores, PREDICT).gains
    assert len(gains) == 16  # data sets times models
    assert all(gain.mean == pytest.approx(10) and gain.trials == 5 for gain in gains.values())
    assert {cell[0] for cell in standings.compared(scores, TUNER).gains} == {"adult"}


def test_a_clear_loss_is_found_and_told():
    found = [made(run, behind=["adult"]) for run in plan.runs(SETS)]
    cells = standings.compared(standings.collected(found), TUNER)
    assert len(cells.lost) == 8
    assert not cells.won
    text = markdown(parts(plan.runs(SETS), found, quick=False))
    assert "worse in 8" in text
    assert "Cells lost beyond chance" in text


@pytest.mark.parametrize(("gain", "met"), [(0.1, [True] * 2), (0.03, [True, False])])
def test_bars(gain, met):
    bars = standings.bars(records(gain=gain))
    assert [bar.met for bar in bars[:2]] == met
    assert [bar.met for bar in bars[2:]] == [True] * 5
    assert bars[-1].value == pytest.approx(0.1)
    slow = standings.bars(records(seconds=0.3))[-1]
    assert (slow.value, slow.met) == (pytest.approx(0.3), False)


def test_documentation_shows_the_records(committed):
    """If not, run: evalign-study render decisions --page docs/evidence/decisions.md."""
    page = (ROOT / "docs/evidence/decisions.md").read_text(encoding="utf-8")
    runs = DecisionsTable().runs()
    there = plan.complete(committed[run.key] for run in runs if run.key in committed)
    assert fill(page, "decisions", markdown(on_page(parts(runs, there, quick=False)))) == page


def test_the_page_says_what_equal_scores_cost_a_rival(committed):
    page = (ROOT / "docs/evidence/decisions.md").read_text(encoding="utf-8")
    runs = DecisionsTable().runs()
    records = plan.complete(committed[run.key] for run in runs if run.key in committed)

    def gains(records):
        found = standings.compared(standings.collected(records), CUTOFFS).gains
        boosted = ("lightgbm", "hist_gradient_boosting")
        parts = (standings.chosen(found, [model], "f1") for model in boosted)
        return [standings.mean(found), *map(standings.mean, parts)]

    def failed(record):
        return any(pick.get(CUTOFFS, {}).get("test") == 0 for pick in record["picks"].values())

    models = Counter(record["run"]["method"] for record in records if failed(record))
    assert models == {"decided_lightgbm": 4, "decided_hist_gradient_boosting": 2}
    assert {x["run"]["dataset"] for x in records if failed(x)} == {"creditcard"}
    pairs = zip(gains([x for x in records if not failed(x)]), gains(records), strict=True)
    mean, light, histogram = (f"{left:+.2f} and not {whole:+.2f}" for left, whole in pairs)
    mean = mean.replace("+", "").replace(" and", " points and")
    assert f"our mean gain over it is {mean}, with LightGBM {light}, with histogram" in page
    assert f"gradient boosting {histogram}." in page
