"""The pictures of docs/findings.md, from the records of the papers' tables.

    python study/benchmarks/findings.py

It needs matplotlib, which the development environment has.
"""

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from evalign_study.papers.evidence import Evidence, View
from evalign_study.papers.plan import Plan
from evalign_study.papers.tables import Column, Panel, table
from evalign_study.papers.verdicts import views
from evalign_study.pipeline.intervals import Interval, interval
from evalign_study.records.made import Record
from evalign_study.records.results import Results, recorded
from evalign_study.trainers.decisions import THRESHOLDS
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
RESULTS, PICTURES = ROOT / "study/results", ROOT / "docs/findings"
TRIALS = 10
OURS, THEIRS, LOSS = "#1f77b4", "#d62728", "#2ca02c"
# A fixed salt: the same records give the same file.
plt.rcParams.update({"svg.hashsalt": "evalign", "font.size": 9, "axes.spines.top": False})
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
