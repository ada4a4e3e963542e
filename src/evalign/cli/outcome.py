"""The predictions of models on test rows: as a table, for the report and on the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.table import Column, Table

from evalign.cli.errors import UsageError
from evalign.cli.labelled import LabelledFrame
from evalign.cli.run import NETWORK, PREDICTIONS, About, Model
from evalign.core.constraints import parse
from evalign.core.metrics import resolve
from evalign.core.text import counted, visible
from evalign.ensemble import AlignedEnsemble
from evalign.report import Contents, ModelFindings, Scored, TriedModels, scores
from evalign.report.words import number, span
from evalign.tables.classes import Labels

Histories = dict[str, list[dict[str, Any]]]


def predictions(rows: LabelledFrame, labels: Labels, models: Mapping[str, Model]) -> pd.DataFrame:
    """The true label of each row, and each model's prediction and probabilities."""
    columns = {"label": labels.decode(rows.y)}
    for name, model in models.items():
        codes, values = judged(model, labels, rows.X)
        columns[f"{name}_prediction"] = labels.decode(codes)
        columns |= probabilities(f"{name}_probability", values, labels)
    if rows.weight is not None:
        columns["weight"] = rows.weight
    if rows.groups is not None:
        columns["group"] = rows.groups
    return pd.DataFrame(columns)


def judged(model: Model, labels: Labels, X: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the predicted labels, and probabilities (N, C), for which the model runs once."""
    values = model.predict_proba(X)[:, np.searchsorted(model.classes_, labels.array)]
    return decided(model, labels, values), values


def decided(model: Model, labels: Labels, values: np.ndarray) -> np.ndarray:
    """Codes of the labels that a model's rule gives for probabilities (N, C)."""
    if isinstance(model, AlignedEnsemble):
        return model.rule_(probabilities=values)  # its rule has the positive class of two last
    order = np.argsort(labels.array)
    return order[model.rule_.labels_of(torch.from_numpy(values[:, order])).numpy()]


def probabilities(stem: str, values: np.ndarray, labels: Labels) -> dict[str, np.ndarray]:
    """A column per class."""
    return {f"{stem}_{label}": values[:, i] for i, label in enumerate(labels.names)}


def contents(
    table: pd.DataFrame,
    labels: Labels,
    about: About,
    histories: Histories,
    *,
    seen: bool,
    tried: TriedModels | None = None,
    findings: ModelFindings | None = None,
) -> tuple[Contents, dict[str, Any]]:
    """The contents of a report on a table of `predictions`, and their scores.

    Args:
        table: what `predictions` gives. Rows without weight are left out.
        labels: of the run.
        about: the run's `run.json`.
        histories: a record per epoch, for each model.
        seen: whether the rows are no test, see `was_seen`.
        tried: the candidates of an ensemble.
        findings: what else is known of the models.
    """
    names = list(table.columns)
    if "weight" in names:
        table = table.loc[table["weight"] > 0]
        if not len(table):
            raise UsageError("The test rows must have some weight. Got 0 for all of them.")

    def column(name: str) -> np.ndarray | None:
        return table[name].to_numpy() if name in names else None

    def scored(name: str, called: str) -> Scored:
        stem = f"{name}_probability"
        return Scored(
            called,
            labels.encode(table, PREDICTIONS, f"{name}_prediction"),
            np.stack([table[f"{stem}_{label}"].to_numpy() for label in labels.names], 1),
            histories[name],
        )

    arguments = about["arguments"]
    network = arguments["--model"] == NETWORK
    option = "--recipe" if network else "--model"
    usual = "cross_entropy" if network else str(about["baseline"])
    cards = _cards(about)
    found = Contents(
        metric=arguments["--metric"],
        classes=labels.names,
        y=labels.encode(table, PREDICTIONS, "label"),
        aligned=scored("model", arguments[option]),
        baseline=scored("baseline", usual) if "baseline_prediction" in names else None,
        weight=column("weight"),
        groups=column("group"),
        seed=arguments["--seed"],
        cards=cards,
        columns=about["columns"]["overview"],
        seen=seen,
        tried=tried,
        findings=findings,
        how={
            "aligned": "evalign predict does",
            "aligned_argmax": "evalign fit with --decision argmax",
            usual: f"evalign fit with {option} {usual}",
            f"{usual}_argmax": f"evalign fit with {option} {usual} --decision argmax",
        },
        constrained=arguments["--constraint"] is not None,
    )
    met = _constraints(found, about)
    if met:
        cards["Constraint"] = {row["constraint"]: row["verdict"] for row in met["constraints"]}
    return found, scores(found) | met


def _constraints(contents: Contents, about: About) -> dict[str, Any]:
    """Each constraint with its values on held-out rows, by the rule's own slack, and on these."""
    arguments = about["arguments"]
    if not contents.constrained:
        return {}
    rows, hard = [], contents.hard(contents.aligned.predicted, matrix=True)
    where = "rows seen in training" if contents.seen else "test rows"
    for each, slack in zip(
        parse(arguments["--constraint"], contents.classes), about["slacks"], strict=True
    ):
        value, met = each.metric(hard).item(), each.slack(hard).item() >= 0
        fitted = each.bound + (slack if each.at_least else -slack)
        verdict = (
            f"{number(fitted)} on the held-out rows that the rule was fitted to, {number(value)} "
            f"on the {where}, where it is {'met' if met else 'not met'}"
        )
        row = {"constraint": each.text, "held_out": fitted, "test": value, "met": met}
        rows.append(row | {"verdict": verdict})
    promised = about["promised"]
    if promised is not None:
        word = "holds" if promised else "is not shown to hold"
        sure = f"{arguments['--confidence']:g}"
        rows[-1]["verdict"] += f"; on new rows it {word} with confidence {sure}"
    return {"constraints": rows, "promised": promised}


def tried_models(ensemble: AlignedEnsemble) -> TriedModels:
    """The candidates of an ensemble, for the report."""
    columns = ensemble.cv_results_
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if len(rows) == 2:  # the ensemble is its only candidate
        rows = rows[:1]
    if not resolve(ensemble.metric).greater_is_better:  # a cost, which is negated there
        for row in rows:
            for stem in ("rule_score", "argmax_score"):
                high, low = -row[f"{stem}_low"], -row[f"{stem}_high"]
                row |= {stem: -row[stem], f"{stem}_low": low, f"{stem}_high": high}
    known = [without_nan(row) for row in rows]
    return TriedModels(known, without_nan(ensemble.gain_), dict(ensemble.left_out_))


def without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """None for NaN, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and np.isnan(value) else value
        for name, value in row.items()
    }


def was_seen(about: About, checksum: str | None) -> bool:
    """Whether the models of a run were trained or selected on the file with this checksum."""
    arguments = about["arguments"]
    return checksum is not None and checksum in (arguments["data"], arguments["--validation"])


def shown(scores: dict[str, Any]) -> Iterator[Table | str]:
    """Show the scores to a person: a table of metrics, and which model is better."""
    methods = [method for method in scores["methods"] if not method.get("same_as")]
    first = Column(no_wrap=True)  # the names of metrics
    table = Table(first, *(method["name"] for method in methods), box=None, pad_edge=False)
    table.add_row(scores["metric"], *(number(m["value"]) for m in methods), style="bold")
    table.add_row("95% interval", *map(span, methods))
    for name, values in scores["others"].items():
        table.add_row(name, *(number(values[method["key"]]) for method in methods))
    yield table
    kind = "test row" if scores.get("test", True) else "row seen in training"
    yield f"On {counted(scores['rows'], kind)}."
    for row in scores.get("constraints", []):
        yield f"{row['constraint']}: {row['verdict']}."
    for difference in scores["differences"]:
        yield difference["verdict"]
    if "answer" in scores:
        yield " ".join([scores["answer"]["sentence"], *scores["answer"]["next"]])
    if "tried" in scores:
        yield ""
        yield _shown_models(scores["tried"])
        if scores["tried"]["verdict"] not in scores["answer"]["next"]:
            yield scores["tried"]["verdict"]
        for name, why in scores["tried"]["left_out"].items():
            yield f"Left out: {name}: {why}."


def shown_classes(scores: dict[str, Any]) -> Table:
    """Show precision, recall and F1 of each class."""
    table = Table("class", "rows", "predicted", "precision", "recall", "f1", box=None)
    for row in scores["per_class"]:
        model = row["aligned"]
        counts = [f"{mass:g}" for mass in (row["rows"], model["predicted"])]
        ratios = [number(model[name]) for name in ("precision", "recall", "f1")]
        table.add_row(visible(row["class"]), *counts, *ratios)
    return table


def _shown_models(tried: dict[str, Any]) -> Table:
    """Show the scores of each candidate."""
    table = Table("candidate", box=None, pad_edge=False)
    for heading in ("weight", "with its rule", "95% interval", "with argmax", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in tried["rows"]:
        ends = span({"low": row["rule_score_low"], "high": row["rule_score_high"]})
        took = "" if row["seconds"] is None else f"{row['seconds']:.1f}"
        cells = [f"{row['weight']:.2f}", number(row["rule_score"]), ends]
        table.add_row(visible(row["candidate"]), *cells, number(row["argmax_score"]), took)
    return table


def _cards(about: About) -> dict[str, dict[str, str]]:
    arguments, columns = about["arguments"], about["columns"]
    counts = zip(about["classes"], about["rows_per_class"], strict=True)
    data = {
        "File": about["file"],
        "SHA-256": arguments["data"],
        "Rows": ", ".join(f"{count} for {part}" for part, count in about["rows"].items()),
        "Target": columns["target"],
        "Classes": ", ".join(f"{label} ({count})" for label, count in counts),
    }
    options = {name: str(value) for name, value in arguments.items() if name.startswith("--")}
    given = {name: value for name, value in options.items() if value not in ("None", "[]")}
    return {
        "Data": {name: value for name, value in data.items() if value},
        "Run": given | about["versions"],
    }
