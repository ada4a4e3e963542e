"""The scikit-learn estimators: `AlignedClassifier` and `AlignedDecisionCV`.

From high to low: `classifier` trains a network. `fitting` trains and fits the decision rule,
`storage` saves and loads, `export` writes ONNX. `state` is what a fit leaves behind. `arguments`
checks the constructor's arguments, `positive` knows which of two classes a metric is about,
`network` builds a network and asks it, `progress` tells how far training is. `members` is the
default network, `folds` several for a small table, `quantiles` scales columns, and `rows` reads
and splits a table. `frames` makes a matrix of its columns, `roles` says which of them teach
something, `columns` are what is learnt of each, and `cells` reads them from whatever frame it is.

`decision_cv` puts a decision around any other classifier. `held_out` trains it fold by fold,
`targets` reads labels, `plot` draws. `evidence` says what a rule brings on rows it has not seen,
and `answers` are what a classifier says of rows.
"""

from evalign.estimator.classifier import AlignedClassifier
from evalign.estimator.decision_cv import AlignedDecisionCV
from evalign.tables.features import FrameEncoder

__all__ = ["AlignedClassifier", "AlignedDecisionCV", "FrameEncoder"]
