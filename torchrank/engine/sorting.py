"""Sorting: the rows of a matrix, and flat rows by query, by descending score, by descending tie break."""

from __future__ import annotations

from typing import NamedTuple

import numpy
import torch
from torch import Tensor

# With so many threads torch sorts as fast as numpy, which uses vector instructions and a single thread.
THREADS = 4

# From so many rows on a first sort by fewer bits pays, if it leaves at most one row in so many to be sorted again.
MANY, AGAIN = 2**15, 8


def descending(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each row of a matrix in descending order, NaN first, and that order, int64; equal elements in any order."""
    if not _for_numpy(x):
        return x.sort(dim=-1, descending=True)
    order = torch.from_numpy(numpy.argsort(x.numpy(), axis=-1)).flip(-1)
    return x.gather(-1, order), order


def ascending(x: Tensor) -> Tensor:
    """Each row of a matrix in ascending order."""
    return torch.from_numpy(numpy.sort(x.numpy(), axis=-1)) if _for_numpy(x) else x.sort(dim=-1).values


def _for_numpy(x: Tensor) -> bool:
    known = x.dtype in (torch.float32, torch.float64, torch.int32, torch.int64)
    return known and x.device.type == "cpu" and torch.get_num_threads() <= THREADS


class Order(NamedTuple):
    """Rows in order."""

    #: int64 [row]
    rows: Tensor
    #: bool [row + 1]: whether a row is not tied with the one before it; True at both ends
    fresh: Tensor
    #: int64 [query]: where each query begins
    query_start: Tensor


def sorted_rows(scores: Tensor, indexes: Tensor, tie_break: Tensor | None = None) -> Order:
    """Sort rows, all [row]: floating scores, integer indexes, any tie breaks. Looks at the values."""
    low, high = torch.stack(indexes.aminmax()).tolist() if len(indexes) else (0, -1)
    if tie_break is None and high - low < 2**31:
        found = _roughly(scores, indexes, low, high) if scores.device.type == "cpu" else None
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
    place = (most - wide).mul_((2**bits - 1) / spread).to(torch.int32)
    key, rows = _shifted(indexes, low, bits, torch.int32).add_(place).sort()
    fresh = _new(key)
    doubtful = (~(fresh[1:] & fresh[:-1])).nonzero().squeeze(-1)  # as good as the one before or behind, it seems
    if len(doubtful) * AGAIN > len(rows):
        return None
    if len(doubtful):
        several = rows[doubtful]
        order, told, _ = _exactly(scores[several], indexes[several], low, high)
        rows[doubtful], fresh[doubtful] = several[order], told[:-1]
    return Order(rows, fresh, _starts(key, high - low, bits, 0))


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
    fresh = new_query | _new(scores[rows])
    if tie_break is not None:
        fresh = fresh | _new(tie_break[rows])
    return Order(rows, fresh, new_query[:-1].nonzero().squeeze(-1))


def _shifted(indexes: Tensor, low: int, bits: int, dtype: torch.dtype) -> Tensor:
    """A new tensor of the indexes, counted from the lowest, in the upper bits."""
    fits = indexes.dtype != torch.int64 and low >= 0  # so that the difference does not wrap around
    counted = indexes.to(dtype) - low if fits else (indexes.long() - low).to(dtype)
    return counted << bits


def _packed(scores: Tensor, indexes: Tensor, low: int) -> Tensor:
    """int64 [row] that sort by index and then by descending score: equal for equal ones of a query."""
    bits = (0.0 - scores.float()).view(torch.int32)  # of the negative, in which both zeros are +0
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # floats compare like integers, once the negative ones are turned over
    return _shifted(indexes, low, 32, torch.int64).add_(bits)


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
