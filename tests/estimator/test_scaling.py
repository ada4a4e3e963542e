"""Scaled columns, compared with scikit-learn's scalers."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.preprocessing import QuantileTransformer

from evalign.training.scaling import QuantileNormal, levels

# Between two levels the map is linear where the normal quantile z of the level bends. Levels h
# apart on the scale of z are off by |z| h² / 8: 0.02 between 1/192 and 2/192 (z = 2.6, h = 0.26).
BEND = 0.03
# In the tails levels are less than 0.085 apart, and a row is between those beside it.
TAIL = 0.1


def columns(rows=2000):
    rng = np.random.default_rng(0)
    return np.stack(
        [
            rng.normal(1.7e9, 1, rows),
            rng.lognormal(sigma=3, size=rows),
            rng.standard_t(1, rows),
            rng.uniform(1, 9, size=rows) ** 9,
        ],
        1,
    )


def mapped(X, new, **arguments):
    return QuantileNormal(torch.from_numpy(X), **arguments)(torch.from_numpy(new)).numpy()


def test_as_scikit_learn():
    X, new = columns(), columns()[::-1] * 1.01
    most = norm.ppf(1 - 0.5 / len(X))  # theirs is 5.2 at the last row, whatever the number of rows

    def theirs(rows, quantiles):
        scaler = QuantileTransformer(
            n_quantiles=quantiles, output_distribution="normal", subsample=None
        )
        return scaler.fit(X).transform(rows).clip(-most, most)

    for rows in (X, new):
        found, even, all_ranks = mapped(X, rows), theirs(rows, 193), theirs(rows, len(X))
        middle = abs(even) < norm.ppf(191 / 192)
        assert middle.mean() > 0.7
        np.testing.assert_allclose(found[middle], even[middle], atol=BEND)
        np.testing.assert_allclose(found[~middle], all_ranks[~middle], atol=TAIL)


def test_ties_go_where_noise_would_put_them_on_average():
    rng = np.random.default_rng(1)
    X = np.stack([rng.poisson(1.0, 4000), rng.random(4000) < 0.03, np.full(4000, 7)], 1)
    X = X.astype(float)
    theirs = QuantileTransformer(n_quantiles=1000, output_distribution="normal", subsample=None)
    noisy = theirs.fit(X + rng.normal(0, 1e-5, X.shape)).transform(X)
    # A value that has fewer rows than a level stands for is at the nearest one.
    common = np.stack([X[:, 0] < 4, X[:, 1] >= 0, X[:, 2] > 0], 1)
    # The middle of several noisy rows: levels are 1/192 apart, at z = 2.2 a step of 0.15.
    np.testing.assert_allclose(mapped(X, X)[common], noisy[common], atol=0.15)
    assert (mapped(X, X)[:, 2] == 0).all()


@pytest.mark.parametrize("rows", [1, 2, 3, 40, 500])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_monotone_and_finite(rows, dtype):
    X = columns(rows).astype(dtype)
    wide = np.sort(np.concatenate([X, -X, 1e20 * X, X[:, ::-1]]), 0)
    found = mapped(X, wide.astype(dtype))
    assert found.dtype == dtype
    assert np.isfinite(found).all()
    assert (np.diff(found, axis=0) >= 0).all()
    assert abs(found).max() <= abs(norm.ppf(0.5 / rows)) + 1e-6


def test_the_largest_numbers_do_not_overflow():
    largest = np.finfo(np.float64).max
    X = np.array([[-largest], [0], [largest]])
    np.testing.assert_allclose(mapped(X, X), norm.ppf([[1 / 6], [0.5], [5 / 6]]), atol=1e-12)
    np.testing.assert_allclose(mapped(X, X / 2)[0], norm.ppf(0.25), atol=1e-12)
    X = np.repeat([[-largest], [largest]], [200, 300], 0)  # farther apart than any number is large
    low, middle, high = mapped(X, np.array([[-largest], [0], [largest]]))[:, 0]
    np.testing.assert_allclose(middle, (low + high) / 2, atol=1e-12)


def test_far_beyond_close_numbers_it_is_the_last_of_them():
    X = 1e-300 * np.arange(101.0)[:, None]
    np.testing.assert_allclose(mapped(X, np.array([[1e300]])), norm.ppf(1 - 0.5 / 101))


def test_ties_of_numbers_that_are_rounded():
    """Ranks are all that counts: tenths go where whole numbers go."""
    whole = np.random.default_rng(0).poisson(3.0, (400, 1)) + 1.0
    np.testing.assert_array_equal(mapped(whole / 10, whole / 10), mapped(whole, whole))


def test_flags_stay_as_they_are():
    X = np.concatenate([columns(100), np.eye(100)[:, :2]], 1)
    scaler = QuantileNormal(torch.from_numpy(X), n_flags=2)
    found = scaler(torch.from_numpy(X)).numpy()
    assert np.array_equal(found[:, 4:], X[:, 4:])
    assert np.array_equal(found[:, :4], mapped(X[:, :4], X[:, :4]))
    assert scaler.n_features == 6
    assert scaler.edges[4:] == [None, None]


def test_edges_are_quantiles():
    X = columns(5000)
    scaler = QuantileNormal(torch.from_numpy(X))
    whole = np.stack([X[:, 0].round(), X[:, 1] > 1, np.ones(5000)], 1)
    for column, edges in zip(mapped(X, X).T, scaler.edges, strict=True):
        np.testing.assert_allclose(edges, np.quantile(column, np.arange(49) / 48), atol=0.01)
    several, two, one = QuantileNormal(torch.from_numpy(whole)).edges
    assert two is one is None  # a single bin, or none, needs no embedding
    assert 5 <= len(several) <= 7  # of a normal's whole numbers
    assert torch.equal(several, several.unique())


def test_it_is_saved_and_loaded():
    X = torch.from_numpy(columns(50))
    scaler = QuantileNormal(X, n_flags=1)
    again = QuantileNormal.from_state_dict(scaler.state_dict())
    assert torch.equal(scaler(X), again(X))
    assert again.n_features == 4


@pytest.mark.parametrize(
    "change",
    [
        {"knots": torch.zeros(2, 3, dtype=torch.float64)},
        {"values": torch.full((2, 257), torch.nan, dtype=torch.float64)},
        {"knots": torch.zeros(2, 257)},
        {"n_flags": -1},
    ],
)
def test_a_state_that_is_none(change):
    state = QuantileNormal(
        torch.rand(9, 2, generator=torch.Generator().manual_seed(0))
    ).state_dict()
    with pytest.raises(ValueError, match="QuantileNormal must hold finite knots and values"):
        QuantileNormal.from_state_dict(state | change)


def test_the_levels_are_four_to_a_bin():
    assert len(levels()) == 257  # 2⁸ + 1, which bisection takes in eight steps
    assert set(np.arange(1, 48) / 48).issubset(levels().tolist())
