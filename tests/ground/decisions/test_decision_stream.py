"""A rule from a stream is that of all rows, or of a uniform sample of them."""

import numpy as np
import pytest
from scipy.special import softmax

import evalign
from evalign import DecisionFitter, fit_decision
from tests.ground.decisions.problems import one_hot, problem


def stream(fitter, logits, y, weight=None, parts=7):
    for k in range(parts):
        part = slice(k, None, parts)
        fitter.update(logits[part], y[part], sample_weight=None if weight is None else weight[part])
    return fitter


def batches(size, *arrays):
    """Yield parts of the arrays with so many rows each."""
    for start in range(0, len(arrays[0]), size):
        yield tuple(array[start : start + size] for array in arrays)


def same(one, other):
    """Whether two rules are equal, bit by bit."""
    return one.state_dict() == other.state_dict()


@pytest.mark.parametrize("class_dim", [0, 1, -1])
def test_the_rule_reads_classes_where_the_batches_have_them(class_dim):
    logits, y = problem(3, 600, ratio=3.0)
    how = {"metric": "f1_macro", "class_dim": class_dim}
    given = np.moveaxis(logits, 1, class_dim)
    fitter = DecisionFitter(**how)
    fitter.update(given, y)
    few = given[:, :3] if class_dim == 0 else given[:3]  # as many rows as classes
    assert np.array_equal(fitter.compute()(few), fit_decision(given, y, **how)(few))


@pytest.mark.parametrize("decision", ["tuned", "expected", "argmax"])
@pytest.mark.parametrize("classes", [2, 3, 0])
def test_the_rule_of_all_rows(classes, decision):
    """Of two classes, more, and many labels, with weights and labels to ignore."""
    logits, y = problem(classes or 2, 3000, ratio=3.0)
    weight = np.random.default_rng(0).random(3000)
    if classes == 0:
        logits, y, weight = (
            (logits[:, 1] - logits[:, 0]).reshape(-1, 3),
            y.reshape(-1, 3),
            weight[:1000],
        )
    y[::7] = -100
    y.reshape(-1)[1::5] = -100
    how = {"metric": "f1_macro", "decision": decision}
    fitter = DecisionFitter(**how)
    for part, labels, weights in batches(300, logits, y, weight):
        fitter.update(part, labels, sample_weight=weights)
    assert same(fitter.compute(), fit_decision(logits, y, sample_weight=weight, **how))


@pytest.mark.parametrize("classes", [2, 3])
def test_a_confidence_is_that_of_the_rows(classes):
    generator = np.random.default_rng(0)
    y = generator.integers(classes, size=600)
    logits = generator.standard_normal((600, classes)) + 2 * one_hot(y, classes)
    how = {"metric": "precision_macro", "constraint": "recall[1] >= 0.8", "confidence": 0.9}
    fitter = DecisionFitter(**how)
    for part in batches(100, logits, y):
        fitter.update(*part)
    found, expected = fitter.compute(), fit_decision(logits, y, **how)
    assert found.promised
    assert found.confidence == 0.9
    assert np.array_equal(found(logits), expected(logits))


@pytest.mark.parametrize("classes", [2, 4, 0])
def test_a_sample_is_nearly_as_good(classes):
    """Within 0.01 in the score of new rows, from a tenth of the rows."""
    (logits, y), (fresh, truth) = (
        problem(classes or 2, n, seed, ratio=5.0) for seed, n in enumerate((40_000, 20_000))
    )
    if classes == 0:
        logits, y, fresh, truth = (x.reshape(-1, 2) for x in (logits[:, 1], y, fresh[:, 1], truth))
    fitter = stream(DecisionFitter("f1_macro", max_rows=len(y) // 10), logits, y)
    rule, expected = fitter.compute(), fit_decision(logits, y, metric="f1_macro")
    assert rule.rows == len(y) // 10
    found = [one(fresh) for one in (rule, expected)]
    scores = [evalign.score("f1_macro", y_true=truth, y_pred=labels) for labels in found]
    assert scores[0] == pytest.approx(scores[1], abs=0.01)


@pytest.mark.parametrize("size", [1, 64, 900])
def test_a_sample_is_uniform_and_the_same_however_rows_are_batched(size):
    logits, y = problem(4, 900, 1, ratio=3.0)
    y[::2] = -100  # which take no room
    fitter = DecisionFitter("f1_macro", max_rows=80, stream=3)
    place = np.empty_like(logits[:size])
    for part, labels in batches(size, logits, y):
        place[: len(part)] = part  # as a loop that writes every batch to one place
        fitter.update(place[: len(part)], labels)
    keys = np.random.Philox(key=np.array([3, 0], dtype=np.uint64)).random_raw(900)
    counted = np.flatnonzero(y != -100)
    kept = np.sort(counted[keys[counted].argsort()[:80]])
    assert same(fitter.compute(), fit_decision(logits[kept], y[kept], metric="f1_macro"))


def test_images_with_ignored_pixels_and_probabilities():
    logits, y = problem(3, 9000, ratio=2.0)
    images, labels = np.moveaxis(logits.reshape(9, 10, 100, 3), -1, 1), y.reshape(9, 10, 100).copy()
    labels[:, 0] = 255
    how = {"metric": "jaccard_macro", "ignore_index": 255}
    fitter = DecisionFitter(**how)
    for k in range(3):
        part = slice(3 * k, 3 * k + 3)
        fitter.update(y=labels[part], probabilities=softmax(images[part], 1))
    rule, expected = fitter.compute(), fit_decision(images, labels, **how)
    assert rule.rows == expected.rows == 8100
    assert (rule(images) == expected(images)).mean() > 0.999


def test_reset_forgets_all_rows():
    logits, y = problem(3, 300)
    fitter = stream(DecisionFitter("f1_macro", decision="expected"), logits, y)
    first = fitter.compute()
    assert np.array_equal(fitter.compute().gain, first.gain)  # and compute does not
    fitter.reset()
    with pytest.raises(ValueError, match=r"rows of DecisionFitter must hold at least one.*update"):
        fitter.compute()
    two, labels = problem(2, 300)
    assert stream(fitter, two, labels).compute().task == "binary"


def test_wrong_input_is_told():
    logits, y = problem(3, 30)
    fitter = DecisionFitter("f1_macro")
    with pytest.raises(ValueError, match="y of DecisionFitter must hold labels for decision tuned"):
        fitter.update(logits)
    with pytest.raises(ValueError, match=r"y of DecisionFitter must have shape \(30,\)"):
        fitter.update(logits, y[:7])
    fitter.update(logits, y)
    with pytest.raises(ValueError, match=r"have 3 columns, as before. Got 2"):
        fitter.update(logits[:, :2], y.clip(None, 1))
    assert fitter.compute().rows == 30
    with pytest.raises(ValueError, match="ranks of DecisionFitter must be one of all, own"):
        DecisionFitter("f1", ranks="some")
    with pytest.raises(ValueError, match="max_rows of DecisionFitter must be at least 1"):
        DecisionFitter("f1", max_rows=0)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["logits", "probabilities", "y", "sample_weight"])
def test_wrong_values_are_refused_and_leave_no_trace(classes, name):
    logits, y = problem(classes, 30)
    given = {"y": y.copy(), "sample_weight": np.ones(30)}
    given |= (
        {"probabilities": softmax(logits, 1)} if name == "probabilities" else {"logits": logits}
    )
    given[name].reshape(30, -1)[4:7, 0] = {"logits": np.nan, "y": 7}.get(name, -1)
    fitter = DecisionFitter("f1_macro")
    with pytest.raises(ValueError, match=f"^{name} of DecisionFitter must"):
        fitter.update(**given)
    fitter.update(*problem(classes, 30))
    assert fitter.compute().rows == 30


@pytest.mark.parametrize("classes", [2, 3])
def test_an_empty_batch_adds_nothing(classes):
    logits, y = problem(classes, 30)
    fitter = DecisionFitter("f1_macro", decision="expected")
    fitter.update(logits, y)
    fitter.update(logits, np.full_like(y, -100))
    for none in (logits[:0], logits[:0].astype(np.float32)):
        fitter.update(none, y[:0])
        fitter.update(probabilities=none, y=[])
    assert fitter.compute().rows == 30
    with pytest.raises(ValueError, match=r"one of the two. Got neither"):
        fitter.update(y=y[:0])


@pytest.mark.parametrize("classes", [2, 3])
def test_without_labels_probabilities_decide(classes):
    logits, y = problem(classes, 3000)
    how = {"metric": "f1_macro", "decision": "expected"}
    fitter = DecisionFitter(**how)
    some = [*[None] * 5, y[2500:]]  # the labels of a part must not make class 0 of all others
    for (part,), known in zip(batches(500, logits), some, strict=True):
        fitter.update(part, known)
    assert same(fitter.compute(), fit_decision(logits, **how))
