"""The HTML page: what it says and shows, with looks in `page.css` and the slider in `page.js`."""

import json
from dataclasses import replace
from html import escape
from string import Template
from typing import Any

import numpy as np

from evalign.core.resampling import FEW
from evalign.core.text import counted, visible
from evalign.report import figures
from evalign.report.contents import Contents, Scored
from evalign.report.curves import BINS, SHOWN, precision_recall, reliability, shown_classes
from evalign.report.figures import KINDS, ChartLine
from evalign.report.head import LISTED, answered, candidates
from evalign.report.markup import (
    asset,
    framed,
    legend,
    paragraph,
    section,
    side_by_side,
    table,
)
from evalign.report.words import number

COLUMNS = 12  # in the figure of those that matter, at most
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
            answered(page.contents, scores),
            candidates(page.contents, scores),
            page.columns(),
            page.confusion(),
            page.per_class(),
            page.precision_recall(),
            page.reliability(),
            page.training(),
            page.cards(),
            page.columns_as_read(),
            "<noscript><p>The slider needs JavaScript.</p></noscript>",
        ]
    )
    data = {"curves": page.curves, "weighted": contents.weight is not None}
    return Template(asset("page.html")).substitute(
        title=escape(f"{page.metric} of {contents.aligned.label}: evalign report"),
        css=asset("page.css"),
        body=visible(body, keep="\n"),
        data=json.dumps(data).replace("<", "\\u003c"),  # no name can end the script element
        script=asset("page.js"),
    )


class _Page:
    """The sections, each a string."""

    def __init__(self, contents: Contents, scores: dict[str, Any]) -> None:
        self.contents, self.scores = contents, scores
        self.metric = contents.metric_name
        self.keys, self.two = contents.keys, len(contents.classes) == 2
        # A second curve on top of the first says nothing.
        self.drawn, usual = contents, contents.baseline
        if usual and np.array_equal(usual.probabilities, contents.aligned.probabilities):
            self.drawn = replace(contents, baseline=None, findings=None)
        self.curves = precision_recall(self.drawn)

    def columns(self) -> str:
        """The columns whose values matter most."""
        findings, title = self.contents.findings, "Columns that matter"
        if findings is None:
            return ""
        if not findings.columns:
            why = "it would take this model too long to label rows with each of them shuffled"
            return section(title, paragraph(f"Not looked at: {why}."))
        every = findings.columns
        shown = [{**row, "column": visible(row["column"])} for row in every if row["value"] > 0]
        if not shown:
            return section(
                title, paragraph(f"Shuffling a column does not make {self.metric} worse.")
            )
        text = (
            f"How much worse {self.metric} gets on {findings.rows:,} {self.contents.kind} if the "
            "values of a column are shuffled among them; the thin line is from the least to the "
            "most that was seen. Columns that tell the same share what they matter."
        )
        words = ", ".join(f"{row['column']} {number(row['value'])}" for row in shown[:COLUMNS])
        rest = len(every) - len(shown[:COLUMNS])
        others = f"{rest:,} others matter" if rest > 1 else "One other matters"
        more = paragraph(f"{others} less, or not at all.", "quiet") if rest else ""
        figure = figures.bars("columns", words, shown[:COLUMNS], KINDS[0])
        return section(title, paragraph(text), framed(figure), more)

    def confusion(self) -> str:
        contents = self.contents
        parts, words = [], []

        def add(name: str, title: str, confusion: Any, text: str) -> None:
            figure = figures.matrix(name, f"Confusion matrix. {text}", contents, confusion)
            parts.append(framed(figure, title, text))

        for key, model in zip(self.keys, contents.models, strict=True):
            if self._same(key):
                words.append(f"{model.label} gives the same labels.")
                continue
            hard = contents.hard(model.predicted, matrix=True)
            add(f"hard-{key}", model.label, hard, "Labels by its decision rule.")
        soft = contents.soft(contents.aligned)
        if soft is not None:
            text = f"Of its probabilities at temperature {contents.temperature:g}, before the rule."
            add("soft-aligned", f"{contents.aligned.label}, soft", soft, text)
        if len(contents.classes) > SHOWN:
            words.append(f"Of {len(contents.classes):,} classes the {SHOWN} with most errors.")
        text = " ".join(["Shade: share of the true class.", f"Numbers: {self._unit()}.", *words])
        return section("Confusion matrices", paragraph(text), side_by_side(parts))

    def _same(self, key: str) -> bool:
        """Whether a model has the labels of the first one."""
        return any(m["key"] == key and m["same_as"] == "aligned" for m in self.scores["methods"])

    def _unit(self) -> str:
        return "rows" if self.contents.weight is None else "sums of the rows' weights"

    def per_class(self) -> str:
        contents, every = self.contents, self.scores["per_class"]
        codes = np.arange(len(every)) if len(every) <= LISTED else shown_classes(contents, LISTED)
        few, tables = set(contents.scarce.tolist()), []
        mark = "few rows" if contents.seen else "few test rows"
        head = ["class", "rows", "predicted", "precision", "recall", "F1"]
        for key, model in zip(self.keys, contents.models, strict=True):
            if self._same(key):
                continue
            rows = []
            for code in codes.tolist():
                entry, name = every[code], contents.classes[code]
                counts = [self._count(value) for value in (entry["rows"], entry[key]["predicted"])]
                shares = [number(entry[key][share]) for share in ("precision", "recall", "f1")]
                rows.append([(name, mark) if code in few else name, *counts, *shares])
            tables.append(table(f"By the rule of {model.label}.", head, rows))
        text = f"Counts are {self._unit()}. A score is 0 where there is nothing to divide by."
        if len(every) > LISTED:
            text += f" Of {len(every):,} classes the {LISTED} with most errors."
        return section("Class by class", paragraph(text, "quiet"), side_by_side(tables))

    def precision_recall(self) -> str:
        contents, curves = self.drawn, self.curves
        title = "Precision and recall"
        if not curves:
            absent = f"No test row is of class {contents.classes[1]}."
            return section(title, paragraph(absent))
        about = (
            "Rows are labelled with the class where its probability is at least the threshold; the "
            "ring is the slider's place. Diamonds are the decision rules' own labels"
        )
        about += "." if self.two else ", which weigh all classes and need not lie on a curve."
        choice = ""
        if not self.two:
            # The rarest class, unless its rows are too few for a curve.
            enough = [curve for curve in curves if curve["rows"] >= FEW] or curves
            first = min(enough, key=lambda curve: curve["actual"])
            options = "".join(
                f"<option{' selected' if curve is first else ''}>{escape(curve['name'])}</option>"
                for curve in curves
            )
            choice = f'<label>Class <select id="class">{options}</select></label>'
        items = ["threshold", "precision", "recall", "F1", *COUNTS]
        readout = "".join(
            f'<div><dt>{COUNTS.get(item, item)}</dt><dd id="at-{item.lower()}"></dd></div>'
            for item in items
        )
        words = "Precision over recall at every threshold, with the point of the decision rule."
        figure = figures.precision_recall("precision-recall", words, KINDS[: len(contents.models)])
        return section(
            title,
            paragraph(about),
            f'<p>{escape(contents.aligned.label)}, class <strong id="at-class"></strong>:</p>',
            f'<div class="controls">{choice}<label class="slide">Threshold '
            '<input type="range" id="threshold" min="0" step="1"></label></div>',
            f'<dl class="readout" aria-live="polite">{readout}</dl>',
            self._legend(contents.models),
            framed(figure),
        )

    def reliability(self) -> str:
        contents, curves = self.drawn, []
        for model, kind in zip(contents.models, KINDS, strict=False):
            bins = reliability(contents, model)
            dots = {
                i: f"said {p:.3f}, found {f:.3f}, {counted(rows)}"
                for i, (p, f, rows) in enumerate(zip(*bins, strict=True))
            }
            curves.append(ChartLine(bins.probability.tolist(), bins.frequency.tolist(), kind, dots))
        if all(len(line.x) == 1 for line in curves):
            return ""  # a model with one answer to everything has no curve
        what = f"of class {contents.classes[1]}" if self.two else "of the likeliest class"
        found = "how often the class is true" if self.two else "how often it is right"
        text = (
            f"The probability {what} against {found}, in at most {BINS} bins of about "
            f"{counted(max(1, len(contents.y) // BINS))} each. The dotted line would be ideal."
        )
        lines = [ChartLine([0, 1], [0, 1], "ideal"), *curves]
        axes = "probability", "frequency"
        figure = figures.chart("reliability", text, lines, axes=axes, unit=True)
        return section(
            "Reliability", paragraph(text), self._legend(contents.models), framed(figure)
        )

    def training(self) -> str:
        """The course of the training, where there is one: of more than an epoch."""
        models = list(zip(self.keys, self.contents.models, KINDS, strict=False))
        models = [(key, model, kind) for key, model, kind in models if len(model.history) > 1]
        if not models:
            return ""
        lines = [_epochs(model, "validation_metric", kind) for _, model, kind in models]
        text = f"{self.metric} of the validation rows over the epochs."
        names = self._legend([model for _, model, _ in models])
        caption = "Of the validation rows, labelled by argmax. Dots mark the best epoch."
        figure = figures.chart("training-metric", text, lines, axes=("epoch", ""))
        parts = [framed(names + figure, self.metric, caption)]
        for key, model, kind in models:
            lines = [
                _epochs(model, "validation_loss", kind),
                _epochs(model, "loss", f"{kind} dotted")._replace(dots={}),
            ]
            title = f"Loss of {model.label}"
            text = f"{title} over the epochs, training and validation rows."
            names = legend([(kind, "validation rows"), (f"{kind} dotted", "training rows")])
            figure = figures.chart(f"loss-{key}", text, lines, axes=("epoch", ""))
            parts.append(framed(names + figure, title))
        temperatures = {record["temperature"] for record in self.contents.aligned.history}
        if len(temperatures) > 1:
            line = _epochs(self.contents.aligned, "temperature", KINDS[0])._replace(dots={})
            text = f"Temperature of {self.contents.aligned.label}'s loss over the epochs."
            figure = figures.chart("temperature", text, [line], axes=("epoch", ""))
            parts.append(framed(figure, "Temperature"))
        return section("Training", side_by_side(parts))

    def cards(self) -> str:
        cards = []
        for title, entries in self.contents.cards.items():
            items = (f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in entries.items())
            cards.append(section(title, f'<dl class="card">{"".join(items)}</dl>'))
        return "\n".join(cards)

    def columns_as_read(self) -> str:
        """A folded table that shows at a glance which column was read wrongly."""
        columns = self.contents.columns
        if not columns:
            return ""
        rows = []
        for column in columns[:LISTED]:
            counts = [f"{column[name]:,}" for name in ("gaps", "values")]
            rows.append([column["name"], column["kind"], *counts, ", ".join(column["examples"])])
        some = f"The first {LISTED} of {len(columns):,} columns. " if columns[LISTED:] else ""
        caption = f"{some}Gaps are missing cells, values are distinct."
        head = ["column", "kind", "gaps", "values", "examples"]
        return (
            "<details><summary>Columns as read</summary>"
            f'<div class="as-read">{table(caption, head, rows)}</div></details>'
        )

    def _count(self, value: float) -> str:
        """Write a count, of which a phone has room for six digits."""
        if value >= 1e6:
            return f"{value / 1000:,.0f}k"
        whole = self.contents.weight is None or value >= 1000
        return f"{value:,.0f}" if whole else f"{value:,.1f}"

    def _legend(self, models: list[Scored]) -> str:
        kinds = {id(model): kind for model, kind in zip(self.contents.models, KINDS, strict=False)}
        return legend([(kinds[id(model)], model.label) for model in models])


def _epochs(model: Scored, key: str, kind: str) -> ChartLine:
    """What was recorded epoch by epoch, with a dot at the epoch whose weights were kept."""
    best = [i for i, record in enumerate(model.history) if record["best"]][-1:]
    x, y = ([record[name] for record in model.history] for name in ("epoch", key))
    return ChartLine(
        x, [np.nan if value is None else value for value in y], kind, dict.fromkeys(best, "")
    )
