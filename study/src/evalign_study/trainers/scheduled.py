"""A learner of images like `AlignedClassifier`: AdamW with a cosine schedule, weights averaged."""

import copy
import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from evalign.training import Settings
from evalign.training.averaging import offsets_of, set_offsets
from evalign_study.records.run import Run
from evalign_study.trainers.crops import Stored
from evalign_study.trainers.images import Learner
from evalign_study.trainers.stacked import average_weights


class ScheduledLearner(Learner[Stored], ABC):
    """Trains with a schedule. What a batch is, subclasses say."""

    def __init__(
        self,
        run: Run,
        images: Stored,
        loss: nn.Module,
        batch_size: int,
        settings: Settings,
    ) -> None:
        super().__init__(run, images, loss, batch_size)
        self.settings = settings
        self.averaged: Tensor | None = None  # offsets, from the first step on
        if settings.ema_decay is not None:
            self.kept = copy.deepcopy(self.network).requires_grad_(False).eval()
        self.steps, self.number = settings.epochs * (len(images.training) // len(self.rows)), 0
        # These change from step to step. They are tensors, as a CUDA graph would replay a number.
        self.rate = torch.tensor(settings.learning_rate, device=images.y.device)
        self.decay = torch.zeros_like(self.rate)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            self.rate,
            weight_decay=settings.weight_decay,
            fused=True,
            capturable=self.cuda,
        )
        self.step = self._prepared(self._step)

    def epoch(self) -> None:
        """Train on all batches."""
        self._set_mode(True)
        for batch in self._batches():
            self.rate.fill_(self.settings.rate(self.number, self.steps))
            self.decay.fill_(self.settings.decay(self.number))
            self.rows.copy_(batch)
            self._draw()
            self.step()
            self.number += 1

    @property
    def offsets(self) -> Tensor | None:
        """The offsets of the loss, averaged as the weights are; None if they do not change."""
        return self.averaged

    def loss_of(self, logits: Tensor, target: Tensor) -> float:
        """Compute the loss with the averaged offsets, as `fit` does."""
        current = copy.deepcopy(offsets_of(self.loss))
        set_offsets(self.averaged, self.loss)
        value = super().loss_of(logits, target)
        set_offsets(current, self.loss)
        return value

    def _draw(self) -> None:
        """Draw what the step needs, before it."""

    @abstractmethod
    def _batch(self) -> tuple[Tensor, Tensor]:
        """The images `rows` as they are trained on, and their target."""

    def _step(self) -> None:
        x, target = self._batch()
        loss = self.loss(self._forward(self.network, x), target)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip_norm or math.inf)
        self.optimizer.step()
        # The decay of the first step is 0, so the steps before a capture leave no trace.
        if (offsets := super().offsets) is not None:
            self.averaged = offsets.clone() if self.averaged is None else self.averaged
            average_weights([self.averaged], [offsets], self.decay)
        if self.kept is not self.network:
            average_weights(self.kept.parameters(), self.network.parameters(), self.decay)
            for kept, buffer in zip(self.kept.buffers(), self.network.buffers(), strict=True):
                kept.copy_(buffer)
