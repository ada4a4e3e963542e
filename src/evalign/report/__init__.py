"""The outcome of a run, as numbers and as one HTML page that opens offline.

From low to high: `contents` (what is shown), `summary` (the numbers, ready for JSON), `curves`
(what the figures draw), `figures` (plotly, one style), `page` (the HTML, with `page.html`,
`page.css` and `page.js`). May import `core`; knows nothing of how a model was trained. Needs
plotly, of the extra `cli`.
"""

from evalign.report.contents import Contents, Scored, TriedModels
from evalign.report.page import render
from evalign.report.summary import scores

__all__ = ["Contents", "Scored", "TriedModels", "render", "scores"]
