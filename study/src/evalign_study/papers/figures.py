"""The papers' figures, drawn from the curves of our runs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import plotly.graph_objects as go

from evalign_study.papers.evidence import Evidence
from evalign_study.papers.plan import Cell
from evalign_study.papers.tables import Panel
from evalign_study.pipeline.style import EPOCH, STYLE
from evalign_study.records.made import Record
from evalign_study.records.run import LOSS

# Plotly repeats its colours after ten lines, so the dash or the symbol changes then.
COLOURS, DASHES, SYMBOLS = 10, ("solid", "dash"), ("circle", "cross")


def figures(evidence: Evidence) -> dict[str, go.Figure]:
    """Draw the figures, by title; a table, or a figure without records, has none."""
    return {
        f"{panel.label}: {title}": figure
        for panel in evidence.table.panels
        for title, figure in DRAW.get(evidence.table.kind, _nothing)(evidence, panel)
    }


Titled = Iterator[tuple[str, go.Figure]]


def _nothing(evidence: Evidence, panel: Panel) -> Titled:
    yield from ()


def _convergence(evidence: Evidence, panel: Panel) -> Titled:
    """Draw the median of the repetitions, epoch by epoch."""
    curves = _curves(evidence, panel)
    for column in panel.columns:
        kind, _, key = column.metric.partition(":")
        if kind != "last" or not curves:
            continue
        lines = []
        for i, (label, records) in enumerate(curves.items()):
            values = [[epoch[key] for epoch in record["curve"]] for record in records]
            median = np.median(values, axis=0).tolist()
            epochs = list(range(1, len(median) + 1))
            dash = {"dash": DASHES[i // COLOURS]}
            lines.append(go.Scatter(x=epochs, y=median, name=label, line=dash))
        yield column.label, _figure(lines, xaxis=EPOCH)


def _scatter(evidence: Evidence, panel: Panel) -> Titled:
    """Draw loss against Fβ over the epochs of all repetitions."""
    curves = _curves(evidence, panel)
    for column in panel.columns:
        beta = column.metric.partition(":")[2]
        dots = [
            go.Scatter(
                x=[epoch["train_loss"] for record in records for epoch in record["curve"]],
                y=[epoch[f"train_f{beta}"] for record in records for epoch in record["curve"]],
                mode="markers",
                marker={"symbol": SYMBOLS[i // COLOURS]},
                name=label,
            )
            for i, (label, records) in enumerate(curves.items())
        ]
        if dots:
            axes = {
                "xaxis": {"title": {"text": "loss"}},
                "yaxis": {"title": {"text": column.label}},
            }
            yield f"loss against {column.label}", _figure(dots, **axes)


DRAW = {"convergence": _convergence, "scatter": _scatter}


def _curves(evidence: Evidence, panel: Panel) -> dict[str, list[Record]]:
    """Collect the trials of each line that has any."""
    found = {
        line.label: evidence.trials(Cell(panel, panel.variants[0], line), LOSS)
        for line in panel.lines
    }
    return {label: records for label, records in found.items() if records}


def _figure(traces: list[Any], **layout: Any) -> go.Figure:
    return go.Figure(traces, {"template": STYLE, **layout})
