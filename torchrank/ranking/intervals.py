"""Intervals of ranks, and tables of discounts over the ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.hardware.devices import constant, running_sum, scalar
from torchrank.layouts.canonical import BLOCK
from torchrank.ranking.arithmetic import only

# Prefix sums up to this rank are accurate enough. Longer ones come with the digits that rounding has taken from them.
NEAR = 2**8


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals of ranks, [first, first + tied - 1] each; empty if ``tied`` is 0."""

    first: Tensor
    tied: Tensor

    @classmethod
    def between(cls, ends: Tensor, dtype: torch.dtype) -> Intervals:
        """Intervals in a floating dtype, given by their :attr:`ends`."""
        # A number of a floating dtype turns integers into this dtype in the same operation.
        made = cls(ends[0] + scalar(1, dtype, ends.device), (ends[1] - ends[0]).to(dtype))
        vars(made)["ends"] = ends
        return made

    @functools.cached_property
    def number(self) -> Tensor:
        """Number of ranks, at least 1."""
        return self.tied.clamp_min(1)

    @functools.cached_property
    def alone(self) -> Tensor:
        """bool: a single rank."""
        return self.tied == 1

    @functools.cached_property
    def ends(self) -> Tensor:
        """The last rank before an interval, and its own last rank: first - 1 and first - 1 + tied, int64 [2, ...]."""
        above = self.first - 1
        return torch.stack([above, above + self.tied]).long()


@dataclass(frozen=True, eq=False)
class LastGroup:
    """The last tie group of each query that begins at or before a cutoff. Only this group may end behind it.

    A group without ranks belongs to a query without candidates.
    """

    #: its ranks: float64 [query] each
    ranks: Intervals
    #: float64 [query]: number of its ranks up to the cutoff
    places: Tensor
    #: the columns where its entries start and stop: int64 [query, 2]
    columns: Tensor

    @functools.cached_property
    def share(self) -> Tensor:
        """float64 [query]: probability that a candidate of the group is at or before the cutoff."""
        return self.places / self.ranks.number

    @functools.cached_property
    def complete(self) -> Tensor:
        """bool [query]: the group ends at or before the cutoff."""
        return self.places == self.ranks.tied

    @functools.cached_property
    def _inside(self) -> tuple[Tensor, Tensor]:
        """Whether columns precede the two ends, bool, and the last of them, int64: [query, 2] each."""
        return self.columns > 0, (self.columns - 1).clamp_min_(0)

    def up_to_cutoff(self, running: Tensor) -> Tensor:
        """Expected sums over the entries up to the cutoff, from running sums [query, entry]: float64 [query]."""
        before, up_to = self.before_and_up_to(running)
        return before * (1 - self.share) + up_to * self.share

    def before_and_in(self, running: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over the entries before, and in, the group, from running sums [query, entry]: float64 [query] each."""
        before, up_to = self.before_and_up_to(running)
        return before, up_to - before

    def before_and_up_to(self, running: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over the entries before, and up to the end of, the group, as :meth:`before_and_in`."""
        some, last = self._inside
        before, up_to = only(some, running.gather(-1, last)).unbind(-1)
        return before, up_to


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
        ranks = torch.arange(start + 1, stop + 1, dtype=dtype, device=device)
        lost[start + 1 : stop + 1] = lost[start] + running_sum(
            _rounding_errors(discount(ranks), table[start : stop + 1])
        )
    return _without_near(lost)


def lost_digits_of(values: Tensor, table: Tensor) -> Tensor:
    """Exact sums minus running sums, as :func:`lost_digits`.

    Args:
        values: float [..., rank].
        table: running sums of the values, [..., rank + 1].
    """
    return _without_near(torch.nn.functional.pad(running_sum(_rounding_errors(values, table)), (1, 0)))


def _rounding_errors(values: Tensor, table: Tensor) -> Tensor:
    """The rounding error of each addition in running sums ``table`` [..., rank + 1] of ``values`` [..., rank]."""
    low, high = table[..., :-1], table[..., 1:]
    # ``step`` and its rounding error ``off`` make up the difference of two prefix sums (Knuth's TwoSum).
    step = high - low
    back = step - high
    off = (high - (step - back)) - (low + back)
    return values - step - off


def _without_near(lost: Tensor) -> Tensor:
    """Lost digits without those of the first ranks, among which an interval has the same digits in any table."""
    if lost.shape[-1] <= NEAR:
        return torch.zeros_like(lost)
    return (lost - lost[..., NEAR : NEAR + 1]).index_fill_(-1, torch.arange(NEAR, device=lost.device), 0)


@discount_table
def of_first_ranks(
    discount: Callable[[Tensor], Tensor], limit: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The values of a discount, or of a gain, at 1 ... ``limit``: float [limit]."""
    return discount(torch.arange(1, limit + 1, dtype=dtype, device=device))


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
