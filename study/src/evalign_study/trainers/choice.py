"""The choice of the trainer of a run. A new kind of training is added here, as a `Trainer`."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from evalign_study.data import card
from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.trainers import recipe, tabular, tailed
from evalign_study.trainers.classical import CLASSICAL, train_classical
from evalign_study.trainers.deciding import METHODS, train_decided
from evalign_study.trainers.dense import train_dense
from evalign_study.trainers.frames import train_frames
from evalign_study.trainers.goals import PREFIX as GOAL
from evalign_study.trainers.goals import train_goal
from evalign_study.trainers.images import train_image
from evalign_study.trainers.modelling import METHODS as MODELLED_METHODS
from evalign_study.trainers.modelling import train_models
from evalign_study.trainers.multilabel import train_multilabel
from evalign_study.trainers.rivals import METHODS as RIVAL_METHODS
from evalign_study.trainers.rivals import train_rival

Unit = Sequence[Run]  # runs that are trained together, all of one data set


class Trainer(NamedTuple):
    """How runs become records.

    Args:
        name: what is trained, for the progress bar.
        train: the function from a unit to its records; defined in a module, so that other processes
            can import it.
        units: the function that groups runs that train together.
    """

    name: str
    train: Callable[[Unit], Iterable[Record]]
    units: Callable[[Iterable[Run]], Sequence[Unit]]


def _each(train: Callable[[Run], Record], unit: Unit) -> list[Record]:
    return [train(run) for run in unit]


def _alone(runs: Iterable[Run]) -> list[list[Run]]:
    return [[run] for run in runs]


CLASSICAL_METHODS = Trainer("classical methods", partial(_each, train_classical), _alone)
DECIDED = Trainer("classifiers", partial(_each, train_decided), _alone)
MODELLED = Trainer("models and ensembles", partial(_each, train_models), _alone)
RIVALS = Trainer("our quick models, AutoGluon", partial(_each, train_rival), _alone)
PIXELS = Trainer("networks of pixels", partial(_each, train_dense), _alone)
LABELS = Trainer("networks of many labels", partial(_each, train_multilabel), _alone)
GOALS = Trainer("networks for goals", partial(_each, train_goal), _alone)
FRAMES = Trainer("networks of frames", partial(_each, train_frames), _alone)
IMAGES = Trainer("networks of images", partial(_each, train_image), _alone)
TAILED_IMAGES = Trainer("networks of images", partial(_each, tailed.train), _alone)
ROWS = Trainer("networks of rows", tabular.train, tabular.units)
RECIPE_ROWS = Trainer("networks of rows", recipe.train, recipe.units)


def trainer_of(run: Run) -> Trainer:
    """Choose the trainer of a run. A network without a batch size has the estimator's trainer."""
    if run.method in CLASSICAL:
        return CLASSICAL_METHODS
    if run.method in METHODS:
        return DECIDED
    if run.method in MODELLED_METHODS:
        return MODELLED
    if run.method in RIVAL_METHODS:
        return RIVALS
    if run.method.startswith(GOAL):
        return GOALS
    if run.network == "unet":
        return PIXELS
    if card(run.dataset).format == "multilabel":
        return LABELS
    if run.network == "people":
        return FRAMES
    if len(card(run.dataset).shape) > 1:
        return IMAGES if run.batch_size else TAILED_IMAGES
    return ROWS if run.batch_size else RECIPE_ROWS
