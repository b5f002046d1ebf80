"""Flat rows as integers of 64 bits: the query, the score and the grade of a row in one.

A sort of such integers returns the grades in rank order. No order of the rows is computed, so nothing is gathered.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.engine.sorting import falling, list_width, starts
from torchrank.hardware import costs
from torchrank.hardware.sorted_values import sort_in_place
from torchrank.layouts.canonical import FlatRows, Need

# The score of -inf as an integer, and the difference to its integer by `falling`, which has a sign.
NOT_RETRIEVED, UNSIGNED = 0xFF800000, -(2**31)

# The places of the lower and of the upper half of an integer of 64 bits in memory.
LOWER, UPPER = (0, 1) if sys.byteorder == "little" else (1, 0)


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Sorted integers of rows: from the upper bits to the lower ones the query, the score and the grade."""

    #: int64 [row], ascending: by query, descending score and grade
    keys: Tensor
    #: int64 [query]: the place where each query begins
    query_start: Tensor
    #: number of bits of the grade; rows that are no entries have 0 there
    bits: int
    #: grade of an entry minus its lower bits
    least: int
    #: dtype of the grades
    dtype: torch.dtype

    @classmethod
    def of(cls, layout: FlatRows, scores: Tensor, need: Need) -> PackedRows | None:
        """Sort rows with the given scores; None if they do not fit in integers, or if values cannot be read."""
        indexes, grade = layout.indexes, layout.grade
        short = scores.dtype.itemsize <= 4 and not grade.is_floating_point() and layout.tie_break is None
        if not short or not scores.is_cpu or not len(scores):
            return None
        low, high = torch.stack(indexes.aminmax()).tolist()
        least, most = torch.stack(grade.aminmax()).tolist()
        # The lower bits of an entry are larger than 0. Without irrelevant entries, they are the grade.
        base = 0 if need.relevant else least - 1
        bits = (most - base).bit_length()
        if (high - low).bit_length() + bits > 31:
            return None
        keys = torch.empty(len(scores), dtype=torch.int64, device=scores.device)
        for block in _blocks(len(keys)):
            query = indexes[block] if not low else indexes[block].long() - low
            score = falling(scores[block]).bitwise_xor_(UNSIGNED)
            worth = grade[block] if not base else grade[block].long() - least + 1
            worth = worth.clamp_min(0) if least < 0 and not base else worth
            worth = worth if layout.mask is None else worth * layout.mask[block]
            # Each half is made for itself, because operations on 64 bits take several times as long.
            halves = keys[block].view(torch.int32).view(-1, 2)
            upper = (score >> (32 - bits)).bitwise_and_(2**bits - 1)
            halves[:, UPPER] = upper.bitwise_or_(query.to(torch.int32, copy=True).bitwise_left_shift_(bits))
            halves[:, LOWER] = score.bitwise_left_shift_(bits).bitwise_or_(worth.to(torch.int32))
        width = list_width(indexes) or 0
        query_start = _sort_lists(keys.view(-1, width), 32 + bits) if width >= costs.now.sorted_list else None
        if query_start is None:
            sort_in_place(keys)
            query_start = starts(keys, high - low, 32 + bits, 0)
        return cls(keys, query_start, bits, base, grade.dtype)

    def __len__(self) -> int:
        return len(self.keys)

    def entries(self) -> tuple[Tensor, Tensor]:
        """The places of the entries in the order, int64 [entry], and their grades [entry]."""
        part = 2**self.bits - 1
        places = [
            (self.keys[block] & part).nonzero().squeeze(-1).add_(block.start) for block in _blocks(len(self.keys))
        ]
        place = torch.cat(places)
        if part == 1 and not self.least:
            return place, torch.ones((), dtype=self.dtype, device=place.device).expand(len(place))
        grade = (self.keys.take(place) & part).to(self.dtype)
        return place, grade + self.least if self.least else grade

    def tied(self, place: Tensor) -> Tensor:
        """bool [entry]: whether another row of the query has the score of an entry; rarely also for other entries."""
        # The neighbour of the first row is the last one, and the other way round. Equal ones are in one query, or are
        # one row: then its tie group has one row.
        key, before = self.keys.take(place), self.keys.take(place - 1)
        behind = self.keys.take(place + (1 - len(self.keys)))
        return torch.minimum(before.bitwise_xor_(key), behind.bitwise_xor_(key)) < 2**self.bits

    def tie_groups(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """The place of the first row, and the place behind the last one, of each entry's tie group: int64 [entry]."""
        key = self.keys.take(place) >> self.bits
        begin, end = (torch.searchsorted(self.keys, end << self.bits) for end in (key, key + 1))
        return begin, end

    def num_retrieved(self) -> Tensor:
        """Number of rows of each query whose score is not -inf: int64 [query]."""
        query = self.keys[self.query_start] >> (32 + self.bits)
        cut = ((query << 32) + NOT_RETRIEVED) << self.bits
        return torch.searchsorted(self.keys, cut) - self.query_start


def _sort_lists(lists: Tensor, bits: int) -> Tensor | None:
    """Sort each list of integers in place. Returns the place where each begins; None if they are not one query each."""
    sort_in_place(lists)
    query, last = lists[:, 0] >> bits, lists[:, -1] >> bits
    # The last query of a sorted list is the first one only if there is no other between them.
    if bool((query != last).any()) or bool((query[1:] <= query[:-1]).any()):
        return None
    return torch.arange(0, lists.numel(), lists.shape[1], device=lists.device)


def _blocks(rows: int) -> list[slice]:
    """Cut rows into blocks of a block's size."""
    return [slice(start, start + costs.now.block) for start in range(0, rows, costs.now.block)]
