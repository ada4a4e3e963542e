"""Running statistics: the average's value, the batch's gradient, state, edges."""

import copy
import re

import pytest
import torch

from evalign import AlignedLoss, Confusion, MetricLoss, metrics
from evalign.aggregation import RunningConfusion
from evalign.losses import AveragePrecisionLoss
from tests import tolerances


def batches(count=4, rows=12, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        logits = torch.randn(rows, 3, generator=generator, dtype=dtype)
        yield logits.requires_grad_(), torch.randint(3, (rows,), generator=generator)


@pytest.mark.parametrize(
    "metric", ["f1_macro", "matthews_corrcoef", metrics.ExpectedCost([[0, 1, 2]] * 3)]
)
def test_value_of_the_average_gradient_of_the_batch(metric):
    momentum = 0.3
    loss = MetricLoss(metric, momentum=momentum)
    plain = MetricLoss(metric)
    seen: list[Confusion] = []
    for logits, target in batches():
        value = loss(logits, target)
        (gradient,) = torch.autograd.grad(value, logits)

        soft = Confusion.from_logits(logits, target, matrix=True)
        seen.append(soft.detach())
        weights = [momentum * (1 - momentum) ** k for k in reversed(range(len(seen)))]
        average = sum(w / sum(weights) * c for w, c in zip(weights, seen, strict=True))
        at_average = average.map(lambda x: x.clone().requires_grad_())
        score = plain.metric(at_average)
        expected = 1 - score if plain.metric.greater_is_better else score
        torch.testing.assert_close(value, expected.detach(), rtol=0, atol=tolerances.SAME)

        parts = [(getattr(at_average, p), getattr(soft, p)) for p in ("tp", "predicted", "full")]
        slopes = torch.autograd.grad(expected, [a for a, _ in parts], allow_unused=True)
        linear = sum(
            (slope * attached).sum()
            for slope, (_, attached) in zip(slopes, parts, strict=True)
            if slope is not None
        )
        (expected_gradient,) = torch.autograd.grad(linear, logits)
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=tolerances.SAME)


def test_first_batch_and_momentum_one_are_the_batch():
    running, alone = MetricLoss("f1_macro", momentum=0.1), MetricLoss("f1_macro")
    last = MetricLoss("f1_macro", momentum=1.0)
    for k, (logits, target) in enumerate(batches()):
        expected = alone(logits, target)
        torch.testing.assert_close(last(logits, target), expected)
        value = running(logits, target)
        assert torch.isclose(value, expected) == (k == 0)


def test_looking_does_not_count():
    """In eval mode and without gradients, the value is the batch's own metric, and nothing is
    stored.
    """
    loss, plain = MetricLoss("f1_macro", momentum=0.1), MetricLoss("f1_macro")
    first, second = list(batches(2))
    loss(*first)
    before = copy.deepcopy(loss.state_dict())
    with torch.no_grad():
        assert torch.equal(loss(*second), plain(*second))
    assert torch.equal(loss.eval()(*second), plain(*second))
    assert all(torch.equal(before[k], v) for k, v in loss.state_dict().items())


# The first is moved by a kernel, the second by `RunningConfusion`.
MOVED = ["f1_macro", metrics.ExpectedCost([[0, 1, 2], [1, 0, 1], [2, 1, 0]])]


@pytest.mark.parametrize("metric", MOVED)
def test_ignored_rows_change_nothing(metric):
    loss = MetricLoss(metric, momentum=0.1)
    nothing = torch.full((12,), -100)
    first, second = list(batches(2))
    assert loss(first[0], nothing) == 0  # before anything was seen
    loss(*first)
    before = copy.deepcopy(loss.state_dict())
    value = loss(second[0], nothing)
    value.backward()
    assert value == 0
    assert (second[0].grad == 0).all()
    assert all(torch.equal(before[k], v) for k, v in loss.state_dict().items())


def test_before_any_row_the_average_is_that_of_no_rows():
    average = RunningConfusion(0.1)(Confusion.from_matrix(torch.zeros(3, 3)))
    assert all((part == 0).all() for part in average.tensors())


@pytest.mark.parametrize("metric", MOVED)
@pytest.mark.parametrize("mistake", [torch.nan, torch.inf])
def test_a_batch_that_is_not_finite_leaves_no_trace(mistake, metric):
    """Float16 may overflow once; the scaler then skips that step, and training goes on."""
    loss, other = (MetricLoss(metric, momentum=0.1) for _ in range(2))
    first, wrong, *last = batches()
    for batch in (first, *last):
        other(*batch)
    wrong = wrong[0].detach().clone().fill_(mistake).requires_grad_(), wrong[1]
    assert loss(*wrong).isnan()
    loss(*first)
    assert loss(*wrong).isnan()
    for batch in last:
        loss(*batch)
    for name, buffer in other.running.named_buffers():
        assert torch.equal(loss.running.get_buffer(name), buffer)


class Own(torch.Tensor):
    """A tensor of another library's kind, as those of fastai are."""


@pytest.mark.parametrize(
    "loss", [AlignedLoss("f1_macro"), AveragePrecisionLoss()], ids=["aligned", "curve"]
)
def test_other_kinds_of_tensors_are_kept_as_plain_ones(loss):
    """A state of theirs could not be loaded without their library."""
    for logits, target in batches():
        loss(logits.as_subclass(Own), target.as_subclass(Own))
    assert {type(value) for value in loss.state_dict().values()} == {torch.Tensor}


def test_a_state_in_half_precision_becomes_double_again():
    trained = AlignedLoss("f1_macro")
    first, second, *_ = batches()
    trained(*first)
    half = {name: value.bfloat16() for name, value in trained.state_dict().items()}
    loss = AlignedLoss("f1_macro")
    loss.load_state_dict(half)
    for other in (loss, copy.deepcopy(trained).half()):
        assert {value.dtype for value in other.state_dict().values()} == {torch.float64}
    # Three digits are left of the counts and sums.
    torch.testing.assert_close(loss(*second), trained(*second), rtol=0.01, atol=0)


def test_built_on_the_meta_device():
    with torch.device("meta"):
        loss = MetricLoss("f1_macro", momentum=0.1)
    loss, trained = loss.to_empty(device="cpu"), MetricLoss("f1_macro", momentum=0.1)
    first, second, *_ = batches()
    trained(*first)
    loss.load_state_dict(trained.state_dict())
    assert torch.equal(loss(*second), trained(*second))


# Graphs take seconds. That of AlignedLoss, whose average is the same, is compiled in every run.
@pytest.mark.parametrize(
    ("metric", "backend"),
    [
        pytest.param("matthews_corrcoef", "aot_eager", marks=pytest.mark.slow),
        pytest.param("f1_macro", "aot_eager", marks=pytest.mark.slow),
        pytest.param("accuracy", "aot_eager", marks=pytest.mark.slow),
        # It computes things again in its backward pass; the compiler alone takes ten seconds.
        pytest.param("matthews_corrcoef", "inductor", marks=pytest.mark.slow),
    ],
)
def test_compiled_as_eager_over_several_batches(metric, backend):
    """The state after a batch must reach the next one, in value and gradient."""
    torch._dynamo.reset()  # of what other tests have compiled, which counts against a limit
    eager, other = (MetricLoss(metric, momentum=0.1) for _ in range(2))
    compiled = torch.compile(other, fullgraph=True, backend=backend)
    for logits, target in batches():
        value, expected = compiled(logits, target), eager(logits, target)
        torch.testing.assert_close(value, expected, rtol=0, atol=tolerances.SAME)
        slopes = (torch.autograd.grad(loss, logits)[0] for loss in (value, expected))
        torch.testing.assert_close(*slopes, rtol=0, atol=tolerances.SAME)
    assert torch.equal(other.running.seen, eager.running.seen)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"momentum": 1.5}, "momentum of MetricLoss must lie in (0, 1]"),
        ({"per_image": True}, "momentum of MetricLoss must be None with per_image: the metric of"),
    ],
)
def test_bad_settings_and_batches(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        MetricLoss("f1", **{"momentum": 0.1, **settings})
    loss = MetricLoss("f1_macro", momentum=0.1)
    loss(*next(batches()))
    with pytest.raises(
        ValueError, match=r"MetricLoss must keep the classes and the metric of the b"
    ):
        loss(torch.randn(5, 4, dtype=torch.float64), torch.zeros(5, dtype=torch.int64))


@pytest.mark.parametrize(
    "make",
    [
        lambda: MetricLoss("f1_macro", momentum=0.1),
        lambda: AlignedLoss("f1_macro"),
    ],
)
def test_statistics_without_their_sums_start_afresh(make):
    """As torch.distributed.checkpoint leaves them, which fills in what a new loss has."""
    *earlier, (logits, target) = batches()
    trained, loss, new = make(), make(), make()
    for batch in earlier:
        trained(*batch)
    state = {name: trained.state_dict()[name] for name in loss.state_dict()}
    loss.load_state_dict(state)
    slopes = [torch.autograd.grad(one(logits, target), logits)[0] for one in (loss, new)]
    torch.testing.assert_close(*slopes, rtol=0, atol=tolerances.SAME)
    loss.load_state_dict(trained.state_dict())  # there is a place for the sums now
    slopes = [torch.autograd.grad(one(logits, target), logits)[0] for one in (loss, trained)]
    torch.testing.assert_close(*slopes, rtol=0, atol=tolerances.SAME)
