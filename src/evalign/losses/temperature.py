"""The temperature of a loss with a soft step: a buffer, saved and moved with the loss."""

import torch

from evalign.core.checks import check_temperature
from evalign.core.membership import Heaviside, check_step
from evalign.losses.base import Loss


def register_temperature(loss: Loss, temperature: float, heaviside: Heaviside) -> None:
    """Check the step that a loss was given, and make its temperature a buffer."""
    check_step(type(loss).__name__, heaviside, temperature)
    loss.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float64))


def fill_temperature(loss: Loss, temperature: float) -> None:
    """Change the temperature in place, so that compiled graphs follow."""
    check_temperature(type(loss).__name__, temperature)
    loss.get_buffer("temperature").fill_(temperature)
