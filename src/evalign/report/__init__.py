"""The result of a run, as numbers and as one HTML page that works offline.

From low to high: `contents` (what is shown), `words` (the sentences), `summary` (the numbers, ready
for JSON), `curves` (what the figures plot), `figures` (SVG), `page` (fills the `templates`). May
import `core`; does not know how a model was trained.
"""

from evalign.report.contents import Contents, ModelFindings, Scored, TriedModels
from evalign.report.page import render
from evalign.report.summary import scores

__all__ = ["Contents", "ModelFindings", "Scored", "TriedModels", "render", "scores"]
