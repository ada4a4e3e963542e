"""Lower the temperature of a loss when the validation score stops improving (EAST 4.3)."""

import math
from typing import Any, Protocol, TypeGuard

from torch import Tensor, nn

from evalign.core.checks import require
from evalign.membership.checks import check_temperature

SETTINGS = ("start", "rate", "patience", "coolings", "greater_is_better")


class HasTemperature(Protocol):
    """A loss whose step can be made sharper, such as `MetricLoss`."""

    @property
    def temperature(self) -> Tensor: ...

    def set_temperature(self, temperature: float) -> None: ...


def has_temperature(loss: object) -> TypeGuard[HasTemperature]:
    """Whether a loss has a temperature. (`isinstance` overlooks buffers from Python 3.12 on.)"""
    return hasattr(loss, "temperature") and hasattr(loss, "set_temperature")


def part_with_temperature(loss: object) -> HasTemperature | None:
    """The module of a loss that has a temperature, or None."""
    modules = loss.modules() if isinstance(loss, nn.Module) else ()
    return next((part for part in modules if has_temperature(part)), None)


class TemperatureAnnealing:
    """Lowers T_k = start · rate^k when the validation score stops improving (EAST 4.3).

    Use it like a learning-rate scheduler: call `step` with the score after every validation. The
    temperature falls after `patience` validations without a new best. After `coolings` falls in a
    row without a new best, the temperature stays and `finished` becomes true.

    Step with the true metric of validation rows. Values of the loss are not comparable across
    temperatures.

    Args:
        loss: a loss with a temperature, such as `MetricLoss` or `AlignedLoss`. Its temperature is
            set to `start`.
        start: the initial temperature T_0, in (0, 0.4].
        rate: the factor of each cooling, in (0, 1).
        patience: validations without a new best before a cooling.
        coolings: consecutive coolings without a new best before the end; 0 is early stopping.
        greater_is_better: whether a higher score is better.

    Examples:
        >>> from evalign import MetricLoss
        >>> loss = MetricLoss("f1_macro")
        >>> annealing = TemperatureAnnealing(loss, rate=0.5, patience=1)
        >>> for score in [0.6, 0.7, 0.7]:
        ...     annealing.step(score)
        >>> annealing.temperature
        0.1
    """

    def __init__(
        self,
        loss: HasTemperature,
        *,
        start: float = 0.2,
        rate: float = 0.9,
        patience: int = 5,
        coolings: int = 3,
        greater_is_better: bool = True,
    ) -> None:
        name = "TemperatureAnnealing"
        check_temperature(name, start)
        require(0 < rate < 1, name, "rate", "lie between 0 and 1", rate)
        require(patience >= 1, name, "patience", "be at least 1", patience)
        require(coolings >= 0, name, "coolings", "be at least 0", coolings)
        step = getattr(loss, "heaviside", None)
        can_cool = has_temperature(loss) and not callable(step)
        allowed = (
            "have a temperature: an AlignedLoss, or a MetricLoss or AUROCLoss whose heaviside is "
            "a name"
        )
        require(can_cool, name, "loss", allowed, loss)
        self.loss = loss
        self.start = start
        self.rate = rate
        self.patience = patience
        self.coolings = coolings
        self.greater_is_better = greater_is_better
        self.cooled = 0  # k
        self.cooled_in_vain = 0
        self.waited = 0
        self.best: float | None = None
        self.finished = False
        loss.set_temperature(self.temperature)

    @property
    def temperature(self) -> float:
        return self.start * self.rate**self.cooled

    @property
    def settings(self) -> dict[str, float | bool]:
        """The arguments of the constructor, without the loss."""
        return {name: getattr(self, name) for name in SETTINGS}

    def step(self, score: float) -> None:
        """Take a validation score. NaN is never an improvement."""
        better = score if self.greater_is_better else -score
        if not math.isnan(better) and (self.best is None or better > self.best):
            self.best = better
            self.waited = self.cooled_in_vain = 0
            return
        self.waited += 1
        if self.waited < self.patience:
            return
        self.waited = 0
        if self.cooled_in_vain == self.coolings:
            self.finished = True
        else:
            self.cooled += 1
            self.cooled_in_vain += 1
            self.loss.set_temperature(self.temperature)

    def state_dict(self) -> dict[str, Any]:
        """Settings and counters, as plain numbers."""
        return {k: v for k, v in vars(self).items() if k != "loss"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken, and set the temperature of the loss."""
        expected = self.state_dict().keys()
        allowed, got = f"hold {', '.join(expected)}", ", ".join(state)
        require(state.keys() == expected, "TemperatureAnnealing", "state", allowed, got)
        vars(self).update(state)
        self.loss.set_temperature(self.temperature)
