"""The recipe "east" is the loop of the documentation."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from evalign import MetricLoss, metrics
from evalign.training import fitting
from tests.estimator.models import quick
from tests.ground.made import imbalanced

HOWTO = Path(__file__).parents[2] / "docs" / "loss" / "howto.md"
SEED, RATE, BATCH, PATIENCE = 0, 1e-2, 128, 3


def loop_of_the_docs():
    """Return the function `east` of the page."""
    blocks = HOWTO.read_text(encoding="utf-8").split("```python\n")
    (code,) = (block.split("```")[0] for block in blocks if block.startswith("def east("))
    assert len([line for line in code.splitlines() if line]) <= 10
    import copy

    import evalign

    names = {"copy": copy, "evalign": evalign}
    exec(code, names)
    return names["east"]


def by_hand(net, training, validation, classes):
    """Train by that function, in batches in the order that `fit` draws."""
    (X, y), order = training, torch.Generator().manual_seed(SEED)

    def train_one_epoch(net, loss, optimizer):
        batches = math.ceil(len(X) / BATCH)
        for rows in torch.randperm(len(X), generator=order).tensor_split(batches):
            optimizer.zero_grad()
            loss(net(X[rows]), y[rows]).backward()
            optimizer.step()

    def validation_loss(net):
        with torch.no_grad():
            return loss(net(validation[0]), validation[1]).item()

    loss = MetricLoss(metrics.FBeta(average="macro", labels=range(classes)))
    optimizer = torch.optim.AdamW(net.parameters(), RATE, fused=True)
    loop_of_the_docs()(net, loss, optimizer, train_one_epoch, validation_loss, patience=PATIENCE)
    return loss


@pytest.mark.parametrize("classes", [2, 3])
def test_the_recipe_is_the_loop_of_the_docs(classes, monkeypatch):
    seen = []
    fit = fitting.fit

    def noted(network, loss, X, y, **more):
        start = {name: w.clone() for name, w in network.state_dict().items()}
        history = fit(network, loss, X, y, **more)
        seen.append((start, (X, y), more["validation"], more["settings"].seed))
        return history

    monkeypatch.setattr(fitting, "fit", noted)
    X, y = imbalanced(300, classes=classes)
    y = np.where(np.arange(300) % 3 == 0, np.arange(300) % classes, y)  # noise: else it never ends
    steps = {"epochs": 500, "batch_size": BATCH, "learning_rate": RATE, "patience": PATIENCE}
    clf = quick("f1_macro", recipe="east", **steps).fit(X, y)
    ((start, training, validation, seed),) = seen
    monkeypatch.setattr(f"{__name__}.SEED", seed)
    net = quick().network(training[0].shape[1], classes)
    net.load_state_dict(start)
    loss = by_hand(net, training, validation, classes)
    assert loss.temperature.item() == pytest.approx(clf.history_[-1]["temperature"])
    assert loss.temperature.item() < 0.2
    assert len(clf.history_) < 500
    for name, weight in clf.network_.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], weight, rtol=0, atol=1e-6)
