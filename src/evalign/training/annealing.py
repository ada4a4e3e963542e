"""Lower the temperature of a loss when validation stops improving (EAST 4.3)."""

import math
from typing import Any, Literal, Protocol, TypeGuard, get_args

from torch import Tensor, nn

from evalign.core.checks import require
from evalign.membership.checks import check_temperature

Reading = Literal["each temperature", "shared patience"]

SETTINGS = ("start", "rate", "patience", "coolings", "reading", "greater_is_better")


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
    """Lowers T_k = start · rate^k when validation stops improving, and ends training (EAST 4.3).

    Call `step` after every epoch, with the validation loss or with a validation score, until
    `finished` is true.

    Losses at different temperatures are not the same quantity: a sharper step changes the loss of
    the same network. So with `step(loss=...)`, patience counts within a temperature. The best epoch
    is still the one of the lowest loss at any temperature, because that is what the papers select.
    A score, such as the true metric, means the same at every temperature. So with `step(score=...)`
    patience counts since the best score of all, and the best epoch is the one a user would choose.

    Args:
        loss: a loss with a temperature, such as `MetricLoss` or `AlignedLoss`. Its temperature is
            set to `start`.
        start: the initial temperature T_0, in (0, 0.4].
        rate: the factor of each cooling, in (0, 1).
        patience: epochs without progress before a cooling.
        coolings: temperatures in vain, one after the other, that end training. A temperature is in
            vain if it brought no new best. 0 is early stopping at the first temperature. The paper
            says "a number of temperature decreases" and leaves it open.
        reading: of what the paper says about patience. "each temperature" trains on until
            `patience` epochs bring no progress at that temperature. "shared patience" makes the
            patience the sum of all waits after the best epoch: each temperature gets patience /
            (coolings + 1) epochs, rounded up, and losses too are compared across temperatures.
        greater_is_better: whether a higher score is better. It does not matter to a loss.

    Attributes:
        temperature: the present T_k.
        cooled: the number k of coolings so far.
        finished: whether training should end.

    Examples:
        >>> from evalign import MetricLoss
        >>> loss = MetricLoss("f1_macro")
        >>> annealing = TemperatureAnnealing(loss, rate=0.5, patience=1)
        >>> [annealing.step(loss=value) for value in [0.4, 0.3, 0.3]]
        [True, True, False]
        >>> annealing.temperature
        0.1
    """

    def __init__(
        self,
        loss: HasTemperature,
        *,
        start: float = 0.2,
        rate: float = 0.9,
        patience: int = 50,
        coolings: int = 3,
        reading: Reading = "each temperature",
        greater_is_better: bool = True,
    ) -> None:
        name = "TemperatureAnnealing"
        check_temperature(name, start)
        require(0 < rate < 1, name, "rate", "lie between 0 and 1", rate)
        require(patience >= 1, name, "patience", "be at least 1", patience)
        require(coolings >= 0, name, "coolings", "be at least 0", coolings)
        known = get_args(Reading)
        require(reading in known, name, "reading", f"be one of {', '.join(known)}", repr(reading))
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
        self.reading: Reading = reading
        self.greater_is_better = greater_is_better
        self.watched: str | None = None  # "loss" or "score", as the first step says
        self.cooled = 0  # k
        self.cooled_in_vain = 0  # coolings since the best epoch
        self.waited = 0
        # Values of which the greater is better: scores, or losses with their sign changed.
        self.best: float | None = None
        self.best_here: float | None = None  # at this temperature
        self.finished = False
        loss.set_temperature(self.temperature)

    @property
    def temperature(self) -> float:
        return self.start * self.rate**self.cooled

    @property
    def wait(self) -> int:
        """The epochs without progress before a cooling."""
        if self.reading == "shared patience":
            return math.ceil(self.patience / (self.coolings + 1))
        return self.patience

    @property
    def settings(self) -> dict[str, float | bool | str]:
        """The arguments of the constructor, without the loss."""
        return {name: getattr(self, name) for name in SETTINGS}

    def step(self, *, loss: float | None = None, score: float | None = None) -> bool:
        """Take the validation loss or score of an epoch; return whether it is the best so far.

        NaN is never the best, and never progress.
        """
        value = self._comparable(loss, score)
        is_best = _above(value, self.best)
        is_best_here = _above(value, self.best_here)
        if is_best_here:
            self.best_here = value
        if is_best:
            self.best = value
            self.cooled_in_vain = 0
        within = self.watched == "loss" and self.reading == "each temperature"
        if is_best_here if within else is_best:
            self.waited = 0
        else:
            self.waited += 1
        if self.waited >= self.wait:
            self._leave_temperature()
        return is_best

    def _comparable(self, loss: float | None, score: float | None) -> float:
        """The value of which the greater is better."""
        if (loss is None) == (score is None):
            came = "neither" if loss is None else "both"
            text = "step of TemperatureAnnealing takes one of loss= and score=."
            raise TypeError(f"{text} Got {came}.")
        watched = "score" if loss is None else "loss"
        allowed = f"be given {self.watched}= in every step, as in the first one"
        same = self.watched in (None, watched)
        require(same, "TemperatureAnnealing", "step", allowed, f"{watched}=")
        self.watched = watched
        if loss is not None:
            return -loss
        assert score is not None
        return score if self.greater_is_better else -score

    def _leave_temperature(self) -> None:
        """Cool, or finish after the last temperature in vain."""
        self.waited = 0
        if self.cooled_in_vain == self.coolings:
            self.finished = True
            return
        self.best_here = None
        self.cooled += 1
        self.cooled_in_vain += 1
        self.loss.set_temperature(self.temperature)

    def state_dict(self) -> dict[str, Any]:
        """Settings and counters, as plain values."""
        return {k: v for k, v in vars(self).items() if k != "loss"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken, and set the temperature of the loss."""
        expected = self.state_dict().keys()
        allowed, got = f"hold {', '.join(expected)}", ", ".join(state)
        require(state.keys() == expected, "TemperatureAnnealing", "state", allowed, got)
        vars(self).update(state)
        self.loss.set_temperature(self.temperature)


def _above(value: float, best: float | None) -> bool:
    """Whether a value is above the best so far; false for NaN."""
    return not math.isnan(value) and (best is None or value > best)
