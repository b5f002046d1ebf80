"""Sorting: the rows of a matrix, and flat rows by query, by descending score, by descending tie break."""

from __future__ import annotations

from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free
from torchrank.ranking.entries import run_bounds, run_starts

# With so many threads torch sorts as fast as numpy, which uses vector instructions and a single thread.
THREADS = 4


# What has 32 bits, or is sorted by so many first.
PACKED = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


PACKED |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}


# From so many rows on a first sort by fewer bits pays, if it leaves at most one row in so many to be sorted again.
MANY, AGAIN = 2**15, 8


def descending(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each row of a matrix in descending order, NaN first, and that order, int64; equal elements by column."""
    if x.device.type != "cpu" or torch.get_num_threads() > THREADS or x.shape[1] < 2 or x.dtype not in PACKED:
        return x.sort(dim=-1, descending=True, stable=True)
    if x.dtype == torch.int64 and not _fits(x):
        return _again(x)
    # Element and column in one integer, which numpy sorts in half the time of an indirect sort.
    key = (_bits(x).long() << 32) + torch.arange(x.shape[1], device=x.device)
    key.numpy().sort(axis=-1)
    order = key & 0xFFFFFFFF
    ordered = x.gather(-1, order)
    if x.dtype == torch.float64:  # where 32 bits may not tell apart what differs
        rows = (ordered[:, 1:] > ordered[:, :-1]).any(-1).nonzero().squeeze(-1)
        if len(rows):
            ordered[rows], order[rows] = _again(x[rows])
    return ordered, order


def _fits(x: Tensor) -> bool:
    """Whether integers fit in 32 bits."""
    low, high = x.aminmax() if x.numel() else (0, 0)
    return int(low) >= -(2**31) and int(high) < 2**31


def _bits(x: Tensor) -> Tensor:
    """int32 that ascend where ``x``, rounded to 32 bits, descends; NaN first."""
    if not x.is_floating_point():
        return ~x.to(torch.int32)
    bits = _falling(x)
    unclear = x.amax(-1).isnan().any()  # whose bits may be those of the largest or of the smallest number
    return bits.masked_fill_(x.isnan(), -(2**31)) if unclear else bits


def _falling(x: Tensor) -> Tensor:
    """int32 that ascend where floats, rounded to 32 bits, descend, equal for equal ones; anything for NaN."""
    bits = (0.0 - x.float()).view(torch.int32)  # of the negative, in which both zeros are +0
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)  # floats compare like integers, once the negative ones are turned over


def _again(x: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`descending` for what takes 64 bits: sorted indirectly, and what is equal once more, by column."""
    order = torch.from_numpy(numpy.argsort(x.numpy(), axis=-1)).flip(-1)
    ordered = x.gather(-1, order)
    begins = run_starts(ordered)
    if not begins.all():
        order = by_key(run_bounds(begins)[0], order)
    return ordered, order


def by_key(key: Tensor, element: Tensor | None = None) -> Tensor:
    """Elements, or columns, int64 [row, element], in the order of a key from 0, equal ones in their own order.

    Both are smaller than the power of two that follows the number of columns.
    """
    bits = key.shape[1].bit_length()
    dtype = torch.int32 if 2 * bits < 32 else torch.int64
    element = torch.arange(key.shape[1], device=key.device) if element is None else element
    return (ascending((key.to(dtype) << bits) + element.to(dtype)) & ((1 << bits) - 1)).long()


def ascending(x: Tensor) -> Tensor:
    """Each row of an integer matrix in ascending order."""
    if x.device.type != "cpu" or torch.get_num_threads() > THREADS:
        return x.sort(dim=-1).values
    return torch.from_numpy(numpy.sort(x.numpy(), axis=-1))


class Order(NamedTuple):
    """Rows in order."""

    #: int64 [row]
    rows: Tensor
    #: bool [row + 1]: whether a row is not tied with the one before it; True at both ends
    run_starts: Tensor
    #: int64 [query]: where each query begins
    query_start: Tensor


def sorted_rows(scores: Tensor, indexes: Tensor, tie_break: Tensor | None = None) -> Order:
    """Sort rows, all [row]: floating scores, integer indexes, any tie breaks. Looks at the values."""
    low, high = torch.stack(indexes.aminmax()).tolist() if len(indexes) else (0, -1)
    if tie_break is None and high - low < 2**31:
        found = _roughly(scores, indexes, low, high) if reading_is_free(scores) else None
        return _exactly(scores, indexes, low, high) if found is None else found
    return _one_by_one(scores, indexes, tie_break)


def _roughly(scores: Tensor, indexes: Tensor, low: int, high: int) -> Order | None:
    """By 32 bits, in half the time of 64, and then again what these did not tell apart; None if that is too much.

    Of the bits that the index leaves the score has its place between the largest and the smallest, rounded down.
    """
    bits = min(20, 31 - (high - low).bit_length())
    if len(scores) < MANY or bits < 8:
        return None
    least, most = torch.stack(scores.aminmax()).tolist()
    wide = scores.float() if scores.dtype.itemsize < 4 else scores
    spread, large = most - least, torch.finfo(wide.dtype).max / 2**20
    if not 1 / large < spread < large:  # or NaN: they would not survive the arithmetic
        return None
    rank = (most - wide).mul_((2**bits - 1) / spread).to(torch.int32)
    key, rows = _shifted(indexes, low, bits, torch.int32).add_(rank).sort()
    run_starts = _new(key)
    doubtful = (
        (~(run_starts[1:] & run_starts[:-1])).nonzero().squeeze(-1)
    )  # as good as the one before or behind, it seems
    if len(doubtful) * AGAIN > len(rows):
        return None
    if len(doubtful):
        several = rows[doubtful]
        order, told, _ = _exactly(scores[several], indexes[several], low, high)
        rows[doubtful], run_starts[doubtful] = several[order], told[:-1]
    return Order(rows, run_starts, _starts(key, high - low, bits, 0))


def _exactly(scores: Tensor, indexes: Tensor, low: int, high: int) -> Order:
    """By index and score in one integer, which is sorted in a fraction of the time."""
    if scores.dtype == torch.float64:
        return _one_by_one(scores, indexes, None)
    key, rows = _packed(scores, indexes, low).sort()
    return Order(rows, _new(key), _starts(key, high - low, 32, -(2**31)))


def _one_by_one(scores: Tensor, indexes: Tensor, tie_break: Tensor | None) -> Order:
    """By stable sorts, by the least important key first."""
    rows = torch.arange(len(scores), device=scores.device)
    if tie_break is not None:
        rows = tie_break.argsort(descending=True, stable=True)
    rows = rows[scores[rows].argsort(descending=True, stable=True)]
    rows = rows[indexes[rows].argsort(stable=True)]
    new_query = _new(indexes[rows])
    run_starts = new_query | _new(scores[rows])
    if tie_break is not None:
        run_starts = run_starts | _new(tie_break[rows])
    return Order(rows, run_starts, new_query[:-1].nonzero().squeeze(-1))


def _shifted(indexes: Tensor, low: int, bits: int, dtype: torch.dtype) -> Tensor:
    """A new tensor of the indexes, counted from the lowest, in the upper bits."""
    fits = indexes.dtype != torch.int64 and low >= 0  # so that the difference does not wrap around
    counted = indexes.to(dtype) - low if fits else (indexes.long() - low).to(dtype)
    return counted << bits


def _packed(scores: Tensor, indexes: Tensor, low: int) -> Tensor:
    """int64 [row] that sort by index and then by descending score: equal for equal ones of a query."""
    return _shifted(indexes, low, 32, torch.int64).add_(_falling(scores))


def _starts(key: Tensor, span: int, bits: int, least: int) -> Tensor:
    """Where each index begins among keys in order, which hold it above so many bits, below which is >= ``least``."""
    if span < len(key):
        bounds = (torch.arange(span + 2, device=key.device) << bits) + least
        last = torch.searchsorted(key, bounds) if key.dtype == torch.int64 else torch.searchsorted(key.long(), bounds)
        return last[:-1][last[1:] > last[:-1]]
    return _new((key - least) >> bits)[:-1].nonzero().squeeze(-1)


def _new(x: Tensor) -> Tensor:
    """bool [row + 1]: where an element is not equal to the one before it; True at both ends."""
    edge = torch.ones(min(1, len(x)), dtype=torch.bool, device=x.device)
    return torch.cat([edge, x[1:] != x[:-1], torch.ones(1, dtype=torch.bool, device=x.device)])
