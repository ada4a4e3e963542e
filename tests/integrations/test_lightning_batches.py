"""Batches, losses and predictions of Lightning, as people have them."""

import math

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from sklearn.metrics import f1_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers.modeling_outputs import TokenClassifierOutput

from evalign import AlignedLoss, MetricLoss, losses
from evalign.integrations.lightning import AlignedModule
from evalign.training.validation import hard_confusion, hard_labels
from tests import tolerances
from tests.integrations.engines import CLASSES, made_rows
from tests.integrations.test_lightning import QUIET, Descent, network

LEFT_OUT = 255


def loader(*batches):
    return DataLoader(batches, batch_size=None)


class Sum(nn.Module):
    """A loss of two parts that does not say itself which rows it leaves out."""

    def __init__(self, first=LEFT_OUT, second=LEFT_OUT):
        super().__init__()
        self.cross_entropy = nn.CrossEntropyLoss(ignore_index=first)
        self.dice = losses.DiceLoss(ignore_index=second)

    def forward(self, logits, target):
        return self.cross_entropy(logits, target) + self.dice(logits, target)


class Unknown(nn.Module):
    """A loss that says it although torch leaves the rows out."""

    ignore_index = LEFT_OUT

    def forward(self, logits, target):
        return nn.functional.cross_entropy(logits, target, ignore_index=LEFT_OUT)


@pytest.mark.parametrize(
    "loss",
    [Sum(), MetricLoss("f1_macro", ignore_index=LEFT_OUT), Unknown()],
    ids=["parts", "loss", "attribute"],
)
def test_rows_that_the_loss_leaves_out_are_not_evaluated(loss):
    x, y = made_rows(40)
    y[::5] = LEFT_OUT
    fitted = AlignedModule(network(), loss, "f1_macro")
    batches = DataLoader(TensorDataset(x, y), batch_size=8)
    trainer = Trainer(max_epochs=1, **QUIET)
    trainer.fit(fitted, batches, batches)
    with torch.no_grad():
        labels = fitted(x).argmax(1)
    expected = f1_score(y[y != LEFT_OUT], labels[y != LEFT_OUT], average="macro")
    found = trainer.callback_metrics["val_metric"].item()
    assert found == pytest.approx(expected, abs=tolerances.FLOAT32)
    assert fitted.rule.rows == 32


def test_a_function_is_not_a_loss():
    with pytest.raises(ValueError, match=r"loss of AlignedModule must be a .* CrossEntropyLoss"):
        AlignedModule(network(), nn.functional.cross_entropy, "f1_macro")


@pytest.mark.parametrize(
    "loss", [AlignedLoss("f1_macro", task="multiclass"), nn.CrossEntropyLoss()], ids=str
)
def test_rows_of_probabilities_are_evaluated_as_their_likeliest_class(loss):
    x, y = made_rows(60)
    soft = 0.9 * nn.functional.one_hot(y, CLASSES).double() + 0.1 / CLASSES
    found = []
    for target in (y, soft):
        fitted = AlignedModule(network(), loss, "f1_macro")
        trainer = Trainer(**QUIET)
        trainer.validate(fitted, loader((x, target)), verbose=False)
        found.append((trainer.callback_metrics["val_metric"], fitted.rule.gain))
    assert found[0][0] == found[1][0]
    assert np.array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize(
    ("task", "dim", "soft", "hard"),
    [
        (None, None, [[0.2, 0.8]], [[0.2, 0.8]]),
        ("multiclass", 1, [[0.2, 0.8], [LEFT_OUT, 0.5]], [1, LEFT_OUT]),
        ("multiclass", -1, [[[0.2, 0.8], [0.7, 0.3]]], [[1, 0]]),
        ("multilabel", None, [[0.2, 0.8], [LEFT_OUT, 0.5]], [[0, 1], [LEFT_OUT, 0]]),
        ("binary", None, [0.2, 0.8, LEFT_OUT], [0, 1, LEFT_OUT]),
    ],
)
def test_the_labels_of_probabilities(task, dim, soft, hard):
    found = hard_labels(torch.tensor(soft), task, LEFT_OUT, dim)
    assert found.tolist() == torch.tensor(hard).tolist()


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_a_target_of_nan_is_refused_where_values_are_not_read(task, monkeypatch):
    """As on a GPU; the score and the rule would be those of another label."""
    monkeypatch.setattr("evalign.membership.rows.values_readable", lambda tensor: False)
    logits, target = torch.randn(6, 3), torch.full((6, 3), 1 / 3)
    target[2, 1] = math.nan
    if task == "binary":
        logits, target = logits[:, 1], target[:, 1]
    with pytest.raises(ValueError, match=r"target of an evaluation must hold .* Got NaN"):
        hard_confusion(logits, target, task=task)


def test_parts_that_disagree_are_refused():
    with pytest.raises(ValueError, match=r"loss of Sum must have one ignore_index .* -100, 255"):
        AlignedModule(network(), Sum(second=-100), "f1_macro")


class Named(nn.Module):
    """A network that is called with names."""

    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, features, scale):
        return self.network(features * scale.unsqueeze(1))


@pytest.mark.parametrize("size", [None, 5])
def test_a_dict_trains_as_a_tuple(size):
    x, y = made_rows(24)
    weight = torch.rand(24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scale = torch.full((24,), 2.0, dtype=torch.float64)
    as_tuple = (x * 2, y, weight)
    as_dict = {"features": x, "scale": scale, "labels": y, "sample_weight": weight}
    found = []
    for model, batch in ((network(), as_tuple), (Named(), as_dict)):
        loss = MetricLoss("f1_macro")
        fitted = Descent(model, loss, "f1_macro", learning_rate=1.0, microbatch_size=size)
        trainer = Trainer(max_epochs=2, **QUIET)
        trainer.fit(fitted, loader(batch), loader(batch))
        score = trainer.callback_metrics["val_metric"].item()
        found.append(([p.detach() for p in fitted.network.parameters()], score))
    for weights, score in found[1:]:
        torch.testing.assert_close(weights, found[0][0], rtol=0, atol=1e-12)
        assert score == found[0][1]


def test_a_batch_without_a_target_says_where_it_belongs():
    fitted, (x, y) = AlignedModule(network(), MetricLoss("f1_macro"), "f1_macro"), made_rows(8)
    for batch in ({"features": x, "truth": y}, [x]):
        with pytest.raises(ValueError, match=r"a batch of AlignedModule must .* dict with labels"):
            fitted.training_step(batch, 0)
    with pytest.raises(ValueError, match="too many values to unpack"):
        fitted.training_step((x, y, y, y), 0)


class Silent(AlignedModule):
    """Validates in its own way, by the arguments that Lightning documents."""

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)


def test_a_validation_of_ones_own_leaves_the_test_alone():
    rows = loader(made_rows(60))
    fitted, trainer = Silent(network(), MetricLoss("f1_macro"), "f1_macro"), Trainer(**QUIET)
    trainer.validate(fitted, rows, verbose=False)
    assert not any(fitted._evaluation._fitter._parts.values())  # the rule is fitted: no rows stay
    (found,) = trainer.test(fitted, rows, verbose=False)
    assert found.keys() == {"test_metric", "test_metric_argmax"}


def test_predict_gives_the_labels_of_the_rule():
    x, y = made_rows(60)
    loss = AlignedLoss("f1_macro")
    fitted = AlignedModule(network(), loss, "f1_macro", decision="expected")
    batches = DataLoader(TensorDataset(x, y), batch_size=16)
    trainer = Trainer(max_epochs=1, **QUIET)
    with pytest.raises(RuntimeError, match=r"rule of AlignedModule .* Call Trainer.validate"):
        fitted.predict_step((x, y))
    trainer.fit(fitted, batches, batches)
    with torch.no_grad():
        expected = fitted.rule(fitted(x))
    for rows in (
        batches,
        DataLoader(x, batch_size=16),
        loader({"input": x[:30], "labels": y[:30]}, {"input": x[30:]}),
    ):
        assert torch.equal(torch.cat(trainer.predict(fitted, rows)), expected)


class Tagger(nn.Module):
    """A model of tokens that returns what those of Hugging Face do."""

    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, x):
        return TokenClassifierOutput(logits=self.network(x))


@pytest.mark.parametrize("class_dim", [None, 1, -1])
def test_tokens_of_a_model_of_hugging_face(class_dim):
    """Texts of five tokens, and three classes, which come last."""
    x, y = (part.unflatten(0, (8, 5)) for part in made_rows(40))
    loss = MetricLoss("f1_macro", class_dim=class_dim)
    fitted = AlignedModule(Tagger(), loss, "f1_macro")
    Trainer(**QUIET).validate(fitted, loader((x, y)), verbose=False)
    (logged,) = Trainer(**QUIET).test(fitted, loader((x, y)), verbose=False)
    with torch.no_grad():
        labels = fitted.network(x).logits.argmax(-1)
    expected = f1_score(y.flatten(), labels.flatten(), average="macro")
    assert logged["test_metric_argmax"] == pytest.approx(expected, abs=tolerances.FLOAT32)
    labels = fitted.predict_step((x, y))
    expected = f1_score(y.flatten(), labels.flatten(), average="macro")
    assert logged["test_metric"] == pytest.approx(expected, abs=tolerances.FLOAT32)


def test_a_checkpoint_brings_its_own_rule_or_none(tmp_path):
    x, _ = made_rows(60)
    many = x[:, :CLASSES] > 0
    trainer = Trainer(max_epochs=1, limit_val_batches=0, **QUIET)
    fitted = AlignedModule(network(), MetricLoss("f1_macro"), "f1_macro")
    trainer.fit(fitted, loader((x, many)), loader((x, many)))
    trainer.save_checkpoint(tmp_path / "no_rule")
    Trainer(**QUIET).validate(fitted, loader((x, many)), verbose=False)
    for loaded in (fitted, AlignedModule(network(), MetricLoss("f1_macro"), "f1_macro")):
        with pytest.raises(RuntimeError, match="rule of AlignedModule must follow an evaluation"):
            Trainer(**QUIET).predict(loaded, loader(x), ckpt_path=tmp_path / "no_rule")


@pytest.mark.parametrize("confidence", [None, 0.8])
def test_the_rule_meets_the_constraint(confidence):
    x, y = made_rows(300)
    bounds = {"constraint": "recall[2] >= 0.9", "confidence": confidence}
    fitted = AlignedModule(network(), MetricLoss("f1_macro"), "f1_macro", **bounds)
    Trainer(max_epochs=1, **QUIET).fit(fitted, loader((x, y)), loader((x, y)))
    with torch.no_grad():
        labels = fitted.rule(fitted(x))
    assert (labels[y == 2] == 2).double().mean() >= 0.9
    assert fitted.rule.constraint == "recall[2] >= 0.9"
    assert fitted.rule.confidence == confidence
    assert fitted.rule.promised is (None if confidence is None else True)


def test_a_constraint_that_no_rule_meets_does_not_stop_a_checkpoint(tmp_path):
    x, y = made_rows(60)
    x.zero_()
    loss, bound = MetricLoss("f1_macro"), "precision[0] >= 0.99"
    fitted = AlignedModule(network(), loss, "f1_macro", constraint=bound)
    trainer = Trainer(max_epochs=1, **QUIET)
    trainer.fit(fitted, loader((x, y)), loader((x, y)))
    trainer.save_checkpoint(tmp_path / "last")
    assert not any(fitted._evaluation._fitter._parts.values())
    assert "rule" not in torch.load(tmp_path / "last", weights_only=True)
    with pytest.raises(ValueError, match="be met by some rule on these rows"):
        _ = fitted.rule
