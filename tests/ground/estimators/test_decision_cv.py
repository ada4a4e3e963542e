"""`AlignedDecisionCV` against scikit-learn's functions and what can be counted by hand."""

import math
import pickle
import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import f1_score, recall_score
from sklearn.model_selection import (
    GridSearchCV,
    LeaveOneOut,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import evalign
from evalign import AlignedDecisionCV, fit_decision
from evalign.core.constraints import Infeasible
from evalign.core.metrics import resolve
from evalign.estimators import TrainingWarning
from evalign.estimators.evidence import MIN_TUNING_ROWS, mean_difference
from tests.ground.made import imbalanced

X, Y = imbalanced(400)  # 67 rows of class 1
THREE = imbalanced(300, classes=3)
SPLIT = StratifiedKFold(3, shuffle=True, random_state=1)


def decided(estimator=None, metric="f1", **arguments):
    estimator = GaussianNB() if estimator is None else estimator
    return AlignedDecisionCV(estimator, metric, **({"random_state": 0} | arguments))


@pytest.fixture(scope="module")
def fitted():
    return decided(cv=SPLIT).fit(X, Y)


@pytest.fixture(scope="module")
def held_out():
    """Probabilities of class 1 for rows that the classifier was not trained on."""
    return cross_val_predict(GaussianNB(), X, Y, cv=SPLIT, method="predict_proba")


# What it does.


def test_the_rule_is_that_of_the_answers_for_rows_held_out(fitted, held_out):
    rule = fit_decision(probabilities=held_out, y=Y, metric="f1")
    np.testing.assert_allclose(fitted.rule_.gain, rule.gain, rtol=1e-7, atol=1e-7)
    trained = GaussianNB().fit(X, Y)
    np.testing.assert_array_equal(fitted.predict_proba(X), trained.predict_proba(X))
    np.testing.assert_array_equal(fitted.predict(X), rule(probabilities=trained.predict_proba(X)))


def test_more_classes_and_their_names():
    features, codes = THREE
    names = np.array(["c", "a", "b"])[codes]
    clf = decided(metric="f1_macro", cv=SPLIT).fit(features, names)
    assert clf.classes_.tolist() == ["a", "b", "c"]
    assert clf.rule_.classes == ["a", "b", "c"]
    labels = clf.predict(features)
    assert set(labels) <= {"a", "b", "c"}
    np.testing.assert_array_equal(labels, clf.classes_[clf.decision_function(features).argmax(1)])
    assert clf.score(features, names) == pytest.approx(f1_score(names, labels, average="macro"))


def test_scores_of_the_folds(fitted, held_out):
    """By hand: a rule from the other folds, argmax, and the interval of their difference."""
    results = fitted.cv_results_
    gains = []
    for fold, (_, rows) in enumerate(SPLIT.split(X, Y)):
        others = np.setdiff1d(np.arange(len(Y)), rows)
        rule = fit_decision(probabilities=held_out[others], y=Y[others], metric="f1")
        of_rule = f1_score(Y[rows], rule(probabilities=held_out[rows]))
        of_argmax = f1_score(Y[rows], held_out[rows].argmax(1))
        assert results["rule_scores"][fold] == pytest.approx(of_rule)
        assert results["argmax_scores"][fold] == pytest.approx(of_argmax)
        gains.append(of_rule - of_argmax)
    assert results["gain"] == pytest.approx(np.mean(gains))
    # Nadeau and Bengio: the variance of the mean is s²(1/k + 1/(k − 1)).
    reach = stats.t.ppf(0.975, 2) * math.sqrt((1 / 3 + 1 / 2) * np.var(gains, ddof=1))
    # On the scale of log((1 + gain)/(1 − gain)), whose slope is 2/(1 − gain²).
    gain = np.mean(gains)
    high = np.tanh(np.arctanh(gain) + reach / (1 - gain**2))
    assert results["gain_high"] == pytest.approx(high)
    assert results["mean_rule_score"] == pytest.approx(results["rule_scores"].mean())


def test_thresholds(fitted):
    results = fitted.cv_results_
    own = fitted.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(fitted.predict(X), own > results["threshold"])


@pytest.mark.parametrize("pos_label", ["frequent", "rare"])
def test_the_positive_class(pos_label):
    names = np.where(Y == 1, "rare", "frequent")
    clf = decided(metric="f1", pos_label=pos_label, constraint="recall >= 0.9", cv=SPLIT)
    clf.fit(X, names)
    assert (clf.rule_.classes, clf.rule_.pos_label) == (["frequent", "rare"], pos_label)
    place = clf.classes_.tolist().index(pos_label)
    p = clf.predict_proba(X)[:, place]
    labels = clf.predict(X)
    np.testing.assert_array_equal(labels == pos_label, p > clf.cv_results_["threshold"])
    np.testing.assert_array_equal(labels, clf.rule_(probabilities=clf.predict_proba(X)))
    np.testing.assert_array_equal(labels == clf.classes_[1], clf.decision_function(X) > 0)
    assert clf.score(X, names) == pytest.approx(f1_score(names, labels, pos_label=pos_label))
    # The constraint is of the positive class, and holds on the rows held out.
    held_out = cross_val_predict(GaussianNB(), X, names, cv=SPLIT, method="predict_proba")
    given = np.where(held_out[:, place] > clf.cv_results_["threshold"], pos_label, "other")
    assert recall_score(names == pos_label, given == pos_label) >= 0.9


def test_scores_that_are_not_probabilities():
    """So much shrunk that all of them are negative, which is class 0."""
    clf = decided(RidgeClassifier(alpha=1e4), cv=SPLIT).fit(X, Y)
    assert not hasattr(clf, "predict_proba")
    scores = clf.estimator_.decision_function(X)
    np.testing.assert_array_equal(clf.predict(X), scores > clf.cv_results_["threshold"])
    assert clf.cv_results_["mean_argmax_score"] == 0
    assert clf.cv_results_["mean_rule_score"] > 0.8


# What it takes.


def test_weights_count_as_copies():
    """Of a fitted classifier: the folds are of rows, and would differ."""
    model, weight = GaussianNB().fit(X[:200], Y[:200]), np.arange(200) % 3
    one = decided(model, cv="prefit", constraint="recall >= 0.7").fit(X[200:], Y[200:], weight)
    copies = np.repeat(np.arange(200, 400), weight)
    other = decided(model, cv="prefit", constraint="recall >= 0.7").fit(X[copies], Y[copies])
    np.testing.assert_allclose(one.rule_.gain, other.rule_.gain, rtol=1e-7, atol=1e-7)
    assert one.estimator_ is model


class Remembering(GaussianNB):
    """A classifier that keeps what it was trained on."""

    seen: ClassVar[list] = []

    def fit(self, X, y, sample_weight=None):
        self.seen.append((X[:, 0], sample_weight))
        self.rows_, self.weight_ = X[:, 0], sample_weight
        return super().fit(X, y, sample_weight)


def test_weights_and_groups_reach_their_places():
    groups, weight = np.arange(len(Y)) // 4, 1.0 + np.arange(len(Y)) % 2
    Remembering.seen.clear()
    clf = decided(Remembering(), cv=3, decision="argmax")
    clf.fit(X, Y, sample_weight=weight, groups=groups)
    for rows, given in Remembering.seen[:3]:
        trained = np.isin(X[:, 0], rows)
        assert 0 < trained.sum() < len(Y)
        assert not set(groups[trained]) & set(groups[~trained])
        np.testing.assert_array_equal(given, weight[trained])


def test_weights_reach_the_last_step_of_a_pipeline():
    weight = 1.0 + np.arange(len(Y)) % 2
    clf = decided(make_pipeline(StandardScaler(), Remembering()), decision="argmax", cv=2)
    clf.fit(X, Y, sample_weight=weight)
    np.testing.assert_array_equal(clf.estimator_[-1].weight_, weight)
    with pytest.warns(TrainingWarning, match="KNeighborsClassifier.fit takes no sample_weight"):
        decided(KNeighborsClassifier(), decision="argmax", cv=2).fit(X, Y, sample_weight=weight)


def test_frames_and_pipelines():
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(X[:, 1] > 1, "x", "y"))
    columns = make_column_transformer(
        (OneHotEncoder(), ["kind"]), remainder=StandardScaler(), sparse_threshold=0
    )
    clf = decided(make_pipeline(columns, GaussianNB()), cv=2).fit(frame, pd.Series(Y))
    assert clf.feature_names_in_.tolist() == ["a", "b", "c", "d", "kind"]
    assert clf.n_features_in_ == 5
    assert clf.score(frame, pd.Series(Y)) > 0.7


@pytest.mark.parametrize(
    "cv",
    [
        ShuffleSplit(1, test_size=0.5, random_state=0),
        StratifiedKFold(12, shuffle=True, random_state=0),
    ],
    ids=["one split", "many"],
)
def test_every_kind_of_splitter(cv):
    clf = decided(cv=cv).fit(X, Y)
    assert np.isfinite(clf.cv_results_["gain_low"])


def test_splits_by_indices_or_masks(fitted):
    split = list(SPLIT.split(X, Y))
    masks = [tuple(np.isin(np.arange(len(Y)), rows) for rows in part) for part in split]
    for cv in (split, masks):
        assert decided(cv=cv).fit(X, Y).rule_.threshold == fitted.rule_.threshold


def test_a_frozen_classifier_keeps_its_classes():
    features, codes = THREE
    model = GaussianNB().fit(features, codes)
    some = codes < 2
    for arguments in ({"estimator": FrozenEstimator(model)}, {"estimator": model, "cv": "prefit"}):
        clf = decided(metric="f1_macro", decision="expected", **arguments)
        clf.fit(features[some], codes[some])
        assert clf.classes_.tolist() == [0, 1, 2]
        assert clf.predict(features).shape == codes.shape


def test_it_is_searched_cloned_and_saved(fitted, tmp_path):
    search = GridSearchCV(
        decided(cv=2, decision="expected"), {"estimator__var_smoothing": [1e-9, 1e-3]}, cv=2
    ).fit(X, Y)
    assert search.best_estimator_.estimator_.var_smoothing in (1e-9, 1e-3)
    assert clone(fitted).get_params()["cv"] is not None
    fitted = decided(cv=3).fit(X, Y)
    fitted.save(tmp_path / "model")
    for again in (evalign.load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
        assert again.rule_.source == fitted.rule_.source


# Rows that teach little.


def test_a_class_with_one_row():
    names = np.where(Y == 1, "b", "a").astype(object)
    names[0] = "single"
    clf = decided(metric="f1_macro", cv=2, decision="expected")
    with pytest.warns(
        TrainingWarning, match=r"All rows of the classes \['single'\] are held out at once"
    ):
        clf.fit(X, names)
    assert clf.classes_.tolist() == ["a", "b", "single"]
    assert clf.predict_proba(X).shape == (len(Y), 3)
    assert clf.score(X, names) > 0.5


def test_folds_of_single_rows_are_scored_together():
    rows = np.concatenate([np.flatnonzero(Y == 0)[:40], np.flatnonzero(Y == 1)[:20]])
    clf = decided(cv=LeaveOneOut(), decision="expected").fit(X[rows], Y[rows])
    results = clf.cv_results_
    assert results["rule_scores"].shape == (5,)
    assert np.isfinite([results[key] for key in ("gain", "gain_low", "gain_high")]).all()


def test_a_fold_with_one_class():
    rows = np.append(np.flatnonzero(Y == 0)[:30], np.flatnonzero(Y == 1)[0])
    for model in (LogisticRegression(), RidgeClassifier()):
        with pytest.warns(TrainingWarning) as said:
            clf = decided(model, cv=3).fit(X[rows], Y[rows])
        assert len(said) == 2  # a fold holds the row of class 1, and one row is too little to tune
        assert clf.predict(X).shape == Y.shape


def test_promises_and_groups():
    """The rule is that of all held-out rows; bounds are judged by rules of the other folds."""
    groups = np.where(np.arange(len(Y)) % 2, "north", "south")
    constraint = "recall >= 0.6, gap(recall) <= 0.6"
    clf = decided(metric="f1", constraint=constraint, confidence=0.9, cv=SPLIT)
    clf.fit(X, Y, constraint_groups=groups)
    oof = cross_val_predict(GaussianNB(), X, Y, cv=SPLIT, method="predict_proba")
    how = {"metric": "f1", "constraint": constraint, "confidence": 0.9}
    rule = fit_decision(y=Y, probabilities=oof, constraint_groups=groups, **how)
    np.testing.assert_allclose(clf.rule_.gain, rule.gain, rtol=1e-7, atol=1e-7)
    assert clf.rule_.promised is True
    given = np.zeros_like(Y)
    for _, rows in SPLIT.split(X, Y):
        rest = np.setdiff1d(np.arange(len(Y)), rows)
        with warnings.catch_warnings(action="ignore"):  # of too few rows for a promise
            rule = fit_decision(
                y=Y[rest], probabilities=oof[rest], constraint_groups=groups[rest], **how
            )
        given[rows] = rule(probabilities=oof[rows])
    slacks = clf.cv_results_["held_out_slacks"]
    assert slacks["recall >= 0.6"] == pytest.approx(recall_score(Y, given) - 0.6)
    each = [recall_score(Y[groups == name], given[groups == name]) for name in ("north", "south")]
    assert slacks["gap(recall) <= 0.6"] == pytest.approx(0.6 - abs(each[0] - each[1]))


def test_folds_that_leave_one_group_have_no_rule():
    """One row is the whole second group: there is no rule without its fold, no gap in others."""
    alone = np.arange(len(Y)) == 0
    clf = decided(constraint="gap(recall) <= 0.5").fit(X, Y, constraint_groups=alone)
    (slack,) = clf.cv_results_["held_out_slacks"].values()
    assert np.isnan(slack)
    assert np.isnan(clf.cv_results_["rule_scores"]).sum() == 1
    assert np.isfinite(clf.cv_results_["argmax_scores"]).all()


@pytest.mark.parametrize(
    ("arguments", "groups", "text"),
    [
        ({"constraint": "gap(recall) <= 0.5"}, None, "two groups or more for 'gap.*Got 0 groups"),
        (
            {"constraint": "gap(recall) <= 0.5"},
            np.zeros_like(Y),
            "two groups or more.*Got 1 groups",
        ),
        ({"constraint": "gap(recall) <= 0.5"}, [1, 2], "be one for each row"),
        ({"confidence": 0.95}, None, "come with a constraint"),
        ({"constraint": "f1 >= 0.5", "confidence": 0.95}, None, "come with bounds on recall"),
        ({"constraint": "recall >= 0.5"}, Y, "be None without a gap"),
        ({"constraint": "recall[cat] >= 0.5"}, None, "must name one of the classes"),
        ({"constraint": "recall >= 0.5", "decision": "argmax"}, None, "be None for argmax"),
    ],
)
def test_what_no_rule_can_heed_is_refused_before_training(arguments, groups, text):
    class Never(LogisticRegression):
        def fit(self, *given, **more):
            raise AssertionError("it was trained")

    clf = AlignedDecisionCV(Never(), metric="f1", **arguments)
    with pytest.raises(ValueError, match=f"of AlignedDecisionCV .*{text}"):
        clf.fit(X, Y, constraint_groups=groups)


def test_a_fit_that_fails_changes_nothing():
    clf = decided(cv=2).fit(X, Y).set_params(constraint="recall >= 1, specificity >= 1")
    before = dict(vars(clf))
    with pytest.raises(Infeasible):
        clf.fit(X[:, :2], np.where(Y == 1, "rare", "frequent"))
    assert vars(clf).keys() == before.keys()
    assert all(vars(clf)[name] is value for name, value in before.items())


def test_a_constraint_that_some_folds_cannot_meet():
    """Its scores are NaN there, and the others count."""
    rows = np.concatenate([np.flatnonzero(Y == 0)[:60], np.flatnonzero(Y == 1)[:12]])
    clf = decided(constraint="recall >= 0.9, precision >= 0.65", cv=4).fit(X[rows], Y[rows])
    results = clf.cv_results_
    known = np.isfinite(results["rule_scores"])
    assert results["mean_rule_score"] == pytest.approx(results["rule_scores"][known].mean())
    assert known.tolist() == [True, False, False, True]


# What it refuses.


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"estimator": StandardScaler()}, TypeError, "estimator of AlignedDecisionCV must be a cl"),
        ({"decision": "best"}, ValueError, "decision of AlignedDecisionCV must be one of argmax"),
        ({"cv": 1}, ValueError, "cv of AlignedDecisionCV must be at least 2 folds. Got 1."),
        ({"pos_label": 2}, ValueError, "pos_label of AlignedDecisionCV must be None, or one of"),
        ({"metric": "nosuch"}, ValueError, "metric of AlignedDecisionCV must be a name"),
        ({"constraint": "recall > 2"}, ValueError, "constraint of AlignedDecisionCV must"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        decided(**arguments).fit(X, Y)


def test_scores_of_pairs_of_classes_are_refused():
    """For three classes they have three columns too."""
    pipeline = make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))
    with pytest.raises(ValueError, match='must have svc__decision_function_shape="ovr"'):
        decided(pipeline, "f1_macro", cv=2).fit(*THREE)


def test_labels_that_fit_never_saw():
    model, new = GaussianNB().fit(X, Y), np.append(Y[1:], 2)
    with pytest.raises(ValueError, match="y of AlignedDecisionCV must hold labels that the fitted"):
        decided(model, cv="prefit").fit(X, Y + 1)
    clf = decided(decision="argmax").fit(X, Y)
    with pytest.raises(ValueError, match=r"classes of f1 must be two. Got 3"):
        clf.score(X, new)
    clf.set_params(metric="f1_macro")
    assert clf.score(X, new) < clf.score(X, Y)


# Several labels a row.


def several(rows=240):
    rng = np.random.default_rng(3)
    features = rng.normal(size=(rows, 4))
    noise = rng.normal(size=(rows, 3))
    return features, (features[:, :3] + 0.5 * noise > [0.0, 0.8, 1.2]).astype(int)


MANY = several()


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(10, max_depth=3, random_state=0),
        OneVsRestClassifier(GaussianNB()),
        MultiOutputClassifier(GaussianNB()),
        RidgeClassifier(),
    ],
    ids=["list", "array", "multioutput", "scores"],
)
def test_several_labels(model):
    features, labels = MANY
    clf = decided(model, "f1_macro", cv=2).fit(features, labels)
    given = clf.predict(features)
    assert given.shape == labels.shape
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.score(features, labels) == pytest.approx(f1_score(labels, given, average="macro"))
    np.testing.assert_array_equal(given, clf.decision_function(features) > 0)


def test_a_label_that_a_fold_lacks():
    features, labels = MANY
    rare = labels.copy()
    rare[:, 2] = 0
    rare[5, 2] = 1
    model = RandomForestClassifier(5, random_state=0)
    clf = decided(model, "f1_macro", cv=2).fit(features, rare)
    assert clf.predict(features).shape == rare.shape
    assert clf.predict_proba(features).shape == rare.shape


# Rows that are held out.


def test_splits_that_hold_nothing_out():
    """The rule would be fitted to rows that the classifier was trained on."""
    for cv in (iter([]), [(np.arange(9), [])]):
        with pytest.raises(ValueError, match="cv of AlignedDecisionCV must give splits with rows"):
            decided(cv=cv).fit(X, Y)


def test_a_row_that_is_held_out_twice_is_refused():
    repeated = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    text = "cv of AlignedDecisionCV must hold out no row more than once. Got one that is held out 2"
    with pytest.raises(ValueError, match=text):
        decided(cv=repeated).fit(X, Y)


def test_differences_of_a_bounded_score_have_bounded_intervals():
    """Unbounded ones begin at −1.3 and end at 9.3."""
    for differences in ([-0.9, -1, -1, -1, -1, 0.2], [0.9, 0.1]):
        value, low, high, _ = mean_difference(np.array(differences), resolve("f1"))
        assert -1 < low < value < high < 1


def test_few_rows_are_not_tuned_on():
    y = (np.arange(len(X)) < MIN_TUNING_ROWS - 1).astype(int)
    with pytest.warns(TrainingWarning, match=f"takes 10 .* there are {MIN_TUNING_ROWS - 1}:"):
        clf = decided().fit(X, y)
    assert clf.rule_.source == "argmax"
    np.testing.assert_array_equal(clf.predict(X), clf.estimator_.predict(X))
    weight = (np.arange(len(X)) >= 2).astype(float)
    with pytest.warns(TrainingWarning, match=f"there are {MIN_TUNING_ROWS - 2}:"):
        decided().fit(X, (np.arange(len(X)) < MIN_TUNING_ROWS).astype(int), weight)


def test_scores_that_are_equal_have_the_sign_of_their_label():
    """Two trees may each be for another class."""
    model = RandomForestClassifier(2, max_depth=3, random_state=0)
    for positive in (0, 1):
        clf = decided(model, decision="argmax", pos_label=positive).fit(X, Y)
        assert (clf.predict_proba(X)[:, 1] == 0.5).any()
        np.testing.assert_array_equal(clf.decision_function(X) > 0, clf.predict(X) == 1)
