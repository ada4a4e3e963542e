"""scikit-learn's own checks of `AlignedDecisionCV`."""

import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from evalign import AlignedDecisionCV

# Its tables have a dozen rows; that they are few is what the warnings say.
pytestmark = pytest.mark.filterwarnings("ignore::evalign.core.errors.TrainingWarning")

WEIGHTS = "a tuned rule believes few rows less than their copies: only ratios of weights count"
EQUIVALENCE = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]


@parametrize_with_checks(
    [AlignedDecisionCV(LogisticRegression(), decision="argmax", cv=2, random_state=0)]
)
def test_scikit_learn(estimator, check, monkeypatch):
    # Without it the check of array API input, here with NumPy, skips itself.
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        AlignedDecisionCV(RidgeClassifier(), decision="argmax", cv=2, random_state=0),
        AlignedDecisionCV(LogisticRegression(), cv=2, random_state=0),
    ],
    expected_failed_checks=lambda clf: (
        {} if clf.decision == "argmax" else dict.fromkeys(EQUIVALENCE, WEIGHTS)
    ),
)
def test_scikit_learn_with_scores_and_with_a_tuned_rule(estimator, check, monkeypatch):
    if isinstance(estimator.estimator, RidgeClassifier) and "predict_proba" in check.func.__name__:
        assert not hasattr(estimator, "predict_proba")  # the check would skip itself
        return
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)
