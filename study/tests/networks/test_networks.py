"""The networks' shapes, and their numbers of parameters against published or hand-counted ones."""

from itertools import pairwise

import pytest
import torch
from evalign_study.networks import (
    PeopleNetwork,
    UNet,
    darknet19,
    resnet18,
    resnet34,
    tiny_darknet,
)
from torch import nn

from evalign.estimator.network import mlp

PEOPLE = PeopleNetwork(width=8, rounds=2)


def layer(before, width, kernel):
    """Count the parameters of a convolution without bias and its normalisation."""
    return before * width * kernel**2 + 2 * width


# Redmon's darknet19.cfg and tiny.cfg, layer by layer: (width, kernel) after the three colours.
DARKNET_19 = [(32, 3), (64, 3), (128, 3), (64, 1), (128, 3), (256, 3), (128, 1), (256, 3)]
DARKNET_19 += [(512, 3), (256, 1), (512, 3), (256, 1), (512, 3)]
DARKNET_19 += [(1024, 3), (512, 1), (1024, 3), (512, 1), (1024, 3)]
TINY = [(16, 3), (32, 3), (16, 1), (128, 3), (16, 1), (128, 3), (32, 1), (256, 3), (32, 1)]
TINY += [(256, 3), (64, 1), (512, 3), (64, 1), (512, 3), (128, 1)]


def darknet(layers, classes):
    before = [3, *(width for width, _ in layers)]
    counts = [layer(b, *shape) for b, shape in zip(before[:-1], layers, strict=True)]
    return sum(counts) + before[-1] * classes + classes


def unet(widths, classes):
    """Count blocks of two layers down and up, the steps between them, the stem and the head."""
    before = [widths[0], *widths]
    down = [layer(b, w, 3) + layer(w, w, 3) for b, w in zip(before[:-1], widths, strict=True)]
    up = [
        4 * w * after + after + layer(2 * after, after, 3) + layer(after, after, 3)
        for after, w in pairwise(widths)
    ]
    return 13 * widths[0] + sum(down) + sum(up) + (widths[0] + 1) * 4 * classes


def two(inputs, outputs):
    """Count the parameters of a network with one hidden layer of 8."""
    return (inputs + 1) * 8 + 9 * outputs


@pytest.mark.parametrize(
    ("make", "shape", "logits", "parameters"),
    [
        (lambda: mlp(13, 2), (13,), (2,), 14 * 512 + 513 * 256 + 257 * 128 + 129 * 2),
        (lambda: mlp(22, 1, hidden=(32, 16)), (22,), (1,), 23 * 32 + 33 * 16 + 17),
        (lambda: darknet19(10), (3, 32, 32), (10,), darknet(DARKNET_19, 10)),
        (lambda: tiny_darknet(1), (3, 32, 32), (1,), darknet(TINY, 1)),
        # Known from many public CIFAR-10 networks of these names.
        (lambda: resnet18(10), (3, 32, 32), (10,), 11_173_962),
        (lambda: resnet34(10), (3, 32, 32), (10,), 21_282_122),
        (lambda: resnet18(1), (3, 28, 28), (1,), 11_173_962 - 9 * 513),
        (lambda: UNet(11), (3, 32, 48), (11, 32, 48), unet((32, 64, 128, 256), 11)),
        # Rounds read an edge of 1, then 8, with two people of 4, then 8; the logit 8 and 2 · 8.
        (
            lambda: PEOPLE,
            (6, 4),
            (15,),
            two(1 + 8, 8) + two(4 + 8, 8) + two(8 + 16, 8) + two(8 + 8, 8) + two(8 + 16, 1),
        ),
    ],
)
def test_shapes_and_parameters(make, shape, logits, parameters):
    network = make()
    assert sum(p.numel() for p in network.parameters()) == parameters
    output = network(torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)))
    assert output.shape == (2, *logits)
    output.sum().backward()
    assert all(p.grad is not None for p in network.parameters())  # none is idle


def test_tiny_darknet_has_the_published_size():
    """Its page says 4.0 MB with 1000 classes, for weights and the statistics of normalisation."""
    numbers = (x for x in tiny_darknet(1000).state_dict().values() if x.is_floating_point())
    assert round(sum(x.nbytes for x in numbers) / 2**20, 1) == 4.0


def test_darknet_19_has_its_number_of_layers():
    assert sum(isinstance(layer, nn.Conv2d) for layer in darknet19(10)) == 19


def test_resnets_have_their_number_of_layers():
    def weighted(network):
        kinds = (part for part in network.modules() if isinstance(part, nn.Conv2d | nn.Linear))
        return sum(
            1 for part in kinds if not (isinstance(part, nn.Conv2d) and part.kernel_size == (1, 1))
        )

    assert weighted(resnet18(10)) == 18
    assert weighted(resnet34(10)) == 34


def test_resnet_halves_a_small_image_three_times_only():
    """The stem has no pooling, so 32 pixels end as 4."""
    features = resnet18(10)[:-3].eval()
    assert features(torch.zeros(1, 3, 32, 32)).shape == (1, 512, 4, 4)


def test_a_resnet_block_starts_from_its_input():
    """With the last scale at 0, a block of one width is ReLU(x + 0): positive values stay."""
    block = resnet18(10)[3].eval()
    nn.init.zeros_(block.layers[-1].weight)
    x = torch.rand(1, 64, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(block(x), x)


def test_dropout_is_at_work_in_training_alone():
    x = torch.ones(4, 3, 32, 32)
    network = tiny_darknet(2, dropout=0.5).eval()
    assert torch.equal(network(x), network(x))
    assert [part.p for part in network if isinstance(part, nn.Dropout)] == [0.5]


def test_the_order_of_people_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    people = torch.randn(3, 6, 4, generator=generator, dtype=torch.float64)
    network = PeopleNetwork().double()
    order = torch.randperm(6, generator=generator)
    pairs = torch.triu_indices(6, 6, 1)

    def matrix(logits):
        full = logits.new_zeros(3, 6, 6)
        full[:, pairs[0], pairs[1]] = logits
        return full + full.mT

    expected = matrix(network(people))[:, order][:, :, order]
    torch.testing.assert_close(matrix(network(people[:, order])), expected)


def test_people_hear_of_others():
    """The logit of two people depends on a third person, but not on another frame."""
    generator = torch.Generator().manual_seed(0)
    people = torch.randn(2, 6, 4, generator=generator)
    network = PeopleNetwork()
    moved = people.clone()
    moved[0, 5] += 1
    before, after = network(people), network(moved)
    assert before[0, 0] != after[0, 0]  # people 0 and 1
    assert torch.equal(before[1], after[1])


def test_people_at_one_place_have_a_gradient():
    people = torch.zeros(1, 3, 4, requires_grad=True)
    PeopleNetwork()(people).sum().backward()
    assert torch.isfinite(people.grad).all()
