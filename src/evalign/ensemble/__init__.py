"""The best model for a table by itself: `AlignedEnsemble`.

From high to low: `classifier` is the estimator. `reading` reads rows, `trying` tries all candidates
on the same folds, `state` is what a fit leaves behind, and `storage` saves and loads it. `choice`
says which candidates are used and what that brings, `training` trains one fold by fold as far as
the time goes. `candidates` builds them, and `progress` tells how far it is. May import `estimator`
and what is below it.
"""

from evalign.ensemble.classifier import AlignedEnsemble

__all__ = ["AlignedEnsemble"]
