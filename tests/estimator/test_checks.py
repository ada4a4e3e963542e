"""scikit-learn's own checks of an estimator."""

import pytest
from sklearn.utils.estimator_checks import check_classifiers_train, parametrize_with_checks

from evalign.decisions import gain_search
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
    [quick(epochs=1)],
    expected_failed_checks=lambda _: EXPECTED_FAILURES | {"check_classifiers_train": LABELS},
)
def test_scikit_learn(estimator, check, monkeypatch):
    # Without it the check of array API input, here with NumPy, skips itself.
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    monkeypatch.setattr(
        gain_search, "MOST_STEPS", 1
    )  # a rule is found; whether it is the best is not checked
    check(estimator)


PLAIN = quick(decision="argmax", recipe="cross_entropy")


def test_the_largest_probability_trains_as_scikit_learn_wants():
    check_classifiers_train("AlignedClassifier", PLAIN)


@pytest.mark.slow
@parametrize_with_checks([PLAIN], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learn_without_the_metric(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)
