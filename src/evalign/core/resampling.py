"""Confidence intervals for metrics on test rows: the paired percentile bootstrap."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric

RESAMPLES = 2000
LEVEL = 0.95
# Fewest rows of a class, or groups, for an honest interval. With fewer it is too narrow: with one
# row of a class, one of two equally good methods seems better beyond chance in every second test.
MIN_FOR_INTERVAL = 10
# Numbers held at a time, 32 MB.
BLOCK = 2**22


def bootstrap(
    metric: Metric,
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

    `y` and the predictions of each method are class codes (n,). All methods share the resamples, so
    that differences are paired. Rows are drawn within each true class, so that every resample keeps
    the class counts: without a rare class the macro average would be another one. With a group per
    row whole groups are drawn, without stratification.
    """
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, float)
    # A metric depends on the cell of a row alone: its true class and each method's label. Cells are
    # numbered anew with each method, as the product of many classes would overflow.
    cell = first = np.zeros(len(y), np.int64)
    for labels in (y, *predictions):
        _, first, cell = np.unique(cell * classes + labels, return_index=True, return_inverse=True)
    unit = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1]
    times = np.ones(unit.max() + 1, int)
    if groups is None:  # rows of the same cell and weight are units of one kind
        weights, code = np.unique(weight, return_inverse=True)
        kinds, count = np.unique(cell * len(weights) + code, return_counts=True)
        if len(kinds) < len(y) / 4:  # else this would cost more than it saves
            cell, code = np.divmod(kinds, len(weights))
            unit = np.arange(len(kinds))
            times = count
            weight = weights[code]
    mass = csr_array((weight, (unit, cell)), shape=(len(times), len(first)))  # repeated pairs add

    # The units of a true class form a stratum. Groups may hold several classes, and form only one.
    stratum = y[first][cell] if groups is None else np.zeros(len(times), int)
    order = np.argsort(stratum, kind="stable")
    mass = mass[order]
    starts = np.flatnonzero(np.diff(stratum[order])) + 1
    strata = np.split(times[order], starts)
    generators = np.random.default_rng(seed).spawn(len(strata))
    widest = max(len(times), len(first), classes**2 if metric.needs_matrix else classes)
    block = max(1, BLOCK // widest)
    values = []
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        pairs = zip(generators, strata, strict=True)
        drawn = [_draws(generator, counts, size) for generator, counts in pairs]
        cells = np.hstack(drawn) @ mass
        values.append([_values(metric, cells, y[first], p[first], classes) for p in predictions])
    return np.concatenate(values, axis=1)


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 95% percentile interval."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _draws(rng: np.random.Generator, times: np.ndarray, size: int) -> np.ndarray:
    """Draw as many units as there are, `size` times: counts of each kind, (size, kinds)."""
    units = times.sum()
    if len(times) < units:
        return rng.multinomial(units, times / units, size=size)
    drawn = rng.integers(units, size=(size, units)) + units * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units)


def _values(
    metric: Metric, cells: np.ndarray, y: np.ndarray, predicted: np.ndarray, classes: int
) -> np.ndarray:
    """The metric of each resample, given the mass of its cells (resamples, cells)."""

    def sums(code: np.ndarray, size: int, counted: Any = True) -> np.ndarray:
        """Sum the mass of the counted cells by code."""
        ones = np.ones(len(code)) * counted
        cell = np.arange(len(code))
        return cells @ csr_array((ones, (cell, code)), (len(code), size))

    full = None
    if metric.needs_matrix:
        full = sums(y * classes + predicted, classes**2).reshape(-1, classes, classes)
    actual = sums(y, classes)
    confusions = Confusion(
        tp=sums(y, classes, y == predicted),
        predicted=sums(predicted, classes),
        actual=actual,
        total=actual.sum(1),
        full=full,
    )
    return metric(confusions)
