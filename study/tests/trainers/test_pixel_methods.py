"""The losses of dense prediction."""

import numpy as np
import pytest
import torch
from evalign_study.data import VOID
from evalign_study.trainers.pixel_methods import (
    METHODS,
    FocalTverskyLoss,
    Pixels,
    make,
)

CLASSES = 3


@pytest.fixture
def batch():
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(2, CLASSES, 4, 6, generator=random, requires_grad=True)
    y = torch.randint(0, CLASSES, (2, 4, 6), generator=random)
    y[0, 0] = VOID
    y[1][y[1] == 2] = 1  # the second image lacks a class
    return logits, y


def test_weights_are_the_median_frequency_over_that_of_each_class(batch):
    _, y = batch
    images = [image[image != VOID] for image in y.numpy()]
    frequencies = []
    for c in range(CLASSES):
        having = [image for image in images if (image == c).any()]
        frequencies.append(sum((i == c).sum() for i in having) / sum(i.size for i in having))
    found = Pixels.of(y, CLASSES)
    np.testing.assert_allclose(found.median_frequency, np.median(frequencies) / frequencies)
    np.testing.assert_array_equal(found.counts, np.bincount(np.concatenate(images)))


@pytest.mark.parametrize("name", METHODS)
def test_void_pixels_have_no_gradient_and_all_others_do(name, batch):
    logits, y = batch
    method = make(name, Pixels.of(y, CLASSES))
    loss = method.loss(logits, y)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()
    seen = (y != VOID).unsqueeze(1).expand_as(logits)
    assert not logits.grad[~seen].any()
    assert logits.grad.abs().sum(1)[y != VOID].all()


def test_focal_tversky_is_its_formula(batch):
    logits, y = batch
    p = logits.softmax(1).movedim(1, -1)[y != VOID].detach().double().numpy()
    g = np.eye(CLASSES)[y[y != VOID]]
    tp, missed, false = (p * g).sum(0), ((1 - p) * g).sum(0), (p * (1 - g)).sum(0)
    expected = np.mean((1 - tp / (tp + 0.7 * missed + 0.3 * false)) ** 0.75)
    assert FocalTverskyLoss()(logits, y).item() == pytest.approx(expected, rel=1e-5)
    without = y.masked_fill(y == 2, VOID)  # a class without pixels is left out
    p = logits.softmax(1).movedim(1, -1)[without != VOID].detach().double().numpy()
    g = np.eye(CLASSES)[without[without != VOID]]
    tp, missed, false = (p * g).sum(0), ((1 - p) * g).sum(0), (p * (1 - g)).sum(0)
    expected = np.mean((1 - tp / (tp + 0.7 * missed + 0.3 * false))[:2] ** 0.75)
    assert FocalTverskyLoss()(logits, without).item() == pytest.approx(expected, rel=1e-5)


def test_offsets_make_probabilities_of_weighted_logits(batch):
    """Where logits are the same for all pixels, the loss is least where probabilities are the
    shares of the classes.
    """
    _, y = batch
    pixels = Pixels.of(y, CLASSES)
    method = make("weighted", pixels)
    shares = pixels.counts / pixels.counts.sum()
    z = (shares.log() - method.offsets).float().view(1, -1, 1, 1).expand(2, -1, 4, 6)
    z = z.clone().requires_grad_()
    method.loss(z, y).backward()
    assert z.grad.sum((0, 2, 3)).abs().max() < 1e-6  # float32 sums of 42 pixels
