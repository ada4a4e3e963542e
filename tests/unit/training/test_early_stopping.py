"""Early stopping: the best epochs, and when to stop."""

import json
import math

import pytest

from evalign import MetricLoss
from evalign.training.annealing import TemperatureAnnealing
from evalign.training.early_stopping import EarlyStopping


def cooling(**changes):
    return TemperatureAnnealing(MetricLoss("f1_macro"), **{"rate": 0.5, "patience": 1, **changes})


def told(scores, **made_with):
    """Tell whether each epoch was a new best, until the training is to stop."""
    stopping = EarlyStopping({"f1": True}, **{"epochs": 100, "watch": "f1", **made_with})
    said = []
    for score in scores:
        if stopping.finished:
            break
        said.append(bool(stopping.note({"f1": score})))
    return said


@pytest.mark.parametrize(
    ("scores", "made_with", "said"),
    [
        ([0.1, 0.3, 0.2, 0.3, 0.4], {}, [True, True, False, False, True]),
        ([0.1, 0.2, 0.3], {"epochs": 2}, [True, True]),
        ([0.3, 0.2, 0.4, 0.1, 0.1, 0.5], {"patience": 2}, [True, False, True, False, False]),
        ([math.nan] * 9, {"patience": 3}, [False] * 3),
        ([math.nan, 0.1, math.nan, 0.05, 0.2], {}, [False, True, False, False, True]),
        ([-math.inf, 0.0], {}, [False, True]),
        ([0.1] * 9, {"annealing": cooling(coolings=2)}, [True, False, False, False]),
        ([0.1] * 9, {"annealing": cooling(coolings=0)}, [True, False]),
        # A new best gives the cooling back; a NaN is not one.
        ([0.1, 0, 0.2, 0, 0, 0], {"annealing": cooling(coolings=1)}, [True, False] * 2 + [False]),
        ([math.nan, 0.1, 0, 0, 0], {"annealing": cooling(coolings=1)}, [False, True] + [False] * 2),
    ],
)
def test_best_and_stop(scores, made_with, said):
    assert told(scores, **made_with) == said


def test_criteria_are_kept_apart():
    stopping = EarlyStopping({"loss": False, "f1": True}, epochs=9, watch="loss", patience=2)
    assert stopping.note({"loss": 1.0, "f1": 0.5}) == ["loss", "f1"]
    assert stopping.note({"loss": 1.1, "f1": 0.6}) == ["f1"]
    assert not stopping.finished
    assert stopping.note({"loss": 1.0, "f1": 0.7}) == ["f1"]
    assert stopping.finished  # whatever is not watched
    assert stopping.best == {"loss": (1, 1.0), "f1": (3, 0.7)}


def test_a_training_that_diverges_stops():
    stopping = EarlyStopping({"f1": True}, epochs=9)
    assert stopping.note({"f1": 0.5}) == ["f1"]
    assert stopping.note({}, diverged=True) == []
    assert stopping.finished
    assert stopping.best == {"f1": (1, 0.5)}


def test_goes_on_where_the_state_was_taken():
    scores = [0.3, math.nan, 0.2, 0.5, 0.4, 0.4, 0.4, 0.4]

    def new():
        annealing = cooling(coolings=3)
        return EarlyStopping({"f1": True}, epochs=99, watch="f1", patience=4, annealing=annealing)

    whole = new()
    expected = [(whole.note({"f1": score}), whole.finished) for score in scores]
    for stop in range(len(scores)):
        first, second = new(), new()
        found = [(first.note({"f1": score}), first.finished) for score in scores[:stop]]
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        found += [(second.note({"f1": score}), second.finished) for score in scores[stop:]]
        assert found == expected
        assert second.annealing.temperature == whole.annealing.temperature
    assert [finished for _, finished in expected] == [False] * 7 + [True]
