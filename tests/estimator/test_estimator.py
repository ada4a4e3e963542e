"""The promises of `AlignedClassifier` beyond scikit-learn's checks."""

import copy
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from evalign import AlignedDecisionCV, AlignedEnsemble, metrics
from evalign.estimators import AlignedClassifier
from evalign.estimators.candidates import RECIPES
from evalign.estimators.targets import warn_of_positive
from evalign.metrics import resolve
from evalign.store.files import StoreError
from evalign.training import TrainingWarning, fitting, recipes
from tests import tolerances
from tests.estimator.models import SmallNetwork, noted_losses, quick
from tests.ground.made import imbalanced
from tests.unit.training.runs import averaged, steps_noted

X, Y = imbalanced(600, classes=3)
X2, Y2 = imbalanced(600)
pytestmark = pytest.mark.filterwarnings(
    "ignore:All validation rows were predicted:evalign.training.TrainingWarning",
)


@pytest.fixture(scope="module")
def fitted():
    return quick().fit(X, Y)


@pytest.fixture(scope="module")
def fitted2():
    return quick("f1").fit(X2, Y2)


def same(a, b):
    """Tell whether two classifiers are the same function."""
    rows = X if a.n_features_in_ == X.shape[1] else X2
    return np.array_equal(a.predict_proba(rows), b.predict_proba(rows)) and np.array_equal(
        a.predict(rows), b.predict(rows)
    )


# Learning


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_learns_three_classes(recipe):
    clf = quick(recipe=recipe, epochs=12).fit(X, Y)
    assert clf.score(*imbalanced(2000, classes=3, seed=1)) > 0.7


@pytest.mark.parametrize("decision", ["argmax", "tuned", "expected"])
def test_decision_function_agrees_with_predict(decision):
    clf = quick(decision=decision).fit(X, Y)
    assert np.array_equal(clf.decision_function(X).argmax(1), clf.predict(X))
    clf = quick("f1", decision=decision).fit(X2, Y2)
    assert clf.decision_function(X2).shape == (len(X2),)
    assert np.array_equal((clf.decision_function(X2) > 0).astype(int), clf.predict(X2))
    assert clf.rule_.decision == decision


def raw_logits(clf, rows):
    with torch.no_grad():
        return clf.network_(clf._scaler(torch.from_numpy(rows)).float()).double()


@pytest.mark.parametrize(("metric", "data"), [("f1", (X2, Y2)), ("f1_macro", (X, Y))])
def test_argmax_is_of_the_logits_as_trained(metric, data):
    clf = quick(metric, decision="argmax").fit(*data)
    labels = clf.predict(data[0])
    assert np.array_equal(labels, raw_logits(clf, data[0]).argmax(1))
    # The recipe gives rare classes the rows that the metric wants; the most probable class differs.
    assert not np.array_equal(labels, clf.predict_proba(data[0]).argmax(1))
    assert clf.rule_.source == "argmax"


@pytest.mark.parametrize("recipe", ["aligned", "cross_entropy"])
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_calibrated_on_average(recipe, classes):
    new, truth = imbalanced(4000, classes=classes, seed=9)
    share, found = np.bincount(truth) / len(truth), []
    for seed in range(3):
        clf = quick("balanced_accuracy", recipe=recipe, batch_size=256, random_state=seed)
        found.append(clf.fit(*imbalanced(4000, classes=classes, seed=seed)).predict_proba(new))
    # The shares themselves are known to ±0.006 (1σ); without its offsets, which are the whole log
    # prior here, the recipe would be off by 0.02 and more.
    np.testing.assert_allclose(np.mean(found, (0, 1)), share, atol=0.015)


@pytest.mark.parametrize("metric", ["f1", "balanced_accuracy", "accuracy"])
def test_the_offsets_that_training_took_out_are_added_back(metric, monkeypatch):
    losses = noted_losses(monkeypatch)
    clf = quick(metric).fit(X2, Y2)
    offsets = losses[0].offsets
    assert bool((offsets[1] - offsets[0]).abs() > 0.1) == (metric != "accuracy")
    expected = (raw_logits(clf, X2) + offsets).softmax(1).numpy()
    np.testing.assert_allclose(clf.predict_proba(X2), expected, atol=1e-6)


def test_weights_are_averaged_over_the_steps(monkeypatch):
    """The average of the weights after every step, computed by hand, its warm-up included."""
    monkeypatch.setitem(recipes.OURS, "ema_decay", 0.4)
    with steps_noted() as steps:
        clf = quick(epochs=1).fit(X, Y)
    assert len(steps) > 7  # from the seventh on the decay is 0.4
    for mine, expected in zip(clf.network_.parameters(), averaged(steps, 0.4), strict=True):
        torch.testing.assert_close(mine.detach(), expected, rtol=0, atol=tolerances.FLOAT32_SUM)


def test_a_row_does_not_depend_on_the_rows_beside_it(fitted):
    whole = fitted.predict_proba(X)
    alone = np.concatenate([fitted.predict_proba(X[i : i + 1]) for i in range(0, 600, 60)])
    assert np.array_equal(whole[::60], alone)


# Scores


@pytest.mark.parametrize("weight", [None, 1.0 + (Y == 2)])
def test_score_is_the_metric_of_the_predictions(fitted, weight):
    expected = f1_score(Y, fitted.predict(X), average="macro", sample_weight=weight)
    assert fitted.score(X, Y, weight) == pytest.approx(expected)


def test_score_with_classes_missing_or_unknown(fitted):
    few = Y < 2
    expected = f1_score(Y[few], fitted.predict(X[few]), average="macro")
    assert fitted.score(X[few], Y[few]) == pytest.approx(expected)
    other = np.where(Y == 2, -7, Y)
    expected = f1_score(other, fitted.predict(X), average="macro")
    assert fitted.score(X, other) == pytest.approx(expected)


def test_the_score_of_a_cost_is_its_negative():
    cost = [[0, 1], [5, 0]]
    clf = quick(metrics.ExpectedCost(cost)).fit(X2, Y2)
    paid = np.asarray(cost)[Y2, clf.predict(X2)].mean()
    assert clf.score(X2, Y2) == pytest.approx(-paid)
    assert paid < 5 * Y2.mean()  # better than to give up the positives
    assert same(clf, quick("expected_cost[[0, 1], [5, 0]]").fit(X2, Y2))


# Data


def test_frames_and_labels_as_strings(fitted):
    names = np.array(["usual", "unusual", "rare"])  # not in the order of 0, 1, 2
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    clf = quick().fit(table, pd.Series(names[Y]), sample_weight=pd.Series(np.ones(600)))
    assert clf.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert clf.classes_.tolist() == ["rare", "unusual", "usual"]
    assert set(clf.predict(table)) <= set(names)
    assert clf.score(table, names[Y]) > 0.7
    turned = table[["b", "a", "c", "d"]]
    assert np.array_equal(clf.predict_proba(turned), clf.predict_proba(table))


def test_sparse(fitted):
    clf = quick().fit(sparse.csr_array(X), Y)
    assert np.array_equal(clf.predict_proba(sparse.coo_matrix(X)), fitted.predict_proba(X))


def test_columns_far_from_zero_keep_their_spread():
    # As float32, seconds since 1970 are multiples of 128.
    clf = quick("f1").fit(1.7e9 + X2, Y2)
    assert clf.score(1.7e9 + X2, Y2) > 0.8
    assert all(p.dtype == torch.float32 for p in clf.network_.parameters())


def test_a_value_far_out_stays_finite():
    """It counts as the largest of the training rows."""
    clf = quick().fit(X, Y)
    far, farther = X[:20].copy(), X[:20].copy()
    far[:, 0] = X[:, 0].max()
    farther[:, 0] = 3e38
    probabilities = clf.predict_proba(farther)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert np.array_equal(probabilities, clf.predict_proba(far))


def test_validation_data_takes_the_place_of_held_out_rows():
    given = (X[400:], Y[400:])
    clf = quick().fit(X[:400], Y[:400], validation_data=given)
    with torch.no_grad():
        logits = clf.network_(clf._scaler(torch.from_numpy(X[400:])).float())
    best = max(record["validation_metric"] for record in clf.history_)
    assert best == pytest.approx(f1_score(Y[400:], logits.argmax(1), average="macro"))
    ones = quick().fit(X[:400], Y[:400], validation_data=(*given, np.ones(200)))
    assert same(clf, ones)
    weighted = quick().fit(X[:400], Y[:400], validation_data=(*given, 1.0 + Y[400:]))
    assert weighted.history_[0]["validation_metric"] != clf.history_[0]["validation_metric"]


def test_rows_of_weight_0_are_left_out():
    broken = np.arange(600) % 3 == 0
    rows, labels = np.where(broken[:, None], 1e6, X2), np.where(broken, 1 - Y2, Y2)
    clf = quick("f1").fit(rows, labels, sample_weight=~broken * 1.0, groups=np.arange(600))
    assert clf.score(X2, Y2) > 0.8
    clf = quick().fit(X, Y, sample_weight=Y != 1)  # a class without weight stays
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.predict_proba(X)[:, 1].mean() < 0.05


# A power of 2 is exact in floating point, as long as no weight is too small for all its digits.
@pytest.mark.parametrize("scale", [2.0**1023, 2.0**-1000])
def test_only_the_ratios_of_weights_count(scale):
    weight = np.random.default_rng(0).uniform(0.25, 1, 600)
    plain = quick("f1", epochs=2).fit(X2, Y2, weight / weight.mean())
    scaled = quick("f1", epochs=2).fit(X2, Y2, weight * scale)
    assert plain.score(X2, Y2, weight * scale) == pytest.approx(plain.score(X2, Y2, weight))
    np.testing.assert_allclose(scaled.predict_proba(X2), plain.predict_proba(X2), atol=1e-5)


@pytest.mark.parametrize("recipe", RECIPES)
def test_weights_count(recipe):
    plain = quick("accuracy", recipe=recipe).fit(X2, Y2).predict(X2).mean()
    weighted = quick("accuracy", recipe=recipe).fit(X2, Y2, sample_weight=np.where(Y2, 20, 1))
    assert weighted.predict(X2).mean() > plain


def test_too_few_rows_to_hold_out_is_said():
    with pytest.warns(TrainingWarning, match="6 rows are too few to hold out 0.2 of every class"):
        clf = quick().fit(X[:6], [0, 0, 1, 1, 2, 2])
    assert clf.predict(X).shape == (600,)


# Reproducible, copied, saved


def legacy_state():
    return np.random.get_state()[1]  # noqa: NPY002


def test_random_state_makes_it_reproducible_and_leaves_the_global_state_alone(fitted):
    before = torch.get_rng_state(), legacy_state().copy()
    again = quick().fit(X, Y)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], legacy_state())
    assert same(fitted, again)
    assert not same(fitted, quick(random_state=1).fit(X, Y))
    source = quick(random_state=np.random.RandomState(3), epochs=2)
    assert same(clone(source).fit(X, Y), clone(source).fit(X, Y))


def test_clone_and_arguments(fitted):
    copied = clone(fitted)
    assert not hasattr(copied, "network_")
    assert copied.get_params().keys() == fitted.get_params().keys()
    assert copied.set_params(epochs=3, metric="accuracy").epochs == 3
    assert copied.fit(X, Y).score(X, Y) == pytest.approx((copied.predict(X) == Y).mean())


@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_copies_are_the_same_function(fitted, copied):
    again = copied(fitted)
    assert same(fitted, again)
    assert again.history_ == fitted.history_


@pytest.mark.parametrize(
    "names", [np.array(["a", "bb", "c"], object), np.array([3, 5, 9]), np.array([0.0, 1.0, 4.0])]
)
def test_save_and_load(names, tmp_path):
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    clf = quick(learning_rate=np.float64(0.02), epochs=np.int64(2))
    clf.fit(table, names[Y]).save(tmp_path / "model")
    again = AlignedClassifier.load(tmp_path / "model", network=SmallNetwork())
    assert np.array_equal(again.predict_proba(table), clf.predict_proba(table))
    assert np.array_equal(again.predict(table), clf.predict(table))
    assert again.classes_.dtype == clf.classes_.dtype
    assert again.history_ == clf.history_
    assert again.feature_names_in_.tolist() == ["a", "b", "c", "d"]


def test_load_says_what_is_missing(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    text = r"network of AlignedClassifier.load must be given: functions are not saved. Got none."
    with pytest.raises(ValueError, match=text):
        AlignedClassifier.load(tmp_path / "model")
    with pytest.raises(StoreError, match="belong to another network"):
        AlignedClassifier.load(tmp_path / "model", network=nn.Linear)
    with pytest.raises(FileNotFoundError, match="nothing does not exist"):
        AlignedClassifier.load(tmp_path / "nothing")
    own = quick(lambda c: c.tp.sum() / c.total, epochs=1, on_epoch=print).fit(X, Y)
    own.save(tmp_path / "own")
    with pytest.raises(ValueError, match=r"metric of AlignedClassifier.load must be given"):
        AlignedClassifier.load(tmp_path / "own", network=SmallNetwork())
    again = AlignedClassifier.load(tmp_path / "own", network=SmallNetwork(), metric=own.metric)
    assert again.score(X, Y) == own.score(X, Y)


# Going on, watching


def test_on_epoch_gets_every_record():
    records = []
    clf = quick(epochs=3, on_epoch=records.append).fit(X, Y)
    assert records == clf.history_
    assert {"epoch", "temperature", "loss", "validation_loss"} <= set(records[0])


def test_verbose_tells_of_epochs_on_standard_error(capsys):
    quick(epochs=2, verbose=1).fit(X, Y)
    out, err = capsys.readouterr()
    pattern = r"aligned: epoch 1/2  temperature 0.2  loss \d.\d+  f1_macro 0.\d{4}\*.*"
    assert re.fullmatch(pattern, err.splitlines()[0])
    quick(epochs=1, verbose=1, recipe="cross_entropy").fit(X, Y)
    assert "temperature" not in capsys.readouterr().err
    quick(epochs=1).fit(X, Y)
    assert (out, *capsys.readouterr()) == ("", "", "")


def test_a_fit_that_was_stopped_goes_on_from_its_checkpoint(tmp_path):
    class Stop(Exception):
        pass

    def stop(record):
        if record["epoch"] == 3:
            raise Stop

    whole = quick(epochs=6).fit(X, Y)
    with pytest.raises(Stop):
        quick(epochs=6, on_epoch=stop).fit(X, Y, checkpoint=tmp_path / "training")
    seen = []
    again = quick(epochs=6, on_epoch=seen.append)
    again.fit(X, Y, checkpoint=tmp_path / "training")
    assert [record["epoch"] for record in seen] == [3, 4, 5, 6]  # 3 was not whole
    assert same(whole, again)
    done = quick(epochs=6, on_epoch=seen.clear).fit(X, Y, checkpoint=tmp_path / "training")
    assert same(whole, done)  # nothing was left to do


MODELS = [quick(), AlignedEnsemble(candidates=["linear"]), AlignedDecisionCV(GaussianNB())]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_groups_with_gaps_or_of_two_types_are_refused(model):
    owner = f"groups of {type(model).__name__} must"
    for wrong in (None, 3):
        names = np.array([f"site {row // 5}" for row in range(600)], dtype=object)
        names[50:55] = wrong
        with pytest.raises(ValueError, match=f"{owner} be integers or strings. Got object"):
            model.fit(X, Y, groups=names)


BAD_LABELS = {
    "None": (["a", None, "b", None], "hold a label in every row. Got gaps in 2 rows. Remove"),
    "nullable": (pd.array([0, 1, None, 1], dtype="Int64"), "Got gaps in 1 row. Remove rows"),
    "one class": (["a"] * 4, r"hold two classes or more. Got one class, \['a'\]"),
    "mixed": (np.array(["a", 1, "a", 1], dtype=object), "hold labels of one type. Got int, str"),
    "dates": (np.arange(4).astype("datetime64[D]"), "Got dates or durations. Make strings of"),
    "ragged": ([["a", "b"], ["a"]] * 2, "Got several labels in a row. MultiLabelBinarizer"),
}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("case", BAD_LABELS)
def test_bad_labels(model, case):
    labels, text = BAD_LABELS[case]
    with pytest.raises(ValueError, match=text):
        model.fit(X[:4], labels)


def test_groups_that_take_a_class_with_them():
    with pytest.warns(TrainingWarning, match="All rows of the classes .* are held out at once"):
        clf = quick().fit(X, Y, groups=Y)
    assert clf.predict_proba(X).shape == (600, 3)


def test_rows_of_weight_0_are_not_seen():
    weight = np.where(np.arange(len(Y)) % 2, 1.0, 0.0)
    broken = np.where(weight[:, None] > 0, X, 1e9)
    clf = quick(network=nn.Linear, epochs=20).fit(broken, Y, weight, groups=np.arange(len(Y)))
    assert clf.rule_.rows <= 0.25 * weight.sum()
    assert clf.score(X, Y) > 0.5


@pytest.mark.filterwarnings("ignore::evalign.training.TrainingWarning")
@pytest.mark.parametrize("y", [[0, 0, 0, 1], [0, 1], [0, 0, 1, 1, 2, 2]])
def test_a_handful_of_rows(y):
    clf = quick(network=nn.Linear, epochs=3).fit(X[: len(y)], y)
    assert np.isfinite(clf.predict_proba(X)).all()


def test_a_fit_that_is_stopped_changes_nothing():
    def stop(record):
        raise KeyboardInterrupt

    fitted = quick(epochs=2).fit(X, Y)
    before, width = fitted.predict_proba(X), X.shape[1]
    with pytest.raises(KeyboardInterrupt):
        fitted.set_params(on_epoch=stop).fit(X[:, :2], Y)
    assert np.array_equal(fitted.predict_proba(X), before)
    assert fitted.n_features_in_ == width


@pytest.mark.parametrize(("kind", "as_numpy"), [("Int64", np.int64), ("boolean", np.bool_)])
def test_nullable_labels_keep_their_type(kind, as_numpy):
    fitted = quick(epochs=1).fit(X, pd.Series(Y > 0, dtype=kind))
    assert fitted.classes_.dtype == fitted.predict(X[:2]).dtype == as_numpy


@pytest.mark.parametrize(
    "y", [np.where(Y == 1, np.nan, Y), pd.Series(Y, dtype="Int64").mask(Y == 1), [None, *Y[1:]]]
)
def test_score_refuses_rows_without_a_label(fitted, y):
    """A gap would be a class of its own, which no row is predicted as."""
    with pytest.raises(ValueError, match=r"y of AlignedClassifier.score must hold a label in"):
        fitted.score(X, y)


def test_score_names_labels_that_fit_never_saw(fitted2):
    y = np.where(np.arange(len(Y2)) < 3, 7, Y2)
    text = "classes of f1 must be two. Got 3 classes. Use f1_macro"
    with pytest.raises(ValueError, match=text):
        fitted2.score(X2, y)


def test_a_checkpoint_wants_a_fixed_seed(tmp_path):
    text = "random_state of AlignedClassifier must be an integer with a checkpoint"
    with pytest.raises(ValueError, match=text):
        quick(random_state=None).fit(X, Y, checkpoint=tmp_path / "training")
    quick(epochs=1).fit(X, Y, checkpoint=tmp_path / "training")
    with pytest.raises(StoreError, match=r"seed was \d+ and is now \d+"):
        quick(epochs=1, random_state=1).fit(X, Y, checkpoint=tmp_path / "training")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"X": X[::-1]}, "of the rows was"),
        ({"y": (Y + 1) % 3}, "of the rows was"),
        ({"sample_weight": 1.0 + Y}, "of the rows was"),
        ({"metric": "matthews_corrcoef"}, "metric was"),
        ({"recipe": "aligned"}, "loss was"),
    ],
    ids=["rows", "labels", "weights", "metric", "recipe"],
)
def test_a_checkpoint_of_another_problem_is_not_gone_on_from(change, text, tmp_path):
    quick(epochs=1, recipe="cross_entropy").fit(X, Y, checkpoint=tmp_path / "training")
    rows = {"X": X, "y": Y, "sample_weight": None}
    arguments = {"recipe": "cross_entropy"} | {k: v for k, v in change.items() if k not in rows}
    rows |= {k: v for k, v in change.items() if k in rows}
    with pytest.raises(StoreError, match=text):
        quick(epochs=1, **arguments).fit(**rows, checkpoint=tmp_path / "training")


def test_east_cools_and_ends_by_its_own_rule():
    clf = quick(recipe="east", epochs=300, patience=4).fit(X2, Y2)
    heat = [record["temperature"] for record in clf.history_]
    assert heat[0] == 0.2
    assert heat[-1] == pytest.approx(0.2 * 0.9 ** (len(set(heat)) - 1))
    lowest = dict.fromkeys(heat, math.inf)
    for record in clf.history_:
        kept = min(lowest[record["temperature"]], record["validation_loss"])
        lowest[record["temperature"]] = kept
    *earlier, third, second, last = lowest.values()
    assert min(earlier) <= min(third, second, last)  # three temperatures in vain
    assert len(heat) < 300
    assert {record["learning_rate"] for record in clf.history_} == {0.03}


# With the rest of scikit-learn


def test_pipeline_and_cross_validation():
    pipeline = make_pipeline(StandardScaler(), quick("f1", epochs=5))
    assert cross_val_score(pipeline, X2, Y2, cv=3).min() > 0.7
    assert cross_val_score(pipeline, X2, Y2, cv=3, scoring="f1").min() > 0.7
    fitted = pipeline.fit(X2, Y2, alignedclassifier__sample_weight=np.ones(600))
    assert fitted.score(X2, Y2) > 0.7


# Errors

WRONG = [
    ({"metric": "f1_makro"}, "metric of AlignedClassifier must be a name of metrics.names(). Got"),
    ({"metric": "f1"}, "classes of f1 must be two. Got 3 classes. Use f1_macro, f1_micro or f1_w"),
    ({"recipe": "best"}, "The 'recipe' parameter of AlignedClassifier must be a str among {"),
    ({"decision": "best"}, "decision of AlignedClassifier must be one of argmax, tuned, exp"),
    (
        {"network": 3},
        "'network' parameter of AlignedClassifier must be a str among",
    ),
    (
        {"network": nn.Linear(4, 3)},
        "network of AlignedClassifier must be a function. Got a module",
    ),
    ({"network": lambda n, c: nn.Linear(n, 1)}, "give logits of shape (2, 3) for 2 rows and 3"),
    ({"validation_fraction": 1.0}, "a float in the range (0.0, 1.0). Got"),
    ({"validation_fraction": None}, "a float in the range (0.0, 1.0). Got"),
    ({"epochs": 1.5}, "must be an int in the range [1, inf) or None. Got 1.5"),
    ({"batch_size": "64"}, "'batch_size' parameter of AlignedClassifier must be an int in the"),
    ({"learning_rate": 0}, "must be a float in the range (0.0, inf) or None. Got 0 instead."),
    ({"patience": 0}, "'patience' parameter of AlignedClassifier must be an int in the"),
    ({"on_epoch": 3}, "'on_epoch' parameter of AlignedClassifier must be a callable or None"),
]


@pytest.mark.parametrize(("arguments", "text"), WRONG, ids=lambda value: str(value)[:30])
def test_wrong_arguments(arguments, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        quick(**arguments).fit(X, Y)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"y": 2 * np.eye(3)[Y]}, "y of AlignedClassifier must hold 0 and 1 only, as it has a col"),
        ({"y": X[:, 0]}, "Unknown label type"),
        (
            {"y": np.ma.masked_array(Y, Y == 1)},
            f"y of AlignedClassifier must be without masked cells. Got {(Y == 1).sum()} of them.",
        ),
        (
            {"X": np.ma.masked_array(X, X > 3)},
            f"X of AlignedClassifier must be without masked cells. Got {(X > 3).sum()} of them. Fi",
        ),
        (
            {"sample_weight": -np.ones(600)},
            "sample_weight of AlignedClassifier must be finite and not negative. Got -1.0. A weigh",
        ),
        (
            {"sample_weight": np.zeros(600)},
            "sample_weight of AlignedClassifier must be above zero in at least one row. Got zeros.",
        ),
        (
            {"sample_weight": np.ones(3)},
            "sample_weight of AlignedClassifier must have shape (600,). Got (3,).",
        ),
        (
            {"groups": np.ones(3, int)},
            "groups of AlignedClassifier must be one for each row, (600,). Got (3,).",
        ),
        (
            {"groups": np.ones(600, int)},
            "groups of holdout_split must name at least 2 groups. Got 1.",
        ),
        (
            {"validation_data": (X,)},
            "validation_data of AlignedClassifier must be (X, y), (X, y, s",
        ),
        ({"validation_data": (X, Y + 1)}, "validation_data of AlignedClassifier must hold classes"),
        ({"validation_data": (X[:, :2], Y)}, "X has 2 features"),
        ({"validation_data": (X, np.eye(3)[Y])}, "y should be a 1d array, got an array of shape"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value[:30],
)
def test_wrong_data(call, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        quick().fit(**({"X": X, "y": Y} | call))


# The positive class


JA = np.where(Y2 == 1, "ja", "nein")  # the rare class is the first in order


def test_the_positive_class_can_be_named(tmp_path):
    hard = X2 + 2 * np.random.default_rng(1).normal(size=X2.shape)
    clf, last = (quick("f1", pos_label=label).fit(hard, JA) for label in ("ja", "nein"))
    assert clf.classes_.tolist() == ["ja", "nein"]
    for model, label in ((clf, "ja"), (last, "nein")):
        predicted = model.predict(hard)
        assert model.score(hard, JA) == pytest.approx(f1_score(JA, predicted, pos_label=label))
    assert (clf.predict(hard) == "ja").sum() > (last.predict(hard) == "ja").sum()
    # F1 of the frequent class is near 1 whatever one does.
    assert clf.history_[-1]["validation_metric"] < 0.8 < last.history_[-1]["validation_metric"]
    clf.save(tmp_path / "model")
    again = AlignedClassifier.load(tmp_path / "model", network=SmallNetwork())
    assert again.pos_label == "ja"
    assert same(clf, again)
    assert again.score(X2, JA) == clf.score(X2, JA)
    assert again.rule_.metric == clf.rule_.metric


def test_the_last_class_named_is_the_default():
    with pytest.warns(TrainingWarning, match="f1 takes 'nein', the last of the two classes, as"):
        clf = quick("f1").fit(X2, JA)
    named = quick("f1", pos_label="nein").fit(X2, JA)  # without a warning
    assert same(clf, named)
    assert clf.score(X2, JA) == named.score(X2, JA)


@pytest.mark.parametrize(
    ("metric", "y"),
    [
        ("f1_macro", JA),
        ("matthews_corrcoef", JA),
        ("f1", 1 - Y2),  # a class called 1 is the positive one
        ("f1", (1 - Y2).astype(str)),
        ("f1", np.where(Y2 == 1, "yes", "no")),  # the rare one
    ],
)
def test_no_warning_where_it_does_not_matter(metric, y):
    warn_of_positive(resolve(metric), *np.unique(y, return_inverse=True))


@pytest.mark.parametrize("label", ["no", 1, ["ja"]])
def test_a_positive_class_that_is_none(label):
    with pytest.raises(ValueError, match="pos_label of AlignedClassifier must be None, or one of"):
        quick("f1", pos_label=label).fit(X2, JA)
    with pytest.raises(ValueError, match="pos_label of AlignedClassifier must be None, or one of"):
        quick(pos_label=1).fit(X, Y)


def test_an_epoch_in_words():
    scores = {"validation_loss": 1.0, "validation_metric": 0.5, "best": False}
    record = {"epoch": 3, "temperature": None, **scores}
    line = fitting.epoch_line("east", "f1", 9, record)
    assert line == "east: epoch 3/9  loss 1.0000  f1 0.5000"
    line = fitting.epoch_line("east", "f1", 9, record | {"temperature": 0.2, "best": True})
    assert line == "east: epoch 3/9  temperature 0.2  loss 1.0000  f1 0.5000*"
