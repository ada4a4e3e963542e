"""Hugging Face: a Trainer whose gradient is that of the loss over all rows of a step."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from evalign.aggregation import ExactAccumulation
from evalign.aggregation.exact import warn_of_batch_statistics
from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import Decision, DecisionFitter, DecisionRule
from evalign.training import TemperatureAnnealing
from evalign.training.checkpoint import exists, load, save
from evalign.training.validation import hard_confusion

try:
    from transformers import EvalPrediction, Trainer
except ModuleNotFoundError as error:
    cure = "Run: pip install 'evalign[huggingface]'"
    raise ImportError(f"evalign.integrations.huggingface needs transformers. {cure}") from error


class AlignedTrainer(Trainer):
    """A `Trainer` with a loss of (logits, labels), and the metric it is judged by.

    The gradient of a step is that of the loss over its rows of all processes and all micro-batches
    together. `MetricLoss` sums over the processes itself, so the Trainer's own factor for them is
    left out; `gradient_accumulation_steps` goes over the micro-batches twice (`exact_backward`).

    An evaluation reports the metric of all its rows as `eval_metric`, and leaves a decision rule
    for them as `rule`. It adds up what comes batch by batch and keeps no logits. A checkpoint holds
    the state of the loss and its annealing, and the rule.

    Args:
        loss: such as `MetricLoss`. Logits of tokens (N, T, C) reach it as (N, C, T).
        metric: a name or a function of a `Confusion`, for labels by argmax (or logit > 0).
        decision: how `rule` finds labels for that metric, as in `fit_decision`.
        annealing: cools that loss by `eval_metric` during training, and ends the training.

    The other arguments are those of `Trainer`.
    """

    def __init__(
        self,
        *args: Any,
        loss: nn.Module,
        metric: str | MetricFunction,
        decision: Decision = "tuned",
        annealing: TemperatureAnnealing | None = None,
        **kwargs: Any,
    ) -> None:
        self.metric = resolve(metric, owner="AlignedTrainer")
        # Trainer divides by the accumulation steps unless there is a compute_loss_func.
        super().__init__(*args, compute_loss_func=loss, compute_metrics=self._score, **kwargs)
        self.args.batch_eval_metrics = True  # else it would keep the logits of an evaluation
        self._seen: Confusion | int = 0
        self._fitter = DecisionFitter(
            metric,
            decision=decision,
            offsets=getattr(loss, "offsets", None),
            ignore_index=getattr(loss, "ignore_index", -100),
            ranks="own",  # Trainer gives every process the rows of all
        )
        self._evaluated: DecisionFitter | DecisionRule | None = None
        self.loss: Any = loss.to(self.args.device)
        self.annealing = annealing
        self._microbatches: list[dict[str, Any]] = []
        self._exact: ExactAccumulation | None = None  # for a step with several micro-batches
        if self.args.gradient_accumulation_steps > 1:
            ExactAccumulation(self.loss)  # refuses a loss that is not a function of sums
        smoothing = self.args.label_smoothing_factor
        allowed = "be 0 with a loss of one's own"
        require(smoothing == 0, "TrainingArguments", "label_smoothing_factor", allowed, smoothing)
        copies = self.get_tp_size() * self.get_cp_size() * self.get_sp_size()
        allowed = "give every process rows of its own, without tensor, context or sequence parallel"
        got = f"{copies} processes that share rows"
        require(copies == 1, "AlignedTrainer", "args", allowed, got, "Use DDP or FSDP.")

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of these rows; for a micro-batch, a term with its part of the gradient."""
        outputs, logits, labels = _forward(model, inputs)
        exact = self._exact if model.training else None
        value = (exact or self).loss(logits, labels)
        return (value, outputs) if return_outputs else value

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | int | None]:
        self._exact = None
        self._microbatches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        return self._microbatches, items

    def training_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        several = len(self._microbatches)
        if several == 1:
            return super().training_step(model, inputs, num_items_in_batch)
        if self._exact is None:
            self._exact = self._count(model)
        super().training_step(model, inputs, num_items_in_batch)
        return self._exact.value / several  # Trainer adds up what the micro-batches return

    def _count(self, model: nn.Module) -> ExactAccumulation:
        """Run pass one, and restore the random numbers after it."""
        model.train()
        if not self.state.global_step:
            warn_of_batch_statistics("AlignedTrainer", model)
        exact = ExactAccumulation(self.loss)
        with exact.counting(), self.compute_loss_context_manager():
            for inputs in self._microbatches:
                exact.count(*_forward(model, self._prepare_inputs(inputs))[1:])
        with exact.replaying():
            return exact

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        scores = super().evaluate(*args, **kwargs)
        if self.annealing is not None and self.is_in_train:
            one = "eval_metric" in scores
            allowed = "be one data set where there is an annealing"
            require(one, "AlignedTrainer", "eval_dataset", allowed, "several")
            self.annealing.step(scores["eval_metric"])
            self.control.should_training_stop |= self.annealing.finished
        return scores

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._seen = 0  # an evaluation before it may have been interrupted
        self._fitter.reset()
        return super().evaluation_loop(*args, **kwargs)

    @property
    def rule(self) -> DecisionRule:
        """The decision rule for the rows of the last evaluation, fitted when it is first asked for.

        It takes logits as the loss does: those of tokens as (N, C, T).
        """
        if self._evaluated is None:
            text = complaint("AlignedTrainer", "rule", "follow an evaluation", "none")
            raise RuntimeError(text)
        if isinstance(self._evaluated, DecisionFitter):
            self._evaluated = self._evaluated.compute()
        return self._evaluated

    def _score(self, prediction: EvalPrediction, compute_result: bool = True) -> dict[str, float]:
        """Add the rows of a batch, and after the last one return the metric of all."""
        logits, labels = (torch.as_tensor(x) for x in prediction)
        logits = _classes_second(logits)
        self._seen = self._seen + hard_confusion(
            logits,
            labels,
            ignore_index=getattr(self.loss, "ignore_index", -100),
            matrix=self.metric.needs_matrix,
        )
        self._fitter.update(logits, labels)
        if not compute_result:
            return {}
        total, self._seen = self._seen, 0
        self._evaluated = self._fitter.over_ranks()
        self._fitter.reset()
        return {"metric": self.metric(total).item()}

    def _stateful(self) -> dict[str, Any]:
        parts = {"loss": self.loss, "annealing": self.annealing}
        return {name: part for name, part in parts.items() if part is not None}

    # Training also continues with the state of the loss, so it is saved beside the optimiser's.

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            tree = {name: part.state_dict() for name, part in self._stateful().items()}
            if self._evaluated is not None:
                tree["rule"] = self.rule.state_dict()
            save(Path(output_dir) / "evalign", tree)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or not exists(folder := Path(checkpoint) / "evalign"):
            return  # none, or that of a plain Trainer: the loss starts afresh
        tree = load(folder)
        for name, part in self._stateful().items():
            if name in tree:
                part.load_state_dict(tree[name])
        if "rule" in tree:
            metric = self._fitter.metric
            metric = None if isinstance(metric, str) else metric
            self._evaluated = DecisionRule.from_state_dict(tree["rule"], metric=metric)


def _forward(model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, Tensor, Tensor]:
    """Call the model without labels: with them it would compute a loss of its own."""
    cure = (
        'Set TrainingArguments(label_names=["labels"]): Trainer drops what forward does not take.'
    )
    require("labels" in inputs, "AlignedTrainer", "a batch", "hold labels", [*inputs], cure)
    outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    return outputs, _classes_second(logits), inputs["labels"]


def _classes_second(logits: Tensor) -> Tensor:
    return logits.mT if logits.ndim == 3 else logits
