"""The work of `evalign decide`: a decision rule for a table of probabilities, and its use."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from evalign.cli.dataset import read_weights, reading_of
from evalign.cli.errors import UsageError, refused
from evalign.cli.files import replacing
from evalign.cli.metrics import check_metric
from evalign.cli.saved_rule import SavedRule
from evalign.cli.scores import class_columns, class_scores
from evalign.cli.terminal import terminal
from evalign.core.metrics import resolve
from evalign.core.text import counted, listed
from evalign.decisions import Decision, DecisionRule
from evalign.decisions.fit_rows import check_promise
from evalign.decisions.objective import ROUNDING
from evalign.estimator import held_out
from evalign.estimator.evidence import RuleSettings, evidence
from evalign.estimator.out_of_fold import Method, OutOfFoldScores, as_argument
from evalign.report.words import number
from evalign.tables.classes import Labels
from evalign.tables.files import TableFile, writing

PREDICTION = "prediction"
SEED = 0  # of the folds


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
    classes: str | None,
    logits: bool,
    as_json: bool,
    quiet: bool,
    **reading: Any,
) -> None:
    """Do the work of `evalign decide` without a rule; its options are explained in `commands`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        check_metric(metric)
        with refused():
            check_promise("evalign decide", decision, constraint, confidence)
        source = TableFile(data, reading_of(reading))
        given = {"--target": target, "--weight": weight, "--groups": groups}
        given = {option: name for option, name in given.items() if name is not None}
        for option, name in given.items():
            source.need([name], option)
        roles = list(given.values())
        table = source.read(text=[name for name in (target, groups) if name is not None])
        labels = Labels.of(table, target, positive, source)
        known = None if classes is None else [name.strip() for name in classes.split(",")]
        found = class_columns(source, labels, known, roles)
        absent = [name for name in found if name not in labels.names]
        if absent and decision == "tuned":  # nothing would speak for or against such a class
            what = f"{source} must have rows of every class that has a column"
            cure = "Add some, or pass --decision expected."
            raise UsageError(f"{what}. Got none of {listed(absent)}. {cure}")
        labels = labels.extended(absent)
        check_metric(metric, len(labels.values))
        columns = [found[name] for name in labels.names if name in found]
        method: Method = "decision_function" if logits else "predict_proba"
        y = labels.encode(table, source)
        oof = OutOfFoldScores(
            class_scores(table, source, columns, method),
            method,
            y,
            None if weight is None else read_weights(table, weight, source),
            np.zeros(len(y), dtype=np.int64),
            np.arange(len(y)),
        )
        for fold, (_, rows) in enumerate(held_out.splits(held_out.FOLDS, y, y, y, {}, SEED)):
            oof.fold[rows] = fold
        apart = None if groups is None else table[groups].fillna("").astype(str).to_numpy(object)
        wanted = RuleSettings(metric, decision, constraint, labels.names, confidence, apart)
        with refused():
            rule = wanted.rule(oof)
            results = _as_metric(evidence(oof, wanted, rule), metric)
        if len(labels.names) == 2:
            spoken.note(f"The positive class is {labels.names[1]!r}.")
        spoken.note(f"Columns of the classes: {listed(columns)}.")
        if doubt := wanted.doubt(oof):
            spoken.note(f"Note: {doubt}")
        SavedRule(rule, labels, columns, method, source.reading).write(out)
        summary = {"out": str(out), "metric": metric, "rows": len(y), "source": rule.source}
        if rule.slacks is not None:
            summary |= {"slacks": rule.slacks, "promised": rule.promised}
        curve = ("thresholds", "threshold_scores")
        summary |= {name: _plain(value) for name, value in results.items() if name not in curve}
        spoken.result(summary, *_shown(results, rule, metric, out))


def apply_rule(
    rule: Path, data: Path, out: Path, *, as_json: bool, quiet: bool, **reading: Any
) -> None:
    """Do the work of `evalign decide --rule`: the columns of DATA and the label."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        saved = SavedRule.read(rule)
        source = TableFile(data, reading_of(reading, asdict(saved.reading)))
        source.need(saved.columns)
        if out.exists() and out.samefile(data):
            raise UsageError(f"--out must be another file than DATA. Got {out} twice.")
        count = 0
        with replacing(out) as aside, writing(aside, out) as write:
            for block, raw in source.blocks():
                values = class_scores(block, source, saved.columns, saved.method, 1 + count)
                codes = saved.rule(**as_argument(values, saved.method))
                kept = raw.drop(columns=PREDICTION, errors="ignore")
                write(kept.assign(**{PREDICTION: saved.labels.decode(codes)}))
                count += len(raw)
        spoken.result({"rows": count, "out": str(out)}, f"Labelled {counted(count)}: {out}")


def _as_metric(results: dict[str, Any], metric: str) -> dict[str, Any]:
    """The results with the metric itself in the place of scores, which of a cost are negative."""
    greater = resolve(metric).greater_is_better
    sign = 1 if greater else -1
    scores = ("_score", "_scores")
    return {"greater_is_better": greater} | {
        name: sign * value if name.endswith(scores) and not name.startswith("std") else value
        for name, value in results.items()
    }


def _plain(value: Any) -> Any:
    """A result as JSON holds it; a number that is not known is null."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(each) for each in value.tolist()]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _shown(
    results: dict[str, Any], rule: DecisionRule, metric: str, out: Path
) -> list[Table | str]:
    """The result for a person."""
    table = Table("", metric, "deviation over folds", box=None, pad_edge=False)
    for key, name in {"argmax": "most probable class", "rule": "the rule"}.items():
        mean, spread = results[f"mean_{key}_score"], results[f"std_{key}_score"]
        table.add_row(name, number(mean), number(spread))
    gain, low, high = (results[key] for key in ("gain", "gain_low", "gain_high"))
    verb = "gains" if results["greater_is_better"] else "saves"
    said = f"The rule {verb} {number(gain)} (95% interval {number(low)} to {number(high)})"
    lines: list[Table | str] = [table, f"{said} on rows that it was not fitted to."]
    if gain < 0 and rule.constraint is None:
        lines.append("The most probable class was better: you may do without the rule.")
    for text, slack in (rule.slacks or {}).items():
        folds = results["fold_slacks"][text]
        met, known = int((folds >= -ROUNDING).sum()), int(np.isfinite(folds).sum())
        of_folds = f"met on {met} of {counted(known, 'fold')}"
        lines.append(f"{text}: {number(slack)} to spare on all rows; {of_folds}.")
    if rule.promised is not None:
        word = "holds" if rule.promised else "is not shown to hold"
        lines.append(f"On new rows it {word} with confidence {rule.confidence:g}.")
    threshold = f", threshold {results['threshold']:.4g}" if "threshold" in results else ""
    return [*lines, f"Wrote {out} (found by: {rule.source}{threshold})."]
