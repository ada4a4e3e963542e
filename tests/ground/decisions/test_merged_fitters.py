"""Fitters of parts of the data, made anywhere, become one; the order of merging does not matter."""

import pickle
import re
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalign import DecisionFitter, fit_decision, metrics
from tests.ground.decisions.problems import one_hot, problem

LOGITS, Y = problem(3, 240, ratio=3.0)
WEIGHT = np.random.default_rng(0).random(240)
FORMS = {
    "two classes": (LOGITS[:, :2], np.minimum(Y, 1)),
    "classes": (LOGITS, Y),
    "labels": (LOGITS, one_hot(Y, 3).astype(bool)),
}


def fitted(stream, rows, *, form="classes", **arguments):
    """A fitter with some of the rows, in two batches."""
    logits, y = FORMS[form]
    task = "multilabel" if form == "labels" else None
    fitter = DecisionFitter("f1_macro", stream=stream, task=task, **arguments)
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        fitter.update(logits[part], y[part], sample_weight=WEIGHT[part])
    return fitter


def merged(fitters, order, pairs):
    """Merge fitters, each new one into the last of those before, or into the first."""
    heap = [fitters[k] for k in order]
    for last in pairs:
        taken = heap.pop()
        heap[-1 if last else 0].merge(taken)
    return heap[0]


def state(fitter):
    return fitter.compute().state_dict()


@pytest.mark.parametrize("form", FORMS)
def test_the_rule_of_parts_is_that_of_all_rows(form):
    logits, y = FORMS[form]
    parts = np.array_split(np.arange(240), 3)
    whole = reduce(
        DecisionFitter.merge, [fitted(k, rows, form=form) for k, rows in enumerate(parts)]
    )
    task = "multilabel" if form == "labels" else None
    rule = fit_decision(logits, y, metric="f1_macro", sample_weight=WEIGHT, task=task)
    assert state(whole) == rule.state_dict()


@settings(deadline=None, max_examples=25)
@given(
    owners=st.lists(st.integers(0, 3), min_size=240, max_size=240),
    order=st.permutations(range(4)),
    pairs=st.lists(st.booleans(), min_size=3, max_size=3),
    most=st.sampled_from([20, 100, 240]),
)
def test_neither_the_order_nor_the_tree_of_merges_matters(owners, order, pairs, most):
    """Any rows in any part: also none, and fewer or more than are kept."""
    parts = [np.flatnonzero(np.array(owners) == k) for k in range(4)]

    def fitters():
        how = {"decision": "expected", "max_rows": most}
        return [fitted(k, rows, **how) for k, rows in enumerate(parts)]

    one = merged(fitters(), order, pairs)
    other = reduce(DecisionFitter.merge, fitters())
    assert state(one) == state(other)
    assert one.compute().rows == min(most, 240)
    if most == 240:
        rows = np.concatenate(parts)
        how = {"metric": "f1_macro", "decision": "expected", "sample_weight": WEIGHT[rows]}
        assert state(one) == fit_decision(LOGITS[rows], Y[rows], **how).state_dict()


def test_beyond_max_rows_the_smallest_keys_of_all_parts_are_kept():
    parts = np.array_split(np.arange(240), 3)
    whole = reduce(
        DecisionFitter.merge,
        [fitted(k, rows, decision="expected", max_rows=50) for k, rows in enumerate(parts)],
    )
    keys = np.concatenate(
        [
            np.random.Philox(key=np.array([k, 0], dtype=np.uint64)).random_raw(len(rows))
            for k, rows in enumerate(parts)
        ]
    )
    kept = np.sort(keys.argsort()[:50])
    how = {"metric": "f1_macro", "decision": "expected", "sample_weight": WEIGHT[kept]}
    assert state(whole) == fit_decision(LOGITS[kept], Y[kept], **how).state_dict()


def test_a_sample_of_parts_is_uniform():
    """Of 40 merges that keep a tenth, each part has its share, to five standard errors."""
    shares = []
    for seed in range(40):
        parts = np.array_split(np.arange(240), [40, 90])
        fitters = [
            fitted(3 * seed + k, rows, decision="expected", max_rows=24)
            for k, rows in enumerate(parts)
        ]
        whole = reduce(DecisionFitter.merge, fitters)
        whole._drop_surplus(24)
        kept = [sum(len(part.keys) for part in held) for held in whole._parts.values()]
        assert sum(kept) == 24
        shares.append(kept)
    expected = 40 * 24 * np.array([40, 50, 150]) / 240
    assert (np.abs(np.sum(shares, 0) - expected) < 5 * np.sqrt(expected)).all()


def test_a_fitter_goes_on_after_pickling():
    first, second = np.array_split(np.arange(240), 2)
    fitter = fitted(0, first, max_rows=60)
    again = pickle.loads(pickle.dumps(fitter))
    for each in (fitter, again):
        each.update(LOGITS[second], Y[second], sample_weight=WEIGHT[second])
    assert state(fitter) == state(again)
    other = pickle.loads(pickle.dumps(fitted(1, second, max_rows=60)))
    assert state(fitter.merge(other)) == state(again.merge(other))


def test_merging_is_in_place_and_leaves_the_other_as_it_is():
    first, second = np.array_split(np.arange(240), 2)
    one, other = fitted(0, first), fitted(1, second)
    before = state(other)
    assert one.merge(other) is one
    one.update(LOGITS[:7], Y[:7])
    assert one.compute().rows == 247
    assert state(other) == before
    one.reset()
    assert one.merge(other).compute().rows == 120  # also the merged rows were forgotten


def test_a_part_may_be_empty():
    one, none = fitted(0, np.arange(240)), DecisionFitter("f1_macro", stream=1)
    expected = state(one)
    assert state(none.merge(one)) == expected
    assert state(one.merge(DecisionFitter("f1_macro", stream=2))) == expected


@pytest.mark.parametrize("held", [True, False])
def test_equal_streams_are_refused(held):
    """Their keys repeat, so that their samples would not be independent."""
    one = fitted(5, np.arange(120))
    other = fitted(5, np.arange(120, 240)) if held else DecisionFitter("f1_macro", stream=5)
    before = state(one)
    text = (
        "stream of DecisionFitter must differ between fitters that are merged. Got 5 in both. Rows "
        "of one stream have the same random keys. Give each part a number of its own: "
        "DecisionFitter(..., stream=k)."
    )
    for wrong in (other, one):
        with pytest.raises(ValueError, match=re.escape(text)):
            one.merge(wrong)
    third = fitted(6, np.arange(3)).merge(fitted(7, np.arange(3)))
    one.merge(third)
    with pytest.raises(ValueError, match="Got 6 in both"):
        one.merge(third)
    assert state(fitted(5, np.arange(120))) == before


OTHERS = {
    "metric": "f1_micro",
    "decision": "expected",
    "task": "multiclass",
    "constraint": "recall[0] >= 0.1",
    "classes": ["a", "b", "c"],
    "offsets": [0.0, 1.0, 2.0],
    "ignore_index": 255,
    "class_dim": -1,
    "max_rows": 1000,
}


@pytest.mark.parametrize("name", OTHERS)
def test_settings_that_disagree_are_named(name):
    one = fitted(0, np.arange(120))
    before = state(one)
    other = DecisionFitter(**({"metric": "f1_macro", "stream": 1} | {name: OTHERS[name]}))
    other.update(LOGITS, Y)
    text = rf"^other of DecisionFitter must be made with {name}=.*, as this fitter\. Got "
    with pytest.raises(ValueError, match=text):
        one.merge(other)
    assert state(one) == before


def test_rows_that_disagree_leave_no_trace():
    one = fitted(0, np.arange(120), decision="expected")
    before = state(one)
    two = DecisionFitter("f1_macro", decision="expected", stream=1)
    two.update(LOGITS[:, :2])
    with pytest.raises(ValueError, match=r"have rows of 3 classes, as this fitter\. Got 2 classes"):
        one.merge(two)
    labels = DecisionFitter("f1_macro", decision="expected", stream=1)
    labels.update(LOGITS, one_hot(Y, 3)[:, [1, 2, 0]] + np.eye(3)[np.zeros(240, int)] > 0)
    with pytest.raises(ValueError, match=r"have rows of 3 classes, as this fitter\. Got 3 labels"):
        one.merge(labels)
    with pytest.raises(
        TypeError, match=r"other of DecisionFitter must be a DecisionFitter\. Got l"
    ):
        one.merge([two])
    assert state(one) == before


def test_the_same_settings_in_other_words():
    """Classes and offsets may come in any container, and a metric by its name or as an object."""
    how = {"classes": ["a", "b", "c"], "offsets": [0.0, 1.0, 2.0]}
    one = fitted(0, np.arange(120), **how)
    arrays = {name: np.array(values) for name, values in how.items()}
    other = DecisionFitter(metrics.FBeta(average="macro"), stream=1, **arrays)
    other.update(LOGITS[120:], Y[120:])
    assert one.merge(other).compute().rows == 240


def test_copies_of_a_function_are_one_metric():
    """One that comes back from another process is another object."""

    def made():
        def share_of_hits(c):
            return c.tp.sum() / c.total

        return share_of_hits

    one, other = (
        DecisionFitter(made(), stream=k, decision="expected", task="multiclass") for k in range(2)
    )
    one.update(LOGITS[:120])
    other.update(LOGITS[120:])
    assert one.merge(other).compute().rows == 240


@pytest.mark.parametrize("stream", [-1, 1.5, "a", 2**64])
def test_a_stream_is_a_number(stream):
    with pytest.raises(ValueError, match="stream of DecisionFitter must be an integer from 0 to"):
        DecisionFitter("f1", stream=stream)
