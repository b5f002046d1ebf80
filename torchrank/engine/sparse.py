"""Engine for lists with few relevant candidates, if all ranks matter: queries with similar numbers of them together."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchrank.engine.comparing import count_by_comparing
from torchrank.engine.counting import Counting, cheapest, count_by_sorting
from torchrank.engine.sorting import sorted_rows
from torchrank.engine.thresholds import Thresholds
from torchrank.hardware import costs
from torchrank.hardware.devices import widest_float
from torchrank.layouts.canonical import CatalogueLayout, Ragged, groups
from torchrank.layouts.checks import Problem, count
from torchrank.ranking.quantities import depth_of
from torchrank.ranking.ranking import Ranking


def rank_sparse(layout: CatalogueLayout) -> Iterator[Ranking]:
    """Rank the judged items, and yield rankings of queries with similar numbers of them.

    For layouts without mask, exclusions and tie breaks, on the CPU.
    """
    scores, judged, errors = layout.scores, layout.judged, layout.errors
    assert isinstance(judged, Ragged)  # labels are not
    queries, candidates = scores.shape
    sizes = judged.sizes
    owner = torch.repeat_interleave(torch.arange(queries, device="cpu"), sizes)
    judged_scores = scores[owner, judged.items]
    # Sorted by score within each query, the entries are in rank order without another sort.
    order = sorted_rows(judged_scores, owner).rows
    judged_scores, grade, start = judged_scores[order], judged.grade[order], sizes.cumsum(0) - sizes
    dtype = widest_float(scores.device)
    for group, width in groups(sizes, max(1, costs.now.rectangle_compared // candidates), costs.now.block):
        complete = len(group) == queries
        compares = cheapest(width, candidates, None, scores.device, None) is Counting.COUNT
        for chosen in [group] if complete else group.split(max(1, costs.now.copied_lists // candidates)):
            position = torch.arange(width, device="cpu")
            valid = position < sizes[chosen].unsqueeze(-1)
            slot = torch.where(valid, start[chosen].unsqueeze(-1) + position, 0)
            mine = judged_scores[slot] if len(judged_scores) else judged_scores.new_zeros(slot.shape)
            lists = scores if complete else scores[chosen]
            counts = count_by_comparing(lists, Thresholds(mine)) if compares else count_by_sorting(lists, mine)
            retrieved = valid & (mine > float("-inf"))
            lengths = counts.retrieved.to(dtype)
            first = torch.where(retrieved, (counts.greater + 1).to(dtype), (lengths + 1).unsqueeze(-1))
            tied = torch.where(retrieved, counts.equal, 0).to(dtype)
            if layout.validate:
                errors = errors + count(Problem.NAN_SCORES, counts.has_nan)
            grades = (
                torch.where(valid, grade[slot], 0) if len(judged_scores) else torch.zeros_like(slot, dtype=grade.dtype)
            )
            yield Ranking(first, tied, grades, valid, lengths, errors, depth_of(first, tied), queries=chosen)
            errors = torch.zeros_like(errors)
