"""`AlignedClassifier`, the scikit-learn estimator over recipes, training and decisions.

From high to low: `classifier` is the estimator. `fitting` trains and fits the decision rule,
`storage` saves and loads, `export` writes ONNX. `state` is what a fit leaves behind. `arguments`
checks the constructor's arguments, `positive` knows which of two classes a metric is about,
`network` builds a network and asks it, `progress` tells how far training is, and `rows` reads and
splits a table.
"""

from evalign.estimator.classifier import AlignedClassifier

__all__ = ["AlignedClassifier"]
