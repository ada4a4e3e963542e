"""scikit-learn's own checks of `AlignedEnsemble`."""

from functools import partial

import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from evalign import AlignedEnsemble
from evalign.core.resampling import bootstrap
from evalign.estimators import judge

# Its tables have a dozen rows; that they are few is what the warnings say.
pytestmark = pytest.mark.filterwarnings("ignore::evalign.core.errors.TrainingWarning")

WEIGHTS = "a weight of 2 and two copies of a row differ: the folds are of rows"


# Those of the two other estimators, which read rows alike, are in every run.
@pytest.mark.slow
@parametrize_with_checks(
    [
        AlignedEnsemble(
            candidates=["linear", ("bayes", GaussianNB())], cv=2, decision="argmax", random_state=0
        )
    ],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
        "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
    },
)
def test_scikit_learn(estimator, check, monkeypatch):
    # Without it the check of array API input, here with NumPy, skips itself.
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    monkeypatch.setattr(judge, "bootstrap", partial(bootstrap, resamples=20))  # none is looked at
    check(estimator)
