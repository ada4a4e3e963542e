"""When a temperature falls, when training ends, and which epoch is the best."""

import math

import pytest

from evalign import MetricLoss, TemperatureAnnealing


def cooling(**changes):
    loss = MetricLoss("f1_macro")
    return TemperatureAnnealing(loss, **{"rate": 0.5, "patience": 2, "coolings": 1, **changes})


def told(annealing, **values):
    """Step until the end; tell for each epoch the coolings before it and whether it is the best."""
    ((name, numbers),) = values.items()
    said = []
    for number in numbers:
        if annealing.finished:
            break
        cooled = annealing.cooled
        said.append((cooled, annealing.step(**{name: number})))
    return said


def epochs(*parts):
    """Write ((coolings, "+--"), ...) for the best epochs and the others of each temperature."""
    return [(k, sign == "+") for k, signs in parts for sign in signs]


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        # Patience begins again at each temperature: .8 and .7 are progress there, not the best.
        ([0.5, 0.6, 0.6, 0.8, 0.7, 0.7, 0.7], epochs((0, "+--"), (1, "----"))),
        # A temperature that brings a new best was not in vain.
        ([0.5, 0.6, 0.6, 0.8, 0.4, 0.6, 0.6, 0.5, 0.6, 0.6], epochs((0, "+--"), (1, "-+--"))),
        # A loss that only equals the lowest of all is no new best.
        ([0.5, 0.5, 0.5, 0.5, 0.5, 0.5], epochs((0, "+--"), (1, "---"))),
        ([math.nan, 0.5, math.nan, math.nan, math.nan, math.nan], epochs((0, "-+--"), (1, "--"))),
    ],
)
def test_losses_are_compared_within_a_temperature(losses, said):
    annealing = cooling()
    found = told(annealing, loss=losses)
    assert found[: len(said)] == said
    assert annealing.finished or len(found) > len(said)


def test_the_lowest_loss_of_all_is_the_best():
    annealing = cooling(coolings=3)
    losses = [0.5, 0.6, 0.6, 0.8, 0.45, 0.7, 0.7, 0.9, 0.3, 0.2]
    best = [i for i, (_, is_best) in enumerate(told(annealing, loss=losses)) if is_best]
    assert best == [0, 4, 8, 9]


def test_scores_are_compared_across_temperatures():
    scores = [0.5, 0.4, 0.4, 0.2, 0.3, 0.6]
    annealing = cooling()
    assert told(annealing, score=scores) == epochs((0, "+--"), (1, "--"))
    assert annealing.finished


@pytest.mark.parametrize("coolings", [0, 1, 3])
def test_so_many_temperatures_in_vain_end_training(coolings):
    annealing = cooling(coolings=coolings, patience=4)
    said = told(annealing, loss=[0.5] * 99)
    assert len(said) == (1 + 4) * (coolings + 1)
    assert annealing.temperature == 0.2 * 0.5**coolings


def test_a_shared_patience_is_the_sum_of_the_waits():
    annealing = cooling(reading="shared patience", patience=50, coolings=3)
    assert annealing.wait == 13
    said = told(annealing, loss=[0.5, *[0.6 - i / 1000 for i in range(90)]])
    assert len(said) == 1 + 4 * 13  # falling at a temperature is no progress in this reading


def test_a_cost_and_a_loss_are_made_small():
    cost = told(cooling(greater_is_better=False), score=[0.5, 0.6, 0.4])
    loss = told(cooling(greater_is_better=True), loss=[0.5, 0.6, 0.4])
    assert cost == loss == epochs((0, "+-+"))


@pytest.mark.parametrize("values", [{}, {"loss": 0.1, "score": 0.9}])
def test_a_step_is_told_one_of_both(values):
    with pytest.raises(TypeError, match="step of TemperatureAnnealing takes one of loss= and sc"):
        cooling().step(**values)
    with pytest.raises(TypeError, match="positional"):
        cooling().step(0.5)


def test_a_training_is_judged_by_one_of_both():
    annealing = cooling()
    annealing.step(loss=0.1)
    with pytest.raises(ValueError, match=r"must be given loss= in every step.* Got score="):
        annealing.step(score=0.9)


def test_a_reading_has_a_name():
    with pytest.raises(ValueError, match=r"reading of TemperatureAnnealing must be one of each te"):
        cooling(reading="papers")


@pytest.mark.parametrize("reading", ["each temperature", "shared patience"])
def test_goes_on_where_the_state_was_taken(reading):
    losses = [0.5, 0.6, math.nan, 0.7, 0.65, 0.7, 0.7, 0.4, 0.5, 0.5, 0.5, 0.5, 0.5]
    whole = told(cooling(reading=reading), loss=losses)
    for stop in range(len(whole)):
        first, second = cooling(reading=reading), cooling(reading=reading)
        before = told(first, loss=losses[:stop])
        second.load_state_dict(first.state_dict())
        assert second.loss.temperature.item() == pytest.approx(first.temperature)
        assert before + told(second, loss=losses[stop:]) == whole
