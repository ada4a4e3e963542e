"""Splits keep the shares of classes, and groups whole."""

import re
from itertools import combinations

import numpy as np
import pytest
import sklearn
from sklearn.utils.fixes import parse_version

from evalign.tables.split import holdout_split, stratified_folds, three_way_split

Y = np.repeat([0, 1, 2], [700, 250, 50])


def shares(rows):
    return np.bincount(Y[rows], minlength=3) / len(rows)


def test_64_16_20_stratified():
    parts = three_way_split(Y)
    assert [len(part) for part in parts] == [640, 160, 200]
    assert sorted(np.concatenate(parts)) == list(range(1000))
    for part in parts:
        assert shares(part) == pytest.approx([0.7, 0.25, 0.05], abs=0.005)
        assert (np.diff(part) > 0).all()
    again, other = (three_way_split(Y, seed=seed)[2] for seed in (0, 1))
    assert np.array_equal(parts[2], again)
    assert not np.array_equal(parts[2], other)


# Before 1.8 scikit-learn gave shuffled groups out in no order of their sizes.
EVEN = 0.02 if parse_version(sklearn.__version__) >= parse_version("1.8") else 0.06


@pytest.mark.parametrize("kind", ["pairs", "strings", "large"])
def test_groups_stay_together(kind):
    random = np.random.default_rng(0)
    groups = {
        "pairs": np.arange(1000) // 2,
        "strings": np.array([f"patient {i}" for i in random.integers(0, 200, 1000)]),
        "large": random.integers(0, 12, 1000),
    }[kind]
    parts = three_way_split(Y, groups=groups)
    assert sorted(np.concatenate(parts)) == list(range(1000))
    seen = [set(groups[part]) for part in parts]
    assert not any(a & b for a, b in combinations(seen, 2))
    tolerance = 0.1 if kind == "large" else EVEN
    for part, share in zip(parts, [0.64, 0.16, 0.2], strict=True):
        assert len(part) / 1000 == pytest.approx(share, abs=tolerance)
        assert shares(part) == pytest.approx([0.7, 0.25, 0.05], abs=tolerance)


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.3, 0.5])
@pytest.mark.parametrize("grouped", [False, True])
def test_any_fraction(fraction, grouped):
    groups = np.arange(1000) // 4 if grouped else None
    kept, held_out = holdout_split(Y, fraction=fraction, groups=groups)
    assert len(kept) + len(held_out) == 1000
    assert len(held_out) / 1000 == pytest.approx(fraction, abs=0.02)


def test_a_class_with_one_row_is_kept():
    y = [0] * 20 + [1] * 20 + [2]
    assert all(40 in holdout_split(y, seed=seed)[0] for seed in range(20))
    assert all(40 in three_way_split(y, seed=seed)[0] for seed in range(20))


@pytest.mark.parametrize("fraction", [0.2, 0.8])
def test_of_two_rows_one_is_held_out(fraction):
    """Also where the share of the class rounds to none, or to both."""
    for seed in range(20):
        kept, held_out = holdout_split([0] * 300 + [1, 1], fraction=fraction, seed=seed)
        assert sum(kept >= 300) == sum(held_out >= 300) == 1
        assert abs(len(held_out) - 302 * fraction) <= 1.5


def test_multilabel_rows_are_split_at_random():
    y = np.eye(3)[Y]
    assert [len(part) for part in three_way_split(y)] == [640, 160, 200]
    parts = three_way_split(y, groups=np.arange(1000) // 10)
    assert len(parts[2]) == pytest.approx(200, abs=20)


@pytest.mark.parametrize(
    ("y", "how", "text"),
    [
        (Y, {"fraction": 1.0}, "fraction of holdout_split must lie between 0 and 1. Got 1.0."),
        ([0, 0, 1, 1], {}, "each of the 2 classes on both sides. Got 0.2: 1 of 4 rows. Give more"),
        (Y, {"groups": [1, 2]}, "a value for each of the 1000 rows. Got shape (2,)."),
    ],
)
def test_bad_input(y, how, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        holdout_split(y, **how)


def test_many_groups_of_one_row_and_some_larger_ones():
    rng = np.random.default_rng(0)
    y = (rng.random(6000) < 0.1).astype(int)
    groups = np.arange(6000)
    groups[5000:] = 10_000 + rng.integers(40, size=1000)
    kept, held_out = holdout_split(y, groups=groups)
    assert not set(groups[kept]) & set(groups[held_out])
    assert sorted([*kept, *held_out]) == list(range(6000))
    assert len(held_out) == pytest.approx(1200, abs=60)
    assert y[held_out].mean() == pytest.approx(y.mean(), abs=0.01)
    assert set(held_out) & set(range(5000, 6000))


def test_folds_that_groups_leave_empty_are_left_out():
    groups = np.repeat(np.arange(5), [6, 10, 4, 4, 16])
    y = groups % 2  # both groups of class 1 come into one fold
    for seed in range(5):
        parts = stratified_folds(y, 5, groups=groups, seed=seed)
        assert all(len(kept) and len(held_out) for kept, held_out in parts)
        assert sorted(np.concatenate([part for _, part in parts])) == list(range(40))
    assert len(parts) == 4
