"""The figures, in one style. Colours of text and lines follow the page's scheme, see `page.css`."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from evalign.core.confusion import Confusion
from evalign.report.contents import Contents, Scored
from evalign.report.curves import reliability, shown_classes

# Legible on white and on black, and for the colour-blind.
ALIGNED, BASELINE, MUTED = "#3b7dd8", "#d9822b", "#8a8f98"
COLOURS = [ALIGNED, BASELINE, MUTED]
# Transparent at 0, so that the page shows through, and never so strong that text is hard to read.
SHADES = [[0, "rgba(59,125,216,0)"], [0.25, "rgba(59,125,216,0.3)"], [1, "rgba(59,125,216,0.65)"]]
# Counts are written into the cells of matrices up to this size, and beyond it shown on hover.
WRITTEN = 10
# Labels on an axis, and characters in one, at most.
LABELS, CHARACTERS = 20, 14

_axis = {
    "automargin": True,
    "fixedrange": True,
    "zeroline": False,
    "ticks": "",
    "title": {"font": {"size": 13}, "standoff": 8},
}
STYLE = go.layout.Template(
    layout={
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
        "xaxis": _axis,
        "yaxis": _axis,
        "legend": {"orientation": "h", "x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom"},
        "dragmode": False,
        "height": 320,
    }
)
EPOCH = {"title": {"text": "epoch"}}
UNIT = {"range": [-0.02, 1.02], "tickvals": [0, 0.25, 0.5, 0.75, 1]}


def intervals(methods: Sequence[dict[str, Any]]) -> go.Figure:
    """Each method's value and interval, the first on top."""
    value, low, high = (np.array([m[k] for m in methods]) for k in ("value", "low", "high"))
    colours = COLOURS[: len(methods)]
    bars = [
        go.Scatter(
            x=[low[i], high[i]],
            y=[i, i],
            mode="lines",
            line={"color": colour, "width": 3},
            hoverinfo="skip",
        )
        for i, colour in enumerate(colours)
    ]
    dots = go.Scatter(
        x=value,
        y=np.arange(len(methods)),
        mode="markers",
        marker={"color": colours, "size": 11},
        customdata=np.stack([low, high], 1),
        hovertemplate="%{x:.4f}<br>%{customdata[0]:.4f} to %{customdata[1]:.4f}<extra></extra>",
    )
    # Names are above the lines, not beside them, where a phone has no room.
    above = {"xref": "paper", "x": 0, "xanchor": "left", "xshift": -9}
    above |= {"yshift": 17, "showarrow": False}
    names = [{"text": escape(m["name"]), "y": i, **above} for i, m in enumerate(methods)]
    y = {"showgrid": False, "showticklabels": False, "range": [len(methods) - 0.6, -0.8]}
    room = 0.04 * (max(high) - min(low)) or 0.01
    x = {"range": [min(low) - room, max(high) + room], "nticks": 6}
    return _figure(
        [*bars, dots],
        xaxis=x,
        yaxis=y,
        annotations=names,
        showlegend=False,
        height=30 + 50 * len(methods),
    )


def matrix(contents: Contents, confusion: Confusion) -> go.Figure:
    """The confusion matrix: a cell's colour is its share of the true class, its text the count."""
    codes = shown_classes(contents)
    counts = confusion.matrix.numpy()
    share = counts / np.maximum(counts.sum(1, keepdims=True), np.finfo(float).tiny)
    counts, share = counts[np.ix_(codes, codes)], share[np.ix_(codes, codes)]
    # Names are categories, even if they look like numbers or dates.
    names = [escape(contents.classes[code]) for code in codes]
    places = np.arange(0, len(codes), -(-len(codes) // LABELS))
    ticks = {
        "type": "category",
        "tickvals": places,
        "ticktext": [_short(contents.classes[codes[place]]) for place in places],
        "showgrid": False,
        "constrain": "domain",
        "autotickangles": [0, 90],
    }
    gap = 1 if len(codes) <= LABELS else 0
    written = len(codes) <= WRITTEN
    heat = go.Heatmap(
        x=names,
        y=names,
        z=share.astype(np.float32),
        zmin=0,
        zmax=1,
        colorscale=SHADES,
        showscale=False,
        xgap=gap,
        ygap=gap,
        text=[[_count(count) for count in row] for row in counts],
        texttemplate="%{text}" if written else None,
        hovertemplate="true %{y}<br>predicted %{x}<br>"
        "%{text} rows, %{z:.1%} of the class<extra></extra>",
    )
    x = {"title": {"text": "predicted"}, "constraintoward": "left", **ticks}
    y = {"title": {"text": "true"}, "constraintoward": "top", **ticks}
    y |= {"autorange": "reversed", "scaleanchor": "x"}
    return _figure([heat], xaxis=x, yaxis=y, height=320 if written else 400)


def precision_recall(contents: Contents) -> go.Figure:
    """For each model a curve and its rule's point, then the slider's; `page.js` fills them in."""
    traces = []
    for model, colour in zip(contents.models, COLOURS, strict=False):
        label = escape(model.label)
        curve = {"mode": "lines", "line": {"color": colour, "width": 2}}
        point = {"mode": "markers", "marker": {"color": colour, "size": 12, "symbol": "diamond"}}
        hover = "recall %{x:.3f}<br>precision %{y:.3f}"
        traces += [
            go.Scatter(x=[], y=[], name=label, hovertemplate=hover, **curve),
            go.Scatter(x=[], y=[], name=label, hovertemplate=hover, showlegend=False, **point),
        ]
    ring = {"color": "rgba(0,0,0,0)", "size": 17, "line": {"color": ALIGNED, "width": 3}}
    slider = go.Scatter(x=[], y=[], mode="markers", marker=ring, hoverinfo="skip", showlegend=False)
    return _figure(
        [*traces, slider],
        xaxis={"title": {"text": "recall"}, **UNIT},
        yaxis={"title": {"text": "precision"}, **UNIT},
        height=380,
    )


def reliability_curve(contents: Contents) -> go.Figure:
    ends = [0, 1]
    line = {"color": MUTED, "dash": "dot", "width": 1}
    ideal = go.Scatter(x=ends, y=ends, mode="lines", line=line, name="ideal", hoverinfo="skip")
    curves = []
    for model, colour in zip(contents.models, COLOURS, strict=False):
        bins = reliability(contents, model)
        curves.append(
            go.Scatter(
                x=bins.probability,
                y=bins.frequency,
                customdata=bins.rows,
                name=escape(model.label),
                mode="lines+markers",
                line={"color": colour, "width": 2},
                hovertemplate="said %{x:.3f}<br>found %{y:.3f}<br>%{customdata:,} rows",
            )
        )
    return _figure(
        [ideal, *curves],
        xaxis={"title": {"text": "probability"}, **UNIT},
        yaxis={"title": {"text": "frequency"}, **UNIT},
        height=420,
    )


def loss_curve(model: Scored, colour: str) -> go.Figure:
    return _figure(
        [
            _epochs(model, "validation_loss", "validation rows", {"color": colour}),
            _epochs(model, "loss", "training rows", {"color": colour, "dash": "dot"}),
            _best(model, "validation_loss", colour),
        ],
        xaxis=EPOCH,
    )


def metric_curve(contents: Contents) -> go.Figure:
    traces = []
    for model, colour in zip(contents.models, COLOURS, strict=False):
        traces.append(_epochs(model, "validation_metric", escape(model.label), {"color": colour}))
        traces.append(_best(model, "validation_metric", colour))
    return _figure(traces, xaxis=EPOCH)


def temperature_curve(model: Scored) -> go.Figure:
    line = {"color": ALIGNED, "shape": "hv"}
    trace = _epochs(model, "temperature", escape(model.label), line)
    y = {"rangemode": "tozero"}
    return _figure([trace], xaxis=EPOCH, yaxis=y, showlegend=False)


def _epochs(model: Scored, key: str, name: str, line: dict[str, Any]) -> go.Scatter:
    epochs = [record["epoch"] for record in model.history]
    values = [record[key] for record in model.history]
    return go.Scatter(x=epochs, y=values, name=name, mode="lines", line={"width": 2, **line})


def _best(model: Scored, key: str, colour: str) -> go.Scatter:
    """The epoch whose weights were kept."""
    best = [record for record in model.history if record["best"]][-1:]
    return go.Scatter(
        x=[record["epoch"] for record in best],
        y=[record[key] for record in best],
        mode="markers",
        marker={"color": colour, "size": 10},
        name="best epoch",
        showlegend=False,
    )


def _figure(traces: Sequence[Any], **layout: Any) -> go.Figure:
    return go.Figure(traces, {"template": STYLE, **layout})


def _count(value: float) -> str:
    """Write a count as a whole number, or with one decimal if it is soft or weighted."""
    return f"{value:,.1f}".removesuffix(".0")


def _short(name: str) -> str:
    """A class name for an axis; plotly reads a little HTML, so it is escaped."""
    return escape(name if len(name) <= CHARACTERS else name[: CHARACTERS - 1] + "…")
