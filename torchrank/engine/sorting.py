"""Sorting: the rows of a matrix."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from torchrank.hardware.devices import ascending, by_numpy, every
from torchrank.ranking.ranking import run_bounds, run_starts


class Descending(NamedTuple):
    """The rows of a matrix, sorted in descending order: NaN first, equal elements by tie break and then by column."""

    #: [row, place]: the sorted rows
    values: Tensor
    #: int64 [row, place]: the columns of their elements
    order: Tensor
    #: bool [row, place]: the element, or its tie break, differs from the one before it; expanded from one True if no
    #: elements are equal, as far as it is known without waiting
    begins: Tensor


def descending(x: Tensor, tie_break: Tensor | None = None, finite: bool = False) -> Descending:
    """Sort each row of a matrix in descending order, and equal elements by ``tie_break``, which is like ``x``.

    ``finite``: whether all elements are known to be finite.
    """
    if tie_break is not None:  # two stable sorts, by the less important key first
        by_tie = tie_break.argsort(dim=-1, descending=True, stable=True)
        values, order = x.gather(-1, by_tie).sort(dim=-1, descending=True, stable=True)
        order = by_tie.gather(-1, order)
        return Descending(values, order, run_starts(values) | run_starts(tie_break.gather(-1, order)))
    if not by_numpy(x.device) or x.shape[1] < 2:
        values, order = x.sort(dim=-1, descending=True, stable=True)
        return Descending(values, order, run_starts(values))
    if x.dtype == torch.int64 and not _fits(x):
        return _again(x)
    # The key has the element in its upper bits and the column in the lower ones. numpy sorts such integers in half the
    # time of an indirect sort.
    wide = x.dtype == torch.float64
    low = (x.shape[1] - 1).bit_length() if wide else 32
    # Infinities of both signs count as NaN, which does no harm.
    has_nan = not finite and x.is_floating_point() and math.isnan(x.sum())
    key = falling(x, wide=wide) if x.is_floating_point() else ~x.to(torch.int32)
    if has_nan:  # the sign bit of NaN is arbitrary, so NaN could be first or last
        key.masked_fill_(x.isnan(), torch.iinfo(key.dtype).min)
    key = key.bitwise_and_(-(1 << low)) if wide else key.long().bitwise_left_shift_(low)
    key.numpy()[:] |= numpy.arange(x.shape[1])
    key.numpy().sort(axis=-1)
    order = key.bitwise_and_((1 << low) - 1)
    values = x.gather(-1, order)
    # Whether each element is smaller than the one before it, or the first of its row, by one fast comparison. It also
    # compares the first element of a row with the row before.
    floats = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    flat, falls = floats.numpy().reshape(-1), numpy.ones(values.shape, dtype=bool)
    numpy.less(flat[1:], flat[:-1], out=falls.reshape(-1)[1:])
    falls[:, 0] = True
    if falls.all():
        return Descending(values, order, values.new_ones((), dtype=torch.bool).expand(values.shape))
    begins = torch.from_numpy(falls)
    if x.dtype == torch.float64:  # elements that differ in the lower bits only may be in the wrong order
        rows = (values[:, 1:] > values[:, :-1]).any(-1).nonzero().squeeze(-1)
        if len(rows):
            values[rows], order[rows], begins[rows] = _again(x[rows])
    return Descending(values, order, run_starts(values) if has_nan else begins)


def _fits(x: Tensor) -> bool:
    """Whether integers fit in 32 bits."""
    low, high = x.aminmax() if x.numel() else (0, 0)
    return int(low) >= -(2**31) and int(high) < 2**31


def falling(x: Tensor, *, wide: bool = False) -> Tensor:
    """Integers whose ascending order is the descending order of floats: int32 of float32, or int64 of float64.

    Equal floats have equal integers. The integers of NaN are arbitrary.

    Args:
        x: floats.
        wide: whether to return int64, for float64.
    """
    floats = x if wide else x.float()
    # 0.0 - x turns the order around, and maps both zeros to +0. Then the bits of floats are ordered like integers, once
    # all bits of the negative ones but the sign are flipped.
    bits = (0.0 - floats).view(torch.int64 if wide else torch.int32)
    flipped = bits >> (8 * bits.itemsize - 1)
    return bits.bitwise_xor_(flipped.bitwise_and_(torch.iinfo(bits.dtype).max))


def _again(x: Tensor) -> Descending:
    """:func:`descending` for elements that need 64 bits, by an indirect sort."""
    order = torch.from_numpy(numpy.argsort(x.numpy(), axis=-1)).flip(-1)
    values = x.gather(-1, order)
    begins = run_starts(values)
    if not every(begins):  # numpy's fast sort is not stable, so order equal elements by column
        order = by_key(run_bounds(begins)[0], order)
    return Descending(values, order, begins)


def by_key(key: Tensor, element: Tensor | None = None) -> Tensor:
    """Sort each row of elements by a key, and equal keys by element: int64 [row, element].

    Args:
        key: integers >= 0 [row, element].
        element: integers >= 0 [row, element]; None = the columns 0, 1, ...

    Keys and elements must be smaller than the next power of two above the number of columns.
    """
    # Key and element in one integer, so that a direct sort suffices.
    bits = key.shape[1].bit_length()
    dtype = torch.int32 if 2 * bits < 32 else torch.int64
    element = torch.arange(key.shape[1], device=key.device) if element is None else element
    return (ascending((key.to(dtype) << bits) + element.to(dtype)) & ((1 << bits) - 1)).long()
