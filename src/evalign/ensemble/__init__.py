"""Choose or blend models for a table: `AlignedEnsemble`.

From high to low: `classifier` is the estimator. `table_forms` reads rows in the forms that
candidates take, `trials` cross-validates all candidates on the same folds, `fitted_ensemble` is the
result of a fit, and `storage` saves and loads it. `choice` chooses or weights the candidates and
estimates the gain, `training` trains one fold by fold within the time limit. `candidates` builds
them, and `narration` prints progress. May import `estimator` and what is below it.
"""

from evalign.ensemble.classifier import AlignedEnsemble

__all__ = ["AlignedEnsemble"]
