"""Trainer and Accelerate: the gradient of a step is that of all its rows, wherever they are."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from sklearn.metrics import cohen_kappa_score
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    TrainerCallback,
    TrainingArguments,
)

import evalign
from evalign import (
    AlignedLoss,
    MetricLoss,
    TemperatureAnnealing,
    exact_backward,
    fit_decision,
    losses,
)
from evalign.integrations.huggingface import AlignedTrainer
from evalign.store.archive import load
from tests import dtype_tolerances, tolerances
from tests.distributed.processes import run
from tests.integrations.engines import CLASSES, as_if_launched, in_a_new_process, made_rows

WORDS = 12  # in the vocabulary; the first three are those of the classes
ROWS = 12  # of a step, on all processes and in all micro-batches


def model(dropout=0.0, kind=BertForSequenceClassification):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
        num_labels=CLASSES,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return kind(config).double()


def texts(count, seed=0, tokens=False):
    """Make texts of five words, of which one tells the class; later classes are rarer."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        label = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), 1, generator=generator).item()
        words = torch.randint(CLASSES, WORDS, (5,), generator=generator)
        place = torch.randint(5, (1,), generator=generator)
        words[place] = label
        labels = torch.full((5,), -100).index_fill(0, place, label) if tokens else label
        rows.append({"input_ids": words, "labels": labels})
    return rows


def arguments(folder, *, processes=1, microbatches=1, **more):
    more = {"max_steps": 2, "max_grad_norm": 0.0, "save_strategy": "no"} | more
    return TrainingArguments(
        folder,
        per_device_train_batch_size=ROWS // processes // microbatches,
        gradient_accumulation_steps=microbatches,
        train_sampling_strategy="sequential",
        dataloader_pin_memory=False,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **more,
    )


def trainer(args, *, classifier=None, loss=None, metric="f1_macro", **more):
    more = {"train_dataset": texts(2 * ROWS), "eval_dataset": texts(30, seed=1)} | more
    loss = loss or MetricLoss("f1_macro")
    first = None if "model_init" in more else classifier or model()
    return AlignedTrainer(first, args, loss=loss, metric=metric, **more)


def gradients(classifier):
    return torch.cat([p.grad.flatten() for p in classifier.parameters()])


class Notes(TrainerCallback):
    """A callback that notes the gradient of every step, before it is taken."""

    def __init__(self):
        self.gradients = []

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.gradients.append(gradients(kwargs["model"]))


class Bag(torch.nn.Module):
    """A mean of word vectors that is not a model of transformers: it returns a plain dict."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.EmbeddingBag(WORDS, CLASSES, dtype=torch.float64)

    def forward(self, input_ids):
        return {"logits": self.words(input_ids)}


def in_trainer(folder, *, make=model, rows=None, **how):
    """Return the gradients and logged losses of two steps with a learning rate of 0."""
    notes, rows = Notes(), rows or texts(2 * ROWS)
    args = arguments(folder, learning_rate=0.0, logging_steps=1, **how)
    engine = trainer(args, classifier=make(), callbacks=[notes], train_dataset=rows)
    engine.train()
    logged = [entry["loss"] for entry in engine.state.log_history if "loss" in entry]
    return [gradient.tolist() for gradient in notes.gradients], logged


def plain(*, make=model, rows=None):
    """Return the same, computed in torch alone."""
    found, values = [], []
    rows = rows or texts(2 * ROWS)
    for step in (rows[:ROWS], rows[ROWS:]):
        classifier = make()
        ids, labels = (torch.stack([torch.as_tensor(row[k]) for row in step]) for k in step[0])
        value = MetricLoss("f1_macro")(classifier(input_ids=ids)["logits"], labels)
        value.backward()
        found.append(gradients(classifier))
        values.append(value.item())
    return [gradient.tolist() for gradient in found], values


def close(answer, expected):
    (found, logged), (wanted, values) = answer, expected
    same(found, wanted)
    assert logged == pytest.approx(values, abs=tolerances.FLOAT32_SUM)  # Trainer adds in float32


def same(found, wanted):
    pair = (torch.tensor(x, dtype=torch.float64) for x in (found, wanted))
    torch.testing.assert_close(*pair, rtol=0, atol=dtype_tolerances.RANKS[torch.float64])


@pytest.mark.parametrize("microbatches", [1, 3])
def test_the_gradient_in_the_trainer_is_the_plain_gradient(microbatches, tmp_path):
    close(in_trainer(tmp_path, microbatches=microbatches), plain())


def test_counts_are_learnt_as_from_the_whole_batch(tmp_path):
    found = []
    for number in (1, 3):
        notes = Notes()
        args = arguments(tmp_path / str(number), learning_rate=0.0, microbatches=number)
        rows, loss = texts(2 * ROWS), AlignedLoss("f1_macro")
        engine = trainer(args, classifier=model(), loss=loss, callbacks=[notes], train_dataset=rows)
        engine.train()
        found.append([gradient.tolist() for gradient in notes.gradients])
        found.append(loss.offsets.tolist())
    same(found[2], found[0])
    assert found[3] == pytest.approx(found[1], abs=1e-12)


def test_a_model_of_ones_own(tmp_path):
    answer = in_trainer(tmp_path, make=Bag, microbatches=3, label_names=["labels"])
    close(answer, plain(make=Bag))
    with pytest.raises(ValueError, match=r"a batch of AlignedTrainer must hold labels.*Set Train"):
        in_trainer(tmp_path, make=Bag)


def test_a_last_step_of_fewer_microbatches_is_exact_too(tmp_path):
    """Micro-batches of 4 rows: three of them, then two."""
    rows = texts(2 * ROWS)[: ROWS + 8]
    close(in_trainer(tmp_path, microbatches=3, rows=rows), plain(rows=rows))


def on_rank(rank, size, folder):
    as_if_launched(rank, size)
    answers = {n: in_trainer(folder, processes=size, microbatches=n) for n in (1, 2)}
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == size
    x, y = (part[rank::size] for part in made_rows(ROWS))
    classifier = linear()
    prepared = accelerator.prepare(classifier)
    accelerator.backward(MetricLoss("f1_macro")(prepared(x), y))
    answers["accelerate"] = gradients(classifier).tolist()
    prepared.zero_grad()
    exact_backward(MetricLoss("f1_macro"), prepared, list(zip(x.split(4), y.split(4), strict=True)))
    answers["accelerate, exact"] = gradients(classifier).tolist()
    return answers


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(4, CLASSES).double()


def test_two_processes_have_the_gradient_of_one(tmp_path):
    expected = plain()
    x, y = made_rows(ROWS)
    classifier = linear()
    MetricLoss("f1_macro")(classifier(x), y).backward()
    for answer in run(on_rank, 2, str(tmp_path)):
        close(answer[1], expected)
        close(answer[2], expected)
        for way in ("accelerate", "accelerate, exact"):
            same(answer[way], gradients(classifier).tolist())


def test_dropout_is_the_same_in_both_passes(tmp_path):
    logits = []
    classifier = model(dropout=0.5)
    hook = lambda _, __, out: logits.append(out.logits.detach().clone())  # noqa: E731
    classifier.register_forward_hook(hook)
    trainer(arguments(tmp_path, microbatches=3, max_steps=1), classifier=classifier).train()
    torch.testing.assert_close(logits[:3], logits[3:], rtol=0, atol=0)
    assert (logits[0] != logits[1]).any()


def test_an_evaluation_leaves_the_metric_and_a_rule_of_all_rows(tmp_path):
    args = arguments(tmp_path, per_device_eval_batch_size=7)
    engine = trainer(args, metric="cohen_kappa", decision="expected")
    with pytest.raises(RuntimeError, match="rule of AlignedTrainer must follow an evaluation"):
        _ = engine.rule
    score = engine.evaluate()["eval_metric"]
    output = engine.predict(engine.eval_dataset)
    logits, labels, scores = output
    expected = pytest.approx(cohen_kappa_score(labels, logits.argmax(1)), abs=tolerances.HARD)
    assert score == scores["test_metric_argmax"] == expected
    expected = cohen_kappa_score(labels, output.labels)
    assert scores["test_metric"] == pytest.approx(expected, abs=tolerances.HARD)
    expected = fit_decision(logits, labels, metric="cohen_kappa", decision="expected")
    assert (engine.rule(logits) == expected(logits)).all()
    assert engine.rule.rows == 30


def test_the_rule_meets_the_constraint(tmp_path):
    bounds = {"constraint": "recall[2] >= 0.5", "confidence": 0.8}
    engine = trainer(arguments(tmp_path), eval_dataset=texts(400, seed=1), **bounds)
    engine.evaluate()
    output = engine.predict(engine.eval_dataset)
    assert (output.labels[output.label_ids == 2] == 2).mean() >= 0.5
    assert engine.rule.promised is True


def test_tokens_are_rows(tmp_path):
    """Classes last, as token classifiers have them, and -100 where a token has no label."""
    rows = {"train_dataset": texts(240, tokens=True), "eval_dataset": texts(30, 1, tokens=True)}
    args = arguments(tmp_path, max_steps=40, learning_rate=0.02)
    engine = trainer(args, classifier=model(kind=BertForTokenClassification), **rows)
    engine.train()
    assert engine.evaluate()["eval_metric"] > 0.9
    output = engine.predict(engine.eval_dataset)
    assert output.predictions.shape == (30, 5, CLASSES)
    assert np.array_equal(output.labels, engine.rule(output.predictions.swapaxes(1, 2)))


def annealed(folder, *, epochs, resume=None, **more):
    loss = MetricLoss("f1_macro", momentum=0.1)
    annealing = TemperatureAnnealing(loss, rate=0.5, patience=1, coolings=2)
    every = {"eval_strategy": "epoch", "save_strategy": "epoch"}
    args = arguments(folder, max_steps=-1, num_train_epochs=epochs, learning_rate=0.0, **every)
    engine = trainer(args, loss=loss, annealing=annealing, **more)
    engine.train(resume_from_checkpoint=resume)
    return engine


def test_the_temperature_falls_on_a_plateau_and_training_ends(tmp_path):
    engine = annealed(tmp_path, epochs=9)
    assert engine.annealing.finished
    assert engine.state.epoch == 4  # a best, two coolings in vain, the end
    assert engine.loss.temperature.item() == pytest.approx(0.05)
    engine.evaluate()
    assert engine.annealing.cooled == 2  # only evaluations in training count


def test_a_new_model_begins_with_a_new_loss(tmp_path):
    """As in a search of hyperparameters, where one Trainer trains many models."""
    engine = annealed(tmp_path, epochs=9, model_init=lambda: model())
    first = {name: value.clone() for name, value in engine.loss.state_dict().items()}
    engine.train()
    assert engine.state.epoch == 4
    for name, value in engine.loss.state_dict().items():
        torch.testing.assert_close(value, first[name], rtol=0, atol=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A training of three epochs of two steps, with a checkpoint after each."""
    return annealed(tmp_path_factory.mktemp("whole"), epochs=3)


def state_of(whole, epoch):
    return Path(whole.args.output_dir) / f"checkpoint-{2 * epoch}"


def test_a_checkpoint_holds_the_loss_of_its_time(tmp_path, whole):
    states = [load(state_of(whole, epoch) / "evalign") for epoch in (1, 2, 3)]
    assert [state["loss"]["temperature"].item() for state in states] == [0.2, 0.1, 0.05]
    rules = [evalign.load(state_of(whole, epoch) / "rule.json") for epoch in (1, 2, 3)]
    assert np.array_equal(rules[2].gain, whole.rule.gain)
    resumed = annealed(tmp_path, epochs=3, resume=str(state_of(whole, 2)))
    assert resumed.state.epoch == 3
    assert resumed.annealing.state_dict() == whole.annealing.state_dict()
    for name, value in whole.loss.state_dict().items():
        torch.testing.assert_close(resumed.loss.state_dict()[name], value, rtol=0, atol=0)


def test_a_checkpoint_of_a_plain_trainer_starts_the_loss_afresh(tmp_path, whole):
    without = shutil.ignore_patterns("evalign")
    shutil.copytree(state_of(whole, 2), tmp_path / "checkpoint-4", ignore=without)
    assert annealed(tmp_path, epochs=3, resume=True).annealing.cooled == 0


@pytest.mark.parametrize("bare", [False, True])
def test_the_best_weights_come_with_their_own_rule(bare, tmp_path):
    each = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    # Offsets raise the loss at first, so that the smallest one is that of the first epoch.
    first = {"metric_for_best_model": "loss", "greater_is_better": False, "save_only_model": bare}
    args = arguments(tmp_path, max_steps=4, learning_rate=0.02, **each, **first)
    engine = trainer(args, loss=AlignedLoss("f1_macro"), decision="expected")
    engine.train()
    assert engine.state.best_model_checkpoint.endswith("checkpoint-2")
    rule = engine.rule
    saved = evalign.load(tmp_path / "checkpoint-2" / "rule.json")
    assert np.array_equal(rule.gain, saved.gain)
    if not bare:  # the loss too
        engine.evaluate()
        assert np.array_equal(engine.rule.gain, rule.gain)
        assert np.array_equal(engine.rule.offsets, rule.offsets)


def test_a_folder_is_served_without_transformers(tmp_path):
    """The weights lie there as safetensors, and the rule as JSON."""
    args = arguments(tmp_path, label_names=["labels"], learning_rate=0.1)
    engine = trainer(args, classifier=Bag(), loss=AlignedLoss("f1_macro"))
    engine.train()
    engine.evaluate()
    engine.save_model()
    rows = [{"input_ids": row["input_ids"]} for row in texts(40, seed=2)]
    torch.save(torch.stack([row["input_ids"] for row in rows]), tmp_path / "ids.pt")
    labels = in_a_new_process(
        """
import torch, evalign
from safetensors.torch import load_file
folder = sys.argv[1]
words = load_file(folder + "/model.safetensors")["words.weight"]
rule = evalign.load(folder + "/rule.json")
model = torch.nn.Sequential(torch.nn.EmbeddingBag.from_pretrained(words), rule.as_module())
print(model(torch.load(folder + "/ids.pt")).tolist())
""",
        tmp_path,
    )
    assert labels == str(engine.predict(rows).labels.tolist())


def test_weights_without_a_rule_do_not_keep_that_of_others(tmp_path):
    args = arguments(tmp_path, label_names=["labels"])
    engine = trainer(args, classifier=Bag(), constraint="recall[2] >= 0.5")
    engine.evaluate()
    engine.save_model()
    assert (tmp_path / "rule.json").exists()
    engine = trainer(args, classifier=Bag())
    engine.save_model()
    assert not (tmp_path / "rule.json").exists()


def test_what_cannot_be_exact_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"must be a function of sums over rows.*Got WMWLoss"):
        trainer(arguments(tmp_path, microbatches=2), loss=losses.WMWLoss()).train()
    with pytest.raises(ValueError, match=r"loss of AlignedTrainer must be a .* CrossEntropyLoss"):
        trainer(arguments(tmp_path), loss=torch.nn.functional.cross_entropy)


COST = "expected_cost[[0, 1, 1], [1, 0, 1], [1, 1, 0]]"


def test_who_watches_a_cost_has_to_know_that_it_is_one(tmp_path):
    by_metric = arguments(tmp_path, metric_for_best_model="metric")
    with pytest.raises(ValueError, match="greater_is_better of TrainingArguments must be False"):
        trainer(by_metric, metric=COST)
    loss = MetricLoss(COST)
    wrong, right = (TemperatureAnnealing(loss, greater_is_better=each) for each in (True, False))
    with pytest.raises(ValueError, match="greater_is_better of TemperatureAnnealing must be False"):
        trainer(arguments(tmp_path), loss=loss, metric=COST, annealing=wrong)
    by_cost = arguments(tmp_path, metric_for_best_model="metric", greater_is_better=False)
    trainer(by_cost, loss=loss, metric=COST, annealing=right)


def test_annealing_wants_one_score(tmp_path):
    two = {"first": texts(6), "second": texts(6)}
    with pytest.raises(ValueError, match="eval_dataset of AlignedTrainer must be one data set"):
        annealed(tmp_path, epochs=1, eval_dataset=two)
