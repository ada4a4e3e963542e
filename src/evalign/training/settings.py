"""The settings of a training."""

import math
from dataclasses import dataclass
from typing import Literal

from evalign.core.checks import require


def usual_batch_size(rows: int) -> int:
    """The rows per step for a number of training rows: a 32nd of them, from 32 to 1024.

    Examples:
        >>> [usual_batch_size(rows) for rows in (100, 6400, 10**6)]
        [32, 200, 1024]
    """
    return min(max(32, rows // 32), 1024)


@dataclass(frozen=True)
class Settings:
    """How to train.

    Args:
        epochs: the most passes over the data.
        batch_size: rows per step, at most: batches are nearly equal, so that none is tiny.
        learning_rate: AdamW's, at its highest.
        weight_decay: AdamW's.
        clip_norm: gradients longer than this are shortened to it; None leaves them.
        precision: "bfloat16" and "float16" run the network under autocast; weights and the loss
            stay in full precision.
        schedule: of the learning rate; "cosine" falls to 0 at the last epoch, "constant" stays.
        warmup: share of all steps over which the learning rate rises from 0.
        ema_decay: decay of an exponential moving average of the weights, such as 0.99, which is
            then what is validated and returned; None for the weights themselves.
        patience: epochs without a new best before training ends; None never ends early.
        watch: what makes an epoch the best: "metric", the true metric of the validation rows, or
            "loss", their loss (the papers' rule; not comparable across temperatures).
        seed: of the shuffling, of dropout and of all else that torch draws.
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
        check(self.weight_decay >= 0, "weight_decay", "be at least 0")
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
        """The learning rate of a step, in a training of at most `steps`.

        Examples:
            >>> [round(Settings(warmup=0.2).rate(step, 10), 5) for step in (0, 1, 5, 9)]
            [0.0005, 0.00098, 0.0005, 2e-05]
        """
        warmup = max(1, round(self.warmup * steps))
        cosine = (1 + math.cos(math.pi * step / steps)) / 2 if self.schedule == "cosine" else 1.0
        return self.learning_rate * min(1.0, (step + 1) / warmup) * cosine

    def decay(self, step: int) -> float:
        """The decay of the average of weights at a step; 0 where no average is kept.

        It begins at 0 and rises slowly, because otherwise the random start would count for long.

        Examples:
            >>> [round(Settings(ema_decay=0.9).decay(step), 2) for step in (0, 10, 1000)]
            [0.0, 0.5, 0.9]
        """
        return min(self.ema_decay or 0.0, step / (step + 10))
