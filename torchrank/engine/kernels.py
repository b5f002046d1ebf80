"""Kernels of Triton that count scores on a GPU: the scores of a matrix, and products that are never in memory.

Counts are integers, whose sums are the same in any order of the threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

# Programs of a kernel, if there is enough work: about four for each of the 132 processors of an H100.
PROGRAMS = 2**9

# ---- scores of a matrix ----------------------------------------------------------------------------------------------

# Comparisons that a program makes at a time, its warps of 32 threads, and the scores in a segment of a row that are
# worth a program.
COMPARED, WARPS, SEGMENT = 2**11, 8, 2**14

# Columns that are counted in one launch.
MOST_COLUMNS = 2**30


@triton.jit(do_not_specialize=["entries", "mask_row_stride"])
def _count_scores(
    scores, mask, judged_scores, greater, equal, retrieved, has_nan,
    num_candidates, row_stride, column_stride, mask_row_stride, mask_column_stride, segment, entries,
    lanes: tl.constexpr, width: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """Count a segment of a row, ``width`` scores at a time.

    A lane is a judged item. Each pair of a lane and one of the ``width`` columns has its own counters.
    """
    query = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * segment
    stop = tl.minimum(start + segment, num_candidates)
    lane = tl.arange(0, lanes)
    judged = tl.load(judged_scores + query * entries + lane, mask=lane < entries, other=float("nan"))[:, None]
    ahead = tl.zeros((lanes, width), tl.float32)  # a float counts exactly up to 2 ** 24, and faster than an integer
    tied = tl.zeros((lanes, width), tl.float32)
    above_lowest = tl.zeros((1, width), tl.float32)
    bad = tl.zeros((1, width), tl.float32)
    for first in range(start, stop, width):
        column = (first + tl.arange(0, width))[None, :].to(tl.int64)
        included = column < stop
        if masked:
            included &= (
                tl.load(mask + query * mask_row_stride + column * mask_column_stride, mask=included, other=0) != 0
            )
        x = tl.load(scores + query * row_stride + column * column_stride, mask=included, other=float("-inf"))
        x = x.to(judged.dtype)
        ahead += tl.where(x > judged, 1.0, 0.0)
        tied += tl.where(x == judged, 1.0, 0.0)
        above_lowest += tl.where(x > float("-inf"), 1.0, 0.0)
        bad += tl.where(x != x, 1.0, 0.0)
    place, inside = query * entries + lane, lane < entries
    comparable = tl.sum(tl.where(judged > float("-inf"), 1, 0), 1)
    tl.atomic_add(greater + place, tl.sum(ahead.to(tl.int32), 1).to(tl.int64), mask=inside)
    tl.atomic_add(equal + place, (tl.sum(tied.to(tl.int32), 1) * comparable).to(tl.int64), mask=inside)
    tl.atomic_add(retrieved + query, tl.sum(tl.sum(above_lowest.to(tl.int32), 1), 0).to(tl.int64))
    tl.store(has_nan + query, True, mask=tl.sum(tl.sum(bad, 1), 0) > 0)


def count_scores(scores: Tensor, judged_scores: Tensor, mask: Tensor | None, counts: Sequence[Tensor]) -> None:
    """Add to ``counts`` the scores above, and equal to, those of the judged items; each score is read once.

    Args:
        scores: [query, candidate].
        judged_scores: [query, entry], of the type of comparisons.
        mask: bool [query, candidate], False = padding.
        counts: contiguous tensors. Nothing is added to ``equal`` for a judged item with the score
            -inf.
    """
    (queries, candidates), entries = scores.shape, judged_scores.shape[1]
    if not scores.numel():
        return
    if candidates > MOST_COLUMNS:  # columns are numbered by 32 bits
        for start in range(0, candidates, MOST_COLUMNS):
            columns = slice(start, start + MOST_COLUMNS)
            count_scores(scores[:, columns], judged_scores, None if mask is None else mask[:, columns], counts)
        return
    segments = max(1, min(triton.cdiv(16 * PROGRAMS, queries), triton.cdiv(candidates, SEGMENT)))
    lanes = triton.next_power_of_2(max(1, entries))
    width = max(1, COMPARED // lanes)
    segment = triton.cdiv(triton.cdiv(candidates, segments), width) * width
    masked, strides = mask is not None, (0, 0) if mask is None else mask.stride()
    with torch.cuda.device_of(scores):
        _count_scores[(queries, triton.cdiv(candidates, segment))](
            scores, scores if mask is None else mask, judged_scores.contiguous(), *counts,
            candidates, *scores.stride(), *strides, segment, entries, lanes, width, masked, num_warps=WARPS,
        )  # fmt: skip


# ---- products of embeddings ------------------------------------------------------------------------------------------


class Tile(NamedTuple):
    """Shape of the tiles of products. `python -m benchmarks --kernels` compiles them all."""

    #: number of queries, and of items
    tall: int
    wide: int
    #: dimensions that are multiplied at a time
    depth: int
    #: whether they are all dimensions, so that a single product has the scores
    single: bool
    #: warps of 32 threads, and tiles whose embeddings are fetched ahead of their product
    num_warps: int
    num_stages: int


def tile(size: int, precision: str) -> Tile:
    """The fastest tiles of an H100 for embeddings of ``size`` dimensions."""
    depth = max(16, triton.next_power_of_2(size))
    if precision == "ieee":
        return Tile(128, 128, depth, True, 8, 2) if depth <= 128 else Tile(128, 256, 64, False, 8, 3)
    if precision == "tf32" and depth <= 128:
        return Tile(128, 32, depth, True, 8, 3)
    return Tile(128, 128, 32, False, 8, 3)


@triton.jit
def _product(queries, items, row, column, size, precision: tl.constexpr, depth: tl.constexpr, single: tl.constexpr):
    """Scores of some rows of ``queries`` and of ``items`` [row, size], float32 [query, item].

    ``single``: whether one product has all dimensions. Without a loop here, the loop over tiles fetches ahead.
    """
    dimension = tl.arange(0, depth)
    left = tl.load(queries + row[:, None] * size + dimension[None, :], mask=dimension[None, :] < size, other=0.0)
    right = tl.load(items + column[None, :] * size + dimension[:, None], mask=dimension[:, None] < size, other=0.0)
    scores = tl.dot(left, right, input_precision=precision)
    if not single:
        for start in range(depth, size, depth):
            dimension = start + tl.arange(0, depth)
            left = tl.load(
                queries + row[:, None] * size + dimension[None, :], mask=dimension[None, :] < size, other=0.0
            )
            right = tl.load(
                items + column[None, :] * size + dimension[:, None], mask=dimension[:, None] < size, other=0.0
            )
            scores = tl.dot(left, right, scores, input_precision=precision)
    return scores


@triton.jit
def _number(condition):
    """Number of True in each row, int32 [row, 1]."""
    return tl.sum(tl.where(condition, 1.0, 0.0), 1).to(tl.int32)[:, None]


@triton.jit(do_not_specialize=["num_queries", "num_items", "step", "entries"])
def _count_products(
    queries, items, judged_scores, greater, equal, retrieved, has_nan, nonfinite,
    num_queries, num_items, size, step, entries,
    lanes: tl.constexpr, careful: tl.constexpr, precision: tl.constexpr,
    tall: tl.constexpr, wide: tl.constexpr, depth: tl.constexpr, single: tl.constexpr,
):  # fmt: skip
    """Count the tiles of some queries with every ``step``-th tile of items, from the first one of this program on.

    The first launch counts complete tiles. A program that finds an infinite score or NaN adds nothing, and marks itself
    in ``nonfinite``. The ``careful`` launch counts the tiles of these programs, and those that the items do not fill.
    """
    tiles = tl.cdiv(num_queries, tall)
    query = (tl.program_id(0) % tiles) * tall + tl.arange(0, tall)
    row = tl.minimum(query, num_queries - 1).to(tl.int64)
    lane = tl.arange(0, lanes)[None, :]
    ahead = tl.zeros((tall, lanes), tl.int32)
    tied = tl.zeros((tall, lanes), tl.int32)
    above_lowest = tl.zeros((tall, 1), tl.int32)
    bad = tl.zeros((tall, 1), tl.int32)
    zeros = tl.zeros((tall,), tl.float32)
    complete = num_items // wide
    begin, end = tl.program_id(0) // tiles, complete
    if careful:
        end = tl.cdiv(num_items, wide)
        if tl.load(nonfinite + tl.program_id(0)) == 0:
            begin += tl.cdiv(tl.maximum(complete - begin, 0), step) * step
    for tile in range(begin, end, step):
        item = tile * wide + tl.arange(0, wide)
        column = item.to(tl.int64)
        if careful:
            column = tl.minimum(column, num_items - 1)
        scores = _product(queries, items, row, column, size, precision, depth, single)
        if careful:
            bad += _number((scores != scores) & (item < num_items)[None, :])
            scores = tl.where((item < num_items)[None, :], scores, float("-inf"))
            above_lowest += _number(scores > float("-inf"))
        else:
            zeros += tl.sum(scores * 0.0, 1)  # NaN if a score is infinite or NaN
            above_lowest += wide
        for entry in tl.static_range(lanes):
            listed = tl.full((tall,), entry, tl.int32) < entries
            judged = tl.load(judged_scores + row * entries + entry, mask=listed, other=float("nan"))[:, None]
            ahead += tl.where(lane == entry, _number(scores > judged), 0)
            tied += tl.where(lane == entry, _number(scores == judged), 0)
    found_nonfinite = tl.max((zeros != zeros).to(tl.int32), 0)
    if not careful:
        tl.store(nonfinite + tl.program_id(0), found_nonfinite)
    is_query = (tl.where(query < num_queries, 0, 1) + found_nonfinite)[:, None] == 0
    place, inside = query[:, None] * entries + lane, is_query & (lane < entries)
    comparable = tl.load(judged_scores + place, mask=inside, other=0.0) > float("-inf")
    tl.atomic_add(greater + place, ahead.to(tl.int64), mask=inside)
    tl.atomic_add(equal + place, tied.to(tl.int64), mask=inside & comparable)
    tl.atomic_add(retrieved + query[:, None], above_lowest.to(tl.int64), mask=is_query)
    tl.store(has_nan + query[:, None], True, mask=is_query & (bad > 0))


@triton.jit(do_not_specialize=["num_pairs"])
def _score_pairs(
    queries, items, query, item, scores, num_pairs, size,
    precision: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr, depth: tl.constexpr, single: tl.constexpr,
):  # fmt: skip
    """The diagonal of one tile: the scores of some pairs, at most as many as the tile has queries, and items."""
    pair = tl.program_id(0) * min(tall, wide) + tl.arange(0, tall)
    other = tl.program_id(0) * min(tall, wide) + tl.arange(0, wide)
    row = tl.load(query + pair, mask=pair < num_pairs, other=0)
    column = tl.load(item + other, mask=other < num_pairs, other=0)
    product = _product(queries, items, row, column, size, precision, depth, single)
    diagonal = tl.arange(0, tall)[:, None] == tl.arange(0, wide)[None, :]
    mine = (tl.arange(0, tall) < wide) & (pair < num_pairs)
    tl.store(scores + pair, tl.sum(tl.where(diagonal, product, 0.0), 1), mask=mine)


def count_products(
    queries: Tensor, items: Tensor, judged_scores: Tensor, precision: str, counts: Sequence[Tensor]
) -> None:
    """Add to ``counts`` the products of all queries and items above, and equal to, the scores of the judged items.

    Args:
        queries: [query, dimension], contiguous; bfloat16, float16 or float32.
        items: [item, dimension], of the same dtype.
        judged_scores: scores of the judged items by :func:`score_pairs`, float32 [query, entry].
        precision: "tf32" or "tf32x3" for float32, "ieee" for shorter numbers, whose products are exact.
        counts: as in :func:`count_scores`.
    """
    (num_queries, size), num_items, entries = queries.shape, len(items), judged_scores.shape[1]
    if not num_queries or not num_items:
        return
    shape = tile(size, precision)
    rows, columns = triton.cdiv(num_queries, shape.tall), triton.cdiv(num_items, shape.wide)
    step = min(columns, triton.cdiv(PROGRAMS, rows))
    nonfinite = torch.empty(rows * step, dtype=torch.int32, device=queries.device)
    with torch.cuda.device_of(queries):
        for careful in (False, True):
            _count_products[(rows * step,)](
                queries, items, judged_scores.contiguous(), *counts, nonfinite, num_queries, num_items, size, step,
                entries, triton.next_power_of_2(max(1, entries)), careful, precision, **shape._asdict(),
            )  # fmt: skip


def score_pairs(queries: Tensor, items: Tensor, query: Tensor, item: Tensor, precision: str) -> Tensor:
    """Scores of pairs, with the bits that they have in :func:`count_products`: float32 [pair].

    Args:
        queries: [query, dimension].
        items: [item, dimension].
        query: rows of ``queries``, int64 [pair].
        item: rows of ``items``, int64 [pair].
        precision: as in :func:`count_products`.
    """
    scores, size = torch.empty(len(query), dtype=torch.float32, device=queries.device), queries.shape[1]
    shape = tile(size, precision)
    if len(query):
        with torch.cuda.device_of(queries):
            _score_pairs[(triton.cdiv(len(query), min(shape.tall, shape.wide)),)](
                queries, items, query.contiguous(), item.contiguous(), scores, len(query), size, precision,
                **shape._asdict(),
            )  # fmt: skip
    return scores


# ---- do they work? ---------------------------------------------------------------------------------------------------


def count_right(device: torch.device) -> bool:
    """Whether counts among the scores of a small matrix, with padding, NaN, infinities and denormals, are right."""
    scores = torch.arange(4 * 3000, device=device).mul(7919).remainder(101).sub(50).view(4, 3000).float()
    scores[0, 5], scores[1, 4], scores[2, 2] = float("nan"), float("inf"), float("-inf")
    scores[3] *= 1e-41
    mask = torch.arange(3000, device=device).remainder(3) > 0
    judged, rows = scores[:, 1:6].contiguous(), mask.expand_as(scores)
    greater, equal, retrieved, has_nan = counts = _nothing(judged)
    count_scores(scores, judged, rows, counts)
    listed = scores.masked_fill(~rows, float("-inf")).unsqueeze(1)
    right = torch.equal(greater, (listed > judged.unsqueeze(-1)).sum(-1))
    right &= torch.equal(equal, (listed == judged.unsqueeze(-1)).sum(-1) * (judged > float("-inf")))
    right &= torch.equal(retrieved, (listed[:, 0] > float("-inf")).sum(-1))
    return right and torch.equal(has_nan, listed[:, 0].isnan().any(-1))


def multiply_right(device: torch.device, dtype: torch.dtype, precision: str, size: int) -> bool:
    """Whether counts among products of ``size`` dimensions are right, beside an item of NaN.

    Products of small integers are exact. Products of other numbers must equal themselves.
    """
    integers = (torch.arange(300 * size, device=device) * 7919 % 101 % 7 - 3).view(300, size).double()
    integers[131] = float("nan")  # neither a query nor judged, in a tile that items fill
    judged, (greater, equal, retrieved, has_nan) = _judge(integers.to(dtype), precision)
    scores = integers[: len(judged)] @ integers.T
    right = torch.equal(judged.double(), scores[:, : 2 * len(judged) : 2].diagonal().unsqueeze(-1))
    right &= torch.equal(greater, (scores > judged).sum(-1, keepdim=True))
    right &= torch.equal(equal, (scores == judged).sum(-1, keepdim=True))
    right &= bool((retrieved == 299).all()) and bool(has_nan.all())
    if device.type == "cpu":  # the interpreter multiplies with numpy, which rounds columns in several ways
        return right
    return right and equal_themselves((integers / 7).to(dtype), precision)


def equal_themselves(items: Tensor, precision: str) -> bool:
    """Whether each judged score has the same bits alone and among all products."""
    _, (_, equal, *_) = _judge(items, precision)
    return bool((equal > 0).all())


def _nothing(judged: Tensor) -> Sequence[Tensor]:
    """Counts of no scores."""
    greater, retrieved = torch.zeros_like(judged, dtype=torch.int64), torch.zeros_like(judged[:, 0], dtype=torch.int64)
    return greater, torch.zeros_like(greater), retrieved, torch.zeros_like(retrieved, dtype=torch.bool)


def _judge(items: Tensor, precision: str) -> tuple[Tensor, Sequence[Tensor]]:
    """Scores of 130 queries, which are the first items, with every second item, and their counts."""
    row = torch.arange(130, device=items.device)
    judged = score_pairs(items[:130], items, row, 2 * row, precision).unsqueeze(-1)
    counts = _nothing(judged)
    count_products(items[:130], items, judged, precision, counts)
    return judged, counts
