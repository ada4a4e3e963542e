"""Every pick and decision is scored, and none is flattered by rows it was fitted on."""

import pytest
import torch
from sklearn.metrics import f1_score

from evalign.decisions import fit_decision
from evalign.study import rulings
from evalign.study.rulings import Pick, cross_fitted, decisions, folds, rule


def made(rows=300, seed=0, shift=-1.5):
    torch.manual_seed(seed)
    y = (torch.rand(rows) < 0.2).long()
    return torch.stack([torch.zeros(rows), torch.randn(rows) + 2 * y + shift], 1), y


def test_every_decision_has_the_score_of_its_labels():
    validation, test = made(), made(seed=1)
    found = decisions(validation, test, "f1")
    assert found.keys() == {"argmax", "tuned", "expected"}
    for decision, of in found.items():
        fitted = fit_decision(*validation, metric="f1", decision=decision)
        known, labels = fitted(validation[0]), fitted(test[0])
        if decision == "tuned":
            known = cross_fitted(*validation, "f1")
        assert of["validation"] == pytest.approx(f1_score(validation[1], known))
        assert of["test"] == pytest.approx(f1_score(test[1], labels))
        assert sum(count for *_, count in of["matrix"]) == 300


def test_a_tuned_rule_is_not_flattered(monkeypatch):
    """A rule that knows the labels of its own rows by heart is worth nothing on others."""

    class ByHeart:
        def __init__(self, logits, y):
            self.known = dict(zip(map(tuple, logits.tolist()), y.tolist(), strict=True))

        def __call__(self, logits):
            return torch.tensor([self.known.get(tuple(row), 0) for row in logits.tolist()])

    monkeypatch.setattr(rulings, "fit_decision", lambda logits, y, **how: ByHeart(logits, y))
    logits, y = made()
    assert torch.equal(ByHeart(logits, y)(logits), y)
    assert cross_fitted(logits, y, "f1").sum() == 0
    found = decisions((logits, y), (logits, y), "f1")
    assert (found["tuned"]["validation"], found["tuned"]["test"]) == (0, 1)


def test_folds_spread_every_class_and_stay_the_same():
    y = torch.tensor([0] * 52 + [1] * 7 + [2] * 3)
    fold = folds(y)
    for c, most in ((0, 11), (1, 2), (2, 1)):
        counts = fold[y == c].bincount(minlength=5)
        assert counts.max() <= most
        assert counts.max() - counts.min() <= 1
    assert torch.equal(fold, folds(y))


def test_an_epoch_picked_twice_is_ruled_on_once(monkeypatch):
    asked = []
    monkeypatch.setattr(rulings, "decisions", lambda *of, fits: asked.append(fits) or {})
    (logits, y), (other, _) = made(), made(seed=1)
    same, another = Pick(3, logits, logits), Pick(5, other, other)
    found = rule({"loss": same, "metric": same}, y, y, "f1")
    assert asked == [True]
    assert {name: of["epoch"] for name, of in found.items()} == {"loss": 3, "metric": 3}
    rule({"loss": same, "metric": another}, y, y, "f1")
    assert len(asked) == 3


def test_of_a_training_that_diverged_no_decision_makes_something():
    _, y = made()
    nothing = torch.zeros(len(y), 2)
    pick = Pick(0, nothing, nothing)
    found = rule({"loss": pick, "metric": pick}, y, y, "f1")
    for of in found["metric"]["decisions"].values():
        assert {predicted for _, predicted, _ in of["matrix"]} == {0}
        assert (of["validation"], of["test"]) == (0, 0)


@pytest.mark.parametrize(("classes", "tunes", "written"), [(3, True, True), (21, False, False)])
def test_many_classes(monkeypatch, classes, tunes, written):
    monkeypatch.setattr(rulings, "MOST_TUNED", 20)
    y = torch.arange(63) % classes
    logits = 3 * torch.eye(classes)[y]
    found = decisions((logits, y), (logits, y), "f1_macro")
    assert ("tuned" in found) == tunes
    assert {"argmax", "expected"} <= found.keys()
    assert all(("matrix" in of) == written for of in found.values())
    assert found["argmax"]["test"] == 1
