"""Hyperparameters of training."""

import math
from dataclasses import dataclass
from typing import Literal

from evalign.core.checks import require


@dataclass(frozen=True)
class Settings:
    """Hyperparameters of `fit`.

    Args:
        epochs: the maximum number of epochs.
        batch_size: the maximum batch size. All batches have nearly equal sizes.
        learning_rate: peak learning rate of AdamW.
        weight_decay: weight decay of AdamW.
        clip_norm: maximum norm of the gradient; None does not clip.
        precision: "bfloat16" and "float16" run the network under autocast. Weights and the loss
            stay in full precision.
        schedule: "cosine" decays the learning rate to 0 at the last epoch; "constant" keeps it.
        warmup: fraction of all steps over which the learning rate rises from 0.
        ema_decay: decay of an exponential moving average of the weights, such as 0.99. The average
            is validated and returned. None keeps no average.
        patience: epochs without a new best before training stops; None never stops early.
        watch: the validation score that selects the best epoch: "metric", or "loss" as in the
            papers. Losses at different temperatures are not comparable.
        seed: seed of shuffling, dropout and everything else that torch draws.
    """

    epochs: int = 200
    batch_size: int = 2048
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    clip_norm: float | None = 1.0
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: float = 0.01
    ema_decay: float | None = None
    patience: int | None = 20
    watch: Literal["metric", "loss"] = "metric"
    seed: int = 0

    def __post_init__(self) -> None:
        def check(ok: bool, name: str, allowed: str) -> None:
            require(ok, "Settings", name, allowed, repr(getattr(self, name)))

        check(self.epochs >= 1, "epochs", "be at least 1")
        check(self.batch_size >= 1, "batch_size", "be at least 1")
        check(self.learning_rate > 0, "learning_rate", "be positive")
        check(self.clip_norm is None or self.clip_norm > 0, "clip_norm", "be positive or None")
        known = self.precision in ("float32", "bfloat16", "float16")
        check(known, "precision", 'be "float32", "bfloat16" or "float16"')
        check(self.schedule in ("cosine", "constant"), "schedule", 'be "cosine" or "constant"')
        check(0 <= self.warmup < 1, "warmup", "lie in [0, 1)")
        averages = self.ema_decay is None or 0 < self.ema_decay < 1
        check(averages, "ema_decay", "lie between 0 and 1, or be None")
        check(self.patience is None or self.patience >= 1, "patience", "be at least 1 or None")
        check(self.watch in ("metric", "loss"), "watch", 'be "metric" or "loss"')

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step out of at most `steps`.

        Examples:
            >>> [round(Settings(warmup=0.2).rate(step, 10), 5) for step in (0, 1, 5, 9)]
            [0.0005, 0.00098, 0.0005, 2e-05]
        """
        warmup = max(1, round(self.warmup * steps))
        cosine = (1 + math.cos(math.pi * step / steps)) / 2 if self.schedule == "cosine" else 1.0
        return self.learning_rate * min(1.0, (step + 1) / warmup) * cosine

    def decay(self, step: int) -> float:
        """The decay of the average of weights at a step; 0 if no average is kept.

        It rises from 0, because otherwise the random initial weights would dominate for long.

        Examples:
            >>> [round(Settings(ema_decay=0.9).decay(step), 2) for step in (0, 10, 1000)]
            [0.0, 0.5, 0.9]
        """
        return min(self.ema_decay or 0.0, step / (step + 10))
