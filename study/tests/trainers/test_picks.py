"""The epochs that are kept, and their scores."""

import pytest
import torch
from evalign_study.records.run import BINARY, LOSS, Run
from evalign_study.trainers.methods import make
from evalign_study.trainers.picks import Picks, annealing

Y = torch.tensor([0, 0, 0, 0, 1, 1])


def logits(*positive):
    """Make logits that are sure of the positives at these places."""
    z = torch.full((6,), -2.0)
    z[list(positive)] = 2.0
    return torch.stack([torch.zeros(6), z], 1)


ALL, ONE, NONE = logits(0, 1, 2, 3, 4, 5), logits(4), logits()


def test_the_first_of_the_best_epochs_by_each_criterion():
    picks = Picks(Y, Y, 2)
    asked = []

    def tell(epoch, loss, logits):
        def test():
            asked.append(epoch)
            return logits

        return picks.tell(epoch, loss, logits, test)

    assert tell(1, 0.5, NONE)["accuracy"] == pytest.approx(4 / 6)
    tell(2, 0.9, ALL)  # F1 ½, the first above 0
    tell(3, 0.4, NONE)
    tell(4, 0.7, ONE)  # F1 ⅔, accuracy ⅚
    tell(5, 0.4, ONE)
    assert asked == [1, 2, 3, 4]
    found = picks.assessed("f1")
    assert {name: pick["epoch"] for name, pick in found.items()} == {
        LOSS: 3,
        "f1": 4,
        "accuracy": 4,
        "matthews_corrcoef": 4,
    }
    assert found[LOSS]["validation_loss"] == 0.4
    assert found["f1"]["validation"].keys() == set(BINARY)
    assert found["f1"]["decisions"]["argmax"]["test"]["f1"] == pytest.approx(2 / 3)
    assert found["f1"]["decisions"].keys() >= {"argmax", "tuned", "0.1", "0.9"}
    assert found["f1"]["auroc"] == 0.75


def test_offsets_are_part_of_decisions_but_not_of_the_choice_of_epochs():
    """As in the estimator, tuning and labelling use the logits with offsets."""
    offsets = torch.tensor([3.0, 0.0])
    picks = Picks(Y, Y, 2, offsets)
    metrics = picks.tell(1, 0.5, ONE, lambda: ONE)
    assert metrics["f1"] == pytest.approx(2 / 3)
    pick = picks.assessed("f1")["f1"]
    assert pick["validation"] == metrics
    assert pick["decisions"]["argmax"]["test"]["f1"] == 0  # 2 < 3
    assert pick["decisions"]["0.1"]["test"]["f1"] == pytest.approx(2 / 3)  # sigmoid(2 − 3)
    assert pick["decisions"]["0.3"]["test"]["f1"] == 0
    assert pick["decisions"]["tuned"]["test"]["f1"] == pytest.approx(2 / 3)


def test_annealing_shares_out_the_patience():
    run = Run(dataset="adult", variant="paper", method="east_f1", rate=0.8, patience=50)
    method = make("east_f1", torch.tensor([9, 1]))
    cooling = annealing(run, method)
    assert cooling is not None
    assert (cooling.wait, cooling.coolings, cooling.rate) == (13, 3, 0.8)
    assert not cooling.greater_is_better
    assert annealing(run.but(rate=None), method) is None
