"""Kernels that count among the products of embeddings without writing a score to memory. They need Triton.

A tile of scores is a product in registers. It is compared with the scores of the judged items there, and only counts
leave the kernel: integers, whose sums are the same in any order of the tiles. The scores of single pairs are products
of tiles of the same shape, so they have the same bits as the same pairs among all others.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchrank.engine.counting import ScoreCounts


class Tile(NamedTuple):
    """Shape of the tiles of a kernel, measured on no device. `python -m benchmarks --kernels` compiles them all."""

    #: number of queries, and of items
    side: int
    #: dimensions that are multiplied at a time
    depth: int
    #: warps of 32 threads
    warps: int


# Of the tiles without spilled registers on sm_80 and sm_90, the largest: it reads each embedding least often.
TILES = {"ieee": Tile(128, 64, 8), "tf32": Tile(128, 32, 8), "tf32x3": Tile(64, 32, 4)}

# Tiles whose embeddings are fetched ahead of their product.
STAGES = 3


@triton.jit
def _product(queries, items, query, item, size, precision: tl.constexpr, depth: tl.constexpr):
    """Scores of some rows of ``queries`` and of ``items`` [row, size], float32 [query, item]."""
    scores = tl.zeros((query.shape[0], item.shape[0]), dtype=tl.float32)
    for start in range(0, size, depth):
        at = start + tl.arange(0, depth)
        left = tl.load(queries + query[:, None] * size + at[None, :], mask=at[None, :] < size, other=0.0)
        right = tl.load(items + item[None, :] * size + at[:, None], mask=at[:, None] < size, other=0.0)
        scores = tl.dot(left, right, scores, input_precision=precision)
    return scores


@triton.jit
def _count(
    queries, items, judged_scores, greater, equal, retrieved, nan,
    num_queries, num_items, size,
    entries: tl.constexpr, precision: tl.constexpr, tile: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """Add the counts over one tile. Tiles of the same items follow each other, and find the items in the cache."""
    tiles = tl.cdiv(num_queries, tile)
    query = (tl.program_id(0) % tiles) * tile + tl.arange(0, tile)
    item = (tl.program_id(0) // tiles) * tile + tl.arange(0, tile)
    is_query, is_item = query < num_queries, item < num_items
    row, column = tl.minimum(query, num_queries - 1).to(tl.int64), tl.minimum(item, num_items - 1).to(tl.int64)
    scores = _product(queries, items, row, column, size, precision, depth)
    tl.atomic_add(nan + query, tl.sum(((scores != scores) & is_item[None, :]).to(tl.int32), 1), mask=is_query)
    scores = tl.where(is_item[None, :], scores, float("nan"))  # a comparison with NaN is False
    tl.atomic_add(retrieved + query, tl.sum((scores > float("-inf")).to(tl.int32), 1), mask=is_query)
    for entry in range(entries):
        at = query * entries + entry
        judged = tl.load(judged_scores + at, mask=is_query, other=0.0)[:, None]
        tl.atomic_add(greater + at, tl.sum((scores > judged).to(tl.int32), 1), mask=is_query)
        tl.atomic_add(equal + at, tl.sum((scores == judged).to(tl.int32), 1), mask=is_query)


@triton.jit
def _score_pairs(
    queries, items, query, item, scores, num_pairs, size,
    precision: tl.constexpr, tile: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """The diagonal of one tile: the scores of ``tile`` pairs."""
    pair = tl.program_id(0) * tile + tl.arange(0, tile)
    row = tl.load(query + pair, mask=pair < num_pairs, other=0)
    column = tl.load(item + pair, mask=pair < num_pairs, other=0)
    product = _product(queries, items, row, column, size, precision, depth)
    diagonal = tl.arange(0, tile)[:, None] == tl.arange(0, tile)[None, :]
    tl.store(scores + pair, tl.sum(tl.where(diagonal, product, 0.0), 1), mask=pair < num_pairs)


def count_products(queries: Tensor, items: Tensor, judged_scores: Tensor, precision: str) -> ScoreCounts:
    """Count the products of all queries and items above, and equal to, the scores of the judged items.

    Args:
        queries: [query, dimension], contiguous; bfloat16, float16 or float32.
        items: [item, dimension], of the same dtype.
        judged_scores: scores of the judged items by :func:`score_pairs`, float32 [query, entry].
        precision: "tf32" or "tf32x3" for float32, "ieee" for shorter numbers, whose products are exact.
    """
    (num_queries, size), num_items, entries = queries.shape, len(items), judged_scores.shape[1]
    shapes = ((num_queries, entries), (num_queries, entries), (num_queries,), (num_queries,))
    counts = [torch.zeros(shape, dtype=torch.int32, device=queries.device) for shape in shapes]
    tile = TILES[precision]
    tiles = triton.cdiv(num_queries, tile.side) * triton.cdiv(num_items, tile.side)
    if tiles and entries:
        _count[(tiles,)](
            queries, items, judged_scores.contiguous(), *counts, num_queries, num_items, size,
            entries, precision, tile.side, tile.depth, num_warps=tile.warps, num_stages=STAGES,
        )  # fmt: skip
    greater, equal, retrieved, nan = counts
    equal = equal * (judged_scores > float("-inf"))
    return ScoreCounts(greater.long(), equal.long(), retrieved.long(), nan > 0)


def score_pairs(queries: Tensor, items: Tensor, query: Tensor, item: Tensor, precision: str) -> Tensor:
    """Scores of pairs, with the bits that they have in :func:`count_products`: float32 [pair].

    Args:
        queries: [query, dimension].
        items: [item, dimension].
        query: rows of ``queries``, int64 [pair].
        item: rows of ``items``, int64 [pair].
        precision: as in :func:`count_products`.
    """
    scores = torch.empty(len(query), dtype=torch.float32, device=queries.device)
    tile = TILES[precision]
    if len(query):
        _score_pairs[(triton.cdiv(len(query), tile.side),)](
            queries, items, query.contiguous(), item.contiguous(), scores, len(query), queries.shape[1],
            precision, tile.side, tile.depth, num_warps=tile.warps, num_stages=STAGES,
        )  # fmt: skip
    return scores


@functools.cache
def failure(device: torch.device, dtype: torch.dtype, precision: str) -> str:
    """What the kernels do wrong on a device; "" = nothing. The first call compiles them, and waits for the device."""
    try:
        return "" if _count_right(device, dtype, precision) else "the kernel counts wrong on this device"
    except Exception as error:  # of the compiler, or of the driver
        return f"the kernel fails on this device: {error}"


def _count_right(device: torch.device, dtype: torch.dtype, precision: str) -> bool:
    """Whether counts among small integers, whose products are exact, are right, and other scores equal themselves."""
    integers = (torch.arange(300 * 40, device=device) * 7919 % 101 % 7 - 3).view(300, 40).double()
    judged, counts = _judge(integers.to(dtype), precision)
    scores = integers[: len(judged)] @ integers.T
    right = torch.equal(judged.double(), scores[:, : 2 * len(judged) : 2].diagonal().unsqueeze(-1))
    right &= torch.equal(counts.greater, (scores > judged).sum(-1, keepdim=True))
    right &= torch.equal(counts.equal, (scores == judged).sum(-1, keepdim=True))
    if device.type == "cpu":  # the interpreter multiplies with numpy, which rounds columns in several ways
        return right
    return right and bool((_judge((integers / 7).to(dtype), precision)[1].equal > 0).all())


def _judge(items: Tensor, precision: str) -> tuple[Tensor, ScoreCounts]:
    """Scores of 130 queries, which are the first items, with every second item, and their counts."""
    row = torch.arange(130, device=items.device)
    judged = score_pairs(items[:130], items, row, 2 * row, precision).unsqueeze(-1)
    return judged, count_products(items[:130], items, judged, precision)
