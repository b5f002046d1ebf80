"""Tiles of a score matrix that stay in a processor's cache while they are compared and the comparisons are summed."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware import costs


def tile_shape(scores: Tensor, results: int) -> tuple[int, list[slice]]:
    """The height of strips of rows, and the columns of the tiles of a strip, which stay in a processor's cache.

    Args:
        scores: [query, candidate].
        results: number of comparisons with each score in one operation.

    Returns:
        the height, at least 1; the columns of at least one tile.
    """
    queries, candidates = scores.shape
    # On an accelerator the tiles only bound the temporaries.
    size = costs.now.tile if scores.is_cpu else costs.now.device_tile * costs.now.block
    # Threads have rows of their own: each reads the same rows in all operations.
    threads = min(torch.get_num_threads(), costs.now.tile_threads) if scores.is_cpu else 1
    # A row is cut only if it is much too long, because more tiles are more operations.
    pieces = max(1, -(-candidates * results // (2 * size)))
    width = max(1, -(-candidates // pieces))
    height = max(1, min(queries, max(1, size // max(1, width * results)) * threads))
    return height, [slice(start, start + width) for start in range(0, max(1, candidates), width)]


def strips(scores: Tensor, results: int) -> tuple[list[slice], list[slice]]:
    """The rows of at least one strip, and the columns of the tiles of each strip."""
    height, columns = tile_shape(scores, results)
    return [slice(start, start + height) for start in range(0, max(1, len(scores)), height)], columns
