"""The slopes of an objective are those of its value: of metric, constraints, gaps and goals."""

import numpy as np
import pytest

from evalign.decisions.objective import Objective
from tests.tolerances import DIFFERENCE

CONSTRAINTS = {
    "none": None,
    "one": "recall[0] >= 0.6",
    "several": "recall[0] >= 0.6, precision[1] >= 0.5, predicted_rate[2] <= 0.3",
    "gap": "gap(recall[0]) <= 0.1",
    "gaps and a bound": "gap(recall[0]) <= 0.1, gap(fpr[2]) <= 0.2, accuracy >= 0.7",
}
COST = "expected_cost[[0,1,2],[3,0,1],[5,1,0]]"
STEP = 1e-6


def sums_of(matrices, objective):
    """Matrices as the objective takes them: three sums if it is compact."""
    if not objective.compact:
        return matrices
    return np.stack([matrices.diagonal(0, -2, -1), matrices.sum(-2), matrices.sum(-1)], -2)


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("metric", ["f1_macro", "matthews_corrcoef", "cohen_kappa_quadratic", COST])
@pytest.mark.parametrize("goal", [False, True])
def test_slopes_are_those_of_the_value(metric, name, goal):
    groups = 3 if "gap" in name else 0
    objective = Objective.of("test", metric, CONSTRAINTS[name], groups=groups).compacted()
    if goal:
        objective = objective.safest() if name != "none" else objective
    generator = np.random.default_rng(0)
    shape = (8, 3 * max(groups, 1), 3)
    matrices = generator.random(shape) + np.tile(2 * np.eye(3), (max(groups, 1), 1))
    direction = generator.standard_normal(shape)
    share = generator.random(8)

    def value(by):
        return objective.mixed(sums_of(matrices + by * direction, objective), share)

    slopes = objective.slopes(sums_of(matrices, objective), share)
    found = (slopes * sums_of(direction, objective)).sum((-2, -1))
    expected = (value(STEP) - value(-STEP)) / (2 * STEP)
    # The smooth minimum bends a hundred times as fast as a metric, over a range of 0.01.
    np.testing.assert_allclose(found, expected, rtol=0, atol=100 * DIFFERENCE)


def test_parts_of_many_confusions_are_each_by_itself(monkeypatch):
    objective = Objective.of("test", "f1_macro", "recall[0] >= 0.6").compacted()
    matrices = np.random.default_rng(0).random((4, 5, 3, 3))
    sums = sums_of(matrices, objective)
    share = np.random.default_rng(1).random((4, 1))
    whole = objective.mixed(sums, share), objective.scores(sums), objective.smallest_slack(sums)
    monkeypatch.setattr("evalign.decisions.objective.NUMBERS_AT_ONCE", 30)
    parts = objective.mixed(sums, share), objective.scores(sums), objective.smallest_slack(sums)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)
    none = objective.scores(sums[:0])
    assert none.shape == (0, 5)
