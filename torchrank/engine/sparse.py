"""A few relevant candidates in lists of which all ranks matter: compared with their lists, similar queries together."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchrank.engine.counting import stand_by_counting
from torchrank.engine.sorting import sorted_rows
from torchrank.hardware.devices import widest_float
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.canonical import BLOCK, CatalogueLayout, Need
from torchrank.layouts.cutting import groups
from torchrank.ranking.entries import depth_of
from torchrank.ranking.ranking import Ranking

# Padding of so many comparisons costs as much as another rectangle of them.
OVERHEAD = 2**20


# Scores of which copies are made in one go.
COPIED = 2**22


def rank_sparse(layout: CatalogueLayout, need: Need) -> Iterator[Ranking]:
    """Places of the judged items, for queries with similar numbers of them at a time."""
    scores, judged, errors = layout.scores, layout.judged, layout.errors
    queries, candidates = scores.shape
    sizes = judged.sizes
    owner = torch.repeat_interleave(torch.arange(queries, device="cpu"), sizes)
    own = scores[owner, judged.items]
    order = sorted_rows(own, owner).rows
    own, grade, start = own[order], judged.grade[order], sizes.cumsum(0) - sizes
    dtype = widest_float(scores.device)
    for group, width in groups(sizes, max(1, OVERHEAD // candidates), BLOCK):
        whole = len(group) == queries
        for some in [group] if whole else group.split(max(1, COPIED // candidates)):
            position = torch.arange(width, device="cpu")
            valid = position < sizes[some].unsqueeze(-1)
            slot = torch.where(valid, start[some].unsqueeze(-1) + position, 0)
            mine = own[slot] if len(own) else own.new_zeros(slot.shape)
            standing = stand_by_counting(scores if whole else scores[some], mine)
            there = valid & (mine > float("-inf"))
            lengths = standing.listed.to(dtype)
            first = torch.where(there, (standing.greater + 1).to(dtype), (lengths + 1).unsqueeze(-1))
            tied = torch.where(there, standing.equal, 0).to(dtype)
            if layout.validate:
                errors = errors + count(Problem.NAN_SCORES, standing.bad > 0)
            worth = torch.where(valid, grade[slot], 0) if len(own) else torch.zeros_like(slot, dtype=grade.dtype)
            yield Ranking(first, tied, worth, valid, lengths, errors, depth_of(first, tied), queries=some)
            errors = torch.zeros_like(errors)
