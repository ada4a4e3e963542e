"""Tensors are read like arrays, and labels and scores come back as tensors."""

import json

import numpy as np
import pytest
import torch

from evalign import DecisionFitter, fit_decision
from evalign.decisions import DecisionRule
from tests.ground.decisions.problems import problem
from tests.tolerances import SAME

LOGITS, Y = problem(3, 600, ratio=3.0)
FORMS = {
    "one logit": (LOGITS[:, 2] - LOGITS[:, 0], np.array(Y == 2)),
    "two classes": (LOGITS[:, :2], np.minimum(Y, 1)),
    "classes": (LOGITS, Y),
    "labels": (LOGITS, np.stack([Y == 0, Y > 0, Y == 2], 1)),
    "pixels": (np.moveaxis(LOGITS.reshape(2, 30, 10, 3), -1, 1), Y.reshape(2, 30, 10)),
}
WEIGHT = np.random.default_rng(0).random(600)


def tensors(*arrays):
    return (torch.from_numpy(np.array(array)) for array in arrays)


@pytest.mark.parametrize("decision", ["argmax", "tuned", "expected"])
@pytest.mark.parametrize("form", FORMS)
def test_tensors_give_the_rule_of_arrays(form, decision):
    logits, y = FORMS[form]
    weight = WEIGHT.reshape(y.shape) if form == "pixels" else WEIGHT
    how = {"metric": "f1_macro", "decision": decision}
    rule = fit_decision(logits, y, sample_weight=weight, **how)
    given, labels, weights = tensors(logits, y, weight)
    same = fit_decision(given, labels, sample_weight=weights, **how)
    assert same.state_dict() == rule.state_dict()
    assert isinstance(same.gain, np.ndarray)
    fitter = DecisionFitter(**how)
    fitter.update(given, labels, sample_weight=weights)
    assert fitter.compute().state_dict() == rule.state_dict()


@pytest.mark.parametrize("form", FORMS)
def test_what_a_rule_returns_is_in_the_container_of_the_scores(form):
    logits, y = FORMS[form]
    (given,) = tensors(logits)
    rule = fit_decision(logits, y, metric="f1_macro")
    for method in (rule, rule.scores, rule.probabilities):
        assert isinstance(method(logits), np.ndarray)
        assert isinstance(method(given), torch.Tensor)
        np.testing.assert_array_equal(method(given), method(logits))
    assert rule(given).dtype == (torch.bool if form == "one logit" else torch.int64)
    assert rule.scores(given).dtype == torch.float64
    with torch.inference_mode():
        assert torch.equal(rule(given), rule(given.clone().requires_grad_()))


def test_half_precision_is_read_in_float32():
    for dtype in (torch.bfloat16, torch.float16):
        given = torch.from_numpy(LOGITS).to(dtype)
        rule = fit_decision(given, Y, metric="f1_macro")
        same = fit_decision(given.float().numpy(), Y, metric="f1_macro")
        assert same.state_dict() == rule.state_dict()


def test_no_graph_is_kept():
    logits = torch.from_numpy(LOGITS).requires_grad_()
    rule = fit_decision(logits, Y, metric="f1_macro")
    assert not rule.scores(logits).requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_dtype_of_torch_changes_nothing(dtype):
    logits, y = tensors(*FORMS["classes"])
    expected = fit_decision(logits, y, metric="f1_macro")
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        found = fit_decision(logits, y, metric="f1_macro")
        labels = found(logits)
    finally:
        torch.set_default_dtype(usual)
    assert found.state_dict() == expected.state_dict()
    assert torch.equal(labels, expected(logits))


def test_groups_classes_and_offsets_may_be_tensors():
    groups = np.arange(600) % 2
    how = {"metric": "f1_macro", "constraint": "gap(recall[0]) <= 0.5"}
    rule = fit_decision(LOGITS, Y, constraint_groups=groups, offsets=[0.0, 0.5, -0.5], **how)
    same = fit_decision(
        LOGITS,
        Y,
        constraint_groups=torch.from_numpy(groups),
        offsets=torch.tensor([0.0, 0.5, -0.5]),
        **how,
    )
    assert same.state_dict() == rule.state_dict()


def test_labels_by_name_come_as_an_array():
    names = np.array(["a", "b", "c"])
    rule = fit_decision(torch.from_numpy(LOGITS), names[Y], metric="f1_macro")
    np.testing.assert_array_equal(rule(torch.from_numpy(LOGITS)), rule(LOGITS))


def test_a_rule_made_of_tensors_holds_arrays():
    gain, offsets = torch.eye(3), torch.tensor([0.0, 0.5, -1.0])
    rule = DecisionRule(gain, "tuned", "labels", offsets=offsets)
    assert rule.gain.dtype == rule.offsets.dtype == np.float64
    copy = DecisionRule.from_state_dict(json.loads(json.dumps(rule.state_dict())))
    module = rule.as_module(probabilities=True)
    labels, probabilities = module(torch.from_numpy(LOGITS))
    np.testing.assert_array_equal(labels, copy(LOGITS))
    np.testing.assert_allclose(probabilities, copy.probabilities(LOGITS), atol=SAME)


def test_a_function_of_tensors_alone_is_told_what_it_gets():
    def of_tensors(c):
        return torch.relu(c.tp).sum() / c.total

    with pytest.raises(TypeError, match="metric of fit_decision must be a function that runs on"):
        fit_decision(LOGITS, Y, metric=of_tensors)
