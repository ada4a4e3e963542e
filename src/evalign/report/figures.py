"""The figures, as SVG. Their colours are in `page.css`, their legends in the template.

Lengths are pixels of a phone, whose page is as wide as a figure; on wider screens figures grow.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple
from unicodedata import east_asian_width

import numpy as np

from evalign.core.text import visible
from evalign.report.contents import Contents
from evalign.report.curves import shown_classes
from evalign.report.words import number
from evalign.report.words import span as ends

WIDTH = 350
# The side of a confusion matrix, and the classes up to which its cells show counts.
SIDE, WRITTEN = 230, 10
TOLD = 5  # errors in its description, at most
# Labels on an axis, and their length, at most.
LABELS, LONGEST = 20, 95
QUARTERS = [0, 0.25, 0.5, 0.75, 1]
UNIT = (-0.02, 1.02)


class ChartLine(NamedTuple):
    """A line of a chart.

    Args:
        x, y: its points.
        kind: its class in `page.css`.
        dots: the indices of the points to mark, with their tooltips.
    """

    x: Sequence[float]
    y: Sequence[float]
    kind: str
    dots: Mapping[int, str] = {}


def chart(
    name: str, words: str, lines: Sequence[ChartLine], axes: tuple[str, str], inside: str = ""
) -> str:
    """Lines over two axes, which have names and run from 0 to 1.

    Args:
        name: the id of the figure.
        words: its description for those who cannot see it.
        lines: what it plots.
        axes: the names of the axes.
        inside: further SVG in the coordinates of the chart, whose y-axis points down.
    """
    left, right, top = 10 + max(_length(_tick(mark)) for mark in QUARTERS), WIDTH - 18, 24
    side = right - left
    bottom = top + side
    x, y = _scale(UNIT, left, right), _scale(UNIT, bottom, top)

    parts = [_text(0, 12, axes[1]), _text(right, bottom + 34, axes[0], "end")]
    for mark in QUARTERS:
        parts.append(_grid(x(mark), top, x(mark), bottom))
        parts.append(_text(x(mark), bottom + 16, _tick(mark), "middle"))
        parts.append(_grid(left, y(mark), right, y(mark)))
        parts.append(_text(left - 6, y(mark) + 4, _tick(mark), "end"))
    for line in lines:
        points = list(zip(line.x, line.y, strict=True))
        path = "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)
        parts.append(f'<path class="line {line.kind}" d="M{path}"/>')
        for index, title in line.dots.items():
            a, b = points[index]
            parts.append(_dot(x(a), y(b), line.kind, title))
    if inside:
        low, width = UNIT[0], UNIT[1] - UNIT[0]
        parts.append(
            f'<svg x="{left:.1f}" y="{top}" width="{side:.1f}" height="{side:.1f}" '
            f'viewBox="{low} {-UNIT[1]} {width} {width}">{inside}</svg>'
        )
    return _svg(name, words, bottom + 40, parts)


def precision_recall(words: str, kinds: Sequence[str]) -> str:
    """A chart whose curves `page.js` draws, with a diamond for each, and a ring."""
    thin = 'vector-effect="non-scaling-stroke"'  # a width in pixels, not in units of the chart
    drawn = [
        f'<path class="line {kind}" id="curve-{i}" {thin}/>'
        f'<path class="dot {kind}" id="rule-{i}" d="M0-.024L.024 0 0 .024-.024 0Z"/>'
        for i, kind in enumerate(kinds)
    ]
    ring = f'<circle class="ring {kinds[0]}" id="ring" r=".03" {thin}/>'
    inside = "".join(drawn) + ring
    axes = "recall", "precision"
    return chart("precision-recall", words, [], axes, inside)


def intervals(words: str, methods: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> str:
    """The value and the interval of each method below its name, the first on top."""
    span = _padded(np.array([[m["low"], m["high"]] for m in methods]))
    x, bottom = _scale(span, 20, WIDTH - 20), 8 + 40 * len(methods)
    parts = []
    for mark in ticks(*span):
        parts.append(_grid(x(mark), 0, x(mark), bottom))
        parts.append(_text(x(mark), bottom + 16, _tick(mark), "middle"))
    for i, (method, kind) in enumerate(zip(methods, kinds, strict=True)):
        at, low, high = 30 + 40 * i, x(method["low"]), x(method["high"])
        parts.append(_text(0, at - 12, _short(method["name"], WIDTH)))
        parts.append(f'<path class="bar {kind}" d="M{low:.1f} {at}H{high:.1f}"/>')
        title = f"{number(method['value'])}, {ends(method)}"
        parts.append(_dot(x(method["value"]), at, kind, title))
    return _svg("intervals", words, bottom + 24, parts)


def bars(words: str, rows: Sequence[Mapping[str, Any]], kind: str) -> str:
    """A bar for each "column" with its name and "value" above, and a line from "low" to "high"."""
    span = min(0, *(row["low"] for row in rows)), max(0, *(row["high"] for row in rows))
    x, parts = _scale(span, 2, WIDTH - 2), []
    for i, row in enumerate(rows):
        at, value = 22 + 34 * i, number(row["value"])
        left, right = sorted((x(0), x(row["value"])))
        parts.append(_text(0, at - 8, _short(row["column"], WIDTH - 20 - _length(value))))
        parts.append(_text(WIDTH, at - 8, value, "end"))
        parts.append(
            f'<rect class="cell {kind}" x="{left:.1f}" y="{at - 3}" width="{right - left:.1f}" '
            f'height="8"/><path class="line ink" d="M{x(row["low"]):.1f} {at + 1}'
            f'H{x(row["high"]):.1f}"/>'
        )
    return _svg("columns", words, 34 * len(rows), parts)


def matrix(name: str, words: str, contents: Contents, counts: np.ndarray) -> str:
    """The confusion matrix: a cell's shade is its share of the true class, its text the count.

    The description names the most frequent errors.
    """
    codes = shown_classes(contents)
    share = counts / np.maximum(counts.sum(1, keepdims=True), np.finfo(float).tiny)
    counts, share = counts[np.ix_(codes, codes)], share[np.ix_(codes, codes)]
    labels = [_short(contents.classes[code], LONGEST) for code in codes]
    texts = [[f"{count:,.1f}".removesuffix(".0") for count in row] for row in counts]
    errors = sorted((-counts[i, j], i, j) for i, j in np.argwhere(counts) if i != j)[:TOLD]
    told = (f"true {labels[i]}, predicted {labels[j]}: {texts[i][j]}" for _, i, j in errors)
    words += f" Most errors: {'; '.join(told)}." if errors else " No errors."
    longest = max(map(_length, labels))
    left, top, cell = 10 + longest, 22, SIDE / len(codes)
    bottom, step, upright = top + SIDE, -(-len(codes) // LABELS), longest > cell - 4
    # Digits are about 0.6 of their size wide.
    size = min(12.0, (cell - 3) / (0.6 * max(len(text) for row in texts for text in row)))
    written = len(codes) <= WRITTEN and size > 6

    frame = f'<rect class="frame" x="{left:.1f}" y="{top}" width="{SIDE}" height="{SIDE}"/>'
    parts = [_text(0, 12, "true"), frame]
    for i, label in enumerate(labels):
        middle = (i + 0.5) * cell
        if i % step == 0:
            parts.append(_text(left - 6, top + middle + 4, label, "end"))
            at = (left + middle + 4, bottom + 6) if upright else (left + middle, bottom + 14)
            parts.append(_text(*at, label, "end" if upright else "middle", turned=upright))
        for j in (j for j, text in enumerate(texts[i]) if text != "0"):
            title = f"true {label}, predicted {labels[j]}: {texts[i][j]}, {share[i, j]:.1%}"
            parts.append(
                f'<rect class="cell s0" x="{left + j * cell:.1f}" y="{top + i * cell:.1f}" '
                f'width="{cell:.1f}" height="{cell:.1f}" opacity="{0.05 + 0.55 * share[i, j]:.2f}">'
                f"<title>{escape(title)}</title></rect>"
            )
        for j, text in enumerate(texts[i] if written else ()):
            at = left + (j + 0.5) * cell, top + middle + size / 3
            parts.append(_text(*at, text, "middle", size=size))
    below = bottom + (longest if upright else 14)
    parts.append(_text(left + SIDE, below + 22, "predicted", "end"))
    return _svg(name, words, below + 28, parts)


def ticks(low: float, high: float) -> list[float]:
    """At most six round numbers between two.

    Examples:
        >>> ticks(0.41, 0.58), ticks(1, 12)
        ([0.45, 0.5, 0.55], [2.0, 4.0, 6.0, 8.0, 10.0, 12.0])
    """
    power = 10.0 ** np.floor(np.log10(high - low))
    for part in (0.1, 0.2, 0.5, 1, 2):
        step = part * power
        first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
        if last - first < 6:
            break
    return [float(f"{step * i:.10g}") for i in np.arange(first, last + 1)]


def _padded(values: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest value, with some room on both sides."""
    low, high = float(values.min()), float(values.max())
    more = 0.04 * (high - low) or 0.01 * abs(high) or 0.01
    return low - more, high + more


def _scale(span: tuple[float, float], start: float, end: float) -> Callable[[float], float]:
    width = span[1] - span[0] or 1.0
    return lambda value: start + (end - start) * (value - span[0]) / width


def _svg(name: str, words: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg class="plot" id="{escape(name)}" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(words)}">{"".join(parts)}</svg>'
    )


def _text(
    x: float, y: float, text: str, anchor: str = "start", *, turned: bool = False, size: float = 0
) -> str:
    more = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    more += f' font-size="{size:.1f}"' if size else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _grid(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path class="grid-line" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'


def _dot(x: float, y: float, kind: str, title: str) -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5">{told}</circle>'


def _tick(value: float) -> str:
    return f"{value:.6g}".replace("-", "−")


def _length(text: str) -> float:
    """About how long a text is in the font size of the figures, erring on the long side."""
    wide = sum(c in "WMwm@%—…" or east_asian_width(c) in "WF" for c in text)
    upper = sum(c.isupper() and c not in "WM" for c in text)
    return 7.6 * len(text) + 4.9 * wide + 1.9 * upper


def _short(text: str, length: float) -> str:
    """As much of a text as there is room for."""
    text = visible(text[: int(length)])  # a name may be as long as a book
    if _length(text) <= length:
        return text
    while _length(f"{text}…") > length:
        text = text[:-1]
    return f"{text}…"
