"""From scores to labels: argmax, thresholds, and gain matrices of the linearised metric.

From low to high: `formula` (from logits to labels) and `blocks` (many rows at once), `objective`
(metric and constraints of many confusions at once) and `inputs` (the accepted forms of rows),
`threshold` (two classes), `confusions` and `local_search`, `gain_search` (more classes),
`calibration`, `tuned` (with labels), `p_values`, `families`, `ladder` and `promise` (for new data),
`multilabel`, `saved_rule`, `rule`, `settings` (what a fit is asked), `fit_rows`, `fit` and `fitter`
(the public face). May import `core`, and `store` to write a rule.

Applying a rule needs NumPy alone: the names below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalign.decisions.fit import fit_decision
    from evalign.decisions.fitter import DecisionFitter
    from evalign.decisions.rule import DecisionRule
    from evalign.decisions.saved_rule import Decision

__all__ = ["Decision", "DecisionFitter", "DecisionRule", "fit_decision"]

_HOME = {
    "Decision": "evalign.decisions.saved_rule",
    "DecisionFitter": "evalign.decisions.fitter",
    "DecisionRule": "evalign.decisions.rule",
    "fit_decision": "evalign.decisions.fit",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
