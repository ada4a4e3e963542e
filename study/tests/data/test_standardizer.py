"""The columns of a table, standardised by its training rows."""

import numpy as np
import pytest
import torch
from evalign_study.data.standardizer import Standardizer
from sklearn.preprocessing import StandardScaler


def test_standardisation_is_scikit_learns():
    X = np.random.default_rng(0).normal([0, 100, -3], [1, 0.01, 1e4], (500, 3))
    ours = Standardizer(torch.from_numpy(X))(torch.from_numpy(X)).numpy()
    assert ours == pytest.approx(StandardScaler().fit_transform(X), rel=1e-6, abs=1e-9)


def test_constant_columns():
    """0.1 is not exact in float32, so its mean over many rows rounds, and 0/0 is near."""
    X = torch.full((1000, 200), 0.1)
    X[:, 0] = torch.linspace(0, 1, 1000)
    scaled = Standardizer(X)(X)
    assert (scaled[:, 1:] == 0).all()
    assert scaled[:, 0].std().item() == pytest.approx(1, rel=1e-2)
    assert Standardizer(X)(X + 1)[:, 1:].amax().item() == pytest.approx(1, rel=1e-5)


def test_far_from_zero():
    """A float32 column around 1e7 with a spread of 4."""
    X = 1e7 + torch.tensor([[-4.0], [4.0]]).repeat(5000, 1)
    assert Standardizer(X)(X).flatten()[:2].tolist() == [-1, 1]


def test_standardisation_by_training_rows():
    scale = Standardizer(torch.tensor([[0.0], [2.0]]))
    assert scale(torch.tensor([[100.0]])).item() == 99
    assert scale(torch.zeros(0, 1)).shape == (0, 1)
