"""The outcome of a run, as numbers and as one HTML page that opens offline.

From low to high: `contents` (what is shown), `words` (the sentences), `summary` (the numbers, ready
for JSON), `curves` (what the figures draw), `figures` (as SVG), `markup` (pieces of HTML), `head`
(the first part of the page), `page` (the whole of it, with `page.html`, `page.css` and `page.js`).
May import `core`; knows nothing of how a model was trained.
"""

from evalign.report.contents import Contents, ModelFindings, Scored, TriedModels
from evalign.report.page import render
from evalign.report.summary import scores

__all__ = ["Contents", "ModelFindings", "Scored", "TriedModels", "render", "scores"]
