"""AlignedClassifier under a constraint: the rule meets it."""

import re

import numpy as np
import pytest
from sklearn.base import clone

from evalign import AlignedClassifier, load, score
from tests.estimator.models import quick
from tests.ground.made import imbalanced

pytestmark = pytest.mark.filterwarnings("ignore::evalign.training.TrainingWarning")


@pytest.fixture(scope="module")
def table():
    X, y = imbalanced(600, classes=2, seed=0)
    return X, np.array(["no", "yes"])[y]


def rates(clf, X, y):
    return {
        name: score(
            name, y_true=(y == "yes").astype(int), y_pred=(clf.predict(X) == "yes").astype(int)
        )
        for name in ("recall", "precision")
    }


@pytest.fixture(scope="module")
def fitted(table):
    X, y = table
    make = quick(metric="precision", constraint="recall >= 0.9", epochs=4)
    return make.fit(X[:400], y[:400], validation_data=(X[400:], y[400:]))


def test_the_rule_meets_it_on_validation_rows(fitted, table):
    X, y = table
    assert rates(fitted, X[400:], y[400:])["recall"] >= 0.9
    assert fitted.rule_.constraint == "recall >= 0.9"
    assert min(fitted.rule_.slacks.values()) >= 0


def test_saved_cloned_and_loaded(fitted, table, tmp_path):
    X, _ = table
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model", network=fitted.network)
    assert again.constraint == "recall >= 0.9"
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert clone(fitted).constraint == "recall >= 0.9"


@pytest.mark.parametrize(
    ("arguments", "trained"),
    [
        ({}, "cross_entropy"),
        ({"constraint": None}, "aligned"),
        ({"recipe": "aligned"}, "aligned"),
    ],
)
def test_cross_entropy_is_the_default_with_a_constraint(table, capsys, arguments, trained):
    X, y = table
    quick(
        **{"metric": "f1", "constraint": "recall >= 0.5", "epochs": 1, "verbose": 1} | arguments
    ).fit(X, y)
    assert capsys.readouterr().err.startswith(f"{trained}: epoch 1/1")


def test_a_constraint_that_none_meets_is_an_error(table):
    X, y = table
    rng = np.random.default_rng(0)
    text = "constraint of fit_decision must be met by some rule on these rows"
    with pytest.raises(ValueError, match=text):
        quick(metric="f1", constraint="recall >= 0.99, precision >= 0.99", epochs=1).fit(
            rng.normal(size=X.shape), rng.permutation(y)
        )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"constraint": "recal >= 0.9"}, "AlignedClassifier's constraint must"),
        ({"constraint": "recall[maybe] >= 0.9"}, "must name one of the classes 'no', 'yes'"),
        ({"constraint": "recall >= 0.9", "decision": "argmax"}, "must be None for argmax"),
    ],
)
def test_bad_constraints_are_refused_before_training(table, settings, text):
    def never(record):
        raise AssertionError("it was trained")

    with pytest.raises((ValueError, TypeError), match=re.escape(text)):
        AlignedClassifier("f1", on_epoch=never, **settings).fit(*table)


@pytest.fixture(scope="module")
def two_groups():
    """Make rows of two groups, in the second of which the classes overlap more."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=900)
    y = (rng.random(900) < 0.35).astype(int)
    X = rng.normal(size=(900, 3))
    X[:, 0] += np.where(group == 0, 2.5, 1.0) * y
    X[:, 1] = group
    return X, y, np.array(["east", "west"])[group]


def gap_of(labels, y, groups):
    recalls = [labels[(groups == g) & (y == 1)].mean() for g in np.unique(groups)]
    return max(recalls) - min(recalls)


BOUNDED = {"metric": "accuracy", "constraint": "gap(recall) <= 0.05", "epochs": 2}


@pytest.mark.parametrize("settings", [{}, {"network": "auto"}])
def test_a_gap_is_met_on_rows_held_out(two_groups, settings):
    X, y, groups = two_groups
    held_out = X[600:], y[600:], None, groups[600:]
    clf = quick(**BOUNDED, **settings).fit(
        X[:600], y[:600], constraint_groups=groups[:600], validation_data=held_out
    )
    assert gap_of(clf.predict(X[600:]), y[600:], groups[600:]) <= 0.05 + 1e-9
    assert clf.rule_.constraint == "gap(recall) <= 0.05"


@pytest.mark.parametrize(
    ("settings", "constraint"),
    [
        ({"constraint": "recall[no] >= 0.97"}, "recall[no] >= 0.97"),
        ({"constraint": "recall >= 0.97", "pos_label": "no"}, "recall >= 0.97"),
        ({"constraint": "gap(recall) <= 0.05", "pos_label": "no"}, "gap(recall) <= 0.05"),
    ],
)
def test_the_first_of_two_classes(two_groups, settings, constraint):
    X, y, groups = two_groups
    groups = groups if "gap" in constraint else None
    clf = quick("f1", epochs=2, **settings)
    clf.fit(X, np.array(["no", "yes"])[1 - y], constraint_groups=groups)
    assert clf.rule_.constraint == constraint
    assert min(clf.rule_.slacks.values()) >= -1e-9  # on the rows that it held out itself


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"constraint_groups": None},
            "constraint_groups of AlignedClassifier must name two groups",
        ),
        ({"constraint_groups": np.arange(3)}, "must be one for each row, (900,). Got (3,)."),
        ({"constraint_groups": np.ones(900)}, "must be integers or strings. Got float64."),
        (
            {"constraint_groups": 1 * (np.arange(900) == 0)},
            "Got 1 groups. Pass a group per row",
        ),
        (
            {"validation": 2},
            "Got 0 groups. Pass a group per row to fit.",
        ),
        ({"validation": 5}, "or (X, y, sample_weight, constraint_groups). Got 5 parts."),
    ],
)
def test_bad_groups_are_refused_before_training(two_groups, change, text):
    def never(record):
        raise AssertionError("it was trained")

    X, y, groups = two_groups
    data = {"constraint_groups": groups}
    if parts := change.pop("validation", 0):
        data["validation_data"] = (X, y, None, groups, groups)[:parts]
    data |= {k: change.pop(k) for k in list(change) if k == "constraint_groups"}
    with pytest.raises(ValueError, match=re.escape(text)):
        quick(**(BOUNDED | change), on_epoch=never).fit(X, y, **data)


def test_a_promise_for_new_rows(table):
    X, y = table
    common = {"metric": "precision", "constraint": "recall >= 0.7", "epochs": 2}
    sure, plain = (
        quick(confidence=confidence, **common).fit(
            X[:300], y[:300], validation_data=(X[300:], y[300:])
        )
        for confidence in (0.9, None)
    )
    assert sure.rule_.confidence == 0.9
    assert sure.rule_.promised
    assert plain.rule_.promised is None
    assert min(sure.rule_.slacks.values()) > min(plain.rule_.slacks.values())
    with pytest.raises(ValueError, match="confidence of AlignedClassifier must"):
        quick(metric="f1", confidence=0.9).fit(X, y)
