"""Engine for lists whose candidates all have grades: one sort of each list, up to the ranks that are needed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from torchrank.engine.sorting import descending
from torchrank.engine.topk import best_pays, top_k
from torchrank.hardware.devices import all_finite, every, reading_is_free, widest_float
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.canonical import (
    DenseLayout,
    Need,
)
from torchrank.layouts.items import Pairs
from torchrank.ranking.entries import of_entries, run_bounds, run_starts
from torchrank.ranking.ranking import Ranking

# Size of the sample of queries that is read first, to find out if a shortcut is worth trying.
AHEAD = 64


def rank_dense(layout: DenseLayout, need: Need) -> Ranking:
    """Rank all candidates by one sort, or only the candidates up to ``need.reach`` if that is cheaper."""
    scores, grade, mask, errors = layout.scores, layout.grade, layout.mask, layout.errors
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if layout.exclude is not None:
        if layout.validate:
            has_nan = scores.isnan().any(-1)  # before -inf replaces the scores of excluded candidates
        kept = ~_excluded(layout.exclude, grade)
        mask = kept if mask is None else mask & kept
        scores = scores.masked_fill(~kept, float("-inf"))
    # Entries up to a reach have a width that depends on values, so they are for the CPU only. Their field ``pool`` has
    # the grades beyond the reach, but no subtopics.
    readable = reading_is_free(scores)
    reach = need.reach if need.relevant and readable and layout.subtopics is None else None
    ordered, order, begins = _in_order(scores, layout.tie_break, reach)
    if layout.validate:  # NaN sorts first, so the first column suffices
        errors = errors + count(Problem.NAN_SCORES, ordered[:, 0].isnan() if layout.exclude is None else has_nan)

    untied = readable and every(begins)
    first, tied, num_candidates = _intervals(ordered, begins, scores, untied)
    ranking = Ranking(
        first,
        tied,
        grade.gather(-1, order),
        order.new_ones((), dtype=torch.bool).expand(order.shape) if mask is None else mask.gather(-1, order),
        num_candidates,
        errors,
        depth=1 if untied else ordered.shape[1],
        complete=mask is None,
        all_candidates=ordered.shape[1] == scores.shape[1],
        subtopics=None if layout.subtopics is None else of_entries(layout.subtopics, order),
    )
    if ranking.all_candidates:
        return ranking
    return replace(ranking, reach=reach, pool=grade if mask is None else grade.masked_fill(~mask, 0))


def _intervals(ordered: Tensor, begins: Tensor, scores: Tensor, untied: bool) -> tuple[Tensor, Tensor, Tensor]:
    """``first`` and ``tied`` [query, entry] and ``num_candidates`` [query] of a ranking, all floating."""
    dtype, width = widest_float(scores.device), ordered.shape[1]
    retrieved = None if all_finite(scores) else ordered > float("-inf")
    if retrieved is None:
        num_candidates = scores.new_full((len(scores),), scores.shape[1], dtype=dtype)
    else:
        whole = ordered.shape == scores.shape
        num_candidates = (retrieved if whole else scores > float("-inf")).sum(-1).to(dtype)
    # Without ties, and with all entries retrieved, the rank of an entry is its column, in all queries alike. Later
    # steps read this from the strides of expanded tensors.
    if untied and (retrieved is None or every(retrieved[:, -1:])):
        first = torch.arange(1, width + 1, dtype=dtype, device=scores.device).expand(len(ordered), -1)
        return first, first.new_ones(()).expand(first.shape), num_candidates
    start, stop = run_bounds(begins)
    if retrieved is None:
        return (start + 1).to(dtype), (stop - start).to(dtype), num_candidates
    first = torch.where(retrieved, start.to(dtype), num_candidates.unsqueeze(-1)) + 1
    return first, torch.where(retrieved, stop - start, 0).to(dtype), num_candidates


def _in_order(scores: Tensor, tie_break: Tensor | None, reach: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Sort scores in descending order, at least up to the rank ``reach`` and all scores tied with it.

    Returns:
        the scores in order; their columns, int64; where a tie group begins, bool; all [query, entry].
    """
    if reach is not None and reach < scores.shape[1] and tie_break is None:
        # If the first few queries have a tie at that rank, the whole batch probably has one, and the shortcut fails.
        promising = best_pays(scores, reach + 1) and _best(scores[:AHEAD], reach) is not None
        best = _best(scores, reach) if promising else None
        if best is not None:
            return (*best, run_starts(best[0]))
        ordered, order, begins = descending(scores)
        # As wide as the longest tie group at the reach needs. torch sums rows of int8 faster than it searches columns.
        tied = ordered[:, reach:] == ordered[:, reach - 1, None]
        width = reach + int(tied.view(torch.int8).sum(-1, dtype=torch.int32).numpy().max(initial=0))
        return ordered[:, :width], order[:, :width], begins[:, :width]
    if tie_break is None:
        return descending(scores)
    # Two stable sorts, by tie break and then by score, order equal scores by tie break.
    by_tie = tie_break.argsort(dim=-1, descending=True, stable=True)
    ordered, order = scores.gather(-1, by_tie).sort(dim=-1, descending=True, stable=True)
    order = by_tie.gather(-1, order)
    return ordered, order, run_starts(ordered) | run_starts(tie_break.gather(-1, order))


def _best(scores: Tensor, reach: int) -> tuple[Tensor, Tensor] | None:
    """The ``reach`` best scores of each query and their columns; None if a query has a tie at the cutoff."""
    best, order = top_k(scores, reach + 1)
    if (best[:, reach - 1] == best[:, reach]).any():
        return None
    return best[:, :reach], order[:, :reach]


def _excluded(exclude: Pairs, grade: Tensor) -> Tensor:
    """bool [query, candidate]: excluded and not relevant."""
    # One more row, the last, takes the pairs with query -1.
    marked = torch.zeros((grade.shape[0] + 1, grade.shape[1]), dtype=torch.bool, device=grade.device)
    marked[exclude.query, exclude.item] = True
    return marked[:-1] & (grade <= 0)
