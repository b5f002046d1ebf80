"""Engine for flat rows: one sort of all rows by query and score. No rectangle is as wide as the longest list."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchrank.engine.packed import PackedRows
from torchrank.engine.sorting import Order, sorted_rows
from torchrank.hardware.devices import widest_float
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.canonical import BLOCK, FlatRows, Need
from torchrank.layouts.cutting import OVERHEAD, groups, octaves
from torchrank.ranking.entries import depth_of
from torchrank.ranking.ranking import Ranking


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of all queries in one row: by query, and by rank within a query. The fields are as in a ranking."""

    #: float64 [entry]; with ``before`` int64, counted through all queries
    first: Tensor
    #: float64 [entry]; None = 1 for every entry
    tied: Tensor | None
    #: [entry]
    grade: Tensor
    #: int64 [query]: number of entries of each query
    sizes: Tensor
    #: int64 [query]: where the entries of each query begin
    start: Tensor
    #: float64 [query]
    num_candidates: Tensor
    #: no tied entry has a larger rank
    depth: int
    #: int64 [query], to be subtracted from ``first``; None = ``first`` is counted within each query
    before: Tensor | None = None

    def rankings(self, errors: Tensor) -> Iterator[Ranking]:
        """Rankings of queries with similar numbers of entries, the first with the counters of bad values."""
        for queries, width in groups(self.sizes, OVERHEAD, BLOCK):
            yield _rectangle(self, queries, width, errors)
            errors = torch.zeros_like(errors)

    def alone(self, errors: Tensor) -> Iterator[Ranking]:
        """:meth:`rankings` in rectangles whose width depends on no other query, so that values do not either."""
        for queries, width in octaves(self.sizes, BLOCK):
            yield _rectangle(self, queries, width, errors)
            errors = torch.zeros_like(errors)


def rank_flat(layout: FlatRows, need: Need) -> Iterator[Ranking]:
    """Rank all rows, and yield rankings of queries with similar numbers of entries.

    Entries are the relevant rows, or all rows if these are needed.
    """
    scores, errors = layout.scores, layout.errors
    if layout.mask is not None:
        scores = scores.masked_fill(~layout.mask, float("-inf"))
    least = float(scores.min()) if len(scores) else 0.0
    if layout.validate and math.isnan(least):  # the minimum is NaN if any score is
        with_nan = torch.unique(layout.indexes[scores.isnan()])
        errors = errors + count(Problem.NAN_SCORES, torch.ones_like(with_nan, dtype=torch.bool))
    entries = _entries(_in_order(layout, scores, need), all_retrieved=least > -math.inf)
    for ranking in entries.rankings(errors):
        yield ranking if need.relevant else replace(ranking, all_candidates=True)


def _in_order(layout: FlatRows, scores: Tensor, need: Need) -> PackedRows | NumberedRows:
    """Sort the rows, as packed integers if they fit."""
    packed = PackedRows.of(layout, scores, need)
    return NumberedRows.of(layout, scores, need) if packed is None else packed


@dataclass(frozen=True, eq=False)
class NumberedRows:
    """Sorted rows by their numbers, for rows that do not fit in :class:`PackedRows`; the methods are the same."""

    scores: Tensor
    grade: Tensor
    is_entry: Tensor
    order: Order

    @classmethod
    def of(cls, layout: FlatRows, scores: Tensor, need: Need) -> NumberedRows:
        """Sort rows with the given scores."""
        is_entry = layout.grade > 0 if need.relevant else torch.ones_like(layout.grade, dtype=torch.bool)
        is_entry = is_entry if layout.mask is None else is_entry & layout.mask
        return cls(scores, layout.grade, is_entry, sorted_rows(scores, layout.indexes, layout.tie_break))

    @property
    def query_start(self) -> Tensor:
        return self.order.query_start

    def __len__(self) -> int:
        return len(self.scores)

    def entries(self) -> tuple[Tensor, Tensor]:
        place = self.is_entry.gather(0, self.order.rows).nonzero().squeeze(-1)
        return place, self.grade.gather(0, self.order.rows.gather(0, place))

    def tied(self, place: Tensor) -> Tensor:
        # An entry is tied unless a run starts at its row and the next run starts at the row behind it.
        return ~(self.order.run_starts[place] & self.order.run_starts[place + 1])

    def tie_groups(self, place: Tensor) -> tuple[Tensor, Tensor]:
        beginning = self.order.run_starts.nonzero().squeeze(-1)
        group = torch.searchsorted(beginning, place, right=True) - 1
        return beginning[group], beginning[group + 1]

    def num_retrieved(self) -> Tensor:
        # Rows at -inf stand last in their query.
        retrieved = (self.scores.gather(0, self.order.rows) > -math.inf).nonzero().squeeze(-1)
        return torch.diff(torch.searchsorted(retrieved, self.query_start), append=_end(len(retrieved), retrieved))


def _entries(rows: PackedRows | NumberedRows, all_retrieved: bool) -> Entries:
    """Derive the entries from their places in the sorted order of all rows."""
    place, grade = rows.entries()
    start = torch.searchsorted(place, rows.query_start)
    sizes = torch.diff(start, append=_end(len(place), place))
    ends = _end(len(rows), place)
    num_candidates = torch.diff(rows.query_start, append=ends) if all_retrieved else rows.num_retrieved()
    dtype = widest_float(place.device)
    entries = Entries(place, None, grade, sizes, start, num_candidates.to(dtype), 1, rows.query_start - 1)
    tied_ones = rows.tied(place).nonzero().squeeze(-1)
    if all_retrieved and not len(tied_ones):
        return entries
    first, tied = place + 1 - rows.query_start.repeat_interleave(sizes), torch.ones_like(place)
    begin, end = rows.tie_groups(place[tied_ones])
    first[tied_ones] += begin - place[tied_ones]
    tied[tied_ones] = end - begin
    if not all_retrieved:  # rows at -inf are no part of the list of their query
        behind = num_candidates.repeat_interleave(sizes) + 1
        tied = torch.where(first < behind, tied, 0)
        first = torch.minimum(first, behind)
    return replace(entries, first=first.to(dtype), tied=tied.to(dtype), depth=depth_of(first, tied), before=None)


def _end(size: int, like: Tensor) -> Tensor:
    """A size as the last of the starts that :func:`torch.diff` subtracts: int64 [1]."""
    return torch.tensor([size], device=like.device)


def _rectangle(entries: Entries, queries: Tensor, width: int, errors: Tensor) -> Ranking:
    """The ranking of some queries, with entries padded to a rectangle."""
    position = torch.arange(width, device=queries.device)
    valid = position < entries.sizes[queries].unsqueeze(-1)
    at = (entries.start[queries].unsqueeze(-1) + position).clamp_max_(max(0, len(entries.first) - 1)).flatten()

    def cut(x: Tensor) -> Tensor:
        return x.index_select(0, at).view(valid.shape) if len(x) else torch.zeros_like(valid, dtype=x.dtype)

    lengths, first = entries.num_candidates[queries], cut(entries.first)
    first = first if entries.before is None else first.sub_(entries.before[queries].unsqueeze(-1)).to(lengths.dtype)
    first = torch.where(valid, first, (lengths + 1).unsqueeze(-1))
    tied = valid.to(first.dtype) if entries.tied is None else torch.where(valid, cut(entries.tied), 0)
    grade = torch.where(valid, cut(entries.grade), 0)
    return Ranking(first, tied, grade, valid, lengths, errors, entries.depth, queries=queries)
