"""The models that an ensemble blends."""

from collections.abc import Sequence
from typing import Any

from sklearn.base import is_classifier
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evalign.core import stairs
from evalign.core.checks import complaint, require
from evalign.core.metrics import MetricFunction
from evalign.core.text import nearest

OWNER = "AlignedEnsemble"
# The network is none of them: it would take most of the time, and the blend was no better with it.
DEFAULT = ("linear", "boosting", "forest")
NETWORK = "network"
# The forest: its trees; rows per tree at most, to bound time and memory; the rows above which a
# leaf holds two rows, which makes trees a third as large; those up to which one core is as fast.
TREES, ROWS_OF_A_TREE, TWO_ROW_LEAVES, ONE_CORE = 200, 20_000, 5_000, 1_500
BLEND = "blend"  # the name of all together
# From fast to slow, the order in which they are trained, with the seconds that a fold may take on
# a slow core, whatever its size and for each million numbers: a first guess, for the progress bar.
SECONDS = {
    "linear": (0.05, 0.3),
    "boosting": (0.3, 1.5),
    "forest": (0.4, 10.0),
    NETWORK: (4.0, 100.0),
}
NAMES = tuple(SECONDS)
RECIPES = ("aligned", "cross_entropy", "east")  # of the network


def build(
    given: Sequence[Any],
    metric: str | MetricFunction,
    recipe: str,
    rows: int,
    seed: int,
    roles: dict[str, Any],
) -> dict[str, Any]:
    """Classifiers with `predict_proba`, not fitted, by their names, the fast ones first.

    Args:
        given: names of `NAMES`, or pairs of a name and a classifier.
        metric: that of the ensemble.
        recipe: of the network.
        rows: how many a fold trains on.
        seed: of all candidates.
        roles: `pos_label` and `classes` of the network, as codes.
    """
    allowed = "hold names of models, or pairs of a name and a classifier"
    some = isinstance(given, Sequence) and not isinstance(given, str) and len(given) > 0
    require(some, OWNER, "candidates", allowed, repr(given))
    made = [_made(one, allowed, metric, recipe, rows, seed, roles) for one in given]
    names = [name for name, _ in made]
    double = sorted({name for name in names if names.count(name) > 1})
    require(not double, OWNER, "candidates", "have different names", f"{double} more than once")
    middle = NAMES.index(NETWORK) - 0.5  # of unknown speed
    return dict(sorted(made, key=lambda one: NAMES.index(one[0]) if one[0] in NAMES else middle))


def without_torch(given: Sequence[Any]) -> dict[str, str]:
    """Why the network is no candidate, for `left_out_`, if PyTorch is missing.

    Whoever chooses the candidates by name, without the network, need not be told.
    """
    if tuple(given) != DEFAULT or stairs.has_torch():
        return {}
    why = f"{stairs.needs_torch('it')}. By default it is no candidate: the blend gains little by it"
    return {NETWORK: why}


def _made(
    one: Any,
    allowed: str,
    metric: str | MetricFunction,
    recipe: str,
    rows: int,
    seed: int,
    roles: dict[str, Any],
) -> tuple[str, Any]:
    if isinstance(one, str):
        cure = nearest(one, NAMES)
        known = f"be some of {', '.join(NAMES)}"
        require(one in NAMES, OWNER, "candidates", known, repr(one), cure)
        return one, _estimator(one, metric, recipe, rows, seed, roles)
    pair = isinstance(one, tuple | list) and len(one) == 2 and isinstance(one[0], str)
    require(pair, OWNER, "candidates", allowed, repr(one))
    name, estimator = one
    other = f"have names other than {BLEND!r}"
    require(name not in ("", BLEND), OWNER, "candidates", other, repr(name))
    if not (is_classifier(estimator) and hasattr(estimator, "predict_proba")):
        wanted = "be classifiers with predict_proba"
        cure = "Put sklearn.calibration.CalibratedClassifierCV around it."
        raise TypeError(complaint(OWNER, "candidates", wanted, f"{name}: {estimator!r}", cure))
    return name, estimator


def _estimator(
    name: str,
    metric: str | MetricFunction,
    recipe: str,
    rows: int,
    seed: int,
    roles: dict[str, Any],
) -> Any:
    match name:
        case "linear":
            return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        case "boosting":
            return HistGradientBoostingClassifier(
                max_leaf_nodes=15, l2_regularization=1.0, random_state=seed
            )
        case "forest":
            some = rows > ROWS_OF_A_TREE
            return ExtraTreesClassifier(
                TREES,
                min_samples_leaf=2 if rows > TWO_ROW_LEAVES else 1,
                bootstrap=some,
                max_samples=ROWS_OF_A_TREE if some else None,
                n_jobs=-1 if rows > ONE_CORE else None,
                random_state=seed,
            )
        case _:  # the ensemble has a rule of its own
            classifier = stairs.aligned_classifier()
            return classifier(metric, recipe=recipe, decision="argmax", random_state=seed, **roles)


def chosen_recipe(recipe: str | None, constraint: str | None) -> str:
    """The recipe by its name; None is "aligned", or "cross_entropy" with a constraint."""
    return recipe or ("aligned" if constraint is None else "cross_entropy")
