"""Rows in blocks that stay in the cache, computed by as many threads as torch has.

A block is (classes, rows). Few classes lie one after the other in memory, so that a sum over ten of
them adds long vectors; many stay side by side where the logits have them so.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]
Result = TypeVar("Result")
BLOCK = 2**19  # numbers: larger ones leave the cache, in smaller ones the calls themselves are dear
MANY = 64  # classes
SHARE = 2**18  # numbers that are worth a thread
THREADS = 8  # at most: more would wait for each other between two operations


class RowBlock(NamedTuple):
    """Some rows, and where their classes lie in a vector of as many numbers as they have."""

    rows: slice
    classes: int
    last: bool  # whether the classes of a row lie side by side

    @property
    def numbers(self) -> slice:
        """Which part of a vector of all rows is theirs."""
        return slice(self.rows.start * self.classes, self.rows.stop * self.classes)

    def shape(self, vector: Array) -> Array:
        """A vector as (classes, rows)."""
        return vector.reshape(-1, self.classes).T if self.last else vector.reshape(self.classes, -1)

    def places(self, of_rows: Array) -> Array:
        """Where a class of every row stands in such a vector."""
        rows = np.arange(len(of_rows))
        return rows * self.classes + of_rows if self.last else of_rows * len(rows) + rows


def side_by_side(logits: Tensor) -> bool:
    """Whether blocks of these logits (images, classes, positions) keep a row's classes together."""
    # Of logits that overlap or have holes, as a tensor like them would have it.
    like = torch.empty_like(logits, device="meta")
    return like.shape[1] >= MANY and like.stride(1) == 1


def in_blocks(
    images: Array, last: bool, of_block: Callable[[Array, RowBlock, Array], Result]
) -> list[Result]:
    """Compute the blocks of images (images, classes, positions), and return the results in order.

    Which rows are a block follows from the shape alone: what one call keeps, another one finds.

    Args:
        last: whether the classes of a row lie side by side in a block.
        of_block: a function of a part of the images, (classes, images, positions), of which block
            it is, and of memory for three vectors of its size.
    """
    count, classes, positions = images.shape
    shares = 2 ** (min(THREADS, max(1, images.size // SHARE)).bit_length() - 1)
    length = max(1, min(BLOCK // classes, -(-count * positions // shares)))
    blocks = list(_blocks(images, length, last))
    threads = min(shares, torch.get_num_threads())

    def of_share(share: list[tuple[Array, RowBlock]]) -> list[Result]:
        memory = np.empty(3 * classes * length, images.dtype)
        with np.errstate(all="ignore"):  # what is not finite stays visible in the results
            return [
                of_block(part, block, memory[: 3 * part.size].reshape(3, -1))
                for part, block in share
            ]

    if threads == 1:
        return of_share(blocks)
    ends = [len(blocks) * thread // threads for thread in range(threads + 1)]
    parts = [blocks[start:stop] for start, stop in pairwise(ends)]
    return list(chain.from_iterable(_pool(os.getpid(), threads).map(of_share, parts)))


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The threads of a process: one that was forked has none of its parent's."""
    return ThreadPoolExecutor(threads, "evalign")


def _blocks(images: Array, length: int, last: bool) -> Iterator[tuple[Array, RowBlock]]:
    count, classes, positions = images.shape
    several, length = max(1, length // max(1, positions)), max(1, min(length, positions))
    for image in range(0, count, several):
        end = min(image + several, count)
        for start in range(0, positions, length):
            stop = min(start + length, positions)
            first = image * positions + start
            rows = slice(first, first + (end - image) * (stop - start))
            yield images[image:end, :, start:stop].swapaxes(0, 1), RowBlock(rows, classes, last)
