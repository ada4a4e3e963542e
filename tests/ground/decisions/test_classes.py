"""What a class is: labels come back as they are given, by the columns of the scores."""

import warnings

import numpy as np
import pandas
import polars
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import softmax

import evalign
from evalign import metrics
from evalign.decisions import DecisionFitter, fit_decision

RNG = np.random.default_rng(3)
ROWS = 400
RATINGS = ["bad", "poor", "ok", "good", "great"]


def ratings(rows=ROWS, classes=5):
    """Probabilities (N, C) of ordinal classes 0, 1, …, and the true ones."""
    y = RNG.choice(classes, rows, p=np.linspace(2, 1, classes) / np.linspace(2, 1, classes).sum())
    distance = np.abs(np.arange(classes) - y[:, None] + RNG.normal(size=(rows, 1)))
    return softmax(-1.5 * distance, 1), y


def two(rows=ROWS):
    """The probability of class 1 of two, and the true class."""
    y = (RNG.random(rows) < 0.3).astype(int)
    return (0.3 + 0.3 * y + RNG.normal(0, 0.15, rows)).clip(0.01, 0.99), y


P, Y = ratings()
ONE, TRUE = two()


@pytest.mark.parametrize("positive", ["bad", "good"])
def test_the_positive_class_reorders_nothing(positive):
    """The rule takes the columns of `predict_proba`, whichever class is positive."""
    columns = np.stack([ONE, 1 - ONE], 1)  # bad, good
    labels = np.where(TRUE == 1, "bad", "good")
    rule = fit_decision(y=labels, probabilities=columns, metric="f1", pos_label=positive)
    assert (rule.classes, rule.pos_label) == (["bad", "good"], positive)
    found = rule(probabilities=columns)
    scored = evalign.score("f1", y_true=labels, y_pred=found, pos_label=positive)
    assert scored > 0.6
    of_positive = columns[:, rule.classes.index(positive)]
    assert ((of_positive > rule.threshold) == (found == positive)).all()
    assert str(rule).startswith(positive)
    single = fit_decision(y=labels, probabilities=of_positive, metric="f1", pos_label=positive)
    assert (single(probabilities=of_positive) == found).all()
    fitter = DecisionFitter("f1", classes=["bad", "good"], pos_label=positive)
    fitter.update(probabilities=columns, y=labels)
    assert (fitter.compute()(probabilities=columns) == found).all()


def test_labels_from_one_on_and_a_class_without_rows():
    """Ratings 1 to 5, of which no row has a 5."""
    some = Y < 4
    stars = Y[some] + 1
    plain = fit_decision(y=Y[some], probabilities=P[some], metric="cohen_kappa_quadratic")
    rule = fit_decision(
        y=stars, probabilities=P[some], metric="cohen_kappa_quadratic", classes=[1, 2, 3, 4, 5]
    )
    np.testing.assert_array_equal(rule(probabilities=P), 1 + plain(probabilities=P))
    assert rule.score == plain.score


@pytest.mark.parametrize(
    "labels", [Y + 1, Y + 3, np.where(Y > 2, 1, -1), Y - 1], ids=["1 to 5", "3 to 7", "-1, 1", "-1"]
)
def test_an_error_about_labels_drops_no_class(labels):
    scores = P if len(np.unique(labels)) > 2 else np.stack([P.sum(1), P[:, 0], P[:, 1]], 1)
    scores = scores / scores.sum(1, keepdims=True)
    with pytest.raises(ValueError, match="classes=") as caught:
        fit_decision(y=labels, probabilities=scores, metric="f1_macro")
    assert "ignore_index" not in str(caught.value)


def test_minus_one_and_one():
    labels = 2 * TRUE - 1
    for scores in (ONE, np.stack([1 - ONE, ONE], 1)):
        rule = fit_decision(y=labels, probabilities=scores, metric="f1")
        assert {*rule(probabilities=scores).tolist()} == {-1, 1}
        assert rule.pos_label == 1


def test_integers_with_text_classes_are_places():
    rule = fit_decision(y=Y, probabilities=P, metric="f1_macro", classes=RATINGS)
    text = fit_decision(y=np.array(RATINGS)[Y], probabilities=P, metric="f1_macro", classes=RATINGS)
    assert rule(probabilities=P).tolist() == text(probabilities=P).tolist()
    assert rule(probabilities=P)[0] in RATINGS


def test_text_has_no_order_of_its_own():
    """Sorted as text, the ratings would be "bad", "good", "great", "ok", "poor"."""
    labels = np.array(RATINGS)[Y]
    alphabetic = sorted(RATINGS)
    columns = P[:, [RATINGS.index(name) for name in alphabetic]]
    frame = pandas.DataFrame(columns, columns=alphabetic)
    how = {"y": labels, "metric": "cohen_kappa_quadratic"}
    for metric in ("cohen_kappa_quadratic", metrics.ExpectedCost(1 - np.eye(5))):
        with pytest.raises(ValueError, match=r'as in classes=\["bad", "good", "great", "ok", "po'):
            fit_decision(y=labels, probabilities=columns, metric=metric)
    plain = fit_decision(y=Y, probabilities=P, metric="cohen_kappa_quadratic")
    expected = np.array(RATINGS)[plain(probabilities=P)]
    by_columns = fit_decision(probabilities=P, classes=RATINGS, **how)
    by_names = fit_decision(probabilities=frame, classes=RATINGS, **how)
    own = metrics.CohenKappa(weights="quadratic", order=RATINGS)
    by_metric = fit_decision(y=labels, probabilities=columns, metric=own)
    assert by_names.classes == by_metric.classes == alphabetic
    assert (by_columns(probabilities=P) == expected).all()
    for rule, scores in ((by_names, frame), (by_names, columns), (by_metric, columns)):
        assert (rule(probabilities=scores) == expected).mean() > 0.99  # ties in another order
        assert rule.score == pytest.approx(plain.score, abs=0.01)


@pytest.mark.parametrize(
    "column",
    [
        lambda labels: pandas.Series(pandas.Categorical(labels, RATINGS, ordered=True)),
        lambda labels: pandas.Categorical(labels, RATINGS, ordered=True),
        lambda labels: polars.Series(labels.tolist(), dtype=polars.Enum(RATINGS)),
    ],
)
def test_an_ordered_column_brings_its_order(column):
    alphabetic = sorted(RATINGS)
    columns = P[:, [RATINGS.index(name) for name in alphabetic]]
    labels = np.array(RATINGS)[Y]
    how = {"probabilities": columns, "metric": "cohen_kappa_quadratic"}
    rule = fit_decision(y=column(labels), **how)
    order = metrics.CohenKappa(weights="quadratic", order=RATINGS)
    same = fit_decision(y=labels, **how | {"metric": order})
    assert rule.classes == alphabetic
    np.testing.assert_array_equal(rule.gain, same.gain)


def test_names_that_do_not_fit_are_refused():
    frame = pandas.DataFrame(P[:, :3] / P[:, :3].sum(1, keepdims=True), columns=["a", "b", "x"])
    labels = np.array(["a", "b", "c"])[Y % 3]
    with pytest.raises(ValueError, match="have columns named after the classes 'a', 'b', 'c'"):
        fit_decision(y=labels, probabilities=frame, metric="f1_macro")
    rule = fit_decision(y=labels[Y % 3 < 2], probabilities=frame[Y % 3 < 2], metric="f1_macro")
    assert rule.classes == ["a", "b", "x"]  # no row is of the last


def test_one_column_needs_a_positive_class():
    labels = np.where(TRUE == 1, "fraud", "legit")
    with pytest.raises(ValueError, match=r"pos_label='legit' or pos_label='fraud'\."):
        fit_decision(y=labels, probabilities=ONE, metric="f1")
    rule = fit_decision(y=labels, probabilities=ONE, metric="f1", pos_label="fraud")
    second = fit_decision(y=labels, probabilities=ONE, metric="f1", classes=["legit", "fraud"])
    plain = fit_decision(y=TRUE, probabilities=ONE, metric="f1")
    expected = np.where(plain(probabilities=ONE) == 1, "fraud", "legit")
    for each in (rule, second):
        assert (each(probabilities=ONE) == expected).all()
    for named in (pandas.Series(ONE, name="fraud"), pandas.DataFrame({"fraud": ONE})):
        rule = fit_decision(y=labels, probabilities=named, metric="f1", pos_label="fraud")
        assert (rule(probabilities=named) == expected).all()
        with pytest.raises(ValueError, match="Got a column called 'fraud'"):
            fit_decision(y=labels, probabilities=named, metric="f1", pos_label="legit")
    zero = fit_decision(y=TRUE, probabilities=1 - ONE, metric="f1", pos_label=0)
    assert zero.pos_label == 0
    assert zero(probabilities=np.array([0.01, 0.99])).tolist() == [1, 0]


def test_scores_that_rank_in_reverse_are_told():
    with pytest.warns(UserWarning, match="the area under the curve is 0.0"):
        fit_decision(y=TRUE, probabilities=1 - ONE, metric="f1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_decision(y=TRUE, probabilities=RNG.random(ROWS), metric="f1")


def test_costs_and_the_order_of_two():
    """Costs count classes as `classes` does, whichever is positive."""
    cost = metrics.ExpectedCost([[0, 9], [1, 0]])
    labels = np.where(TRUE == 1, "bad", "good")
    columns = np.stack([ONE, 1 - ONE], 1)
    frame = pandas.DataFrame(columns, columns=["bad", "good"])
    how = {"y": labels, "probabilities": frame, "metric": cost}
    bad_first = fit_decision(classes=["bad", "good"], **how)
    bad_last = fit_decision(classes=["good", "bad"], **how)
    assert bad_first.classes == bad_last.classes == ["bad", "good"]
    shares = [np.mean(rule(probabilities=frame) == "bad") for rule in (bad_first, bad_last)]
    assert shares[0] > 0.3 > shares[1]  # to miss a bad one costs 9, or 1


FORMS = {
    "indices": lambda number: list(range(number)),
    "from one": lambda number: list(range(1, number + 1)),
    "negative": lambda number: [7 * k - 20 for k in range(number)],
    "text": lambda number: [f"class {chr(122 - k)}" for k in range(number)],
    "digits": lambda number: [str(10 * k) for k in range(number)],
    "floats": lambda number: [k + 0.5 for k in range(number)],
    "bool": lambda number: [False, True],
}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_labels_come_back_in_their_form(tmp_path_factory, data):
    """By every door, after save and load, with columns in any order."""
    form = data.draw(st.sampled_from([*FORMS]))
    number = 2 if form == "bool" else data.draw(st.integers(2, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    labels = FORMS[form](number)
    permuted = data.draw(st.permutations(labels))
    place = {label: k for k, label in enumerate(labels)}
    y = rng.integers(0, number, 90)
    y[:number] = np.arange(number)
    p = softmax(2 * np.eye(number)[y] + rng.normal(size=(90, number)), 1)
    metric = "f1" if number == 2 else "f1_macro"
    pos_label = data.draw(st.sampled_from([None, *labels])) if number == 2 else None
    named = np.array(labels)[y]
    given_y = named if data.draw(st.booleans()) else named.tolist()
    columns = p[:, [place[label] for label in permuted]]
    frame = pandas.DataFrame(columns, columns=[str(label) for label in permuted])
    how = {"metric": metric, "pos_label": pos_label}
    first = fit_decision(y=given_y, probabilities=columns, classes=permuted, **how)
    if number == 2 and pos_label is None:  # the second of two that `classes` says
        how["pos_label"] = first.pos_label
    rules = {
        "classes": first,
        "frame": fit_decision(y=given_y, probabilities=frame, classes=labels, **how),
    }
    expected = first(probabilities=columns)
    assert expected.dtype.kind == np.array(labels).dtype.kind
    assert {*expected.tolist()} <= {*labels}
    fitter = DecisionFitter(classes=permuted, **how)
    fitter.update(y=given_y, probabilities=columns)
    rules["stream"] = fitter.compute()
    folder = tmp_path_factory.mktemp("rules")
    for name, rule in list(rules.items()):
        rule.save(folder / f"{name}.json")
        rules[f"{name}, loaded"] = evalign.load(folder / f"{name}.json")
    for name, rule in rules.items():
        found = rule(probabilities=columns)
        assert found.dtype.kind == expected.dtype.kind, name
        assert (found == expected).mean() >= (1.0 if name != "frame" else 0.9), name
        in_frame = rule(probabilities=frame)
        assert in_frame.tolist() == found.tolist(), name
        assert rule.pos_label == first.pos_label, name
