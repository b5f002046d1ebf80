"""Flat rows: one sort over all rows by query and score, then segments. No rectangle as long as the longest list."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.engine.places import Places, real
from torchrank.lists import BLOCK, FlatRows, Need, rectangles
from torchrank.problems import Problem, count

# Padding of so many elements costs as much as ranking one more block of queries.
OVERHEAD = 2**15


@dataclass(frozen=True, eq=False)
class _Entries:
    """The relevant rows, by query and in rank order."""

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


def place_flat(lists: FlatRows, need: Need) -> Iterator[Places]:
    """Places of the relevant rows, for queries with similar numbers of them at a time."""
    scores, errors = lists.scores, lists.errors
    if lists.mask is not None:
        scores = scores.masked_fill(~lists.mask, float("-inf"))
    least = float(scores.min()) if len(scores) else 0.0
    if lists.validate and math.isnan(least):
        named = torch.unique(lists.indexes[scores.isnan()])
        errors = errors + count(Problem.NAN_SCORES, torch.ones_like(named, dtype=torch.bool))
    entries = _entries(lists, scores, all_listed=least > -math.inf)
    for queries, width in _groups(entries.sizes):
        yield _rectangle(entries, queries, width, errors)
        errors = torch.zeros_like(errors)


def _entries(lists: FlatRows, scores: Tensor, all_listed: bool) -> _Entries:
    order, key, query_start = _sorted(scores, lists.tie_break, lists.indexes)
    ends = torch.tensor([len(order)], device=order.device)
    sizes = torch.diff(query_start, append=ends)
    relevant = lists.grade > 0 if lists.mask is None else (lists.grade > 0) & lists.mask
    row = relevant.gather(0, order).nonzero().squeeze(-1)
    query = torch.searchsorted(query_start, row, right=True) - 1
    first = row - query_start.gather(0, query) + 1
    tied, depth = None, 1
    if len(entry := _tied(key, row)):
        mine, tied = key.gather(0, row.gather(0, entry)), torch.ones_like(row)
        beginning = torch.searchsorted(key, mine)
        tied[entry] = torch.searchsorted(key, mine, right=True) - beginning
        first[entry] += beginning - row[entry]
        depth = int((first[entry] + tied[entry]).max()) - 1
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
        depth,
    )


def _tied(key: Tensor, row: Tensor) -> Tensor:
    """Which of some rows, in order, are as good as the row before or behind them: int64."""
    mine = key.gather(0, row)
    before = (key.gather(0, (row - 1).clamp_min(0)) == mine) & (row > 0)
    behind_it = (key.gather(0, (row + 1).clamp_max(len(key) - 1)) == mine) & (row + 1 < len(key))
    return (before | behind_it).nonzero().squeeze(-1)


def _sorted(scores: Tensor, tie_break: Tensor | None, indexes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows by query, by descending score, by descending tie break.

    Returns:
        their order, int64 [row]; what they were sorted by, int64 [row], ascending, equal where tied; and where each
        query begins, int64 [query].
    """
    indexes = indexes.long()
    low, high = (int(x) for x in indexes.aminmax()) if len(indexes) else (0, -1)
    if scores.dtype != torch.float64 and high - low < 2**31 and tie_break is None:
        # Both fit into one integer, which is sorted in a fraction of the time.
        key, order = _packed(scores, indexes - low if low else indexes).sort()
        if high - low < len(key):
            bounds = (torch.arange(high - low + 2, device=key.device) << 32) - 2**31
            start = torch.searchsorted(key, bounds)
            return order, key, start[:-1][start[1:] > start[:-1]]
        return order, key, _new((key + 2**31) >> 32).nonzero().squeeze(-1)
    order = torch.arange(len(scores), device=scores.device)
    if tie_break is not None:
        order = tie_break.argsort(descending=True, stable=True)
    order = order[scores[order].argsort(descending=True, stable=True)]
    order = order[indexes[order].argsort(stable=True)]
    new_query = _new(indexes[order])
    new_block = new_query | _new(scores[order])
    if tie_break is not None:
        new_block = new_block | _new(tie_break[order])
    return order, new_block.cumsum(0), new_query.nonzero().squeeze(-1)


def _packed(scores: Tensor, indexes: Tensor) -> Tensor:
    """int64 [row] that sort by index and then by descending score: equal for equal ones of a query."""
    bits = (0.0 - scores.float()).view(torch.int32)  # of the negative, in which both zeros are +0
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # floats compare like integers, once the negative ones are turned over
    return (indexes << 32) + bits


def _new(x: Tensor) -> Tensor:
    """Where an element is not equal to the one before it."""
    return torch.cat([torch.ones_like(x[:1], dtype=torch.bool), x[1:] != x[:-1]])


def _groups(sizes: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Queries that go into one rectangle, so that padding costs less than another would, and how wide it is."""
    ordered, queries = sizes.cpu().sort()
    cuts, todo = [], [(0, len(ordered))]
    while todo:
        start, stop = todo.pop()
        below = ordered[start : max(start, stop - 1)]
        ahead = torch.arange(1, len(below) + 1) * (ordered[start:stop].amax() - below) if len(below) else below
        if len(ahead) and int(ahead.max()) > OVERHEAD:
            middle = start + int(ahead.argmax()) + 1
            todo += [(start, middle), (middle, stop)]
        else:
            cuts.append((start, stop))
    widest = max(1, int(ordered[-1:].sum()))
    if len(cuts) == 1 and len(ordered) * widest <= BLOCK:
        yield torch.arange(len(sizes), device=sizes.device), widest  # in the order in which they came
        return
    queries = queries.to(sizes.device)  # once: each copy would wait for the device
    for start, stop in cuts:
        for first, last in rectangles(ordered[start:stop], BLOCK):
            yield queries[start + first : start + last], max(1, int(ordered[start + last - 1]))


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
