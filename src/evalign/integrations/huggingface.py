"""Hugging Face: a Trainer whose gradient is that of the loss over all rows of a step."""

from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from inspect import signature
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from evalign.aggregation import ExactAccumulation
from evalign.aggregation.exact import warn_of_batch_statistics
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import MetricFunction
from evalign.core.text import installing
from evalign.decisions import Decision, DecisionRule
from evalign.decisions.saved_rule import read_state
from evalign.integrations.evaluation import Evaluation, check_annealing, check_direction
from evalign.losses.outputs import classes_second, logits_of
from evalign.membership.checks import signed
from evalign.store import archive
from evalign.training import TemperatureAnnealing

try:
    # From where they are made: by `from transformers` a type checker reads every model there is.
    from transformers.trainer import Trainer
    from transformers.trainer_utils import EvalPrediction, PredictionOutput
except ModuleNotFoundError as error:
    text = f"evalign.integrations.huggingface needs transformers. {installing('.[huggingface]')}"
    raise ImportError(text) from error

Scores = dict[str, float]
RULE_FILE = "rule.json"  # beside the weights


class AlignedPrediction(PredictionOutput):
    """The output of `Trainer.predict`: logits without the offsets of the loss, and `labels`."""

    rule: DecisionRule | None = None

    @property
    def labels(self) -> np.ndarray | None:
        """Labels by the rule of the last evaluation: (N,), (N, T) of tokens, (N, H, W) of pixels.

        There are as many pixels as in `label_ids`. None before any evaluation.
        """
        logits = _logits(self.predictions)
        known = logits if self.label_ids is None else torch.as_tensor(self.label_ids)
        return self.rule and self.rule(classes_second(logits, known)[0].numpy())


class AlignedTrainer(Trainer):
    """A `Trainer` with a loss of (logits, labels), and the metric that judges the model.

    The gradient of a step is that of the loss over its rows of all processes and all micro-batches
    together; `gradient_accumulation_steps` goes over the micro-batches twice (`exact_backward`).
    Every process has rows of its own, as in DDP and FSDP.

    An evaluation reports the metric of all its rows as `eval_metric`, and fits the decision rule
    `rule` to them. `predict` also returns `labels` by the rule. A checkpoint holds the loss and its
    annealing; the rule lies beside the weights as `rule.json`.

    Args:
        loss: such as `MetricLoss`. Logits of tokens (N, T, C) reach it as (N, C, T), and those of
            pixels at the resolution of their labels.
        metric: a name or a function of a `Confusion`, for labels by argmax (or logit > 0).
        decision, constraint, confidence: of `rule`, as in `fit_decision`.
        annealing: cools the loss by `eval_metric` during training, and ends the training.
        compute_metrics: as in `Trainer`, reported beside `eval_metric`: of the logits of all rows,
            which are then kept; or, if it takes `compute_result`, per batch.

    The other arguments are those of `Trainer`. With `model_init`, the loss begins anew as well.
    """

    def __init__(
        self,
        *args: Any,
        loss: nn.Module,
        metric: str | MetricFunction,
        decision: Decision = "tuned",
        constraint: str | None = None,
        confidence: float | None = None,
        annealing: TemperatureAnnealing | None = None,
        compute_metrics: Callable[..., Scores] | None = None,
        **kwargs: Any,
    ) -> None:
        rule = {"decision": decision, "constraint": constraint, "confidence": confidence}
        rule["ranks"] = "own"  # Trainer gives every process the rows of all
        self._evaluation = Evaluation("AlignedTrainer", loss, metric, rule, class_dim=1)
        self.metric = self._evaluation.metric
        self._given: dict[str, Any] = {}  # states, which `call_model_init` asks for
        # Trainer divides by the accumulation steps unless there is a compute_loss_func.
        super().__init__(*args, compute_loss_func=loss, compute_metrics=self._score, **kwargs)
        self._own = compute_metrics
        # Unless a function asks for all rows at once, Trainer keeps no logits.
        asked = signature(compute_metrics or self._score).parameters
        self.args.batch_eval_metrics = "compute_result" in asked
        self.loss: Any = loss.to(self.args.device)
        self.loss.class_dim = 1  # where `classes_second` puts the classes
        self.annealing = annealing
        if self.args.metric_for_best_model in ("metric", "eval_metric"):
            check_direction("TrainingArguments", self.args.greater_is_better, self.metric)
        check_annealing(annealing, self.loss, self.metric)
        self._given = {name: deepcopy(part.state_dict()) for name, part in self._stateful().items()}
        self._microbatches: list[dict[str, Any]] = []
        self._exact: ExactAccumulation | None = None  # for a step with several micro-batches
        self._replaying = ExitStack()  # open while they are back-propagated

    def call_model_init(self, *args: Any, **kwargs: Any) -> nn.Module:
        for name, state in self._given.items():
            self._stateful()[name].load_state_dict(state)
        self._evaluation.load_rule(None)
        return super().call_model_init(*args, **kwargs)

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, *_: Any, **__: Any
    ) -> Any:
        """The loss of these rows; for a micro-batch, a term with its part of the gradient."""
        outputs, logits, labels = self._forward(model, inputs)
        exact = self._exact if model.training else None
        value = (exact or self).loss(logits, labels)
        return (value, outputs) if return_outputs else value

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Any]:
        self._exact = None
        self._replaying.close()  # a step before it may have been interrupted
        self._microbatches, items = super().get_batch_samples(*args, **kwargs)
        return self._microbatches, items

    def training_step(self, model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
        several = len(self._microbatches)
        if several == 1:
            return super().training_step(model, *args, **kwargs)
        if self._exact is None:
            self._exact, self._left = self._count(model), several
            self._replaying.enter_context(self._exact.replaying())
        super().training_step(model, *args, **kwargs)
        self._left -= 1
        if not self._left:
            self._replaying.close()
        return self._exact.value / several  # Trainer adds up what the micro-batches return

    def _count(self, model: nn.Module) -> ExactAccumulation:
        """Run pass one."""
        model.train()
        if not self.state.global_step:
            warn_of_batch_statistics("AlignedTrainer", model)
        exact = ExactAccumulation(self.loss)
        with exact.counting(), self.compute_loss_context_manager():
            for inputs in self._microbatches:
                exact.count(*self._forward(model, self._prepare_inputs(inputs))[1:])
        return exact

    def _forward(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, Tensor, Tensor]:
        """Outputs, logits and labels. A model that is given labels computes a loss of its own."""
        cure = 'Set TrainingArguments(label_names=["labels"]): Trainer drops unnamed columns.'
        require("labels" in inputs, "AlignedTrainer", "a batch", "hold labels", [*inputs], cure)
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        return outputs, *classes_second(logits_of(outputs), inputs["labels"])

    def evaluate(self, *args: Any, **kwargs: Any) -> Scores:
        scores = super().evaluate(*args, **kwargs)
        if self.annealing is not None and self.is_in_train:
            one, allowed = "eval_metric" in scores, "be one data set where there is an annealing"
            require(one, "AlignedTrainer", "eval_dataset", allowed, "several")
            self.annealing.step(score=scores["eval_metric"])
            self.control.should_training_stop |= self.annealing.finished
        return scores

    def evaluation_loop(self, dataloader: Any, description: str, *args: Any, **kwargs: Any) -> Any:
        self._evaluation.start()
        self._predicting = description == "Prediction"  # as `predict` calls it
        return super().evaluation_loop(dataloader, description, *args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> AlignedPrediction:
        """Logits and scores as of `Trainer`, and labels by the rule of the last evaluation.

        If the rows are labelled, `test_metric` is that of the labels by the rule, where there is
        one, and `test_metric_argmax` that of argmax.
        """
        output = AlignedPrediction(*super().predict(*args, **kwargs))
        output.rule = None if self._evaluation.fitted is None else self.rule
        return output

    @property
    def rule(self) -> DecisionRule:
        """The decision rule for the rows of the last evaluation. Tokens are (N, C, T) to it."""
        return self._evaluation.rule

    def _score(self, prediction: EvalPrediction, compute_result: bool = True) -> Scores:
        """Add these rows; with the last ones, fit the rule and return the metric of all rows."""
        all_rows: Any = prediction.predictions, prediction.label_ids
        lists = isinstance(prediction.label_ids, list)  # without eval_do_concat_batches
        batches = zip(*all_rows, strict=True) if lists else [all_rows]
        test = self._predicting and self._evaluation.fitted is not None
        for logits, labels in batches:
            labels = signed(torch.as_tensor(labels))
            # Trainer pads by -100, whatever the loss leaves out.
            labels = labels.masked_fill(labels == -100, self._evaluation.reading["ignore_index"])
            # In parts, because logits of images may be coarser than their labels.
            parts = (x.split(self.args.eval_batch_size) for x in (_logits(logits), labels))
            for part in zip(*parts, strict=True):
                self._evaluation.add(*classes_second(*part), test=test)
        more = {"compute_result": compute_result} if self.args.batch_eval_metrics else {}
        own = {} if self._own is None else self._own(prediction, **more) or {}
        if not compute_result:
            return {}
        counted = {"metric_argmax" if self._predicting else "metric": self._evaluation.confusion}
        if test:
            counted["metric"] = self._evaluation.by_rule
        if not self._predicting:
            self._evaluation.fit_rule()
        return own | {name: self.metric(cast(Confusion, c)).item() for name, c in counted.items()}

    def _stateful(self) -> dict[str, Any]:
        parts = {"loss": self.loss, "annealing": self.annealing}
        return {name: part for name, part in parts.items() if part is not None}

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        rule = self._evaluation.saved_rule
        path = Path(output_dir or str(self.args.output_dir)) / RULE_FILE
        if self.args.should_save:  # the rule of earlier weights goes
            path.unlink(missing_ok=True) if rule is None else rule.save(path)

    # Training also continues with the state of the loss, so it is saved beside the optimiser's.

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            tree = {name: part.state_dict() for name, part in self._stateful().items()}
            archive.save(Path(output_dir) / "evalign", tree)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        self._load_own(checkpoint)

    def _load_best_model(self) -> None:
        super()._load_best_model()
        # The offsets of the loss and the rule go with the weights.
        self._load_own(self.state.best_model_checkpoint)

    def _load_own(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        path = Path(checkpoint) / "evalign"
        # A plain Trainer's has none, nor has one with save_only_model: the loss stays as it is.
        tree = archive.load(path, archive.CHECKPOINT) if path.exists() else {}
        for name, part in self._stateful().items():
            if name in tree:
                part.load_state_dict(tree[name])
        path = Path(checkpoint) / RULE_FILE
        self._evaluation.load_rule(read_state(path) if path.exists() else None)


def _logits(predictions: Any) -> Tensor:
    """The logits, which come first where a model returns more."""
    return torch.as_tensor(predictions[0] if isinstance(predictions, tuple) else predictions)
