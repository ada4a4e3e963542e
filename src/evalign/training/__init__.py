"""Training: the fit loop, annealing of the temperature, splits, checkpoints and warnings.

Read `loop` first. `early_stopping` knows the best epoch and when to stop, `averaging` averages
weights, `annealing` cools a loss, `recipes` are losses with it, and `split` makes parts without
leaks. `run` is the state that `checkpoint` saves, and `configuration` tells whether a resumed call
is the same. `advice` warns if a run goes wrong. May import `core`, `store`, `decisions` and
`losses`.

Each name is loaded when it is first used: a loop of the user's own, with a `TemperatureAnnealing`,
does not wait for what saves checkpoints.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalign.training.advice import TrainingWarning
    from evalign.training.annealing import TemperatureAnnealing
    from evalign.training.loop import fit
    from evalign.training.run import History
    from evalign.training.settings import Settings
    from evalign.training.split import holdout_split, three_way_split

__all__ = [
    "History",
    "Settings",
    "TemperatureAnnealing",
    "TrainingWarning",
    "fit",
    "holdout_split",
    "three_way_split",
]

# The module of this folder that each name comes from.
_HOME = {
    "History": "run",
    "Settings": "settings",
    "TemperatureAnnealing": "annealing",
    "TrainingWarning": "advice",
    "fit": "loop",
    "holdout_split": "split",
    "three_way_split": "split",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'evalign.training' has no attribute {name!r}")
    return getattr(import_module(f"evalign.training.{_HOME[name]}"), name)
