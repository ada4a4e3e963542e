"""`evalign.score` of tensors: the same as that of arrays."""

import re

import numpy as np
import pytest
import torch

import evalign

TRUE = [0, 2, 1, 1, 0, 2, 2, 1]
PREDICTED = [0, 2, 1, 0, 0, 1, 2, 1]
WEIGHT = np.linspace(0.1, 3, 8)


@pytest.mark.parametrize(
    "convert",
    [
        torch.tensor,
        lambda labels: torch.tensor(labels, dtype=torch.uint8),
        lambda labels: torch.tensor(labels, dtype=torch.bfloat16).unsqueeze(1),
        lambda labels: torch.tensor(labels, dtype=torch.float64, requires_grad=True),
        lambda labels: torch.tensor(labels).repeat_interleave(2)[::2],
    ],
)
def test_labels_and_weights(convert):
    expected = evalign.score("f1_macro", y_true=TRUE, y_pred=PREDICTED, sample_weight=WEIGHT)
    settings = {"y_pred": convert(PREDICTED), "sample_weight": torch.tensor(WEIGHT)}
    assert evalign.score("f1_macro", y_true=convert(TRUE), **settings) == expected
    assert evalign.score("f1_macro", y_true=TRUE, **settings) == expected


def test_a_mask_of_255_is_no_negative_number():
    labels = torch.tensor([0, 1, 156], dtype=torch.uint8)  # as int8 that is -100
    assert evalign.score("accuracy", y_true=labels, y_pred=labels) == 1


@pytest.mark.parametrize(
    ("true", "predicted", "text"),
    [
        ([1, 0], torch.tensor([[0.1, 2.0], [1.5, 0.3]]), "y_pred of score must hold labels."),
        (torch.eye(2).to_sparse(), [0, 1], "y_true of score must be dense, and neither complex n"),
        (torch.tensor([0, 1j]), [0, 1], "y_true of score must be dense, and neither complex n"),
    ],
)
def test_error(true, predicted, text):
    with pytest.raises((ValueError, TypeError), match=re.escape(text)):
        evalign.score("f1_macro", y_true=true, y_pred=predicted)
