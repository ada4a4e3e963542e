"""The networks' shapes, and their numbers of parameters against published or hand-counted ones."""

from itertools import pairwise

import pytest
import torch
from evalign_study.networks import (
    PeopleNetwork,
    UNet,
    darknet19,
    mlp,
    resnet18,
    resnet34,
    tiny_darknet,
)

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
