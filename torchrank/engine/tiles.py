"""Tiles of a score matrix that stay in a processor's cache while they are compared and the comparisons are summed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from torchrank.hardware import costs

#: the multiple of ``Costs.tile`` that was fastest on this machine, by number of threads; counts do not depend on it
fastest: dict[int, int] = {}


def strips(scores: Tensor, results: int) -> Iterator[tuple[slice, list[slice]]]:
    """The strips of rows of :func:`bands`, one at a time; yields the rows of a strip, and the columns of its tiles."""
    for rows, height, columns in bands(scores, results):
        for start in range(rows.start, max(1, rows.stop), height):
            yield slice(start, min(start + height, rows.stop)), columns


def bands(scores: Tensor, results: int) -> Iterator[tuple[slice, int, list[slice]]]:
    """Cut scores into strips of rows, and each strip into tiles that stay in a processor's cache.

    The first large count tries tiles of several sizes, and the fastest size is kept.

    Args:
        scores: [query, candidate].
        results: number of comparisons with each score in one operation.

    Yields:
        the rows of consecutive strips of the same height; this height, at least 1; the columns of their tiles.
    """
    queries, candidates = scores.shape
    # Threads with rows of their own: each reads the same rows in all operations.
    threads = min(torch.get_num_threads(), costs.now.tile_threads) if scores.is_cpu else 1
    tries = _tries(scores, results, threads)
    seconds: list[tuple[float, int]] = []
    row = 0
    while row < max(1, queries):
        multiple = tries[len(seconds)] if tries else fastest.get(threads, 1)
        height, width = _tile(scores, results, multiple, threads)
        stop = min(row + height, queries) if tries else queries
        start = time.perf_counter()
        yield slice(row, stop), height, [slice(at, at + width) for at in range(0, max(1, candidates), width)]
        row = max(1, stop)
        if tries:
            seconds.append(((time.perf_counter() - start) / height, multiple))
            if len(seconds) == len(tries):
                # The fastest strip decides, because other processes only make a strip slower.
                fastest[threads], tries = min(seconds)[1], []


def _tries(scores: Tensor, results: int, threads: int) -> list[int]:
    """The multiples to try, one for each strip; none if the fastest is known, or if there are too few rows."""
    # A single comparison reads as many bytes as it writes, so it says little about the others. Small counts, which are
    # many, end here.
    small = results < 2 or scores.numel() * results < costs.now.tile * costs.now.tries * max(costs.now.multiples)
    if small or not scores.is_cpu or threads in fastest:
        return []
    multiples = [multiple for multiple in costs.now.multiples if multiple * threads <= costs.now.tile_threads]
    if len(multiples) < 2:
        return []
    tries = [multiple for multiple in (*multiples, multiples[0]) for _ in range(costs.now.tries)]
    return tries if 0 < sum(_tile(scores, results, multiple, threads)[0] for multiple in tries) <= len(scores) else []


def _tile(scores: Tensor, results: int, multiple: int, threads: int) -> tuple[int, int]:
    """Number of rows and columns of a tile, each at least 1."""
    queries, candidates = scores.shape
    # On an accelerator the tiles only bound the temporaries.
    room = costs.now.tile * multiple if scores.is_cpu else costs.now.device_tile * costs.now.block
    # A row is cut only if it is much too long, because more tiles are more operations.
    pieces = max(1, -(-candidates * results // (2 * room)))
    width = max(1, -(-candidates // pieces))
    return max(1, min(queries, max(1, room // max(1, width * results)) * threads)), width
