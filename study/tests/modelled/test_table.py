"""The table of models: what its records show."""

from pathlib import Path

import pytest
from evalign_study.decided import plan as decided
from evalign_study.decided.standings import compared, mean
from evalign_study.modelled import plan
from evalign_study.modelled.table import (
    BASE_RULE,
    NAMES,
    ModelsTable,
    bars,
    behind,
    beside,
    collected,
    levels,
    parts,
)
from evalign_study.pipeline.formats import markdown, on_page
from evalign_study.pipeline.writing import fill
from evalign_study.records.results import Results
from evalign_study.trainers import rivals
from evalign_study.trainers.modelling import WITH_NETWORK

from study.tests.papers.made_tables import record

ROOT = Path(__file__).parents[3]
SETS = ("adult", "yeast")


def ours(run, network=0.02, blend=0.05):
    level = 0.5 + 0.001 * run.split_seed
    scores = {"auto": level + 0.02, "blend": level + blend, "linear of folds": level + 0.01}
    if run.method.startswith(WITH_NETWORK):
        scores = {"network of folds": level + network, "blend": level + 0.04}
    metric = "matthews_corrcoef" if run.method.endswith("mcc") else "f1"
    return record(run, {metric: {name: {"test": x, "seconds": 2.0} for name, x in scores.items()}})


def other(run):
    level = 0.5 + 0.001 * run.split_seed
    told = {"predict": {"test": level, "seconds": 0.0}, "tuned": {"test": level, "seconds": 0.0}}
    return record(run, dict.fromkeys(("f1", "matthews_corrcoef"), told))


def records(**how):
    runs = plan.runs(SETS, goals=["f1", "mcc"])
    return [ours(run, **how) for run in runs], [other(run) for run in decided.runs(SETS)]


def test_gains_are_paired_by_split():
    scores = collected(*records())
    assert scores["adult", "", "f1"]["blend"][3] == pytest.approx(0.553)
    assert scores["adult", "", "f1"]["with network"][3] == pytest.approx(0.543)
    assert scores["adult", "", "f1"][BASE_RULE][3] == pytest.approx(0.503)
    assert [bar.value for bar in bars(scores)[:4]] == pytest.approx([2, 5, 5, 2])


@pytest.mark.parametrize(
    ("how", "met"),
    [
        ({}, [True, True, True, True]),
        ({"network": -0.03}, [False, True, True, False]),
        ({"blend": 0.03}, [True, True, False, True]),
    ],
)
def test_bars(how, met):
    found = [bar.met for bar in bars(collected(*records(**how)))]
    assert found == [*met, *met, True, True]


def test_a_blend_behind_its_best_candidate_on_a_data_set():
    of_ours, others = records()
    for one in of_ours:
        if one["run"]["dataset"] == "yeast" and "linear of folds" in (one["picks"].get("f1") or {}):
            one["picks"]["f1"]["linear of folds"]["test"] += 0.07
    bar = bars(collected(of_ours, others))[-2]
    assert bar.value == pytest.approx(3)
    assert not bar.met


def test_a_blend_that_is_clearly_behind_is_told():
    of_ours, others = records()
    for one in of_ours:
        (told,) = one["picks"].values()
        if "auto" in told:
            told["blend"]["test"] = told["auto"]["test"] - 0.05 - 0.001 * one["run"]["split_seed"]
    assert not bars(collected(of_ours, others))[-1].met
    assert "worse in 4" in markdown(parts(plan.runs(SETS), of_ours, others, quick=False))


def test_autogluon_stands_beside_the_quick_models_where_both_were_run():
    found = [
        record(
            run,
            {
                "f1": {
                    run.method.removeprefix(rivals.PREFIX): {
                        "test": x,
                        "seconds": 9 * x,
                    }
                }
            },
        )
        for run, x in zip(plan.of_rivals(SETS), (0.5, 0.3, 0.2, 0.7, 0.4), strict=False)
    ]
    told = markdown(beside({one["key"]: one for one in found}))
    assert "| mean | 50.0 | 30.0 | 20.0 |" in told
    assert "| seconds a fit | 4 | 3 | 2 |" in told
    assert f"since a rival failed: {SETS[1]}." in told
    assert "was not run" in markdown(beside({}))


def test_documentation_shows_the_records(committed):
    """If not, run: evalign-study render models --page docs/evidence/models.md."""
    page = (ROOT / "docs/evidence/models.md").read_text(encoding="utf-8")
    found = ModelsTable().findings(committed, ROOT)
    assert fill(page, "models", markdown(on_page(found.parts))) == page


def test_the_page_says_what_calibration_brought(committed):
    path = ROOT / "study" / "benchmarks" / "results" / "uncalibrated_blend.jsonl.gz"
    before = {one["key"]: one for one in Results(path).records()}
    there = [{**committed, **before}[run.key] for run in plan.runs() if run.key in committed]
    others = decided.complete(committed[run.key] for run in decided.runs() if run.key in committed)
    scores = collected(there, others)
    names = [name for name in NAMES if name in set().union(*scores.values())]
    level = dict(zip(names, levels(scores, names, ["f1"]), strict=True))["blend"][0]
    (told,) = (told for cell, told in scores.items() if cell == ("waveform", "", "f1"))
    page = " ".join((ROOT / "docs/evidence/models.md").read_text(encoding="utf-8").split())
    assert f"had {level}: on waveform it was {behind(told):.0f} points behind its forest" in page


def test_the_page_says_what_one_table_makes_of_the_gains(committed):
    page = " ".join((ROOT / "docs/evidence/models.md").read_text(encoding="utf-8").split())
    there = [committed[run.key] for run in plan.runs() if run.key in committed]
    others = decided.complete(committed[run.key] for run in decided.runs() if run.key in committed)
    scores = collected(there, others)

    def gains(ours, rival, metric="f1"):
        """Without creditcard, and with it."""
        cells = {cell: told for cell, told in scores.items() if cell[2] == metric}
        left = {cell: told for cell, told in cells.items() if cell[0] != "creditcard"}
        return [f"{mean(compared(some, rival, ours).gains):+.1f}" for some in (left, cells)]

    told = []
    for ours in ("network", "blend"):
        found = [gains(ours, f"{name} tuned") for name in ("hist_gradient_boosting", "lightgbm")]
        told.append([" and ".join(pair) for pair in zip(*found, strict=True)])
    (network, whole), (blend, all_of_blend) = told
    assert f"is {network} for the networks of folds, not {whole}, and {blend} for the blend" in page
    assert f"for the blend, not {all_of_blend};" in page
    left, whole = gains("blend", BASE_RULE, "matthews_corrcoef")
    assert f"with {left} over the first and not {whole}." in page
