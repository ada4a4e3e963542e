"""`FrameEncoder`, and `AlignedEnsemble` on frames."""

import datetime as dt
import json
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from evalign import AlignedDecisionCV, AlignedEnsemble
from evalign.tables import DataWarning, Features, FrameEncoder
from evalign.tables.columns import LEVELS, PARTS, RARE, calendar
from evalign.tables.values import parsed_dates

ROWS = 300
DAYS = pd.date_range("1963-11-22 18:30", periods=ROWS, freq="77h")


def frame(rows=ROWS, seed=0):
    """Make a frame with a column of each kind, most of them with gaps."""
    rng = np.random.default_rng(seed)

    def holes(values):
        return pd.Series(values).mask(rng.random(rows) < 0.1)

    return pd.DataFrame(
        {
            "age": rng.normal(50, 10, rows).round(3),
            "income": holes(rng.normal(size=rows)),
            "colour": holes(
                rng.choice(["red", "green", "blue", "mauve"], rows, p=[0.5, 0.3, 0.18, 0.02])
            ),
            "size": pd.Categorical(rng.choice(["S", "M", "L"], rows)),
            "member": rng.random(rows) < 0.3,
            "sure": holes(rng.random(rows) < 0.5).astype("boolean"),
            "since": holes(rng.choice(DAYS, rows)),
        }
    )


def labels(X, seed=0):
    """Classes that depend on a number, a category and a truth value."""
    rng = np.random.default_rng(seed)
    score = (X["age"] - 50) / 10 + 2 * (X["colour"] == "red") + X["member"]
    return (score + 0.3 * rng.normal(size=len(X)) > 1.5).astype(int).to_numpy()


X = frame()
Y = labels(X)


def by_columns(matrix):
    """The same matrix for any order of columns."""
    return matrix[:, np.lexsort(matrix)]


# What scikit-learn makes of the same columns.


@pytest.mark.parametrize("seed", range(3))
def test_numbers_and_categories_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    levels = [f"level {i}" for i in range(3 * LEVELS)]
    share = rng.dirichlet(np.full(len(levels), 0.5))

    def made(rows):
        return pd.DataFrame(
            {
                "a": rng.normal(size=rows),
                "b": pd.Series(rng.integers(5, size=rows).astype(float)).mask(
                    rng.random(rows) < 0.2
                ),
                "few": pd.Series(rng.choice(["x", "y", "z"], rows)).mask(rng.random(rows) < 0.1),
                "many": rng.choice(levels, rows, p=share),  # above LEVELS, with equal counts
                "some": rng.choice(levels[: 2 * RARE], rows),
            }
        )

    X, new = made(4000), made(500)
    new.loc[:9, "few"] = "unseen"
    new.loc[5:20, "many"] = "unseen"
    new.loc[:20, "a"] = np.nan  # of which training had none
    categories = OneHotEncoder(
        min_frequency=RARE,
        max_categories=LEVELS,
        handle_unknown="infrequent_if_exist",
        sparse_output=False,
    )
    numbers = SimpleImputer(strategy="median", add_indicator=True)
    named = ["few", "many", "some"]
    theirs = make_column_transformer((numbers, ["a", "b"]), (categories, named))
    ours = FrameEncoder()
    filled = dict.fromkeys(named, "")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        warnings.filterwarnings("ignore", "Rows have categories", DataWarning)
        for got, expected in [
            (ours.fit_transform(X), theirs.fit_transform(X.fillna(filled))),
            (ours.transform(new), theirs.transform(new.fillna(filled))),
        ]:
            assert got.shape == expected.shape
            np.testing.assert_array_equal(by_columns(got), by_columns(expected))
    assert ours.features_.numbers == 2
    assert (ours.transform(X)[:, 2:] <= 1).all()


@settings(max_examples=200, deadline=None)
@given(st.datetimes())
def test_the_parts_of_a_date(when):
    found = calendar(np.array([when], "datetime64[us]"))
    assert [found[part].item() for part in ("year", "month", "weekday")] == [
        when.year,
        when.month,
        when.weekday(),
    ]
    since = when - dt.datetime(1970, 1, 1)
    assert found["days"].item() == pytest.approx(since / dt.timedelta(days=1), rel=1e-12)
    midnight = when.replace(hour=0, minute=0, second=0, microsecond=0)
    assert found["hour"].item() == pytest.approx((when - midnight) / dt.timedelta(hours=1))


def test_dates_are_numbers():
    when = pd.Series(DAYS).mask(np.arange(ROWS) % 7 == 0)
    encoder = FrameEncoder().fit(pd.DataFrame({"when": when}))
    names = [f"when: {part}" for part in PARTS]
    assert encoder.get_feature_names_out().tolist() == [*names, "when is missing"]
    assert encoder.features_.numbers == len(PARTS)
    matrix = encoder.transform(pd.DataFrame({"when": when}))
    for column, part in zip(
        matrix.T[1:4], (when.dt.year, when.dt.month, when.dt.day_of_week), strict=True
    ):
        np.testing.assert_array_equal(column, part.fillna(part.median()))
    np.testing.assert_array_equal(matrix[:, -1], when.isna())
    days = pd.DataFrame({"when": pd.date_range("2024-03-01", periods=20)})
    found = FrameEncoder().fit(days).get_feature_names_out()  # no hours, one year and one month
    assert found.tolist() == ["when: days", "when: weekday"]


def test_dates_of_text_and_with_a_zone():
    texts = pd.Series(DAYS.strftime("%Y-%m-%d %H:%M:%S")).mask(np.arange(ROWS) % 9 == 0)
    typed = pd.DataFrame({"when": pd.to_datetime(texts)})
    encoder = FrameEncoder().fit(typed)
    text = FrameEncoder().fit(pd.DataFrame({"when": texts}))
    assert encoder.features_ == text.features_
    for first, second in [(encoder, texts), (text, typed["when"])]:
        got = first.transform(pd.DataFrame({"when": second}))
        np.testing.assert_array_equal(got, encoder.transform(typed))
    berlin = pd.DataFrame(
        {"when": typed["when"].dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")}
    )
    aware = FrameEncoder().fit(berlin)
    np.testing.assert_array_equal(aware.transform(berlin), encoder.transform(typed))
    np.testing.assert_array_equal(aware.transform(berlin.astype(object)), encoder.transform(typed))
    np.testing.assert_array_equal(aware.transform(typed), encoder.transform(berlin))
    found = parsed_dates(["2024-02-29T10:00+01:00", "9999-12-31", None]).values
    expected = ["2024-02-29T09:00", "9999-12-31", "NaT"]
    np.testing.assert_array_equal(found, np.array(expected, "datetime64[us]"))
    beyond = "9999-12-31T23:00-05:00"  # a year that Python does not have, in UTC
    for wrong in (beyond, "2023-02-29", "20240101", "2024-W01-1", "2024-1-1", "1"):
        assert parsed_dates([wrong]) is None


# One way for all frames.


FRAMES = {
    "polars": pl.from_pandas,
    "polars enum": lambda table: pl.from_pandas(table).with_columns(
        pl.col("size").cast(pl.Enum(["S", "M", "L"]))
    ),
    "arrow": pa.Table.from_pandas,
    "objects": lambda table: table.astype(object),
    "nullable": lambda table: table.convert_dtypes(),
    "arrow types": lambda table: table.convert_dtypes(dtype_backend="pyarrow"),
}


@pytest.mark.parametrize("convert", FRAMES.values(), ids=FRAMES)
def test_all_frames_give_one_matrix(convert):
    encoder = FrameEncoder().fit(X)
    np.testing.assert_array_equal(encoder.transform(convert(X)), encoder.transform(X))
    other = FrameEncoder().fit(convert(X))
    assert other.features_ == encoder.features_
    np.testing.assert_array_equal(other.transform(X), encoder.transform(X))
    backwards = X[X.columns[::-1]]
    np.testing.assert_array_equal(other.transform(convert(backwards)), encoder.transform(X))


# Arrays.


def test_an_array_of_numbers_is_the_matrix():
    numbers = np.random.default_rng(0).normal(size=(50, 3))
    for array in (
        numbers,
        numbers.astype(np.float32),
        np.column_stack([np.arange(50), np.ones(50)]),
    ):
        encoder = FrameEncoder().fit(array)
        assert encoder.transform(array) is array or np.array_equal(encoder.transform(array), array)
        assert encoder.transform(array).dtype == array.dtype
        assert encoder.features_.numbers == encoder.features_.width == array.shape[1]
    thin = sparse.csr_array(numbers)
    np.testing.assert_array_equal(encoder.fit(thin).transform(thin).toarray(), numbers)
    np.testing.assert_array_equal(encoder.transform(numbers), numbers)


def test_gaps_of_an_array():
    array = np.random.default_rng(0).normal(size=(50, 4))
    array[::5, 1], array[:, 3] = np.nan, np.nan
    with pytest.warns(DataWarning, match=r"Columns are left out: 'x3' \(empty\)"):
        encoder = FrameEncoder().fit(array)
    assert encoder.features_.left_out == {"x3": "empty"}
    expected = SimpleImputer(strategy="median", add_indicator=True).fit_transform(array[:, :3])
    np.testing.assert_array_equal(encoder.transform(array), expected)
    new = np.full((1, 4), np.nan)
    assert encoder.transform(new)[0, 3] == 1
    np.testing.assert_array_equal(encoder.transform(new)[0, :3], np.nanmedian(array[:, :3], 0))


def test_text_that_is_a_number_in_every_cell_is_a_number():
    codes = pd.DataFrame({"zip": pd.Series(["01", "02"] * 20)})
    assert FrameEncoder().fit(codes).get_feature_names_out().tolist() == ["zip"]
    declared = FrameEncoder().fit(codes.astype("category"))
    assert declared.get_feature_names_out().tolist() == ["zip=01", "zip=02"]


def test_an_array_of_text_is_refused():
    with pytest.raises(ValueError, match="could not convert string to float: 'red'"):
        FrameEncoder().fit(np.array([["red", 1.5], ["blue", 2]], dtype=object))


# What is left out, and what differs.


def test_what_is_left_out():
    table = X.assign(
        person=[f"u{i}" for i in range(ROWS)],
        number=np.arange(ROWS)[::-1],
        nothing=np.nan,
        steps=np.arange(ROWS) // 2,
        code=pd.Categorical([f"c{i}" for i in range(ROWS)]),
        country="NL",
    )
    with pytest.warns(DataWarning, match="Columns are left out: 'person'"):
        encoder = FrameEncoder().fit(table)
    assert encoder.features_.left_out == {
        "country": "constant",
        "person": "text that hardly repeats",
        "number": "looks like an id",
        "nothing": "empty",
    }
    assert encoder.n_features_in_ == len(table.columns)
    without = table.drop(columns=["country", "person", "nothing"])
    with pytest.warns(DataWarning, match="that training did not have, in 'size'. They count as"):
        encoder.transform(without.assign(size="XL"))
    np.testing.assert_array_equal(encoder.transform(without), encoder.transform(table))
    assert encoder.transform(table.assign(number="text")).shape == (ROWS, encoder.features_.width)


def changed(**columns):
    return X.assign(**columns)


DIFFERENT = [
    (X.drop(columns=["age", "size"]), "Got no column 'age'; no column 'size'."),
    (X.assign(more=1), "Got another column 'more'."),
    (X.rename(columns={"age": "Age"}), "Got no column 'age'; another column 'Age'."),
    (changed(age="old"), "Got text ('old' in row 1; the first is 1) in column 'age', which held n"),
    (changed(age=DAYS), "Got dates in column 'age', which held numbers in fit."),
    (changed(member=1.0), "Got numbers in column 'member', which held booleans in fit."),
    (changed(since=7), "Got numbers in column 'since', which held dates in fit."),
    (changed(since=["2024-01-31", *["soon"] * (ROWS - 1)]), "Got text ('soon' in row 2; the"),
    (changed(age=np.inf), "must hold finite numbers. Got inf in column 'age', row 1"),
    (X.set_axis([*"aaaaaaa"], axis=1), "Expected unique column names, got"),
]


@pytest.mark.parametrize(("new", "text"), DIFFERENT, ids=lambda value: str(value)[:40])
def test_what_differs_is_said(new, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        FrameEncoder().fit(X).transform(new)


def test_what_does_not_differ():
    """A column without a value is one of any kind, and some kinds hold others without loss."""
    encoder = FrameEncoder().fit(X)
    gaps = encoder.transform(X[:2].map(lambda _: None))
    flags = encoder.get_feature_names_out()[gaps[0] == 1].tolist()
    assert {f"{name} is missing" for name in ("income", "colour", "sure", "since")} <= {*flags}
    text = FrameEncoder().fit(X.assign(member=np.where(X["member"], "True", "False")))
    np.testing.assert_array_equal(
        text.transform(X), text.transform(X.assign(member=X["member"].astype(str)))
    )
    number = FrameEncoder().fit(X.assign(member=X["member"].astype(int)))
    assert number.transform(X)[:, 2].tolist() == X["member"].tolist()
    codes = FrameEncoder().fit(X.assign(size=pd.Categorical([1, 2, 3] * (ROWS // 3))))
    floats = X.assign(size=pd.Series([1, 2, None] * (ROWS // 3)))
    declared = X.assign(size=pd.Categorical([1, 2, None] * (ROWS // 3)))
    np.testing.assert_array_equal(codes.transform(floats), codes.transform(declared))


REFUSED = [
    (changed(age=[1 + 2j] * ROWS), TypeError, "one in a cell. Got complex128 in column 'age'"),
    (changed(age=[[1, 2]] * ROWS), TypeError, "must hold numbers, text, booleans or dates, one"),
    (changed(age=pd.to_timedelta(3, "h")), TypeError, "Got timedelta64["),
    (pl.DataFrame({"age": [[1.0]] * ROWS}), TypeError, "Got List(Float64) in column 'age'"),
    (
        pd.DataFrame({"country": ["NL"] * ROWS}),
        ValueError,
        "must hold a column to learn from. Got none: {'country': 'constant'}",
    ),
    (pl.from_pandas(X).lazy(), TypeError, "Got a LazyFrame. Call its collect()."),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_refused(wrong, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        FrameEncoder().fit(wrong)
    with pytest.raises(kind, match=re.escape(text.replace("FrameEncoder", "AlignedEnsemble"))):
        linear().fit(wrong, Y)


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"):
        FrameEncoder().fit(X[:0])
    with pytest.raises(ValueError, match="y of AlignedEnsemble must hold at least one row"):
        linear().fit(X[:0], Y[:0])


def test_arrays_and_frames_for_each_other():
    numbers = X[["age", "income"]]
    encoder, array = FrameEncoder().fit(numbers), FrameEncoder().fit(numbers.to_numpy())
    with pytest.warns(UserWarning, match="X does not have valid feature names, but FrameEncoder"):
        got = encoder.transform(numbers.to_numpy())
    np.testing.assert_array_equal(got, encoder.transform(numbers))
    said = "X has feature names, but FrameEncoder was fitted without"
    with pytest.warns(UserWarning, match=said):
        np.testing.assert_array_equal(array.transform(numbers), got)
    wrong = "X has 1 features, but FrameEncoder is expecting 2 features"
    with pytest.warns(UserWarning, match=said), pytest.raises(ValueError, match=wrong):
        array.transform(numbers[["age"]])
    unnamed_X = X.set_axis(range(X.shape[1]), axis=1)
    unnamed = FrameEncoder().fit(unnamed_X)
    assert not hasattr(unnamed, "feature_names_in_")
    assert unnamed.features_.given == tuple(f"x{i}" for i in range(X.shape[1]))
    np.testing.assert_array_equal(unnamed.transform(unnamed_X), FrameEncoder().fit_transform(X))


# For scikit-learn.


@parametrize_with_checks([FrameEncoder()])
def test_scikit_learn(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


def test_other_classifiers_take_the_matrix():
    model = make_pipeline(FrameEncoder(), StandardScaler(), LogisticRegression())
    clf = AlignedDecisionCV(model, metric="f1", cv=3, random_state=1).fit(X, Y)
    assert clf.predict(X).shape == (ROWS,)
    assert (
        clone(model).set_output(transform="pandas").fit(X, Y)[0].transform(X)["colour=red"].max()
        == 1
    )


# AlignedEnsemble on frames.


def linear(metric="f1_macro"):
    return AlignedEnsemble(metric, candidates=["linear"], cv=2, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    return linear("f1").fit(X, Y)


def test_it_learns_from_all_kinds(fitted):
    new = frame(2000, seed=1)
    assert fitted.score(new, labels(new, seed=1)) > 0.85  # the number alone gives 0.75
    assert fitted.n_features_in_ == 7
    assert fitted.feature_names_in_.tolist() == X.columns.tolist()


def test_it_is_saved_with_its_columns(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = AlignedEnsemble.load(tmp_path / "model")
    assert again.features_ == fitted.features_
    for table in (X, X[X.columns[::-1]], pl.from_pandas(X)):
        np.testing.assert_array_equal(again.predict_proba(table), fitted.predict_proba(X))
    assert again.feature_names_in_.tolist() == X.columns.tolist()
    with pytest.raises(
        ValueError, match=r"X of AlignedEnsemble must have the columns of fit\. Got no"
    ):
        again.predict(X.drop(columns="age"))
    state = json.loads(json.dumps(fitted.features_.state_dict()))
    assert Features.from_state_dict(state) == fitted.features_


def test_rows_of_no_weight_teach_nothing():
    weight = np.where(np.arange(ROWS) < 200, 1.0, 0.0)
    other = X.copy()
    other.loc[200:, ["age", "colour"]] = [1e6, "violet"]
    clf = linear().fit(other, Y, sample_weight=weight)
    plain = linear().fit(X[:200], Y[:200])
    assert clf.features_ == plain.features_
    np.testing.assert_array_equal(clf.predict_proba(X[:200]), plain.predict_proba(X[:200]))
    grouped = linear().fit(X, Y, groups=np.arange(ROWS) // 3)
    assert grouped.predict(X).shape == (ROWS,)
