"""Judged items and pairs in canonical form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free

# The label of a query that does not count, as in cross-entropy.
IGNORED = -100


@dataclass(frozen=True, eq=False)
class Pairs:
    """(query, item) pairs: int64 [pair] each; a query of -1 belongs to none.

    On the CPU they are in ascending order of query.
    """

    query: Tensor
    item: Tensor

    def rows(self, start: int, stop: int) -> Pairs:
        """Those of the queries from start to stop, renumbered from 0. Others stay as -1: removing them would sync."""
        if reading_is_free(self.query):  # pairs are sorted by query
            first, last = torch.searchsorted(self.query, torch.tensor([start, stop], device="cpu")).tolist()
            return Pairs(self.query[first:last] - start, self.item[first:last])
        inside = (self.query >= start) & (self.query < stop)
        return Pairs(torch.where(inside, self.query - start, -1), self.item)

    def numbered(self, number: Tensor) -> Pairs:
        """The same with other numbers of the queries, int64 [query + 1]: -1 for those of others, and last."""
        query = number[self.query]
        if not reading_is_free(query):
            return Pairs(query, self.item)
        kept = (query >= 0).nonzero().squeeze(-1)
        order = kept[query[kept].argsort(stable=True)]
        return Pairs(query[order], self.item[order])


@dataclass(frozen=True, eq=False)
class Padded:
    """The judged items of each query in a rectangle."""

    #: int64 [query, entry]; negative = padding, IGNORED only for a query that does not count
    items: Tensor
    #: [query, entry]
    grade: Tensor

    @property
    def ignored(self) -> Tensor | None:
        """bool [query]: the query does not count; None = all do."""
        return self.items[:, 0] == IGNORED

    def __getitem__(self, rows: slice) -> Padded:
        """Those of some consecutive queries."""
        return Padded(self.items[rows], self.grade[rows])

    @property
    def sizes(self) -> Tensor:
        """Entries of each query: int64 [query], on the CPU."""
        return torch.tensor(self.items.shape[1], device="cpu").expand(len(self.items))

    def rectangle(self) -> tuple[Tensor, Tensor]:
        """Items and grades [query, entry]; an item of -1 is padding."""
        return self.items, self.grade

    def again(self) -> Tensor:
        """Where an item is that its query has already: bool, in some order."""
        if self.items.shape[1] < 2:
            return torch.zeros_like(self.items, dtype=torch.bool)
        ordered = self.items.sort(dim=-1).values
        return (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)


@dataclass(frozen=True, eq=False)
class Ragged:
    """The judged items of each query, one query after the other: no rectangle of the longest."""

    #: int64 [entry]; negative = padding
    items: Tensor
    #: [entry]
    grade: Tensor
    #: int64 [query + 1], on the CPU whatever the device: where the entries of each query begin
    start: Tensor
    #: bool [query]: the query does not count; None = all do
    ignored: ClassVar[Tensor | None] = None

    def __getitem__(self, rows: slice) -> Ragged:
        """Those of some consecutive queries."""
        start = self.start[rows.start : rows.stop + 1]
        inside = slice(int(start[0]), int(start[-1]))
        return Ragged(self.items[inside], self.grade[inside], start - start[0])

    def take(self, rows: Tensor) -> Ragged:
        """Those of some queries, int64 [query] on the CPU, in their order."""
        sizes = self.sizes[rows]
        start = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
        at = torch.arange(int(start[-1]), device="cpu") + torch.repeat_interleave(self.start[rows] - start[:-1], sizes)
        at = at.to(self.items.device, non_blocking=True)
        return Ragged(self.items[at], self.grade[at], start)

    @property
    def sizes(self) -> Tensor:
        """Entries of each query: int64 [query], on the CPU."""
        return self.start.diff()

    def rectangle(self) -> tuple[Tensor, Tensor]:
        """Items and grades [query, entry], as long as the longest; an item of -1 is padding."""
        sizes = self.sizes
        width = max(1, int(sizes.max())) if len(sizes) else 1
        there = (torch.arange(width, device="cpu") < sizes.unsqueeze(-1)).to(self.items.device, non_blocking=True)
        items = torch.full_like(there, -1, dtype=torch.int64).masked_scatter_(there, self.items)
        return items, torch.zeros_like(there, dtype=self.grade.dtype).masked_scatter_(there, self.grade)

    def again(self) -> Tensor:
        """Where an item is that its query has already: bool, in some order."""
        owner = torch.searchsorted(self.start, torch.arange(len(self.items), device="cpu"), right=True)
        owner = owner.to(self.items.device, non_blocking=True)
        order = self.items.argsort(stable=True)
        order = order[owner[order].argsort(stable=True)]
        items, owner = self.items[order], owner[order]
        return (items[1:] == items[:-1]) & (owner[1:] == owner[:-1]) & (items[1:] >= 0)


JudgedItems = Padded | Ragged
