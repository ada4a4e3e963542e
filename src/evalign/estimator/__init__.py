"""`AlignedClassifier`, the scikit-learn estimator over recipes, training and decisions.

`classifier` is the estimator and `arguments` checks what it is given; `rows` reads and splits a
table, `network` builds a network and asks it, `storage` saves, loads and exports, `progress` tells
how far training is.
"""

from evalign.estimator.classifier import AlignedClassifier

__all__ = ["AlignedClassifier"]
