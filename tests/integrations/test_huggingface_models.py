"""Models, scores and a plain Trainer of Hugging Face, as people use them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score
from transformers import (
    BertForTokenClassification,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    Trainer,
)

from evalign import AlignedLoss, MetricLoss, fit_decision
from evalign.integrations.huggingface import AlignedTrainer
from tests import tolerances
from tests.integrations.engines import CLASSES
from tests.integrations.test_huggingface import (
    ROWS,
    Notes,
    arguments,
    gradients,
    model,
    plain,
    same,
    texts,
    trainer,
)

PIXELS = 32


def test_labels_in_the_place_of_logits_are_refused(tmp_path):
    argmax = {"preprocess_logits_for_metrics": lambda logits, _: logits.argmax(-1)}
    with pytest.raises(TypeError, match="logits of an evaluation must be floating"):
        trainer(arguments(tmp_path), **argmax).evaluate()


def test_what_a_model_may_return():
    logits, loss = torch.zeros(2, 3), MetricLoss("f1_macro")
    step = {"target": torch.tensor([0, 1]), "num_items_in_batch": 2}
    same_loss = loss(logits, step["target"])
    for output in (logits, {"logits": logits}, (logits, None), SimpleNamespace(logits=logits)):
        assert torch.equal(loss(output, **step), same_loss)
    for output in ({"out": logits}, (), "logits"):
        with pytest.raises(TypeError, match="output of a model must be a tensor, have one named"):
            loss(output, **step)
    with pytest.raises(TypeError, match=r"target of MetricLoss must be a torch\.Tensor\. Got None"):
        loss(logits, None, num_items_in_batch=2)
    nothing = loss(logits, torch.tensor([-100, -100]), num_items_in_batch=0)
    assert nothing == 0  # a step without labels is not 0/0


def test_a_call_of_trainer_leaves_the_loss_as_it_was():
    """Where the classes of a model are is known, but not where those of other logits are."""
    logits, target = torch.randn(2, 3, 3), torch.tensor([[0, 1, 2], [2, 1, 0]])
    for make in (MetricLoss, AlignedLoss):
        loss, last = make("f1_macro"), make("f1_macro", class_dim=-1)
        value = loss(logits, target, num_items_in_batch=6)  # without a warning of the layout
        assert torch.equal(value, last(logits, target))
        assert loss.class_dim is None
        assert repr(loss) == repr(make("f1_macro"))


def own_scores(prediction):
    """Score as in a script for a plain Trainer: with all rows at once, as arrays."""
    seen = prediction.label_ids != -100
    given = prediction.predictions.argmax(-1)[seen]
    return {"own": f1_score(prediction.label_ids[seen], given, average="macro"), "rows": seen.sum()}


class ByBatch:
    """Scores as they are for `batch_eval_metrics`."""

    def __init__(self):
        self.total = 0

    def __call__(self, prediction, compute_result):
        assert isinstance(prediction.predictions, torch.Tensor)
        self.total += (prediction.label_ids != -100).sum().item()
        return {"rows": self.total} if compute_result else {}


@pytest.mark.parametrize("scores", [own_scores, ByBatch()], ids=["whole", "by batch"])
def test_scores_of_ones_own_are_reported_beside_the_metric(scores, tmp_path):
    """Texts of several lengths: batches are padded, and so are the logits of all of them."""
    rows = texts(30, 1, tokens=True)
    for i, row in enumerate(rows):
        kept = 3 + i // 7 % 3  # a batch of 7 has one length
        row |= {name: value[:kept] for name, value in row.items()}
    args = arguments(tmp_path, per_device_eval_batch_size=7)
    engine = trainer(
        args,
        classifier=model(kind=BertForTokenClassification),
        eval_dataset=rows,
        compute_metrics=scores,
    )
    expected = sum(int((row["labels"] != -100).sum()) for row in rows)
    for _ in range(2):  # nothing of an evaluation is left in the next one
        if isinstance(scores, ByBatch):
            scores.total = 0
        found = engine.evaluate()
        assert found["eval_rows"] == expected
        if scores is own_scores:
            assert found["eval_own"] == pytest.approx(found["eval_metric"], abs=tolerances.HARD)


@pytest.mark.parametrize("concatenate", [True, False])
def test_all_rows_at_once_have_the_metric_of_batches(concatenate, tmp_path):
    """With texts of several lengths, a smaller last batch and labels that Trainer pads by -100."""
    rows = texts(30, 1, tokens=True)
    for i, row in enumerate(rows):
        row |= {name: value[: 3 + i // 7 % 3] for name, value in row.items()}
        row["labels"] = row["labels"].where(row["labels"] != -100, torch.tensor(9))
    args = {"per_device_eval_batch_size": 7, "eval_do_concat_batches": concatenate}
    same_model, found = model(kind=BertForTokenClassification), []
    for own in (None, lambda prediction: {"lists": isinstance(prediction.label_ids, list)}):
        engine = trainer(
            arguments(tmp_path, **args),
            classifier=same_model,
            loss=MetricLoss("f1_macro", ignore_index=9),
            eval_dataset=rows,
            compute_metrics=own,
        )
        found.append((engine.evaluate(), engine.rule))
    (batches, rule), (whole, of_whole) = found
    assert whole["eval_lists"] is not concatenate
    assert whole["eval_metric"] == pytest.approx(batches["eval_metric"], abs=tolerances.HARD)
    np.testing.assert_allclose(of_whole.gain, rule.gain, rtol=tolerances.SAME)


def test_a_plain_trainer_takes_a_loss(tmp_path):
    notes, rows = Notes(), texts(2 * ROWS)
    engine = Trainer(
        model(),
        arguments(tmp_path, learning_rate=0.0),
        train_dataset=rows,
        eval_dataset=rows,
        compute_loss_func=MetricLoss("f1_macro"),
        callbacks=[notes],
    )
    engine.train()
    same([gradient.tolist() for gradient in notes.gradients], plain()[0])
    assert 0 < engine.evaluate()["eval_loss"] < 1


def segmenter():
    torch.manual_seed(0)
    config = SegformerConfig(
        num_encoder_blocks=1,
        depths=[1],
        sr_ratios=[1],
        hidden_sizes=[8],
        patch_sizes=[7],
        strides=[4],
        num_attention_heads=[1],
        mlp_ratios=[1],
        decoder_hidden_size=8,
        num_labels=CLASSES,
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
    )
    return SegformerForSemanticSegmentation(config).double()


def pictures(count):
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(count):
        labels = torch.randint(CLASSES, (PIXELS, PIXELS), generator=generator)
        labels[:2] = 255
        noise = torch.randn(3, PIXELS, PIXELS, generator=generator, dtype=torch.float64)
        rows.append({"pixel_values": labels + noise, "labels": labels})
    return rows


@pytest.mark.parametrize("kind", [AlignedTrainer, Trainer])
def test_coarse_logits_meet_fine_labels(kind, tmp_path):
    """As in torch alone: logits of every fourth pixel are interpolated."""
    notes, rows = Notes(), pictures(ROWS)
    own = {"compute_loss_func": MetricLoss("jaccard_macro", ignore_index=255)}
    if kind is AlignedTrainer:
        own = {"loss": own["compute_loss_func"], "metric": "jaccard_macro"}
    args = arguments(tmp_path, max_steps=1, learning_rate=0.0)
    engine = kind(
        segmenter(), args, train_dataset=rows, eval_dataset=rows, callbacks=[notes], **own
    )
    engine.train()

    pixels, target = (torch.stack([row[name] for row in rows]) for name in rows[0])
    classifier = segmenter().train()
    logits = classifier(pixel_values=pixels).logits
    assert logits.shape == (ROWS, CLASSES, PIXELS // 4, PIXELS // 4)
    fine = torch.nn.functional.interpolate(logits, (PIXELS, PIXELS), mode="bilinear")
    MetricLoss("jaccard_macro", ignore_index=255)(fine, target).backward()
    same(notes.gradients[0].tolist(), gradients(classifier).tolist())

    found = engine.evaluate()
    if kind is AlignedTrainer:
        output = engine.predict(rows)
        fine = torch.nn.functional.interpolate(
            torch.as_tensor(output.predictions), (PIXELS, PIXELS), mode="bilinear"
        )
        given, true = (x[target != 255].numpy() for x in (fine.argmax(1), target))
        expected = jaccard_score(true, given, average="macro")
        assert found["eval_metric"] == pytest.approx(expected, abs=tolerances.HARD)
        # The rule was found for pixels of that size.
        assert np.array_equal(output.labels, engine.rule(fine.numpy()))
        coarse = output._replace(label_ids=None)
        coarse.rule = engine.rule
        assert coarse.labels.shape == (ROWS, PIXELS // 4, PIXELS // 4)


def test_predictions_have_labels_by_the_rule(tmp_path):
    loss = AlignedLoss("f1_macro")
    engine = trainer(arguments(tmp_path), loss=loss, decision="expected")
    rows = engine.eval_dataset
    assert engine.predict(rows).labels is None
    engine.train()
    engine.evaluate()
    rule = engine.rule
    output = engine.predict(texts(15, seed=2))
    logits = output.predictions
    assert engine.rule is rule  # the labels of test rows do not make a rule
    assert np.array_equal(output.labels, rule(logits))
    unlabelled = fit_decision(logits, metric="f1_macro", decision="expected", offsets=loss.offsets)
    expected = (torch.as_tensor(logits) + loss.offsets).softmax(1)
    np.testing.assert_allclose(unlabelled.probabilities(logits), expected)
