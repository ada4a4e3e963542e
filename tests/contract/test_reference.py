"""Every loss equals the slow numpy reference, for every kind of batch."""

import numpy as np
import pytest
import torch

from tests import tolerances
from tests.contract.cases import CASES, data, probabilities


def check(case, logits, target, *, weight=None, expected_target=None, **settings):
    rows = len(logits)
    loss = case.make(**settings)(logits, target, sample_weight=weight)
    expected = case.reference(
        logits.numpy(),
        probabilities(case.task, target) if expected_target is None else expected_target,
        np.ones(rows) if weight is None else weight.numpy(),
    )
    assert loss.item() == pytest.approx(expected, abs=tolerances.REFERENCE)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_plain(case):
    for seed in range(3):
        check(case, *data(case.task, seed=seed))


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_weights(case):
    logits, target = data(case.task, seed=3)
    weight = torch.rand(len(logits), dtype=torch.float64, generator=torch.manual_seed(4))
    weight[5] = 0
    check(case, logits, target, weight=weight)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_probabilistic_targets(case):
    logits, target = data(case.task, seed=5)
    soft = torch.from_numpy(probabilities(case.task, target))
    mixed = 0.7 * soft + 0.3 * soft.roll(1, 0)  # mixup of neighbouring rows
    check(case, logits, mixed, expected_target=mixed.numpy(), task=case.task)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_absent_class_and_single_row(case):
    """A class without true rows; and a batch of one."""
    logits, target = data(case.task, seed=6)
    keep = target != 2 if case.task == "multiclass" else torch.arange(len(logits)) > 1
    check(case, logits[keep], target[keep])
    check(case, logits[:1], target[:1])
