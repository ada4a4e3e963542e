"""The models' answers for test rows: as a table, for the report and on the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from rich.table import Column, Table

from evalign.cli.dataset import Rows
from evalign.cli.errors import UsageError
from evalign.cli.labels import Labels
from evalign.cli.run import NETWORK, PREDICTIONS, About, Model
from evalign.core.constraints import parse
from evalign.core.metrics import resolve
from evalign.core.text import counted, visible
from evalign.ensemble import AlignedEnsemble
from evalign.report import Contents, ModelFindings, Scored, TriedModels
from evalign.report.words import number, span

Histories = dict[str, list[dict[str, Any]]]


def predictions(rows: Rows, labels: Labels, models: Mapping[str, Model]) -> pa.Table:
    """The true label of each row, and the label and the probabilities that each model gives it."""
    columns = {"label": labels.decode(rows.y)}
    for name, model in models.items():
        codes, values = judged(model, labels, rows.X)
        columns[f"{name}_prediction"] = labels.decode(codes)
        columns |= probabilities(f"{name}_probability", values, labels)
    if rows.weight is not None:
        columns["weight"] = pa.array(rows.weight)
    if rows.groups is not None:
        columns["group"] = pa.array(rows.groups, pa.string())
    return pa.table(columns)


def judged(model: Model, labels: Labels, X: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the predicted labels, and probabilities (N, C), for which the model runs once."""
    values = model.predict_proba(X)[:, np.searchsorted(model.classes_, labels.array)]
    return decided(model, labels, values), values


def decided(model: Model, labels: Labels, values: np.ndarray) -> np.ndarray:
    """Codes of the labels that a model's rule gives for probabilities (N, C)."""
    if isinstance(model, AlignedEnsemble) and len(labels.values) == 2:
        return model.rule_(probabilities=values)  # its rule has the positive class last
    order = pd.Index(labels.array).get_indexer(pd.Index(model.classes_))
    values = values[:, order]
    if isinstance(model, AlignedEnsemble):
        return order[model.rule_(probabilities=values)]
    return order[model.rule_.labels_of(torch.from_numpy(values)).numpy()]


def probabilities(stem: str, values: np.ndarray, labels: Labels) -> dict[str, pa.Array]:
    """A column per class."""
    return {
        f"{stem}_{label}": pa.array(column)
        for label, column in zip(labels.names, values.T, strict=True)
    }


def contents(
    table: pa.Table,
    labels: Labels,
    about: About,
    histories: Histories,
    *,
    seen: bool,
    tried: TriedModels | None = None,
    findings: ModelFindings | None = None,
) -> Contents:
    """The contents of a report on a table of `predictions`. Rows without weight are left out.

    Args:
        table: what the models say of the rows.
        labels: of the run.
        about: the run's `run.json`.
        histories: a record per epoch, for each model.
        seen: the rows are not a test, see `was_seen`.
        tried: the models that the model was made of.
        findings: what else is known of the models.
    """
    names = table.column_names
    if "weight" in names:
        table = table.filter(pa.array(table["weight"].to_numpy() > 0))
        if not table.num_rows:
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
    cards = _cards(about)
    network = arguments["--model"] == NETWORK
    usual = "cross_entropy" if network else str(about.get("baseline"))
    called = str(about.get("called", arguments["--recipe" if network else "--model"]))
    found = Contents(
        metric=arguments["--metric"],
        classes=labels.names,
        y=labels.encode(table, PREDICTIONS, "label"),
        aligned=scored("model", called),
        baseline=scored("baseline", usual) if "baseline_prediction" in names else None,
        weight=column("weight"),
        groups=column("group"),
        seed=arguments["--seed"],
        cards=cards,
        seen=seen,
        tried=tried,
        findings=findings,
        how=_how(usual, network),
        constrained=arguments.get("--constraint") is not None,
    )
    if rows := met(found, labels, about):
        cards["Constraint"] = {row["constraint"]: row["verdict"] for row in rows["constraints"]}
    return found


def _how(usual: str, network: bool) -> dict[str, str]:
    """How to get a method, by its key in the report."""
    model, argmax = f"--recipe {usual}" if network else f"--model {usual}", "--decision argmax"
    return {
        "aligned": "evalign predict does",
        "aligned_argmax": f"evalign fit with {argmax}",
        usual: f"evalign fit with {model}",
        f"{usual}_argmax": f"evalign fit with {model} {argmax}",
    }


def met(contents: Contents, labels: Labels, about: About) -> dict[str, Any]:
    """What the labels of the model meet where: each constraint with its values, for JSON.

    The value of the rows that the rule was fitted to is that of its own slack.
    """
    text = about["arguments"].get("--constraint")
    if text is None:
        return {}
    rows, of = [], "rows that the models have seen" if contents.seen else "test rows"
    hard = contents.hard(contents.aligned.predicted, matrix=True)
    for each, slack in zip(parse(text, labels.names), about["slacks"], strict=True):
        value, sign = each.metric(hard).item(), 1 if each.at_least else -1
        fitted, kept = each.bound + sign * slack, each.slack(hard).item() >= 0
        verdict = (
            f"{number(fitted)} on the held-out rows that the rule was fitted to, {number(value)} "
            f"on the {of}, where it is {'met' if kept else 'not met'}"
        )
        rows.append({"constraint": each.text, "held_out": fitted, "test": value, "met": kept})
        rows[-1]["verdict"] = verdict
    promised, sure = about["promised"], about["arguments"].get("--confidence")
    if promised is not None:
        word = "holds" if promised else "is not shown to hold"
        rows[-1]["verdict"] += f"; on new rows it {word} with confidence {sure:g}"
    return {"constraints": rows, "promised": promised}


def tried_models(ensemble: AlignedEnsemble) -> TriedModels:
    """The candidates of an ensemble, for the report."""
    columns = ensemble.cv_results_
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if len(rows) == 2:  # the ensemble is its only candidate
        rows = rows[:1]
    for row in rows:
        if not resolve(ensemble.metric).greater_is_better:  # a cost, which is negated there
            for stem in ("rule_score", "argmax_score"):
                high, low = -row[f"{stem}_low"], -row[f"{stem}_high"]
                row |= {stem: -row[stem], f"{stem}_low": low, f"{stem}_high": high}
    known = [_known(row) for row in rows]
    return TriedModels(known, _known(ensemble.gain_), dict(ensemble.left_out_))


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """None for NaN, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and np.isnan(value) else value
        for name, value in row.items()
    }


def was_seen(about: About, checksum: str | None) -> bool:
    """Whether the models of a run were trained on the file with this checksum, or chosen by it."""
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
    if scores.get("test", True):
        yield f"On {counted(scores['rows'], 'test row')}."
    else:
        seen = "that the models have seen in training. This is not a test."
        yield f"On {counted(scores['rows'])} {seen}"
    for row in scores.get("constraints", []):
        yield f"{row['constraint']}: {row['verdict']}."
    for difference in scores["differences"]:
        yield difference["verdict"]
    if "answer" in scores:
        yield " ".join([scores["answer"]["sentence"], *scores["answer"]["next"]])
    if "tried" in scores:
        yield ""
        yield _shown_models(scores)
        if scores["tried"]["verdict"] not in scores["answer"]["next"]:
            yield scores["tried"]["verdict"]
        for name, why in scores["tried"]["left_out"].items():
            yield f"Left out: {name}: {why}."


def shown_classes(scores: dict[str, Any]) -> Table:
    """Show how the aligned model does on each class."""
    table = Table("class", "rows", "predicted", "precision", "recall", "f1", box=None)
    for row in scores["per_class"]:
        model = row["aligned"]
        masses = row["rows"], model["predicted"]
        counts = [f"{mass:.0f}" if mass >= 1e5 else f"{mass:g}" for mass in masses]
        ratios = [number(model[name]) for name in ("precision", "recall", "f1")]
        table.add_row(visible(row["class"]), *counts, *ratios)
    return table


def _shown_models(scores: dict[str, Any]) -> Table:
    """Show what each candidate reaches."""
    table = Table("candidate", box=None, pad_edge=False)
    for heading in ("weight", "with its rule", "95% interval", "with argmax", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in scores["tried"]["rows"]:
        ends = span({"low": row["rule_score_low"], "high": row["rule_score_high"]})
        took = "" if row["seconds"] is None else f"{row['seconds']:.1f}"
        cells = [f"{row['weight']:.2f}", number(row["rule_score"]), ends]
        table.add_row(visible(row["candidate"]), *cells, number(row["argmax_score"]), took)
    return table


def _cards(about: About) -> dict[str, dict[str, str]]:
    arguments, columns = about["arguments"], about["columns"]
    counts = zip(about["classes"], about["rows_per_class"], strict=True)
    also, folds = "", about.get("folds")
    if folds is not None and "validation" not in about["rows"]:
        part = f"all in {folds} folds" if folds else "a fifth"
        also = f"; of the training rows {part} for validation"
    left_out = [f"{name} ({why})" for name, why in columns["left_out"].items()]
    data = {
        "File": about["file"],
        "SHA-256": arguments["data"],
        "Rows": ", ".join(f"{count} for {part}" for part, count in about["rows"].items()) + also,
        "Target": columns["target"],
        "Classes": ", ".join(f"{label} ({count})" for label, count in counts),
        "Numbers": ", ".join(columns["numbers"]),
        "Categories": ", ".join(columns["categories"]),
        "Dates": ", ".join(columns["dates"]),
        "Left out": ", ".join(left_out),
    }
    options = {name: str(value) for name, value in arguments.items() if name.startswith("--")}
    given = {name: value for name, value in options.items() if value not in ("None", "[]")}
    return {
        "Data": {name: value for name, value in data.items() if value},
        "Run": given | about["versions"],
    }
