"""Arithmetic of rows, of intervals of ranks, and of tables of discounts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torchrank.hardware.devices import constant, running_sum, scalar, worth_reading
from torchrank.layouts.canonical import BLOCK


def only(where: Tensor, x: Tensor) -> Tensor:
    """``x`` where a condition is True, else 0."""
    if not x.is_cpu or x.dtype not in (torch.float64, torch.int64):
        return torch.where(where, x, scalar(0, x.dtype, x.device))
    # torch.where takes a branch for each element, which a processor guesses wrong half of the time. So turn the
    # condition into 64 ones or zeros for each element, and take the bits of x where they are ones.
    ones = where.view(torch.int8).neg().to(torch.int64)
    return (ones & x.view(torch.int64)).view(x.dtype)


def as_numbers(where: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where a condition is True, else 0, in a dtype."""
    return where.view(torch.int8).to(dtype)  # torch converts int8 in half the time of bool


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, elementwise; 0 where the denominator is 0."""
    return (numerator / denominator).masked_fill_(denominator == 0, 0)


def per(total: Tensor, number: Tensor) -> Tensor:
    """total / number, elementwise, for numbers of things: 0 where there are none, which have no total either."""
    return total / number.clamp_min(1)


def row_sum(x: Tensor, top_k: int | None = None) -> Tensor:
    """Sums over the last dimension, a view if it has one element; as running sums if there is a cutoff.

    ``x`` is 0 beyond the cutoff. So a sum has the same digits whether it is read from running sums or not.
    """
    if x.shape[-1] == 1:
        return x.squeeze(-1)
    return x.sum(-1) if top_k is None or not x.is_cpu else running_sum(x)[..., -1]


def number_of(where: Tensor, dtype: torch.dtype) -> Tensor:
    """Number of True in each row: [...] of ``where`` [..., column], in a floating dtype."""
    if where.is_cpu:  # torch sums int8 to int32 in half the time
        return where.view(torch.int8).sum(-1, dtype=torch.int32).to(dtype)
    return where.sum(-1, dtype=dtype)


def marked_rows(where: Tensor, steps: int = 0) -> Tensor:
    """Numbers of the rows with a True, int64; all rows if reading the values would wait for a device.

    ``steps`` is as in :func:`torchrank.hardware.devices.worth_reading`.
    """
    if not worth_reading(where, steps):
        return torch.arange(len(where), device=where.device)
    return where.any(-1).nonzero().squeeze(-1)


# Prefix sums up to this rank are accurate enough. Longer ones come with the digits that rounding has taken from them.
NEAR = 2**8


def rank_bounds(first: Tensor, tied: Tensor) -> Tensor:
    """The rank before each interval of ranks, and its last rank: int64 [2, ...]."""
    before = first - 1
    return torch.stack([before, before + tied]).long()


def discount_table(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """:func:`constant` for a table of a discount. A user's function may change, so its tables are made again."""
    return constant(make, keep=lambda discount, *_: _is_fixed(discount))


def _is_fixed(x: object) -> bool:
    """Whether an object is a number, or is frozen and made of numbers."""
    parameters = getattr(type(x), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return isinstance(x, int | float)
    return all(map(_is_fixed, vars(x).values()))


@discount_table
def prefix_sums(discount: Callable[[Tensor], Tensor], limit: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Sums of a discount over the ranks 1 ... r, for r = 0 ... ``limit``: float [limit + 1]."""
    ranks = torch.arange(1, limit + 1, dtype=dtype, device=device)
    return torch.nn.functional.pad(running_sum(discount(ranks)), (1, 0))


def prefix_differences(discount: Callable[[Tensor], Tensor], limit: int, ends: Tensor, dtype: torch.dtype) -> Tensor:
    """Sums of a discount over intervals of ranks, accurate also for a short interval far down.

    Args:
        discount: the discount.
        limit: the largest rank.
        ends: the rank before each interval, and its last rank: int64 [2, ...].
        dtype: the floating dtype of the sums.
    """
    before, up_to = prefix_sums(discount, limit, dtype, ends.device).take(ends)
    if limit <= NEAR:
        return up_to - before
    lost_before, lost_up_to = lost_digits(discount, limit, dtype, ends.device).take(ends)
    return (up_to - before) + (lost_up_to - lost_before)


@discount_table
def lost_digits(discount: Callable[[Tensor], Tensor], limit: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Exact sums minus :func:`prefix_sums`: the digits that rounding has taken from them: float [limit + 1]."""
    table = prefix_sums(discount, limit, dtype, device)
    lost = torch.zeros_like(table)
    for start in range(0, limit, BLOCK):
        stop = min(start + BLOCK, limit)
        values = discount(torch.arange(start + 1, stop + 1, dtype=dtype, device=device))
        low, high = table[start:stop], table[start + 1 : stop + 1]
        # ``step`` and its rounding error ``off`` make up the difference of two prefix sums (Knuth's TwoSum).
        step = high - low
        back = step - high
        off = (high - (step - back)) - (low + back)
        lost[start + 1 : stop + 1] = lost[start] + running_sum(values - step - off)
    if limit + 1 <= NEAR:  # among the first ranks, an interval has the same digits in any table
        return torch.zeros_like(lost)
    return (lost - lost[NEAR : NEAR + 1]).index_fill_(-1, torch.arange(NEAR, device=device), 0)


@discount_table
def first_discounts(
    discount: Callable[[Tensor], Tensor], top_k: int | None, number: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The values of a discount at 1 ... ``number``, 0 beyond ``top_k``: float [number]."""
    table = discount(torch.arange(1, number + 1, dtype=dtype, device=device)).clone()  # it may return its argument
    table[top_k if top_k is not None else number :] = 0
    return table


def sum_over_ranks(values: Callable[[Tensor], Tensor], last: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The sum of a function over the ranks 1, ..., ``last``, float [], with some ranks in memory at a time."""
    total = torch.zeros((), dtype=dtype, device=device)
    for start in range(1, last + 1, BLOCK):
        total = total + values(torch.arange(start, min(start + BLOCK, last + 1), dtype=dtype, device=device)).sum()
    return total
