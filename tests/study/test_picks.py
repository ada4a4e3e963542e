"""Which epochs are kept, and what is asked of them."""

import pytest
import torch

from evalign.study.methods import make
from evalign.study.picks import Picks, annealing, flat
from evalign.study.run import BINARY, LOSS, Run

Y = torch.tensor([0, 0, 0, 0, 1, 1])


def logits(*positive):
    """Sure of the positives at these places."""
    z = torch.full((6,), -2.0)
    z[list(positive)] = 2.0
    return torch.stack([torch.zeros(6), z], 1)


ALL, ONE, NONE = logits(0, 1, 2, 3, 4, 5), logits(4), logits()


def test_the_first_of_the_best_epochs_by_each_criterion():
    picks = Picks(Y, Y, 2)
    asked = []

    def tell(epoch, loss, of):
        def test():
            asked.append(epoch)
            return of

        return picks.tell(epoch, loss, of, test)

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
    assert found["f1"]["test"]["argmax"]["f1"] == pytest.approx(2 / 3)
    assert found["f1"]["test"].keys() >= {"argmax", "tuned", "0.1", "0.9"}
    assert found["f1"]["auroc"] == 0.75


def test_a_network_that_has_diverged_gets_the_first_class():
    picks = Picks(Y, Y, 2)
    lost = torch.full((6, 2), torch.nan)
    picks.tell(1, torch.nan, lost, lambda: lost)
    found = picks.assessed("f1")
    assert found[LOSS]["test"]["argmax"]["matrix"] == [[0, 0, 4], [1, 0, 2]]


def test_annealing_shares_out_the_patience():
    run = Run(dataset="adult", variant="paper", method="east_f1", rate=0.8, patience=50)
    method = make("east_f1", torch.tensor([9, 1]))
    cooling = annealing(run, method)
    assert cooling is not None
    assert (cooling.patience, cooling.coolings, cooling.rate) == (13, 3, 0.8)
    assert not cooling.greater_is_better
    assert annealing(run.but(rate=None), method) is None


def test_flat_keeps_the_classes_of_a_label_together():
    z = torch.arange(12.0).view(2, 2, 3)
    assert flat(z).tolist() == [[0, 3], [1, 4], [2, 5], [6, 9], [7, 10], [8, 11]]
    assert flat(z[..., 0]).equal(z[..., 0])
