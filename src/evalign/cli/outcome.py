"""The predictions of models on test rows: as a table, for the report and on the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.table import Table

from evalign.cli.dataset import LabelledFrame
from evalign.cli.errors import UsageError
from evalign.cli.run import NETWORK, PREDICTIONS, About, Model
from evalign.cli.terminal import grid, plain
from evalign.core.constraints import parse
from evalign.core.metrics import resolve
from evalign.core.text import counted
from evalign.ensemble import AlignedEnsemble
from evalign.report import Contents, ModelFindings, Scored, TriedModels, scores
from evalign.report.words import number, span
from evalign.tables.labels import Labels


def predictions(rows: LabelledFrame, labels: Labels, models: Mapping[str, Model]) -> pd.DataFrame:
    """The true label of each row, and each model's prediction and probabilities."""
    columns = {"label": labels.array[rows.y]}
    for name, model in models.items():
        columns |= judged(model, labels, rows.X, f"{name}_")
    if rows.weight is not None:
        columns["weight"] = rows.weight
    if rows.groups is not None:
        columns["group"] = rows.groups
    return pd.DataFrame(columns)


def judged(
    model: Model, labels: Labels, X: pd.DataFrame, prefix: str = ""
) -> dict[str, np.ndarray]:
    """The columns of the predicted labels and of the probabilities; the model runs once."""
    order = np.searchsorted(model.classes_, labels.array)
    values = model.predict_proba(X)[:, order]
    if isinstance(model, AlignedEnsemble):
        codes = model.rule_(probabilities=values)  # its rule has the positive class of two last
    else:
        given = model.rule_.labels_of(torch.from_numpy(values[:, np.argsort(order)]))
        codes = np.argsort(order)[given.numpy()]
    names = [f"{prefix}probability_{label}" for label in labels.names]
    return {f"{prefix}prediction": labels.array[codes], **dict(zip(names, values.T, strict=True))}


def contents(
    table: pd.DataFrame,
    labels: Labels,
    about: About,
    checksum: str | None,
    details: dict[str, Any] | None = None,
) -> tuple[Contents, dict[str, Any]]:
    """The contents of a report on a table of `predictions`, and their scores.

    Args:
        table: rows without weight are left out.
        labels: the classes of the run.
        about: the run's `run.json`.
        checksum: that of the file with the rows, unless they were held out. The rows are no test if
            the models were trained or selected on this file.
        details: the run's `details.json`, for a whole report.
    """
    names = list(table.columns)
    if "weight" in names:
        table = table.loc[table["weight"] > 0]
        if not len(table):
            raise UsageError("The test rows must have some weight. Got 0 for all of them.")

    def column(name: str) -> np.ndarray | None:
        return table[name].to_numpy() if name in names else None

    def scored(name: str, called: str) -> Scored:
        probabilities = [f"{name}_probability_{label}" for label in labels.names]
        codes = labels.encode(table, PREDICTIONS, f"{name}_prediction")
        history = details["history"][name] if details is not None else []
        return Scored(called, codes, table[probabilities].to_numpy(), history)

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
        seen=checksum is not None and checksum in (arguments["data"], arguments["--validation"]),
        tried=TriedModels(**details["candidates"]) if details is not None and not network else None,
        findings=ModelFindings(**details["findings"]) if details is not None else None,
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
    arguments, promised = about["arguments"], about["promised"]
    if not contents.constrained:
        return {}
    rows, hard = [], contents.hard(contents.aligned.predicted, matrix=True)
    where = "rows seen in training" if contents.seen else "test rows"
    constraints = parse(arguments["--constraint"], contents.classes)
    for each, slack in zip(constraints, about["slacks"], strict=True):
        value, met = each.metric(hard).item(), each.slack(hard).item() >= 0
        fitted = each.bound + (slack if each.at_least else -slack)
        verdict = (
            f"{number(fitted)} on the held-out rows that the rule was fitted to, {number(value)} "
            f"on the {where}, where it is {'met' if met else 'not met'}"
        )
        row = {"constraint": each.text, "held_out": fitted, "test": value, "met": met}
        rows.append(row | {"verdict": verdict})
    if promised is not None:
        rows[-1]["verdict"] += f"; on new rows it {promise(promised, arguments['--confidence'])}"
    return {"constraints": rows, "promised": promised}


def promise(promised: bool, confidence: float) -> str:
    """Whether a constraint holds on new rows, as the end of a sentence."""
    return f"{'holds' if promised else 'is not shown to hold'} with confidence {confidence:g}"


def tried_models(ensemble: AlignedEnsemble) -> dict[str, Any]:
    """The candidates of an ensemble, as `TriedModels` takes them."""
    columns = ensemble.cv_results_
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if len(rows) == 2:  # the ensemble is its only candidate
        rows = rows[:1]
    if not resolve(ensemble.metric).greater_is_better:  # a cost, which is negated there
        for row in rows:
            for stem in ("rule_score", "argmax_score"):
                high, low = -row[f"{stem}_low"], -row[f"{stem}_high"]
                row |= {stem: -row[stem], f"{stem}_low": low, f"{stem}_high": high}
    return plain({"rows": rows, "gain": ensemble.gain_, "left_out": ensemble.left_out_})


def shown(scores: dict[str, Any]) -> Iterator[Table | str]:
    """Show the scores to a person: a table of metrics, and which model is better."""
    methods = [method for method in scores["methods"] if not method.get("same_as")]
    rows = [
        [scores["metric"], *(number(method["value"]) for method in methods)],
        ["95% interval", *map(span, methods)],
    ]
    for name, values in scores["others"].items():
        rows.append([name, *(number(values[method["key"]]) for method in methods)])
    yield grid(["", *(method["name"] for method in methods)], rows)
    yield f"On {counted(scores['rows'], 'test row' if scores['test'] else 'training row')}."
    for row in scores.get("constraints", []):
        yield f"{row['constraint']}: {row['verdict']}."
    for difference in scores["differences"]:
        yield difference["verdict"]
    advice = scores["answer"]["next"]
    yield " ".join([scores["answer"]["sentence"], *advice])
    if tried := scores.get("tried"):
        columns = ("weight", "rule_score", "argmax_score")
        rows = [
            [row["candidate"], *(number(row[name]) for name in columns)] for row in tried["rows"]
        ]
        yield grid(["candidate", "weight", "with its rule", "with argmax"], rows)
        if tried["verdict"] not in advice:
            yield tried["verdict"]
        for name, why in tried["left_out"].items():
            yield f"Left out: {name}: {why}."


def shown_classes(scores: dict[str, Any]) -> Table:
    """Show precision, recall and F1 of each class."""
    ratios, rows = ("precision", "recall", "f1"), []
    for row in scores["per_class"]:
        model = row["aligned"]
        counts = [f"{mass:g}" for mass in (row["rows"], model["predicted"])]
        rows.append([row["class"], *counts, *(number(model[name]) for name in ratios)])
    return grid(["class", "rows", "predicted", *ratios], rows)


def _cards(about: About) -> dict[str, dict[str, str]]:
    """The data and the options of a run, for the report."""
    arguments = about["arguments"]
    counts = zip(about["classes"], about["rows_per_class"], strict=True)
    data = {
        "File": about["file"],
        "SHA-256": arguments["data"],
        "Rows": ", ".join(f"{count} for {part}" for part, count in about["rows"].items()),
        "Classes": ", ".join(f"{label} ({count})" for label, count in counts),
    }
    options = {name: str(value) for name, value in arguments.items() if name.startswith("--")}
    given = {name: text for name, text in options.items() if text not in ("None", "[]")}
    return {"Data": data, "Run": given | about["versions"]}
