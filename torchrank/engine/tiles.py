"""Tiles of a score matrix that stay in a processor's cache while they are compared and the comparisons are summed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from torchrank.layouts.canonical import BLOCK

# Number of results of comparisons that each of torch's threads keeps in its core's cache, beside the scores; and the
# multiples of it that are tried. Cores with small caches of their own, before a large common one, want large tiles.
CACHED, MULTIPLES = 2**18, (1, 2, 4)

# Number of strips on which each multiple is tried.
TRIES = 3

# Largest number of threads that get rows of their own in a tile, and largest multiple of CACHED in a tile of all
# threads, which bound the memory.
MOST_ROWS, MOST = 16, 16


class Trial:
    """The multiple of ``CACHED`` that is fastest on this machine. Counts do not depend on it."""

    def __init__(self) -> None:
        #: 1 before the first large count
        self.best = 1
        self.known = False

    def begin(self, threads: int, work: float) -> list[int]:
        """The multiples to try, on one strip each; none if they were tried or if the count is small.

        Args:
            threads: number of threads with rows of their own.
            work: number of results of the count, in units of ``CACHED`` for each thread.
        """
        possible = [multiple for multiple in MULTIPLES if multiple * threads <= MOST]
        return [] if self.known or work < TRIES * sum(possible) else possible * TRIES

    def end(self, seconds: list[tuple[float, int]]) -> None:
        """Choose from (seconds for a row, multiple). The fastest try counts: other processes only make a try slower."""
        self.best, self.known = min(seconds)[1], True


trial = Trial()


def strips(scores: Tensor, results: int) -> Iterator[tuple[slice, list[slice]]]:
    """Cut scores into strips of rows, and each strip into tiles that stay in a processor's cache.

    Args:
        scores: [query, candidate].
        results: number of comparisons with each score in one operation.

    Yields:
        the rows of a strip, and the columns of its tiles.
    """
    queries, candidates = scores.shape
    threads = _threads(scores)
    # A single comparison reads as many bytes as it writes, so it says little about the others.
    tried = trial.begin(threads, queries * candidates * results / (CACHED * threads)) if results > 1 else []
    seconds: list[tuple[float, int]] = []
    row = 0
    while row < max(1, queries):
        multiple = tried[len(seconds)] if tried else min(trial.best, max(1, MOST // threads))
        height, width = _tile(scores, results, multiple)
        start = time.perf_counter()
        yield slice(row, row + height), [slice(at, at + width) for at in range(0, max(1, candidates), max(1, width))]
        row += max(1, height)
        if tried:
            seconds.append(((time.perf_counter() - start) / height, multiple))
            if len(seconds) == len(tried):
                trial.end(seconds)
                tried = []


def _tile(scores: Tensor, results: int, multiple: int) -> tuple[int, int]:
    """Number of rows and columns of a tile."""
    queries, candidates = scores.shape
    # On an accelerator the tiles only bound the temporaries.
    room = CACHED * multiple if scores.device.type == "cpu" else 64 * BLOCK
    # A row is cut only if it is much too long, because more tiles are more operations.
    pieces = max(1, -(-candidates * results // (2 * room)))
    width = -(-candidates // pieces)
    return min(queries, max(1, room // max(1, width * results)) * _threads(scores)), width


def _threads(scores: Tensor) -> int:
    """Number of threads with rows of their own: each reads the same rows in all operations."""
    return min(torch.get_num_threads(), MOST_ROWS) if scores.device.type == "cpu" else 1
