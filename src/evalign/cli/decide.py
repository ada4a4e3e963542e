"""The work of `evalign decide`: fit a decision rule to a table of scores, or apply one."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from evalign.cli.dataset import read_weights, reading_of
from evalign.cli.errors import UsageError, refused
from evalign.cli.files import check_other
from evalign.cli.outcome import promise
from evalign.cli.terminal import Terminal
from evalign.core.metrics import resolve
from evalign.core.text import counted, listed
from evalign.decisions import DecisionRule
from evalign.decisions.fit_rows import check_promise
from evalign.decisions.inputs import FROM_ONE
from evalign.decisions.objective import ROUNDING
from evalign.decisions.saved_rule import RULE
from evalign.estimator import held_out
from evalign.estimator.evidence import RuleSettings, evidence
from evalign.estimator.out_of_fold import Method
from evalign.report.words import number, span
from evalign.store.files import read_json, reading, replacing, write_json
from evalign.tables.files import Reading, TableFile, numbers_in, writing
from evalign.tables.labels import Labels

SEED = 0  # of the folds
PREFIX = "probability_"  # of the columns that `evalign predict` writes
FLOAT32 = 4 * float(np.finfo(np.float32).eps)  # how far rounding goes beyond 0 and 1
METHODS: tuple[Method, Method] = ("predict_proba", "decision_function")  # with --logits


class SavedRule(NamedTuple):
    """A rule, the columns with its scores, and how to read the file that holds them.

    There is a column for each class, or one for the second of two classes.
    """

    rule: DecisionRule
    columns: list[str]
    logits: bool
    reading: Reading

    def write(self, path: Path) -> None:
        tree = self._asdict() | {"rule": self.rule.state_dict(), "reading": asdict(self.reading)}
        write_json(path, RULE, tree)

    @classmethod
    def read(cls, path: Path) -> "SavedRule":
        """Open a file, which may come from anyone."""
        tree = read_json(path, RULE)
        with reading(path):
            if "columns" not in tree:
                raise ValueError("it names no columns, as the file of `evalign decide` does")
            rule, how = DecisionRule.from_state_dict(tree["rule"]), reading_of(tree["reading"])
            saved = cls(**tree | {"rule": rule, "reading": how})
            classes, columns = len(rule.classes or ()), len(saved.columns)
            fit = columns == classes or (columns, classes) == (1, 2)
            if not fit or columns != len(set(saved.columns)) or rule.task == "multilabel":
                raise ValueError("its classes and columns do not fit together")
            return saved


def fit_rule(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign decide` without a rule."""
    metric, decision, groups, weight = given.metric, given.decision, given.groups, given.weight
    with refused():
        check_promise("evalign decide", decision, given.constraint, given.confidence)
    source = TableFile(given.data, reading_of(given.reading))
    roles = [name for name in (given.target, groups, weight) if name is not None]
    source.need(roles)
    table = source.read(text=[name for name in roles if name != weight])
    labels = Labels.of(table, given.target, given.positive, source)
    found = class_columns(source, labels, given.classes, roles)
    absent = [name for name in found if name not in labels.names]
    if absent and decision == "tuned":  # no label speaks for or against such a class
        what = f"{source} must have rows of every class that has a column"
        cure = "Add some, or pass --decision expected."
        raise UsageError(f"{what}. Got none of {listed(absent)}. {cure}")
    labels = labels.extended(absent)
    columns = [found[name] for name in labels.names if name in found]
    y, method = labels.encode(table, source), METHODS[given.logits]
    scores = class_scores(table, source, columns, logits=given.logits)
    mass = None if weight is None else read_weights(table, weight, source)
    whole = [(y[:0], np.arange(len(y)))]  # one part, which is cut into folds
    oof = held_out.gathered([scores], method, y, y, mass, whole, {}, SEED)
    apart = None if groups is None else table[groups].fillna("").astype(str).to_numpy(object)
    settings = RuleSettings(
        metric, decision, given.constraint, labels.values, given.confidence, apart
    )
    with refused():
        rule = settings.rule(oof)
        results = _as_metric(evidence(oof, settings, rule), metric)
    if labels.positive is not None:
        spoken.note(f"The positive class is {labels.names[1]!r}.")
    spoken.note(f"Columns of the classes: {listed(columns)}.")
    if doubt := settings.doubt(oof):
        spoken.warn(doubt)
    SavedRule(rule, columns, given.logits, source.reading).write(given.out)
    summary = {"out": str(given.out), "metric": metric, "rows": len(y), "source": rule.source}
    if rule.slacks is not None:
        summary |= {"slacks": rule.slacks, "promised": rule.promised}
    spoken.result(summary | results, *_shown(results, rule, metric, given.out))


def apply_rule(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign decide --rule`: write the columns of DATA and the label."""
    saved = SavedRule.read(given.rule)
    source = TableFile(given.data, reading_of(given.reading, asdict(saved.reading)))
    source.need(saved.columns)
    check_other(given.out, given.data)
    count = 0
    with replacing(given.out) as aside, writing(aside, given.out) as write:
        for block, raw in source.blocks():
            how = {"logits": saved.logits, "first_row": 1 + count}
            scores = class_scores(block, source, saved.columns, **how)
            codes = saved.rule(**{"logits" if saved.logits else "probabilities": scores})
            labels = np.array(saved.rule.classes)[codes]
            write(raw.drop(columns="prediction", errors="ignore").assign(prediction=labels))
            count += len(raw)
    spoken.labelled(count, given.out)


def _as_metric(results: dict[str, Any], metric: str) -> dict[str, Any]:
    """The results without their curve, and with costs, which are negative scores, as they are."""
    greater = resolve(metric).greater_is_better
    sign, scores = 1 if greater else -1, ("_score", "_scores")
    return {"greater_is_better": greater} | {
        name: sign * value if name.endswith(scores) and not name.startswith("std") else value
        for name, value in results.items()
        if name not in ("thresholds", "threshold_scores")
    }


def _shown(results: dict[str, Any], rule: DecisionRule, metric: str, out: Path) -> Iterator[str]:
    """The result for a person."""
    ours, argmax = (number(results[f"mean_{name}_score"]) for name in ("rule", "argmax"))
    verb = "gains" if results["greater_is_better"] else "saves"
    ends = span({"low": results["gain_low"], "high": results["gain_high"]})
    yield f"On rows it was not fitted to, {metric} is {ours} with the rule, {argmax} with argmax."
    yield f"The rule {verb} {number(results['gain'])} (95% interval {ends})."
    for text, slack in (rule.slacks or {}).items():
        folds = results["fold_slacks"][text]
        met, known = int((folds >= -ROUNDING).sum()), int(np.isfinite(folds).sum())
        of_folds = f"met on {met} of {counted(known, 'fold')}"
        yield f"{text}: {number(slack)} to spare on all rows; {of_folds}."
    if rule.promised is not None and rule.confidence is not None:
        yield f"On new rows it {promise(rule.promised, rule.confidence)}."
    threshold = f", threshold {results['threshold']:.4g}" if "threshold" in results else ""
    yield f"Wrote {out} (found by: {rule.source}{threshold})."


def class_columns(
    source: TableFile, labels: Labels, classes: str | None, roles: list[str]
) -> dict[str, str]:
    """The column of each class by the name of the class; of two, the positive one is enough.

    Columns are named `probability_<class>` or, if there are none such, after the class. A single
    column under any other name, besides the roles, is that of the positive class of two.
    """
    names, given = labels.names, [name for name in source.names if name not in roles]
    if classes is not None:
        known = [name.strip() for name in classes.split(",")]
        columns = {name: PREFIX + name if PREFIX + name in given else name for name in known}
        source.need(columns.values(), "--classes")
    else:
        prefixed = {name.removeprefix(PREFIX): name for name in given if name.startswith(PREFIX)}
        columns = prefixed or {name: name for name in given if name in names}
        if not columns and len(names) == 2 and len(given) == 1:
            columns = {names[1]: given[0]}
    missing = [name for name in names if name not in columns]
    if missing and (len(names) > 2 or list(columns) != names[1:]):
        what = "must have a column for each class, or for the positive one of two"
        cure = "Rename the columns, or name the positive class with --positive."
        raise UsageError(f"{source} {what}. It has none for {listed(missing)}. {cure}")
    return columns


def class_scores(
    table: pd.DataFrame, source: TableFile, columns: list[str], *, logits: bool, first_row: int = 1
) -> np.ndarray:
    """Probabilities or logits (N, C) of the columns; a single column is that of the second class.

    Probabilities that float32 rounded above 1 become 1.
    """
    allowed, low, high = "finite numbers", -np.inf, np.inf
    if not logits:
        allowed = "probabilities, from 0 to 1 (for logits, pass --logits)"
        low, high = -FLOAT32, 1 + FLOAT32
    parts = [numbers_in(table[name], source, allowed, low, high, first_row) for name in columns]
    values = np.stack(parts, 1) if logits else np.stack(parts, 1).clip(0, 1)
    if len(columns) == 1:
        values = np.concatenate([np.zeros_like(values) if logits else 1 - values, values], 1)
    sums = values.sum(1)
    if not logits and (off := np.abs(sums - 1) > FROM_ONE).any():
        row = int(np.argmax(off))
        what = f"Columns {listed(columns)} of {source} must add up to 1 in each row"
        got = f"Got {sums[row]:.4g} in row {first_row + row}"
        raise UsageError(f"{what}. {got}. Name all classes, and no others, with --classes.")
    return values
