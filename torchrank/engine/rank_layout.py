"""From a layout to rankings: the only place that chooses how a batch is ranked.

A choice depends on shapes, on the part of the ranking that metrics read, and on :mod:`torchrank.hardware.costs`. On a
CPU a choice may also depend on values: the number of relevant candidates, and the lengths of lists in flat rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrank.engine.judged import rank_ids, rank_judged
from torchrank.engine.lists import rank_flat, rank_lists
from torchrank.engine.streams import rank_embedded, rank_fused, rank_in_groups, rank_streamed, why_not_fused
from torchrank.hardware import costs
from torchrank.hardware.devices import in_batch
from torchrank.layouts.canonical import (
    ALL,
    CatalogueLayout,
    DenseLayout,
    EmbeddedLayout,
    FlatRows,
    Judged,
    Layout,
    Need,
    RankedIds,
    StreamedLayout,
    rectangles,
)
from torchrank.layouts.conversions import spread
from torchrank.ranking.ranking import Ranking, numbered

LOG = logging.getLogger("torchrank")


def rank(layout: Layout, need: Need = ALL) -> Iterator[Ranking]:
    """Rank a batch chunk by chunk, so that temporaries stay small, however large the batch is.

    Args:
        layout: the batch in canonical form.
        need: the part of the rankings that will be read.

    Returns:
        rankings of some queries each, which have the numbers of these in ``queries`` unless all are in order.
    """
    how, rankings = plan(layout, need)
    LOG.debug("%s: %s", type(layout).__name__, how)
    return rankings


def plan(layout: Layout, need: Need) -> tuple[str, Iterator[Ranking]]:
    """How a layout is ranked, in words; and its rankings, which are made when they are read."""
    on_cpu = layout.errors.is_cpu
    if isinstance(layout, FlatRows):
        # A matrix is faster if the first ranks suffice, if all candidates are entries, or if a single metric reads
        # short lists. Flat rows are faster if several metrics read relevant candidates: only these are entries.
        few_ranks_or_all_candidates = not need.relevant or need.reach is not None
        matrix = None
        if on_cpu and (few_ranks_or_all_candidates or need.metrics == 1):
            matrix = as_matrix(layout, costs.now.block if few_ranks_or_all_candidates else costs.now.short)
        if matrix is None:
            return "sort all rows together", rank_flat(layout, need)
        how, rankings = plan(matrix, need)
        return f"flat rows are a matrix; {how}", rankings
    if isinstance(layout, StreamedLayout):
        return "rank the judged items among blocks of columns", rank_streamed(layout, need)
    if isinstance(layout, EmbeddedLayout) and not (why_not := why_not_fused(layout)):
        return "rank the judged items in one kernel, among products that are never in memory", rank_fused(layout)
    only_relevant = need.relevant and on_cpu
    if isinstance(layout, DenseLayout):
        only_relevant = only_relevant and layout.subtopics is None
        long = layout.scores.shape[1] >= costs.now.long
        if only_relevant and long and (judged := relevant_as_judged(layout)) is not None:
            how, rankings = plan(judged, need)
            return f"the relevant candidates are judged items; {how}", rankings
    cuts = chunks(layout, need)
    pieces, number = cut(layout, cuts), f" in {len(cuts)} chunks" if cuts else ""
    if isinstance(layout, EmbeddedLayout):
        how = f"rank the judged items among products of embeddings{number}; not in one kernel: {why_not}"
        return how, _ranked(pieces, lambda piece: rank_embedded(piece, need))
    if isinstance(layout, DenseLayout):
        longer_than_a_chunk = len(layout.scores) > 0 and layout.scores.shape[1] > costs.now.block
        # If all candidates of very long lists were entries, the entries would take too much memory.
        if only_relevant and need.reach is None and layout.exclude is None and longer_than_a_chunk:
            return f"sort one list at a time, and keep only the relevant candidates{number}", _rank_rows(pieces, need)
        # The number of entries up to a reach depends on values, so only the CPU uses the reach.
        reach = need.reach if only_relevant else None
        lists = _ranked(pieces, lambda piece: rank_lists(piece, reach)) if cuts else rank_lists(layout, reach)
        return f"sort each list{number}", lists
    if need.all_candidates:
        lists = _ranked(pieces, lambda piece: rank(spread(piece), need))
        return f"all candidates get grades{number}; sort each list", lists
    if isinstance(layout, RankedIds):
        return f"find the judged ids in each list{number}", map(rank_ids, pieces)
    assert isinstance(layout, CatalogueLayout)
    if on_cpu and layout.mask is layout.tie_break is None:
        sizes = layout.judged.sizes
        # The largest number of judged items would widen the rows of all others much.
        if len(sizes) and int(sizes.max()) * len(sizes) > costs.now.padding * int(sizes.sum()):
            how = "rank the judged items, in groups of queries with similar numbers of them"
            return how, rank_in_groups(layout, need)
    return f"rank the judged items of each list{number}", (rank_judged(piece, need.reach) for piece in pieces)


# ---- other layouts of the same batch ---------------------------------------------------------------------------------


def as_matrix(layout: FlatRows, longest: int) -> DenseLayout | None:
    """Flat rows as a matrix if they are lists of equal length in ascending order of index, at most ``longest``.

    Returns None for other rows. For the CPU only, because the lengths depend on the values of the indexes.
    """
    numbers = layout.indexes.numpy()  # numpy compares short integers many times faster than torch
    if not len(numbers):
        return None
    # The width is the place of the first row of another query; argmax is 0 if all rows are of the same query.
    width = int((numbers[: longest + 1] != numbers[0]).argmax()) or len(numbers)
    if len(numbers) % width or width > longest:
        return None
    lists = numbers.reshape(-1, width)
    if not (lists[1:, 0] > lists[:-1, -1]).all() or not (numbers[1:] >= numbers[:-1]).all():
        return None
    if not (lists[:, 0] == lists[:, -1]).all():
        return None
    names = ("scores", "grade", "mask", "tie_break", "partly_judged")
    fields: dict[str, Any] = {
        name: None if (x := getattr(layout, name)) is None else x.reshape(-1, width) for name in names
    }
    return DenseLayout(layout.errors, layout.validate, **fields)


def relevant_as_judged(layout: DenseLayout) -> CatalogueLayout | None:
    """A dense layout with its relevant candidates as judged items, if these are few in long lists; reads values."""
    queries, candidates = layout.grade.shape
    if not queries:
        return None
    step = max(1, 8 * costs.now.block // candidates)  # temporaries have one byte per element
    places, found = list[np.ndarray](), 0
    for start in range(0, queries, step):
        positive = (layout.grade[start : start + step] > 0).numpy()  # numpy counts and finds bools faster than torch
        found += int(np.count_nonzero(positive))
        if costs.now.rare * found > queries * candidates:
            return None
        places.append(np.flatnonzero(positive) + start * candidates)
    place = torch.from_numpy(np.concatenate(places))
    sizes = (place // candidates).bincount(minlength=queries)
    judged = Judged(place % candidates, layout.grade.take(place), torch.nn.functional.pad(sizes.cumsum(0), (1, 0)))
    options = layout.mask, layout.tie_break, layout.exclude
    return CatalogueLayout(layout.errors, layout.validate, layout.scores, judged, *options)


def _rank_rows(pieces: Iterable[DenseLayout], need: Need) -> Iterator[Ranking]:
    """Rank one list at a time as flat rows, so that only relevant candidates become entries."""
    for piece in pieces:  # a single query each, because its list is longer than a chunk
        mask, tie_break = (None if x is None else x[0] for x in (piece.mask, piece.tie_break))
        indexes = torch.zeros_like(piece.scores[0], dtype=torch.int8)
        rows = FlatRows(piece.errors, piece.validate, piece.scores[0], piece.grade[0], indexes, mask, tie_break)
        for ranking in rank_flat(rows, need):
            yield replace(ranking, queries=None)


# ---- chunks ----------------------------------------------------------------------------------------------------------


def chunks(layout: Layout, need: Need) -> tuple[tuple[int, int], ...]:
    """Cut the queries into chunks of bounded size: (start, stop) of each chunk; empty = one chunk."""
    now, copies, wide = costs.now, 2, 1
    room, queries = now.room(layout.errors), 0
    elements: Tensor | int  # number of elements in the temporaries of each query
    if isinstance(layout, DenseLayout):
        # Many metrics derive dozens of quantities from each ranking, which should stay in a cache.
        copies, subtopics = 4, layout.subtopics
        queries, candidates = layout.scores.shape
        elements = candidates * (1 if subtopics is None else max(1, subtopics.shape[2]))
    elif isinstance(layout, CatalogueLayout):
        (queries, wide), judged = layout.scores.shape, layout.judged
        elements = judged.sizes if judged.width is None else judged.width
    elif isinstance(layout, RankedIds):
        (queries, wide), judged = layout.ids.shape, layout.judged
        if (size := judged.width) is not None:
            elements = wide * size if size <= now.compared else 2 * (wide + size)
        else:
            sizes = judged.sizes
            elements = torch.where(sizes <= now.compared, wide * sizes, 2 * (wide + sizes))
    else:  # flat rows and blocks of columns are ranked as a whole
        assert isinstance(layout, EmbeddedLayout)
        room, elements = now.products(layout.queries), (now.judged_item * layout.judged.sizes).clamp_min(layout.chunk)
    if need.reach is None and layout.errors.is_cpu:  # on an accelerator, more chunks launch more kernels
        room //= min(copies, 2 + need.metrics // now.several)
    least = wide if need.all_candidates else 0
    if isinstance(elements, Tensor):
        cuts = rectangles(elements.clamp_min(least) if least else elements, room)
        return tuple(cuts) if len(cuts) > 1 else ()
    # Chunks have equal sizes, up to a quarter larger than the room: a small last chunk would add a full overhead.
    most_queries = max(1, (room + room // 4) // max(1, elements, least))
    if queries <= most_queries:
        return ()
    step = -(-queries // -(-queries // most_queries))
    return tuple((start, min(start + step, queries)) for start in range(0, queries, step))


def cut(layout: Layout, cuts: tuple[tuple[int, int], ...]) -> Iterable[Any]:
    """The layout of each chunk; the first layout has the batch's counters of bad values, the others have zeros."""
    if not cuts:
        return (layout,)
    none, parts = torch.zeros_like(layout.errors), (layout.rows(start, stop) for start, stop in cuts)
    return (replace(part, errors=none) if number else part for number, part in enumerate(parts))


def _ranked(pieces: Iterable[Any], rank_piece: Callable[[Any], Iterable[Ranking]]) -> Iterator[Ranking]:
    """Rank each chunk, and number all queries, because those of some chunks may be in another order."""
    start = done = 0
    for piece in pieces:
        for part in rank_piece(piece):
            (numbered_part,) = numbered([part], done if part.queries is None else start)
            done += part.num_queries
            yield numbered_part
        start += piece.num_queries


# ---- whole batches ---------------------------------------------------------------------------------------------------


def rank_whole(layout: Layout, need: Need = ALL) -> Ranking:
    """Rank a whole batch. Flat rows get entries of relevant candidates only, unless others are needed."""
    with in_batch(layout.errors.device, layout.size):
        if isinstance(layout, FlatRows):
            return Ranking.join(replace(chunk, only_relevant=need.relevant) for chunk in rank_flat(layout, need))
        parts: list[Ranking] = []
        start = 0
        rankings: Iterable[Ranking] = rank(layout, need)
        if layout.ignored is not None:
            whole = list(rankings)
            rankings = numbered(whole) if len(whole) > 1 else whole
        for ranking in rankings:
            # An engine may rank further than the reach. It is set all the same, so that it is the same in all chunks.
            changes: dict[str, Any] = {} if need.reach is None else {"reach": need.reach}
            if layout.ignored is not None:
                changes["ignored"] = layout.ignored if ranking.queries is None else layout.ignored[ranking.queries]
            ranking = replace(ranking, **changes) if changes else ranking
            parts += ranking.narrowed(start)
            start += ranking.num_queries
        return Ranking.join(parts)
