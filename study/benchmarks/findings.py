"""The pictures of docs/evidence, from the records of the papers' tables.

    python study/benchmarks/findings.py

It needs matplotlib, which the development environment has.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from evalign_study.decided import plan as decided_plan
from evalign_study.decided import standings as decided
from evalign_study.decided.table import DecisionsTable
from evalign_study.goals import standings as goals
from evalign_study.goals.table import SHOWN, GoalsTable
from evalign_study.modelled import table as modelled
from evalign_study.modelled.table import ModelsTable
from evalign_study.papers.evidence import Evidence, View
from evalign_study.papers.plan import Plan
from evalign_study.papers.tables import Column, Panel, table
from evalign_study.papers.verdicts import views
from evalign_study.pipeline.intervals import Interval, interval
from evalign_study.records.made import Record
from evalign_study.records.results import Results, recorded
from evalign_study.suite.standings import scores
from evalign_study.tasks import standings
from evalign_study.tasks.table import DENSE, MULTILABEL, dense, many_labels
from evalign_study.trainers.deciding import PREDICT
from evalign_study.trainers.decisions import THRESHOLDS
from evalign_study.trainers.dense import MIOU
from evalign_study.trainers.goal_methods import BOUNDED
from evalign_study.trainers.multilabel import MACRO
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
RESULTS, PICTURES = ROOT / "study/results", ROOT / "docs/evidence"
TRIALS = 10
OURS, THEIRS, LOSS = "#1f77b4", "#d62728", "#2ca02c"
# A fixed salt: the same records give the same file.
plt.rcParams.update(
    {"svg.hashsalt": "evalign", "font.size": 9, "svg.fonttype": "none", "axes.spines.top": False}
)
plt.rcParams.update({"axes.spines.right": False, "axes.axisbelow": True})


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    records = recorded(RESULTS)
    east, btg = (
        Evidence(Plan(table(name), TRIALS), records) for name in ("east-table1", "btg-table1")
    )
    thresholds(btg)
    printed(east, btg)
    ends = Results(RESULTS / "image-ends.jsonl.gz").records()
    slow(ends)
    late(ends)
    decisions(records)
    models(records)
    tasks(records)
    bounds(records)
    speed()


def thresholds(btg: Evidence) -> None:
    """F1 over the thresholds of BtG's table, and where a tuned rule arrives."""
    panels = btg.table.panels
    figure, axes = plt.subplots(1, len(panels), figsize=(9, 2.6), sharey=True, layout="tight")
    for axis, panel in zip(axes, panels, strict=True):
        column = panel.column("F1")
        assert column is not None
        at = [float(name) for name in THRESHOLDS]
        for line, colour, shown in (("F1*", LOSS, "BtG's F1*"), ("BCE", THEIRS, "cross-entropy")):
            means = [
                _mean(btg, panel, line, column, View("sound", "papers", name))
                for name in THRESHOLDS
            ]
            axis.plot(at, means, color=colour, marker=".", label=shown)
        best = _mean(btg, panel, "BCE", column, View("sound", "papers", "tuned"))
        axis.axhline(best, color=OURS, ls="--", lw=1, label="cross-entropy, tuned decision")
        axis.set(title=panel.label, xlabel="threshold", ylim=(0, 1))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("F1 of the test rows")
    axes[0].legend(frameon=False, fontsize=7, loc="lower left")
    _save(figure, "thresholds")


def printed(east: Evidence, btg: Evidence) -> None:
    """The gain of F1* over cross-entropy: as printed, as found, and as found strictly."""
    rows = [*_gains("EAST", east, "CE"), *_gains("BtG", btg, "BCE")]
    figure, axis = plt.subplots(figsize=(7, 3.4), layout="tight")
    places = np.arange(len(rows))[::-1]
    axis.axvline(0, color="black", lw=0.8)
    axis.scatter([row[1] for row in rows], places, marker="x", color="black", label="printed")
    for way, (colour, shift, shown) in enumerate(
        [(THEIRS, 0.0, "found, as in the paper"), (OURS, -0.25, "found, strictly")]
    ):
        found = [row[2][way] for row in rows]
        means = np.array([one.mean for one in found])
        ends = np.abs(np.array([[one.low, one.high] for one in found]).T - means)
        style = {"fmt": "o", "ms": 4, "color": colour, "label": shown}
        axis.errorbar(means, places + shift, xerr=ends, **style)
    axis.set_yticks(places, [row[0] for row in rows])
    axis.set_xlabel("gain in F1 over cross-entropy")
    axis.grid(axis="x", alpha=0.3)
    axis.legend(frameon=False)
    _save(figure, "printed")


def slow(ends: list[Record]) -> None:
    """The validation macro-F1 of CIFAR-10, epoch by epoch, to the end of each training."""
    shown = {
        "cross_entropy": ("cross-entropy", THEIRS),
        "dice": ("Dice", "#9467bd"),
        "east_f1": ("EAST's F1*, cooled", LOSS),
        "mcfbeta_f1": ("EAST's F1*, constant temperature", "#8c564b"),
    }
    figure, axis = plt.subplots(figsize=(7, 2.8), layout="tight")
    cifar = [record for record in ends if record["run"]["dataset"] == "cifar10"]
    _draw_curves(axis, cifar, shown, "validation_f1_macro")
    axis.set(xlabel="epoch", ylabel="validation macro-F1", ylim=(0.3, 0.85))
    axis.legend(frameon=False, loc="lower right")
    _save(figure, "slow")


def late(ends: list[Record]) -> None:
    """The validation F1 of SurF's losses on Fashion-MNIST, from the start and after others."""
    shown = {
        "balanced_cross_entropy": ("cross-entropy, class-balanced", THEIRS),
        "balanced_macro_soft_1": ("macro soft, β = 1", "#9467bd"),
        "surf_1": ("surrogate, β = 1", OURS),
        "surf_2": ("surrogate, β = 2", LOSS),
        "surf_3": ("surrogate, β = 3", "#8c564b"),
    }
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True, layout="tight")
    titles = {0: "from the start", 10: "after ten epochs of cross-entropy"}
    for axis, (first, title) in zip(axes, titles.items(), strict=True):
        fashion = [
            record
            for record in ends
            if record["run"]["dataset"] == "fashion_mnist_tshirt"
            and record["run"].get("cross_entropy_first", 0) == first
        ]
        _draw_curves(axis, fashion, shown, "validation_f1")
        axis.set(xlabel="epoch", title=title, ylim=(0, 1))
    axes[0].set_ylabel("validation F1")
    axes[1].legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="lower right")
    _save(figure, "late")


def decisions(records: Mapping[str, Record]) -> None:
    """The gain in F1 of the tuned rule over predict, by data set, for three models."""
    there = decided_plan.complete(
        records[run.key] for run in DecisionsTable().runs() if run.key in records
    )
    gains = decided.compared(decided.collected(there), PREDICT).gains
    shown = {"extra_trees": "extra trees", "lightgbm": "LightGBM", "catboost": "CatBoost"}
    rows = {
        label: {cell[0]: gain for cell, gain in decided.chosen(gains, [model], "f1").items()}
        for model, label in shown.items()
    }
    _forest(rows, "gain in F1 of the rule over predict, points", "gains")


def models(records: Mapping[str, Record]) -> None:
    """The gain in F1 of the blend over histogram gradient boosting with our rule, by data set."""
    there = [records[run.key] for run in ModelsTable().runs() if run.key in records]
    of_others = decided_plan.runs()
    others = decided_plan.complete(records[run.key] for run in of_others if run.key in records)
    scores = modelled.collected(there, others)
    rows = {}
    for rival, label in (
        ("hist_gradient_boosting tuned", "histogram gradient boosting, our rule"),
        ("catboost tuned", "CatBoost, our rule"),
    ):
        gains = decided.compared(scores, rival, modelled.BLEND).gains
        rows[label] = {cell[0]: gain for cell, gain in gains.items() if cell[2] == "f1"}
    _forest(rows, "gain in F1 of the blend, points", "models")


def tasks(records: Mapping[str, Record]) -> None:
    """The gain of AlignedLoss over cross-entropy and over the best rival, plain decisions."""
    rows: dict[str, dict[str, Interval]] = {"cross-entropy": {}, "the best rival": {}}
    for study, task, metric in (
        (dense(), DENSE, MIOU),
        (many_labels(), MULTILABEL, MACRO),
    ):
        found = scores([records[run.key] for run in study.runs() if run.key in records])
        ours = task.plain(task.ours[metric])
        for dataset in study.datasets:
            cell = [(dataset, metric)]
            each = {
                rival: standings.gain(found, cell, ours, task.plain(rival)) for rival in task.rivals
            }
            known = {rival: gain for rival, gain in each.items() if gain is not None}
            first, best = task.rivals[0], min(known, key=lambda rival: known[rival].mean)
            rows["cross-entropy"][dataset] = known[first]
            rows["the best rival"][dataset] = known[best]
    _forest(rows, "gain in mIoU (two sets) and macro-F1, points", "tasks")


def bounds(records: Mapping[str, Record]) -> None:
    """The share of bounds that test rows break, with a promise and without."""
    there = [records[run.key] for run in GoalsTable().runs(records) if run.key in records]
    figure, axis = plt.subplots(figsize=(7, 2.4), layout="tight")
    for shift, rule, colour, shown in (
        (0.2, "met", THEIRS, "without a promise"),
        (-0.2, "promised", OURS, "confidence=0.95"),
    ):
        found = [goals.promises(there, [goal], rule) for goal in BOUNDED]
        shares = [100 * one.broken / one.judged for one in found]
        places = np.arange(len(shares))[::-1] + shift
        axis.barh(places, shares, height=0.4, color=colour, label=shown)
    axis.axvline(5, color="black", lw=0.8, ls="--")
    axis.set_yticks(np.arange(len(BOUNDED))[::-1], [SHOWN[goal] for goal in BOUNDED])
    axis.set_xlabel("bounds broken on new rows, % (5% may be)")
    axis.legend(frameon=False)
    _save(figure, "bounds")


def speed() -> None:
    """Times of the losses in multiples of cross-entropy."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="tight")
    for axis, kind, title in zip(axes, ("cuda", "cpu"), ("one H200", "two CPU cores"), strict=True):
        file = ROOT / "benchmarks" / "results" / f"loss_speed_{kind}.json"
        lines = json.loads(file.read_text(encoding="utf-8"))["lines"]
        kept = [x for x in lines if x["mode"] == "eager" or x["mode"].endswith("step")]
        names = [f"{x['name']}{' step' if 'step' in x['mode'] else ''}" for x in kept]
        places = np.arange(len(kept))[::-1]
        for loss, colour, shift in (("MetricLoss", LOSS, 0.2), ("AlignedLoss", OURS, -0.2)):
            ratios = [x["losses"].get(loss, {"ratio": 0})["ratio"] for x in kept]
            axis.barh(places + shift, ratios, height=0.4, color=colour, label=loss)
        axis.axvline(1, color="black", lw=0.8)
        axis.set_yticks(places, names, fontsize=7)
        axis.set(title=title, xlabel="× cross-entropy")
    axes[0].legend(frameon=False)
    _save(figure, "speed")


def _forest(rows: Mapping[str, Mapping[str, Interval]], title: str, name: str) -> None:
    """Draw gains and their intervals by data set, in the order of the first series."""
    first = next(iter(rows.values()))
    order = sorted(first, key=lambda dataset: first[dataset].mean)
    figure, axis = plt.subplots(figsize=(7, 0.9 + 0.24 * len(order)), layout="tight")
    axis.axvline(0, color="black", lw=0.8)
    for i, (label, gains) in enumerate(rows.items()):
        found = [(place, gains[x]) for place, x in enumerate(order) if x in gains]
        means = np.array([gain.mean for _, gain in found])
        ends = np.abs(np.array([[gain.low, gain.high] for _, gain in found]).T - means)
        places = [place + 0.25 - 0.25 * i for place, _ in found]
        style = {"fmt": "o", "ms": 3, "lw": 1, "color": (OURS, THEIRS, LOSS)[i], "label": label}
        axis.errorbar(means, places, xerr=ends, **style)
    axis.set_yticks(range(len(order)), order)
    axis.set_xlabel(title)
    axis.grid(axis="x", alpha=0.3)
    axis.legend(frameon=False, loc="lower right", fontsize=8)
    _save(figure, name)


def _draw_curves(
    axis: Axes, records: list[Record], shown: dict[str, tuple[str, str]], metric: str
) -> None:
    """Draw a metric epoch by epoch, a line for each training of the methods shown."""
    for method, (label, colour) in shown.items():
        mine = [record for record in records if record["run"]["method"] == method]
        for i, record in enumerate(mine):
            epochs, values = zip(*((x["epoch"], x[metric]) for x in record["curve"]), strict=True)
            axis.plot(epochs, values, color=colour, lw=0.8, label=None if i else label)
    axis.grid(alpha=0.3)


def _mean(evidence: Evidence, panel: Panel, line: str, column: Column, view: View) -> float:
    values = evidence.values(panel, line, column, view).values()
    return float(np.mean([value for value in values if value is not None]))


def _gains(
    paper: str, evidence: Evidence, rival: str
) -> Iterator[tuple[str, float, list[Interval]]]:
    """The name of each data set, the printed gain, and both found."""
    for panel in evidence.table.panels:
        column = panel.column("F1")
        if panel.incomparable or column is None:
            continue
        found = []
        for view in views(evidence.table, panel).values():
            ours, theirs = (evidence.values(panel, line, column, view) for line in ("F1*", rival))
            pairs = [(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()]
            found.append(interval([x - y for x, y in pairs if x is not None and y is not None]))
        first, second = (panel.printed[line, "F1"].mean for line in ("F1*", rival))
        yield f"{paper}, {panel.label}", first - second, found


def _save(figure: Figure, name: str) -> None:
    figure.savefig(PICTURES / f"{name}.svg", metadata={"Date": None}, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    main()
