"""The Triton kernels against `core`, in Triton's interpreter; run by `test_fused.py`.

Without a GPU a kernel is a Python program, so tiles and batches are small.
"""

import pytest
import torch

from evalign.kernels import fused
from tests.kernels.agreement import (
    STEPS,
    assert_agrees,
    assert_in_range,
    hostile_logits,
    random_batch,
    run,
)

# numpy's, which the interpreter computes with; a GPU does not say so either.
pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
]


@pytest.fixture
def small_tiles(monkeypatch):
    """Make tiles small, so that rows of more than 16 classes take several tiles."""
    monkeypatch.setattr(fused, "LONGEST", 16)
    for name in ("LONG_ROW", "LONG_COLUMNS", "LONG_GRADIENT"):
        monkeypatch.setattr(fused, name, fused.Tile(1, 16, 1))


@pytest.mark.parametrize(("sigmoid", "detach"), STEPS)
@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (70, 3), (3, 37)])
def test_agrees(small_tiles, rows, classes, sigmoid, detach):
    assert_agrees(fused, random_batch(rows, classes), 0.2, sigmoid, detach)


# The interpreter cuts bfloat16 off where a GPU rounds; that type is tested on a GPU alone.
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("classes", [3, 20])
def test_precisions_and_temperatures(small_tiles, classes, dtype):
    for temperature in (1e-9, 0.05, 0.4):
        assert_agrees(fused, random_batch(3, classes, dtype=dtype), temperature, False, False)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("name", hostile_logits(torch.float64))
def test_hostile_logits(name, long, monkeypatch):
    if long:
        monkeypatch.setattr(fused, "LONGEST", 2)
        for tile in ("LONG_ROW", "LONG_COLUMNS", "LONG_GRADIENT"):
            monkeypatch.setattr(fused, tile, fused.Tile(1, 4, 1))
    _, *rest = random_batch(6, 5, dtype=torch.float32)
    batch = hostile_logits(torch.float32)[name], *rest
    unique = name not in ("equal", "whole numbers", "saturated")
    assert_agrees(fused, batch, 0.2, long, False, gradient=unique)


@pytest.mark.parametrize("classes", [5, 600, 5000])
def test_real_tiles(classes):
    """Tiles are those of a GPU: several rows in a tile, one row, and several tiles for a row."""
    assert_agrees(fused, random_batch(2, classes), 0.2, False, False)


def test_near_ties_stay_in_range():
    for temperature in (1e-9, 0.2):
        assert_in_range(fused, temperature)


@pytest.mark.parametrize("classes", [4, 5000])
def test_no_rows(classes):
    sums, gradient = run(fused, random_batch(0, classes), 0.2, False, False)
    assert (sums == 0).all()
    assert gradient.shape == (0, classes)


@pytest.mark.parametrize("classes", [4, 37])
def test_mistakes_stay_visible(small_tiles, classes):
    for mistake in (torch.nan, torch.inf):
        logits, *rest = random_batch(1, classes)
        logits[0, 2] = mistake
        sums, _ = run(fused, (logits, *rest), 0.2, False, False)
        assert sums[1].isnan().any()


@pytest.mark.parametrize("classes", [4, 37])
@pytest.mark.parametrize("wrong", [-1, 1, 2**40])
def test_a_target_that_is_no_class_stays_visible(small_tiles, classes, wrong):
    """On CUDA the target was not checked. It is not used as an address, and the loss is NaN."""
    logits, target, *rest = random_batch(2, classes)
    target[1] = wrong if wrong != 1 else classes
    sums, _ = run(fused, (logits, target, *rest), 0.2, False, False)
    assert sums[1].isnan().any()
