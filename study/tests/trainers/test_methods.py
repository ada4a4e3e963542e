"""Every method trains in a stack; every name means what it says."""

import pytest
import torch
from evalign_study.data import card
from evalign_study.refuted.counted import offsets_from_counts
from evalign_study.trainers.following import FOLLOWING
from evalign_study.trainers.many import Member, fit_many
from evalign_study.trainers.methods import CLASSES, METHODS, NETWORKS, make
from torch import nn
from torch.nn import functional as F

from evalign import AlignedLoss
from evalign.training import Settings
from tests import tolerances

BINARY_ONLY = ("wmw", "btg_", "surf_")  # losses of one class against the other
COUNTS = {2: torch.tensor([90, 10]), 3: torch.tensor([50, 30, 20]), 10: torch.full((10,), 10)}


def classes_of(method):
    if "_dog_" in method or "_frog_" in method:
        return (10,)
    return (2,) if method.startswith(BINARY_ONLY) else (2, 3)


CASES = [(method, classes) for method in METHODS for classes in classes_of(method)]


@pytest.mark.parametrize(("method", "classes"), CASES)
def test_two_steps_in_a_stack(method, classes):
    torch.manual_seed(0)
    X, y = torch.randn(64, 4), torch.arange(64) % classes
    made = make(method, COUNTS[classes], "cifar10")
    annealing = {"rate": 0.9} if made.annealed else None
    members = [Member(made.loss, rate, seed, 0.1, annealing) for seed, rate in ((0, 0.1), (1, 0.2))]
    found = fit_many(
        lambda: nn.Linear(4, classes),
        members,
        X,
        y,
        validation=(X, y),
        metric=made.target,
        settings=Settings(epochs=1, batch_size=32),
    )
    for member, trained in zip(members, found, strict=True):
        torch.manual_seed(member.seed)
        before = nn.Linear(4, classes).weight
        assert trained.history[0]["validation_loss"] < 10
        assert not torch.allclose(trained.weights["weight"], before)


def test_f1_is_that_of_the_positive_class_or_macro():
    assert [make("east_f1", COUNTS[c]).target for c in (2, 3)] == ["f1", "f1_macro"]
    assert make("surf_0.5", COUNTS[2]).target == "f0.5"
    assert make("btg_f3", COUNTS[2]).target == "f3"
    assert make("anchored_mcc", COUNTS[3]).target == "matthews_corrcoef"
    assert make("cross_entropy", COUNTS[3]).target == "f1_macro"


def test_names_say_the_settings_of_our_loss():
    method = make("following_w0_m0.02_unweighted_f2", COUNTS[3])
    loss = method.loss
    assert (method.target, loss.metric_weight, loss.momentum) == ("f2_macro", 0, 0.02)
    assert loss.class_weight is None
    default = make("following_mcc", COUNTS[2]).loss
    usual = AlignedLoss("matthews_corrcoef")
    for name in ("metric", "metric_weight", "momentum", "class_weight"):
        assert getattr(default, name) == getattr(usual, name)
    with pytest.raises(ValueError, match="method of make must end in one of f1, mcc"):
        make("following_x1_f1", COUNTS[2])


def test_cross_entropy_is_torchs_own():
    torch.manual_seed(0)
    logits, y = torch.randn(50, 3), torch.arange(50) % 3
    value = make("cross_entropy", COUNTS[3]).loss(logits, y)
    torch.testing.assert_close(value, F.cross_entropy(logits, y))
    weight = (COUNTS[3].sum() / COUNTS[3]).float()
    balanced = (weight[y] * F.cross_entropy(logits, y, reduction="none")).mean()
    found = make("balanced_cross_entropy", COUNTS[3]).loss(logits, y)
    torch.testing.assert_close(found, balanced)


def test_the_fixed_threshold_differs_where_there_are_more_than_two_classes():
    torch.manual_seed(0)
    for classes in (2, 3):
        logits, y = torch.randn(60, classes), torch.arange(60) % classes
        fixed, dynamic = (
            make(name, COUNTS[classes]).loss(logits, y) for name in ("east_f1_fixed", "mcfbeta_f1")
        )
        same = torch.isclose(fixed, dynamic, rtol=0, atol=tolerances.FLOAT32)
        assert same.item() == (classes == 2)


def test_the_macro_soft_loss_of_surf_has_classes_of_one_weight():
    """It is SurF eq. 24 with p = ½, whatever the share of the positive class."""
    torch.manual_seed(0)
    logits, target = torch.randn(100, 2, dtype=torch.float64), torch.arange(100) // 90
    p = logits.softmax(1)[:, 1]
    missed, called = (1 - p[target == 1]).mean(), p[target == 0].mean()
    expected = 1 - 5 * 0.5 * (1 - missed) / (0.5 * (4 + 1 - missed - called) + called)
    found = make("balanced_macro_soft_2", COUNTS[2]).loss(logits, target)
    assert found.item() == pytest.approx(expected.item(), rel=tolerances.SAME)


def test_one_class_has_a_beta_of_its_own():
    for name, place in (("east_frog_0.25", 6), ("mcfbeta_dog_0.25", 5)):
        betas = make(name, COUNTS[10], "cifar10").target.beta
        assert betas == tuple(0.25 if c == place else 1.0 for c in range(10))
    assert card("cifar10").classes[CLASSES["dog"]["cifar10"]] == "dog"
    with pytest.raises(ValueError, match="dataset of make must have a dog: cifar10, caltech256"):
        make("east_dog_5", COUNTS[2], "adult")


def test_what_logits_lack_is_what_the_cross_entropy_added():
    """That is so for our recipe and its variants; the other methods have no offsets."""
    for method, classes in CASES:
        _, _, target, offsets = make(method, COUNTS[classes], "cifar10")
        assert (offsets is None) == method.startswith(FOLLOWING)  # those of the picked epoch
        if offsets is None:
            continue
        offsets = torch.as_tensor(offsets).expand(classes)
        expected = torch.zeros(classes)
        if method.startswith("anchored"):
            expected = COUNTS[classes].float().log() / 2
        elif method.startswith("aligned"):
            expected = offsets_from_counts(target, COUNTS[classes].double()).float()
        torch.testing.assert_close(offsets - offsets[0], expected - expected[0])


def test_one_logit_becomes_a_pair_of_the_same_probabilities():
    network, x = NETWORKS["mlp32"](5, 2, 0.0), torch.randn(7, 5)
    single = network[0](x).squeeze(1).sigmoid()
    torch.testing.assert_close(network(x).softmax(1)[:, 1], single)
    with pytest.raises(ValueError, match="n_classes of mlp32 must be 2"):
        NETWORKS["mlp32"](5, 3, 0.0)
