"""The scikit-learn estimators: `AlignedClassifier` and `AlignedDecisionCV`.

From high to low: `classifier` is the estimator that trains a network. `fitting` trains it and fits
the decision rule, `storage` saves and loads, `export` writes ONNX. `fitted` is the result of a fit.
`arguments` checks the constructor's arguments, `positive` orients a metric towards the positive
class, `constrained` checks constraints, `network` builds and runs a network, `epoch_progress` shows
progress. `members` is the default network, `folds` several for a small table, `scaling` scales
columns, and `rows` reads and splits a table. `frames` turns its columns into a matrix, `roles` says
which of them are learned from, `columns` are what is learned about each, `cells` reads any frame.

`decision_cv` fits a decision around any other classifier. `held_out` cross-validates it, `targets`
reads labels, `plot` plots. `evidence` estimates the gain of a rule on rows that it was not fitted
to, and `out_of_fold` holds a classifier's scores of held-out rows.
"""

from evalign.estimator.classifier import AlignedClassifier
from evalign.estimator.decision_cv import AlignedDecisionCV
from evalign.tables.features import FrameEncoder

__all__ = ["AlignedClassifier", "AlignedDecisionCV", "FrameEncoder"]
