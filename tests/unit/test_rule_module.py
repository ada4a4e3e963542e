"""A rule as a module and as a file, wherever the network goes: compiled, exported, elsewhere."""

import json
import math

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import evalign
from evalign import fit_decision
from evalign.decisions import DecisionRule
from tests.ground.decisions.problems import problem
from tests.tolerances import SAME

LOGITS, Y = map(torch.from_numpy, problem(3, 400))
Z = LOGITS[:, 2] - LOGITS[:, 0]
OFFSETS = [0.3, 0.0, -0.7]
# Logits, labels and arguments of every form.
FORMS = {
    "one logit": (Z, Y == 2, {"metric": "f1"}),
    "a column": (Z.unsqueeze(1), Y == 2, {"metric": "f1"}),
    "two classes": (LOGITS[:, ::2], (Y == 2).long(), {"metric": "f1", "offsets": [0.4, -0.1]}),
    "classes": (LOGITS, Y, {"metric": "f1_macro", "offsets": OFFSETS}),
    "a full matrix": (LOGITS, Y, {"metric": "cohen_kappa_quadratic"}),
    "labels": (LOGITS, torch.stack([k == Y for k in range(3)], 1), {"metric": "f1_macro"}),
    "pixels": (
        LOGITS.view(2, 10, 20, 3).movedim(-1, 1),
        Y.view(2, 10, 20),
        {"metric": "jaccard_macro", "offsets": OFFSETS},
    ),
    "one logit for each pixel": (Z.view(2, 1, 10, 20), (Y == 2).view(2, 10, 20), {"metric": "f1"}),
    "tokens": (LOGITS.view(20, 20, 3), Y.view(20, 20), {"metric": "f1_macro", "class_dim": -1}),
    "labels of pixels": (
        LOGITS.view(2, 10, 20, 3),
        torch.stack([k == Y for k in range(3)], 1).view(2, 10, 20, 3),
        {"metric": "f1_macro", "class_dim": -1},
    ),
}


def fitted(name):
    logits, y, how = FORMS[name]
    task = "multilabel" if "label" in name else None
    return logits, fit_decision(logits, y, task=task, **how)


@pytest.fixture(scope="module", params=FORMS)
def form(request):
    return fitted(request.param)


def test_a_module_gives_the_labels_and_probabilities_of_its_rule(form):
    logits, rule = form
    module = rule.as_module(probabilities=True)
    labels, probabilities = module(logits)
    assert torch.equal(labels, rule(logits))
    torch.testing.assert_close(probabilities, rule.probabilities(logits), rtol=0, atol=SAME)
    again = DecisionRule.from_state_dict(rule.state_dict()).as_module()
    again.gain.zero_()
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(logits.float()), rule(logits.float()))


def test_it_compiles(form):
    logits, rule = form
    net = nn.Sequential(nn.Identity(), rule.as_module())
    torch.compiler.reset()
    assert torch.equal(torch.compile(net, fullgraph=True, backend="eager")(logits), rule(logits))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("labels", "pixels")]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:# The axis name")
@pytest.mark.parametrize("name", ["one logit", "classes", *SLOW])
def test_it_is_exported_and_gives_the_labels_of_the_rule(name, tmp_path):
    logits, rule = fitted(name)
    net = nn.Sequential(nn.Identity(), rule.as_module(probabilities=True)).eval()
    rows = ({0: torch.export.Dim("rows", min=2)},)
    program = torch.export.export(net, (logits[:2],), dynamic_shapes=rows)
    assert torch.equal(program.module()(logits)[0], rule(logits))
    torch.onnx.export(program, f=tmp_path / "net.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    run = lambda rows: session.run(None, {session.get_inputs()[0].name: rows.numpy()})  # noqa: E731
    assert (run(torch.full_like(logits[:2], math.nan))[0] == -1).all()
    labels, probabilities = run(logits)
    np.testing.assert_array_equal(labels, rule(logits))
    np.testing.assert_allclose(probabilities, rule.probabilities(logits), atol=SAME)


def test_a_row_without_logits_has_no_label():
    for name in ("one logit", "classes", "labels"):
        logits, rule = fitted(name)
        module = rule.as_module()
        broken = logits[:3].clone()
        broken[1] = math.nan
        broken[2] = math.inf
        labels = module(broken)
        assert torch.equal(labels[0], module(logits)[0])
        assert bool((labels[1:] == -1).all())


def by_hand(state, logits):
    """The label of one row in plain Python, as the page on the file says."""
    logits = [0.0, logits] if isinstance(logits, float) else logits
    offsets = state["offsets"] or [0.0] * len(logits)
    z = [state["factor"] * x + o for x, o in zip(logits, offsets, strict=True)]
    if state["task"] == "multilabel":
        p = [1 / (1 + math.exp(-x)) for x in z]
        gains = zip(p, state["gain"], strict=True)
        return [int((1 - q) * (g[0][1] - g[0][0]) + q * (g[1][1] - g[1][0]) > 0) for q, g in gains]
    most = max(z)
    p = [math.exp(x - most) for x in z]
    scores = [
        sum(q * gain[j] for q, gain in zip(p, state["gain"], strict=True)) for j in range(len(p))
    ]
    return scores.index(max(scores))


@pytest.mark.parametrize("name", ["one logit", "two classes", "classes", "a full matrix", "labels"])
def test_a_file_is_read_without_evalign(name, tmp_path):
    logits, rule = fitted(name)
    rule.save(tmp_path / "rule.json")
    assert torch.equal(evalign.load(tmp_path / "rule.json")(logits), rule(logits))
    text = (tmp_path / "rule.json").read_text(encoding="utf-8")
    state = json.loads(text, parse_constant=pytest.fail)
    assert [by_hand(state, row) for row in logits.tolist()] == rule(logits).tolist()


@pytest.mark.parametrize("positive", ["bad", "good"])
def test_one_logit_is_of_the_positive_class(positive):
    rng = np.random.default_rng(0)
    bad = rng.random(200) < 0.4
    logits = (2.0 * bad - 1 + rng.normal(size=200)) * (1 if positive == "bad" else -1)
    labels = np.where(bad, "bad", "good")
    rule = fit_decision(logits, labels, metric="f1", pos_label=positive)
    found = rule.as_module()(torch.from_numpy(logits)).numpy()
    np.testing.assert_array_equal(found, rule.codes(logits))
    assert (np.array(rule.classes)[found] == rule(logits)).all()
    assert (rule(logits) == labels).mean() > 0.7
