"""Lightning: a module that trains any network on a metric, and a callback that cools its loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from evalign.aggregation.exact import warn_of_batch_statistics
from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.input_warnings import warn
from evalign.core.metrics import MetricFunction
from evalign.core.text import installing
from evalign.decisions import Decision, DecisionRule
from evalign.integrations.evaluation import Evaluation, check_annealing
from evalign.losses.outputs import logits_of
from evalign.training import TemperatureAnnealing
from evalign.training.validation import loss_of

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.trainer.states import TrainerFn
except ModuleNotFoundError as error:
    text = f"evalign.integrations.lightning needs lightning. {installing('.[lightning]')}"
    raise ImportError(text) from error


class AlignedModule(LightningModule):
    """Any network, a loss, and the metric that judges it. Batches are (x, target[, weight]).

    A batch may also be a dict with its target under labels and its weights under sample_weight; the
    network is called with the other entries by name. Override `unpack` for other batches.

    Training logs `train_loss`. A validation logs the metric of all its rows, on all ranks:
    `val_metric` of argmax, and `val_metric_rule` of the new rule, cross-fitted. A test logs
    `test_metric` of the labels that `Trainer.predict` returns, and `test_metric_argmax`. A
    checkpoint holds the loss and `rule`, the rule of the last validation.

    Args:
        network: from x to logits, or to the output of a model of Hugging Face.
        loss: such as `MetricLoss`, which sums over the ranks by itself.
        metric: a name or a function of a `Confusion`, for labels by argmax (or logit > 0).
        decision, constraint, confidence: of `rule`, as in `fit_decision`.
        learning_rate: of AdamW; override `configure_optimizers` for another optimiser.
        microbatch_size: send a training batch through the network in parts of this many rows,
            computed again in the backward pass. Memory holds the activations of one part, and the
            gradient is that of the whole batch. x must be a tensor, or a dict of tensors.

    Examples:
        >>> from evalign import MetricLoss
        >>> module = AlignedModule(nn.Linear(4, 3), MetricLoss("f1_macro"), "f1_macro")
    """

    def __init__(
        self,
        network: nn.Module,
        loss: nn.Module,
        metric: str | MetricFunction,
        *,
        decision: Decision = "tuned",
        constraint: str | None = None,
        confidence: float | None = None,
        learning_rate: float = 1e-3,
        microbatch_size: int | None = None,
    ) -> None:
        super().__init__()
        rule = {"decision": decision, "constraint": constraint, "confidence": confidence}
        self._evaluation = Evaluation("AlignedModule", loss, metric, rule)
        self.network, self.loss, self.metric = network, loss, self._evaluation.metric
        self.learning_rate, self.microbatch_size = learning_rate, microbatch_size

    @property
    def rule(self) -> DecisionRule:
        """The decision rule for the rows of the last validation, the same on all ranks."""
        return self._evaluation.rule

    def unpack(self, batch: Any) -> Sequence[Any]:
        """The parts of a batch: x, then target and weight where it has them."""
        if isinstance(batch, Mapping):
            x = dict(batch)
            target, weight = x.pop("labels", None), x.pop("sample_weight", None)
            return x, target, weight
        return batch if isinstance(batch, list | tuple) else [batch]

    def forward(self, x: Any) -> Tensor:
        output = self.network(**x) if isinstance(x, Mapping) else self.network(x)
        logits = logits_of(output)
        tokens = logits is not output and logits.ndim == 3  # (N, T, C) of Hugging Face
        return logits.mT if tokens and self._evaluation.reading["class_dim"] != -1 else logits

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.learning_rate)

    def on_train_start(self) -> None:
        if self.microbatch_size is not None:
            warn_of_batch_statistics("AlignedModule", self.network)
        if self.trainer.accumulate_grad_batches > 1:
            warn(
                "AlignedModule: accumulate_grad_batches is above 1, so the gradient is not that of "
                "the metric of all rows. Use larger batches, and microbatch_size to save memory."
            )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, target, weight = self._labelled(batch)
        value = loss_of(self.loss, self._in_parts(x), target, weight)
        self.log("train_loss", value)
        return value

    def _labelled(self, batch: Any) -> tuple[Any, Tensor, Tensor | None]:
        parts = self.unpack(batch)
        x, target, weight = (*parts, *[None] * (3 - len(parts)))
        if target is None:
            got = [*batch] if isinstance(batch, Mapping) else type(batch).__name__
            allowed, cure = "be (x, target[, weight]), or a dict with labels", "Override unpack."
            raise ValueError(complaint("AlignedModule", "a batch", allowed, got, cure))
        return x, target, weight

    def _in_parts(self, x: Any) -> Tensor:
        size = self.microbatch_size
        if size is None:
            return self(x)
        if isinstance(x, Mapping):
            columns = zip(*(value.split(size) for value in x.values()), strict=True)
            parts = [dict(zip(x, part, strict=True)) for part in columns]
        else:
            parts = x.split(size)
        return torch.cat([checkpoint(self.forward, part, use_reentrant=False) for part in parts])

    def on_validation_epoch_start(self) -> None:
        self._evaluation.start()

    on_test_epoch_start = on_validation_epoch_start

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, target, weight = self._labelled(batch)
        self._evaluation.add(self(x), target, weight)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        x, target, weight = self._labelled(batch)
        self._evaluation.add(self(x), target, weight, test=True)

    def predict_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> Tensor:
        """Labels by the rule."""
        return self.rule(self(self.unpack(batch)[0]))

    def on_validation_epoch_end(self) -> None:
        self._log_metric("val_metric", self._evaluation.confusion)
        if self.trainer.sanity_checking:
            return
        self._evaluation.fit_rule()
        if (score := self._evaluation.rule_score) is not None:
            self.log("val_metric_rule", score, sync_dist=True)

    def on_test_epoch_end(self) -> None:
        self._log_metric("test_metric", self._evaluation.by_rule)
        self._log_metric("test_metric_argmax", self._evaluation.confusion)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if rule := self._evaluation.saved_rule:
            checkpoint["rule"] = rule.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._evaluation.load_rule(checkpoint.get("rule"))

    def _log_metric(self, name: str, own: Confusion | int) -> None:
        parts: list[Any] = [own.map(Tensor.cpu) if isinstance(own, Confusion) else None]
        if dist.is_available() and dist.is_initialized():
            # As objects: a rank that has had no batch does not know how many classes there are.
            parts *= dist.get_world_size()
            dist.all_gather_object(parts, parts[0])
        total: Any = sum(part for part in parts if part is not None)
        some = isinstance(total, Confusion)
        require(some, "AlignedModule", f"batches for {name}", "have rows", "none on any rank")
        score = self.metric(total.map(lambda x: x.to(self.device)))
        # It is already the same on all ranks, but Lightning warns without sync_dist.
        self.log(name, score, sync_dist=True)


class AnnealTemperature(Callback):
    """Steps a `TemperatureAnnealing` by a logged score after every validation of a training.

    Its end is the end of the training. Its state is saved with Lightning's checkpoints.
    """

    def __init__(self, annealing: TemperatureAnnealing, *, monitor: str = "val_metric") -> None:
        self.annealing, self.monitor = annealing, monitor

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not isinstance(pl_module, AlignedModule):
            return
        own = pl_module.metric if self.monitor == "val_metric" else None
        check_annealing(self.annealing, pl_module, own)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != TrainerFn.FITTING:
            return
        logged = trainer.callback_metrics
        allowed = f"be one of the logged {sorted(logged)}"
        require(self.monitor in logged, "AnnealTemperature", "monitor", allowed, self.monitor)
        self.annealing.step(score=logged[self.monitor].item())
        trainer.should_stop |= self.annealing.finished

    def state_dict(self) -> dict[str, Any]:
        return self.annealing.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.annealing.load_state_dict(state_dict)
