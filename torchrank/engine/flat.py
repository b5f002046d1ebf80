"""Engine for flat rows: one sort of all rows by query and score. No rectangle is as wide as the longest list."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchrank.engine.sorting import sorted_rows
from torchrank.hardware.devices import widest_float
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.canonical import BLOCK, FlatRows, Need
from torchrank.layouts.cutting import OVERHEAD, groups, octaves
from torchrank.ranking.entries import depth_of
from torchrank.ranking.ranking import Ranking


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of all queries in one row: by query, and by rank within a query. The fields are as in a ranking."""

    #: float64 [entry]
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
    entries = _entries(layout, scores, need, all_retrieved=least > -math.inf)
    for ranking in entries.rankings(errors):
        yield ranking if need.relevant else replace(ranking, all_candidates=True)


def _entries(layout: FlatRows, scores: Tensor, need: Need, all_retrieved: bool) -> Entries:
    """Sort the rows, and derive the entries from their places in the sorted order."""
    order, run_starts, query_start = sorted_rows(scores, layout.indexes, layout.tie_break)
    ends = torch.tensor([len(order)], device=order.device)
    sizes = torch.diff(query_start, append=ends)
    is_entry = layout.grade > 0 if need.relevant else torch.ones_like(layout.grade, dtype=torch.bool)
    is_entry = is_entry if layout.mask is None else is_entry & layout.mask
    row = is_entry.gather(0, order).nonzero().squeeze(-1)  # the places of the entries in the sorted order
    query = torch.searchsorted(query_start, row, right=True) - 1
    first = row - query_start.gather(0, query) + 1
    tied = None
    # An entry is tied unless a run starts at its row and the next run starts at the row behind it.
    if len(entry := (~(run_starts[row] & run_starts[row + 1])).nonzero().squeeze(-1)):
        tied, beginning = torch.ones_like(row), run_starts.nonzero().squeeze(-1)
        group = torch.searchsorted(beginning, row[entry], right=True) - 1
        tied[entry] = beginning[group + 1] - beginning[group]
        first[entry] += beginning[group] - row[entry]
    num_candidates = sizes
    if not all_retrieved:  # rows at -inf stand last in their query, and are no part of its list
        not_retrieved = scores.gather(0, order) == -math.inf
        at = torch.searchsorted(query_start, not_retrieved.nonzero().squeeze(-1), right=True) - 1
        num_candidates = sizes - torch.bincount(at, minlength=len(sizes))
        tied = torch.where(not_retrieved[row], 0, 1 if tied is None else tied)
        first = torch.where(tied > 0, first, num_candidates[query] + 1)
    entries_of = torch.bincount(query, minlength=len(sizes))
    dtype = widest_float(order.device)
    return Entries(
        first.to(dtype),
        None if tied is None else tied.to(dtype),
        layout.grade.gather(0, order.gather(0, row)),
        entries_of,
        entries_of.cumsum(0) - entries_of,
        num_candidates.to(dtype),
        1 if tied is None else depth_of(first, tied),
    )


def _rectangle(entries: Entries, queries: Tensor, width: int, errors: Tensor) -> Ranking:
    """The ranking of some queries, with entries padded to a rectangle."""
    position = torch.arange(width, device=queries.device)
    valid = position < entries.sizes[queries].unsqueeze(-1)
    at = (entries.start[queries].unsqueeze(-1) + position).clamp_max_(max(0, len(entries.first) - 1))

    def cut(x: Tensor) -> Tensor:
        return (
            torch.where(valid, x.index_select(0, at.flatten()).view(at.shape), 0)
            if len(x)
            else torch.zeros_like(at, dtype=x.dtype)
        )

    lengths = entries.num_candidates[queries]
    first = torch.where(valid, cut(entries.first), (lengths + 1).unsqueeze(-1))
    tied = valid.to(first.dtype) if entries.tied is None else cut(entries.tied)
    return Ranking(first, tied, cut(entries.grade), valid, lengths, errors, entries.depth, queries=queries)
