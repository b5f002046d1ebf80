"""Every candidate is judged: sort each list once, as far as the ranks that matter."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from torchrank.engine.catalogue import Engine, cheapest
from torchrank.engine.flat import place_flat
from torchrank.engine.ids import positions
from torchrank.engine.places import Places, fresh, of_entries, real, runs
from torchrank.engine.sorting import descending
from torchrank.engine.topk import best_pays, top_k
from torchrank.lists import (
    BLOCK,
    OUTSIDE_THE_POOL,
    CatalogueLists,
    DenseLists,
    FlatRows,
    Lists,
    Need,
    Pairs,
    Ragged,
    RankedIds,
    SparseLists,
)
from torchrank.problems import Problem, count

# Relevant candidates are looked up one by one if they are no more than one in so many.
SPARSE = 4

# Queries to look at before all others.
AHEAD = 64

CPU = torch.device("cpu")


def condense(lists: Lists, need: Need) -> Lists:
    """Dense lists with few relevant candidates as these few; any other as they are.

    How many are relevant shows in the values, at which only the CPU can look without waiting.
    """
    if not isinstance(lists, DenseLists) or not need.relevant or lists.scores.device.type != "cpu":
        return lists
    if lists.subtopics is not None:
        return lists
    queries, candidates = lists.grade.shape
    plain = lists.mask is None and lists.exclude is None and lists.tie_break is None
    # Queries with similar numbers go together where all ranks matter, so that some may have many.
    counted = plain and need.reach is None

    def kind(sizes: Tensor) -> type[CatalogueLists] | None:
        each, most = float(sizes.float().mean()), int(sizes.max())
        if counted and each * SPARSE <= candidates and cheapest(each, candidates, None, CPU, None) is Engine.COUNT:
            return SparseLists
        return CatalogueLists if most * SPARSE <= candidates else None

    if not queries or kind((lists.grade[:AHEAD] > 0).sum(-1)) is None:
        return lists  # as a few queries show already
    sizes = torch.zeros(queries, dtype=torch.int64, device=CPU)
    items: list[Tensor] = []
    step = max(1, 2**22 // candidates)
    for start in range(0, queries, step):
        query, item = (lists.grade[start : start + step] > 0).nonzero(as_tuple=True)
        sizes[start : start + step] = torch.bincount(query, minlength=min(step, queries - start))
        items.append(item)
        if kind(sizes[: start + step]) is None:
            return lists
    item = torch.cat(items)
    query = torch.repeat_interleave(torch.arange(queries, device=CPU), sizes)
    judged = Ragged(item, lists.grade[query, item], torch.nn.functional.pad(sizes.cumsum(0), (1, 0)))
    made = kind(sizes) or CatalogueLists
    return made(lists.errors, lists.validate, lists.scores, judged, lists.mask, lists.tie_break, lists.exclude)


def place_dense(lists: DenseLists, need: Need) -> Places:
    """Places of all candidates, by one sort; of those up to the ``reach`` of what is needed, if that is cheaper."""
    scores, grade, mask, errors = lists.scores, lists.grade, lists.mask, lists.errors
    plain = lists.exclude is None and lists.subtopics is None and scores.device.type == "cpu"
    if need.relevant and need.reach is None and plain and len(scores) == 1 and scores.shape[1] > BLOCK:
        return _as_rows(lists, need)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if lists.exclude is not None:
        if lists.validate:
            hidden = scores.isnan().any(-1)  # before excluding hides some
        kept = ~_excluded(lists.exclude, grade)
        mask = kept if mask is None else mask & kept
        scores = scores.masked_fill(~kept, float("-inf"))
    # The pool of what is judged beyond a reach has no subtopics.
    cut = need.relevant and scores.device.type == "cpu" and lists.subtopics is None
    reach = need.reach if cut else None
    ordered, order, begins = _in_order(scores, lists.tie_break, reach)
    if lists.validate:  # NaN sorts first
        errors = errors + count(Problem.NAN_SCORES, ordered[:, 0].isnan() if lists.exclude is None else hidden)

    untied = scores.device.type == "cpu" and bool(begins.all())  # where looking at values costs nothing
    first, tied, num_candidates = _standing(ordered, begins, scores, untied)
    places = Places(
        first,
        tied,
        grade.gather(-1, order),
        torch.ones_like(order, dtype=torch.bool) if mask is None else mask.gather(-1, order),
        num_candidates,
        errors,
        depth=1 if untied else ordered.shape[1],
        complete=mask is None,
        everything=ordered.shape[1] == scores.shape[1],
        subtopics=None if lists.subtopics is None else of_entries(lists.subtopics, order),
    )
    if places.everything:
        return places
    return replace(places, reach=reach, pool=grade if mask is None else grade.masked_fill(~mask, 0))


def _as_rows(lists: DenseLists, need: Need) -> Places:
    """Places of the relevant candidates of one list that is longer than a block: of all there would be too many."""
    columns = (lists.scores, lists.grade, lists.mask, lists.tie_break)
    scores, grade, mask, tie_break = (None if x is None else x[0] for x in columns)
    assert scores is not None
    assert grade is not None
    indexes = torch.zeros_like(scores, dtype=torch.int8)
    (places,) = place_flat(FlatRows(lists.errors, lists.validate, scores, grade, indexes, mask, tie_break), need)
    return replace(places, queries=None)


def spread(lists: CatalogueLists | RankedIds) -> DenseLists:
    """Lists of which a few items are judged, with a grade for every candidate, all others outside the pool."""
    items, grade = lists.judged.rectangle()
    signed = grade if grade.is_signed() else grade.long()
    if isinstance(lists, CatalogueLists):
        whole = signed.new_full((len(items), lists.scores.shape[1] + 1), OUTSIDE_THE_POOL)
        whole = whole.scatter(1, torch.where(items < 0, lists.scores.shape[1], items), signed)[:, :-1]
        mask = lists.mask
        if lists.ignored is not None:  # has no candidates, and so no bad scores
            counts = ~lists.ignored.unsqueeze(-1)
            mask = counts.expand_as(whole) if mask is None else mask & counts
        return DenseLists(lists.errors, lists.validate, lists.scores, whole, mask, lists.tie_break, lists.exclude)
    kept, at, valid, errors = positions(lists)
    ids = lists.ids  # one more column, the first, for what is in none
    whole = signed.new_full((len(ids), ids.shape[1] + 1), OUTSIDE_THE_POOL).scatter(1, at, signed)[:, 1:]
    by_position = -torch.arange(ids.shape[1], dtype=torch.float32, device=ids.device).expand(ids.shape)
    missing = valid & (at == 0)
    return DenseLists(
        errors,
        False,
        torch.cat([by_position, torch.full_like(items, float("-inf"), dtype=torch.float32)], -1),
        torch.cat([whole, signed], -1),
        torch.cat([kept, missing], -1),
    )


def _standing(ordered: Tensor, begins: Tensor, scores: Tensor, untied: bool) -> tuple[Tensor, Tensor, Tensor]:
    """``first`` and ``tied`` [query, entry] and ``num_candidates`` [query] of :class:`Places`, all floating."""
    dtype, width = real(scores.device), ordered.shape[1]
    whole = ordered.shape == scores.shape
    if untied and whole and bool((ordered[:, -1] > float("-inf")).all()):  # each stands where it is
        first = torch.arange(1, width + 1, dtype=dtype, device=scores.device).repeat(len(ordered), 1)
        return first, torch.ones_like(first), torch.full_like(first[:, 0], width)
    start, stop = runs(begins)
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
            return (*best, fresh(best[0]))
        ordered, order = descending(scores)
        cut = ordered[:, reach - 1, None]
        width = reach + int((ordered[:, reach:] == cut).sum(-1).max()) if len(cut) else reach
        ordered, order = ordered[:, :width], order[:, :width]
        return ordered, order, fresh(ordered)
    if tie_break is None:
        ordered, order = descending(scores)
        return ordered, order, fresh(ordered)
    by_tie = tie_break.argsort(dim=-1, descending=True, stable=True)
    ordered, order = scores.gather(-1, by_tie).sort(dim=-1, descending=True, stable=True)
    order = by_tie.gather(-1, order)
    return ordered, order, fresh(ordered) | fresh(tie_break.gather(-1, order))


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
