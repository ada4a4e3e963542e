"""Many rows in blocks that stay in the cache.

A table of rows (N, C) lies column by column in memory, as Fortran orders it: the numbers of one
class of many rows are read and written together, and no work is done row by row.
"""

from collections.abc import Callable, Iterator

import numpy as np

from evalign.decisions import formula

# Numbers of a block: a few arrays of this size fit the second cache of a processor.
BLOCK = 2**16
# With fewer rows in a block, the calls of NumPy would take longer than their work.
FEWEST_ROWS = 2**8


def blocks(rows: int, numbers: int) -> Iterator[slice]:
    """The rows of each block, for so many numbers in each row."""
    size = max(FEWEST_ROWS, BLOCK // max(numbers, 1))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def by_columns(values: np.ndarray) -> np.ndarray:
    """A copy of a table (N, C) in float64 that lies column by column."""
    copied = np.empty(values.shape, order="F")
    for part in blocks(*values.shape):
        copied[part] = values[part]
    return copied


def map_blocks(
    function: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, result: np.ndarray
) -> np.ndarray:
    """Write what a function makes of each block of rows (N, C) into the rows of the result."""
    for part in blocks(*rows.shape):
        result[part] = function(rows[part])
    return result


def softmax(
    logits: np.ndarray, factor: float = 1.0, offsets: np.ndarray | float = 0.0
) -> np.ndarray:
    """η (N, C) = softmax(factor·logits + offsets)."""

    def of_block(part: np.ndarray) -> np.ndarray:
        return formula.probabilities(part, factor, offsets, multilabel=False)

    return map_blocks(of_block, logits, np.empty_like(logits))


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + e^−z), at least e^−700, where the power would overflow."""
    return 1 / (1 + np.exp(-np.maximum(z, -700.0)))
