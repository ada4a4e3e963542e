"""Parts of a text, such as headings and tables, written as Markdown or as one HTML page."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

from evalign.report.page import environment
from evalign_study.pipeline.style import CSS, SCRIPT


class Heading(NamedTuple):
    """The title of a section, or of a subsection if `below`."""

    text: str
    below: bool = False


class Text(NamedTuple):
    """A paragraph."""

    text: str


class Points(NamedTuple):
    """A list."""

    texts: Sequence[str]


class Grid(NamedTuple):
    """A table; the first cell of a row names it."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Rest(NamedTuple):
    """A mark: what follows is written to the table's own files, and not on a page."""


NOTHING = "–"  # the cell of a missing number

Part = Heading | Text | Points | Grid | Rest

# A claim is a sentence and must be readable in full, so its cell wraps.
WRAPPED = """
th, td { white-space: normal; text-wrap: balance; }
tbody th { min-width: 14rem; max-width: 24rem; }
"""


def on_page(parts: Iterable[Part]) -> list[Part]:
    """Take the parts that a page of the documentation shows.

    Examples:
        >>> on_page([Text("All in all."), Rest(), Text("One by one.")])
        [Text(text='All in all.')]
    """
    return list(takewhile(lambda part: not isinstance(part, Rest), parts))


def markdown(parts: Iterable[Part]) -> str:
    """Write Markdown; sections have headings of the second level.

    Examples:
        >>> print(markdown([Heading("F1*"), Grid("Scores.", ["", "F1"], [["CE", "0.7"]])]))
        ## F1\\*
        <BLANKLINE>
        Scores.
        <BLANKLINE>
        |  | F1 |
        | --- | --- |
        | CE | 0.7 |
        <BLANKLINE>
    """
    texts = []
    for part in parts:
        match part:
            case Heading(text, below):
                texts.append(f"{'###' if below else '##'} {text}")
            case Text(text):
                texts.append(text)
            case Points(points):
                texts.append("\n".join(f"- {text}" for text in points))
            case Grid(caption, head, rows):
                lines = [head, ["---"] * len(head), *rows]
                texts += [caption, "\n".join(f"| {' | '.join(line)} |" for line in lines)]
            case Rest():
                pass
    # The stars belong to the papers' names; two unescaped ones in a line would mean italics.
    return ("\n\n".join(texts) + "\n").replace("*", r"\*")


def html(title: str, parts: Iterable[Part], figures: Mapping[str, go.Figure]) -> str:
    """Write a page that loads nothing else, in the style of the report, with figures at its end."""
    data = {"figures": {name: figure.to_dict() for name, figure in figures.items()}}
    template = environment("evalign_study.pipeline").get_template("study.html.j2")
    return template.render(
        title=title,
        css=CSS + WRAPPED,
        parts=[(type(part).__name__, part) for part in parts if not isinstance(part, Rest)],
        figures=list(figures),
        data=to_json_plotly(data),  # which escapes "<"
        script=f"{get_plotlyjs()}\n{SCRIPT}" if figures else "",
    )
