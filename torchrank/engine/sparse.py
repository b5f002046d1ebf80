"""Dense lists with few relevant candidates: each of these is compared with its list, and no list is sorted."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from torchrank.engine.catalogue import Engine, cheapest
from torchrank.engine.counting import stand_by_counting
from torchrank.engine.dense import AHEAD, SPARSE
from torchrank.engine.places import Places, real
from torchrank.engine.rows import in_order
from torchrank.lists import BLOCK, DenseLists, Lists, Need, groups
from torchrank.problems import Problem, count

# Padding of so many comparisons costs as much as another rectangle.
OVERHEAD = 2**20


def few_relevant(lists: Lists, need: Need) -> Tensor | None:
    """Which elements of dense lists are relevant, int64 [element], if comparing these is the cheapest; else None.

    How many there are shows in the values, at which only the CPU can look without waiting.
    """
    if not isinstance(lists, DenseLists) or lists.scores.device.type != "cpu" or not len(lists.grade):
        return None
    if lists.mask is not None or lists.exclude is not None or lists.tie_break is not None:
        return None
    if not need.relevant or need.reach is not None:  # the best k are found sooner
        return None
    queries, candidates = lists.grade.shape

    def cheap(each: float) -> bool:
        counting = cheapest(each, candidates, None, lists.scores.device, None) is Engine.COUNT
        return counting and each * SPARSE <= candidates

    if not cheap(int((lists.grade[:AHEAD] > 0).sum()) / min(queries, AHEAD)):
        return None  # as a few queries show already
    relevant = (lists.grade.flatten() > 0).nonzero().squeeze(-1)
    return relevant if cheap(len(relevant) / queries) else None


def place_sparse(lists: DenseLists, relevant: Tensor) -> Iterator[Places]:
    """Places of the ``relevant`` elements, for queries with similar numbers of them at a time."""
    scores, grade, errors = lists.scores, lists.grade, lists.errors
    queries, candidates = grade.shape
    owner = relevant // candidates
    sizes = torch.bincount(owner, minlength=queries)
    flat = scores.flatten()
    relevant = relevant[in_order(flat[relevant], owner).rows]
    own, worth, start = flat[relevant], grade.flatten()[relevant], sizes.cumsum(0) - sizes
    dtype = real(scores.device)
    for some, width in groups(sizes, max(1, OVERHEAD // candidates), BLOCK):
        position = torch.arange(width)
        valid = position < sizes[some].unsqueeze(-1)
        slot = (start[some].unsqueeze(-1) + position).clamp_max_(max(0, len(own) - 1))
        mine = own[slot] if len(own) else flat.new_full(slot.shape, -math.inf)
        standing = stand_by_counting(scores if len(some) == queries else scores[some], mine)
        there = valid & (mine > -math.inf)
        lengths = standing.listed.to(dtype)
        first = torch.where(there, (standing.greater + 1).to(dtype), (lengths + 1).unsqueeze(-1))
        tied = torch.where(there, standing.equal, 0).to(dtype)
        several = tied > 1
        depth = int(torch.where(several, first + tied - 1, 1).max()) if several.any() else 1
        if lists.validate:
            errors = errors + count(Problem.NAN_SCORES, standing.bad > 0)
        graded = torch.where(valid, worth[slot], 0) if len(own) else torch.zeros_like(slot, dtype=grade.dtype)
        yield Places(first, tied, graded, valid, lengths, errors, depth, queries=some)
        errors = torch.zeros_like(errors)
