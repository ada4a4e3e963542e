"""The scikit-learn estimators, on one spine.

Inputs become out-of-fold scores, these become a rule, and both are kept and saved by `spine`.
`out_of_fold` splits, trains and scores any classifier, `evidence` fits rules fold by fold,
`targets` reads labels, weights and groups.

- `decision_cv`: the spine around one classifier.
- `ensemble`: around several. `candidates` builds them, `trials` trains them in time, `blend`
  mixes them, `judge` scores all of them.
- `classifier`: a network, from `rows` by `fitting` and `network` (`members`, `scaling`,
  `arguments`, `progress`) to `module`.

May import `training`, `tables` and what is below them.
"""

from evalign.estimators.classifier import AlignedClassifier
from evalign.estimators.decision_cv import AlignedDecisionCV
from evalign.estimators.ensemble import AlignedEnsemble
from evalign.tables.features import FrameEncoder

__all__ = ["AlignedClassifier", "AlignedDecisionCV", "AlignedEnsemble", "FrameEncoder"]
