"""The work of `evalign decide`: a decision rule for a table of probabilities, and its use."""

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from rich.table import Table

from evalign.cli.columns import as_numbers
from evalign.cli.dataset import check_metric, check_name, read_weights
from evalign.cli.errors import UsageError, listed, refused
from evalign.cli.files import replacing
from evalign.cli.labels import Labels, warn_of_formulas
from evalign.cli.tables import TableFile, is_usable, writing
from evalign.cli.terminal import Terminal, terminal
from evalign.decisions import Decision, DecisionRule
from evalign.decisions.inputs import FROM_ONE, look_like_probabilities
from evalign.estimator import held_out
from evalign.estimator.answers import Answers, Method, as_argument
from evalign.estimator.evidence import Wanted, evidence
from evalign.report.summary import number
from evalign.training.checkpoint import WRONG_TREE, read_plain

FORMAT = "evalign rule"
VERSION = 1
LARGEST = 2**28  # bytes of a rule: a gain matrix of a thousand classes takes a tenth of it
PREFIX = "probability_"  # of the columns that `evalign predict` writes
PREDICTION = "prediction"
SEED = 0  # of the folds
ROUNDED = 4 * float(np.finfo(np.float32).eps)  # text does not tell what its numbers were


@dataclass(frozen=True)
class SavedRule:
    """A rule with what it needs to label a table.

    Args:
        rule: from scores to class codes.
        labels: the classes, in the order of the codes.
        columns: those of the classes; one alone is of the last class of two.
        method: "predict_proba" for probabilities, "decision_function" for logits.
    """

    rule: DecisionRule
    labels: Labels
    columns: list[str]
    method: Method

    def write(self, path: Path) -> None:
        tree = {
            "format": FORMAT,
            "version": VERSION,
            "target": self.labels.column,
            "labels": list(self.labels.values),
            "columns": self.columns,
            "logits": self.method == "decision_function",
            "rule": self.rule.state_dict(),
        }
        with replacing(path) as aside:
            aside.write_text(json.dumps(tree, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "SavedRule":
        """Open a file, which may come from anyone: nothing in it is trusted."""
        try:
            tree = json.loads(read_plain(path, LARGEST))
        except (ValueError, OSError, RecursionError) as error:
            raise UsageError(f"{path} cannot be read: {error}.") from error
        if not isinstance(tree, dict) or tree.get("format") != FORMAT:
            cure = "Give the file that `evalign decide --target` wrote."
            raise UsageError(f"{path} is not a rule of evalign. {cure}")
        if tree.get("version") != VERSION:
            got, cure = tree.get("version"), "Use it with the version of evalign that wrote it."
            raise UsageError(f"{path} has format version {got}, this is {VERSION}. {cure}")
        try:
            rule = DecisionRule.from_state_dict(tree["rule"])
            values, columns, logits = tree["labels"], tree["columns"], tree["logits"]
            kinds, lists = {type(value) for value in values}, {type(values), type(columns)}
            number, one = len(rule.gain), len(columns) == 1
            "".join(value for value in values if type(value) is str).encode()  # whether one can
            sound = [
                len(kinds) == 1 and kinds <= {str, int, float},
                len(set(values)) == len(values) == number > 1,
                all(type(name) is str for name in [*columns, tree["target"]]),
                len(set(columns)) == len(columns) == (1 if one and number == 2 else number),
                lists == {list} and type(logits) is bool,
                rule.class_dim in (1, -1),
                all(math.isfinite(value) for value in values if type(value) is float),
                not any(type(value) is int and abs(value) >= 2**63 for value in values),
                rule.task in ("binary", "multiclass"),
            ]
            if not all(sound):
                raise ValueError("its labels, columns and gains do not fit together")
        except WRONG_TREE as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise UsageError(f"{path} is damaged: {why}. Fit the rule again.") from error
        method: Method = "decision_function" if logits else "predict_proba"
        return cls(rule, Labels(tree["target"], tuple(values)), list(columns), method)


def fit_rule(
    data: Path,
    out: Path,
    *,
    target: str,
    metric: str,
    decision: Decision,
    constraint: str | None,
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
        source = TableFile(data)
        for option, name in {"--target": target, "--weight": weight}.items():
            check_name(source, option, name)
        source.need([name for name in (target, weight) if name is not None])
        table = source.read()
        labels = Labels.of(table, target, positive, source)
        labels = labels.extended(classes or [])
        check_metric(metric, len(labels.values))
        roles = [name for name in (target, weight) if name is not None]
        columns = _columns(source, labels, classes, roles)
        method: Method = "decision_function" if logits else "predict_proba"
        y = labels.encode(table, source)
        answers = Answers(
            _scores(table, source, columns, method),
            method,
            y,
            None if weight is None else read_weights(table, weight, source),
            np.zeros(len(y), dtype=np.int64),
            np.arange(len(y)),
        )
        for fold, (_, rows) in enumerate(held_out.splits(held_out.FOLDS, y, y, y, {}, SEED)):
            answers.fold[rows] = fold
        wanted = Wanted(metric, decision, constraint, labels.names)
        with refused(), _own_words():
            rule = wanted.rule(answers)
            results = evidence(answers, wanted, rule)
        _introduce(spoken, source, labels, columns, roles)
        if _not_logits(answers.values, columns, method):
            cure = "If they are, leave --logits out."
            spoken.note(f"Note: columns {listed(columns)} look like probabilities. {cure}")
        if doubt := wanted.doubt(answers):
            spoken.note(f"Note: {doubt}")
        SavedRule(rule, labels, columns, method).write(out)
        spoken.result(
            _summary(results, rule, metric, len(y), out), *_shown(results, rule, metric, out)
        )


def apply_rule(path: Path, data: Path, out: Path, *, as_json: bool, quiet: bool) -> None:
    """Do the work of `evalign decide --rule`: the columns of DATA and the label."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        saved, source = SavedRule.read(path), TableFile(data)
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
                values = _scores(block, source, saved.columns, saved.method, 1 + count)
                if not doubted and _not_logits(values, saved.columns, saved.method):
                    doubted = True
                    what = f"columns {listed(saved.columns)} look like probabilities"
                    cure = "If they are, fit a rule to probabilities, without --logits."
                    spoken.note(f"Note: {what}, but {path} was fitted to logits. {cure}")
                with _own_words():
                    codes = saved.rule(**as_argument(values, saved.method))
                parts = {name: block[name] for name in block.column_names}
                write(pa.table(parts | {PREDICTION: saved.labels.decode(codes)}, schema=schema))
                count += block.num_rows
            if not count:
                raise UsageError(f"{source} holds no rows.")
        warn_of_formulas(out, saved.labels)
        spoken.result({"rows": count, "out": str(out)}, f"Labelled {count} rows: {out}")


def _not_logits(values: np.ndarray, columns: list[str], method: Method) -> bool:
    """Whether the columns of logits seem to be probabilities."""
    given = torch.from_numpy(values[:, -len(columns) :])
    return method == "decision_function" and look_like_probabilities(given, False)


@contextmanager
def _own_words() -> Iterator[None]:
    """Keep back what the library says in words of Python about such columns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The logits of .* look like probabilities")
        yield


def _columns(
    source: TableFile, labels: Labels, classes: list[str] | None, roles: list[str]
) -> list[str]:
    """The column of each class, or that of the positive one of two alone."""
    if classes is not None:
        for name in classes:
            check_name(source, "--classes", name)
        missing = [name for name in labels.names if name not in classes]
        if missing:
            what = f"--classes must name a column for each label of {labels.column!r}"
            raise UsageError(f"{what}. It lacks {listed(missing)}.")
        if len(set(classes)) < len(classes):
            raise UsageError(f"--classes must name each column once. Got {listed(classes)}.")
        return labels.names
    found = [name for name in source.schema.names if name not in roles]
    for names in (labels.names, [PREFIX + name for name in labels.names]):
        if set(names) <= set(found):
            return names
        if len(names) == 2 and names[1] in found:
            return names[1:]
    numeric = [name for name in found if is_usable(source.schema.field(name).type)]
    if len(labels.names) == 2 and len(numeric) == 1:
        negative = labels.names[0]
        if numeric[0] in (negative, PREFIX + negative):
            what = (
                f"Column {numeric[0]!r} holds the probability of {negative!r}, not of the positive"
            )
            raise UsageError(f"{what} class {labels.names[1]!r}. Pass --positive {negative}.")
        return numeric
    missing = [name for name in labels.names if name not in found and PREFIX + name not in found]
    allowed = "a column with the probability of each class, named as the class"
    also = "" if len(labels.names) > 2 else " (or one column, of the positive class)"
    got = f"It has none for {listed(missing or labels.names)}, but {listed(found)}"
    raise UsageError(f"{source} must have {allowed}{also}. {got}. Rename the columns.")


def _introduce(
    spoken: Terminal, source: TableFile, labels: Labels, columns: list[str], roles: list[str]
) -> None:
    """Say what the columns are taken for."""
    names = labels.names
    if len(columns) == 1:
        spoken.note(f"Column {columns[0]!r} is taken for the class {names[1]!r}.")
    else:
        spoken.note(f"{len(columns)} classes: {listed(columns)}.")
    left_out = [name for name in source.schema.names if name not in [*columns, *roles]]
    if left_out:
        spoken.note(f"Left out: {listed(left_out)}.")
    if len(names) == 2:
        spoken.note(f"The positive class is {names[1]!r}, the other one {names[0]!r}.")


def _scores(
    table: pa.Table, source: TableFile, columns: list[str], method: Method, first_row: int = 1
) -> np.ndarray:
    """The numbers of the classes' columns (N, C). Refuse what cannot be probabilities."""
    source.need(columns)
    parts = []
    for name in columns:
        values, wrong = as_numbers(table[name])
        missing = wrong | np.isnan(values)
        wrong, allowed = missing, "finite numbers"
        if method == "predict_proba":
            inside = np.clip(values, 0, 1)
            values = np.where(np.abs(values - inside) <= ROUNDED, inside, values)
            wrong, allowed = missing | (values != inside), "probabilities, from 0 to 1"
        if wrong.any():
            row = int(np.argmax(wrong))
            got = f"Got {str(table[name][row].as_py())!r} in row {first_row + row}"
            cure = "If these are logits, fit the rule with --logits."
            if missing[row]:
                cure = "Fill it in, or remove the row."
            raise UsageError(f"Column {name!r} of {source} must hold {allowed}. {got}. {cure}")
        parts.append(values)
    if len(parts) == 1:
        first = 1 - parts[0] if method == "predict_proba" else np.zeros_like(parts[0])
        return np.stack([first, parts[0]], 1)
    values = np.stack(parts, 1)
    if method == "predict_proba":
        total = values.sum(1)
        wrong = np.abs(total - 1) > FROM_ONE
        if wrong.any():
            row = int(np.argmax(wrong))
            what = f"Columns {listed(columns)} of {source} must add up to 1 in each row"
            got = f"Got {total[row]:.4g} in row {first_row + row}"
            cure = "If these are logits, fit the rule with --logits."
            raise UsageError(f"{what}. {got}. {cure}")
    return values


def _summary(
    results: dict[str, Any], rule: DecisionRule, metric: str, rows: int, out: Path
) -> dict[str, Any]:
    """The result as JSON holds it; a number that is not known is null."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [plain(each) for each in value.tolist()]
        return None if isinstance(value, float) and not np.isfinite(value) else value

    left_out = ("thresholds", "threshold_scores")
    found = {name: plain(value) for name, value in results.items() if name not in left_out}
    if rule.slacks is not None:
        found["slacks"] = rule.slacks
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
    brings = f"The rule brings {number(gain)} (95% interval {number(low)} to {number(high)})"
    if not np.isfinite(gain):
        brings = "What the rule brings cannot be said"
    better = "The most probable class was better: you may do without the rule."
    slacks = [
        f"{text}: {number(slack)} to spare on all rows."
        for text, slack in (rule.slacks or {}).items()
    ]
    threshold = f", threshold {results['threshold']:.4g}" if "threshold" in results else ""
    return [
        table,
        f"{brings} on rows that it was not fitted to.",
        *([better] if gain < 0 else []),
        *slacks,
        f"Wrote {out} (found by: {rule.source}{threshold}).",
    ]
