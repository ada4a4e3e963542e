"""The scikit-learn estimators, on one spine.

Inputs become out-of-fold scores, these become a rule, and both are kept and saved by `spine`.
`out_of_fold` splits, trains and scores any classifier, `evidence` fits rules fold by fold,
`targets` reads labels, weights and groups, `rows` whole tables.

- `decision_cv`: the spine around one classifier.
- `ensemble`: around several. `candidates` builds them, `trials` trains them in time, `blend`
  mixes them, `judge` scores all of them, `progress` tells how far a fit is.

The third estimator, `AlignedClassifier`, trains a network: it lives in `training`, and is passed on
from there. May import `tables`, `store`, `decisions` and `core`. Each name is loaded when it is
first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evalign.core import stairs

if TYPE_CHECKING:
    from evalign.core.errors import TrainingWarning
    from evalign.estimators.decision_cv import AlignedDecisionCV
    from evalign.estimators.ensemble import AlignedEnsemble
    from evalign.tables.features import FrameEncoder

__all__ = ["AlignedDecisionCV", "AlignedEnsemble", "FrameEncoder", "TrainingWarning"]

_HOME = {
    "AlignedDecisionCV": "evalign.estimators.decision_cv",
    "AlignedEnsemble": "evalign.estimators.ensemble",
    "FrameEncoder": "evalign.tables.features",
    "TrainingWarning": "evalign.core.errors",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name == "AlignedClassifier" and stairs.has_torch():
        return stairs.aligned_classifier()
    raise stairs.no_attribute(__name__, name, ["AlignedClassifier"])


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, "AlignedClassifier"])
