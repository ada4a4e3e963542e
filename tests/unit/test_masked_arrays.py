"""Masked arrays of numpy: a value behind the mask is never read, whoever is given it.

Weights that are not numbers are refused at the same doors.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GroupKFold
from sklearn.naive_bayes import GaussianNB

from evalign import (
    AlignedDecisionCV,
    AlignedEnsemble,
    AlignedLoss,
    Confusion,
    DecisionFitter,
    fit_decision,
    metrics,
    score,
)
from evalign.comparison import compare
from evalign.training import holdout_split, three_way_split
from tests.estimator.models import imbalanced, quick

X, Y = imbalanced(120)
ROWS = np.arange(len(Y))
WEIGHT, GROUPS, APART = 1.0 + ROWS % 3, ROWS // 4, ROWS % 2
LOGITS = X[:, :2] * [-1, 1]
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
TABLE = {"X": X, "y": Y, "sample_weight": WEIGHT}
GAP = {"metric": "f1", "constraint": "gap(recall) <= 0.9"}
GUESSED = {"predictions": 1 - Y, "target": Y, "sample_weight": WEIGHT}


def network(**arguments):
    return quick("f1", network="linear", **{"epochs": 1, **arguments})


def around(metric="f1", **arguments):
    return AlignedDecisionCV(GaussianNB(), metric, random_state=0, **{"cv": 2, **arguments})


def blend(**arguments):
    bayes = [("bayes", GaussianNB())]
    return AlignedEnsemble(candidates=bayes, cv=2, random_state=0, **{"metric": "f1", **arguments})


def fitted(model, **given):
    return model.fit(**({"X": X, "y": Y} | given)).predict_proba(X)


def chosen_on(X, y, sample_weight, constraint_groups):
    chosen = network(constraint=GAP["constraint"], epochs=2)
    data = (X, y, sample_weight, constraint_groups)
    return fitted(chosen, constraint_groups=APART, validation_data=data)


def streamed(logits, y, sample_weight):
    fitter = DecisionFitter(metric="f1")
    fitter.update(logits, y, sample_weight=sample_weight)
    return fitter.compute()(LOGITS)


def compared(**given):
    methods = ["random forest (argmax)"]
    records = compare(network(), X, methods=methods, folds=2, seeds=[0], **given)
    return [record.score for record in records]


def matrix_of(matrix):
    return Confusion.from_matrix(matrix).predicted


def counted(**given):
    return Confusion.from_predictions(**given).tp


# door: (owner, function, arguments)
DOORS = {
    "classifier": (
        "AlignedClassifier",
        lambda **given: fitted(network(), **given),
        TABLE | {"groups": GROUPS},
    ),
    "constrained classifier": (
        "AlignedClassifier",
        lambda **given: fitted(network(constraint=GAP["constraint"]), **given),
        {"constraint_groups": APART},
    ),
    "validation data": ("AlignedClassifier", chosen_on, TABLE | {"constraint_groups": APART}),
    "ensemble": (
        "AlignedEnsemble",
        lambda **given: fitted(blend(), **given),
        TABLE | {"groups": GROUPS},
    ),
    "constrained ensemble": (
        "AlignedEnsemble",
        lambda **given: fitted(blend(**GAP), **given),
        {"constraint_groups": APART},
    ),
    "around a classifier": (
        "AlignedDecisionCV",
        lambda **given: fitted(around(), **given),
        TABLE | {"groups": GROUPS},
    ),
    "around a classifier, with a splitter": (
        "AlignedDecisionCV",
        lambda **given: fitted(around(cv=GroupKFold(2)), **given),
        {"groups": GROUPS},
    ),
    "constrained, around a classifier": (
        "AlignedDecisionCV",
        lambda **given: fitted(around(**GAP), **given),
        {"constraint_groups": APART},
    ),
    "rule": (
        "fit_decision",
        lambda **given: fit_decision(**GAP, **given)(LOGITS),
        {"logits": LOGITS, "y": Y, "sample_weight": WEIGHT, "groups": APART},
    ),
    "rule of probabilities": (
        "fit_decision",
        lambda **given: fit_decision(y=Y, metric="f1", **given)(LOGITS),
        {"probabilities": PROBABILITIES},
    ),
    "labels of a rule": ("DecisionRule", fit_decision(LOGITS, Y, metric="f1"), {"logits": LOGITS}),
    "stream": ("DecisionFitter", streamed, {"logits": LOGITS, "y": Y, "sample_weight": WEIGHT}),
    "score": ("score", lambda **given: score("f1", **given), GUESSED),
    "confusion": ("Confusion.from_predictions", counted, GUESSED),
    "matrix": ("Confusion.from_matrix", matrix_of, {"matrix": np.eye(9)}),
    "comparison": (
        "compare",
        compared,
        {"y": Y, "groups": GROUPS, "sample_weight": WEIGHT},
    ),
    "two parts": (
        "holdout_split",
        lambda **given: np.concatenate(holdout_split(**given)),
        {"y": Y, "groups": GROUPS},
    ),
    "three parts": (
        "holdout_split",
        lambda **given: np.concatenate(three_way_split(**given)),
        {"y": Y, "groups": GROUPS},
    ),
}
CASES = [(door, argument) for door, (_, _, given) in DOORS.items() for argument in given]


@pytest.mark.parametrize(("door", "argument"), CASES)
def test_masked_values_are_refused(door, argument):
    owner, function, given = DOORS[door]
    values = np.ma.masked_array(given[argument])
    values[5] = np.ma.masked
    text = rf"^{argument} of {owner}.* must be without masked cells\. Got {values.mask.sum()} of"
    with pytest.raises(ValueError, match=text):
        function(**(given | {argument: values}))


def weight_of(value, dtype=object):
    return pd.Series([value if row == 5 else 1 for row in ROWS], dtype=dtype)


@pytest.mark.parametrize("door", [door for door, argument in CASES if argument == "sample_weight"])
def test_weights_that_are_not_numbers_are_refused(door):
    owner, function, given = DOORS[door]
    for weight, got in [
        (weight_of(pd.NA), "<NA>"),
        (weight_of(pd.NA).tolist(), "<NA>"),
        (weight_of(pd.NA, "boolean"), "<NA>"),
        (weight_of(None), "None"),
        (weight_of("1"), "'1'"),
        (weight_of([1, 2]).tolist(), r"\[1, 2\]"),
        (weight_of(1, "M8[ns]"), r"np\.datetime64.*"),
        (weight_of(1, "m8[ns]"), r"np\.timedelta64.*"),
        ("balanced", "'balanced'"),
    ]:
        text = rf"^sample_weight of {owner}.* must hold numbers\. Got {got}\. A weight of 0 leaves"
        with pytest.raises(TypeError, match=text):
            function(**(given | {"sample_weight": weight}))
    text = rf"^sample_weight of {owner}.* must be finite and not negative\. Got (nan|other values)"
    with pytest.raises(ValueError, match=text):
        function(**(given | {"sample_weight": weight_of(pd.NA, "Float64")}))
    for dtype in ("Int64", "object"):
        weight = pd.Series(WEIGHT, index=ROWS[::-1], dtype=dtype)
        same = function(**(given | {"sample_weight": weight}))
        np.testing.assert_array_equal(same, function(**given))
    weight = np.array([*map(np.bool_, WEIGHT)], dtype=object)
    same = function(**(given | {"sample_weight": WEIGHT.astype(bool)}))
    np.testing.assert_array_equal(function(**(given | {"sample_weight": weight})), same)


@pytest.mark.parametrize("door", DOORS)
def test_a_mask_that_hides_nothing(door):
    _, function, given = DOORS[door]
    bare = {name: np.ma.masked_array(values, mask=False) for name, values in given.items()}
    np.testing.assert_array_equal(function(**bare), function(**given))


MODELS = {
    "AlignedClassifier": network,
    "AlignedEnsemble": blend,
    "AlignedDecisionCV": around,
}


@pytest.mark.parametrize("owner", MODELS)
def test_masked_rows_of_a_fitted_model(owner):
    model, hidden = MODELS[owner]().fit(X, Y), ROWS == 5
    rows = np.ma.masked_array(X, np.repeat(hidden[:, None], X.shape[1], 1))
    for function in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match=rf"^X of {owner} must be without masked cells\. Got"):
            function(rows)
        np.testing.assert_array_equal(function(np.ma.masked_array(X)), function(X))
    for argument in ("y", "sample_weight"):
        given = TABLE | {argument: np.ma.masked_array(TABLE[argument], hidden)}
        text = rf"^{argument} of {owner} must be without masked cells\. Got 1 of them\."
        with pytest.raises(ValueError, match=text):
            model.score(**given)
    assert model.score(X, np.ma.masked_array(Y), np.ma.masked_array(WEIGHT)) == model.score(**TABLE)


def test_the_cures():
    for door, argument, cure in [
        ("classifier", "sample_weight", "Leave these rows out."),
        ("classifier", "groups", "Give rows that lack one a group of their own."),
        ("rule", "groups", "Give rows that lack one a group of their own."),
        ("rule", "logits", "Leave these rows out."),
        ("rule", "y", "Leave them out by ignore_index: y.astype(int).filled(-100)."),
    ]:
        _, function, given = DOORS[door]
        values = np.ma.masked_array(given[argument])
        values[5] = np.ma.masked
        with pytest.raises(ValueError, match="masked cells") as refused:
            function(**(given | {argument: values}))
        assert str(refused.value).endswith(cure)
    # The cure of labels is what it says.
    hidden = np.ma.masked_array(Y.astype(np.uint8), ROWS % 5 == 0)
    cured, without = hidden.astype(int).filled(-100), ROWS % 5 > 0
    rules = (
        fit_decision(logits, y, metric="f1")
        for logits, y in ((LOGITS, cured), (LOGITS[without], Y[without]))
    )
    assert len({tuple(rule(LOGITS)) for rule in rules}) == 1


def test_arguments_that_are_numbers():
    counts = np.ma.masked_array([90, 10, 5], [False, True, False])
    with pytest.raises(ValueError, match=r"^class_counts of AlignedLoss must hold two or more"):
        AlignedLoss("f1_macro", class_counts=counts)
    cost = np.ma.masked_array([[0, 1], [5, 0]], [[False, False], [True, False]])
    with pytest.raises(ValueError, match=r"^cost of ExpectedCost must be a square matrix"):
        metrics.ExpectedCost(cost)
    assert metrics.ExpectedCost(np.ma.masked_array(cost.data)).cost == ((0, 1), (5, 0))
