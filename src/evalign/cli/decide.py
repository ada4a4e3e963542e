"""The work of `evalign decide`: fit a decision rule to a table of scores, or apply one."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evalign.cli.dataset import (
    label_blocks,
    named_classes,
    read_constraint_groups,
    read_groups,
    read_weights,
    reading_of,
)
from evalign.cli.errors import UsageError, refused
from evalign.cli.outcome import promise
from evalign.cli.terminal import Terminal
from evalign.core.metrics import resolve
from evalign.core.text import listed
from evalign.decisions import DecisionRule
from evalign.decisions.inputs import FROM_ONE
from evalign.decisions.saved_rule import read_state
from evalign.decisions.settings import FitSettings
from evalign.estimators.evidence import RuleSettings, evidence
from evalign.estimators.out_of_fold import Method, OutOfFoldScores, as_argument
from evalign.report.words import number, span
from evalign.store.files import reading
from evalign.tables.files import TableFile, numbers_in
from evalign.tables.labels import Labels

SEED = 0  # of the folds
PREFIX = "probability_"  # of the columns that `evalign predict` writes
METHODS: tuple[Method, Method] = ("predict_proba", "decision_function")  # with --logits


def fit_rule(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign decide` without a rule."""
    metric = given.metric
    source = TableFile(given.data, reading_of(given.reading))
    texts = [given.target, given.groups, given.constraint_groups]
    texts = [name for name in dict.fromkeys(texts) if name is not None]
    source.need([*texts, *filter(None, [given.weight])])
    table = source.read(text=texts)
    labels = Labels.of(table, given.target, given.positive, source, named_classes(given))
    names = labels.columns
    positive = 1 if labels.positive is None else names.index(labels.positive)
    columns = class_columns(source, [str(name) for name in names], positive)
    y = np.array([names.index(label) for label in labels.values])[labels.encode(table, source)]
    weight = read_weights(table, given.weight, source)
    scores = class_scores(table, source, columns, positive, logits=given.logits)
    whole = [(y[:0], np.arange(len(y)))]  # one part, which is cut into folds
    method = METHODS[given.logits]
    oof = OutOfFoldScores.gathered(
        [scores],
        method,
        y,
        weight,
        whole,
        groups=read_groups(table, given.groups, source),
        constraint_groups=read_constraint_groups(table, given.constraint_groups),
        seed=SEED,
    )
    goal = {name: getattr(given, name) for name in ("decision", "constraint", "confidence")}
    roles = {"order": labels.order, "pos_label": labels.positive}
    settings = RuleSettings(metric, classes=names, **goal, **roles)
    with refused():
        FitSettings("evalign decide", metric, classes=names, **goal, **roles)  # checks them
        rule, results = evidence(oof, settings)
        results = _in_units_of_the_metric(results, metric)
    if labels.positive is not None:
        spoken.note(f"The positive class is {labels.names[1]!r}.")
    if doubt := settings.doubt(oof):
        spoken.warn(doubt)
    rule.save(given.out)
    summary = {"out": str(given.out), "metric": metric, "rows": len(y), "source": rule.source}
    if rule.slacks is not None:
        summary |= {"slacks": rule.slacks, "promised": rule.promised}
    spoken.result(summary | results, *_shown(results, rule, metric, given.out))


def apply_rule(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign decide --rule`: write the columns of DATA and the label."""
    with reading(given.rule):  # it may come from anyone
        rule = DecisionRule.from_state_dict(read_state(given.rule))
        if rule.classes is None or rule.task == "multilabel":
            raise ValueError("its labels have no names, or are several in a row")
    source = TableFile(given.data, reading_of(given.reading))
    columns = class_columns(source, [str(name) for name in rule.classes], rule.positive)
    method = METHODS[given.logits]

    def label(block: pd.DataFrame, before: int) -> dict[str, Any]:
        scores = class_scores(
            block, source, columns, rule.positive, logits=given.logits, before=before
        )
        return {"prediction": rule(**as_argument(scores, method))}

    label_blocks(spoken, given, source.blocks(), label)


def _in_units_of_the_metric(results: dict[str, Any], metric: str) -> dict[str, Any]:
    """The results of `evidence`, with costs as they are: it negates them."""
    greater = resolve(metric).greater_is_better
    means = [name for name in results if name.endswith(("_score", "_scores"))]
    negated = {} if greater else {name: -results[name] for name in means}
    return {"greater_is_better": greater, **results, **negated}


def _shown(results: dict[str, Any], rule: DecisionRule, metric: str, out: Path) -> Iterator[str]:
    """Show the results to a person."""
    ours, argmax = (number(results[f"mean_{name}_score"]) for name in ("rule", "argmax"))
    verb = "gains" if results["greater_is_better"] else "saves"
    ends = span({"low": results["gain_low"], "high": results["gain_high"]})
    yield f"On rows it was not fitted to, {metric} is {ours} with the rule, {argmax} with argmax."
    yield f"The rule {verb} {number(results['gain'])} (95% interval {ends})."
    for text, slack in (rule.slacks or {}).items():
        held_out = number(results["held_out_slacks"][text])
        yield f"{text}: {number(slack)} to spare, {held_out} on rows the rule was not fitted to."
    if rule.promised is not None and rule.confidence is not None:
        yield f"On new rows it {promise(rule.promised, rule.confidence)}."
    threshold = f", threshold {results['threshold']:.4g}" if "threshold" in results else ""
    yield f"Wrote {out} (found by: {rule.source}{threshold})."


def class_columns(source: TableFile, names: list[str], positive: int) -> list[str]:
    """The columns of the classes: `probability_<class>` or, if there is none, `<class>`.

    Of two classes, that of the positive one is enough, which has this place.
    """
    prefix = PREFIX if any(name.startswith(PREFIX) for name in source.names) else ""
    columns = [f"{prefix}{name}" for name in names]
    if len(names) == 2 and columns[1 - positive] not in source.names:
        del columns[1 - positive]
    if missing := [name for name in columns if name not in source.names]:
        what = "must have a column for each class, or for the positive one of two"
        cure = "Rename the columns, or name the positive class with --positive."
        raise UsageError(f"{source} {what}. It has no {listed(missing)}. {cure}")
    return columns


def class_scores(
    table: pd.DataFrame,
    source: TableFile,
    columns: list[str],
    positive: int,
    *,
    logits: bool,
    before: int = 0,
) -> np.ndarray:
    """Probabilities or logits (N, C) of the columns; a single one is that of the positive class.

    Errors count rows from those `before`.
    """
    row, allowed, low, high = 1 + before, "finite numbers", -np.inf, np.inf
    if not logits:
        allowed = "probabilities, from 0 to 1 (for logits, pass --logits)"
        low, high = -FROM_ONE, 1 + FROM_ONE
    parts = [numbers_in(table[name], source, allowed, low, high, row) for name in columns]
    values = np.stack(parts, 1)
    if len(columns) == 1:
        pair = [np.zeros_like(values) if logits else 1 - values, values]
        values = np.concatenate(pair if positive == 1 else pair[::-1], 1)
    sums = values.sum(1)
    if not logits and (off := np.abs(sums - 1) > FROM_ONE).any():
        what = f"Columns {listed(columns)} of {source} must add up to 1 in each row"
        got = f"Got {sums[off][0]:.4g} in row {row + off.argmax()}"
        raise UsageError(f"{what}. {got}. Each class needs rows, and a column named after it.")
    return values
