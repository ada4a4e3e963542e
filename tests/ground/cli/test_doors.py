"""One file gives one set of columns: by the command line and by the estimator."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import evalign
from evalign.estimators import TrainingWarning
from evalign.tables import DataWarning, overview
from tests.ground.cli.commands import done, fit, refused

ROWS = 120
RNG = np.random.default_rng(0)
AWKWARD = pd.DataFrame(
    {
        "person": np.arange(ROWS),
        "day": [f"2024-01-{1 + i % 28:02}" for i in range(ROWS)],
        "visit": [f"{1 + i % 28:02}/{1 + i % 2:02}/2024" for i in range(ROWS)],
        "code": [f"{i % 5:03}" for i in range(ROWS)],
        "part": [["A1", "07", "7"][i % 3] for i in range(ROWS)],
        "age": pd.Series(RNG.normal(50, 9, ROWS).round(2)).mask(RNG.random(ROWS) < 0.2),
        "sure": [["TRUE", "False", ""][i % 3] for i in range(ROWS)],
        "note": [f"note {i}" for i in range(ROWS)],
        "country": "NL",
        "nothing": "NA",
    }
)
LABEL = np.where(RNG.random(ROWS) < 0.5, "no", "yes")
KINDS = {
    "day": "date",
    "visit": "category",
    "code": "number",
    "part": "category",
    "age": "number",
    "sure": "boolean",
}


@pytest.fixture
def data(tmp_path):
    AWKWARD.assign(label=LABEL).to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def test_one_file_gives_one_set_of_columns(data, tmp_path):
    other = tmp_path / "test.csv"
    AWKWARD[:60].assign(label=LABEL[:60]).to_csv(other, index=False)
    result = done(*fit(data, tmp_path / "run", "--test", other))
    left_out = "'person' (looks like an id), 'note' (text that hardly repeats), 'country' (const"
    assert left_out in result.err
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["columns"]["kinds"] == KINDS
    assert "left out: text that hardly repeats" in (tmp_path / "run" / "report.html").read_text()

    frame = pd.read_csv(data)
    X, y = frame.drop(columns="label"), frame["label"]
    assert overview(X) == about["columns"]["overview"]
    blend = evalign.AlignedEnsemble("f1", candidates=["linear"], cv=2, pos_label="yes")
    with pytest.warns(DataWarning, match=r"'person' \(looks like an id\), 'note' \(text"):
        blend.fit(X, y)
    run = evalign.load(tmp_path / "run")
    assert list(run.features_.given) == list(KINDS)
    assert blend.features_.columns == run.features_.columns
    assert {*blend.features_.left_out} == {*X.columns} - {*KINDS}
    used = X[list(KINDS)]
    np.testing.assert_array_equal(run.predict_proba(X[run.feature_names_in_]).shape, (ROWS, 2))
    encoder = evalign.tables.FrameEncoder().fit(used)
    read = evalign.tables.features.read(encoder, used, reset=False)
    np.testing.assert_array_equal(run.features_.matrix("run", read), encoder.transform(used))

    scored = tmp_path / "scored.csv"
    done("predict", tmp_path / "run", data, "--out", scored)
    expected = run.predict_proba(used)[:, 1]
    np.testing.assert_allclose(pd.read_csv(scored)["probability_yes"], expected, rtol=1e-9)
    assert scored.read_text().splitlines()[8].split(",")[3] == "002"  # text as it was


def test_the_same_error_by_every_door(data, tmp_path):
    charge = [f"${i}.25" if i % 10 == 3 else f"{i * 7.3:.2f}" for i in range(ROWS)]
    pd.read_csv(data).assign(charge=charge).to_csv(data, index=False)
    said = refused(*fit(data, tmp_path / "run"))
    X = pd.read_csv(data).drop(columns="label")
    with pytest.raises(ValueError, match="Column 'charge' must hold numbers only") as caught:
        evalign.AlignedEnsemble().fit(X, LABEL)
    assert said.endswith(str(caught.value))
    assert "Got '$3.25' in row 4 (the first is 1)." in said
    assert "--missing '$3.25'; in pandas na_values" in said
    done(*fit(data, tmp_path / "run", "--drop", "charge"))


def test_a_class_of_few_rows_by_every_door(data, tmp_path):
    frame = pd.read_csv(data).assign(label=["few"] * 4 + ["no", "yes"] * (ROWS // 2 - 2))
    frame = frame[["age", "part", "label"]]
    X, y, said = frame.drop(columns="label"), frame["label"], "Classes with few training rows ('few"
    blend = evalign.AlignedEnsemble(candidates=["linear", "boosting"], cv=2)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", DataWarning)
        warnings.simplefilter("ignore", TrainingWarning)
        blend.fit(X, y)
    assert [str(each.message) for each in shown] == [f"{said}: 4') are hard to learn."]
    frame.to_csv(data, index=False)
    assert f"Note: {said}: 3')" in done(*fit(data, tmp_path / "run")).err


def test_what_fit_was_told_of_a_file_is_remembered(tmp_path):
    days = pd.Series(pd.date_range("2023-11-05", periods=ROWS)).dt.strftime("%d/%m/%Y")
    age = AWKWARD["age"].astype(str).replace("nan", "?").str.replace(".", ",")
    frame = pd.DataFrame({"age": age, "day": days, "label": LABEL})
    frame.to_csv(data := tmp_path / "data.csv", index=False, sep=";", encoding="latin-1")
    text = refused(*fit(data, tmp_path / "run"))
    assert "Expected 1 fields in line 2, saw 2. For a CSV, see --sep, --encoding (such as" in text
    how = ["--sep", ";", "--decimal", ",", "--missing", "?", "--dates", "%d/%m/%Y"]
    done(*fit(data, tmp_path / "run", *how, "--encoding", "latin-1"))
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["columns"]["kinds"] == {"age": "number", "day": "date"}
    done("predict", tmp_path / "run", data, "--out", tmp_path / "one.csv")
    frame.assign(age=AWKWARD["age"]).to_csv(tmp_path / "new.csv", index=False)
    plain = ["--sep", ",", "--decimal", "."]
    done("predict", tmp_path / "run", tmp_path / "new.csv", *plain, "--out", tmp_path / "two.csv")
    one, two = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("one", "two"))
    np.testing.assert_allclose(one["probability_yes"], two["probability_yes"], rtol=1e-12)
    done("evaluate", tmp_path / "run", data)
