"""Where metrics of counts could lose digits: extremes against 60-digit arithmetic (mpmath)."""

import mpmath
import numpy as np
import pytest

from evalign import Confusion, metrics
from tests import tolerances


@pytest.fixture(autouse=True)
def sixty_digits():
    with mpmath.workdps(60):
        yield


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize("name", ["matthews_corrcoef", "cohen_kappa", "f1"])
def test_rare_positives(name, scale):
    """A hundred positives among a hundred million rows, weighted by any scale."""
    matrix = [[99_999_850, 50], [40, 60]]
    tn, fp, fn, tp = (mpmath.mpf(x) for row in matrix for x in row)
    n = tn + fp + fn + tp
    chance = ((tp + fp) * (tp + fn) + (tn + fp) * (tn + fn)) / n**2
    expected = {
        "matthews_corrcoef": (tp * tn - fp * fn)
        / mpmath.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)),
        "cohen_kappa": ((tp + tn) / n - chance) / (1 - chance),
        "f1": 2 * tp / (2 * tp + fp + fn),
    }[name]
    confusion = Confusion.from_matrix(scale * np.array(matrix, dtype=float))
    value = metrics.resolve(name)(confusion)
    assert value == pytest.approx(float(expected), rel=tolerances.RARE)


def test_a_rate_among_few_rejected_rows():
    """Counts are exact, and five rows among 2·10¹⁴ are ten times what counts as rounding."""
    c = Confusion.from_matrix([[3, 10**14], [2, 10**14]])
    npv = metrics.NegativePredictiveValue()(c)
    assert npv == pytest.approx(3 / 5, rel=tolerances.FEW_ULPS)
