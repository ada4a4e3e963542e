"""scikit-learn's own checks of an estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.estimator.models import quick

# Its tables have a dozen rows; that they are few is what the warnings say.
pytestmark = pytest.mark.filterwarnings("ignore::evalign.training.TrainingWarning")

WEIGHTS = "a weight of 2 and two copies of a row differ: the rows held out and dropout are random"
LABELS = "the labels are those of the metric's rule, not of the largest probability"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
}


@parametrize_with_checks(
    [quick(), quick(decision="argmax", recipe="cross_entropy")],
    expected_failed_checks=lambda estimator: (
        EXPECTED_FAILURES
        | ({} if estimator.decision == "argmax" else {"check_classifiers_train": LABELS})
    ),
)
def test_scikit_learn(estimator, check, monkeypatch):
    # Without it the check of array API input, here with NumPy, skips itself.
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)
