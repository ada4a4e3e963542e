"""`AlignedClassifier` on frames."""

import re

import numpy as np
import polars as pl
import pytest

from evalign import AlignedClassifier
from tests.estimator.models import SmallNetwork, quick
from tests.ground.tables.test_features import REFUSED, ROWS, X, Y, frame, labels


@pytest.fixture(scope="module")
def fitted():
    return quick("f1", epochs=15).fit(X, Y)


def test_it_learns_from_all_kinds(fitted):
    new = frame(2000, seed=1)
    assert fitted.score(new, labels(new, seed=1)) > 0.85  # the number alone gives 0.75
    assert fitted.n_features_in_ == 7
    assert fitted.feature_names_in_.tolist() == X.columns.tolist()


def test_it_is_saved_with_its_columns(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = AlignedClassifier.load(tmp_path / "model", network=SmallNetwork())
    assert again.features_ == fitted.features_
    for table in (X, X[X.columns[::-1]], pl.from_pandas(X)):
        np.testing.assert_array_equal(again.predict_proba(table), fitted.predict_proba(X))
    assert again.feature_names_in_.tolist() == X.columns.tolist()
    with pytest.raises(
        ValueError, match=r"X of AlignedClassifier must have the columns of fit\. Got no"
    ):
        again.predict(X.drop(columns="age"))


@pytest.mark.parametrize(("wrong", "kind", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_refused(wrong, kind, text):
    with pytest.raises(kind, match=re.escape(text.replace("FrameEncoder", "AlignedClassifier"))):
        quick().fit(wrong, Y)


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="y of AlignedClassifier must hold at least one row"):
        quick().fit(X[:0], Y[:0])


def test_validation_data_and_weights():
    weight = np.where(np.arange(ROWS) < 200, 1.0, 0.0)
    other = X.copy()
    other.loc[200:, ["age", "colour"]] = [1e6, "violet"]
    clf = quick(epochs=2).fit(other, Y, sample_weight=weight)
    plain = quick(epochs=2).fit(X[:200], Y[:200])
    assert clf.features_ == plain.features_  # rows of no weight teach nothing
    seen = X[:200]
    np.testing.assert_array_equal(clf.predict_proba(seen), plain.predict_proba(seen))
    given = quick(epochs=2).fit(
        X[:200], Y[:200], validation_data=(pl.from_pandas(X[200:]), Y[200:])
    )
    expected = plain.fit(seen, Y[:200], validation_data=(X[200:], Y[200:])).predict_proba(seen)
    np.testing.assert_array_equal(given.predict_proba(seen), expected)
    grouped = quick(epochs=2).fit(X, Y, groups=np.arange(ROWS) // 3)
    assert grouped.predict(X).shape == (ROWS,)
