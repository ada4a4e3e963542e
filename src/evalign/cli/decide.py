"""The work of `evalign decide`: a decision rule for a table of probabilities, and its use."""

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table
from scipy.stats import mannwhitneyu

from evalign.cli.cells import as_objects, as_text
from evalign.cli.dataset import check_name, read_weights
from evalign.cli.errors import UsageError, listed, refused
from evalign.cli.labels import Labels, warn_of_formulas
from evalign.cli.metrics import check_metric
from evalign.cli.saved_rule import SavedRule
from evalign.cli.scores import class_columns, class_scores, seem_probabilities
from evalign.cli.tables import TableFile, writing
from evalign.cli.terminal import Terminal, terminal
from evalign.core.constraints import parse
from evalign.core.metrics import resolve
from evalign.core.text import counted
from evalign.decisions import Decision, DecisionRule
from evalign.decisions.fit_rows import check_promise
from evalign.decisions.objective import ROUNDING
from evalign.estimator import held_out
from evalign.estimator.evidence import RuleSettings, evidence
from evalign.estimator.out_of_fold import Method, OutOfFoldScores, as_argument
from evalign.report.words import number

PREDICTION = "prediction"
SEED = 0  # of the folds
CHANCE = 0.01  # that scores which tell nothing look like those of the other class


def fit_rule(
    data: Path,
    out: Path,
    *,
    target: str,
    metric: str,
    decision: Decision,
    constraint: str | None,
    confidence: float | None,
    groups: str | None,
    weight: str | None,
    positive: str | None,
    classes: list[str] | None,
    logits: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Do the work of `evalign decide` without a rule; its options are explained in `commands`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        check_metric(metric)
        with refused():
            check_promise("evalign decide", decision, constraint, confidence)
        source = TableFile(data)
        given = {"--target": target, "--weight": weight, "--groups": groups}
        for option, name in given.items():
            check_name(source, option, name)
        roles = [name for name in given.values() if name is not None]
        source.need(roles)
        table = source.read()
        labels = Labels.of(table, target, positive, source)
        found = class_columns(source, labels, classes, roles)
        absent = [name for name in found if name not in labels.names]
        if absent and decision == "tuned":  # it would give a class labels for which nothing speaks
            columns = listed([found[name] for name in absent])
            what = (
                f"{source} must have rows of every class that has a column. Got none for {columns}"
            )
            cure = "Add some, or pass --decision expected. If it is not a class, pass --classes."
            raise UsageError(f"{what}. {cure}")
        labels = labels.extended(absent)
        if positive is not None and len(labels.names) > 2:
            raise UsageError(f"--positive is for two classes. Got {listed(labels.names)}.")
        columns = [found[name] for name in labels.names if name in found]
        method: Method = "decision_function" if logits else "predict_proba"
        y = labels.encode(table, source)
        values = class_scores(table, source, columns, method)
        if len(columns) > 1 and seem_probabilities(values, columns, method):
            got = "Got probabilities, which add up to 1 in each row"
            what = f"Columns {listed(columns)} of {source} must hold logits"
            raise UsageError(f"{what}. {got}. Leave --logits out.")
        check_metric(metric, len(labels.values))  # of the classes that the columns are known to be
        oof = OutOfFoldScores(
            values,
            method,
            y,
            None if weight is None else read_weights(table, weight, source),
            np.zeros(len(y), dtype=np.int64),
            np.arange(len(y)),
        )
        for fold, (_, rows) in enumerate(held_out.splits(held_out.FOLDS, y, y, y, {}, SEED)):
            oof.fold[rows] = fold
        _check_gap(constraint, groups, labels.names)
        apart = None if groups is None else _groups(table, groups)
        wanted = RuleSettings(metric, decision, constraint, labels.names, confidence, apart)
        with refused(), warnings.catch_warnings(record=True) as told, _own_words():
            rule = wanted.rule(oof)
            results = _as_metric(evidence(oof, wanted, rule), metric)
        _introduce(spoken, source, labels, columns, roles)
        if logits and ((oof.values >= 0) & (oof.values <= 1)).all():
            cure = "If they are, leave --logits out."
            spoken.note(f"Note: columns {listed(columns)} look like probabilities. {cure}")
        _doubt_order(spoken, oof, labels, columns)
        if absent:
            spoken.note(f"Note: no row has the label {listed(absent)}.")
        for warning in told:
            spoken.note(f"Note: {warning.message}")
        if doubt := wanted.doubt(oof):
            spoken.note(f"Note: {doubt}")
        SavedRule(rule, labels, columns, method, source.decimal).write(out)
        spoken.result(
            _summary(results, rule, metric, len(y), out), *_shown(results, rule, metric, out)
        )


def apply_rule(path: Path, data: Path, out: Path, *, as_json: bool, quiet: bool) -> None:
    """Do the work of `evalign decide --rule`: the columns of DATA and the label."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        saved = SavedRule.read(path)
        source = TableFile(data, saved.decimal)
        source.need(saved.columns)
        if out.exists() and out.samefile(data):
            raise UsageError(f"--out must be another file than DATA. Got {out} twice.")
        if PREDICTION in saved.columns:
            what = f"{path} reads the column {PREDICTION!r}, which {out} is to hold the labels in"
            raise UsageError(f"{what}. Rename it, and fit the rule again.")
        schema = source.schema
        if PREDICTION in schema.names:
            spoken.note(f"Note: {out} has new labels in the column {PREDICTION!r} of {source}.")
            schema = schema.remove(schema.get_field_index(PREDICTION))
        schema = schema.append(pa.field(PREDICTION, saved.labels.type))
        count, doubted = 0, False
        with writing(out, schema) as write:
            for block in source.blocks():
                values = class_scores(block, source, saved.columns, saved.method, 1 + count)
                if not doubted and seem_probabilities(values, saved.columns, saved.method):
                    doubted = True
                    what = f"columns {listed(saved.columns)} look like probabilities"
                    cure = "If they are, fit a rule to probabilities, without --logits."
                    spoken.note(f"Note: {what}, but {path} was fitted to logits. {cure}")
                with _own_words():
                    codes = saved.rule(**as_argument(values, saved.method))
                parts = {name: block[name] for name in block.column_names}
                write(pa.table(parts | {PREDICTION: saved.labels.decode(codes)}, schema=schema))
                count += block.num_rows
            source.check_rows(count)
        warn_of_formulas(out, saved.labels)
        spoken.result({"rows": count, "out": str(out)}, f"Labelled {counted(count)}: {out}")


def _check_gap(constraint: str | None, groups: str | None, names: list[str]) -> None:
    """Refuse a gap without groups, and groups without a gap."""
    with refused():
        parts = () if constraint is None else parse(constraint, names, owner="evalign decide")
    gaps = [each.text for each in parts if each.gap]
    if gaps and groups is None:
        raise UsageError(f"{gaps[0]} needs groups of rows. Name their column with --groups.")
    if groups is not None and not gaps:
        what = "--groups is for a gap between them, and --constraint bounds none"
        raise UsageError(f'{what}. Leave it out, or pass --constraint "gap(recall) <= 0.05".')


def _groups(table: pa.Table, name: str) -> np.ndarray:
    """The groups of the rows, as strings; rows without one form one group."""
    return as_objects(as_text(table[name]).fill_null(""))


@contextmanager
def _own_words() -> Iterator[None]:
    """Keep back what the library says in words of Python about such columns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The logits of .* look like probabilities")
        yield


def _introduce(
    spoken: Terminal, source: TableFile, labels: Labels, columns: list[str], roles: list[str]
) -> None:
    """Say what the columns are taken for."""
    names = labels.names
    if len(columns) == 1:
        spoken.note(f"Column {columns[0]!r} is taken for the class {names[1]!r}.")
    else:
        spoken.note(f"{len(columns)} classes, in the columns {listed(columns)}.")
    left_out = [name for name in source.schema.names if name not in [*columns, *roles]]
    if left_out:
        spoken.note(f"Left out: {listed(left_out)}.")
    if len(names) == 2:
        spoken.note(f"The positive class is {names[1]!r}, the other one {names[0]!r}.")


def _doubt_order(
    spoken: Terminal, oof: OutOfFoldScores, labels: Labels, columns: list[str]
) -> None:
    """Say so if rows of the positive class have less of it than others: it may be the other's.

    By ranks, which extreme scores do not move, and beyond chance, as scores may tell nothing.
    """
    if len(labels.names) > 2 or len(np.unique(oof.y)) < 2:
        return
    ahead, (other, positive) = oof.values[:, 1] - oof.values[:, 0], labels.names
    ranks = mannwhitneyu(ahead[oof.y == 1], ahead[oof.y == 0], alternative="less")
    if ranks.pvalue < CHANCE:
        got = f"rows of {positive!r} mostly have lower scores of it than rows of {other!r}"
        cure = f"If {columns[0]!r} is of {other!r}, pass --positive {shlex.quote(other)}."
        if len(columns) == 2:
            cure = f"Look whether {listed(columns)} are in each other's place."
        spoken.note(f"Note: {got}. {cure}")


def _as_metric(results: dict[str, Any], metric: str) -> dict[str, Any]:
    """The results with the metric itself in the place of scores, which of a cost are negative."""
    results = results | {"greater_is_better": resolve(metric).greater_is_better}
    if not results["greater_is_better"]:
        for name in results:
            if name.endswith(("_score", "_scores")) and not name.startswith("std"):
                results[name] = -results[name]
    return results


def _summary(
    results: dict[str, Any], rule: DecisionRule, metric: str, rows: int, out: Path
) -> dict[str, Any]:
    """The result as JSON holds it; a number that is not known is null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        if isinstance(value, np.ndarray):
            return [plain(each) for each in value.tolist()]
        return None if isinstance(value, float) and not np.isfinite(value) else value

    left_out = ("thresholds", "threshold_scores")
    found = {name: plain(value) for name, value in results.items() if name not in left_out}
    if rule.slacks is not None:
        found |= {"slacks": rule.slacks, "promised": rule.promised}
    return {"out": str(out), "metric": metric, "rows": rows, "source": rule.source, **found}


def _shown(
    results: dict[str, Any], rule: DecisionRule, metric: str, out: Path
) -> list[Table | str]:
    """The result for a person."""
    table = Table("", metric, "deviation over folds", box=None, pad_edge=False)
    names = {"argmax": "most probable class", "rule": "the rule"}
    for key, name in names.items():
        mean, spread = results[f"mean_{key}_score"], results[f"std_{key}_score"]
        table.add_row(name, number(mean), number(spread))
    gain, low, high = (results[key] for key in ("gain", "gain_low", "gain_high"))
    verb = "brings" if results["greater_is_better"] else "saves"
    brings = f"The rule {verb} {number(gain)} (95% interval {number(low)} to {number(high)})"
    if not np.isfinite(gain):
        brings = "What the rule brings cannot be said"
    better = "The most probable class was better: you may do without the rule."
    slacks = []
    for text, slack in (rule.slacks or {}).items():
        met = results["fold_slacks"][text]
        met, known = int((met >= -ROUNDING).sum()), int(np.isfinite(met).sum())
        of_folds = f"{met} of {counted(known, 'fold')}"
        slacks.append(f"{text}: {number(slack)} to spare on all rows; met on {of_folds}.")
    if rule.promised is not None:
        word = "holds" if rule.promised else "is not shown to hold"
        slacks.append(f"On new rows it {word} with confidence {rule.confidence:g}.")
    threshold = f", threshold {results['threshold']:.4g}" if "threshold" in results else ""
    return [
        table,
        f"{brings} on rows that it was not fitted to.",
        *([better] if gain < 0 and rule.constraint is None else []),
        *slacks,
        f"Wrote {out} (found by: {rule.source}{threshold}).",
    ]
