"""BtG's protocol: a short run gives its recorded numbers; scores are means over thresholds."""

import pytest
import torch
from evalign_study import data
from evalign_study.planning import Known, cells, table
from evalign_study.protocols import btg, east
from evalign_study.records.journal import matrix_of, scores_of
from evalign_study.standing import value_of

from study.tests.protocols import made

SHORT = btg.Run(dataset="made", batch_size=64, epochs=60, patience=3, dropout=0.0, seed=1)
# What the protocol gave when VERSION was 1; where these change, raise it.
RECORDED = {1: {"bce": (14, 0.349), "f1": (12, 0.35), "wmw": (8, 0.027)}}


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    """Put made rows in the place of every data set."""
    monkeypatch.setattr(data, "load", lambda name, preparation: made.rows(2))
    east._prepared.cache_clear()
    yield
    east._prepared.cache_clear()


@pytest.mark.parametrize("loss", ["bce", "f1", "wmw"])
def test_a_short_run_gives_its_recorded_numbers(loss):
    record = btg.train(SHORT.but(loss=loss, learning_rate=1e-2), "cpu")
    found = record["epochs"], round(record["picks"]["loss"]["validation_loss"], 3)
    assert found == RECORDED[btg.VERSION][loss]


def test_scores_are_means_over_thresholds():
    record = btg.train(SHORT.but(epochs=5, decisions=(*btg.THRESHOLDS, "argmax")), "cpu")
    decisions = record["picks"]["loss"]["decisions"]
    matrices = [matrix_of(decisions[name]["matrix"], 2) for name in btg.THRESHOLDS]
    assert [int(matrix.sum()) for matrix in matrices] == [80] * 9
    positives = [int(matrix[:, 1].sum()) for matrix in matrices]
    assert positives == sorted(positives, reverse=True)
    assert decisions["0.5"]["matrix"] == decisions["argmax"]["matrix"]
    (cell,) = cells(table("btg-table1"), panels=["adult"], lines=["F1*"])
    mean = sum(scores_of(matrix, ["f1"])["f1"] for matrix in matrices) / 9
    assert value_of(record, cell, "f1") == pytest.approx(mean)
    assert cell.trials(Known([])) == []


def test_one_logit_is_two():
    network = btg.network_of(SHORT, 5, 2)
    logits = network(torch.randn(3, 5))
    assert logits.shape == (3, 2)
    assert (logits[:, 0] == 0).all()


def test_what_is_allowed_is_said():
    with pytest.raises(ValueError, match=r"loss of btg must be one of f1, f2, .* Got 'mcc'."):
        btg.train(SHORT.but(loss="mcc"), "cpu")
    with pytest.raises(ValueError, match=r"rate of btg must be 1: BtG does not cool\. Got 0\.9"):
        btg.train(SHORT.but(rate=0.9), "cpu")
