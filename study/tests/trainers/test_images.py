"""Images: how they are cut, split and scaled, and how networks learn from them."""

import json

import numpy as np
import pytest
import torch
from evalign_study.records.run import BINARY, LOSS, MULTICLASS
from evalign_study.trainers import images, methods
from evalign_study.trainers.crops import SIZE
from evalign_study.trainers.images import PADDING, prepare, split, train_image

from study.tests.trainers import made_data

CPU = torch.device("cpu")
RUN = made_data.IMAGE_RUN


def test_a_random_crop_is_a_part_of_the_padded_image_perhaps_mirrored(give):
    made = give()
    data = prepare(RUN, CPU)._replace(center=0.0, scale=1.0)
    padded = np.pad(made.X[7], [(PADDING, PADDING), (PADDING, PADDING), (0, 0)])
    parts = {}
    for top in range(2 * PADDING + 1):
        for left in range(2 * PADDING + 1):
            part = padded[top : top + SIZE, left : left + SIZE]
            parts[part.tobytes()] = top, left, False
            parts[part[:, ::-1].tobytes()] = top, left, True
    torch.manual_seed(0)
    rows = torch.full((400,), 7)
    crops = (data.crops(rows, data.draw(400)) * 255).round().byte()
    seen = [parts[crop.permute(1, 2, 0).contiguous().numpy().tobytes()] for crop in crops]
    offsets = set(range(2 * PADDING + 1))
    tops, lefts, mirrored = map(set, zip(*seen, strict=True))
    assert (tops, lefts, mirrored) == (offsets, offsets, {False, True})


@pytest.mark.parametrize(
    ("network", "sizes", "publishers"),
    [("darknet19", [64, 16, 20], False), ("resnet18", [72, 8, 20], True)],
)
def test_parts(network, sizes, publishers):
    made = made_data.images("cifar10")
    parts = split(made, RUN.but(network=network))
    assert [len(part) for part in parts] == sizes
    assert sorted(np.concatenate(parts)) == list(range(100))
    assert (set(made.split[parts[2]]) == {"test"}) == publishers
    other = split(made, RUN.but(network=network, split_seed=1))
    assert not np.array_equal(parts[0], other[0])


def test_colours_are_standardised_by_the_training_part(give):
    give()
    data = prepare(RUN, CPU)
    x = data.crops(data.training)
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.var((0, 2, 3), correction=0), torch.ones(3), atol=1e-4, rtol=0)


def test_learns_and_picks_by_loss_and_by_each_metric(give, quick):
    give(classes=3)
    found = train_image(RUN.but(learning_rate=0.01, epochs=10))
    assert json.loads(json.dumps(found)) == found
    assert found["picks"].keys() == {LOSS, *MULTICLASS}
    assert (found["epochs"], found["capped"]) == (10, True)
    test = found["picks"]["accuracy"]["decisions"]["argmax"]
    assert test["test"]["accuracy"] > 0.9
    assert sum(count for *_, count in test["matrix"]) == 20
    assert [point["epoch"] for point in found["curve"]] == [*range(1, 11)]
    for criterion in (LOSS, "f1_macro"):
        point = found["curve"][found["picks"][criterion]["epoch"] - 1]
        assert point["validation_loss"] == found["picks"][criterion]["validation_loss"]
        assert point["validation_f1_macro"] == found["picks"][criterion]["validation"]["f1_macro"]
    assert found["made"]["precision"] == ("bfloat16" if torch.cuda.is_available() else "float32")


def test_a_network_that_diverges_at_once_is_recorded_as_such(give, quick):
    give()
    found = train_image(RUN.but(learning_rate=1e38, patience=2, rows=16))
    assert found["diverged"]
    assert found["epochs"] == 2
    for pick in found["picks"].values():
        assert (pick["epoch"], pick["validation_loss"]) == (0, None)
        assert {predicted for _, predicted, _ in pick["decisions"]["argmax"]["matrix"]} == {0}


def test_cross_entropy_may_come_first(give):
    give()
    run = RUN.but(epochs=3, rows=16, method="dice", cross_entropy_first=2)
    found, entropy, dice = (
        train_image(run.but(**changes))["curve"]
        for changes in ({}, {"method": "cross_entropy"}, {"cross_entropy_first": 0})
    )
    for point, other, late in zip(found, entropy, dice, strict=True):
        assert (point["train_loss"] == other["train_loss"]) == (point["epoch"] <= 2)
        assert point["train_loss"] != late["train_loss"]
        # The validation rows are judged by the method's loss from the first epoch on.
        assert point["validation_loss"] != other["validation_loss"]


def test_cools(give, quick, monkeypatch):
    give()
    temperatures = []
    value = images._PaperLearner.loss_of

    def noted(training, *arguments):
        temperatures.append(training.loss.temperature.item())
        return value(training, *arguments)

    monkeypatch.setattr(images._PaperLearner, "loss_of", noted)
    run = RUN.but(method="east_f1", rate=0.5, learning_rate=10.0, patience=4, epochs=20, rows=16)
    found = train_image(run)
    assert temperatures[0] == 0.2
    assert [point["temperature"] for point in found["curve"]] == pytest.approx(temperatures)
    assert temperatures[-1] == pytest.approx(0.2 * 0.5**3)  # three coolings in vain, then the end
    assert found["epochs"] < 20


def test_resnets_follow_surf_and_have_a_curve(give, quick):
    give("fashion_mnist_tshirt", shape=(28, 28), rows=200)
    run = RUN.but(
        dataset="fashion_mnist_tshirt",
        network="resnet18",
        method="surf_1",
        learning_rate=0.01,
        epochs=6,
        patience=None,
    )
    found = train_image(run)
    assert found["picks"].keys() == {LOSS, *BINARY}
    assert not found["capped"]
    curve = found["curve"]
    assert [epoch["epoch"] for epoch in curve] == [1, 2, 3, 4, 5, 6]
    assert curve[-1]["train_loss"] < curve[0]["train_loss"]
    best = max(epoch["validation_f1"] for epoch in curve)
    assert best == found["picks"]["f1"]["validation"]["f1"] > 0.8
    at_best = curve[found["picks"]["f1"]["epoch"] - 1]
    assert (
        at_best["test_accuracy"] == found["picks"]["f1"]["decisions"]["argmax"]["test"]["accuracy"]
    )
    for epoch in curve:
        # Of one matrix (1 + β²) / F_β is β²·actual/tp + predicted/tp: linear in β².
        half, one, two, three = (
            (1 + beta**2) / epoch[f"train_f{beta:g}"] for beta in methods.SURF_BETAS
        )
        slope = (three - half) / 8.75
        assert (one, two) == pytest.approx((half + 0.75 * slope, half + 3.75 * slope), rel=1e-4)
