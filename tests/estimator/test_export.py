"""`AlignedClassifier.as_module`: also as an ONNX file it predicts what the classifier predicts."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

from evalign.tables import FrameEncoder
from tests import tolerances
from tests.estimator.models import SmallNetwork, quick
from tests.ground.made import imbalanced

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",  # the exporter's own, as the next
    "ignore::FutureWarning",
    "ignore::evalign.tables.warnings.DataWarning",
)


def exported(clf, X, path):
    """Rows -> labels and probabilities by the ONNX file of a classifier."""
    rows = ({0: torch.export.Dim("n")},)
    how = {"input_names": ["X"], "dynamic_shapes": rows, "dynamo": True, "verbose": False}
    torch.onnx.export(clf.as_module(), (torch.from_numpy(X[:2]),), path, **how)
    session = onnxruntime.InferenceSession(path)
    return lambda rows: session.run(None, {"X": rows})


@pytest.mark.parametrize(
    ("network", "classes", "gaps"),
    [pytest.param(SmallNetwork(), 2, False, marks=pytest.mark.slow), ("auto", 3, True)],
)
def test_onnx_agrees(network, classes, gaps, tmp_path):
    X, y = imbalanced(400, classes=classes)
    X = X.astype(np.float32)
    if gaps:
        X[::7, 1] = np.nan
        X = np.column_stack([X, np.full(400, np.nan, np.float32)])  # this one is left out
    names = np.array(["usual", "unusual", "rare"])[y]
    clf = quick(network=network, epochs=2).fit(X, names)
    run, found = exported(clf, X, tmp_path / "model.onnx"), np.array(clf.rule_.classes)
    order = np.argsort(found)
    outlier = np.where(np.arange(X.shape[1]) == 1, np.float32(3e38), X[:5])
    for rows in (X, X[:1], outlier):
        label, probability = run(rows)
        assert np.array_equal(found[label], clf.predict(rows))
        expected = clf.predict_proba(rows)
        np.testing.assert_allclose(probability[:, order], expected, atol=tolerances.FLOAT32_SUM)
    bad = X[:4].copy()
    bad[[0, 1, 2], [0, 1, 2]] = np.inf, -np.inf, np.nan
    label, probability = run(bad)
    assert label.tolist()[:2] == [-1, -1]  # rows that predict refuses
    assert np.isnan(probability[:2]).all()
    assert np.array_equal(found[label[2:]], clf.predict(bad[2:]))


def test_a_frame_is_encoded_before(tmp_path):
    X, y = imbalanced(300)
    frame = pd.DataFrame({"a": X[:, 0], "colour": np.array(["red", "blue"])[np.arange(300) % 2]})
    with pytest.raises(ValueError, match=r"fitted on numbers alone. .*FrameEncoder before"):
        quick(epochs=1).fit(frame, y).as_module()
    rows = FrameEncoder().fit_transform(frame)
    clf = quick(epochs=1).fit(rows, y)
    label, _ = clf.as_module()(torch.from_numpy(rows))
    assert np.array_equal(label.numpy(), clf.predict(rows))
