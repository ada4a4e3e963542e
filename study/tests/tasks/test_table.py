"""The tables of dense prediction and of many labels a row: what their records show."""

from pathlib import Path

import pytest
from evalign_study.pipeline.formats import markdown, on_page
from evalign_study.pipeline.writing import fill
from evalign_study.suite.standings import Choice, scores
from evalign_study.tasks import plan, standings
from evalign_study.tasks.table import DENSE, MULTILABEL, dense, many_labels
from evalign_study.trainers import choice, multilabel
from evalign_study.trainers.dense import MIOU
from evalign_study.trainers.pixel_methods import RIVALS

from study.tests.papers.made_tables import record

ROOT = Path(__file__).parents[3]


def made(run, task, level):
    """Make a record: argmax has the level, and the tuned rule looks better and is 0.01 worse."""
    trial = run.seed / 1000 + (run.method == "weighted") * (run.seed % 2) / 500
    decided = {
        metric: {
            "decisions": {
                decision: {"validation": level + seems, "test": {metric: level + trial + gain}}
                for decision, seems, gain in (("argmax", 0, 0), ("tuned", 0.1, -0.01))
            }
        }
        for metric in task.metrics
    }
    return record(run, decided)


def dense_records(ours=0.60, weighted=0.56, rivals=0.50):
    levels = {plan.OURS: ours, "weighted": weighted}
    return [made(run, DENSE, levels.get(run.method, rivals)) for run in plan.dense()]


def test_the_decision_is_chosen_on_validation_rows():
    found = scores(dense_records())
    cell = [("camvid", MIOU)]
    plain = standings.mean(found, cell, Choice(["weighted"], ["argmax"]))
    chosen = standings.mean(found, cell, DENSE.chosen("weighted"))
    assert plain - chosen == pytest.approx(1)
    assert standings.best_rival(found, cell, DENSE) == "weighted"
    assert standings.mean(found, cell, Choice(["focal"], ["argmax"])) is None


def test_gains_are_paired_and_their_intervals_are_over_seeds_or_splits():
    found = scores(dense_records())
    ours, rival = DENSE.chosen(plan.OURS), DENSE.chosen("weighted")
    camvid = standings.gain(found, [("camvid", MIOU)], ours, rival)
    membrane = standings.gain(found, [("membrane", MIOU)], ours, rival)
    assert camvid.mean == pytest.approx(3.9)  # 4, less the 0.2 that the rival has in odd trials
    assert camvid.trials == membrane.trials == 8
    # Student's t of eight values that are 3.8 or 4.
    assert camvid.high - camvid.mean == pytest.approx(2.3646 * 0.10690 / 8**0.5, rel=1e-3)
    # Training rows of splits overlap, so their interval is wider (Nadeau and Bengio).
    assert membrane.high - membrane.mean > camvid.high - camvid.mean
    both = standings.gain(found, [("camvid", MIOU), ("membrane", MIOU)], ours, rival)
    assert (both.mean, both.trials) == (pytest.approx(3.9), 2)
    assert standings.gain(found, [("scene", MIOU)], ours, rival) is None


@pytest.mark.parametrize(
    ("ours", "met"), [(0.60, [True, True]), (0.563, [True, False]), (0.525, [False, False])]
)
def test_bars_of_pixels(ours, met):
    bars = standings.bars(scores(dense_records(ours)), DENSE, ["camvid", "membrane"])
    assert [bar.met for bar in bars] == met * 2
    assert "the best rival, class-weighted" in bars[1].name


def test_a_gain_that_chance_explains_does_not_meet_a_bar():
    """One of eight seeds makes the whole gain."""
    records = [
        made(run, DENSE, 0.5 + (run.method == plan.OURS and run.seed == 3) * 0.45)
        for run in plan.dense(["camvid"])
    ]
    first, second = standings.bars(scores(records), DENSE, ["camvid"])
    assert first.value > 3
    assert second.value > 0.5
    assert not first.met
    assert not second.met


def test_bars_of_many_labels_are_of_the_mean_over_data_sets():
    levels = {"binary_cross_entropy": 0.40, "asymmetric": 0.45, "following_macro": 0.46}

    def level(run):
        return levels.get(run.method, 0.3) + 0.1 * (run.dataset == "scene")

    records = [made(run, MULTILABEL, level(run)) for run in plan.multilabel()]
    plain, best = standings.bars(scores(records), MULTILABEL, plan.MULTILABEL)
    assert plain.name == (
        "mean over data sets: gain in macro-F1 over binary cross-entropy, 0.5, points"
    )
    assert (plain.value, plain.met) == (pytest.approx(5), True)  # 6, less what the choice loses
    assert (best.value, best.met) == (pytest.approx(1), True)
    assert "asymmetric loss" in best.name


def test_every_run_is_shown_and_has_a_trainer():
    for table, task, methods in (
        (dense(), DENSE, (*RIVALS, plan.OURS)),
        (many_labels(), MULTILABEL, (*multilabel.RIVALS, *multilabel.OURS.values())),
    ):
        assert set(task.methods) == set(methods)
        assert {run.method for run in table.runs()} == set(methods)
        trainers = {choice.trainer_of(run) for run in table.runs()}
        assert trainers <= {choice.PIXELS, choice.LABELS}
        assert len(trainers) == 1
        quick = table.part(quick=True)
        assert 0 < len(quick.runs()) < len(table.runs())
        assert all(run.rows is not None for run in quick.runs())


@pytest.mark.parametrize("table", [dense(), many_labels()], ids=lambda table: table.name)
def test_documentation_shows_the_records(table, committed, tmp_path):
    """If not, run: evalign-study render NAME --page docs/evidence/tasks.md."""
    page = (ROOT / "docs/evidence/tasks.md").read_text(encoding="utf-8")
    text = markdown(on_page(table.findings(committed, tmp_path).parts))
    assert fill(page, table.name, text) == page


def test_the_page_tells_how_the_weights_of_pixels_were_chosen(committed):
    cell = [("camvid", MIOU)]
    tried = ("own_root_1", "aligned_1", "own_balanced_1")
    found = scores([committed[run.key] for run in plan.candidates(tried)])
    means = [f"{standings.mean(found, cell, DENSE.plain(form)):.1f}" for form in tried]
    told = "{} points of mIoU by argmax, against {} without weights and {} with"
    assert told.format(*means) in (ROOT / "docs/evidence/tasks.md").read_text(encoding="utf-8")


def test_the_page_tells_the_records_of_camvid(committed):
    found = scores([committed[run.key] for run in dense().runs()])
    cell, ours = [("camvid", MIOU)], DENSE.plain(plan.OURS)
    page = " ".join((ROOT / "docs/evidence/tasks.md").read_text(encoding="utf-8").split())
    assert f"{standings.mean(found, cell, ours):.1f} points of mIoU on CamVid" in page
    gained = {
        rival: standings.gain(found, cell, ours, DENSE.plain(rival)) for rival in DENSE.rivals
    }
    entropy, *others = (gained[rival] for rival in DENSE.rivals)
    least = min(others, key=lambda gain: gain.mean)
    told = "{:.1f} above cross-entropy, beyond chance, and {:.1f} above the best of six"
    told = told.format(entropy.mean, least.mean)
    assert told in page
    assert entropy.low > 0 > least.low  # the first beyond chance, the second not
    behind = standings.gain(found, cell, DENSE.chosen(plan.OURS), DENSE.chosen("weighted"))
    assert f"ours is {-behind.mean:.1f} behind class-weighted cross-entropy" in page
