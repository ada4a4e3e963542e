"""What a class is to estimators: `classes_` is the order of all columns, also those of the rule."""

import numpy as np
import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import cohen_kappa_score

import evalign
from evalign import AlignedDecisionCV, AlignedEnsemble, metrics

RNG = np.random.default_rng(5)
RATINGS = ["bad", "poor", "ok", "good", "great"]
LEVEL = RNG.integers(0, 5, 500)
X = (LEVEL + RNG.normal(0, 0.7, 500))[:, None] ** [1, 2]
TEXT = np.array(RATINGS)[LEVEL]


def around(metric="cohen_kappa_quadratic", **given):
    return AlignedDecisionCV(LogisticRegression(max_iter=2000), metric, random_state=0, **given)


def blended(metric="cohen_kappa_quadratic", **given):
    return AlignedEnsemble(metric, candidates=["linear"], cv=3, random_state=0, **given)


@pytest.mark.parametrize("made", [around, blended])
@pytest.mark.parametrize("positive", ["bad", "good"])
def test_the_rule_takes_the_columns_of_predict_proba(made, positive, tmp_path):
    labels = np.where(LEVEL > 2, "good", "bad")
    clf = made("f1", pos_label=positive).fit(X, labels)
    clf.rule_.save(tmp_path / "rule.json")
    p = clf.predict_proba(X)
    assert (evalign.load(tmp_path / "rule.json")(probabilities=p) == clf.predict(X)).all()
    assert clf.rule_.classes == clf.classes_.tolist() == ["bad", "good"]
    assert clf.rule_.pos_label == positive


@pytest.mark.parametrize("made", [around, blended])
def test_integers_come_back_from_the_rule_too(made):
    clf = made("f1_macro").fit(X, LEVEL + 1)
    p = clf.predict_proba(X)
    assert (clf.rule_(probabilities=p) == clf.predict(X)).all()
    assert clf.predict(X).min() == 1


@pytest.mark.parametrize("made", [around, blended])
def test_an_ordinal_metric_of_text(made):
    with pytest.raises(ValueError, match=r'as in classes=\["bad", "good", "great", "ok", "poor"\]'):
        made().fit(X, TEXT)
    plain = made().fit(X, LEVEL)
    expected = np.array(RATINGS)[plain.predict(X)]
    reversed_ = made(classes=RATINGS[::-1]).fit(X, TEXT)
    ordered = pandas.Series(pandas.Categorical(TEXT, RATINGS, ordered=True))
    by_metric = made(metrics.CohenKappa(weights="quadratic", order=RATINGS))
    for clf in (made(classes=RATINGS).fit(X, TEXT), made().fit(X, ordered), reversed_):
        assert clf.classes_.tolist() == sorted(RATINGS)
        assert (clf.predict(X) == expected).mean() > 0.9
        kappa = cohen_kappa_score(TEXT, clf.predict(X), labels=RATINGS, weights="quadratic")
        assert clf.score(X, TEXT) == pytest.approx(kappa)
        assert kappa > 0.85
    assert (by_metric.fit(X, TEXT).predict(X) == expected).mean() > 0.9


@pytest.mark.parametrize("made", [around, blended])
def test_costs_are_in_the_order_of_classes(made):
    """Of "low", "mid", "high", which are not in the order of the alphabet."""
    names = np.array(["low", "mid", "high"])
    level = np.minimum(LEVEL, 2)
    cost = metrics.ExpectedCost([[0, 1, 4], [3, 0, 1], [30, 9, 0]])
    numbers = made(cost).fit(X, level)
    text = made(cost, classes=names.tolist()).fit(X, names[level])
    assert (text.predict(X) == names[numbers.predict(X)]).mean() > 0.97
    assert text.score(X, names[level]) == pytest.approx(numbers.score(X, level), abs=0.05)
    with pytest.raises(ValueError, match="give the order of classes that are text"):
        made(cost).fit(X, names[level])


@pytest.mark.parametrize("made", [around, blended])
def test_a_class_without_rows(made, tmp_path):
    some = LEVEL < 4
    clf = made(classes=RATINGS).fit(X[some], TEXT[some])
    assert clf.classes_.tolist() == sorted(RATINGS)
    assert clf.predict_proba(X).shape == (500, 5)
    assert "great" not in clf.predict(X)
    clf.save(tmp_path / "model")
    again = evalign.load(tmp_path / "model")
    assert (again.predict(X) == clf.predict(X)).all()
    assert again.score(X, TEXT) == clf.score(X, TEXT)
    with pytest.raises(ValueError, match=r"name each class that occurs, each once.*lacks \['ok'\]"):
        made(classes=["bad", "poor", "good", "great"]).fit(X, TEXT)


def test_of_two_classes_the_second_is_positive():
    labels = np.where(LEVEL > 2, "good", "bad")
    clf = around("f1", classes=["good", "bad"]).fit(X, labels)
    assert clf.rule_.pos_label == "bad"
    assert clf.rule_.classes == ["bad", "good"]


FORMS = {
    "numbers": lambda codes: codes * 3 - 4,
    "text": lambda codes: np.array(["z", "y", "x"])[codes],
    "objects": lambda codes: np.array(["z", "y", "x"], dtype=object)[codes],
    "floats": lambda codes: codes + 0.5,
    "bool": lambda codes: codes > 0,
}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*FORMS]), st.sampled_from([around, blended]), st.integers(0, 9))
def test_labels_come_back_in_their_form(tmp_path_factory, form, made, seed):
    codes = np.random.default_rng(seed).permutation(np.arange(120) % 3)
    labels = FORMS[form](codes)
    features = codes[:, None] + np.random.default_rng(seed).normal(size=(120, 2))
    clf = made("f1_macro", decision="expected").fit(features, labels)
    path = tmp_path_factory.mktemp("model") / "model"
    clf.save(path)
    again = evalign.load(path)
    predicted = clf.predict(features)
    assert predicted.dtype == labels.dtype
    assert {*predicted.tolist()} <= {*labels.tolist()}
    for each in (clf, again):
        p = each.predict_proba(features)
        assert each.predict(features).tolist() == predicted.tolist()
        assert each.rule_(probabilities=p).tolist() == predicted.tolist()
