"""Early stopping: track the best epoch by each criterion and decide when to stop."""

import math
from collections.abc import Mapping
from typing import Any

from evalign.core.checks import require
from evalign.training.annealing import TemperatureAnnealing

LOSS = "loss"  # the criterion whose values differ from temperature to temperature


class EarlyStopping:
    """Tracks the best epoch by each criterion and decides when to stop.

    Training stops after `epochs`, after `patience` epochs without improvement, when it diverges, or
    when the annealing has finished, but never before the first epoch.

    Args:
        greater_is_better: for each criterion, whether higher is better.
        epochs: maximum number of epochs.
        watch: the criterion for patience and annealing; None if there is neither.
        patience: epochs without improvement before training stops; None never stops early.
        annealing: stepped after every epoch with what is watched, as a loss if it is "loss", else
            as a score.

    Examples:
        >>> stopping = EarlyStopping({"f1": True}, epochs=100, watch="f1", patience=2)
        >>> [stopping.note({"f1": score}) for score in (0.5, 0.6, 0.6)]
        [['f1'], ['f1'], []]
        >>> stopping.finished
        False
        >>> stopping.note({"f1": 0.4}), stopping.finished
        ([], True)
    """

    def __init__(
        self,
        greater_is_better: Mapping[str, bool],
        *,
        epochs: int,
        watch: str | None = None,
        patience: int | None = None,
        annealing: TemperatureAnnealing | None = None,
    ) -> None:
        if annealing is not None and watch != LOSS:
            wanted = watch is not None and greater_is_better[watch]
            allowed, got = f"be {wanted} for the watched {watch}", annealing.greater_is_better
            require(got == wanted, "annealing", "greater_is_better", allowed, got)
        self.greater_is_better = dict(greater_is_better)
        self.epochs = epochs
        self.watch = watch
        self.patience = patience
        self.annealing = annealing
        self.epoch = 0
        self.best: dict[str, tuple[int, float]] = {}  # (epoch, score) by criterion
        self.diverged = False

    def note(self, scores: Mapping[str, float], *, diverged: bool = False) -> list[str]:
        """Record the scores of an epoch; return the criteria that improved.

        NaN is never an improvement. If training has diverged, there may be no scores.
        """
        self.epoch += 1
        self.diverged = diverged
        better = [name for name, score in scores.items() if self._is_better(name, score)]
        self.best |= {name: (self.epoch, scores[name]) for name in better}
        if self.annealing is not None and self.watch is not None:
            watched = "loss" if self.watch == LOSS else "score"
            self.annealing.step(**{watched: scores[self.watch]})
        return better

    @property
    def finished(self) -> bool:
        """Whether training should stop."""
        best_epoch, _ = self.best.get(self.watch or "", (0, math.nan))
        return self.epoch > 0 and (
            self.epoch >= self.epochs
            or self.epoch - best_epoch >= (self.patience or math.inf)
            or self.diverged
            or (self.annealing is not None and self.annealing.finished)
        )

    def state_dict(self) -> dict[str, Any]:
        """The state as plain values."""
        best = {name: list(found) for name, found in self.best.items()}
        annealing = None if self.annealing is None else self.annealing.state_dict()
        counts = {"epoch": self.epoch, "best": best, "diverged": self.diverged}
        return counts | {"annealing": annealing}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self.epoch, self.diverged = state["epoch"], state["diverged"]
        self.best = {name: (epoch, score) for name, (epoch, score) in state["best"].items()}
        if self.annealing is not None:
            self.annealing.load_state_dict(state["annealing"])

    def _is_better(self, name: str, score: float) -> bool:
        sign = 1 if self.greater_is_better[name] else -1
        _, best = self.best.get(name, (0, -sign * math.inf))
        return sign * score > sign * best  # false for NaN
