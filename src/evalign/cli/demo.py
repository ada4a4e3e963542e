"""`evalign demo`: what a rule, a loss and a constraint do on one problem of scikit-learn."""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split the handwritten digits, and thin those of training to a long tail, 130 to 7 rows."""
    digits: Any = load_digits()
    parts = train_test_split(
        digits.data / 16, digits.target, test_size=0.5, stratify=digits.target, random_state=0
    )
    X_train, X_test, y_train, y_test = map(np.asarray, parts)
    order = np.random.default_rng(0).permutation(len(y_train))
    counts = np.geomspace(80, 7, 10).astype(int)
    kept = [order[y_train[order] == digit][:count] for digit, count in enumerate(counts)]
    rows = np.concatenate(kept)
    return X_train[rows], X_test, y_train[rows], y_test
