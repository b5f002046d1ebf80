"""Flat rows: one sort over all rows by query and score, then segments. No rectangle as long as the longest list."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchrank.engine.places import Places, depth_of, real
from torchrank.engine.sorting import sorted_rows
from torchrank.lists import BLOCK, DenseLists, FlatRows, Lists, Need, groups
from torchrank.problems import Problem, count

# Padding of so many entries costs as much as another rectangle of them.
OVERHEAD = 2**15

# Lists of equal length are looked for up to this one.
LONGEST = 2**12


@dataclass(frozen=True, eq=False)
class _Entries:
    """The rows that are looked at, by query and in rank order."""

    #: float64 [entry]
    first: Tensor
    #: float64 [entry]; None = 1 throughout
    tied: Tensor | None
    #: [entry]
    grade: Tensor
    #: int64 [query]: how many each query has, and where they begin
    sizes: Tensor
    start: Tensor
    #: float64 [query]
    num_candidates: Tensor
    #: no tied entry has a larger rank
    depth: int


def as_matrix(lists: FlatRows) -> Lists:
    """Rows that lie side by side in lists of equal length as the matrix that they are; any other as they are.

    It shows in the values, at which only the CPU can look without waiting.
    """
    indexes = lists.indexes
    if indexes.device.type != "cpu" or not len(indexes):
        return lists
    start = indexes[:LONGEST]
    width = int((start != indexes[0]).int().argmax()) or len(indexes)
    if width > BLOCK or len(indexes) % width or bool((start[1:] < start[:-1]).any()):
        return lists
    of_row = indexes.reshape(-1, width)
    if not bool((of_row == of_row[:, :1]).all()) or not bool((of_row[1:, 0] > of_row[:-1, 0]).all()):
        return lists

    scores, grade = lists.scores.reshape(-1, width), lists.grade.reshape(-1, width)
    mask, tie_break = (None if x is None else x.reshape(-1, width) for x in (lists.mask, lists.tie_break))
    return DenseLists(lists.errors, lists.validate, scores, grade, mask, tie_break)


def place_flat(lists: FlatRows, need: Need) -> Iterator[Places]:
    """Places of the relevant rows, or of all, for queries with similar numbers of them at a time."""
    scores, errors = lists.scores, lists.errors
    if lists.mask is not None:
        scores = scores.masked_fill(~lists.mask, float("-inf"))
    least = float(scores.min()) if len(scores) else 0.0
    if lists.validate and math.isnan(least):
        named = torch.unique(lists.indexes[scores.isnan()])
        errors = errors + count(Problem.NAN_SCORES, torch.ones_like(named, dtype=torch.bool))
    entries = _entries(lists, scores, need, all_listed=least > -math.inf)
    for queries, width in groups(entries.sizes, OVERHEAD, BLOCK):
        places = _rectangle(entries, queries, width, errors)
        yield places if need.relevant else replace(places, everything=True)
        errors = torch.zeros_like(errors)


def _entries(lists: FlatRows, scores: Tensor, need: Need, all_listed: bool) -> _Entries:
    order, fresh, query_start = sorted_rows(scores, lists.indexes, lists.tie_break)
    ends = torch.tensor([len(order)], device=order.device)
    sizes = torch.diff(query_start, append=ends)
    wanted = lists.grade > 0 if need.relevant else torch.ones_like(lists.grade, dtype=torch.bool)
    wanted = wanted if lists.mask is None else wanted & lists.mask
    row = wanted.gather(0, order).nonzero().squeeze(-1)
    query = torch.searchsorted(query_start, row, right=True) - 1
    first = row - query_start.gather(0, query) + 1
    tied = None
    if len(entry := (~(fresh[row] & fresh[row + 1])).nonzero().squeeze(-1)):
        tied, beginning = torch.ones_like(row), fresh.nonzero().squeeze(-1)
        block = torch.searchsorted(beginning, row[entry], right=True) - 1
        tied[entry] = beginning[block + 1] - beginning[block]
        first[entry] += beginning[block] - row[entry]
    num_candidates = sizes
    if not all_listed:
        unlisted = scores.gather(0, order) == -math.inf
        at = torch.searchsorted(query_start, unlisted.nonzero().squeeze(-1), right=True) - 1
        num_candidates = sizes - torch.bincount(at, minlength=len(sizes))
        tied = torch.where(unlisted[row], 0, 1 if tied is None else tied)
        first = torch.where(tied > 0, first, num_candidates[query] + 1)
    entries_of = torch.bincount(query, minlength=len(sizes))
    dtype = real(order.device)
    return _Entries(
        first.to(dtype),
        None if tied is None else tied.to(dtype),
        lists.grade.gather(0, order.gather(0, row)),
        entries_of,
        entries_of.cumsum(0) - entries_of,
        num_candidates.to(dtype),
        1 if tied is None else depth_of(first, tied),
    )


def _rectangle(entries: _Entries, queries: Tensor, width: int, errors: Tensor) -> Places:
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
    return Places(first, tied, cut(entries.grade), valid, lengths, errors, entries.depth, queries=queries)
