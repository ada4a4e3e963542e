"""Training: the fit loop, annealing of the temperature, splits, checkpoints, warnings that help.

`loop` is the one to read; `annealing` cools a loss, `split` makes leak-free parts, `checkpoint`
survives a crash, `advice` speaks up when a run goes wrong. May import `core` and `losses`.
"""

from evalign.training.advice import TrainingWarning
from evalign.training.annealing import (
    TemperatureAnnealing,
    constant_temperature,
    geometric_temperature,
    linear_temperature,
)
from evalign.training.checkpoint import CheckpointError
from evalign.training.loop import fit
from evalign.training.settings import Settings
from evalign.training.split import Standardizer, holdout_split, three_way_split
from evalign.training.state import History

__all__ = [
    "CheckpointError",
    "History",
    "Settings",
    "Standardizer",
    "TemperatureAnnealing",
    "TrainingWarning",
    "constant_temperature",
    "fit",
    "geometric_temperature",
    "holdout_split",
    "linear_temperature",
    "three_way_split",
]
