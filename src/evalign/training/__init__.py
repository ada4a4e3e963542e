"""Training: the fit loop, annealing of the temperature, splits, checkpoints, warnings that help.

`loop` is the one to read. `progress` knows the best epoch and when to stop, `averaging` averages
weights and `annealing` cools a loss; `split` makes leak-free parts. `checkpoint` survives a crash,
`state` is what it holds, and `configuration` tells two calls apart. `advice` warns when a run goes
wrong. May import `core` and `losses`.
"""

from evalign.training.advice import TrainingWarning
from evalign.training.annealing import TemperatureAnnealing
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
    "fit",
    "holdout_split",
    "three_way_split",
]
