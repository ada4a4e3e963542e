"""The scikit-learn estimators."""

from evalign.estimators.classifier import AlignedClassifier
from evalign.estimators.decision_cv import AlignedDecisionCV
from evalign.estimators.ensemble import AlignedEnsemble
from evalign.tables.features import FrameEncoder

__all__ = ["AlignedClassifier", "AlignedDecisionCV", "AlignedEnsemble", "FrameEncoder"]
