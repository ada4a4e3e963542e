"""Every decision is scored, and none is flattered by rows it was fitted on."""

import pytest
import torch
from evalign_study.suite import rulings
from evalign_study.suite.rulings import Pick, rule
from sklearn.metrics import f1_score

from evalign.decisions import fit_decision
from evalign.decisions.tuned import folds

OFFSETS = torch.tensor([0.7, -0.8])


def made(rows=300, seed=0, shift=-1.5):
    torch.manual_seed(seed)
    y = (torch.rand(rows) < 0.2).long()
    return torch.stack([torch.zeros(rows), torch.randn(rows) + 2 * y + shift], 1), y


def test_every_decision_has_the_score_of_its_labels():
    """Argmax of the logits, the others of probabilities."""
    (known, y), (unseen, truth) = made(), made(seed=1)
    found = rule(Pick(3, known, unseen), y, truth, "f1", offsets=OFFSETS)
    assert found["epoch"] == 3
    assert found["decisions"].keys() == {"argmax", "tuned", "expected"}
    for decision, of in found["decisions"].items():
        fitted = fit_decision(known, y, metric="f1", decision=decision, offsets=OFFSETS)
        score = fitted.score if decision == "tuned" else f1_score(y, fitted(known))
        assert of["validation"] == pytest.approx(score)
        assert of["test"] == pytest.approx(f1_score(truth, fitted(unseen)))
        assert sum(count for *_, count in of["matrix"]) == 300
    plain = rule(Pick(3, known, unseen), y, truth, "f1")["decisions"]
    assert found["decisions"]["argmax"] == plain["argmax"]
    assert found["decisions"]["expected"] != plain["expected"]


def test_a_tuned_rule_is_scored_by_itself(monkeypatch):
    """Not by its labels of the rows that it was fitted on, which it may know by heart."""

    class ByHeart:
        score = 0.25

        def __init__(self, logits, y):
            self.known = dict(zip(map(tuple, logits.tolist()), y.tolist(), strict=True))

        def __call__(self, logits):
            return torch.tensor([self.known.get(tuple(row), 0) for row in logits.tolist()])

    monkeypatch.setattr(rulings, "fit_decision", lambda logits, y, **how: ByHeart(logits, y))
    logits, y = made()
    found = rule(Pick(1, logits, logits), y, y, "f1", decisions=["tuned"])["decisions"]
    assert found.keys() == {"tuned"}
    assert (found["tuned"]["validation"], found["tuned"]["test"]) == (0.25, 1)


def test_folds_spread_every_class_and_stay_the_same():
    y = torch.tensor([0] * 52 + [1] * 7 + [2] * 3)
    fold = folds(y)
    for c, most in ((0, 11), (1, 2), (2, 1)):
        counts = fold[y == c].bincount(minlength=5)
        assert counts.max() <= most
        assert counts.max() - counts.min() <= 1
    assert torch.equal(fold, folds(y))


def test_of_a_training_that_diverged_no_decision_makes_something():
    _, y = made()
    nothing = torch.zeros(len(y), 2)
    # Offsets and fitted rules would say the second class, of some rows or of all.
    found = rule(Pick(0, nothing, nothing), y, y, "f1", offsets=-OFFSETS)
    assert found["epoch"] == 0
    assert found["decisions"].keys() == {"argmax", "tuned", "expected"}
    for of in found["decisions"].values():
        assert {predicted for _, predicted, _ in of["matrix"]} == {0}
        assert (of["validation"], of["test"]) == (0, 0)


@pytest.mark.parametrize(("classes", "tunes", "written"), [(3, True, True), (21, False, False)])
def test_many_classes(monkeypatch, classes, tunes, written):
    monkeypatch.setattr(rulings, "MOST_TUNED", 20)
    y = torch.arange(63) % classes
    logits = 3 * torch.eye(classes)[y]
    found = rule(Pick(1, logits, logits), y, y, "f1_macro")["decisions"]
    assert ("tuned" in found) == tunes
    assert {"argmax", "expected"} <= found.keys()
    assert all(("matrix" in of) == written for of in found.values())
    assert found["argmax"]["test"] == 1
