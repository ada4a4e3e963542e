"""Intervals for metrics of test rows: the paired percentile bootstrap."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, MatrixMetric

RESAMPLES = 2000
LEVEL = 0.95
# Numbers held at a time, 32 MB of them.
BLOCK = 2**22


def bootstrap(
    metric: ClassMetric | MatrixMetric,
    y: np.ndarray,
    predictions: Sequence[np.ndarray],
    *,
    classes: int,
    weight: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> np.ndarray:
    """The metric of each method on each resample of the rows, (methods, resamples).

    All methods see the same resamples, so that their difference can be taken resample by resample.

    Args:
        metric: the metric.
        y: true class codes (n,).
        predictions: the class codes of each method (n,).
        classes: how many there are.
        weight: per row; resampled with it.
        groups: per row; whole groups are drawn instead of rows.
        seed: of the draws.
        resamples: how many.

    Examples:
        >>> from evalign.metrics import resolve
        >>> y = np.arange(400) % 2
        >>> wrong = np.arange(400) % 10 == 0
        >>> values = bootstrap(resolve("accuracy"), y, [np.where(wrong, 1 - y, y)], classes=2)
        >>> low, high = interval(values[0])
        >>> 0.86 < low < 0.9 < high < 0.94
        True
    """
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, float)
    # A metric sees of a row only its cell: the true class and what each method says.
    joint = np.ravel_multi_index((y, *predictions), (classes,) * (1 + len(predictions)))
    _, first, cell = np.unique(joint, return_index=True, return_inverse=True)
    if groups is None:  # rows alike in cell and weight are units of one kind
        weights, code = np.unique(weight, return_inverse=True)
        kinds, times = np.unique(cell * len(weights) + code, return_counts=True)
        cell, code = np.divmod(kinds, len(weights))
        unit, weight = np.arange(len(kinds)), weights[code]
    else:
        names, unit = np.unique(groups, return_inverse=True)
        times = np.ones(len(names), int)
    mass = csr_array((weight, (unit, cell)), shape=(len(times), len(first)))  # repeated pairs add

    rng = np.random.default_rng(seed)
    widest = max(len(times), len(first), classes**2 if metric.needs_matrix else classes)
    block = max(1, BLOCK // widest)
    values = []
    for start in range(0, resamples, block):
        cells = _draws(rng, times, min(block, resamples - start)) @ mass
        values.append([_values(metric, cells, y[first], p[first], classes) for p in predictions])
    return np.concatenate(values, axis=1)


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 95% percentile interval."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _draws(rng: np.random.Generator, times: np.ndarray, size: int) -> np.ndarray:
    """How often each kind comes, (size, kinds), in as many draws as there are units."""
    units = times.sum()
    if len(times) < units / 4:
        return rng.multinomial(units, times / units, size=size)
    # Quicker where nearly every unit is of its own kind.
    kind = np.repeat(np.arange(len(times)), times)
    draws = (kind[rng.integers(units, size=units)] for _ in range(size))
    return np.stack([np.bincount(drawn, minlength=len(times)) for drawn in draws])


def _values(
    metric: ClassMetric | MatrixMetric,
    cells: np.ndarray,
    y: np.ndarray,
    predicted: np.ndarray,
    classes: int,
) -> np.ndarray:
    """The metric of each resample, from the mass of its cells (resamples, cells)."""

    def sums(code: np.ndarray, counted: np.ndarray, size: int) -> Tensor:
        """The mass of the cells that count, by their code."""
        cell = np.flatnonzero(counted)
        ones = np.ones(len(cell))
        return torch.from_numpy(cells @ csr_array((ones, (cell, code[cell])), (len(code), size)))

    every = np.ones(len(y), bool)
    parts = [sums(y, y == predicted, classes), sums(predicted, every, classes)]
    parts.append(sums(y, every, classes))
    if metric.needs_matrix:
        full = sums(y * classes + predicted, every, classes**2)
        parts.append(full.unflatten(1, (classes, classes)))

    def value(tp: Tensor, predicted: Tensor, actual: Tensor, full: Tensor | None = None) -> Tensor:
        return metric(Confusion(tp, predicted, actual, actual.sum(), full))

    return torch.vmap(value)(*parts).numpy()
