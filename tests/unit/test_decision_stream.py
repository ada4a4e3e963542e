"""A rule from a stream is that of all rows, up to the bins or the sample."""

import pytest
import torch

from evalign import DecisionFitter, fit_decision
from evalign.decisions.stream_memory import WIDTH, keys
from tests.unit.test_decisions import problem, value


def threshold(rule):
    """Compute the log-odds above which the label is 1."""
    gain = rule.gain.diagonal(dim1=-2, dim2=-1)
    return (gain[..., 0] / gain[..., 1]).log().flatten()


def stream(fitter, logits, y, weight=None, parts=7):
    for k in range(parts):
        part = slice(k, None, parts)
        fitter.update(logits[part], y[part], sample_weight=None if weight is None else weight[part])
    return fitter


def on_grid(logits):
    """Move log-odds of two classes to the middle of their bins, where nothing is lost."""
    z = logits[:, 1] - logits[:, 0]
    return ((z / WIDTH).floor() + 0.5) * WIDTH


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_default_dtype_of_torch_changes_nothing(classes, dtype):
    logits, y = problem(classes, 600, ratio=3.0)

    def rules():
        streamed = stream(DecisionFitter("f1_macro"), logits, y).compute()
        return streamed, fit_decision(logits, y, metric="f1_macro")

    usual, expected = torch.get_default_dtype(), rules()
    torch.set_default_dtype(dtype)
    try:
        found = rules()
    finally:
        torch.set_default_dtype(usual)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.gain, other.gain)
        assert one.score == other.score


@pytest.mark.parametrize("class_dim", [0, 1, -1])
def test_the_rule_reads_classes_where_the_batches_have_them(class_dim):
    logits, y = problem(3, 600, ratio=3.0)
    how = {"metric": "f1_macro", "class_dim": class_dim}
    given = logits.movedim(1, class_dim)
    fitter = DecisionFitter(**how)
    fitter.update(given, y)
    few = given.narrow(1 if class_dim == 0 else 0, 0, 3)  # as many rows as classes
    assert torch.equal(fitter.compute()(few), fit_decision(given, y, **how)(few))


@pytest.mark.parametrize("decision", ["tuned", "expected", "argmax"])
@pytest.mark.parametrize("metric", ["f1", "matthews_corrcoef"])
def test_two_classes_are_exact_to_the_bin(metric, decision):
    logits, y = problem(2, 8000, ratio=3.0)
    weight = torch.rand(8000, generator=torch.Generator().manual_seed(0)).double()
    z = on_grid(logits)
    how = {"metric": metric, "decision": decision}
    expected = fit_decision(z, y, sample_weight=weight, **how)
    rule = stream(DecisionFitter(**how), z, y, weight).compute()
    assert rule.source == expected.source
    assert threshold(rule) == pytest.approx(threshold(expected), abs=1e-9)
    assert rule.class_prior == pytest.approx(expected.class_prior, abs=1e-9)
    assert rule.rows == expected.rows
    # Off the grid the score is lower by what the rows of one bin may cost.
    near = stream(DecisionFitter(**how), logits, y, weight).compute()
    best = value(metric, fit_decision(logits, y, sample_weight=weight, **how)(logits), y, 2, weight)
    assert value(metric, near(logits), y, 2, weight) == pytest.approx(best, abs=2e-3)


def test_rows_that_stand_for_bins_are_as_many_as_are_enough():
    """Of 1500 rows of each class there are two in a bin; they have the mass of all of them."""
    fitter = DecisionFitter("f1")
    fitter.update(torch.linspace(-20, 20, 1500).repeat(2), torch.arange(3000) % 2)
    _, labels, weight = fitter._memory.rows()
    for label in (0, 1):
        assert (labels == label).sum() >= 1000  # with which labels decide alone
        assert weight[labels == label].sum().item() == pytest.approx(1500)


@pytest.mark.parametrize("decision", ["tuned", "expected"])
def test_more_classes_keep_all_rows_there_is_room_for(decision):
    logits, y = problem(3, 9000, ratio=2.0)
    how = {"metric": "f1_macro", "decision": decision}
    expected = fit_decision(logits, y, **how)
    rule = stream(DecisionFitter(**how), logits, y).compute()
    assert rule.source == expected.source
    fresh, _ = problem(3, 5000, 1, ratio=2.0)
    assert (rule(fresh) == expected(fresh)).double().mean() > 0.999  # the sample is in float32


@pytest.mark.parametrize("classes", [2, 3])
def test_a_confidence_is_that_of_the_rows(classes):
    """As in `fit_decision`: a histogram would not know how many rows there are."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(classes, (600,), generator=generator)
    logits = torch.randn(600, classes, generator=generator) + 2 * torch.eye(classes)[y]
    how = {"metric": "precision_macro", "constraint": "recall[1] >= 0.8", "confidence": 0.9}
    fitter = DecisionFitter(**how)
    for part in zip(logits.split(100), y.split(100), strict=True):
        fitter.update(*part)
    found, expected = fitter.compute(), fit_decision(logits, y, **how)
    assert found.promised
    assert found.confidence == 0.9
    assert torch.equal(found(logits), expected(logits))


def test_a_sample_is_even_and_weighs_what_all_rows_weigh():
    logits, y = problem(4, 40_000, ratio=20.0)
    fitter = stream(DecisionFitter("f1_macro", max_rows=4000), logits, y)
    kept, labels, weight = fitter._memory.rows()
    assert len(kept) <= 4000
    assert labels.bincount().tolist() == y.bincount().clamp(max=1000).tolist()
    share = torch.zeros(4, dtype=torch.float64).index_add(0, labels, weight) / weight.sum()
    torch.testing.assert_close(share, y.bincount().double() / len(y))
    for c in range(4):  # means of a class differ by less than five standard errors
        sampled, whole = (x - x.amax(1, keepdim=True) for x in (kept[labels == c], logits[y == c]))
        error = whole.std(0) / len(sampled) ** 0.5
        assert ((sampled.mean(0) - whole.mean(0)).abs() < 5 * error + 1e-6).all()
    rule, expected = fitter.compute(), fit_decision(logits, y, metric="f1_macro")
    fresh, labels = problem(4, 20_000, 1)
    scores = [value("f1_macro", one(fresh), labels, 4) for one in (rule, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=0.01)


@pytest.mark.parametrize("size", [1, 64, 900])
def test_a_sample_is_the_same_however_rows_are_batched(size):
    logits, y = problem(4, 900, ratio=3.0)
    fitter, place = DecisionFitter("f1_macro", max_rows=80), torch.empty_like(logits[:size])
    for part, labels in zip(logits.split(size), y.split(size), strict=True):
        place[: len(part)] = part  # as a captured graph writes every batch to one place
        fitter.update(place[: len(part)], labels)
    kept, labels, _ = fitter._memory.rows()
    # Of each class, the rows with the smallest keys.
    order, whole = keys(0, 900, y.device), []
    for c in range(4):
        own = (y == c).nonzero().flatten()
        whole.append(own[order[own].argsort()][:20])
    assert torch.equal(labels, y[torch.cat(whole)])
    expected = logits[torch.cat(whole)]
    torch.testing.assert_close(kept.softmax(1), expected.softmax(1), check_dtype=False)


def test_images_with_ignored_pixels_and_probabilities():
    logits, y = problem(3, 9000, ratio=2.0)
    images, labels = logits.view(9, 10, 100, 3).movedim(-1, 1), y.view(9, 10, 100).clone()
    labels[:, 0] = 255
    how = {"metric": "jaccard_macro", "ignore_index": 255}
    fitter = DecisionFitter(**how)
    for k in range(3):
        part = slice(3 * k, 3 * k + 3)
        fitter.update(y=labels[part], probabilities=images[part].softmax(1).numpy())
    rule, expected = fitter.compute(), fit_decision(images, labels, **how)
    assert rule.rows == expected.rows == 8100
    assert (rule(images) == expected(images)).double().mean() > 0.999


def test_many_labels():
    logits, y = problem(2, 6000, ratio=2.0)
    z = on_grid(logits).view(2000, 3)
    labels = y.view(2000, 3).clone()
    labels[::7, 1] = -100
    for how in ({"metric": "f1_macro", "decision": "expected"}, {"metric": "f1_micro"}):
        expected = fit_decision(z, labels, **how)
        rule = stream(DecisionFitter(**how), z, labels).compute()
        assert rule.task == "multilabel"
        assert rule.rows == (6000 - 286) // 3  # on average, without the 286 that are ignored
        if how.get("decision"):
            assert threshold(rule) == pytest.approx(threshold(expected), abs=1e-9)
        assert rule.score == pytest.approx(expected.score, abs=0.01)
        assert rule.class_prior == pytest.approx(expected.class_prior, abs=1e-9)


def test_reset_forgets_all_rows():
    logits, y = problem(3, 300)
    fitter = stream(DecisionFitter("f1_macro", decision="expected"), logits, y)
    first = fitter.compute()
    assert torch.equal(fitter.compute().gain, first.gain)  # and compute does not
    fitter.reset()
    with pytest.raises(ValueError, match=r"rows of DecisionFitter must hold at least one.*update"):
        fitter.compute()
    two, labels = problem(2, 300)
    assert stream(fitter, two, labels).compute().task == "binary"


def test_wrong_input_is_told():
    logits, y = problem(3, 30)
    fitter = DecisionFitter("f1_macro")
    with pytest.raises(ValueError, match="y of DecisionFitter must hold labels for tuned"):
        fitter.update(logits)
    with pytest.raises(ValueError, match=r"y of DecisionFitter must have shape \(30,\)"):
        fitter.update(logits, y[:7])
    fitter.update(logits, y)
    with pytest.raises(ValueError, match=r"be multiclass with 3 columns, as before. Got .* with 2"):
        fitter.update(logits[:, :2], y.clamp(max=1))
    assert fitter.compute().rows == 30
    with pytest.raises(ValueError, match="ranks of DecisionFitter must be one of all, own"):
        DecisionFitter("f1", ranks="some")
    with pytest.raises(ValueError, match="max_rows of DecisionFitter must be at least 1"):
        DecisionFitter("f1", max_rows=0)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["logits", "probabilities", "y", "sample_weight"])
def test_wrong_values_are_refused_and_leave_no_trace(classes, name):
    logits, y = problem(classes, 30)
    given = {"y": y.clone(), "sample_weight": torch.ones(30)}
    given |= {"probabilities": logits.softmax(1)} if name == "probabilities" else {"logits": logits}
    given[name].view(30, -1)[4:7, 0] = {"logits": torch.nan, "y": 7}.get(name, -1)
    fitter = DecisionFitter("f1_macro")
    with pytest.raises(ValueError, match=f"^{name} of DecisionFitter must"):
        fitter.update(**given)
    fitter.update(*problem(classes, 30))
    assert fitter.compute().rows == 30


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["logits", "probabilities", "y", "sample_weight"])
def test_values_that_update_may_not_read_are_refused_by_compute(classes, name, monkeypatch):
    """As on a GPU, where reading them would wait."""
    monkeypatch.setattr("evalign.decisions.fitter.values_readable", lambda tensor: False)
    logits, y = problem(classes, 30)
    given = {"y": y.clone(), "sample_weight": torch.ones(30)}
    given |= {"probabilities": logits.softmax(1)} if name == "probabilities" else {"logits": logits}
    fitter, expected = DecisionFitter("f1_macro"), DecisionFitter("f1_macro", ranks="own")
    fitter.update(**given)
    expected.update(logits, y)
    torch.testing.assert_close(fitter.compute().gain, expected.compute().gain)
    given[name].view(30, -1)[4:7, 0] = {"logits": torch.nan, "y": 7}.get(name, -1)
    fitter.update(**given)
    with pytest.raises(ValueError, match="rows of DecisionFitter must hold finite scores, labels"):
        fitter.compute()


@pytest.mark.parametrize("classes", [2, 3])
def test_an_empty_batch_adds_nothing(classes):
    logits, y = problem(classes, 30)
    fitter = DecisionFitter("f1_macro", decision="expected")
    fitter.update(logits, y)
    fitter.update(logits, torch.full_like(y, -100))
    for none in (logits[:0], logits[:0].numpy(), []):
        fitter.update(none, y[:0])
        fitter.update(probabilities=none, y=[])
    assert fitter.compute().rows == 30
    with pytest.raises(ValueError, match=r"one of the two. Got neither"):
        fitter.update(y=y[:0])


@pytest.mark.parametrize("classes", [2, 3])
def test_without_labels_probabilities_decide(classes):
    logits, y = problem(classes, 3000)
    z = on_grid(logits) if classes == 2 else logits
    how = {"metric": "f1_macro", "decision": "expected"}
    expected, fitter = fit_decision(z, **how), DecisionFitter(**how)
    some = [*[None] * 5, y[2500:]]  # the labels of a part must not make class 0 of all others
    for part, known in zip(z.split(500), some, strict=True):
        fitter.update(part, known)
    rule = fitter.compute()
    assert rule.class_prior == pytest.approx(expected.class_prior, abs=1e-6)
    assert (rule(z) == expected(z)).double().mean() > 0.999
