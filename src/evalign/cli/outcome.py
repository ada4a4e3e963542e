"""The outcome of a run: predictions on test rows, and what the report and the terminal show."""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from evalign.cli.dataset import LabelledFrame
from evalign.cli.run import PREDICTIONS, About, Model
from evalign.cli.terminal import grid
from evalign.core.constraints import parse
from evalign.core.metrics import resolve
from evalign.core.text import counted, plain
from evalign.decisions import DecisionRule
from evalign.estimators import AlignedEnsemble
from evalign.estimators.evidence import score_of
from evalign.report import Contents, ModelFindings, Scored, TriedModels, scores
from evalign.report.words import number, span
from evalign.tables.labels import Labels

# Column importance: rows to shuffle, repeats for each column, and predicted rows, at most.
ROWS, REPEATS, PREDICTED = 500, 3, 20_000


def predictions(rows: LabelledFrame, labels: Labels, models: Mapping[str, Model]) -> pd.DataFrame:
    """The true label of each row, and each model's prediction and probabilities."""
    columns = {"label": labels.array[rows.y]}
    for name, model in models.items():
        columns |= judged(model, labels, rows.X, f"{name}_")
    more = {
        "weight": rows.weight,
        "group": rows.groups,
        "constraint_group": rows.constraint_groups,
    }
    return pd.DataFrame(columns | {name: part for name, part in more.items() if part is not None})


def judged(
    model: Model, labels: Labels, X: pd.DataFrame, prefix: str = ""
) -> dict[str, np.ndarray]:
    """The columns of the predicted labels and of the probabilities; the model runs once."""
    codes, ordered = _predicted(model, labels, X)
    names = [f"{prefix}probability_{label}" for label in labels.names]
    return {f"{prefix}prediction": labels.array[codes], **dict(zip(names, ordered.T, strict=True))}


def _predicted(model: Model, labels: Labels, X: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The codes of the predicted labels, and the probabilities."""
    values = model.predict_proba(X)
    place = np.searchsorted(model.classes_, labels.array)
    codes = own_rule(model).codes(probabilities=values)
    return np.argsort(place)[codes], values[:, place]


def own_rule(model: Model) -> DecisionRule:
    """The rule for the probabilities of `predict_proba`, which for a network are the rule's own."""
    rule = model.rule_
    return rule if isinstance(model, AlignedEnsemble) else replace(rule, offsets=None, factor=1.0)


def contents(
    table: pd.DataFrame,
    labels: Labels,
    about: About,
    checksum: str | None,
    details: dict[str, Any] | None = None,
) -> tuple[Contents, dict[str, Any]]:
    """The contents of a report on a table of `predictions`, and their scores.

    Args:
        table: the predictions.
        labels: the classes.
        about: the run's `run.json`.
        checksum: of the file of the rows; None for rows of the run. The rows are no test if the
            models were trained on this file.
        details: the run's `details.json`, for a whole report.
    """
    table = table.loc[table["weight"] > 0] if "weight" in table else table
    arguments, tried, findings = about["arguments"], None, None
    if details is not None:
        tried, findings = details["candidates"], details["findings"]

    def column(name: str) -> np.ndarray | None:
        return table[name].to_numpy() if name in table else None

    def scored(name: str, called: str) -> Scored:
        probabilities = [f"{name}_probability_{label}" for label in labels.names]
        codes = labels.encode(table, PREDICTIONS, f"{name}_prediction")
        return Scored(called, codes, table[probabilities].to_numpy())

    found = Contents(
        metric=arguments["--metric"],
        classes=labels.names,
        y=labels.encode(table, PREDICTIONS, "label"),
        aligned=scored("model", arguments["--model"]),
        baseline=scored("baseline", about["baseline"]) if "baseline_prediction" in table else None,
        weight=column("weight"),
        groups=column("group"),
        constraint_groups=column("constraint_group"),
        seed=arguments["--seed"],
        source=f"{about['file']}, target {about['columns']['target']}",
        cards=_cards(about),
        columns=about["columns"]["overview"],
        seen=checksum == arguments["data"],
        tried=tried and TriedModels(**tried),
        findings=findings and ModelFindings(**findings),
        constraint=arguments["--constraint"],
    )
    met = _constraints(found, about)
    for row in met.get("constraints", []):
        found.cards.setdefault("Constraint", {})[row["constraint"]] = row["verdict"]
    return found, scores(found) | met


def _constraints(contents: Contents, about: About) -> dict[str, Any]:
    """Each constraint with its value on the held-out rows, by the rule's slack, and on these."""
    arguments, promised = about["arguments"], about["promised"]
    if not contents.constrained:
        return {}
    rows = []
    hard = contents.hard(contents.aligned.predicted, matrix=True)
    of_groups = contents.hard_by_group(contents.aligned.predicted)
    where = "rows seen in training" if contents.seen else "test rows"
    constraints = parse(arguments["--constraint"], contents.classes)
    for each, slack in zip(constraints, about["slacks"], strict=True):
        value = each.value(hard, of_groups).item()
        met = each.slack(hard, of_groups).item() >= 0
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
    """Whether a constraint holds on new rows, in words."""
    return f"{'holds' if promised else 'is not shown to hold'} with confidence {confidence:g}"


def tried_models(
    table: dict[str, list[Any]], gain: dict[str, Any], left_out: dict[str, str], metric: str
) -> dict[str, Any]:
    """The candidates of an ensemble, as `TriedModels` takes them."""
    rows = pd.DataFrame(table).to_dict("records")
    if len(rows) == 2:  # the ensemble is its only candidate
        rows = rows[:1]
    if not resolve(metric).greater_is_better:  # a cost, which is negated there
        for row in rows:
            for stem in ("rule_score", "argmax_score"):
                high, low = -row[f"{stem}_low"], -row[f"{stem}_high"]
                row |= {stem: -row[stem], f"{stem}_low": low, f"{stem}_high": high}
    return plain({"rows": rows, "gain": gain, "left_out": left_out})


def importance(
    model: Model, labels: Labels, tested: LabelledFrame, seed: int
) -> tuple[list[dict[str, Any]], int]:
    """How much worse the metric gets if a column is shuffled, and among how many rows.

    All shuffled copies of the rows are predicted at once: models of many trees take longer to begin
    than to predict some hundred rows. Of an ensemble, the models of one fold tell as much as all.
    """
    if isinstance(model, AlignedEnsemble):
        model = copy(model)
        model.models_ = {name: models[:1] for name, models in model.models_.items()}
    width, rng = tested.X.shape[1], np.random.default_rng(seed)
    order = rng.permutation(np.flatnonzero(tested.counted))
    rows = tested.take(np.sort(order[: min(ROWS, max(1, PREDICTED // width))]))
    number = len(rows.y)
    repeats = min(REPEATS, max(1, PREDICTED // (width * number)))
    copies = [rows.X]
    for name in rows.X.columns:
        for _ in range(repeats):
            shuffled = rows.X[name].take(rng.permutation(number)).array
            copies.append(rows.X.assign(**{name: shuffled}))
    metric, classes = resolve(model.metric), len(labels.values)
    codes, _ = _predicted(model, labels, pd.concat(copies, ignore_index=True))
    scores = [score_of(metric, y, rows.y, rows.weight, classes) for y in codes.reshape(-1, number)]
    worse = (scores[0] - np.array(scores[1:])).reshape(width, repeats)
    columns = [
        {"column": name, "value": float(by.mean()), "low": float(by.min()), "high": float(by.max())}
        for name, by in zip(rows.X.columns, worse, strict=True)
    ]
    return sorted(columns, key=lambda row: -row["value"]), number


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
    advice = scores["answer"]["next"]
    yield " ".join([scores["answer"]["sentence"], *advice])
    if tried := scores.get("tried"):
        columns = ("weight", "rule_score", "argmax_score")
        rows = ([row["candidate"], *(number(row[x]) for x in columns)] for row in tried["rows"])
        yield grid(["candidate", "weight", "with its rule", "with argmax"], rows)
        if tried["verdict"] not in advice:
            yield tried["verdict"]
        for name, why in tried["left_out"].items():
            yield f"Left out: {name}: {why}."


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
