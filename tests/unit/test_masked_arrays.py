"""Masked arrays of numpy are refused: a value behind the mask is never read."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from evalign import AlignedDecisionCV, Confusion, fit_decision, score

Y = np.arange(40) % 2
MASKED = np.ma.masked_equal(np.where(np.arange(40) == 3, 9, Y), 9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: score("f1", y_true=MASKED, y_pred=Y),
        lambda: score("f1", y_true=Y, y_pred=Y, sample_weight=MASKED),
        lambda: Confusion.from_predictions(Y, MASKED),
        lambda: fit_decision(1.0 * Y, MASKED, metric="f1"),
        lambda: AlignedDecisionCV(GaussianNB(), "f1").fit(Y[:, None], MASKED),
    ],
)
def test_masked_cells_are_refused(call):
    with pytest.raises(ValueError, match="must be without masked cells"):
        call()
