"""`AlignedClassifier` on multilabel problems, Y of shape (N, L)."""

import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from torch import nn

import evalign
from evalign import AlignedClassifier, AlignedDecisionCV
from evalign.estimators.candidates import RECIPES
from evalign.estimators.rows import LabelledRows
from evalign.metrics import resolve
from evalign.tables.split import strata
from evalign.training import TrainingWarning
from evalign.training.classifier_rows import hold_out
from evalign.training.members import Members, MembersAsRows
from evalign.training.network import Size
from evalign.training.recipes import ingredients
from tests import tolerances
from tests.estimator.models import noted_losses, quick
from tests.estimator.test_export import exported

LABELS = ["often", "seldom", "rare"]


def tagged(rows=500, seed=0, noise=0.8):
    """Make rows with three labels, which 50%, 15% and 8% of them have."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4))
    margin = (X[:, :3] + noise * rng.normal(size=(rows, 3))) / np.hypot(1, noise)
    return X, (margin > [0.0, 1.05, 1.42]).astype(int)


X, Y = tagged()
NEW = tagged(4000, seed=1)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Make the default network small: what these tests look at does not depend on its size."""
    monkeypatch.setattr("evalign.training.fitting.size_of_members", lambda *given: Size(2, 8))


@pytest.fixture(scope="module")
def fitted():
    return quick().fit(X, pd.DataFrame(Y, columns=LABELS))


def same(a, b):
    """Tell whether two classifiers are the same function."""
    return np.array_equal(a.predict_proba(X), b.predict_proba(X)) and np.array_equal(
        a.predict(X), b.predict(X)
    )


# Learning


def test_it_is_better_than_labels_from_one_half_on():
    known, (rows, truth) = tagged(noise=1.5), tagged(4000, seed=1, noise=1.5)
    clf = quick().fit(*known)
    found = f1_score(truth, clf.predict(rows), average="macro")
    assert clf.score(rows, truth) == pytest.approx(found)
    half = f1_score(truth, clf.predict_proba(rows) > 0.5, average="macro")
    theirs = MultiOutputClassifier(LogisticRegression()).fit(*known).predict(rows)
    # The standard error of a score is 0.01. Other seeds of the rows gave gaps of 0.02 to 0.1, and
    # of 0.08 to 0.18.
    assert found > half + 0.02
    assert found > f1_score(truth, theirs, average="macro") + 0.05


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_learns(recipe):
    clf = quick("f1_micro", recipe=recipe).fit(X, Y)
    # 0.38 by giving all labels to all rows.
    assert clf.score(*NEW) > 0.5
    assert clf.rule_.task == "multilabel"


def test_cross_entropy_is_the_binary_one():
    logits = torch.randn(30, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target, weight = torch.from_numpy(Y[:30]).double(), torch.arange(1.0, 31).double()
    loss, _ = ingredients("cross_entropy", resolve("f1_macro"), "multilabel", None, 3)
    each = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    expected = (each * weight[:, None]).sum() / (3 * weight.sum())
    torch.testing.assert_close(loss(logits, target, sample_weight=weight), expected)


def raw_logits(clf, rows):
    with torch.no_grad():
        return clf.network_(clf._scaler(torch.from_numpy(rows)).float()).double()


def test_the_offsets_that_training_took_out_are_added_back(monkeypatch):
    losses = noted_losses(monkeypatch)
    clf = quick().fit(X, Y)
    expected = (raw_logits(clf, X) + losses[0].offsets).sigmoid().numpy()
    np.testing.assert_allclose(clf.predict_proba(X), expected, atol=1e-6)


@pytest.mark.parametrize("decision", ["argmax", "tuned", "expected"])
def test_predict_is_the_rule_of_the_probabilities(decision):
    clf = quick(decision=decision).fit(X, Y)
    given, eta = clf.predict(X), clf.predict_proba(X)
    assert given.dtype == np.int64
    assert given.shape == eta.shape == (len(X), 3)
    thresholds = clf.rule_.gain[:, 0, 0]  # diag(t, 1 − t)
    assert np.array_equal(given, eta > thresholds)
    assert np.array_equal(given, clf.decision_function(X) > 0)
    assert clf.rule_.decision == decision
    if decision == "argmax":
        assert np.array_equal(given, raw_logits(clf, X).numpy() > 0)
    else:
        assert np.array_equal(given, clf.rule_(raw_logits(clf, X).numpy()))


def test_the_best_epoch_is_by_the_metric_of_the_rows_held_out():
    held_out = tagged(300, seed=2)
    clf = quick().fit(X, Y, validation_data=held_out)
    best = max(record["validation_metric"] for record in clf.history_)
    found = f1_score(held_out[1], raw_logits(clf, held_out[0]) > 0, average="macro")
    assert best == pytest.approx(found)
    assert clf.rule_.rows == 300


# Networks


@pytest.mark.parametrize("edges", [[torch.linspace(-2, 2, 5), None, None, None], [None] * 4])
def test_members_are_averaged_as_probabilities_of_labels(edges):
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        net = Members(edges, 3, members=4, width=8, dropout=0.0, multilabel=True)
    net.offsets.copy_(torch.tensor([0.0, -2.0, 3.0]))
    x = torch.from_numpy(X).float()
    mean = (net(x).double() + net.offsets).sigmoid().mean(1)
    found = (net.eval()(x).double() + net.offsets).sigmoid()
    torch.testing.assert_close(found, mean, rtol=0, atol=tolerances.FLOAT32_SUM)


def test_members_count_as_rows():
    logits = torch.randn(20, 4, 3, generator=torch.Generator().manual_seed(0))
    target, weight = torch.from_numpy(Y[:20]).float(), torch.arange(1.0, 21)
    loss, _ = ingredients("cross_entropy", resolve("f1_macro"), "multilabel", None, 3)
    each = torch.stack([loss(logits[:, k], target, sample_weight=weight) for k in range(4)])
    found = MembersAsRows(loss)(logits, target, sample_weight=weight)
    torch.testing.assert_close(found, each.mean(), rtol=0, atol=tolerances.FLOAT32_SUM)


def test_the_default_network(tmp_path):
    clf = quick(network="auto", epochs=4).fit(X, Y)
    assert clf.score(*NEW) > 0.45
    clf.save(tmp_path / "model")
    assert same(clf, AlignedClassifier.load(tmp_path / "model"))
    assert np.isfinite(clf.predict_proba(X)).all()


# The rows held out


def test_every_label_is_on_both_sides():
    rng = np.random.default_rng(0)
    y = (rng.random((400, 6)) < [0.5, 0.2, 0.05, 0.02, 0.97, 0.0]).astype(int)
    y[:, 5] = 0
    y[[3, 77], 5] = 1  # two rows alone
    for seed in range(10):
        rows = LabelledRows(np.arange(400)[:, None], y, np.ones(400))
        kept, held_out = (rows.take(part) for part in hold_out(rows, 0.2, seed))
        assert abs(len(held_out.y) - 80) <= 1
        for part in (kept, held_out):
            assert part.y.any(0).all()
            assert (1 - part.y).any(0).all()
        share = held_out.y.mean(0) - y.mean(0)
        assert abs(share).max() < 0.1
        assert sorted(np.concatenate([kept.X, held_out.X]).ravel()) == list(range(400))


def test_strata_are_of_what_is_rarest_in_a_row():
    y = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 1], [1, 0, 0], [0, 0, 1]])
    # Few rows have the second label or lack the third; three have the first.
    assert strata(y).tolist() == [2, 1, 0, 0, 3, 0]
    assert strata(np.array([7, 3, 7])).tolist() == [1, 0, 1]


def test_groups_are_held_out_together():
    groups = np.arange(len(Y)) // 5
    rows = LabelledRows(groups[:, None], Y, np.ones(len(Y)), groups)
    kept, held_out = (rows.take(part) for part in hold_out(rows, 0.2, 0))
    assert not {*kept.X.ravel()} & {*held_out.X.ravel()}
    assert abs(len(held_out.y) / len(Y) - 0.2) < 0.05


@pytest.mark.parametrize("recipe", ["aligned", "cross_entropy"])
def test_labels_that_all_rows_have_or_none(recipe):
    y = np.column_stack([Y, np.zeros(len(Y), int), np.ones(len(Y), int)])
    clf = quick(recipe=recipe).fit(X, y)
    given = clf.predict(NEW[0])
    assert not given[:, 3].any()
    assert given[:, 4].all()
    truth = np.column_stack([NEW[1], np.zeros((4000, 1)), np.ones((4000, 1))]).astype(int)
    expected = f1_score(truth, given, average="macro", zero_division=0)
    assert clf.score(NEW[0], truth) == pytest.approx(expected)


# Weights


def test_weights_count():
    weight = np.where(Y[:, 2] == 1, 5.0, 1.0)
    clf, plain = (quick(epochs=2).fit(X, Y, each) for each in (weight, None))
    found = evalign.score("f1_macro", y_true=Y, y_pred=clf.predict(X), sample_weight=weight)
    assert clf.score(X, Y, weight) == pytest.approx(found)
    assert clf.predict_proba(X)[:, 2].mean() > 1.5 * plain.predict_proba(X)[:, 2].mean()


# What Y may be


FORMS = {
    "bools": lambda y: y.astype(bool),
    "list": lambda y: y.tolist(),
    "sparse": sparse.csr_array,
    "pandas": lambda y: pd.DataFrame(y, columns=LABELS).astype({"rare": bool}),
    "nullable": lambda y: pd.DataFrame(y, columns=LABELS).astype("Int64"),
    "polars": lambda y: pl.DataFrame(y, schema=LABELS),
    "objects": lambda y: y.astype(object),
}


@pytest.fixture(scope="module")
def plain():
    return quick(epochs=1).fit(X, Y)


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_labels(form, plain):
    clf = quick(epochs=1).fit(X, FORMS[form](Y))
    assert same(clf, plain)
    assert clf.classes_.tolist() == [0, 1, 2]
    named = form in ("pandas", "nullable", "polars")
    assert clf.rule_.classes == (LABELS if named else [0, 1, 2])
    assert clf.score(X, FORMS[form](Y)) == clf.score(X, Y)


def test_labels_of_a_frame_stay_in_their_order(fitted):
    frame = pd.DataFrame(Y, columns=LABELS)
    assert fitted.score(X, frame) == fitted.score(X, Y)
    turned = frame[LABELS[::-1]]
    text = "have the columns of fit in their order, ['often', 'seldom', 'rare']. Got ['rare', 'sel"
    with pytest.raises(ValueError, match=re.escape(f"y of AlignedClassifier.score must {text}")):
        fitted.score(X, turned)
    text = re.escape(f"y of AlignedClassifier's validation_data must {text}")
    with pytest.raises(ValueError, match=text):
        quick().fit(X, frame, validation_data=(X, turned))


def test_one_class_a_row_is_told_of():
    with pytest.warns(TrainingWarning, match=r"exactly one 1.* Pass y.argmax\(1\) if these are"):
        quick(epochs=1).fit(X, np.eye(3)[Y.sum(1) % 3])
    labels = np.eye(3, dtype=int)[np.arange(len(X)) % 3]
    with pytest.warns(TrainingWarning, match="y of AlignedDecisionCV holds exactly one 1"):
        AlignedDecisionCV(MultiOutputClassifier(LogisticRegression()), "f1_macro").fit(X, labels)


def gap(value):
    y = Y.astype(float)
    y[5, 1] = value
    return y


WRONG = [
    ({"y": gap(np.nan)}, "Got nan. Map others to them"),
    ({"y": gap(2)}, "Got 2.0. Map others to them"),
    ({"y": 2 * Y - 1}, "Got -1. Map others to them, as in (y > 0).astype(int), and"),
    ({"y": np.where(Y, "yes", "no")}, "hold 0 and 1 only, as it has a column per label. Got "),
    ({"y": pd.DataFrame(gap(np.nan)).astype("Int64")}, "Got <NA>. Map others to them"),
    ({"y": [{"b"}, {"a"}] * 250}, "Got several labels in a row. MultiLabelBinarizer()"),
    ({"y": Y[:9]}, "Found input variables with inconsistent numbers of samples"),
    ({"validation_data": (X, Y[:, 0])}, "must have shape (N, L), with a column per label. Got"),
]


@pytest.mark.parametrize(("call", "text"), WRONG, ids=lambda value: str(value)[:20])
def test_wrong_data(call, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        quick().fit(**({"X": X, "y": Y} | call))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pos_label": 1}, "pos_label of AlignedClassifier must be None if multilabel."),
        ({"metric": "f1"}, "classes of f1 must be two. Got 3 labels. Use f1_macro, f1_micro or"),
        ({"metric": "accuracy"}, "confusion of Accuracy must come from mutually exclusive classes"),
    ],
    ids=str,
)
def test_wrong_arguments(arguments, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        quick(**arguments).fit(X, Y)


def test_a_network_that_has_diverged_is_not_believed(fitted):
    broken = pickle.loads(pickle.dumps(fitted))
    with torch.no_grad():
        broken.network_[-1].bias.fill_(torch.nan)
    with pytest.raises(ValueError, match="must give finite logits"):
        broken.predict(X)


# Round trips


def test_saved_and_pickled(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = AlignedClassifier.load(tmp_path / "model", network=fitted.network)
    assert same(fitted, again)
    assert again.rule_.classes == LABELS
    assert again.score(X, Y) == fitted.score(X, Y)
    assert same(fitted, pickle.loads(pickle.dumps(fitted)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.slow  # the graph of one label a row is exported in every run
def test_onnx_agrees(tmp_path):
    rows = X.astype(np.float32)
    clf = quick(network=nn.Linear, epochs=2).fit(rows, pd.DataFrame(Y, columns=LABELS))
    run = exported(clf, rows, tmp_path / "model.onnx")
    for some in (rows, rows[:1]):
        label, probability = run(some)
        assert np.array_equal(label, clf.predict(some))
        np.testing.assert_allclose(probability, clf.predict_proba(some), atol=1e-6)
    bad = np.where(np.arange(4) == 1, np.float32(np.inf), rows[:2])
    label, probability = run(bad)
    assert (label == -1).all()
    assert np.isnan(probability).all()


# scikit-learn


def test_scikit_learn_takes_it():
    assert quick().__sklearn_tags__().classifier_tags.multi_label
    assert cross_val_score(quick(epochs=3), X, Y, cv=2, scoring="f1_macro").min() > 0.3
    clf = AlignedDecisionCV(quick(epochs=3), "f1_macro", cv=2, random_state=0).fit(X, Y)
    assert clf.predict(X).shape == clf.predict_proba(X).shape == Y.shape
