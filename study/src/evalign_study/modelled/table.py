"""The table of models: its runs, and its results in words and numbers."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evalign_study.decided import plan as decided
from evalign_study.decided import standings
from evalign_study.decided.standings import Scores, compared, goal, mean
from evalign_study.decided.table import SplitTable
from evalign_study.modelled import plan
from evalign_study.pipeline.formats import NOTHING, Grid, Heading, Part, Points, Rest, Text, on_page
from evalign_study.pipeline.table import QUICK, Findings, Sheet, origins
from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.suite.standings import Bar
from evalign_study.trainers import rivals
from evalign_study.trainers.deciding import PREDICT
from evalign_study.trainers.modelling import DEFAULTS, WITH_NETWORK

# What is compared, by the names of `collected`: a model of the table of decisions with its own
# `predict` or our rule, then ours.
NAMES = {
    f"hist_gradient_boosting {PREDICT}": "histogram gradient boosting, `predict`",
    f"hist_gradient_boosting {standings.OURS}": "histogram gradient boosting, our rule",
    f"lightgbm {PREDICT}": "LightGBM, `predict`",
    f"lightgbm {standings.OURS}": "LightGBM, our rule",
    f"xgboost {PREDICT}": "XGBoost, `predict`",
    f"xgboost {standings.OURS}": "XGBoost, our rule",
    f"catboost {PREDICT}": "CatBoost, `predict`",
    f"catboost {standings.OURS}": "CatBoost, our rule",
    f"extra_trees {standings.OURS}": "extra trees, our rule",
    f"logistic_regression {standings.OURS}": "logistic regression, our rule",
    "network": "the networks of folds",
    "auto": "the candidate that is best on folds",
    "blend": "`AlignedEnsemble`",
    "with network": "the blend with the network, on a GPU",
}
BASE, BASE_RULE = (f"hist_gradient_boosting {way}" for way in (PREDICT, standings.OURS))
RULED = [f"{name} {standings.OURS}" for name in standings.BOOSTED]
NETWORK, AUTO, BLEND, JOINED = "network", "auto", "blend", "with network"
HOW = (
    "All have their defaults, and learn from the training rows of the table of decisions, 50,000 "
    "at most, from which the figures of other libraries' models are taken. With 257 classes "
    "boosting was neither run nor a candidate; where it is compared, that data set is left out. "
    "CatBoost did not end in its time on reuters_r8, and is not compared there. The blend with the "
    "network is of an earlier version, whose boosting had scikit-learn's defaults and whose "
    "candidates were not calibrated. So are the networks of folds, on a GPU: "
    "`AlignedEnsemble(candidates=['network'])`."
)
NOT_RUN = "Not run."
FOLDS = " of folds"  # the end of the name of a candidate, the mean of the models of the folds


class ModelsTable(SplitTable):
    """The table of models."""

    name, title = "models", "Which model?"

    def runs(self) -> list[Run]:
        """List our own runs."""
        if self.quick:
            return plan.runs(
                self.asked[:1], splits=[0], goals=["f1"], kinds=[DEFAULTS], rows=plan.QUICK_ROWS
            )
        return plan.runs(self.asked)

    def stages(self, records: Mapping[str, Record]) -> Iterator[list[Run]]:
        yield self.runs()
        if not self.quick:
            there = rivals.METHODS if rivals.PYTHON in os.environ else rivals.METHODS[:1]
            yield [run for run in plan.of_rivals(self.asked) if run.method in there]

    def findings(self, records: Mapping[str, Record], folder: Path) -> Findings:
        runs = self.runs()
        there = [records[run.key] for run in runs if run.key in records]
        of_others = decided.runs(self.asked)
        others = decided.complete(records[run.key] for run in of_others if run.key in records)
        scores = collected(there, others)
        rows = [
            [dataset, metric, name, split, score]
            for (dataset, _, metric), told in scores.items()
            for name, splits in told.items()
            for split, score in splits.items()
        ]
        found = bars(scores) if there else []
        told = list(parts(runs, there, others, quick=self.quick))
        shown = on_page(told)
        return Findings(
            title=self.title,
            parts=[*shown, *beside(records), *told[len(shown) :]],
            figures={},
            sheets={"": Sheet(["data set", "metric", "model", "split", "score"], rows)},
            lines=[
                f"{sum(bar.met for bar in found)} of {len(found)} bars met." if found else NOT_RUN
            ],
            data=[bar._asdict() for bar in found],
        )


def collected(ours: Iterable[Record], others: Iterable[Record]) -> Scores:
    """Collect the scores by data set and metric, model, and split."""
    found: Scores = {}
    for record in ours:
        run = record["run"]
        for metric, told in picks(record).items():
            cell = found.setdefault((run["dataset"], "", goal(metric)), {})
            for name, one in told.items():
                cell.setdefault(name, {})[run["split_seed"]] = one["test"]
    for (dataset, model, metric), told in standings.collected(others).items():
        for decision, splits in told.items():
            cell = found.setdefault((dataset, "", metric), {})
            cell[f"{model} {decision}"] = splits
    return found


def picks(record: Record) -> dict[str, dict[str, Any]]:
    """The picks of a record of ours by metric, the blend that has the network by its own name."""
    if not record["run"]["method"].startswith(WITH_NETWORK):
        return record["picks"]
    found = record["picks"].items()
    return {metric: {NETWORK: told[NETWORK + FOLDS], JOINED: told[BLEND]} for metric, told in found}


def bars(scores: Scores) -> list[Bar]:
    """List the numbers that our models are judged by."""
    found = []
    for metric in ("f1", "matthews_corrcoef"):
        some = {cell: told for cell, told in scores.items() if cell[2] == metric}
        for ours, other, least in (
            (NETWORK, BASE_RULE, 1.0),
            (BLEND, BASE_RULE, 2.0),
            (BLEND, BASE, 4.0),
        ):
            gain = mean(compared(some, other, ours).gains)
            text = f"{metric}: mean gain of {NAMES[ours]} over {NAMES[other]}, points"
            found.append(Bar(text, gain, f"{least:g} or more", gain >= least))
        gains = compared(some, BASE_RULE, NETWORK).gains
        worst = min((gain.mean for gain in gains.values()), default=float("nan"))
        text = f"{metric}: the least gain of {NAMES[NETWORK]} over it with our rule on a data set"
        found.append(Bar(text, worst, "−2 or more", worst >= -2))
    f1 = [told for (_, _, metric), told in scores.items() if metric == "f1" and BLEND in told]
    most = max((behind(told) for told in f1), default=float("nan"))
    text = "f1: the most that `AlignedEnsemble` is behind its best candidate on a data set, points"
    found.append(Bar(text, most, "2 or less", most <= 2))
    lost = len(compared(scores, AUTO, BLEND).lost)
    text = "cells in which the blend is behind the best single model beyond chance"
    found.append(Bar(text, lost, "none", lost == 0))
    return found


def behind(told: Mapping[str, Mapping[int, float]]) -> float:
    """The points that the blend is behind the candidate that turned out best."""
    means = {name: 100 * np.mean([*splits.values()]) for name, splits in told.items()}
    best = max([x for name, x in means.items() if name.endswith(FOLDS)], default=float("nan"))
    return float(best - means[BLEND])


def parts(
    runs: Sequence[Run], ours: Sequence[Record], others: Sequence[Record], *, quick: bool
) -> Iterator[Part]:
    """Write the text of the table."""
    yield Heading(ModelsTable.title)
    if not ours:
        yield Text(NOT_RUN)
        return
    if quick:
        yield Text(QUICK)
    if len(ours) < len(runs):
        yield Text(f"Not run: {len(runs) - len(ours):,} of {len(runs):,} runs.")
    yield Text(HOW)
    scores = collected(ours, others)
    metrics = list(dict.fromkeys(cell[2] for cell, told in scores.items() if BLEND in told))
    there = set().union(*scores.values())
    names = [name for name in NAMES if name in there]
    shown = zip(names, levels(scores, names, metrics), strict=True)
    yield Grid(
        "Mean in points over the data sets and splits that all of them have:",
        ["", *metrics],
        [[NAMES[name], *means] for name, means in shown],
    )
    rows = [
        [bar.name, _value(bar.value), bar.bar, "met" if bar.met else "not met"]
        for bar in bars(scores)
    ]
    yield Grid("What they are judged by:", ["", "found", "bar", ""], rows)
    yield Points(
        [_verdict(scores, other) for other in (*RULED, AUTO, NETWORK, JOINED) if other in there]
    )
    yield Rest()
    compared_with = [BASE, BASE_RULE, NETWORK, AUTO, BLEND, JOINED]
    for metric in metrics:
        yield Grid(
            f"Mean {metric} in points by data set:",
            ["", *(NAMES[name] for name in compared_with)],
            [
                [dataset, *(_mean(told.get(name)) for name in compared_with)]
                for (dataset, _, one), told in scores.items()
                if one == metric and BLEND in told
            ],
        )
    seconds: dict[str, list[float]] = {BLEND: [], JOINED: []}
    for record in ours:
        for told in picks(record).values():
            for name in seconds.keys() & told.keys():
                seconds[name].append(told[name]["seconds"])
    took = ", ".join(
        f"{NAMES[name]} {np.median(each):.0f} s" for name, each in seconds.items() if each
    )
    all_of = partial(origins, ours)
    yield Text(
        f"{len(ours):,} runs, beside {len(others):,} of the table of decisions. Median of a fit, "
        f"with many at a time: {took}. {all_of('{device}')}; scikit-learn {all_of('{sklearn}')}, "
        f"torch {all_of('{torch}')}, commits {all_of('{commit}')}."
    )


BESIDE = {rivals.OURS: "`AlignedEnsemble`, the three quick models"}
BESIDE |= {preset: f"AutoGluon, {preset}, {rivals.TIME} s" for preset in rivals.PRESETS}
NO_AUTOGLUON = (
    "AutoGluon was not run: `evalign-study run models --autogluon PYTHON` runs it by an "
    "interpreter that has it."
)


def beside(records: Mapping[str, Record]) -> Iterator[Part]:
    """Write how our quick models stand beside AutoGluon, with the seconds of a fit."""
    there = [records[run.key] for run in plan.of_rivals() if run.key in records]
    told: dict[str, dict[str, dict[str, float]]] = {}
    for record in there:
        for picks in record["picks"].values():
            told.setdefault(record["run"]["dataset"], {}).update(picks)
    whole = {dataset: each for dataset, each in told.items() if each.keys() >= BESIDE.keys()}
    if not whole:
        yield Text(NO_AUTOGLUON)
        return
    scores = {dataset: [each[name]["test"] for name in BESIDE] for dataset, each in whole.items()}
    seconds = [[each[name]["seconds"] for name in BESIDE] for each in whole.values()]
    yield Grid(
        "Our quick models beside AutoGluon with `eval_metric` set, in F1 on one split:",
        ["", *BESIDE.values()],
        [
            ["mean", *_points(np.mean([*scores.values()], 0))],
            ["seconds a fit", *(f"{x:.0f}" for x in np.median(seconds, 0))],
            *([dataset, *_points(each)] for dataset, each in scores.items()),
        ],
    )
    failed = sorted(told.keys() - whole.keys())
    without = f" Left out, since a rival failed: {', '.join(failed)}." if failed else ""
    all_of = partial(origins, there)
    yield Text(
        f"Seconds are medians, on {all_of('{device}')}, one fit at a time.{without} Commits "
        f"{all_of('{commit}')}."
    )


def _points(scores: Iterable[float]) -> list[str]:
    return [f"{100 * score:.1f}" for score in scores]


def levels(scores: Scores, names: Sequence[str], metrics: Sequence[str]) -> Iterator[list[str]]:
    """The mean score of each name for each metric, over the cells that have all names."""
    whole = {cell: told for cell, told in scores.items() if told.keys() >= {*names}}
    for name in names:
        found = [
            [_common(told, name, names) for cell, told in whole.items() if cell[2] == metric]
            for metric in metrics
        ]
        yield [f"{100 * np.mean(each):.1f}" if each else NOTHING for each in found]


def _common(told: Mapping[str, Mapping[int, float]], name: str, names: Iterable[str]) -> float:
    """The mean score of a model over the splits that all have."""
    splits = set.intersection(*({*told[each]} for each in names))
    return float(np.mean([told[name][split] for split in splits]))


def _verdict(scores: Scores, other: str) -> str:
    cells = compared(scores, other, BLEND)
    if not cells.gains:
        return f"The blend against {NAMES[other]}: no cell has both."
    above = sum(gain.mean >= 0 for gain in cells.gains.values())
    return (
        f"The blend against {NAMES[other]}, in {len(cells.gains)} cells (data set and metric): "
        f"{mean(cells.gains):+.2f} points on average, at least as good in {above}; by intervals of "
        f"Nadeau and Bengio with Holm's adjustment, better in {len(cells.won)} and worse in "
        f"{len(cells.lost)}."
    ).replace("-", "−")


def _mean(splits: Mapping[int, float] | None) -> str:
    return f"{100 * np.mean([*splits.values()]):.1f}" if splits else NOTHING


def _value(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}".replace("-", "−")
