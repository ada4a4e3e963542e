"""Repeat the trials of an ensemble on other folds, to compare its candidates."""

from collections.abc import Iterable
from typing import Any

from sklearn.base import clone

from evalign.core.checks import require
from evalign.estimators.ensemble import AlignedEnsemble, Tried, results

OWNER = "compare"


def compare(
    ensemble: AlignedEnsemble,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    groups: Any = None,
    constraint_groups: Any = None,
    seeds: Iterable[int] = range(3),
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Try the candidates of an ensemble once per seed, each time on other folds.

    Returns:
        Tables like `cv_results_` and `gain_` of `AlignedEnsemble`, of the mean scores. A candidate
        that was left out once is left out.

    Args:
        ensemble: with its candidates and its number of folds, not fitted.
        X: rows, as in its `fit`, as are the next three.
        y: a label per row.
        sample_weight: a weight per row, or None.
        groups: a value per row, or None.
        constraint_groups: a group per row for a gap, or None.
        seeds: each gives other folds, and is the `random_state` of the ensemble.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(300, weights=[0.8], random_state=0)
        >>> models = AlignedEnsemble("f1", candidates=["linear", "boosting"], cv=3)
        >>> table, gain = compare(models, X, y, seeds=range(2))
        >>> table["candidate"], gain["against"] in table["candidate"]
        (['linear', 'boosting', 'blend'], True)
    """
    seeds = list(seeds)
    differ = 0 < len(seeds) == len(set(seeds))
    require(differ, OWNER, "seeds", "be different numbers, at least one", seeds)

    def tried(seed: int) -> Tried:
        one: Any = clone(ensemble)
        return one.set_params(random_state=seed)._try(
            X, y, sample_weight, groups, constraint_groups
        )

    return results([tried(seed) for seed in seeds])
