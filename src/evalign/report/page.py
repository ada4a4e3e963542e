"""The HTML page: what `templates/report.html.j2` shows, and the environment that renders it."""

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from evalign.core.resampling import MIN_FOR_INTERVAL, RESAMPLES
from evalign.core.text import counted, visible
from evalign.report import figures
from evalign.report.contents import Contents, Scored
from evalign.report.curves import BINS, SHOWN, precision_recall, reliability, shown_classes
from evalign.report.figures import ChartLine
from evalign.report.words import number, span

if TYPE_CHECKING:
    from jinja2 import Environment

# Rows of a table, bars of the importance, and scarce classes in a sentence, at most.
LISTED, BARS, NAMED = 200, 12, 10
# Classes of `page.css`: of the models by their rules, and by argmax.
KINDS, ARGMAX_KINDS = ("s0", "s1"), ("s2", "s3")
READOUT = {name: name for name in ("threshold", "precision", "recall")} | {
    "f1": "F1",
    "tp": "true positives",
    "fp": "false positives",
    "fn": "false negatives",
    "tn": "true negatives",
}


@cache
def environment(*packages: str) -> "Environment":
    """The templates of the report, and those of other packages; all text in them is escaped."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loaders = [PackageLoader(package) for package in ("evalign.report", *packages)]
    found = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"number": number, "span": span, "counted": counted}
    found.filters |= filters | {"thousands": "{:,}".format, "mass": _mass}
    return found


def render(contents: Contents, scores: dict[str, Any]) -> str:
    """The whole page, one HTML file that fetches nothing; `scores` are those of the contents."""
    contents = replace(contents, classes=[visible(name) for name in contents.classes])
    methods, findings = scores["methods"], contents.findings
    shown = [method for method in methods if not method["same_as"]]
    # A baseline with the same labels would say everything twice.
    drawn = contents
    if contents.baseline is not None and methods[2]["same_as"] == "aligned":
        drawn = replace(contents, baseline=None, findings=None)
    curves = precision_recall(drawn)
    # The rarest class comes first, unless its rows are too few for a curve.
    enough = [curve for curve in curves if curve["rows"] >= MIN_FOR_INTERVAL] or curves
    first = curves.index(min(enough, key=lambda curve: curve["actual"])) if curves else 0
    rules, important = [], []
    if findings is not None:
        labels = [model.label for model in contents.models]
        rules = list(zip(labels, findings.rules, strict=True))
        important = [row for row in findings.columns if row["value"] > 0][:BARS]
    every = len(contents.classes)
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            contents=contents,
            scores=scores,
            findings=findings,
            two=every == 2,
            shown=shown,
            names={method["key"]: method["name"] for method in methods},
            differences={each["against"]: each for each in scores["differences"]},
            rules=rules,
            scarce=list(scores["scarce"]["classes"].items())[:NAMED],
            few=MIN_FOR_INTERVAL,
            resamples=RESAMPLES,
            other_columns=len(findings.columns) - len(important) if findings else 0,
            most_drawn=SHOWN,
            most_listed=LISTED,
            listed=range(every) if every <= LISTED else shown_classes(contents, LISTED).tolist(),
            drawn=list(zip(drawn.keys, drawn.models, strict=True)),
            lines=[(kind, model.label) for kind, model in zip(KINDS, drawn.models, strict=False)],
            curves=curves,
            first_curve=first,
            readout=READOUT,
            bins=BINS,
            plots={
                "intervals": _intervals(contents, shown),
                "columns": _importance(important),
                "matrices": _matrices(drawn),
                "precision_recall": figures.precision_recall(
                    "Precision and recall at every threshold, and of the decision rules.",
                    KINDS[: len(drawn.models)],
                ),
                "reliability": _reliability(drawn),
            },
        )
    )
    return "\n".join(map(visible, page.split("\n")))


def _mass(value: float) -> str:
    """Write a count or a sum of weights; a phone has room for six digits.

    Examples:
        >>> _mass(12.0), _mass(12.345), _mass(1234567)
        ('12', '12.3', '1,235k')
    """
    if value >= 1e6:
        return f"{value / 1000:,.0f}k"
    return f"{value:,.1f}".removesuffix(".0") if value < 1000 else f"{value:,.0f}"


def _intervals(contents: Contents, shown: list[dict[str, Any]]) -> str:
    kinds = dict(zip(contents.keys, KINDS, strict=False))
    kinds |= dict(zip((f"{key}_argmax" for key in contents.keys), ARGMAX_KINDS, strict=False))
    words = "; ".join(f"{m['name']} {number(m['value'])} ({span(m)})" for m in shown)
    return figures.intervals(words, shown, [kinds[m["key"]] for m in shown])


def _importance(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    words = ", ".join(f"{row['column']} {number(row['value'])}" for row in rows)
    return figures.bars(words, rows, KINDS[0])


def _matrices(contents: Contents) -> list[tuple[Scored, str]]:
    plots = []
    for key, model in zip(contents.keys, contents.models, strict=True):
        words = f"Confusion matrix of {model.label}."
        counts = contents.hard(model.predicted, matrix=True).matrix
        plots.append((model, figures.matrix(f"matrix-{key}", words, contents, counts)))
    return plots


def _reliability(contents: Contents) -> str:
    lines = [ChartLine([0, 1], [0, 1], "ideal")]
    for model, kind in zip(contents.models, KINDS, strict=False):
        bins = reliability(contents, model)
        dots = {
            i: f"predicted {p:.3f}, observed {f:.3f}, {counted(rows)}"
            for i, (p, f, rows) in enumerate(zip(*bins, strict=True))
        }
        lines.append(ChartLine(bins.probability.tolist(), bins.frequency.tolist(), kind, dots))
    axes = "predicted probability", "observed frequency"
    words = "Observed frequency over predicted probability."
    return figures.chart("reliability", words, lines, axes)
