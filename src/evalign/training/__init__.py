"""Training: the fit loop, annealing of the temperature, splits, checkpoints and warnings.

Read `loop` first. `early_stopping` knows the best epoch and when to stop, `averaging` averages
weights, `annealing` cools a loss, `recipes` are losses with it, and `split` makes parts without
leaks. `run` is the state that `checkpoint` saves, and `configuration` tells whether a resumed call
is the same. `advice` warns if a run goes wrong. May import `core`, `store`, `decisions` and
`losses`.
"""

from evalign.core import stairs
from evalign.core.errors import TrainingWarning
from evalign.tables.split import holdout_split, three_way_split

if stairs.has_torch():
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


def __getattr__(name: str) -> object:
    raise stairs.no_attribute(__name__, name, __all__)
