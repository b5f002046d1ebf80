"""Two orders of the same candidates: where each stands in both, and which pairs they put the other way round."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.engine.sorting import ascending, by_key, descending
from torchrank.hardware.devices import reading_is_free
from torchrank.ranking.derived import Derived, cached
from torchrank.ranking.entries import run_bounds, run_starts

# Pairs are compared one by one within blocks of so many elements, and counted by blocks within as many blocks.
BLOCK_BITS = 5


@dataclass(frozen=True, eq=False)
class Orders:
    """The candidates of each query in the order of the other ranking, equal ones in the order of the first.

    Places and numbers are int64, places count from 0. Candidates that were not retrieved are tied with each other
    behind all others; what is no candidate stands at the end.
    """

    #: [query, entry]: which entry of the ranking this is
    entry: Tensor
    #: bool [query, entry]: whether it is a candidate
    there: Tensor
    #: whether it is known that all entries are
    whole: bool
    #: [query]: how many are
    number: Tensor
    #: [query, entry]: how many candidates are above it in the first ranking, and how many tied with it, itself included
    above: Tensor
    beside: Tensor
    #: [query, entry]: and in the other ranking
    other_above: Tensor
    other_beside: Tensor

    @functools.cached_property
    def place(self) -> Tensor:
        """int64 [query, entry]: the place in the first ranking, equal ones in the order of the other."""
        if self.whole and _strict(self.beside):
            return self.above
        order = by_key(self.above if self.whole else torch.where(self.there, self.above, self.above.shape[1]))
        return torch.empty_like(order).scatter_(-1, order, self.other_place.expand_as(order))

    @property
    def other_place(self) -> Tensor:
        """int64 [entry]: the place in the other ranking."""
        return torch.arange(self.above.shape[1], device=self.above.device)

    @functools.cached_property
    def alike(self) -> tuple[Tensor, Tensor]:
        """int64 [query, entry] each: how many are tied with it in both rankings, and its place among them."""
        if _strict(self.beside) or _strict(self.other_beside):
            return _ones(self.above), _ones(self.above) - 1
        start, stop = run_bounds(run_starts(self.above) | run_starts(self.other_above) | run_starts(self.there))
        return stop - start, self.other_place - start

    @functools.cached_property
    def overtaken(self) -> Tensor:
        """int64 [query, entry]: how many candidates before it in this order stand behind it in the first ranking."""
        return larger_before(self.place)

    @property
    def discordant(self) -> Tensor:
        """int64 [query, entry]: how many candidates the two rankings put on different sides of it."""
        # Larger places before it, and the smaller ones behind it, which make up for where it stands.
        return (2 * self.overtaken).add_(self.place).sub_(self.other_place)

    def all_tied(self) -> Tensor:
        """bool [query]: all candidates are tied in one of the rankings."""
        return torch.maximum(self.beside[:, 0], self.other_beside[:, 0]) >= self.number

    def of_candidates(self, x: Tensor) -> Tensor:
        """``x`` [query, entry], and 0 for what is no candidate."""
        return x if self.whole else torch.where(self.there, x, 0)

    def pairs(self, tied: Tensor, weight: Tensor | None = None) -> Tensor:
        """float64 [query]: pairs of candidates that are tied, from how many are tied with each, itself included.

        A pair counts 1, or the sum of its weights, [query, entry], which are 0 for what is no candidate.
        """
        if _strict(tied):
            return torch.zeros_like(self.number, dtype=torch.float64)
        if weight is not None:
            return (weight * (tied - 1)).sum(-1)
        return self.of_candidates(tied - 1).sum(-1).double() / 2

    def total(self) -> Tensor:
        """float64 [query]: all pairs of candidates."""
        number = self.number.double()
        return number * (number - 1) / 2

    def reversed(self) -> Tensor:
        """float64 [query]: discordant pairs, which the rankings order differently."""
        return self.overtaken.sum(-1).double()  # what is no candidate has none

    def net(self) -> Tensor:
        """float64 [query]: concordant pairs less discordant ones."""
        tied = self.pairs(self.beside) + self.pairs(self.other_beside) - self.pairs(self.alike[0])
        return self.total() - tied - 2 * self.reversed()

    def classes(self, above: Tensor, place: Tensor) -> Tensor:
        """float64 [query]: how many different values a ranking has."""
        return (self.there & (above == place)).sum(-1).double()


@cached
def orders(ranking: Derived) -> Orders:
    """The entries of a ranking in the order of their grades, the larger first, beside their order by the ranking."""
    there, width = ranking.valid, ranking.first.shape[1]
    looks = reading_is_free(there)
    whole = looks and bool(there.all())
    values, entry = descending(ranking.grade if whole else torch.where(there, ranking.grade, 0))
    start, stop = run_bounds(run_starts(values))
    distinct = whole and stop[:, :1].numel() > 0 and start.stride(0) == 0  # as runs says where nothing is tied
    if not whole:  # what is no candidate at the end
        kept = torch.where(there.gather(-1, entry), start, width)
        entry = by_key(kept, entry)
        there = there.gather(-1, entry)
        start, stop = run_bounds(run_starts(ascending(kept)))
    number = there.sum(-1)
    other_beside = _ones(entry) if distinct else stop - start
    if whole and ranking.untied and looks and bool((ranking.tied > 0).all()):
        return Orders(entry, there, whole, number, entry, _ones(entry), start.expand_as(entry), other_beside)
    # What was not retrieved stands behind the list, all of it tied.
    missing = (number - ranking.num_candidates.long()).unsqueeze(-1)
    tied = torch.where(ranking.tied > 0, ranking.tied.long(), missing).gather(-1, entry)
    above = (ranking.first.gather(-1, entry) - 1).long()
    return Orders(entry, there, whole, number, above, tied, start.expand_as(entry), other_beside)


def _ones(like: Tensor) -> Tensor:
    """int64 like a tensor, a single 1 for all."""
    return torch.ones((), dtype=torch.int64, device=like.device).expand(like.shape)


def _strict(tied: Tensor) -> bool:
    """Whether it is known that nothing is tied."""
    return not any(tied.stride())


# ---- inversions ------------------------------------------------------------------------------------------------


def larger_before(order: Tensor) -> Tensor:
    """How many larger elements stand before each of a permutation: int64 like ``order``, [row, element].

    Elements are sorted by bits, from the highest, each time stably: one that moves towards the front overtakes larger
    ones only. Once groups are as small as 1024 elements, :func:`_in_group` counts what is left: O(D log D).
    """
    width = order.shape[1]
    if width < 2:
        return torch.zeros_like(order)
    bits, low = (width - 1).bit_length(), 2 * BLOCK_BITS
    unit = 1 << (low if bits > low else BLOCK_BITS)
    padded = -(-width // unit) * unit
    at = torch.arange(padded, device=order.device)
    element = torch.cat([order, at[width:].expand(len(order), -1)], -1) if padded > width else order
    if bits <= low:
        return _in_group(element)[:, :width].long()
    moved = torch.zeros_like(element)
    for bit in reversed(range(low, bits)):
        upper = (element >> bit) & 1
        ones = upper.cumsum(-1)
        half = (at >> (bit + 1)) << bit  # a group begins at twice this
        to = torch.where(upper > 0, ones + (half + (1 << bit) - 1), (half + at) - ones)
        moved += (at - to).clamp_min_(0)
        element, moved = (torch.empty_like(to).scatter_(-1, to, x) for x in (element, moved))
    groups = (element & (unit - 1)).reshape(-1, unit)
    moved += _in_group(groups).view(moved.shape)
    return torch.empty_like(moved).scatter_(-1, element, moved).gather(-1, order)


def _in_group(order: Tensor) -> Tensor:
    """:func:`larger_before` for permutations of at most 1024 elements, a multiple of the size of a block: int32.

    Pairs in different blocks of places and of values are counted in a table of blocks; pairs in one block of places,
    and those in one block of values, are compared.
    """
    rows, width = order.shape
    size = 1 << BLOCK_BITS
    blocks = width // size
    at = torch.arange(width, device=order.device) // size
    small = order.to(torch.int16)
    cell = (small >> BLOCK_BITS).add_((at * blocks).to(torch.int16)).long()  # of the table that begins a row earlier
    one = torch.ones((), dtype=torch.int32, device=order.device).expand(order.shape)
    table = torch.zeros((rows, (blocks + 1) * blocks), dtype=torch.int32, device=order.device)
    table[:, blocks:].scatter_add_(-1, cell, one)
    upto = table.view(rows, blocks + 1, blocks).cumsum(1, dtype=torch.int32).cumsum(2, dtype=torch.int32)
    # Of all in blocks before, those that are not in this block of values or a lower one.
    before = (at * size).int() - upto.flatten(1).gather(-1, cell)
    before += _compared(small.view(rows, blocks, size)).view(order.shape)
    block = at.to(torch.int8).expand(order.shape)
    by_value = torch.empty_like(block, memory_format=torch.contiguous_format).scatter_(-1, order, block)
    rank_after_list = _compared(by_value.view(rows, blocks, size).flip(-1).neg_()).flip(-1)
    return before.add_(rank_after_list.reshape(order.shape).gather(-1, order))


def _compared(x: Tensor) -> Tensor:
    """How many larger elements stand before each in its block: like ``x``, int8 or int16 [row, block, element].

    All pairs of one distance at a time, for all blocks at once.
    """
    x = x.permute(2, 0, 1).contiguous()
    counts = torch.zeros_like(x)
    for distance in range(1, len(x)):
        if x.dtype == torch.int8:
            counts[distance:] += (x[:-distance] > x[distance:]).view(torch.int8)
        else:  # several times as fast as comparing
            counts[distance:] += (x[:-distance] - x[distance:]).clamp_(0, 1)
    return counts.permute(1, 2, 0).contiguous()
