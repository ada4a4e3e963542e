"""The best model for a table by itself: `AlignedEnsemble`.

From high to low: `classifier` is the estimator, `trying` tries all candidates on the same folds. `choice` says which of them are used and what that brings, `training`
trains one fold by fold as far as the time goes. `candidates` builds them, and `progress` tells how
far it is. May import `estimator` and what is below it.
"""

from evalign.ensemble.classifier import AlignedEnsemble

__all__ = ["AlignedEnsemble"]
