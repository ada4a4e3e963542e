"""The default network: what it gives in training and in evaluation, and how it is trained."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from evalign import AlignedClassifier
from evalign.losses import LogitAdjustedLoss
from evalign.store.files import StoreError
from evalign.training import Settings, fit
from evalign.training.members import Members, MembersAsRows
from evalign.training.network import DROPOUT, Size, size_of_members
from tests import tolerances
from tests.estimator.models import noted_losses
from tests.forged import forge, opened
from tests.ground.made import imbalanced

EDGES = [torch.linspace(-2, 2, 9), None, torch.tensor([-1.0, 0.0, 3.0]), None]
X, Y = imbalanced(300, classes=3)


def network(edges=EDGES, classes=3, seed=0):
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        return Members(edges, classes, members=4, width=8, dropout=0.1)


def rows(number=50):
    return torch.randn(number, 4, generator=torch.Generator().manual_seed(0))


def classifier(**arguments):
    given = {"epochs": 2, "device": "cpu", "random_state": 0, "learning_rate": 0.02}
    return AlignedClassifier(**(given | arguments))


@pytest.fixture(autouse=True, scope="module")
def _small():
    """Make the network small: what these tests look at does not depend on its size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evalign.training.fitting.size_of_members", lambda *given: Size(3, 16))
        yield


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(X, Y)


@pytest.mark.parametrize("edges", [EDGES, [None] * 4], ids=["embedded", "plain"])
@pytest.mark.parametrize("offsets", [[0.0, 0.0, 0.0], [0.0, -2.0, 3.0]])
def test_the_members_are_averaged_as_probabilities(edges, offsets):
    net, x = network(edges), rows()
    net.backbone.eval()  # without dropout, so that both modes have the same members
    net.offsets.copy_(torch.tensor(offsets))
    each = net(x).detach()
    assert each.shape == (50, 4, 3)
    assert each.std(1).min() > 1e-3  # members differ
    mean = (each.double() + net.offsets).softmax(2).mean(1)
    found = (net.eval()(x).double() + net.offsets).softmax(1)
    torch.testing.assert_close(found, mean, rtol=0, atol=tolerances.FLOAT32_SUM)


def test_it_is_saved(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = AlignedClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_a_member_is_a_network_of_its_own():
    """TabM's layer, ((x·r)W)·s + b, by hand, and the piecewise-linear embedding before it."""
    net, x = network().eval().double(), rows().double()
    weights = net.embedding.linear.weight
    assert (weights == 0).all()  # it begins linear
    nn.init.normal_(weights, generator=torch.Generator().manual_seed(1))
    parts = []
    for i, (column, edges) in enumerate(zip((0, 2), (EDGES[0], EDGES[2]), strict=True)):
        left, right = edges[:-1].double(), edges[1:].double()
        share = (x[:, [column]] - left) / (right - left)
        low = torch.where(torch.arange(len(left)) == 0, -math.inf, 0.0)
        high = torch.where(torch.arange(len(left)) == len(left) - 1, math.inf, 1.0)
        share = torch.minimum(torch.maximum(share, low), high)
        weight = net.embedding.linear.weight[i]
        # Of fewer bins than the most, the last stands last.
        weight = torch.cat([weight[: len(left) - 1], weight[-1:]])
        linear = net.embedding.linear0
        parts.append(share @ weight + x[:, [column]] * linear.weight[i] + linear.bias[i])
    inputs = torch.cat([*parts, x[:, [1, 3]]], 1)
    each = []
    for member in range(4):
        h = inputs
        for layer, *_ in net.backbone.blocks:
            h = ((h * layer.r[member]) @ layer.weight.T) * layer.s[member] + layer.bias[member]
            h = h.relu()
        each.append((h @ net.head.weight[member] + net.head.bias[member]).softmax(1))
    mean = torch.stack(each).mean(0)
    # The edges of the bins are in float32.
    torch.testing.assert_close(net(x).softmax(1), mean, rtol=0, atol=tolerances.FLOAT32_SUM)


def test_many_columns_have_narrower_embeddings():
    edges = [torch.linspace(-2, 2, 9)]
    for columns, width in ((64, 16 * 64), (128, 8 * 128), (256, 4 * 256), (257, 257)):
        net = Members(edges * columns, 2, members=2, width=4, dropout=0.0)
        assert net.backbone.blocks[0][0].in_features == width


def test_members_count_as_rows():
    logits = torch.randn(20, 4, 3, generator=torch.Generator().manual_seed(0))
    y, weight = torch.arange(20) % 3, torch.arange(1.0, 21)
    loss = LogitAdjustedLoss([5, 3, 2], task="multiclass")
    each = torch.stack([loss(logits[:, k], y, sample_weight=weight) for k in range(4)])
    found = MembersAsRows(loss)(logits, y, sample_weight=weight)
    torch.testing.assert_close(found, each.mean(), rtol=0, atol=tolerances.FLOAT32_SUM)
    plain = torch.stack([nn.functional.cross_entropy(logits[:, k], y) for k in range(4)])
    found = MembersAsRows(nn.CrossEntropyLoss())(logits, y)
    torch.testing.assert_close(found, plain.mean(), rtol=0, atol=tolerances.FLOAT32_SUM)
    means = logits.mean(1)
    assert torch.equal(MembersAsRows(loss)(means, y), loss(means, y))


def test_biases_and_embeddings_do_not_decay():
    net = network()
    kept = {name: p.detach().clone() for name, p in net.named_parameters()}
    x, y = rows(), torch.arange(50) % 3
    # Without gradients a step of AdamW is its decay: 1 − rate · decay of every weight.
    still = Settings(1, 50, 0.1, 0.5, schedule="constant", warmup=0.0)
    undecayed = net.undecayed
    how = {"validation": (x, y), "metric": "f1_macro", "settings": still, "undecayed": undecayed}
    fit(net, lambda logits, y: 0 * logits.sum(), x, y, **how)
    for name, p in net.named_parameters():
        exempt = name.startswith("embedding.") or name.endswith("bias")
        assert exempt == any(p is q for q in undecayed)
        expected = kept[name] * (1 if exempt else 1 - 0.1 * 0.5)
        torch.testing.assert_close(p.detach(), expected, rtol=0, atol=tolerances.FLOAT32_SUM)


def test_it_learns_and_validates_the_mean(monkeypatch):
    losses = noted_losses(monkeypatch)
    clf = classifier(epochs=12).fit(X[:200], Y[:200], validation_data=(X[200:], Y[200:]))
    assert clf.score(*imbalanced(1000, classes=3, seed=1)) > 0.7
    scaled = clf._scaler(torch.from_numpy(X[200:])).float()
    with torch.no_grad():
        logits = clf.network_(scaled)
    best = max(record["validation_metric"] for record in clf.history_)
    assert best == pytest.approx(f1_score(Y[200:], logits.argmax(1), average="macro"))
    torch.testing.assert_close(clf.network_.offsets, losses[0].offsets.float(), rtol=0, atol=0)


def test_it_is_trained_with_what_it_wants(monkeypatch):
    from evalign.training import fitting

    asked = []
    monkeypatch.setattr(fitting, "fit", lambda *a, settings, **rest: asked.append(settings) or [])
    fixed = {"device": "cpu", "decision": "argmax"}
    for network in ("auto", nn.Linear):
        AlignedClassifier(network=network, **fixed).fit(X, Y)
    given = {"learning_rate": 0.5, "batch_size": 7, "epochs": 3}
    AlignedClassifier(**given, **fixed).fit(X, Y)
    found = [(s.learning_rate, s.weight_decay, s.batch_size, s.epochs) for s in asked]
    usual = (2e-3, 3e-4, 32, 30)
    assert found == [usual, usual, (0.5, 3e-4, 7, 3)]
    assert DROPOUT == 0.1


def test_columns_without_numbers_to_embed():
    odd = np.stack([np.ones(300), Y == 2, X[:, 0].round(), X[:, 0]], 1)
    clf = classifier(epochs=5).fit(odd, Y)
    assert clf.network_.others.tolist() == [0, 1]
    assert clf.score(odd, Y) > 0.6
    clf = classifier().fit(odd[:, :2], Y)
    assert clf.network_.embedding is None
    assert np.isfinite(clf.predict_proba(odd[:, :2])).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("head.weight", None),
        ("head.weight", torch.zeros(3, 16, 9)),
        ("head.weight", torch.zeros(3, 10**6, 3)),  # 4 TB of weights between its layers
        ("backbone.blocks.0.0.r", torch.zeros(2, 4)),
        ("backbone.blocks.0.0.weight", torch.zeros(16, 1)),
        ("offsets", torch.zeros(2)),
    ],
)
def test_weights_of_other_sizes_are_refused(fitted, tmp_path, name, value):
    fitted.save(tmp_path / "model")
    state, tensors = opened(tmp_path / "model")
    weights, key = state["state"]["fitted"]["network"], f"/state/fitted/network/{name}"
    weights[name] = {"$tensor": key}
    if value is None:
        del weights[name]
    forge(tmp_path / "model", state, tensors | ({} if value is None else {key: value}))
    with pytest.raises(StoreError):
        AlignedClassifier.load(tmp_path / "model")


def test_sizes():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert size_of_members(cuda) == Size(32, 512)
    assert size_of_members(cpu) == Size(8, 256)
