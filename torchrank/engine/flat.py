"""Flat rows: one sort over all rows by query and score, then segments. No rectangle as long as the longest list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.engine.places import Places, behind, real
from torchrank.lists import BLOCK, FlatRows, Need, rectangles
from torchrank.problems import Problem, count

# Padding of so many elements costs as much as ranking one more block of queries.
OVERHEAD = 2**15


@dataclass(frozen=True, eq=False)
class _Entries:
    """The relevant rows, by query and in rank order."""

    #: float64 [entry]
    first: Tensor
    #: float64 [entry]
    tied: Tensor
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
    entries = _entries(lists)
    errors = lists.errors
    if lists.validate:
        bad = lists.scores.isnan()
        bad = bad if lists.mask is None else bad & lists.mask
        named = lists.indexes.new_zeros(1, dtype=torch.bool)
        if bad.any():
            named = torch.ones_like(torch.unique(lists.indexes[bad]), dtype=torch.bool)
        errors = errors + count(Problem.NAN_SCORES, named)
    for queries in _groups(entries.sizes):
        yield _rectangle(entries, queries, errors)
        errors = torch.zeros_like(errors)


def _entries(lists: FlatRows) -> _Entries:
    scores, mask = lists.scores, lists.mask
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    order, new_query, new_block = _sorted(scores, lists.tie_break, lists.indexes)
    length, device = len(order), order.device
    query_start, block_start = (new.nonzero().squeeze(-1) for new in (new_query, new_block))
    ends = torch.tensor([length], device=device)
    sizes = torch.diff(query_start, append=ends)

    relevant = lists.grade > 0
    row = (relevant if mask is None else relevant & mask)[order].nonzero().squeeze(-1)
    query = torch.searchsorted(query_start, row, right=True) - 1
    block = torch.searchsorted(block_start, row, right=True) - 1
    first = block_start[block] - query_start[query] + 1
    tied = torch.diff(block_start, append=ends)[block]

    num_candidates = sizes
    unlisted = scores == float("-inf")
    if unlisted.any():
        behind_all = unlisted[order].nonzero().squeeze(-1)
        at = torch.searchsorted(query_start, behind_all, right=True) - 1
        num_candidates = sizes - torch.bincount(at, minlength=len(sizes))
        tied = torch.where(unlisted[order[row]], 0, tied)
    num_candidates = num_candidates.to(real(device))
    first = torch.where(tied > 0, first, behind(num_candidates)[query])
    several = tied > 1
    depth = int((first + tied - 1)[several].max()) if several.any() else 1
    entries_of = torch.bincount(query, minlength=len(sizes))
    return _Entries(
        first.to(real(device)),
        tied.to(real(device)),
        lists.grade[order[row]],
        entries_of,
        entries_of.cumsum(0) - entries_of,
        num_candidates,
        depth,
    )


def _sorted(scores: Tensor, tie_break: Tensor | None, indexes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows by query, by descending score, by descending tie break; and where a query, and where a tie, begins."""
    low, high = (int(x) for x in indexes.aminmax()) if len(indexes) else (0, 0)
    narrow = scores.dtype != torch.float64 and high - low < 2**31
    if narrow and tie_break is None:  # both fit into one integer, which is sorted in a fraction of the time
        key, order = _packed(scores, indexes - low if low else indexes).sort()
        return order, _new((key + 2**31) >> 32), _new(key)
    order = torch.arange(len(scores), device=scores.device)
    if tie_break is not None:
        order = tie_break.argsort(descending=True, stable=True)
    order = order[scores[order].argsort(descending=True, stable=True)]
    order = order[indexes[order].argsort(stable=True)]
    new_query = _new(indexes[order])
    new_block = new_query | _new(scores[order])
    return order, new_query, new_block if tie_break is None else new_block | _new(tie_break[order])


def _packed(scores: Tensor, indexes: Tensor) -> Tensor:
    """int64 [row] that sort by index and then by descending score: equal for equal ones of a query."""
    bits = (0.0 - scores.float()).view(torch.int32)  # of the negative, in which both zeros are +0
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # floats compare like integers, once the negative ones are turned over
    return (indexes.long() << 32) + bits


def _new(x: Tensor) -> Tensor:
    """Where an element is not equal to the one before it."""
    return torch.cat([torch.ones_like(x[:1], dtype=torch.bool), x[1:] != x[:-1]])


def _groups(sizes: Tensor) -> Iterator[Tensor]:
    """Queries that go into one rectangle, so that padding costs less than another rectangle would."""
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
    if len(cuts) == 1 and len(ordered) * int(ordered[-1:].sum()) <= BLOCK:
        yield torch.arange(len(sizes), device=sizes.device)  # in the order in which they came
        return
    for start, stop in cuts:
        for first, last in rectangles(ordered[start:stop], BLOCK):
            yield queries[start + first : start + last].to(sizes.device)


def _rectangle(entries: _Entries, queries: Tensor, errors: Tensor) -> Places:
    sizes = entries.sizes[queries].unsqueeze(-1)
    width = max(1, int(sizes.max())) if len(sizes) else 1
    position = torch.arange(width, device=queries.device)
    valid = position < sizes
    at = torch.where(valid, entries.start[queries].unsqueeze(-1) + position, 0)

    def cut(x: Tensor) -> Tensor:
        if not len(x):
            return torch.zeros(at.shape, dtype=x.dtype, device=x.device)
        return torch.where(valid, x[at], torch.zeros_like(x[:1]))

    lengths = entries.num_candidates[queries]
    first = torch.where(valid, cut(entries.first), behind(lengths).unsqueeze(-1))
    return Places(
        first, cut(entries.tied), cut(entries.grade), valid, lengths, errors, max(1, entries.depth), queries=queries
    )
