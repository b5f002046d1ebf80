"""Flat rows: one sort over all rows by query and score. No rectangle as long as the longest list."""

import torch
from torch import Tensor

from torchrank.engine.places import Places, in_rank_order, real
from torchrank.lists import FlatRows
from torchrank.problems import Problem, count


def place_flat(lists: FlatRows) -> Places:
    """Places of the relevant rows. Entries are as many as the query with most relevant rows has."""
    device, num_queries = lists.scores.device, lists.num_queries
    scores = lists.scores
    mask = torch.ones_like(scores, dtype=torch.bool) if lists.mask is None else lists.mask
    scores = scores.masked_fill(~mask, float("-inf"))
    errors = lists.errors
    if lists.validate:
        bad = _per_query(scores.isnan(), lists.query, num_queries) > 0
        errors = errors + count(Problem.NAN_SCORES, bad)

    order = _order(scores, lists.tie_break, lists.query)
    scores, query, mask, grade = scores[order], lists.query[order], mask[order], lists.grade[order]
    fresh = _differs(query) | _differs(scores)
    if lists.tie_break is not None:
        fresh = fresh | _differs(lists.tie_break[order])
    sizes = _per_query(torch.ones_like(mask), query, num_queries)
    rank = torch.arange(1, len(query) + 1, device=device) - (sizes.cumsum(0) - sizes)[query]
    block = fresh.cumsum(0) - 1
    beginning = fresh.nonzero().squeeze(-1)
    ends = torch.cat([beginning[1:], beginning.new_tensor([len(query)])])[: len(beginning)]
    retrieved = scores > float("-inf")
    first, tied = rank[beginning][block], torch.where(retrieved, (ends - beginning)[block], 0)

    # Entries are the rows with a grade, packed to the left in rank order.
    entry = (mask & (grade > 0)).nonzero().squeeze(-1)
    judged = query[entry]
    sizes = torch.bincount(judged, minlength=num_queries)
    slot = torch.arange(len(entry), device=device) - (sizes.cumsum(0) - sizes)[judged]
    width = max(1, int(sizes.max())) if num_queries else 1

    def pack(rows: Tensor, dtype: torch.dtype) -> Tensor:
        packed = torch.zeros((num_queries, width), dtype=dtype, device=device)
        packed[judged, slot] = rows[entry].to(dtype)
        return packed

    dtype = real(device)
    num_candidates = _per_query(retrieved, query, num_queries)
    return in_rank_order(
        pack(first, dtype),
        pack(tied, dtype),
        pack(grade, grade.dtype),
        pack(mask, torch.bool),
        num_candidates.to(dtype),
        errors,
        depth=max(1, int(num_candidates.max())) if num_queries else 1,
    )


def _order(scores: Tensor, tie_break: Tensor | None, query: Tensor) -> Tensor:
    """Rows by query, then by descending score, then by descending tie break."""
    if tie_break is None:
        order = scores.argsort(descending=True)
    else:
        order = tie_break.argsort(descending=True, stable=True)
        order = order[scores[order].argsort(descending=True, stable=True)]
    return order[query[order].argsort(stable=True)]


def _differs(x: Tensor) -> Tensor:
    """Where an element of a row is not equal to the one before it."""
    return torch.cat([torch.ones_like(x[:1], dtype=torch.bool), x[1:] != x[:-1]])


def _per_query(where: Tensor, query: Tensor, num_queries: int) -> Tensor:
    sums = torch.zeros(num_queries, dtype=torch.int64, device=where.device)
    return sums.scatter_add_(0, query, where.long())
