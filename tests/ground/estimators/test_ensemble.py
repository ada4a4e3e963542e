"""`AlignedEnsemble` against scikit-learn's functions and what can be counted by hand."""

import copy
import re

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from scipy.special import expit
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, recall_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from evalign import AlignedEnsemble, fit_decision, metrics
from evalign.core.resampling import bootstrap, interval
from evalign.decisions.calibration import FACTOR_PRECISION, OFFSET_PRECISION
from evalign.estimators import TrainingWarning, candidates, trials
from evalign.estimators import ensemble as ensemble_module
from evalign.estimators.blend import PRIOR
from evalign.estimators.candidates import build
from evalign.estimators.judge import Judge
from evalign.estimators.out_of_fold import OutOfFoldScores
from evalign.tables import DataWarning
from tests.ground.made import imbalanced

X, Y = imbalanced(400)  # 67 rows of class 1
NAMES = np.where(Y == 1, "rare", "frequent")
SPLIT = StratifiedKFold(3, shuffle=True, random_state=1)
OWN = {"bayes": GaussianNB(), "tree": DecisionTreeClassifier(max_depth=3, random_state=0)}


def ensemble(metric="f1", **arguments):
    usual = {"candidates": list(OWN.items()), "cv": SPLIT, "random_state": 0}
    return AlignedEnsemble(metric, **(usual | arguments))


@pytest.fixture(scope="module")
def blend():
    return ensemble().fit(X, Y)


@pytest.fixture(scope="module")
def held_out():
    """Probabilities for rows that a classifier was not trained on."""
    return {
        name: cross_val_predict(model, X, Y, cv=SPLIT, method="predict_proba")
        for name, model in OWN.items()
    }


def labels(probabilities, way):
    """Labels of each fold, by a rule of the other folds."""
    given = np.empty_like(Y)
    for others, rows in SPLIT.split(X, Y):
        rule = fit_decision(probabilities=probabilities[others], y=Y[others], metric="f1")
        by_argmax = probabilities[rows].argmax(1)
        given[rows] = rule(probabilities=probabilities[rows]) if way == "rule" else by_argmax
    return given


# What it does.


def test_a_blend_is_the_weighted_mean_of_the_models_of_all_folds(blend, held_out):
    assert list(blend.weights_) == ["bayes", "tree"]
    assert sum(blend.weights_.values()) == pytest.approx(1)
    believed = {name: calibration(values) for name, values in held_out.items()}
    mixed = {name: believed[name](values) for name, values in held_out.items()}
    expected = likeliest(mixed, np.arange(len(Y)))
    assert blend.weights_["bayes"] == pytest.approx(expected, abs=1e-3)
    weights = list(blend.weights_.values())
    mean = np.average(list(mixed.values()), 0, weights=weights)
    rule = fit_decision(probabilities=mean, y=Y, metric="f1")
    np.testing.assert_allclose(blend.rule_.gain, rule.gain, rtol=1e-7, atol=1e-7)
    each = []
    for name, model in OWN.items():
        parts = [clone(model).fit(X[rows], Y[rows]) for rows, _ in SPLIT.split(X, Y)]
        each.append(believed[name](np.mean([part.predict_proba(X) for part in parts], 0)))
    mean = np.average(each, 0, weights=weights)
    np.testing.assert_allclose(blend.predict_proba(X), mean, atol=1e-4)  # the optimizer's
    np.testing.assert_array_equal(blend.predict(X), rule(probabilities=mean))
    assert blend.score(X, Y) == pytest.approx(f1_score(Y, blend.predict(X)))


def calibration(values):
    """The likeliest of the functions expit(a·log-odds + b), with normal priors on a and b."""

    def log_odds(p):
        return np.subtract(*np.log(p[:, ::-1].clip(1e-6)).T)

    def unlikely(numbers):
        a, b = numbers
        z = a * log_odds(values) + b
        return (
            np.logaddexp(0, -z[Y == 1]).sum()
            + np.logaddexp(0, z[Y == 0]).sum()
            + (FACTOR_PRECISION * (a - 1) ** 2 + OFFSET_PRECISION * b**2) / 2
        )

    a, b = optimize.minimize(unlikely, (1, 0), tol=1e-10).x

    def calibrated(p):
        positive = expit(a * log_odds(p) + b)
        return np.stack([1 - positive, positive], 1)

    return calibrated


def likeliest(held_out, rows):
    """The share of the first of two models with which the labels are most likely, by a search."""
    one, other = (values[rows, Y[rows]].clip(1e-6) for values in held_out.values())

    def unlikely(share):
        prior = PRIOR * (np.log(share) + np.log(1 - share))
        return -np.log(share * one + (1 - share) * other).sum() - prior

    return optimize.minimize_scalar(unlikely, bounds=(0.001, 0.999), method="bounded").x


def test_rows_of_a_split_are_those_given():
    """A row may be repeated; one that does not exist is refused."""
    first, second = np.arange(200), np.arange(200, 400)
    parts = [(np.repeat(first, 2), second), (second, first)]
    own = ("bayes", GaussianNB())
    clf = ensemble(candidates=[own], cv=parts).fit(X, Y)
    assert [model.class_count_.sum() for model in clf.models_["bayes"]] == [400, 200]
    with pytest.raises(IndexError):
        ensemble(cv=[(first, np.arange(200, 500))]).fit(X, Y)


def test_a_candidate_that_knows_nothing_is_left_out():
    own = [("bayes", GaussianNB()), ("blind", DummyClassifier())]
    clf = ensemble(candidates=own, decision="argmax").fit(X, Y)
    assert clf.weights_ == {"bayes": 1.0}
    assert list(clf.models_) == ["bayes", "blind"]


def test_the_table_of_candidates(blend, held_out):
    """By hand: labels by rules of the other folds, one score of all rows, its interval."""
    table = pd.DataFrame(blend.cv_results_).set_index("candidate")
    assert list(table.index) == ["bayes", "tree", "blend"]
    for name, values in held_out.items():
        for way in ("rule", "argmax"):
            expected = f1_score(Y, labels(values, way))
            assert table.loc[name, f"{way}_score"] == pytest.approx(expected)
    # The weights of the blend are chosen anew for each fold, too.
    ours = np.empty_like(Y)
    for others, rows in SPLIT.split(X, Y):
        share = likeliest(held_out, others)
        mean = np.average(list(held_out.values()), 0, weights=[share, 1 - share])
        rule = fit_decision(probabilities=mean[others], y=Y[others], metric="f1")
        ours[rows] = rule(probabilities=mean[rows])
    assert table.loc["blend", "rule_score"] == pytest.approx(f1_score(Y, ours))
    others, plain = (labels(held_out["tree"], way) for way in ("rule", "argmax"))
    of_trees = table.loc["tree"]
    assert of_trees["gain"] == pytest.approx(f1_score(Y, ours) - f1_score(Y, others))
    drawn = bootstrap(metrics.resolve("f1"), Y, [ours, others, plain], classes=2, seed=0)
    drawn, training = drawn[0] - drawn[1], len(next(SPLIT.split(X, Y))[0])
    gain = of_trees["gain"]
    widened = gain + np.sqrt(1 + len(Y) / training) * (drawn - gain)  # by Nadeau and Bengio
    for end, expected in zip(("low", "high"), interval(widened), strict=True):
        assert of_trees[f"gain_{end}"] == pytest.approx(expected, abs=0.01)  # of another seed
    assert (table["rule_score_low"] < table["rule_score"]).all()
    assert table.loc["blend", ["gain", "gain_low", "gain_high"]].tolist() == [0, 0, 0]
    assert table["weight"].to_dict() == blend.weights_ | {"blend": 1.0}


def test_the_models_with_a_name(monkeypatch):
    monkeypatch.setattr(candidates, "TREES", 20)
    features, codes = imbalanced(300, classes=3)
    names = np.array(["c", "a", "b"])[codes]
    clf = AlignedEnsemble(
        candidates=["forest", "boosting", "linear"], cv=2, random_state=0, decision="expected"
    ).fit(features, names)
    assert list(clf.models_) == ["linear", "boosting", "forest"]  # the quick ones first
    assert clf.classes_.tolist() == clf.rule_.classes == ["a", "b", "c"]
    assert clf.score(features, names) > 0.7
    decided = clf.classes_[clf.decision_function(features).argmax(1)]
    np.testing.assert_array_equal(decided, clf.predict(features))
    again = clone(clf).fit(features, names)
    np.testing.assert_array_equal(again.predict_proba(features), clf.predict_proba(features))


@pytest.mark.parametrize("pos_label", ["frequent", "rare"])
def test_the_positive_class(pos_label):
    arguments = {"pos_label": pos_label, "constraint": "recall >= 0.9"}
    clf = ensemble(candidates=["linear", ("bayes", GaussianNB())], **arguments).fit(X, NAMES)
    assert clf.rule_.classes == clf.classes_.tolist()
    assert clf.rule_.pos_label == pos_label
    np.testing.assert_array_equal(clf.predict(X), clf.rule_(probabilities=clf.predict_proba(X)))
    given = clf.predict(X)
    assert recall_score(NAMES, given, pos_label=pos_label) > 0.85
    np.testing.assert_array_equal(given == clf.classes_[1], clf.decision_function(X) > 0)
    assert clf.score(X, NAMES) == pytest.approx(f1_score(NAMES, given, pos_label=pos_label))
    place = clf.classes_.tolist().index(pos_label)
    assert np.corrcoef(clf.predict_proba(X)[:, place], pos_label == NAMES)[0, 1] > 0.5


def test_a_candidate_that_cannot_meet_the_constraint_is_left_out(tmp_path):
    """Also from what is saved. Where no candidate can, the error is that of the rule."""
    own = [("bayes", GaussianNB()), ("nothing", DummyClassifier())]
    asked = {"constraint": "precision >= 0.7", "pos_label": np.int64(1)}
    clf = ensemble(candidates=own, **asked).fit(X, Y)
    assert clf.weights_ == {"bayes": 1.0}
    assert "precision" in clf.left_out_["nothing"]
    clf.save(tmp_path / "ensemble")
    again = AlignedEnsemble.load(tmp_path / "ensemble")
    np.testing.assert_array_equal(again.predict(X), clf.predict(X))
    with pytest.raises(ValueError, match="precision"):
        ensemble(candidates=own[1:], **asked).fit(X, Y)


def test_a_promise_and_groups(tmp_path):
    """Groups are those of the rows that count."""
    weight, groups = (np.arange(len(Y)) % 5 > 0).astype(float), np.arange(len(Y)) % 3
    asked = {"constraint": "recall >= 0.5, gap(recall) <= 0.7", "confidence": 0.8}
    clf = ensemble("f1", candidates=[("bayes", GaussianNB())], pos_label=1, **asked)
    clf.fit(X, Y, weight, constraint_groups=groups)
    assert clf.rule_.promised is True
    rows = weight > 0
    alone = ensemble("f1", candidates=[("bayes", GaussianNB())], pos_label=1, **asked)
    alone.fit(X[rows], Y[rows], constraint_groups=groups[rows])
    assert clf.rule_.slacks == pytest.approx(alone.rule_.slacks)
    clf.save(tmp_path / "ensemble")
    assert AlignedEnsemble.load(tmp_path / "ensemble").rule_.promised is True


def test_a_cost_is_negated():
    clf = ensemble(metrics.ExpectedCost([[0, 1], [5, 0]])).fit(X, Y)
    wrong = clf.predict(X) != Y
    assert clf.score(X, Y) == pytest.approx(-np.mean(wrong * np.where(Y == 1, 5, 1)))
    results = clf.cv_results_
    assert results["rule_score_low"][0] < results["rule_score"][0] < results["rule_score_high"][0]
    assert max(results["rule_score_high"]) <= 0


# What it takes.


class Remembering(GaussianNB):
    """A classifier that keeps what it was trained on."""

    def fit(self, X, y, sample_weight=None, groups=None):
        self.rows_, self.weight_, self.groups_ = np.asarray(X)[:, 0], sample_weight, groups
        return super().fit(X, y, sample_weight)


def test_weights_and_groups_reach_their_places():
    groups, weight = np.arange(len(Y)) // 4, np.arange(len(Y)) % 3
    own = [("bayes", Remembering()), ("scaled", make_pipeline(StandardScaler(), Remembering()))]
    clf = ensemble(candidates=own, cv=3, decision="argmax").fit(X, Y, weight, groups=groups)
    for models in clf.models_.values():
        for model in models:
            model = model[-1] if hasattr(model, "steps") else model
            assert (model.weight_ > 0).all()
            trained = np.isin(groups, model.groups_) & (weight > 0)
            assert trained.sum() == len(model.rows_) < (weight > 0).sum()
            relative = weight[trained] / weight[weight > 0].mean()
            np.testing.assert_allclose(model.weight_, relative)


def test_a_candidate_without_weights_is_warned_of():
    search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}, cv=2)  # takes **params alone
    weight = 1.0 + (np.arange(len(Y)) % 2)
    clf = ensemble(candidates=[("searched", search), "linear"], cv=2)
    with pytest.warns(TrainingWarning, match="fit takes no sample_weight: the weights are for"):
        clf.fit(X, Y, weight)
    clf.fit(X, Y, weight > 1)  # rows of weight 0 are left out for all


def test_only_the_ratios_of_weights_count():
    weight = np.random.default_rng(0).uniform(0.25, 1, len(Y))
    ours = {"candidates": ["boosting", "linear"], "cv": 2}
    plain = ensemble(**ours).fit(X, Y, weight)
    # A power of 2 is exact in floating point, as long as no weight is too small for all its digits.
    for scale in (2.0**1023, 2.0**-1000):
        scaled = ensemble(**ours).fit(X, Y, weight * scale)
        np.testing.assert_array_equal(scaled.predict_proba(X), plain.predict_proba(X))
        np.testing.assert_array_equal(scaled.predict(X), plain.predict(X))
        assert scaled.cv_results_["rule_score"] == plain.cv_results_["rule_score"]
        assert scaled.score(X, Y, weight * scale) == plain.score(X, Y, weight)


def test_a_class_without_weight_stays():
    rows, labels = imbalanced(400, classes=3)
    weight = (labels != 1).astype(float)
    own = {"candidates": [*OWN.items(), ("logistic", LogisticRegression())], "decision": "argmax"}
    clf = ensemble("f1_macro", cv=2, **own).fit(rows, labels, weight)
    np.testing.assert_array_equal(clf.classes_, [0, 1, 2])
    values = clf.predict_proba(rows)
    assert (values[:, 1] < 1e-5).all()
    np.testing.assert_allclose(values.sum(1), 1)
    alone = ensemble("f1_macro", cv=2, **own).fit(rows[weight > 0], labels[weight > 0])
    np.testing.assert_array_equal(clf.predict(rows), alone.predict(rows))


@pytest.mark.parametrize("mask", [False, True])
def test_splits_are_of_the_rows_as_they_came(mask):
    weight, first = np.arange(len(Y)) % 2, np.arange(400) < 300
    split = [(first, ~first)] if mask else [(np.arange(300), np.arange(300, 400))]
    own = [("bayes", Remembering())]
    clf = ensemble(candidates=own, cv=split, decision="argmax").fit(X, Y, weight)
    np.testing.assert_array_equal(clf.models_["bayes"][0].rows_, X[1:300:2, 0])
    assert clf.rule_.rows == 50


def test_a_classifier_that_is_given_sees_numbers_and_codes():
    colour = pd.Categorical(np.where(np.arange(len(Y)) % 2, "red", "blue"))
    frame = pd.DataFrame(X, columns=list("abcd")).assign(constant=1, colour=colour)
    own = ["linear", ("mine", Remembering())]
    with pytest.warns(DataWarning, match=r"'constant' \(constant\)"):
        clf = ensemble(candidates=own, cv=2, decision="argmax").fit(frame, NAMES)
    (first, _) = clf.models_["mine"]
    assert first.n_features_in_ == 6
    assert first.classes_.tolist() == [0, 1]
    assert clf.feature_names_in_.tolist() == [*"abcd", "constant", "colour"]
    other = clf.predict_proba(frame[["constant", "colour", "d", "c", "b", "a"]])
    np.testing.assert_array_equal(other, clf.predict_proba(frame))


class Broken(ClassifierMixin, BaseEstimator):
    """A classifier with these probabilities, or an error."""

    def __init__(self, given=None):
        self.given = given

    def fit(self, X, y):
        if self.given is None:
            raise RuntimeError("no licence")
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.tile(self.given, (len(X), 1))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([np.nan, 1.0], "sum to 1 in each row"),
        ([0.7, 0.7], "sum to 1 in each row"),
        ([-0.5, 1.5], "sum to 1 in each row"),
    ],
)
def test_a_candidate_without_probabilities_is_refused(given, text):
    with pytest.raises(ValueError, match=text) as failed:
        ensemble(candidates=[("mine", Broken(given))]).fit(X, Y)
    assert "'mine'" in failed.value.__notes__[0]


def test_a_candidate_with_too_many_columns_is_refused():
    text = "^predict_proba of Broken must give a column for each of the 2 classes .* Got 3 columns"
    with pytest.raises(ValueError, match=text):
        ensemble(candidates=[("mine", Broken([0.2, 0.3, 0.5]))]).fit(X, Y)


def test_a_fit_that_fails_names_the_candidate_and_changes_nothing(blend):
    clf, before = copy.copy(blend), blend.predict_proba(X)
    clf.set_params(candidates=[*OWN.items(), ("mine", Broken())])
    with pytest.raises(RuntimeError, match="no licence") as failed:
        clf.fit(X[:, :2], Y)
    assert "'mine'" in failed.value.__notes__[0]
    assert clf.n_features_in_ == X.shape[1]
    assert np.array_equal(clf.predict_proba(X), before)


def test_a_forest_of_many_rows_is_bounded():
    few, many = (
        build(["forest"], "f1", "aligned", rows, 0, {})["forest"] for rows in (20_000, 20_001)
    )
    assert few.max_samples is None
    assert many.max_samples == 20_000
    assert many.bootstrap


@pytest.mark.parametrize(("rows", "expected"), [(100, 5), (300, 3), (400, 1)])
def test_fewer_folds_for_more_rows(monkeypatch, rows, expected):
    monkeypatch.setattr(trials, "FOLDS", {200: 5, 300: 3})
    clf = ensemble(cv=None, decision="argmax", candidates=["linear"]).fit(X[:rows], Y[:rows])
    assert len(clf.models_["linear"]) == expected
    assert np.isfinite(clf.gain_["low"])


@pytest.mark.parametrize(("number", "known"), [(1, 1), (9, 9), (10, None)])
def test_few_groups_are_counted(number, known):
    """Resamples of one group are all the same, so that their interval is a point."""
    groups = np.where(np.arange(len(Y)) < 200, np.arange(len(Y)) % number, -1)
    cv = [(np.arange(200, 400), np.arange(200))]
    clf = ensemble(cv=cv, candidates=["linear"]).fit(X, Y, groups=groups)
    assert clf.gain_.get("few_groups") == known


def test_weights_reach_a_pipeline_whether_metadata_is_routed_or_not():
    weight = 1.0 + np.arange(len(Y)) % 4
    usual = ensemble(candidates=["linear"], decision="argmax").fit(X, Y, weight)
    with config_context(enable_metadata_routing=True):
        routed = ensemble(candidates=["linear"], decision="argmax").fit(X, Y, weight)
    np.testing.assert_array_equal(routed.predict_proba(X), usual.predict_proba(X))


@pytest.mark.slow  # processes take long to start
def test_several_jobs():
    one, two = (ensemble(n_jobs=jobs).fit(X, Y).predict_proba(X) for jobs in (None, 2))
    np.testing.assert_array_equal(one, two)


# Time, on a clock that goes on only while something is trained.


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


class Slow(GaussianNB):
    """A classifier whose training takes so many seconds for each row."""

    clock = Clock()

    def __init__(self, seconds=0.0):
        super().__init__()
        self.seconds = seconds

    def fit(self, X, y, sample_weight=None):
        self.clock.now += self.seconds * len(X)
        return super().fit(X, y, sample_weight)


@pytest.fixture(autouse=True)
def _clock(request, monkeypatch):
    if "time" in request.node.name:
        monkeypatch.setattr(trials, "time", Slow.clock)
        monkeypatch.setattr(ensemble_module, "time", Slow.clock)


def test_what_the_time_does_not_suffice_for_is_left_out_whole(capsys):
    """The folds of 400 rows leave 266 or 267 to train on; the first of all takes 7.99 s."""
    own = [("first", Slow(0.01)), ("slow", Slow(0.02)), ("quick", Slow(0.001))]
    clf = ensemble(candidates=own, time_limit=20, decision="argmax", verbose=1).fit(X, Y)
    assert list(clf.models_) == ["first", "quick"]
    assert clf.left_out_ == {"slow": "the first of 3 folds took 5.3 s, and 6.7 s were left"}
    said = capsys.readouterr().err
    assert "first: fold 1 of 3 took 2.7 s\n" in said
    assert "slow: left out: the first of 3 folds took 5.3 s" in said
    assert "quick: f1 0." in said


def test_the_first_is_trained_whatever_time_it_takes():
    clf = ensemble(candidates=[("a", Slow(1)), ("b", Slow(1))], time_limit=0.01).fit(X, Y)
    assert clf.weights_ == {"a": 1.0}
    assert clf.left_out_ == {"b": "there was no time to begin, and 0.0 s were left"}


def test_some_of_the_rows_have_all_classes(monkeypatch):
    """A classifier may refuse rows that lack one, where it would have taken all."""
    monkeypatch.setattr(trials, "PROBES", (10, 20))
    seen = []

    class Watched(GaussianNB):
        def fit(self, X, y, sample_weight=None):
            seen.append(np.bincount(y, minlength=3).tolist())
            return super().fit(X, y, sample_weight)

    codes = np.where(np.arange(400) < 4, 1, np.arange(400) % 2 * 2)
    own = ["linear", ("mine", Watched())]
    clf = ensemble(candidates=own, cv=2, time_limit=600, decision="argmax")
    clf.set_params(metric="f1_macro").fit(X, codes)
    assert [sum(counts) // 10 for counts in seen[:2]] == [1, 2]
    assert min(map(min, seen)) > 0


def test_time_that_does_not_depend_on_the_rows_is_told_apart(monkeypatch):
    """By 20 and 80 rows: 3 s, and 0.01 s for each of the 266 in each of three folds."""
    monkeypatch.setattr(trials, "PROBES", (20, 80))

    class Begun(Slow):
        def fit(self, X, y, sample_weight=None):
            self.clock.now += 3
            return super().fit(X, y, sample_weight)

    own = [("first", Slow()), ("slow", Begun(0.01))]
    clf = ensemble(candidates=own, time_limit=20, decision="argmax").fit(X, Y)
    assert clf.left_out_ == {"slow": "its training would take about 17 s, and 13.0 s were left"}


# What it refuses.


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("candidates", ["bosting"], "some of linear, .*, network. Got 'bosting'. Did you mean 'bo"),
        ("candidates", "boosting", "hold names of models, or pairs of a name and a classifier. Go"),
        ("candidates", ["linear", ("linear", GaussianNB())], "have different names. Got .'linear'"),
        ("candidates", [("blend", GaussianNB())], "have names other than 'blend'. Got "),
        ("candidates", [("svm", LinearSVC())], "be classifiers with predict_proba. .*Calibrated"),
        ("cv", 1, "be at least 2 folds. Got 1."),
        ("decision", "best", "be one of argmax, tuned, expected. Got 'best'."),
    ],
)
def test_wrong_arguments(name, value, text):
    with pytest.raises((ValueError, TypeError), match=f"^{name} of AlignedEnsemble must .*{text}"):
        ensemble(**{name: value}).fit(X, Y)


@pytest.mark.parametrize(("name", "value"), [("time_limit", -1), ("n_jobs", "all")])
def test_arguments_of_another_kind(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of AlignedEnsemble must be"):
        ensemble(**{name: value}).fit(X, Y)


def test_a_gap_without_groups():
    text = "^constraint_groups of AlignedEnsemble must name two groups or more for 'gap"
    with pytest.raises(ValueError, match=text):
        ensemble(constraint="gap(recall) <= 0.1").fit(X, Y)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ((X, np.stack([Y, Y], 1)), "y of AlignedEnsemble must hold one label per row. Got several"),
        (
            (X, Y, np.zeros(len(Y))),
            "sample_weight of AlignedEnsemble must be above zero in at least one row. Got zeros.",
        ),
        (
            (np.full((400, 1), np.nan), Y),
            "X of AlignedEnsemble must hold a column to learn from. Got none: {'x0': 'empty'}.",
        ),
    ],
)
def test_wrong_rows(rows, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        ensemble("f1_macro").fit(*rows)


def test_intervals_are_of_weighted_rows():
    """Rows with a large weight are labelled wrongly: the interval is about a small accuracy."""
    y, weight = np.arange(200) % 2, np.where(np.arange(200) < 50, 9.0, 1.0)
    labels = np.where(np.arange(200) < 50, 1 - y, y)
    rows = OutOfFoldScores(np.zeros((200, 2)), "predict_proba", y, weight, y, np.arange(200))
    judge = Judge(metrics.resolve("accuracy"), rows, 2, None, 0, trained=10**9)
    ((value, low, high),) = judge.compare(labels)
    assert value == pytest.approx(150 / 600)
    assert low < value < high < 0.5
