"""A rule for scores of every form: probabilities, arrays, images and tokens."""

import json
import math
import re
import warnings

import numpy as np
import pandas
import polars
import pytest
from scipy.special import log_softmax, softmax
from sklearn.metrics import f1_score, make_scorer

from evalign.decisions import DecisionFitter, DecisionRule, fit_decision
from evalign.decisions.inputs import FLOOR
from tests.ground.decisions.problems import one_hot, problem, value
from tests.tolerances import SAME


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("decision", ["argmax", "tuned", "expected"])
def test_probabilities_give_the_rule_of_their_logits(classes, decision):
    (logits, y), (fresh, _) = problem(classes, 200), problem(classes, 300, 1)
    p, fresh_p = softmax(logits, 1), softmax(fresh, 1)
    how = {"metric": "f1_macro", "decision": decision}
    rule, same = fit_decision(logits, y, **how), fit_decision(y=y, probabilities=p, **how)
    assert same.source == rule.source
    assert np.array_equal(same(fresh), rule(fresh))
    assert np.array_equal(same(probabilities=fresh_p), rule(fresh))
    np.testing.assert_allclose(same.scores(probabilities=fresh_p), rule.scores(fresh))
    if classes == 2:
        for one in (fresh_p[:, 1], fresh_p[:, 1:]):
            assert np.array_equal(rule(probabilities=one), rule(fresh))


@pytest.mark.parametrize("decision", ["argmax", "tuned", "expected"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_forest_may_be_sure(classes, decision):
    """Zeros and ones are no reason to complain, and lie beyond all other probabilities."""
    logits, y = problem(classes, 300)
    p = (softmax(logits, 1) * 5).round() / 5
    p = p / p.sum(1, keepdims=True)
    assert (p == 0).any()
    assert (p == 1).any()
    rule = fit_decision(y=y, probabilities=p, metric="f1_macro", decision=decision)
    assert np.isfinite(rule.gain).all()
    assert np.isfinite(rule.scores(probabilities=p)).all()
    sure = np.eye(classes)
    assert np.array_equal(rule(probabilities=sure), np.arange(classes))
    floored = np.where(sure == 1, sure, FLOOR)
    np.testing.assert_allclose(rule.scores(probabilities=sure), rule.scores(np.log(floored)))


def test_arrays_and_lists_give_arrays():
    logits, y = problem(3, 60)
    rule = fit_decision(logits, y, metric="f1_macro")
    array = logits
    array.setflags(write=False)  # as a frame's may be
    for rows, labels in ((array, y), (array.tolist(), y.tolist())):
        same = fit_decision(rows, labels, metric="f1_macro")
        assert np.array_equal(same.gain, rule.gain)
        found = same(rows)
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.int64
        assert found.tolist() == rule(logits).tolist()
        assert isinstance(same.scores(rows), np.ndarray)
        assert isinstance(same.probabilities(rows), np.ndarray)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_images_and_tokens_are_their_rows(classes, last):
    """Ignored positions have no part in the rule, and a weight may be of an image."""
    logits, y = problem(max(classes, 2), 240)
    if classes == 1:
        logits = logits[:, 1:] - logits[:, :1]
    images, labels = logits.reshape(4, 6, 10, -1), y.reshape(4, 6, 10).copy()
    labels[:, :2, ::3] = 255
    kept = (labels != 255).flatten()
    weight = np.array([1.0, 2.0, 0.5, 1.0])
    how = {"metric": "f1_macro", "decision": "tuned"}
    expected = fit_decision(logits[kept], y[kept], sample_weight=weight.repeat(60)[kept], **how)
    given = images if last else np.moveaxis(images, -1, 1)
    rule = fit_decision(
        given,
        labels,
        ignore_index=255,
        sample_weight=weight,
        class_dim=-1 if last else 1,
        **how,
    )
    assert np.array_equal(rule.gain, expected.gain)
    assert rule.score == expected.score
    rule = DecisionRule.from_state_dict(json.loads(json.dumps(rule.state_dict())))
    assert np.array_equal(rule(given), expected(logits).reshape(4, 6, 10))
    scores = rule.scores(given)
    assert np.array_equal(scores.argmax(-1 if last else 1), rule(given))
    same = fit_decision(
        given,
        np.expand_dims(labels, -1 if last else 1),
        ignore_index=255,
        sample_weight=weight.repeat(60).reshape(4, 6, 10),
        class_dim=-1 if last else 1,
        **how,
    )
    assert np.array_equal(same.gain, rule.gain)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize("padding", [np.nan, -np.inf, 0])
def test_ignored_scores_may_hold_anything(task, padding):
    logits, y = problem(3, 60)
    y = one_hot(y, 3).astype(int) if task == "multilabel" else y
    y[::5] = -100
    how = {"metric": "f1_macro", "task": task}
    for name, scores in (("logits", logits), ("probabilities", softmax(logits, 1))):
        padded, fitter = scores.copy(), DecisionFitter(**how)
        padded[::5] = padding
        expected = fit_decision(y=y, **how, **{name: scores})
        assert np.array_equal(fit_decision(y=y, **how, **{name: padded}).gain, expected.gain)
        fitter.update(y=y, **{name: padded})
        assert np.array_equal(fitter.compute().gain, expected.gain)


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_columns_of_a_frame_go_by_their_names(frame):
    logits, y = problem(3, 60)
    p, names = softmax(logits, 1), ["a", "b", "c"]
    labels = np.array(names)[y]
    ordered = frame({name: p[:, k] for k, name in enumerate(names)})
    shuffled = frame({name: p[:, names.index(name)] for name in "cab"})
    rule = fit_decision(y=labels, probabilities=shuffled, metric="f1_macro")
    same = fit_decision(y=labels, probabilities=p, metric="f1_macro")
    assert (rule.classes, same.classes) == (list("cab"), names)
    np.testing.assert_array_equal(rule.gain, same.gain[np.ix_([2, 0, 1], [2, 0, 1])])
    for given in (ordered, shuffled, p[:, [2, 0, 1]]):
        assert rule(probabilities=given).tolist() == same(probabilities=p).tolist()


def test_what_a_rule_remembers():
    logits, y = problem(3, 60)
    names = np.array(["a", "b", "c"])
    rule = fit_decision(logits, y, metric="f1_macro", classes=names)
    copy = DecisionRule.from_state_dict(json.loads(json.dumps(rule.state_dict())))
    for one in (rule, copy):
        assert one.classes == ["a", "b", "c"]
        assert one.task == "multiclass"
        assert np.allclose(one.class_prior, np.bincount(y) / 60)
        assert 0 < one.score == rule.score < 1
    expected = fit_decision(logits, metric="f1_macro", decision="expected")
    assert expected.score is None
    np.testing.assert_allclose(expected.class_prior, softmax(logits, 1).mean(0))
    assert fit_decision(logits[:, :2], metric="f1", decision="expected").task == "binary"


@pytest.mark.parametrize(
    "names",
    [[None, "a"], [("a",), "b"], [math.nan, 1.0], [1, 1.0], np.array(["2020", "2021"], "M8")],
)
def test_names_that_would_not_come_back(names):
    logits, y = problem(2, 60)
    with pytest.raises(ValueError, match=r"classes, each once: strings or finite numbers\. Got"):
        fit_decision(logits, y, metric="f1", classes=names)


def test_a_state_may_leave_its_metric_to_the_caller():
    state = fit_decision(*problem(3, 60), metric="f1_macro").state_dict() | {"metric": None}
    assert DecisionRule.from_state_dict(state, metric="f1_macro").metric == "f1_macro"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task", "foo"),
        ("decision", "best"),
        ("factor", "1"),
        ("factor", -1.0),
        ("classes", ["a", "a", "b"]),
        ("classes", [0.0, 1.0, math.nan]),
        ("offsets", [0.0, 1.0]),
        ("gain", [[1.0, 0.0]]),
        ("gain", [[[1, 0, 0]] * 3] * 3),
        ("gain", [[math.inf, 0.0, 0.0]] * 3),
    ],
)
def test_a_state_with_a_wrong_field(name, value):
    state = fit_decision(*problem(3, 60), metric="f1_macro").state_dict()
    with pytest.raises(ValueError, match=f"^{name} of DecisionRule must .* Got "):
        DecisionRule.from_state_dict(state | {name: value})


def test_what_is_no_state():
    state = fit_decision(*problem(3, 60), metric="f1_macro").state_dict()
    with pytest.raises(ValueError, match=r"Got a state without \[\], with \['colour'\] besides"):
        DecisionRule.from_state_dict(state | {"colour": 1})
    for name in state:
        part = {field: value for field, value in state.items() if field != name}
        with pytest.raises(ValueError, match=f"Got a state without \\['{name}'\\].* Fit again"):
            DecisionRule.from_state_dict(part)
    with pytest.raises(ValueError, match=r"state of DecisionRule must be a dict\. Got list"):
        DecisionRule.from_state_dict([state])


NOT_PROBABILITIES = r"must not be probabilities\. Got rows .* by name: probabilities=p"


@pytest.mark.parametrize("columns", [2, 3])
def test_rows_of_probabilities_are_no_logits(columns):
    logits, y = problem(columns, 60)
    rule, p = fit_decision(logits, y, metric="f1_macro"), softmax(logits, 1)
    for action in (lambda: rule(p), lambda: fit_decision(p, y, metric="f1_macro")):
        with pytest.raises(ValueError, match=NOT_PROBABILITIES):
            action()
    assert np.array_equal(rule(probabilities=p), rule(logits))


@pytest.mark.parametrize("labels", [1, 2])
def test_single_logits_from_0_to_1_are_warned_of(labels):
    """They are no error: a fresh network's may lie there by chance."""
    logits, y = problem(2, 60)
    z, p = logits[:, 1] - logits[:, 0], softmax(logits, 1)[:, 1]
    if labels == 2:
        z, p, y = (np.stack([x, x], 1) for x in (z, p, y))
    rule = fit_decision(z, y.astype(bool), metric="f1_macro")
    copy = DecisionRule.from_state_dict(json.loads(json.dumps(rule.state_dict())))
    for one in (rule, copy):
        with pytest.warns(UserWarning, match=NOT_PROBABILITIES):
            one(p)
        assert np.array_equal(one(p[:10]), one(p[:10]))  # few rows, which tell nothing
    with pytest.warns(UserWarning, match=NOT_PROBABILITIES) as caught:
        fresh = fit_decision(p, y.astype(bool), metric="f1_macro")
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=NOT_PROBABILITIES):
        fresh(p)


@pytest.mark.parametrize("given", [None, ["common", "rare", "new"]])
def test_labels_that_are_text_come_back(given):
    logits, y = problem(3, 200)
    names = np.array(given or ["a", "b", "c"])
    plain = fit_decision(logits, y, metric="f1_macro", classes=given)
    for text in (names[y], names[y].astype(object), names[y].tolist()):
        rule = fit_decision(logits, text, metric="f1_macro", classes=given)
        copy = DecisionRule.from_state_dict(json.loads(json.dumps(rule.state_dict())))
        for one in (rule, copy):
            assert one.classes == names.tolist()
            assert one(logits).tolist() == names[plain.codes(logits)].tolist()
            assert one(logits[:0]).tolist() == []
    images = fit_decision(
        logits.reshape(2, 10, 10, 3),
        names[y].reshape(2, 10, 10),
        class_dim=-1,
        metric="f1_macro",
        classes=given,
    )
    assert images(logits.reshape(2, 10, 10, 3)).shape == (2, 10, 10)


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_no_rows_have_no_labels(classes):
    logits, y = problem(max(classes, 2), 60)
    logits = logits[:, 1] - logits[:, 0] if classes == 1 else logits
    rule = fit_decision(logits, y, metric="f1_macro")
    assert rule(logits[:0]).shape == rule(probabilities=logits[:0]).shape == (0,)
    assert rule.scores(logits[:0]).shape == (0, max(classes, 2))


def test_a_rule_in_words():
    logits, y = problem(2, 400)
    names = np.array(["no", "yes"])
    rule = fit_decision(logits, names[y], metric="f1")
    assert str(rule) == f"yes above a probability of {rule.threshold:.6g}"
    assert str(fit_decision(logits, metric="f1", decision="argmax")) == (
        "class 1 above a probability of 0.5"
    )
    never = DecisionRule(np.array([[1.0, 0.0], [1.0, 0.0]]), "expected", "expected")
    always = DecisionRule(np.array([[0.0, 1.0], [0.0, 1.0]]), "expected", "expected")
    assert (str(always), str(never)) == ("always class 1", "never class 1")
    for share, told in ((0.99876, "0.99876"), (0.99561234567, "0.99561235"), (0.9, "0.9")):
        rule = DecisionRule(np.diag([share, 1 - share]), "tuned", "labels")
        assert str(rule) == f"class 1 above a probability of {told}"
    many = fit_decision(logits, np.stack([y, y], 1), metric="f1_macro", classes=["a", "b"])
    lines = [
        f"{name} above a probability of {at:.6g}"
        for name, at in zip("ab", many.threshold, strict=True)
    ]
    assert str(many).splitlines() == lines


@pytest.mark.parametrize(
    "metric", ["f1_macro", "balanced_accuracy", "cohen_kappa_quadratic", "matthews_corrcoef"]
)
@pytest.mark.parametrize("offsets", [None, [0.5, 0.0, -0.3]])
def test_a_printed_rule_gives_its_labels(metric, offsets):
    """A table of numbers to add if there is one, else the matrix of gains."""
    logits, y = problem(3, 3000)
    rule = fit_decision(logits, y, metric=metric, offsets=offsets)
    first, *lines = str(rule).splitlines()
    p = softmax(logits)
    if first.startswith("the largest logit"):
        added = np.array([float(line.split()[-1]) for line in lines])
        by_hand = (np.log(p) + added).argmax(1)
    else:
        assert metric != "balanced_accuracy"
        gains = np.array([line.split()[2:] for line in lines[1:]], float)
        (power,) = re.findall(r"to the power of (\S+)", first) or ["1"]
        by_hand = (p ** float(power) @ gains).argmax(1)
    np.testing.assert_array_equal(by_hand, rule(logits))


def test_the_score_of_argmax_lies_beside_that_of_the_rule():
    logits, y = problem(3, 400)
    rule = fit_decision(logits, y, metric="f1_macro", constraint="recall[2] >= 0.95")
    assert rule.argmax_score == pytest.approx(value("f1_macro", logits.argmax(1), y, 3), abs=SAME)
    shifted = fit_decision(logits - 0.5, y, metric="f1_macro", offsets=[0.5, 0, -1])
    assert shifted.argmax_score == pytest.approx(rule.argmax_score, abs=SAME)
    many, z = np.stack([y == 1, y == 2], 1), logits[:, 1:]
    rule = fit_decision(z, many, metric="f1_macro")
    expected = f1_score(many, z > 0, average="macro")
    assert rule.argmax_score == pytest.approx(expected, abs=SAME)
    assert fit_decision(logits, y, metric="f1_macro", decision="expected").argmax_score is None


def test_a_state_is_json_in_every_language():
    logits, y = problem(2, 60)

    def undefined(c):
        return c.tp.sum() * np.nan

    rule = fit_decision(logits, y, metric=undefined)
    assert rule.score == -math.inf
    assert json.loads(json.dumps(rule.state_dict(), allow_nan=False))["score"] is None


def test_logits_are_not_taken_for_probabilities():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logits, y = problem(3, 60)
        rule = fit_decision(logits, y, metric="f1_macro")
        rule(log_softmax(logits, 1))
        rule(np.array([[0.0, 1.0, 0.0]]))
        rule(np.array([[0.0, 1.0, 0.0]] * 2))
        fit_decision(np.array([0.2, 0.5, 0.9]), metric="f1", decision="expected")


@pytest.mark.parametrize("kind", ["float", "int", "array"])
def test_classes_written_as_columns_are_noticed(kind):
    logits, y = problem(3, 60)
    p, columns = softmax(logits, 1), np.eye(3)[y]
    columns = {"float": columns, "int": columns.astype(int), "array": columns}[kind]
    with pytest.warns(UserWarning, match=r'Pass y.argmax\(1\) .* or task="multilabel"') as said:
        fit_decision(probabilities=p, y=columns, metric="f1_macro")
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_decision(probabilities=p, y=columns, metric="f1_macro", task="multilabel")
        two = columns.copy()
        two[0] = 1
        fit_decision(probabilities=p, y=two, metric="f1_macro")
        fit_decision(logits, columns, metric="f1_macro", task="multilabel")


@pytest.mark.parametrize("task", [None, "multilabel"])
def test_rounding_beyond_one_is_no_error(task):
    p = np.array([[1.004, -0.004], [0.25, 0.75], [0.5, 0.5]])
    how = {"metric": "f1_macro", "decision": "expected", "task": task}
    inside = fit_decision(probabilities=p.clip(0, 1), **how)
    assert np.array_equal(fit_decision(probabilities=p, **how).gain, inside.gain)
    with pytest.raises(ValueError, match="lie from 0 to 1"):
        fit_decision(probabilities=p + np.array([[0.03, 0], [0, 0], [0, 0]]), **how)


def test_the_threshold_of_a_rule():
    logits, y = problem(2, 400)
    p = softmax(logits, 1)
    for decision in ("argmax", "tuned", "expected"):
        for offsets in (None, [0.3, -0.4]):
            how = {"metric": "f1", "decision": decision, "offsets": offsets}
            rule = fit_decision(probabilities=p, y=y, **how)
            assert np.array_equal(rule(probabilities=p) == 1, p[:, 1] > rule.threshold)
            at = rule.log_odds
            assert np.array_equal(rule(logits) == 1, logits[:, 1] - logits[:, 0] > at)
    assert fit_decision(probabilities=p, metric="f1", decision="argmax").threshold == 0.5
    labels = np.stack([y, 1 - y], 1)
    rule = fit_decision(probabilities=p, y=labels, metric="f1_macro", task="multilabel")
    assert rule.threshold.shape == (2,)
    assert np.array_equal(rule(probabilities=p) == 1, p > rule.threshold)
    never = DecisionRule(np.array([[1.0, 0.0], [1.0, 0.0]]), "expected", "expected")
    always = DecisionRule(np.array([[0.0, 1.0], [0.0, 1.0]]), "expected", "expected")
    assert (never.threshold, always.threshold) == (1, 0)
    certain = {"probabilities": [0.0, 0.5, 1.0], "y": [0, 1, 0], "metric": "accuracy"}
    never = fit_decision(constraint="predicted_rate <= 0", **certain)
    always = fit_decision(constraint="predicted_rate >= 1", **certain)
    assert never(probabilities=[1.0]) == 0
    assert always(probabilities=[0.0]) == 1
    assert (never.threshold, always.threshold) == (1, 0)
    three = fit_decision(*problem(3, 60), metric="f1_macro", decision="expected")
    assert not hasattr(three, "threshold")
    with pytest.raises(AttributeError, match="A rule of 3 classes has no threshold"):
        _ = three.threshold


def fit(*args, metric="f1_macro", **kwargs):
    return fit_decision(*args, metric=metric, **kwargs)


ROWS, _ = problem(3, 4)
LABELS = np.array([0, 1, 0, 2])
P = softmax(ROWS, 1)
BAD = {
    "neither": (lambda: fit(y=LABELS), "logits or probabilities= of fit_decision .* Got neither"),
    "both": (lambda: fit(ROWS, LABELS, probabilities=P), "one of the two. Got both"),
    "logits by name": (
        lambda: fit(y=LABELS, probabilities=ROWS),
        "probabilities of fit_decision must lie from 0 to 1 .* Pass logits positionally",
    ),
    "not of one row": (
        lambda: fit(y=LABELS, probabilities=P / 2),
        r'sum to 1 in each row, .* Got \[.*\] in row 0. Pass logits .* task="multilabel"',
    ),
    "NaN": (lambda: fit(y=LABELS, probabilities=P * np.nan), "lie from 0 to 1 .* Got .nan"),
    "words": (lambda: fit(["a", "b"], LABELS), "be an array, a tensor or a list of numbers"),
    "ragged": (lambda: fit([[1.0], [1.0, 2.0]], LABELS), "be an array, a tensor or a list"),
    "names as y": (
        lambda: fit(ROWS, ["a", "b", "a", "b"]),
        r"a name for each of the 3 classes.* Got \['a', 'b'\]. Pass classes=, in the order",
    ),
    "other names": (
        lambda: fit(ROWS, ["a", "b", "a", "d"], classes=["a", "b", "c"]),
        "y of fit_decision must hold labels of the classes 'a', 'b', 'c'. Got 'd'.",
    ),
    "names and gaps": (
        lambda: fit(ROWS, ["a", "b", "a", None]),
        r"y of fit_decision .* Got list. As class indices: np.unique\(y, return_inverse=True\)",
    ),
    "a scorer": (
        lambda: fit(ROWS, LABELS, metric=make_scorer(f1_score, average="macro")),
        r"Got make_scorer\(f1_score.* give the name: \"f1_macro\"",
    ),
    "a NaN row": (
        lambda: fit(ROWS, LABELS)(np.where(np.arange(4) == 2, np.nan, ROWS.T).T),
        r"logits of DecisionRule must be finite. Got \[nan, nan, nan\] in row 2.",
    ),
    "a masked class": (
        lambda: fit(ROWS, LABELS)(np.where(ROWS > 0, ROWS, -np.inf)),
        "or masks a class: use -1e4 there",
    ),
    "a NaN pixel": (
        lambda: fit(ROWS.reshape(2, 2, 3) * np.nan, LABELS.reshape(2, 2), class_dim=-1),
        r"Got \[nan, nan, nan\] in row 0, 0.",
    ),
    "one row": (
        lambda: fit(ROWS, LABELS)(ROWS[0]),
        r"have 3 classes, as in the fit of the rule. Got 2. A single row has shape \(1, C\).",
    ),
    "one row of labels": (
        lambda: fit(ROWS, ROWS > 0)(ROWS[0]),
        r"have shape \(N, L\) .* Got \(3,\). A single row has shape \(1, C\).",
    ),
    "tokens": (
        lambda: fit(ROWS.reshape(2, 2, 3), LABELS.reshape(2, 2)),
        r"y .* shape \(2, 3\). Got \(2, 2\). Where classes come last, pass class_dim=-1",
    ),
    "dimension": (
        lambda: fit(ROWS, LABELS, class_dim=7),
        r"class_dim of fit_decision must be a dimension of logits of shape \(4, 3\). Got 7",
    ),
    "weight": (
        lambda: fit(ROWS, LABELS, sample_weight=[1, 2]),
        r"sample_weight of fit_decision must have shape \(4,\)",
    ),
    "all ignored": (
        lambda: fit(ROWS, LABELS * 0 - 100),
        "y and sample_weight of fit_decision must leave at least one row",
    ),
    "task": (lambda: fit(ROWS, LABELS, task="ordinal"), "task of fit_decision must be"),
    "binary": (lambda: fit(ROWS, LABELS, task="binary"), "be multiclass for 3 classes. Got binary"),
    "classes": (lambda: fit(ROWS, LABELS, classes=["a", "b"]), "a name for each of the 3 classes"),
    "calls": (lambda: fit(ROWS, LABELS)(probabilities=P[:, :2]), "sum to 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    action, text = BAD[case]
    with pytest.raises((ValueError, TypeError), match=text):
        action()


def test_labels_of_one_class_leave_argmax():
    p = np.linspace(0.01, 0.3, 100)
    with pytest.warns(UserWarning, match="y of fit_decision holds one class only"):
        rule = fit_decision(y=np.zeros(100), probabilities=p, metric="f1")
    assert rule.source == "argmax"
    assert not rule(probabilities=p).any()
    none = np.zeros(100)
    expected = fit_decision(probabilities=none, metric="f1", decision="expected")
    assert not expected(probabilities=none).any()
