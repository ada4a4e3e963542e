"""The numbers in the documentation are those of the raw records."""

import gc
import importlib.util
import json
from pathlib import Path
from statistics import fmean

import pytest
from evalign_study.papers import tables
from evalign_study.records.results import SUFFIX, Results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
STUDY_RESULTS = ROOT / "study" / "benchmarks" / "results"


def records(name, folder=RESULTS):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_batch_gradient():
    text = page("evidence/training.md")
    for x in records("batch_gradient.json")["records"]:
        cells = f"{x['batch_size']:,} | {x['without_positives']:.0%} | {x['method']}"
        assert f"| {cells} | {x['bias']:.2f} | {x['spread']:.2f} |" in text


def benchmark(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_compare_power():
    assert benchmark("compare_power").table(records("compare_power.json")) in page(
        "evidence/models.md"
    )


def test_the_default_ensemble_is_as_good_as_with_a_network():
    """Without PyTorch it has no network, nor by default with it."""
    lines = (STUDY_RESULTS / "network_in_blend.jsonl").read_text(encoding="utf-8").splitlines()
    gains = {}
    for record in map(json.loads, lines):
        of_table = gains.setdefault(record["dataset"], [])
        for told in record["metrics"].values():
            of_table.append(told["scores"]["with"] - told["scores"]["without"])
    assert len(gains) >= 13
    assert abs(fmean(fmean(of_table) for of_table in gains.values())) < 0.005


def test_promise_levels():
    found = records("promise_levels.json")
    summary = found["summary"]
    assert summary == benchmark("promise_levels").summary(found["cells"])
    assert summary["above"] == 0
    text = page("evidence/goals.md")
    assert benchmark("promise_levels").table(found) in text
    worst = f"in at most {summary['worst']:.1%} of the draws of a cell, where 5% are stated"
    assert worst in text
    assert f"{summary['draws']:,} draws in {summary['cells']} cells" in text
    made = f"{summary['promised']:,} promises were made and {summary['broken']} broken"
    assert made in text


def test_absent_classes():
    found = records("absent_classes.json")
    assert benchmark("absent_classes").table(found) in page("evidence/training.md")


def test_fewest_labels():
    found = records("fewest_labels.json")
    assert found["draws"] == 8
    text = page("evidence/decisions.md")

    def of(rows, what):
        return [told[what] for name, told in found["gain"].items() if f", {rows} rows" in name]

    few, many = (f"{min(x):.0f} to {max(x):.0f}" for x in (of(5, "mean"), of(100, "mean")))
    assert f"5 such rows gained {few} points on average and those on 100 rows {many};" in text
    lost = {rows: int(-min(of(rows, "worst tenth"))) for rows in (2, 5, 10, 20)}  # so much or more
    assert lost[10] == lost[20]
    assert f"lost {lost[5]} point or more from 5 rows, {lost[10]} points from 10 or 20" in text
    assert f"and {lost[2]} points from 2 rows of two classes" in text


def test_accumulation_memory():
    peaks = {k: v["peak_bytes"] for k, v in records("accumulation_memory.json")["methods"].items()}
    whole = f"{peaks['whole'] / 1e9:.1f} GB in one piece"
    exact, micro = (f"{peaks[name] / 1e6:.0f} MB" for name in ("exact", "one micro-batch"))
    text = page("loss/howto.md")
    assert f"{whole} and {exact} in micro-batches of 4,096, where one such micro-batch" in text
    assert f"alone takes {micro}" in text


def test_many_speed():
    found = records("many_speed_cuda.json", STUDY_RESULTS)
    ups = {int(size): entry["speed_up"] for size, entry in found["batch_sizes"].items()}
    text = page("evidence/papers.md")
    assert f"On one {found['device']} the {found['members']} networks" in text
    assert f"{ups[128]} times faster together" in text
    assert f"at 128 rows a batch, and {ups[2048]} times at 2,048" in text


@pytest.mark.parametrize("dataset", ["caltech256", "cifar10"])
def test_metric_share(dataset):
    scores = records(f"metric_share_{dataset}.json", STUDY_RESULTS)["scores"]

    def mean(metric, factor):
        one = [x for x in scores if (x["metric"], x["factor"]) == (metric, factor)]
        assert [x["split"] for x in one] == [0, 1, 2, 3, 4]
        return f"{20 * sum(x['test']['argmax'] for x in one):.1f}"

    f1, mcc = (
        [mean(m, way) for way in ("with", "without")] for m in ("f1_macro", "matthews_corrcoef")
    )
    told = f"macro-F1 is {f1[0]} with the factor and {f1[1]} without it, MCC {mcc[0]} and {mcc[1]}"
    assert told in page("evidence/training.md")


def test_networks_trained_for_the_tables():
    """Those of the papers' tables, which have a file of their name, or share another's."""
    files = [ROOT / "study" / "results" / f"{name}{SUFFIX}" for name in tables.names()]
    gc.disable()  # it would go through all records that are there, again and again
    records = [record for file in files for record in Results(file).records()]
    gc.enable()
    found = [record for record in records if "H200" in record["made"]["device"]]
    hours = sum(x["seconds"] for x in found) / 3600
    text = f"The {len(found):,} networks of the tables that were trained on it took {hours:.1f}"
    assert text in page("evidence/papers.md")


def test_table_time():
    found = records("table_time_cuda.json", STUDY_RESULTS)
    networks, capped = found["networks"], found["capped"]
    text = page("evidence/papers.md")
    assert f"takes {found['minutes']} minutes by the clock" in text
    assert f"{found['jobs']} stacks at a time" in text
    assert f"{networks:,} networks, of which {capped} reached the cap on epochs" in text
