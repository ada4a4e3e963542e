"""The drawing of a decision: what stands in it, not how it looks."""

import sys

import matplotlib
import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import f1_score
from sklearn.naive_bayes import GaussianNB

from evalign import AlignedDecisionCV
from tests.estimator.models import imbalanced

matplotlib.use("agg")


@pytest.mark.parametrize("model", [GaussianNB(), RidgeClassifier()], ids=["probability", "score"])
def test_two_classes(model):
    X, y = imbalanced(300)
    clf = AlignedDecisionCV(model, "f1", cv=3, random_state=0).fit(X, y)
    ax = clf.plot()
    results = clf.cv_results_
    curve = ax.lines[0]
    np.testing.assert_array_equal(curve.get_xdata(), results["thresholds"])
    np.testing.assert_allclose(curve.get_ydata(), results["threshold_scores"].mean(0))
    own = 0.0 if isinstance(model, RidgeClassifier) else 0.5
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[-2:] == [f"rule: {results['threshold']:.3g}", f"argmax: {own:.3g}"]
    assert ax.get_ylabel() == "f1"


def test_more_classes():
    X, y = imbalanced(300, classes=3)
    clf = AlignedDecisionCV(GaussianNB(), "f1_macro", decision="expected", cv=3, random_state=0)
    clf.fit(X, np.array(["a", "b", "c"])[y])
    axes = matplotlib.figure.Figure().add_subplot()
    assert clf.plot(axes) is axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b", "c"]

    def each(matrix):
        labels = np.indices((3, 3)).reshape(2, -1).repeat(matrix.ravel().astype(int), axis=1)
        return f1_score(*labels, average=None)

    gains = each(clf.cv_results_["confusion"]) - each(clf.cv_results_["argmax_confusion"])
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], gains)


def test_without_matplotlib(monkeypatch):
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    X, y = imbalanced(100)
    clf = AlignedDecisionCV(GaussianNB(), decision="argmax").fit(X, y)
    with pytest.raises(ImportError, match=r"plot needs matplotlib.*pip install -e '\.\[plot\]'"):
        clf.plot()
