"""Canonical forms of judged items and of (query, item) pairs."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from torchrank.hardware.sorted_values import ascending

# The label of a query that does not count, as in cross-entropy.
IGNORED = -100


def repetitions(ids: Tensor) -> Tensor:
    """bool, in any order: True for each repetition of an id within its row of [query, column]; negative = padding."""
    ordered = ascending(ids)  # equal ids are side by side
    return (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)


@dataclass(frozen=True, eq=False)
class Pairs:
    """(query, item) pairs, int64 [pair] each; query -1 = the pair has no effect.

    On the CPU the pairs are in ascending order of query.
    """

    query: Tensor
    item: Tensor

    def rows(self, start: int, stop: int) -> Pairs:
        """Pairs of the queries from ``start`` to ``stop``, with queries numbered from 0."""
        if self.query.is_cpu:  # then the pairs are sorted by query
            first, last = torch.searchsorted(self.query, torch.tensor([start, stop], device="cpu")).tolist()
            return Pairs(self.query[first:last] - start, self.item[first:last])
        # On an accelerator the other pairs stay, with query -1, because removing them would wait for the device.
        inside = (self.query >= start) & (self.query < stop)
        return Pairs(torch.where(inside, self.query - start, -1), self.item)

    def numbered(self, number: Tensor) -> Pairs:
        """Pairs with other numbers of the queries.

        Args:
            number: new number of each query, int64 [query + 1], -1 = leave its pairs out. The last element is -1, for
                the pairs with query -1.
        """
        query = number[self.query]
        if not query.is_cpu:
            return Pairs(query, self.item)
        kept = (query >= 0).nonzero().squeeze(-1)
        order = kept[query[kept].argsort(stable=True)]
        return Pairs(query[order], self.item[order])


@dataclass(frozen=True, eq=False)
class Padded:
    """Judged items of each query as the rows of a rectangle."""

    #: int64 [query, entry]; negative = padding; IGNORED only if the query does not count
    items: Tensor
    #: whether each query has one entry, a label without a grade
    labels: bool

    @functools.cached_property
    def ignored(self) -> Tensor | None:
        """bool [query]: the query does not count; None = every query counts, on the CPU as far as the labels say."""
        if not self.labels:
            return None
        ignored = self.items[:, 0] == IGNORED
        return None if ignored.is_cpu and not ignored.any() else ignored

    def __getitem__(self, rows: slice) -> Padded:
        """Judged items of consecutive queries."""
        return Padded(self.items[rows], self.labels)

    @property
    def sizes(self) -> Tensor:
        """Entries of each query: int64 [query], on the CPU."""
        return torch.tensor(self.items.shape[1], device="cpu").expand(len(self.items))

    def rectangle(self) -> tuple[Tensor, Tensor]:
        """Items and grades [query, entry]; a negative item is padding, of grade 0, and all others have grade 1."""
        return self.items, (self.items >= 0).view(torch.int8)

    def again(self) -> Tensor | None:
        """bool, in any order: True for each repetition of an item within its query; None = there can be none."""
        return None if self.items.shape[1] < 2 else repetitions(self.items)


@dataclass(frozen=True, eq=False)
class Ragged:
    """Judged items of all queries in one row, query by query, without padding to the longest query."""

    #: int64 [entry]; negative = padding
    items: Tensor
    #: [entry]
    grade: Tensor
    #: int64 [query + 1], on the CPU for every device: where the entries of each query begin
    start: Tensor
    #: whether each query has one entry, a label without a grade
    labels: ClassVar[bool] = False
    #: None = every query counts
    ignored: ClassVar[Tensor | None] = None

    def __getitem__(self, rows: slice) -> Ragged:
        """Judged items of consecutive queries."""
        start = self.start[rows.start : rows.stop + 1]
        inside = slice(int(start[0]), int(start[-1]))
        return Ragged(self.items[inside], self.grade[inside], start - start[0])

    def take(self, rows: Tensor) -> Ragged:
        """Judged items of the queries ``rows``, int64 [query] on the CPU, in this order."""
        sizes = self.sizes[rows]
        start = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
        # Where each entry stands in self: its new place, moved by the distance between the beginnings of its query.
        at = torch.arange(int(start[-1]), device="cpu") + torch.repeat_interleave(self.start[rows] - start[:-1], sizes)
        at = at.to(self.items.device, non_blocking=True)
        return Ragged(self.items[at], self.grade[at], start)

    @property
    def sizes(self) -> Tensor:
        """Entries of each query: int64 [query], on the CPU."""
        return self.start.diff()

    def rectangle(self) -> tuple[Tensor, Tensor]:
        """Items and grades [query, entry], as wide as the longest query; a negative item is padding."""
        sizes = self.sizes
        width = max(1, int(sizes.max())) if len(sizes) else 1
        there = (torch.arange(width, device="cpu") < sizes.unsqueeze(-1)).to(self.items.device, non_blocking=True)
        items = torch.full_like(there, -1, dtype=torch.int64).masked_scatter_(there, self.items)
        return items, torch.zeros_like(there, dtype=self.grade.dtype).masked_scatter_(there, self.grade)

    def again(self) -> Tensor:
        """bool, in any order: True for each repetition of an item within its query."""
        if len(self.items) and int(self.sizes.max()) * len(self.sizes) <= 4 * len(self.items):  # little padding
            return repetitions(self.rectangle()[0])
        owner = torch.searchsorted(self.start, torch.arange(len(self.items), device="cpu"), right=True)
        owner = owner.to(self.items.device, non_blocking=True)
        # Two stable sorts, by item and then by query, put equal items of a query side by side.
        order = self.items.argsort(stable=True)
        order = order[owner[order].argsort(stable=True)]
        items, owner = self.items[order], owner[order]
        return (items[1:] == items[:-1]) & (owner[1:] == owner[:-1]) & (items[1:] >= 0)


JudgedItems = Padded | Ragged
