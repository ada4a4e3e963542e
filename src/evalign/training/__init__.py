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

from evalign.core import stairs

if TYPE_CHECKING:
    from evalign.core.errors import TrainingWarning
    from evalign.tables.split import holdout_split, three_way_split
    from evalign.training.annealing import TemperatureAnnealing
    from evalign.training.loop import fit
    from evalign.training.run import History
    from evalign.training.settings import Settings

__all__ = [
    "History",
    "Settings",
    "TemperatureAnnealing",
    "TrainingWarning",
    "fit",
    "holdout_split",
    "three_way_split",
]

# The modules of the names, by floor.
_GROUND = {
    "TrainingWarning": "evalign.core.errors",
    "holdout_split": "evalign.tables.split",
    "three_way_split": "evalign.tables.split",
}
_UPPER = {
    "History": "evalign.training.run",
    "Settings": "evalign.training.settings",
    "TemperatureAnnealing": "evalign.training.annealing",
    "fit": "evalign.training.loop",
}


def __getattr__(name: str) -> object:
    home = _GROUND.get(name) or _UPPER.get(name)
    if home is None or (name in _UPPER and not stairs.has_torch()):
        raise stairs.no_attribute(__name__, name, _UPPER)
    return getattr(import_module(home), name)
