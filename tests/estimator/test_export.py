"""`AlignedClassifier.export`: the ONNX file predicts what the classifier predicts."""

import json

import numpy as np
import onnxruntime
import pytest

from tests.estimator.models import SmallNetwork, imbalanced, quick

# The exporter's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize(("network", "classes"), [(SmallNetwork(), 2), ("auto", 3)])
def test_onnx_agrees(network, classes, tmp_path):
    X, y = imbalanced(400, classes=classes)
    X = X.astype(np.float32)
    names = np.array(["usual", "unusual", "rare"])[y]
    clf = quick(network=network, epochs=2).fit(X, names)
    clf.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    outlier = np.where(np.arange(4) == 1, np.float32(3e38), X[:5])
    for rows in (X, X[:1], outlier):
        label, probability, score = session.run(None, {"X": rows})
        found = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
        assert np.array_equal(np.array(found)[label], clf.predict(rows))
        np.testing.assert_allclose(probability, clf.predict_proba(rows), atol=1e-6)
        assert np.array_equal(score.argmax(1), label)
    bad = X[:4].copy()
    bad[[0, 1, 2], [0, 1, 2]] = np.nan, np.inf, -np.inf
    label, probability, score = session.run(None, {"X": bad})
    assert label.tolist()[:3] == [-1, -1, -1]  # rows that predict refuses
    assert np.isnan(probability[:3]).all()
    assert np.isnan(score[:3]).all()
    assert found[label[3]] == clf.predict(bad[3:])[0]
    np.testing.assert_allclose(probability[3:], clf.predict_proba(bad[3:]), atol=1e-6)
