"""The look of the study's figures, which plotly draws. Text and lines have the page's colours."""

import plotly.graph_objects as go

# Legible on white and on black, and for the colour-blind.
ALIGNED, MUTED = "#3b7dd8", "#8a8f98"

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

CSS = """
.js-plotly-plot text { fill: var(--text) !important; }
.js-plotly-plot .gridlayer path { stroke: var(--line) !important; }
.js-plotly-plot .hoverlayer path { fill: var(--page) !important; stroke: var(--quiet) !important; }
"""
SCRIPT = """
const { figures } = JSON.parse(document.getElementById("data").textContent);
for (const [id, figure] of Object.entries(figures)) {
  Plotly.newPlot(id, figure.data, figure.layout, { responsive: true, displayModeBar: false });
}
"""
