"""The first part of the page: the answer, the rule, what the methods reach, the candidates."""

from html import escape
from typing import Any

from evalign.core.resampling import FEW, RESAMPLES
from evalign.core.text import counted, visible
from evalign.report import figures
from evalign.report.contents import Contents
from evalign.report.figures import KINDS
from evalign.report.markup import bullets, framed, paragraph, section, table
from evalign.report.words import number, probability, rule_in_words, span

# With fewer groups than this, resampling them says little.
FEW_GROUPS = 30
# Classes in a table, at most.
LISTED = 200
ARGMAX_KINDS = ("s2", "s3")  # in `page.css`, of the models' most probable labels

Scores = dict[str, Any]  # of `evalign.report.scores`


def answered(contents: Contents, scores: Scores) -> str:
    """Whether it helped and what to do; the number; the rule; what was warned of."""
    found, own = scores["answer"], scores["methods"][0]
    weighted = "" if contents.weight is None else "weighted "
    what = (
        f"{contents.metric_name} of {own['name']} on {scores['rows']:,} {weighted}{contents.kind}"
    )
    positive = f", positive class {contents.classes[1]}" if len(contents.classes) == 2 else ""
    parts = [
        "<header>",
        f"<h1>{escape(found['sentence'])}</h1>",
        paragraph(" ".join(found["next"]), "next") if found["next"] else "",
        f'<p class="headline"><strong>{number(own["value"])}</strong><span>'
        f"{escape(f'{what}, 95% interval {span(own)}{positive}')}</span></p>",
        "</header>",
    ]
    if contents.seen:
        text = "This is not a test: the models were trained on these rows, or chosen by them."
        parts.append(f"<p><strong>{text}</strong> The scores are too good.</p>")
    if not scores["greater_is_better"]:
        parts.append(paragraph(f"Lower is better: {contents.metric}.", "quiet"))
    parts += [
        _notes(contents),
        _rule(contents),
        _methods(contents, scores),
        _without_scarce(contents, scores),
    ]
    return "\n".join(
        [*parts, paragraph(_about_intervals(contents, scores), "quiet"), _others(scores)]
    )


def _notes(contents: Contents) -> str:
    notes = contents.findings.notes if contents.findings else []
    return bullets((f"Note: {visible(note)}" for note in notes), "notes")


def _rule(contents: Contents) -> str:
    findings = contents.findings
    if findings is None:
        return ""
    if len(contents.classes) == 2:
        words = (rule_in_words(contents, i) for i in range(len(contents.models)))
        return paragraph(" ".join(words))
    if all(cut is None for cuts in findings.cuts for cut in cuts):
        return ""
    against = contents.classes[findings.against]
    text = (
        f"The rule: a class is the label from this probability on, where all of the rest is "
        f"that of {against}, the most frequent class. Without a rule it would be 0.5."
    )
    rows = [
        [name, *("–" if cut is None else probability(cut) for cut in cuts)]
        for name, *cuts in zip(contents.classes, *findings.cuts, strict=True)
    ]
    del rows[findings.against]
    return table(text, ["", *(model.label for model in contents.models)], rows[:LISTED])


def _methods(contents: Contents, scores: Scores) -> str:
    """The methods as a figure and a table, but for those with the labels of another."""
    methods = scores["methods"]
    names = {method["key"]: method["name"] for method in methods}
    rows, same = [], []
    differences = {d["against"]: d for d in scores["differences"]}
    for method in methods:
        if method["same_as"]:
            same.append(f"{method['name']} gives the same labels as {names[method['same_as']]}")
            continue
        row = [method["name"], (number(method["value"]), span(method))]
        d = differences.get(method["key"])
        rows.append([*row, "" if d is None else (number(d["value"]), span(d))])
    words = "".join(paragraph(f"{text}.") for text in same)
    if len(rows) == 1:
        return words
    kinds = dict(zip(contents.keys, KINDS, strict=False))
    kinds |= dict(zip((f"{key}_argmax" for key in contents.keys), ARGMAX_KINDS, strict=False))
    shown = [method for method in methods if not method["same_as"]]
    text = "; ".join(f"{m['name']} {number(m['value'])} ({span(m)})" for m in shown)
    figure = figures.intervals("intervals", text, shown, [kinds[m["key"]] for m in shown])
    caption = (
        f"Values and 95% intervals; a difference is {contents.aligned.label} minus the other. "
        "Labels are by a model's decision rule or, with argmax, its most probable class."
    )
    head = ["", contents.metric_name, "difference"]
    return f"{framed(figure)}{table(caption, head, rows)}{words}"


def _without_scarce(contents: Contents, scores: Scores) -> str:
    found = scores["scarce"]
    if not found["classes"]:
        return ""
    few = [f"{visible(name)} ({rows})" for name, rows in found["classes"].items()]
    few = few if len(few) <= 10 else [*few[:10], f"{len(few) - 10} more"]
    text = f"Classes with fewer than {FEW} {contents.kind}: {', '.join(few)}. "
    text += "What is said of them is rough."
    if found["values"] is not None:
        names = {m["key"]: m["name"] for m in scores["methods"] if not m["same_as"]}
        values = (f"{number(found['values'][key])} by {name}" for key, name in names.items())
        text += f" Without them {contents.metric_name} is {', '.join(values)}."
    return paragraph(text)


def _about_intervals(contents: Contents, scores: Scores) -> str:
    groups = scores["groups"]
    what = (
        f"the {contents.kind} of each class"
        if groups is None
        else f"the {counted(groups, 'group')} of {contents.kind}"
    )
    text = (
        f"Intervals come from {RESAMPLES:,} resamples of {what}, the same for all methods. "
        "They tell how far other rows could move these models' scores, not how another "
        "training run would come out."
    )
    if groups is not None and groups < FEW_GROUPS:
        text += " Groups are few: take the intervals as rough."
    if any(m["low"] == m["high"] for m in scores["methods"]):
        text += " An interval without width means that the resamples did not differ."
    return text


def _others(scores: Scores) -> str:
    methods = [method for method in scores["methods"] if not method["same_as"]]
    rows = [
        [name, *(number(values[method["key"]]) for method in methods)]
        for name, values in scores["others"].items()
    ]
    head = ["", *(method["name"] for method in methods)]
    return table("Other metrics of the same labels.", head, rows)


def candidates(contents: Contents, scores: Scores) -> str:
    """What each candidate reaches, with and without a rule."""
    if contents.tried is None:
        return ""
    found, rows = scores["tried"], []
    for row in found["rows"]:
        cells = [row["candidate"], f"{row['weight']:.2f}"]
        for stem in ("rule_score", "argmax_score", "gain"):
            ends = {"low": row[f"{stem}_low"], "high": row[f"{stem}_high"]}
            cells.append((number(row[stem]), span(ends)))
        rows.append(cells)
    text = (
        f"{contents.metric_name} of the training rows, each by models that have not seen it and a "
        "rule that was fitted without it, with 95% intervals."
    )
    head = ["", "weight", "with its rule", "with argmax", "behind by"]
    if len(rows) == 1:  # not behind itself
        rows, head = [rows[0][:-1]], head[:-1]
    else:
        rows[-1][-1] = ""
        text += (
            " The last line is chosen anew for each part of the rows, by the others, so that it "
            "is not too good for having been chosen."
        )
    left_out = (f"{name} was left out: {why}." for name, why in found["left_out"].items())
    return section(
        "Candidates",
        paragraph(found["verdict"]),
        table(text, head, rows),
        bullets(left_out),
    )
