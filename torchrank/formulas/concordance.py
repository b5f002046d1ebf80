"""Two rankings of the same candidates: their places in both, and the discordant pairs; divergences of distributions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from torchrank.engine.sorting import by_key, descending
from torchrank.hardware.devices import ascending, every, widened, widest_float
from torchrank.ranking.ranking import Ranking, cached, run_bounds, run_starts

# A bucket has 2 ** 5 elements, and a group 2 ** 5 buckets. Pairs are compared within buckets, and counted by buckets
# within groups.
BUCKET_BITS = 5


@dataclass(frozen=True, eq=False)
class Orders:
    """The candidates of each query in the order of the other ranking; its ties in the order of the first ranking.

    Places and numbers are int64; places count from 0. Candidates that are not retrieved form one tie group behind all
    others. Padding is at the end.
    """

    #: [query, entry]: index of the entry in the first ranking
    entry: Tensor
    #: bool [query, entry]: False for padding
    there: Tensor
    #: no entry is padding; False if this is unknown
    all_valid: bool
    #: [query]: number of candidates
    number: Tensor
    #: [query, entry]: number of candidates above the entry in the first ranking
    above: Tensor
    #: [query, entry]: size of its tie group in the first ranking
    beside: Tensor
    #: [query, entry]: number of candidates above the entry in the other ranking
    other_above: Tensor
    #: [query, entry]: size of its tie group in the other ranking
    other_beside: Tensor

    @functools.cached_property
    def place(self) -> Tensor:
        """int64 [query, entry]: the place in the first ranking; its ties in the order of the other ranking."""
        # Without ties the number of candidates above is the place. With ties the stable sort keeps the other order
        # within a tie group, so tied pairs are never counted as discordant.
        if _strict(self.beside):
            return self.above
        order = by_key(self.above if self.all_valid else torch.where(self.there, self.above, self.above.shape[1]))
        return torch.empty_like(order).scatter_(-1, order, self.other_place.expand_as(order))

    @property
    def untied(self) -> bool:
        """Whether both rankings are known to have no ties."""
        return _strict(self.beside) and _strict(self.other_beside)

    @property
    def other_place(self) -> Tensor:
        """int64 [entry]: the place in the other ranking."""
        return torch.arange(self.above.shape[1], device=self.above.device)

    @functools.cached_property
    def alike(self) -> tuple[Tensor, Tensor]:
        """Number of candidates tied with an entry in both rankings, and its place among them.

        int64 [query, entry] each.
        """
        if _strict(self.beside) or _strict(self.other_beside):
            return _ones(self.above), _ones(self.above) - 1
        start, stop = run_bounds(run_starts(self.above) | run_starts(self.other_above) | run_starts(self.there))
        return stop - start, self.other_place - start

    @functools.cached_property
    def overtaken(self) -> Tensor:
        """int64 [query, entry]: number of candidates before an entry here and behind it in the first ranking."""
        return larger_before(self.place)

    @property
    def discordant(self) -> Tensor:
        """int64 [query, entry]: number of candidates that form a discordant pair with an entry."""
        # Of the `place` smaller places, other_place - overtaken stand before the entry, and the others behind it. So it
        # has overtaken + place - (other_place - overtaken) discordant pairs.
        return (2 * self.overtaken).add_(self.place).sub_(self.other_place)

    def all_tied(self) -> Tensor:
        """bool [query]: whether all candidates are tied in one of the rankings."""
        return torch.maximum(self.beside[:, 0], self.other_beside[:, 0]) >= self.number

    def of_candidates(self, x: Tensor) -> Tensor:
        """``x`` [query, entry], with 0 for padding."""
        return x if self.all_valid else torch.where(self.there, x, 0)

    def pairs(self, tied: Tensor, weight: Tensor | None = None) -> Tensor:
        """float64 [query]: number of tied pairs of candidates.

        Args:
            tied: int64 [query, entry]: size of the tie group of each entry.
            weight: [query, entry], 0 for padding: a pair counts the sum of its two weights. None = a pair counts 1.
        """
        if _strict(tied):
            return torch.zeros_like(self.number, dtype=widest_float(self.number.device))
        if weight is not None:
            return (weight * (tied - 1)).sum(-1)
        return widened(self.of_candidates(tied - 1).sum(-1)) / 2

    def total(self) -> Tensor:
        """float64 [query]: number of pairs of candidates."""
        number = widened(self.number)
        return number * (number - 1) / 2

    @functools.cached_property
    def reversed(self) -> Tensor:
        """float64 [query]: number of discordant pairs, which the two rankings order differently."""
        # Padding stands last in both orders and adds 0.
        return widened(self.overtaken.sum(-1) if "overtaken" in self.__dict__ else inversions(self.place))

    def net(self) -> Tensor:
        """float64 [query]: number of concordant pairs minus number of discordant pairs."""
        # Pairs tied in both rankings are in the first two terms, and are subtracted once.
        tied = self.pairs(self.beside) + self.pairs(self.other_beside) - self.pairs(self.alike[0])
        return self.total() - tied - 2 * self.reversed

    def classes(self, above: Tensor, place: Tensor) -> Tensor:
        """float64 [query]: number of different values in a ranking, from ``above`` and ``place`` in it."""
        return widened((self.there & (above == place)).sum(-1))


@cached
def orders(ranking: Ranking) -> Orders:
    """The order of the entries by grade, in descending order, beside their order in the ranking."""
    there, width = ranking.valid, ranking.first.shape[1]
    looks = there.is_cpu
    all_valid = looks and every(there)
    _, entry, begins = descending(ranking.grade if all_valid else torch.where(there, ranking.grade, 0))
    start, stop = run_bounds(begins)
    # run_bounds returns expanded tensors, of stride 0, if it has found that no grades are equal.
    distinct = all_valid and stop[:, :1].numel() > 0 and start.stride(0) == 0
    if not all_valid:  # move padding to the end
        padded = torch.where(there.gather(-1, entry), start, width)
        entry = by_key(padded, entry)
        there = there.gather(-1, entry)
        start, stop = run_bounds(run_starts(ascending(padded)))
    number = torch.full_like(entry[:, 0], width) if all_valid and width else there.sum(-1)
    other_beside = _ones(entry) if distinct else stop - start
    if all_valid and ranking.untied and every(ranking.tied > 0):
        return Orders(entry, there, all_valid, number, entry, _ones(entry), start.expand_as(entry), other_beside)
    # Candidates that are not retrieved have tied = 0 in a ranking; here they are one tie group behind the list.
    missing = (number - ranking.num_candidates.long()).unsqueeze(-1)
    tied = torch.where(ranking.tied > 0, ranking.tied.long(), missing).gather(-1, entry)
    above = (ranking.first.gather(-1, entry) - 1).long()
    return Orders(entry, there, all_valid, number, above, tied, start.expand_as(entry), other_beside)


def _ones(like: Tensor) -> Tensor:
    """Ones, int64 of the shape of a tensor, as an expanded scalar: its strides mark that there are no ties."""
    return torch.ones((), dtype=torch.int64, device=like.device).expand(like.shape)


def _strict(tied: Tensor) -> bool:
    """Whether tie groups are known to have one member each, because their sizes come from :func:`_ones`."""
    return not any(tied.stride())


# ---- inversions ------------------------------------------------------------------------------------------------


def larger_before(order: Tensor) -> Tensor:
    """Number of larger elements before each element of a permutation: int64 like ``order``, [row, element].

    A radix sort from the highest bit, stable in each step: an element that moves towards the front overtakes larger
    elements only, so the distance is counted. Groups of 1024 elements are left to :func:`_in_group`. O(D log D).
    """
    width = order.shape[1]
    if width < 2:
        return torch.zeros_like(order)
    bits, low = (width - 1).bit_length(), 2 * BUCKET_BITS
    unit = 1 << (low if bits > low else BUCKET_BITS)
    padded = -(-width // unit) * unit
    position = torch.arange(padded, device=order.device)
    # Padding continues the permutation with larger elements at the end, which are before no other element.
    element = torch.cat([order, position[width:].expand(len(order), -1)], -1) if padded > width else order
    if bits <= low:
        return _in_group(element)[:, :width].long()
    moved = torch.zeros_like(element)
    for bit in reversed(range(low, bits)):
        upper = (element >> bit) & 1
        ones = upper.cumsum(-1)
        # Each earlier group has as many elements with the bit as without it: 2 ** bit, `half` in total. A group begins
        # at 2 half; in it elements without the bit come first.
        half = (position >> (bit + 1)) << bit
        to = torch.where(upper > 0, ones + (half + (1 << bit) - 1), (half + position) - ones)
        moved += (position - to).clamp_min_(0)
        element, moved = (torch.empty_like(to).scatter_(-1, to, x) for x in (element, moved))
    # Each group now contains 1024 consecutive values, in their original order.
    groups = (element & (unit - 1)).reshape(-1, unit)
    moved += _in_group(groups).view(moved.shape)
    return torch.empty_like(moved).scatter_(-1, element, moved).gather(-1, order)


def _in_group(order: Tensor) -> Tensor:
    """:func:`larger_before` for permutations of at most 1024 elements, a multiple of the size of a bucket: int32.

    Places and values are both cut into buckets. A pair in different buckets of places and of values is counted in a
    table of buckets. Pairs in one bucket of places are compared, and so are pairs in one bucket of values.
    """
    rows, width = order.shape
    size = 1 << BUCKET_BITS
    buckets = width // size
    position = torch.arange(width, device=order.device) // size
    small = order.to(torch.int16)
    # The table has an empty row in front. So the same cell adds an element at its own bucket of places, and reads the
    # sums over the earlier buckets.
    cell = (small >> BUCKET_BITS).add_((position * buckets).to(torch.int16)).long()
    ones = torch.ones((), dtype=torch.int32, device=order.device).expand(order.shape)
    table = torch.zeros((rows, (buckets + 1) * buckets), dtype=torch.int32, device=order.device)
    table[:, buckets:].scatter_add_(-1, cell, ones)
    upto = table.view(rows, buckets + 1, buckets).cumsum(1, dtype=torch.int32).cumsum(2, dtype=torch.int32)
    # All elements in earlier buckets of places, minus those in the same or a lower bucket of values.
    before = (position * size).int() - upto.flatten(1).gather(-1, cell)
    before += _compared(small.view(rows, buckets, size)).view(order.shape)
    # In one bucket of values count larger values in a strictly earlier bucket of places. Reversed and negated, this is
    # the same comparison.
    bucket = position.to(torch.int8).expand(order.shape)
    by_value = torch.empty_like(bucket, memory_format=torch.contiguous_format).scatter_(-1, order, bucket)
    near_values = _compared(by_value.view(rows, buckets, size).flip(-1).neg_()).flip(-1)
    return before.add_(near_values.reshape(order.shape).gather(-1, order))


def _compared(x: Tensor) -> Tensor:
    """Number of larger elements before each element of its bucket: int8 [row, bucket, element], like ``x``."""
    return _larger_in_front(x.permute(2, 0, 1)).permute(1, 2, 0).contiguous()


def _larger_in_front(x: Tensor) -> Tensor:
    """Number of larger elements before each element along the short first dimension: int8 in the shape of ``x``.

    Compares all pairs of one distance at a time. Each comparison reads two contiguous pieces of memory.
    """
    counts = torch.zeros(x.shape, dtype=torch.int8, device=x.device)
    # numpy compares short integers several times as fast as torch on the CPU.
    here = x.is_cpu
    values: Any
    table: Any
    values, table = (numpy.ascontiguousarray(x.numpy()), counts.numpy()) if here else (x.contiguous(), counts)
    for distance in range(1, len(x)):
        table[distance:] += (values[:-distance] > values[distance:]).view(table.dtype)
    return counts


def inversions(order: Tensor) -> Tensor:
    """Number of pairs of elements of a permutation with the larger one first: int64 [row].

    This is the sum of :func:`larger_before`, but permutations that fit in one group need no counts of single elements.
    """
    rows, width = order.shape
    if not rows or not 1 < width <= 1 << 2 * BUCKET_BITS:
        return larger_before(order).sum(-1)
    # The three kinds of pairs of _in_group. Padding continues the permutation with larger elements at the end.
    size = 1 << BUCKET_BITS
    buckets = -(-width // size)
    position = torch.arange(buckets * size, dtype=torch.int16, device=order.device)
    small, bucket = position.repeat(rows, 1), position >> BUCKET_BITS
    small[:, :width] = order
    by_value = bucket.to(torch.int8).repeat(rows, 1)
    by_value.scatter_(-1, order, by_value[:, :width].clone())
    near = torch.zeros(rows, dtype=torch.int64, device=order.device)
    for x in (small, by_value):
        larger = _larger_in_front(x.view(-1, size).t()).view(torch.uint8)
        # Eight counts below 32 are added in 8 bits.
        near += larger.view(8, -1, rows, buckets).sum(0, dtype=torch.uint8).sum((0, 2))
    # The table [row, bucket of places, bucket of values], without the padding. Its sums are below 2 ** 24, so exact.
    cell = (order >> BUCKET_BITS).add_((bucket * buckets)[:width])
    table = torch.zeros((rows, buckets * buckets), dtype=torch.float32, device=order.device)
    ones = torch.ones((), dtype=torch.float32, device=order.device)
    table = table.scatter_add_(-1, cell, ones.expand(cell.shape)).view(rows, buckets, buckets)
    upto = table[:, :-1].cumsum(1).cumsum(2)
    # All elements in earlier buckets of places, minus those in the same or a lower bucket of values.
    full, rest = divmod(width, size)
    earlier = size * (size * full * (full - 1) // 2 + full * rest)
    return near + earlier - upto.mul_(table[:, 1:]).sum((1, 2)).long()


def kullback_leibler(p: Tensor, q: Tensor) -> Tensor:
    """KL divergence in nats: the sum of p ln(p / q); infinite if q is 0 where p is not."""
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1).clamp_min(0)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """JS divergence in nats: the mean KL divergence of p and q from their mean; at most ln 2."""
    middle = (p + q) / 2
    return ((kullback_leibler(p, middle) + kullback_leibler(q, middle)) / 2).clamp_max(math.log(2))


def hellinger(p: Tensor, q: Tensor) -> Tensor:
    """Hellinger distance, from 0 to 1."""
    return ((p.sqrt() - q.sqrt()).square().sum(-1) / 2).clamp_max(1).sqrt()


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Half the sum of absolute differences, from 0 to 1."""
    return ((p - q).abs().sum(-1) / 2).clamp_max(1)


#: differences by name; logarithms are natural
DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "kl": kullback_leibler,
    "js": jensen_shannon,
    "tv": total_variation,
    "hellinger": hellinger,
}

#: names of differences that are made of logarithms
LOGARITHMIC = ("kl", "js")


def difference(name: str, p: Tensor, q: Tensor, log_base: float) -> Tensor:
    """The difference of a name; its logarithms, if it has any, are to the base ``log_base``."""
    divergence = DISTANCES[name](p, q)
    return divergence / math.log(log_base) if name in LOGARITHMIC else divergence
