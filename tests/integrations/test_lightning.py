"""Lightning trains the same in one process or two, in parts or whole, resumed or not."""

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from sklearn.metrics import f1_score
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

import evalign
from evalign import AlignedLoss, Confusion, MetricLoss, TemperatureAnnealing, fit_decision, metrics
from evalign.integrations.evaluation import check_annealing
from evalign.integrations.lightning import AlignedModule, AnnealTemperature
from evalign.store.files import StoreError
from tests import dtype_tolerances, tolerances
from tests.distributed.processes import run
from tests.integrations.engines import CLASSES, as_if_launched, in_a_new_process, made_rows

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
    "precision": "64-true",
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()


class Descent(AlignedModule):
    """A module with plain gradient descent, as Adam would hide a factor of the gradient."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate)


def module(**arguments):
    loss = MetricLoss("f1_macro", momentum=0.5)
    return Descent(network(), loss, "f1_macro", learning_rate=1.0, **arguments)


def loader(count, *, seed=0, rank=0, size=1):
    """Load rows in order, so that the ranks together see the batches of one process."""
    rows = TensorDataset(*made_rows(count, seed))
    sampler = DistributedSampler(rows, size, rank, shuffle=False)
    return DataLoader(rows, batch_size=12 // size, sampler=sampler)


def fit(fitted, trainer, *, rank=0, size=1, **arguments):
    rows, validation = (loader(24 * n, seed=n, rank=rank, size=size) for n in (2, 1))
    trainer.fit(fitted, rows, validation, **arguments)


def trained(trainer, rank=0, size=1, **arguments):
    """Return the weights after training and the score of the validation rows."""
    fitted = module(**arguments)
    fit(fitted, trainer, rank=rank, size=size)
    weights = torch.cat([p.detach().flatten() for p in fitted.network.parameters()])
    score = trainer.callback_metrics["val_metric"].item()
    return weights.tolist(), score, fitted.rule.class_prior.tolist()


def on_rank(rank, size):
    as_if_launched(rank, size)
    ddp = {"devices": size, "strategy": "ddp", "use_distributed_sampler": False}
    return [
        trained(Trainer(max_epochs=2, **ddp, **QUIET), rank, size, microbatch_size=part)
        for part in (None, 4)
    ]


def close(answer, expected):
    torch.testing.assert_close(
        torch.tensor(answer[0], dtype=torch.float64),
        torch.tensor(expected[0], dtype=torch.float64),
        rtol=0,
        atol=dtype_tolerances.RANKS[torch.float64],
    )
    assert answer[1] == pytest.approx(expected[1], abs=tolerances.FLOAT32)  # Lightning's logs
    assert answer[2] == pytest.approx(expected[2])  # the rule has seen the rows of all ranks


def test_two_processes_train_as_one():
    expected = trained(Trainer(max_epochs=2, **QUIET))
    for whole, in_parts in run(on_rank, 2):
        close(whole, expected)
        close(in_parts, expected)


def test_microbatches_train_as_the_whole_batch():
    whole, parts, counts = module(), module(microbatch_size=5), []
    parts.network.register_forward_hook(lambda _, rows, __: counts.append(len(rows[0])))
    for fitted in (whole, parts):
        fit(fitted, Trainer(max_epochs=2, limit_val_batches=0, **QUIET))
    for p, q in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=dtype_tolerances.RANKS[torch.float64])
    assert sorted(counts[:6]) == [2, 2, 5, 5, 5, 5]  # a batch of 12 in parts, twice


def test_batch_statistics_of_parts_are_warned_of():
    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    fitted = AlignedModule(network, MetricLoss("f1_macro"), "f1_macro", microbatch_size=6)
    with pytest.warns(UserWarning, match="AlignedModule: the model has batch statistics"):
        fit(fitted, Trainer(max_steps=1, limit_val_batches=0, **QUIET))


def test_accumulation_without_microbatches_is_warned_of():
    trainer = Trainer(max_epochs=1, accumulate_grad_batches=2, **QUIET)
    with pytest.warns(UserWarning, match=r"accumulate_grad_batches is above 1.* microbatch_size"):
        fit(module(), trainer)


@pytest.mark.parametrize("metric", ["f1_macro", "cohen_kappa"])
def test_the_metric_is_of_all_rows_not_a_mean_over_batches(metric):
    """With weights, ignored rows, and batches that lack classes; in a test by the rule too."""
    x, y = made_rows(40, seed=2)
    y[::7] = -100
    weight = torch.rand(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tested = AlignedModule(network(), MetricLoss(metric), metric)
    batches = DataLoader(TensorDataset(x, y, weight), batch_size=3)
    with pytest.raises(RuntimeError, match="rule of AlignedModule must follow an evaluation"):
        Trainer(**QUIET).test(tested, batches, verbose=False)
    (seen,) = Trainer(**QUIET).validate(tested, batches, verbose=False)
    (logged,) = Trainer(**QUIET).test(tested, batches, verbose=False)

    def expected(labels):
        how = {"num_classes": CLASSES, "sample_weight": weight, "matrix": True}
        confusion = Confusion.from_predictions(labels, y, **how)
        value = metrics.resolve(metric)(confusion).item()
        return pytest.approx(value, abs=tolerances.FLOAT32)

    assert logged["test_metric_argmax"] == seen["val_metric"] == expected(tested(x).argmax(1))
    assert logged["test_metric"] == expected(tested.predict_step((x,)))
    assert seen["val_metric_rule"] == pytest.approx(tested.rule.score, abs=tolerances.FLOAT32)
    assert logged["test_metric"] != logged["test_metric_argmax"]


@pytest.mark.parametrize("task", ["one logit", "labels"])
def test_the_metric_of_the_rule_for_every_task(task):
    x, y = made_rows(60)
    y = y == 2 if task == "one logit" else torch.stack([y == 1, y == 2], 1)
    metric = "f1" if task == "one logit" else "f1_macro"
    torch.manual_seed(0)
    linear = nn.Linear(4, 1 if task == "one logit" else 2).double()
    tested = AlignedModule(linear, MetricLoss(metric), metric)
    batches = DataLoader(TensorDataset(x, y), batch_size=16)
    Trainer(**QUIET).validate(tested, batches, verbose=False)
    (logged,) = Trainer(**QUIET).test(tested, batches, verbose=False)
    with torch.no_grad():
        logits, labels = tested(x).squeeze(1), tested.predict_step((x,))
    average = "binary" if task == "one logit" else "macro"
    for name, given in (("test_metric", labels), ("test_metric_argmax", logits > 0)):
        expected = f1_score(y, given, average=average)
        assert logged[name] == pytest.approx(expected, abs=tolerances.FLOAT32)


class Own(AlignedModule):
    """A module of one's own, whose constructor needs nothing."""

    def __init__(self):
        super().__init__(network(), AlignedLoss("f1_macro"), "f1_macro")


def test_a_module_of_ones_own_is_loaded_without_arguments(tmp_path):
    fitted, trainer = Own(), Trainer(max_epochs=1, **QUIET)
    fit(fitted, trainer)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    loaded, (x, _) = Own.load_from_checkpoint(tmp_path / "last.ckpt"), made_rows(40)
    with torch.no_grad():
        assert torch.equal(loaded.predict_step((x,)), fitted.predict_step((x,)))
    assert torch.equal(loaded.loss.offsets, fitted.loss.offsets)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
def test_a_checkpoint_is_served_without_lightning(tmp_path):
    """Its weights by torch, and its rule by `load`, which takes no arguments."""
    fitted = AlignedModule(network(), AlignedLoss("f1_macro"), "f1_macro")
    path, trainer, (x, _) = tmp_path / "last.ckpt", Trainer(max_epochs=1, **QUIET), made_rows(40)
    trainer.fit(fitted, loader(12))
    trainer.save_checkpoint(path)
    with pytest.raises(StoreError, match=r"a checkpoint without a rule, which a validation leaves"):
        evalign.load(path)
    torch.save({"rule": Confusion}, other := tmp_path / "other.ckpt")
    with pytest.raises(StoreError, match=r"more than weights .* with load_from_checkpoint"):
        evalign.load(other)
    trainer.validate(fitted, loader(24, seed=1), verbose=False)
    trainer.save_checkpoint(path)
    torch.save(x, tmp_path / "x.pt")
    labels = in_a_new_process(
        """
import torch, evalign
from torch import nn
folder = sys.argv[1]
network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
state = torch.load(folder + "/last.ckpt", weights_only=True)["state_dict"]
kept = {name[8:]: x for name, x in state.items() if name.startswith("network.")}
network.load_state_dict(kept)
model = nn.Sequential(network, evalign.load(folder + "/last.ckpt").as_module())
print(model(torch.load(folder + "/x.pt")).tolist())
""",
        tmp_path,
    )
    with torch.no_grad():
        assert labels == str(fitted.predict_step((x,)).tolist())


# The second training only loads.
@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
def test_a_rule_comes_out_of_training_and_its_checkpoint(tmp_path):
    """The rule is that of the validation rows, with the offsets of the loss."""
    loss = AlignedLoss("f1_macro")
    fitted = AlignedModule(network(), loss, "f1_macro", decision="expected")
    with pytest.raises(RuntimeError, match=r"rule of AlignedModule must follow an evaluation"):
        _ = fitted.rule
    trainer = Trainer(max_epochs=1, **QUIET)
    fit(fitted, trainer)
    x, y = loader(24, seed=1).dataset.tensors
    with torch.no_grad():
        logits = fitted(x)
    how = {"metric": "f1_macro", "decision": "expected", "offsets": loss.offsets}
    assert torch.equal(fitted.rule(logits), fit_decision(logits, y, **how)(logits))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    other = AlignedModule(network(), AlignedLoss("f1_macro"), "f1_macro")
    Trainer(max_epochs=1, **QUIET).fit(other, loader(12), ckpt_path=tmp_path / "last.ckpt")
    assert np.array_equal(other.rule.gain, fitted.rule.gain)
    assert torch.equal(other.loss.offsets, loss.offsets)


def no_rows_on_the_second(rank, size):
    """Validate where one rank has no batch, as of a stream of shards."""
    as_if_launched(rank, size)
    rows = [*zip(*made_rows(24), strict=True)] if rank == 0 else []
    trainer = Trainer(devices=size, strategy="ddp", **QUIET)
    fitted = module()
    trainer.validate(fitted, DataLoader(Stream(rows), batch_size=7), verbose=False)
    return trainer.callback_metrics["val_metric"].item(), fitted.rule.gain.tolist()


class Stream(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def test_a_rank_without_a_batch_has_the_score_of_all():
    fitted, trainer = module(), Trainer(**QUIET)
    trainer.validate(fitted, loader(24), verbose=False)
    score = trainer.callback_metrics["val_metric"].item()
    for answer, gain in run(no_rows_on_the_second, 2):
        assert answer == pytest.approx(score, abs=tolerances.FLOAT32)
        assert gain == fitted.rule.gain.tolist()
    with pytest.raises(ValueError, match="batches for val_metric of AlignedModule must have rows"):
        trainer.validate(fitted, DataLoader(Stream([])), verbose=False)


class Script(LightningModule):
    """A module that logs a score by script, and has a loss to cool."""

    def __init__(self, scores):
        super().__init__()
        self.loss = MetricLoss("f1_macro")
        self.layer = nn.Linear(4, CLASSES).double()
        self.scores = scores

    def training_step(self, batch, batch_idx):
        return self.loss(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("score", self.scores[self.current_epoch])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Thermometer(Callback):
    def __init__(self):
        self.read = []

    def on_train_epoch_start(self, trainer, pl_module):
        self.read.append(pl_module.loss.temperature.item())


def anneal(scores, epochs, resume=None, monitor="score"):
    script, thermometer = Script(scores), Thermometer()
    annealing = TemperatureAnnealing(script.loss, rate=0.5, patience=1, coolings=1)
    callbacks = [AnnealTemperature(annealing, monitor=monitor), thermometer]
    trainer = Trainer(max_epochs=epochs, callbacks=callbacks, **QUIET)
    fit(script, trainer, ckpt_path=resume)
    return trainer, thermometer.read


def test_the_temperature_falls_on_a_plateau_and_training_ends():
    """Neither the sanity check before training nor a validation by hand counts."""
    trainer, read = anneal([0.5, 0.6, 0.6, 0.6, 0.6, 0.6], epochs=6)
    assert read == [0.2, 0.2, 0.2, 0.1]
    trainer.validate(trainer.lightning_module, loader(24), verbose=False)
    assert trainer.lightning_module.loss.temperature.item() == 0.1
    with pytest.raises(ValueError, match="monitor of AnnealTemperature must be one of the logged"):
        anneal([0.5], epochs=1, monitor="f1")


def test_an_annealing_has_to_know_that_a_cost_is_one():
    loss = MetricLoss("expected_cost[[0, 1, 1], [1, 0, 1], [1, 1, 0]]")
    cooling = AnnealTemperature(TemperatureAnnealing(loss))
    trainer = Trainer(max_epochs=1, callbacks=[cooling], **QUIET)
    with pytest.raises(ValueError, match="greater_is_better of TemperatureAnnealing must be False"):
        fit(AlignedModule(network(), loss, loss.metric), trainer)


def test_an_annealing_has_to_cool_the_loss_that_is_trained():
    other = AnnealTemperature(TemperatureAnnealing(MetricLoss("f1_macro")))
    with pytest.raises(ValueError, match="loss of TemperatureAnnealing must be the one being tr"):
        fit(module(), Trainer(max_epochs=1, callbacks=[other], **QUIET))
    aligned = AlignedLoss("f1_macro")
    for trained in (aligned, torch.compile(aligned)):
        check_annealing(TemperatureAnnealing(aligned), trained, None)


def test_temperature_and_patience_survive_a_checkpoint(tmp_path):
    scores = [0.5, 0.5, 0.6, 0.6, 0.7]
    _, whole = anneal(scores, epochs=5)
    assert whole == [0.2, 0.2, 0.1, 0.1, 0.05]
    trainer, before = anneal(scores, epochs=2)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    _, after = anneal(scores, epochs=5, resume=tmp_path / "last.ckpt")
    assert before + after == whole


def test_a_resumed_module_trains_as_one_that_never_stopped(tmp_path):
    """The running statistics of the loss are in the checkpoint too."""
    whole, first, second = module(), module(), module()
    fit(whole, Trainer(max_epochs=3, **QUIET))
    trainer = Trainer(max_epochs=1, **QUIET)
    fit(first, trainer)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    fit(second, Trainer(max_epochs=3, **QUIET), ckpt_path=tmp_path / "last.ckpt")
    for (name, value), other in zip(
        whole.state_dict().items(), second.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(value, other, rtol=0, atol=0, msg=name)
