"""The HTML page: numbers and words here, looks in `page.css`, the slider in `page.js`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

from evalign.core.resampling import RESAMPLES
from evalign.core.text import visible
from evalign.report import figures
from evalign.report.contents import Contents
from evalign.report.curves import BINS, SHOWN, precision_recall
from evalign.report.summary import number

# With more classes than this, the table gets a scroll bar of its own.
TALL = 20
# With fewer groups than this, resampling them says little.
FEW_GROUPS = 30
COUNTS = {
    "tp": "true positives",
    "fp": "false positives",
    "fn": "false negatives",
    "tn": "true negatives",
}


def render(contents: Contents, scores: dict[str, Any]) -> str:
    """The whole page, one HTML file that fetches nothing; `scores` are those of the contents."""
    page = _Page(replace(contents, classes=[visible(name) for name in contents.classes]), scores)
    body = "\n".join(
        [
            page.result(),
            page.tried(),
            page.confusion(),
            page.per_class(),
            page.precision_recall(),
            page.reliability(),
            page.training(),
            page.cards(),
            "<noscript><p>The figures and the slider need JavaScript.</p></noscript>",
        ]
    )
    data = {
        "figures": {name: figure.to_dict() for name, figure in page.figures.items()},
        "curves": page.curves,
        "weighted": contents.weight is not None,
    }
    return Template(asset("page.html")).substitute(
        title=escape(f"{page.metric} of {contents.aligned.label}: evalign report"),
        css=asset("page.css"),
        body=visible(body, keep="\n"),
        data=to_json_plotly(data),  # which escapes "<": no name can end the script element
        plotly=get_plotlyjs(),
        script=asset("page.js"),
    )


class _Page:
    """The sections, each a string; the figures they place are gathered on the way."""

    def __init__(self, contents: Contents, scores: dict[str, Any]) -> None:
        self.contents, self.scores = contents, scores
        self.metric = contents.metric.split("[")[0]  # a cost without its matrix
        self.curves = precision_recall(contents)
        self.figures: dict[str, go.Figure] = {}
        self.keys = contents.keys

    def result(self) -> str:
        scores, contents = self.scores, self.contents
        best, methods = scores["methods"][0], scores["methods"]
        verdicts = "".join(f"<li>{escape(d['verdict'])}</li>" for d in scores["differences"])
        weighted = "" if contents.weight is None else "weighted "
        rows = f"{scores['rows']:,} {weighted}{contents.kind}"
        title = f"{self.metric} of {best['name']} on {rows}"
        positive = f", positive class {contents.classes[1]}" if len(contents.classes) == 2 else ""
        parts = [
            "<header>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="headline"><strong>{number(best["value"])}</strong>'
            f"<span>95% interval {_span(best)}{escape(positive)}</span></p>",
            "</header>",
        ]
        if contents.seen:
            text = "This is no test: the models were trained on these rows, or chosen by them."
            parts.append(f"<p><strong>{text}</strong> The scores are too good.</p>")
        if not scores["greater_is_better"]:
            parts.append(f'<p class="quiet">Lower is better: {escape(contents.metric)}.</p>')
        if len(methods) > 1:
            parts.append(f'<ul class="verdicts">{verdicts}</ul>')
            text = "; ".join(f"{m['name']} {number(m['value'])} ({_span(m)})" for m in methods)
            parts.append(self._figure("intervals", figures.intervals(methods), text))
            parts.append(self._methods())
        else:
            parts.append("<p>No usual model was trained beside it to compare with.</p>")
        parts += [f'<p class="quiet">{escape(self._about_intervals())}</p>', self._others()]
        return "\n".join(parts)

    def _methods(self) -> str:
        differences = {d["against"]: d for d in self.scores["differences"]}
        rows = []
        for method in self.scores["methods"]:
            row = [method["name"], number(method["value"]), _span(method)]
            d = differences.get(method["key"])
            rows.append([*row, *(("", "") if d is None else (number(d["value"]), _span(d)))])
        head = ["", self.metric, "95% interval", "difference", "95% interval"]
        first = self.scores["methods"][0]["name"]
        return table(f"A difference is {first} minus the other.", head, rows)

    def _about_intervals(self) -> str:
        groups = self.scores["groups"]
        what = (
            f"the {self.contents.kind} of each class"
            if groups is None
            else f"the {groups:,} groups of {self.contents.kind}"
        )
        text = (
            f"Intervals come from {RESAMPLES:,} resamples of {what}, the same for all methods. "
            "They tell how far other rows could move these models' scores, not how another "
            "training run would come out."
        )
        if groups is not None and groups < FEW_GROUPS:
            text += " Groups are few: take the intervals as rough."
        if any(m["low"] == m["high"] for m in self.scores["methods"]):
            text += " An interval without width means that the resamples did not differ."
        return text

    def _others(self) -> str:
        methods, others = self.scores["methods"], self.scores["others"]
        rows = [[name, *map(number, values.values())] for name, values in others.items()]
        head = ["", *(method["name"] for method in methods)]
        return table("Other metrics of the same labels.", head, rows)

    def tried(self) -> str:
        """What each candidate reaches, with and without a rule."""
        if self.contents.tried is None:
            return ""
        found, rows = self.scores["tried"], []
        for row in found["rows"]:
            cells = [row["candidate"], f"{row['weight']:.2f}"]
            for stem in ("rule_score", "argmax_score", "gain"):
                span = {"low": row[f"{stem}_low"], "high": row[f"{stem}_high"]}
                cells += [number(row[stem]), _span(span)]
            rows.append(cells)
        rows[-1][-2:] = "", ""  # it is not behind itself
        span = "95% interval"
        head = ["", "weight", "with its rule", span, "with argmax", span, "behind by", span]
        text = (
            f"{self.metric} of the training rows, each by models that have not seen it and a rule "
            "that was fitted without it. The last line is chosen anew for each part of the rows, "
            "by the others, so that it is not too good for having been chosen."
        )
        left = "".join(
            f"<li>{escape(f'{name} was left out: {why}.')}</li>"
            for name, why in found["left_out"].items()
        )
        return _section(
            "Candidates",
            f"<p>{escape(found['verdict'])}</p>",
            table(text, head, rows),
            f"<ul>{left}</ul>" if left else "",
        )

    def confusion(self) -> str:
        contents = self.contents
        parts = []

        def add(name: str, title: str, confusion: Any, text: str) -> None:
            figure = figures.matrix(contents, confusion)
            parts.append(self._figure(name, figure, f"Confusion matrix. {text}", title, text))

        for key, model in zip(self.keys, contents.models, strict=True):
            hard = contents.hard(model.predicted, matrix=True)
            add(f"hard-{key}", model.label, hard, "Labels by its decision rule.")
        soft = contents.soft(contents.aligned)
        words = f"{contents.aligned.label} was trained without a temperature: no soft matrix."
        if soft is not None:
            text = f"Of its probabilities at temperature {contents.temperature:g}, before the rule."
            add("soft-aligned", f"{contents.aligned.label}, soft", soft, text)
            words = ""
        if len(contents.classes) > SHOWN:
            shown = f"Shown are the {SHOWN} of {len(contents.classes):,} classes with most errors."
            words = f"{shown} {words}"
        text = f"Colour: share of the true class. Numbers: {self._unit()}. {words}"
        grid = f'<div class="grid">{"".join(parts)}</div>'
        return _section("Confusion matrices", f"<p>{escape(text)}</p>", grid)

    def _unit(self) -> str:
        return "rows" if self.contents.weight is None else "sums of the rows' weights"

    def per_class(self) -> str:
        models = self.contents.models
        columns = ["predicted", "precision", "recall", "F1"]
        rows = []
        for entry in self.scores["per_class"]:
            row = [entry["class"], self._count(entry["rows"])]
            for key in self.keys:
                values = entry[key]
                shares = [number(values[name]) for name in ("precision", "recall", "f1")]
                row += [self._count(values["predicted"]), *shares]
            rows.append(row)
        head = ["class", "rows", *columns * len(models)]
        spans = [("", 2), *((model.label, len(columns)) for model in models)]
        caption = f"Counts are {self._unit()}. A score is 0 where there is nothing to divide by."
        shown = table(caption, head, rows, spans=spans, tall=len(rows) > TALL)
        return _section("Class by class", shown)

    def precision_recall(self) -> str:
        contents, curves = self.contents, self.curves
        title, two = "Precision and recall", len(contents.classes) == 2
        if not curves:
            absent = f"No test row is of class {contents.classes[1]}."
            return _section(title, f"<p>{escape(absent)}</p>")
        about = (
            "Rows are labelled with the class where its probability is at least the threshold; the "
            "ring is the slider's place. Diamonds are the decision rules' own labels"
        )
        about += "." if two else ", which weigh all classes and need not lie on a curve."
        choice = ""
        if not two:
            rarest = min(curves, key=lambda curve: curve["actual"])
            options = "".join(
                f"<option{' selected' if curve is rarest else ''}>{escape(curve['name'])}</option>"
                for curve in curves
            )
            choice = f'<label>Class <select id="class">{options}</select></label>'
        items = ["threshold", "precision", "recall", "F1", *COUNTS]
        readout = "".join(
            f'<div><dt>{COUNTS.get(item, item)}</dt><dd id="at-{item.lower()}"></dd></div>'
            for item in items
        )
        figure = self._figure(
            "precision-recall",
            figures.precision_recall(contents),
            "Precision over recall at every threshold, with the point of the decision rule.",
        )
        return _section(
            title,
            f"<p>{escape(about)}</p>",
            f'<p>{escape(contents.aligned.label)}, class <strong id="at-class"></strong>:</p>',
            f'<div class="controls">{choice}<label class="slide">Threshold '
            '<input type="range" id="threshold" min="0" step="1"></label></div>',
            f'<dl class="readout" aria-live="polite">{readout}</dl>',
            figure,
        )

    def reliability(self) -> str:
        contents = self.contents
        two = len(contents.classes) == 2
        what = f"of class {contents.classes[1]}" if two else "of the likeliest class"
        found = "how often the class is true" if two else "how often it is right"
        text = (
            f"The probability {what} against {found}, in at most {BINS} bins of about "
            f"{max(1, len(contents.y) // BINS):,} rows each."
        )
        figure = self._figure("reliability", figures.reliability_curve(contents), text)
        return _section("Reliability", f"<p>{escape(text)}</p>", figure)

    def training(self) -> str:
        contents = self.contents
        trained = [model for model in contents.models if model.history]
        if not trained:
            return ""
        parts = [
            self._figure(
                "training-metric",
                figures.metric_curve(contents),
                f"{self.metric} of the validation rows over the epochs.",
                self.metric,
                "Of the validation rows, labelled by argmax. Dots mark the best epoch.",
            )
        ]
        for key, model, colour in zip(self.keys, contents.models, figures.COLOURS, strict=False):
            if model.history:
                figure, title = figures.loss_curve(model, colour), f"Loss of {model.label}"
                text = f"{title} over the epochs, training and validation rows."
                parts.append(self._figure(f"loss-{key}", figure, text, title))
        if any(record["temperature"] is not None for record in contents.aligned.history):
            figure, title = figures.temperature_curve(contents.aligned), "Temperature"
            text = f"Temperature of {contents.aligned.label}'s loss over the epochs."
            parts.append(self._figure("temperature", figure, text, title))
        return _section("Training", f'<div class="grid">{"".join(parts)}</div>')

    def cards(self) -> str:
        cards = []
        for title, entries in self.contents.cards.items():
            items = (f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in entries.items())
            cards.append(_section(title, f'<dl class="card">{"".join(items)}</dl>'))
        return "\n".join(cards)

    def _count(self, value: float) -> str:
        return f"{value:,.0f}" if self.contents.weight is None else f"{value:,.1f}"

    def _figure(
        self, name: str, figure: go.Figure, words: str, title: str = "", caption: str = ""
    ) -> str:
        """A place for the figure; `words` describe it for those who cannot see it."""
        self.figures[name] = figure
        head = f"<h3>{escape(title)}</h3>" if title else ""
        foot = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        plot = f'<div class="plot" id="{name}" role="img" aria-label="{escape(words)}"></div>'
        return f"<figure>{head}{plot}{foot}</figure>"


def _section(title: str, *parts: str) -> str:
    return "\n".join(["<section>", f"<h2>{escape(title)}</h2>", *parts, "</section>"])


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    spans: Sequence[tuple[str, int]] = (),
    tall: bool = False,
) -> str:
    """A table that scrolls by itself where it is too wide; the first cell of a row names it."""
    over = "".join(f'<th colspan="{n}" scope="colgroup">{escape(text)}</th>' for text, n in spans)
    columns = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = (
        f'<tr><th scope="row" title="{escape(row[0])}">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll{" tall" if tall else ""}" tabindex="0" role="region" '
        f'aria-label="{escape(caption)}"><table{" class=models" if spans else ""}>'
        f"<caption>{escape(caption)}</caption>"
        f"<thead>{f'<tr>{over}</tr>' if over else ''}"
        f"<tr>{columns}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _span(entry: dict[str, Any]) -> str:
    return f"{number(entry['low'])} to {number(entry['high'])}"


def asset(name: str) -> str:
    return files("evalign.report").joinpath(name).read_text(encoding="utf-8")
