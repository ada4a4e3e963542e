"""The temperature of a loss that has a soft step.

It is a buffer of the loss itself, so that it is saved and moved with it.
"""

from typing import Protocol, TypeGuard

import torch
from torch import Tensor

from evalign.core.checks import check_temperature
from evalign.core.membership import Heaviside, check_step
from evalign.losses.base import Loss


class HasTemperature(Protocol):
    """A loss whose step can be made sharper, such as `MetricLoss`."""

    @property
    def temperature(self) -> Tensor: ...

    def set_temperature(self, temperature: float) -> None: ...


def has_temperature(loss: object) -> TypeGuard[HasTemperature]:
    """Whether a loss is one of these. (`isinstance` overlooks buffers from Python 3.12 on.)"""
    return hasattr(loss, "temperature") and hasattr(loss, "set_temperature")


def register_temperature(loss: Loss, temperature: float, heaviside: Heaviside) -> None:
    """Check the step that a loss was given, and make its temperature a buffer."""
    check_step(type(loss).__name__, heaviside, temperature)
    loss.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float64))


def fill_temperature(loss: HasTemperature, temperature: float) -> None:
    """Change the temperature in place, so that compiled graphs follow."""
    check_temperature(type(loss).__name__, temperature)
    loss.temperature.fill_(temperature)
