"""What is probably a mistake is warned of, with what to write instead; what is right is silent."""

import re

import pytest
import torch

from evalign import Confusion, MetricLoss, checked, losses
from evalign.core.input_warnings import rows_of_probabilities
from evalign.training.validation import hard_confusion

DICE = losses.DiceLoss


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def labels(classes, *shape):
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(1))


ONE_HOT = torch.eye(3)[[0, 2, 1, 1] * 5]
PAIR = torch.eye(3)[[0, 2]] + torch.eye(3)[[1, 1]]
# name: (action, the telling parts)
WARNED = {
    "a logit a pixel": (
        lambda: DICE()(drawn(2, 6, 5), labels(2, 2, 6, 5).float()),
        ["DiceLoss, (2, 6, 5)", "6 classes or labels in", "logits.unsqueeze(1)", "class_dim=-1"],
    ),
    "a logit a pixel of a confusion": (
        lambda: Confusion.from_logits(drawn(2, 6, 5), labels(2, 2, 6, 5).bool()),
        ["Confusion.from_logits, (2, 6, 5)", "class_dim=1,"],
    ),
    "as many tokens as classes": (
        lambda: DICE()(drawn(2, 4, 4), labels(4, 2, 4)),
        ["4 classes or labels in", "class_dim=1, or class_dim=-1"],
    ),
    "one-hot rows": (
        lambda: DICE()(drawn(20, 3), ONE_HOT),
        ["DiceLoss holds exactly one 1", "target.argmax(1)", 'task="multilabel"'],
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_a_doubt_is_told_with_its_cure(case):
    action, parts = WARNED[case]
    with pytest.warns(UserWarning, match=re.escape(parts[0])) as told:
        action()
    (warning,) = told
    assert [part for part in parts if part not in str(warning.message)] == []
    assert warning.filename == __file__  # the line to change, not one of evalign or torch


# Every warning is silent when its cure is taken, and where only one meaning is left.
SILENT = {
    "a class dimension": lambda: DICE()(drawn(2, 1, 6, 5), labels(2, 2, 6, 5).float()),
    "labels, declared": lambda: DICE(task="multilabel")(drawn(2, 6, 5), labels(2, 2, 6, 5).float()),
    "labels last": lambda: DICE(class_dim=-1)(drawn(2, 6, 5), labels(2, 2, 6, 5).float()),
    "labels of images": lambda: DICE()(drawn(2, 3, 4, 5), labels(2, 2, 3, 4, 5).float()),
    "classes second": lambda: DICE(class_dim=1)(drawn(2, 4, 4), labels(4, 2, 4)),
    "classes last": lambda: DICE(class_dim=-1)(drawn(2, 4, 4), labels(4, 2, 4)),
    "other tokens than classes": lambda: DICE()(drawn(2, 4, 5), labels(4, 2, 5)),
    "one-hot rows, many labels": lambda: DICE(task="multilabel")(drawn(20, 3), ONE_HOT),
    "one-hot rows, classes": lambda: DICE(task="multiclass")(drawn(20, 3), ONE_HOT),
    "two labels a row": lambda: DICE()(drawn(2, 3), PAIR),
    "few one-hot rows": lambda: DICE()(drawn(8, 3), ONE_HOT[:8]),
    "few one-hot rows of validation": lambda: hard_confusion(drawn(8, 3), ONE_HOT[:8]),
    "masks of classes": lambda: Confusion.from_predictions(labels(2, 2, 4, 4), labels(2, 2, 4, 4)),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_is_said_is_not_doubted(case):
    SILENT[case]()  # a warning is an error here


def test_the_cures_mean_what_they_say():
    """The loss of tokens is that of their rows, wherever the classes are."""
    tokens, target = drawn(2, 4, 4), labels(4, 2, 4)
    rows = MetricLoss("f1_macro")(tokens.reshape(-1, 4), target.flatten())
    assert torch.equal(MetricLoss("f1_macro", class_dim=-1)(tokens, target), rows)
    assert torch.equal(MetricLoss("f1_macro", class_dim=1)(tokens.mT, target), rows)
    many = labels(2, 2, 4, 4).float()
    expected = MetricLoss("f1_macro")(tokens.reshape(-1, 4), many.reshape(-1, 4))
    last = MetricLoss("f1_macro", class_dim=-1)
    assert torch.equal(last(tokens, many), expected)
    confusion = Confusion.from_logits(tokens, target, class_dim=-1)
    assert torch.equal(confusion.tp, Confusion.from_logits(tokens.mT, target, class_dim=1).tp)
    mask = MetricLoss("jaccard", class_dim=-1)(drawn(2, 4, 4, 1), labels(2, 2, 4, 4))
    assert torch.equal(
        mask, MetricLoss("jaccard")(drawn(2, 4, 4, 1).squeeze(-1).unsqueeze(1), labels(2, 2, 4, 4))
    )


def test_gradients_come_back_where_the_classes_were():
    tokens, target = drawn(2, 5, 4).requires_grad_(), labels(4, 2, 5)
    MetricLoss("f1_macro", class_dim=-1)(tokens, target).backward()
    rows = tokens.detach().reshape(-1, 4).requires_grad_()
    MetricLoss("f1_macro")(rows, target.flatten()).backward()
    assert torch.equal(tokens.grad.reshape(-1, 4), rows.grad)


def test_a_loss_doubts_its_first_batch_only():
    loss = DICE()
    with pytest.warns(UserWarning, match="exactly one 1"):
        loss(drawn(20, 3), ONE_HOT)
    loss(drawn(20, 3), ONE_HOT)
    sure = DICE()
    sure(drawn(2, 4, 5), labels(4, 2, 5))
    sure(drawn(2, 4, 4), labels(4, 2, 4))  # now it is known that the classes come second


def test_no_doubts_without_values():
    torch.func.vmap(DICE())(drawn(1, 20, 3), ONE_HOT.unsqueeze(0))
    DICE()(drawn(20, 3).to("meta"), ONE_HOT.to("meta"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_probabilities_for_logits_are_refused(dtype):
    text = r"logits of DiceLoss must be those before the softmax\. Got rows that look like probab"
    for shape, target in (((4, 3), labels(3, 4)), ((1, 3, 2, 2), labels(3, 1, 2, 2))):
        p = drawn(*shape).softmax(1).to(dtype)
        loss = DICE()
        for _ in range(2):
            with pytest.raises(ValueError, match=text):
                loss(p, target)
        loss(p.log(), target)
        loss(p, target)  # the first batch of a network tells
        with checked(), pytest.raises(ValueError, match=text):
            loss(p, target)


def test_logits_within_0_and_1_are_no_probabilities():
    """A fresh network may begin there: only rows that all sum to 1, and differ, are."""
    near = drawn(64, 3).softmax(1)
    near[-1, 0] += 0.01
    DICE()(near, labels(3, 64))
    DICE()(torch.full((8, 2), 0.5), labels(2, 8))
    DICE()(drawn(8, 1).sigmoid(), labels(2, 8, 1))
    DICE()(drawn(8, 3).softmax(1), labels(2, 8, 3).float())


def test_what_are_rows_of_probabilities():
    p = drawn(50, 7).softmax(1)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        assert rows_of_probabilities(p.to(dtype))
    assert not rows_of_probabilities(p.log())
    assert not rows_of_probabilities(2 * p)
    assert not rows_of_probabilities(torch.full((5, 4), 0.25))  # of a network that begins at zero
    assert not rows_of_probabilities(p[:0])


def test_255_beside_other_classes_is_left_out():
    with pytest.raises(ValueError, match=r"leave such rows out by ignore_index=255\."):
        DICE()(drawn(4, 3), torch.tensor([0, 1, 2, 255]))
    DICE(ignore_index=255)(drawn(4, 3), torch.tensor([0, 1, 2, 255]))
