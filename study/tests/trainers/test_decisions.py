"""Decisions: every one is scored, and none is flattered by the rows it was fitted on."""

import pytest
import torch
from evalign_study.records.run import scores, triples
from evalign_study.trainers import decisions
from evalign_study.trainers.decisions import Pick, decide
from sklearn.metrics import f1_score, roc_auc_score

from evalign.decisions import fit_decision

OFFSETS = torch.tensor([0.7, -0.8])


def made(rows=300, seed=0, shift=-1.5):
    torch.manual_seed(seed)
    y = (torch.rand(rows) < 0.2).long()
    return torch.stack([torch.zeros(rows), torch.randn(rows) + 2 * y + shift], 1), y


def test_every_decision_has_the_score_of_its_labels():
    """Argmax is taken of the logits; the others use probabilities."""
    (known, y), (unseen, truth) = made(), made(seed=1)
    found = decide(Pick(3, known, unseen), y, truth, "f1", names=["f1"], offsets=OFFSETS)
    assert found["epoch"] == 3
    assert found["decisions"].keys() == {"argmax", "tuned", "expected"}
    for decision, scored in found["decisions"].items():
        seen = y if decision == "tuned" else None
        fitted = fit_decision(known, seen, metric="f1", decision=decision, offsets=OFFSETS)
        score = fitted.score if decision == "tuned" else f1_score(y, fitted(known))
        assert scored["validation"] == pytest.approx(score)
        assert scored["test"] == pytest.approx({"f1": f1_score(truth, fitted(unseen))})
        assert sum(count for *_, count in scored["matrix"]) == 300
    plain = decide(Pick(3, known, unseen), y, truth, "f1", names=["f1"])["decisions"]
    assert found["decisions"]["argmax"] == plain["argmax"]
    assert found["decisions"]["expected"] != plain["expected"]


def test_a_tuned_rule_is_scored_by_itself(monkeypatch):
    """It may know the labels it was fitted on by heart, so these do not count."""

    class ByHeart:
        score = 0.25

        def __init__(self, logits, y):
            self.known = dict(zip(map(tuple, logits.tolist()), y.tolist(), strict=True))

        def __call__(self, logits):
            return torch.tensor([self.known.get(tuple(row), 0) for row in logits.tolist()])

    monkeypatch.setattr(decisions, "fit_decision", lambda logits, y, **how: ByHeart(logits, y))
    logits, y = made()
    found = decide(Pick(1, logits, logits), y, y, "f1", names=["f1"], decisions=["tuned"])[
        "decisions"
    ]
    assert found.keys() == {"tuned"}
    assert (found["tuned"]["validation"], found["tuned"]["test"]) == (0.25, {"f1": 1})


def test_of_a_training_that_diverged_no_decision_makes_something():
    _, y = made()
    # Offsets and fitted rules would predict the second class for some rows or for all.
    found = decide(Pick.constant(len(y), len(y), 2), y, y, "f1", names=["f1"], offsets=-OFFSETS)
    assert found["epoch"] == 0
    assert found["decisions"].keys() == {"argmax", "tuned", "expected"}
    for scored in found["decisions"].values():
        assert {predicted for _, predicted, _ in scored["matrix"]} == {0}
        assert (scored["validation"], scored["test"]) == (0, {"f1": 0})


@pytest.mark.parametrize(("classes", "tunes"), [(3, True), (21, False)])
def test_many_classes(monkeypatch, classes, tunes):
    monkeypatch.setattr(decisions, "MOST_TUNED", 20)
    y = torch.arange(63) % classes
    pick = Pick(1, *2 * [3 * torch.eye(classes)[y]])
    found = decide(pick, y, y, "f1_macro", names=["f1_macro", "accuracy"], matrix=False)
    assert "auroc" not in found
    assert found["decisions"].keys() == {"argmax", "expected", *(["tuned"] if tunes else [])}
    assert found["decisions"]["argmax"] == {
        "validation": 1,
        "test": {"f1_macro": 1, "accuracy": 1},
    }


def test_thresholds_are_decisions_of_two_classes():
    logits, y = made(400)
    names = ("f1", "accuracy")
    asked = {"names": names, "decisions": ("argmax", "tuned", "0.1", "0.9")}
    found = decide(Pick(1, logits, logits), y, y, "f1", **asked)
    assert found["auroc"] == pytest.approx(roc_auc_score(y, logits[:, 1]))
    for threshold in ("0.1", "0.9"):
        positive = (logits[:, 1].sigmoid() > float(threshold)).long()
        wanted = scores(triples(positive, y), 2, names)
        assert found["decisions"][threshold]["test"] == pytest.approx(wanted)
        # Offsets are part of the probabilities.
        shifted = decide(Pick(1, logits, logits), y, y, "f1", **asked, offsets=OFFSETS)
        moved = (logits[:, 1] - 1.5).sigmoid() > float(threshold)
        assert shifted["decisions"][threshold]["matrix"] == triples(moved.long(), y)
    best, plain = (found["decisions"][name]["test"]["f1"] for name in ("tuned", "argmax"))
    assert best > plain  # of the rows that the rule was fitted on


def test_weights_put_the_shares_of_classes_right():
    """A class that is tested at half its share counts as if its rows occurred twice."""
    logits, y = made()
    weights = torch.tensor([1.0, 2.0])
    found = decide(Pick(1, logits, logits), y, y, "f1", names=["f1"], weights=weights)
    labels = logits.argmax(1)
    wanted = f1_score(y, labels, sample_weight=weights[y])
    assert found["decisions"]["argmax"]["test"]["f1"] == pytest.approx(wanted)
    assert found["decisions"]["argmax"]["matrix"] == triples(labels, y)
