"""Every candidate is judged: sort each list once, as far as the ranks that matter."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from torchrank.engine.sorting import descending
from torchrank.engine.topk import best_pays, top_k
from torchrank.hardware.devices import reading_is_free, widest_float
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.canonical import (
    DenseLayout,
    Need,
)
from torchrank.layouts.items import Pairs
from torchrank.ranking.entries import of_entries, run_bounds, run_starts
from torchrank.ranking.ranking import Ranking

# Queries to look at before all others.
AHEAD = 64


def rank_dense(layout: DenseLayout, need: Need) -> Ranking:
    """Places of all candidates, by one sort; of those up to the ``reach`` of what is needed, if that is cheaper."""
    scores, grade, mask, errors = layout.scores, layout.grade, layout.mask, layout.errors
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if layout.exclude is not None:
        if layout.validate:
            hidden = scores.isnan().any(-1)  # before excluding hides some
        kept = ~_excluded(layout.exclude, grade)
        mask = kept if mask is None else mask & kept
        scores = scores.masked_fill(~kept, float("-inf"))
    # The pool of what is judged beyond a reach has no subtopics.
    cut = need.relevant and reading_is_free(scores) and layout.subtopics is None
    reach = need.reach if cut else None
    ordered, order, begins = _in_order(scores, layout.tie_break, reach)
    if layout.validate:  # NaN sorts first
        errors = errors + count(Problem.NAN_SCORES, ordered[:, 0].isnan() if layout.exclude is None else hidden)

    untied = reading_is_free(scores) and bool(begins.all())
    first, tied, num_candidates = _standing(ordered, begins, scores, untied)
    ranking = Ranking(
        first,
        tied,
        grade.gather(-1, order),
        torch.ones_like(order, dtype=torch.bool) if mask is None else mask.gather(-1, order),
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


def _standing(ordered: Tensor, begins: Tensor, scores: Tensor, untied: bool) -> tuple[Tensor, Tensor, Tensor]:
    """``first`` and ``tied`` [query, entry] and ``num_candidates`` [query] of :class:`Places`, all floating."""
    dtype, width = widest_float(scores.device), ordered.shape[1]
    whole = ordered.shape == scores.shape
    if untied and whole and bool((ordered[:, -1] > float("-inf")).all()):  # each stands where it is
        first = torch.arange(1, width + 1, dtype=dtype, device=scores.device).repeat(len(ordered), 1)
        return first, torch.ones_like(first), torch.full_like(first[:, 0], width)
    start, stop = run_bounds(begins)
    retrieved = ordered > float("-inf")
    num_candidates = retrieved.sum(-1) if whole else (scores > float("-inf")).sum(-1)
    first = torch.where(retrieved, start, num_candidates.unsqueeze(-1)) + 1
    return first.to(dtype), torch.where(retrieved, stop - start, 0).to(dtype), num_candidates.to(dtype)


def _in_order(scores: Tensor, tie_break: Tensor | None, reach: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Scores in descending order, that order, and where the score (or tie break) is not the one before.

    With a ``reach``, as many of the best as hold that rank and all that is tied with it.
    """
    if reach is not None and reach < scores.shape[1] and tie_break is None:
        # If the first few queries have a tie at that rank, others will.
        promising = best_pays(scores, reach + 1) and _best(scores[:AHEAD], reach) is not None
        best = _best(scores, reach) if promising else None
        if best is not None:
            return (*best, run_starts(best[0]))
        ordered, order = descending(scores)
        cut = ordered[:, reach - 1, None]
        width = reach + int((ordered[:, reach:] == cut).sum(-1).max()) if len(cut) else reach
        ordered, order = ordered[:, :width], order[:, :width]
        return ordered, order, run_starts(ordered)
    if tie_break is None:
        ordered, order = descending(scores)
        return ordered, order, run_starts(ordered)
    by_tie = tie_break.argsort(dim=-1, descending=True, stable=True)
    ordered, order = scores.gather(-1, by_tie).sort(dim=-1, descending=True, stable=True)
    order = by_tie.gather(-1, order)
    return ordered, order, run_starts(ordered) | run_starts(tie_break.gather(-1, order))


def _best(scores: Tensor, reach: int) -> tuple[Tensor, Tensor] | None:
    """The best scores and their columns; None if one is as good as another behind that rank."""
    best, order = top_k(scores, reach + 1)
    if (best[:, reach - 1] == best[:, reach]).any():
        return None
    return best[:, :reach], order[:, :reach]


def _excluded(exclude: Pairs, grade: Tensor) -> Tensor:
    marked = torch.zeros((grade.shape[0] + 1, grade.shape[1]), dtype=torch.bool, device=grade.device)
    marked[exclude.query, exclude.item] = True  # query -1 is the row to spare
    return marked[:-1] & (grade <= 0)
