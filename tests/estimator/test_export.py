"""`AlignedClassifier.export`: the ONNX file predicts what the classifier predicts."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from tests.estimator.models import SmallNetwork, imbalanced, quick

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",  # the exporter's own, as the next
    "ignore::FutureWarning",
    "ignore::evalign.tables.warnings.DataWarning",
)


@pytest.mark.parametrize(
    ("network", "classes", "gaps"),
    [pytest.param(SmallNetwork(), 2, False, marks=pytest.mark.slow), ("auto", 3, True)],
)
def test_onnx_agrees(network, classes, gaps, tmp_path):
    X, y = imbalanced(400, classes=classes)
    X = X.astype(np.float32)
    if gaps:
        y = np.arange(400) % classes  # enough of each: one network, not one for each fold
        X[::7, 1] = np.nan
        X = np.column_stack([X, np.full(400, np.nan, np.float32)])  # this one is left out
    names = np.array(["usual", "unusual", "rare"])[y]
    clf = quick(network=network, epochs=2).fit(X, names)
    clf.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    outlier = np.where(np.arange(X.shape[1]) == 1, np.float32(3e38), X[:5])
    for rows in (X, X[:1], outlier):
        label, probability, score = session.run(None, {"X": rows})
        found = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
        assert np.array_equal(np.array(found)[label], clf.predict(rows))
        np.testing.assert_allclose(probability, clf.predict_proba(rows), atol=1e-6)
        assert np.array_equal(score.argmax(1), label)
    bad = X[:4].copy()
    bad[[0, 1, 2], [0, 1, 2]] = np.inf, -np.inf, np.nan
    label, probability, score = session.run(None, {"X": bad})
    assert label.tolist()[:2] == [-1, -1]  # rows that predict refuses
    assert np.isnan(probability[:2]).all()
    assert np.isnan(score[:2]).all()
    assert found[label[3]] == clf.predict(bad[3:])[0]
    np.testing.assert_allclose(probability[2:], clf.predict_proba(bad[2:]), atol=1e-6)


def test_onnx_of_a_frame_takes_its_columns(tmp_path):
    X, y = imbalanced(300)
    rng = np.random.default_rng(0)
    often = ["red", "blue", None, "ochre"]
    frame = pd.DataFrame(
        {
            "input 0": np.where(rng.random(300) < 0.1, np.nan, X[:, 0]),
            "colour": rng.choice(often, 300, p=[0.5, 0.3, 0.17, 0.03]),
            "rare": [f"level {i % 60}" for i in range(300)],
            "one": "value",
            "val_3": pd.date_range("1960-01-01", periods=300, freq="77h").where(X[:, 1] < 1),
            "sure": pd.array(np.where(X[:, 2] > 2, None, X[:, 3] > 0), "boolean"),
        }
    )
    clf = quick(epochs=2).fit(frame, y)
    clf.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    names = [given.name for given in session.get_inputs()]
    assert names == ["input 0", "colour", "rare", "val_3", "sure"]
    new = frame.assign(colour=["green"] * 10 + frame["colour"].tolist()[10:])
    for rows in (frame, new, frame[:1]):
        given = {
            "input 0": rows[["input 0"]].to_numpy(),
            **{name: rows[[name]].fillna("").to_numpy(object) for name in ("colour", "rare")},
            "val_3": rows[["val_3"]].to_numpy("datetime64[us]").astype(np.int64),
            "sure": rows[["sure"]].to_numpy(float, na_value=np.nan),
        }
        label, probability, _ = session.run(None, given)
        assert np.array_equal(label, clf.predict(rows))
        np.testing.assert_allclose(probability, clf.predict_proba(rows), atol=1e-6)


def test_a_column_with_the_name_of_an_output(tmp_path):
    X, y = imbalanced(100)
    clf = quick(epochs=1).fit(pd.DataFrame(X, columns=["a", "b", "label", "c"]), y)
    with pytest.raises(ValueError, match=r"Got \['label'\]\. Rename it, because it is an output"):
        clf.export(tmp_path / "model.onnx")
