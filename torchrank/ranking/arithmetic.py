"""Arithmetic helpers of derived quantities and measures."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware.devices import scalar

# Types whose elements :func:`only` chooses by their 64 bits.
WIDE = {torch.float64, torch.int64}

# Number of elements up to which the six calls of that take longer than the guesses of torch.where.
SMALL = 2048


def only(where: Tensor, x: Tensor) -> Tensor:
    """``x`` where a condition is True, else 0: as torch.where, also for infinite and NaN elements."""
    if where.numel() <= SMALL or not where.is_cpu or x.dtype not in WIDE:
        return torch.where(where, x, scalar(0, x.dtype, x.device))
    # torch.where takes a branch for each element, which a processor guesses wrong half of the time. So turn the
    # condition into 64 ones or zeros for each element, and take the bits of x where they are ones.
    bits, mask = x.view(torch.int64), where.view(torch.int8).neg().to(torch.int64)
    return (mask.bitwise_and_(bits) if mask.shape == bits.shape else mask & bits).view(x.dtype)


def either(where: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``x`` where a condition is True, else ``y``: as torch.where, in half the time where there are many."""
    if where.numel() <= SMALL or not where.is_cpu or not WIDE.issuperset((x.dtype, y.dtype)):
        return torch.where(where, x, y)
    return only(where, x) + only(~where, y)


def as_numbers(where: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where a condition is True, else 0, in a dtype."""
    return where.view(torch.int8).to(dtype)  # torch converts int8 in half the time of bool


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, elementwise; 0 where the denominator is 0."""
    return (numerator / denominator).masked_fill_(denominator == 0, 0)


def per(total: Tensor, number: Tensor) -> Tensor:
    """total / number, elementwise, for numbers of things: 0 where there are none, which have no total either."""
    return total / number.clamp_min(1)


def row_sum(x: Tensor) -> Tensor:
    """Sums over the last dimension; a view if it has one element."""
    return x.squeeze(-1) if x.shape[-1] == 1 else x.sum(-1)


def number_of(where: Tensor, dtype: torch.dtype) -> Tensor:
    """Number of True in each row: [...] of ``where`` [..., column], in a floating dtype."""
    if where.is_cpu:  # torch sums int8 to int32 in half the time
        return where.view(torch.int8).sum(-1, dtype=torch.int32).to(dtype)
    return where.sum(-1, dtype=dtype)


def marked_rows(where: Tensor) -> Tensor:
    """Numbers of the rows with a True, int64; all rows if reading the values would wait for a device."""
    if not where.is_cpu:
        return torch.arange(len(where), device=where.device)
    return where.any(-1).nonzero().squeeze(-1)
