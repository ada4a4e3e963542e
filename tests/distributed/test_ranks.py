"""On many ranks the gradient is that of one process with all rows."""

import copy
from datetime import timedelta
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from evalign import AlignedLoss, DecisionFitter, MetricLoss, exact_backward, metrics
from evalign.losses import AUROCLoss, AveragePrecisionLoss, DiceLoss
from tests import dtype_tolerances, tolerances
from tests.distributed.processes import run
from tests.estimator.models import quick
from tests.ground.made import imbalanced

CLASSES = 4
# Rows per rank: even, uneven, and a rank without any.
SHARES = {"one": [11], "even": [6, 6], "uneven": [4, 3], "empty": [5, 0, 3], "four": [3, 1, 4, 2]}
KAPPA = metrics.CohenKappa(weights="quadratic")
LOSSES = {
    "O(classes)": partial(MetricLoss, "f1_macro"),
    "full matrix": partial(MetricLoss, KAPPA),
    "running": partial(MetricLoss, "matthews_corrcoef", momentum=0.3),
    "aligned": partial(AlignedLoss, "f1_macro"),
    "aligned, full matrix": partial(AlignedLoss, KAPPA),
    "aligned, weights": partial(AlignedLoss, "f1_macro", class_weight=[1, 2, 4, 9]),
    "aligned, shares": partial(AlignedLoss, "f1_macro", class_shares=[4, 3, 2, 1]),
    "aligned, balanced accuracy": partial(AlignedLoss, "balanced_accuracy", metric_weight=2.0),
    "aligned, smoothing": partial(AlignedLoss, "f1_macro", label_smoothing=0.1),
    "aligned by image": partial(AlignedLoss, "f1_macro", per_image=True),
    "dice": DiceLoss,
    "auroc": AUROCLoss,
    "average precision": AveragePrecisionLoss,
}


def network(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES)).to(dtype)


def rows(count, dtype, seed=1):
    """Make x, y with some ignored rows, and weights."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 5, generator=generator, dtype=dtype)
    y = torch.randint(CLASSES, (count,), generator=generator)
    y[::5] = -100
    return x, y, torch.rand(count, generator=generator, dtype=dtype)


def alone(shares, dtype=torch.float64):
    """The rows of all ranks together, of two steps."""
    return [rows(sum(shares), dtype, seed) for seed in (1, 2)]


def steps(model, loss, parts):
    """Compute values and gradients of some steps, all of which enter the running statistics."""
    answers = []
    for x, y, w in parts:
        model.zero_grad()
        value = loss(model(x), y, sample_weight=w)
        value.backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        answers.append((value.item(), [g.tolist() for g in gradients]))
    return answers


def parts_of(rank, shares, dtype):
    return [
        [part.split(shares)[rank] for part in rows(sum(shares), dtype, seed)] for seed in (1, 2)
    ]


def close(answer, expected, tolerance):
    for (value, gradients), (value0, gradients0) in zip(answer, expected, strict=True):
        assert value == pytest.approx(value0, abs=tolerance)
        for gradient, gradient0 in zip(gradients, gradients0, strict=True):
            pair = (torch.tensor(g, dtype=torch.float64) for g in (gradient, gradient0))
            torch.testing.assert_close(*pair, rtol=0, atol=tolerance)


def all_losses(rank, size, shares, dtype):
    answers = {}
    for name, make in LOSSES.items():
        model = DistributedDataParallel(network(dtype))
        answers[name] = steps(model, make(), parts_of(rank, shares, dtype))
    return answers


@pytest.mark.parametrize(
    ("shares", "dtype"),
    [
        ("one", torch.float64),
        ("even", torch.float32),
        ("uneven", torch.float64),
        ("empty", torch.float64),
        ("four", torch.float64),
    ],
)
def test_ddp_gives_value_and_gradient_of_all_rows(shares, dtype):
    shares = SHARES[shares]
    answers = run(all_losses, len(shares), shares, dtype)
    for name, make in LOSSES.items():
        expected = steps(network(dtype), make(), alone(shares, dtype))
        for answer in answers:
            close(answer[name], expected, dtype_tolerances.RANKS[dtype])


def fsdp(rank, size, shares, dtype):
    model = network(dtype)
    mesh = init_device_mesh("cpu", (size,))
    fully_shard(model, mesh=mesh)
    answers = []
    loss = MetricLoss("f1_macro")
    for x, y, w in parts_of(rank, shares, dtype):
        model.zero_grad()
        value = loss(model(x), y, sample_weight=w)
        value.backward()
        gradients = [p.grad.full_tensor().tolist() for p in model.parameters()]
        answers.append((value.item(), gradients))
    return answers


def test_fsdp_gives_the_gradient_of_all_rows():
    shares, dtype = SHARES["uneven"], torch.float64
    expected = steps(network(dtype), MetricLoss("f1_macro"), alone(shares, dtype))
    for answer in run(fsdp, len(shares), shares, dtype):
        close(answer, expected, dtype_tolerances.RANKS[dtype])


def exact(rank, size, shares, dtype, name):
    """Micro-batches of two rows; some ranks have more of them than others."""
    model = DistributedDataParallel(network(dtype))
    (x, y, w), _ = parts_of(rank, shares, dtype)
    loss = copy.deepcopy(LOSSES[name](ranks=dist.group.WORLD))  # the group is shared
    parts = x, y, w
    microbatches = list(zip(*(part.split(2) for part in parts), strict=True))
    value = exact_backward(loss, model, microbatches)
    return [(value.item(), [p.grad.tolist() for p in model.parameters()])]


@pytest.mark.parametrize("name", ["O(classes)", "aligned", "aligned, weights", "dice"])
def test_exact_backward_under_ddp(name):
    shares, dtype = SHARES["empty"], torch.float64
    expected = steps(network(dtype), LOSSES[name](), [rows(sum(shares), dtype)])
    for answer in run(exact, len(shares), shares, dtype, name):
        close(answer, expected, dtype_tolerances.RANKS[dtype])


def all_reduces(rank, size):
    """How often the ranks wait for each other in a step of AlignedLoss, after the first."""
    loss, counted = LOSSES["aligned"](), []
    x, y, _ = rows(4, torch.float64)
    loss(network(torch.float64)(x), y)
    alone = dist.all_reduce
    with patch.object(dist, "all_reduce", lambda *a, **k: (counted.append(1), alone(*a, **k))):
        loss(network(torch.float64)(x), y)
        loss.eval()(network(torch.float64)(x), y)
    return len(counted)


def test_aligned_loss_sums_once_in_training_and_never_in_evaluation():
    assert run(all_reduces, 2) == [1, 1]


def who_waits_for_whom(rank, size):
    """Evaluate, opt out and use another group, none of which waits for the other ranks."""
    x, y, _ = rows(8, torch.float64)
    logits = network(torch.float64)(x).detach().requires_grad_()
    half = (logits[:4], y[:4]) if rank == 0 else (logits[4:], y[4:])
    pair = dist.new_group([0, 1])
    answers = {}
    if rank == 0:
        answers["eval"] = MetricLoss("f1_macro").eval()(*half).item()
        with torch.no_grad():
            answers["no_grad"] = MetricLoss("f1_macro")(*half).item()
        answers["own"] = MetricLoss("f1_macro", ranks="own")(*half).item()
    if rank < 2:
        answers["group"] = MetricLoss("f1_macro", ranks=pair)(*half).item()
    else:
        answers["outside"] = MetricLoss("f1_macro", ranks=pair)(*half).item()
    dist.barrier()
    return answers


def test_only_training_on_the_group_asked_for_waits_for_other_ranks():
    x, y, _ = rows(8, torch.float64)
    logits = network(torch.float64)(x)
    loss = MetricLoss("f1_macro")
    first, last, both = (loss(logits[s], y[s]).item() for s in (slice(4), slice(4, 8), slice(8)))
    zero, one, two = run(who_waits_for_whom, 3)
    approx = lambda value: pytest.approx(value, abs=tolerances.SAME)  # noqa: E731
    assert zero == {
        "eval": approx(first),
        "no_grad": approx(first),
        "own": approx(first),
        "group": approx(both),
    }
    assert one == {"group": approx(both)}
    assert two == {"outside": approx(last)}


LEARN = {
    "plain": {},
    "smooth": {"label_smoothing": 0.1},
    "shares": {"class_shares": [4, 3, 2, 1]},
    "balanced": {"class_weight": "balanced"},
}


def learnt(steps):
    answers = []
    for settings in LEARN.values():
        loss = AlignedLoss("f1_macro", **settings)
        for x, y, w in 2 * steps:
            loss(network(torch.float64)(x), y, sample_weight=w)
        state = {**loss.state_dict(), "score": loss.score}
        answers.append({name: value.tolist() for name, value in state.items()})
    return answers


def learnt_by_rank(rank, size):
    return learnt(parts_of(rank, [4, 3], torch.float64))


def test_what_is_learnt_is_that_of_all_rows():
    """Statistics, counts, offsets and score, of ranks with four and three rows."""
    first, second = run(learnt_by_rank, 2)
    assert first == second
    for state, expected in zip(first, learnt([*alone([4, 3])]), strict=True):
        assert state["running.seen"] > 0
        assert state.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(
                torch.tensor(state[name]), torch.tensor(value), rtol=0, atol=1e-6, msg=name
            )


def own_estimator(rank, size):
    X, y = imbalanced(200, classes=3, seed=rank)
    return [quick(recipe=recipe, epochs=2).fit(X, y).predict_proba(X).tolist() for recipe in OWN]


OWN = ["east", "aligned"]


@pytest.mark.filterwarnings("ignore::evalign.training.TrainingWarning")
def test_estimators_of_several_processes_do_not_mix():
    for rank, found in enumerate(run(own_estimator, 2)):
        assert found == own_estimator(rank, 1)


def other_classes(rank, size, aligned):
    logits = torch.randn(4, 3 + rank, requires_grad=True)
    loss = AlignedLoss("f1_macro") if aligned else MetricLoss("f1_macro")
    try:
        loss(logits, torch.tensor([0, 1, 2, 0]))
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("aligned", [False, True])
def test_ranks_must_agree_on_the_classes(aligned):
    for text in run(other_classes, 2, aligned):
        assert "Loss must have the same number of classes on every rank" in text
        assert "[3, 4] classes" in text


def dies(rank, size):
    loss, logits = MetricLoss("f1_macro"), torch.randn(4, 3, requires_grad=True)
    y = torch.tensor([0, 1, 2, 0])
    loss(logits, y)
    if rank == 1:
        return "stopped"  # and takes its process group with it
    try:
        loss(logits, y)
    except RuntimeError as error:
        return str(error)


def test_a_rank_that_stops_is_an_error_on_the_others():
    text, _ = run(dies, 2)
    assert "could not sum over 2 ranks: one of them stopped" in text


def never_calls(rank, size):
    group, text = dist.new_group(timeout=timedelta(seconds=1)), "late"
    if rank == 0:
        try:
            logits = torch.randn(4, 3, requires_grad=True)
            MetricLoss("f1_macro", ranks=group)(logits, torch.tensor([0, 1, 2, 0]))
        except RuntimeError as error:
            text = str(error)
    dist.barrier()  # of the group of all, until which the other one lives
    return text


def test_a_rank_that_never_calls_is_an_error_after_the_timeout():
    text, _ = run(never_calls, 2)
    assert "did not call the loss in training mode" in text


@pytest.mark.parametrize("ranks", ["none", 3, None])
def test_ranks_are_checked(ranks):
    with pytest.raises(ValueError, match='ranks of MetricLoss must be "all", "own" or a process'):
        MetricLoss("f1_macro", ranks=ranks)


def made_scores(classes):
    """Make scores of two batches; for many labels a row, a target of their shape."""
    generator = torch.Generator().manual_seed(0)
    columns = classes or 3
    logits = torch.randn(2, 300, columns, generator=generator)
    y = (logits + torch.randn(2, 300, columns, generator=generator)).argmax(-1)
    return logits, y if classes else (logits + 0.5 > 0).long()


def fitter_for(classes):
    # A search among four classes would load more of torch in every process, for seconds.
    return DecisionFitter("f1_macro", decision="argmax" if classes == 4 else "expected")


def rules(rank, size):
    """Fit rules where the second of three ranks has no rows."""
    answers = []
    for classes in (2, 4, 0):
        fitter = fitter_for(classes)
        for logits, y in zip(*made_scores(classes), strict=True):
            if rank != 1:
                part = slice(rank // 2, None, 2)
                fitter.update(logits[part], y[part])
        # A group may have several backends: the rank without rows asks the others for the device.
        with patch.object(dist, "get_backend", return_value="nccl"):
            rule = fitter.compute()
        answers.append((rule.gain.tolist(), rule.rows, rule.class_prior.tolist()))
    return answers


def test_a_rule_of_all_ranks_is_that_of_one():
    answers = run(rules, 3)
    assert answers[0] == answers[1] == answers[2]
    for classes, (gain, count, prior) in zip((2, 4, 0), answers[0], strict=True):
        fitter = fitter_for(classes)
        for logits, y in zip(*made_scores(classes), strict=True):
            fitter.update(logits, y)
        alone = fitter.compute()
        assert count == alone.rows == 600
        assert prior == pytest.approx(alone.class_prior.tolist(), abs=tolerances.SAME)
        np.testing.assert_allclose(gain, alone.gain, rtol=0, atol=tolerances.SAME)
