"""Choice of the fastest engine for a layout, and the conversions of one canonical layout to another for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from torchrank.engine.catalogue import rank_catalogue
from torchrank.engine.dense import rank_dense
from torchrank.engine.flat import rank_flat
from torchrank.engine.ids import positions, rank_ids
from torchrank.engine.sorting import list_width
from torchrank.engine.sparse import rank_sparse
from torchrank.engine.streaming import rank_embedded, rank_streamed
from torchrank.hardware import costs
from torchrank.hardware.devices import reading_is_free
from torchrank.layouts.canonical import (
    OUTSIDE_THE_POOL,
    CatalogueLayout,
    DenseLayout,
    EmbeddedLayout,
    FlatRows,
    Layout,
    Need,
    RankedIds,
    StreamedLayout,
)
from torchrank.layouts.items import Ragged
from torchrank.ranking.ranking import Ranking

CPU = torch.device("cpu")

#: an engine: yields the rankings of a layout chunk by chunk, so that temporaries stay small
Rank = Callable[[Any, Need], Iterator[Ranking]]


class Few(Enum):
    """Ways to rank a dense layout with few relevant candidates."""

    LISTED = "as the judged items of a catalogue"
    GROUPED = "queries with similar numbers of relevant candidates together"


def choose_engine(layout: Layout, need: Need) -> tuple[Layout, Rank]:
    """Choose the fastest engine for a layout; returns the layout in the form for this engine, and the engine."""
    if isinstance(layout, FlatRows):
        # The matrix is faster if some ranks suffice or all candidates are entries, and for a single metric of short
        # lists. More metrics are faster if they read relevant candidates alone, which the sort of the rows yields.
        some = not need.relevant or need.reach is not None
        if some or need.metrics == 1:
            layout = as_matrix(layout, costs.now.block if some else costs.now.short)
    if need.all_candidates and isinstance(layout, CatalogueLayout | RankedIds):
        return layout, _rank_spread
    if isinstance(layout, DenseLayout):
        condensed = condense(layout, need)
        if condensed is not None:
            layout, few = condensed
            return layout, rank_sparse if few is Few.GROUPED else _ENGINES[CatalogueLayout]
        return layout, _rank_as_rows if _are_long(layout, need) else _ENGINES[DenseLayout]
    return layout, _ENGINES[type(layout)]


def _by_chunks(rank: Callable[[Any, Need], Ranking]) -> Rank:
    """Make an engine of a function that ranks one chunk."""

    def rank_chunks(layout: Layout, need: Need) -> Iterator[Ranking]:
        for chunk in layout.blocks(need):
            yield rank(chunk, need)

    return rank_chunks


_ENGINES: dict[type[Layout], Rank] = {
    DenseLayout: rank_dense,
    CatalogueLayout: _by_chunks(rank_catalogue),
    RankedIds: _by_chunks(rank_ids),
    FlatRows: rank_flat,
    EmbeddedLayout: rank_embedded,
    StreamedLayout: rank_streamed,
}


def as_matrix(layout: FlatRows, longest: int) -> Layout:
    """Convert flat rows to a matrix if they are contiguous lists of equal length, at most ``longest``.

    Other rows are returned unchanged. The lengths depend on the values of the indexes, so this is done on the CPU only.
    """
    indexes = layout.indexes
    if not reading_is_free(indexes) or not len(indexes):
        return layout
    width = list_width(indexes)
    if width is None or width > longest:
        return layout
    # The first and the last row of each list are of the same query. So all others are, if no index is below the one
    # before it. numpy compares short integers many times as fast as torch.
    found = indexes.numpy()
    if not (found[1:] >= found[:-1]).all():
        return layout
    scores, grade = layout.scores.reshape(-1, width), layout.grade.reshape(-1, width)
    mask, tie_break = (None if x is None else x.reshape(-1, width) for x in (layout.mask, layout.tie_break))
    return DenseLayout(layout.errors, layout.validate, scores, grade, mask, tie_break)


def condense(layout: DenseLayout, need: Need) -> tuple[CatalogueLayout, Few] | None:
    """Convert a dense layout with few relevant candidates to a catalogue in which these are the judged items.

    Returns None if many are relevant or others are needed. The number depends on values, so a layout on an accelerator
    is not converted either.
    """
    if not need.relevant or not reading_is_free(layout.scores) or layout.subtopics is not None:
        return None
    queries, candidates = layout.grade.shape
    plain = layout.mask is None and layout.exclude is None and layout.tie_break is None
    # The sparse engine has no mask, exclusions or tie breaks. It groups queries with similar numbers of relevant
    # candidates, so the mean decides for it. The catalogue engine pads to the largest number.
    groupable = plain and need.reach is None

    def kind(sizes: Tensor) -> Few | None:
        mean, most = float(sizes.float().mean()), int(sizes.max())
        # Nanoseconds per candidate of lists of 40 to 1,000, measured on two cores: to find and rank the relevant
        # candidates; or to sort all candidates, which each metric reads then.
        found, share = costs.now.find
        search = found + share * mean / max(1, candidates)
        whole, each = costs.now.order
        if groupable and search >= whole + math.log2(candidates + 1) + each * need.metrics:
            return None
        padded = most <= costs.now.padding * mean and costs.now.rare * mean <= candidates
        if groupable and costs.now.sparse * mean <= candidates and mean * queries <= costs.now.grouped and not padded:
            return Few.GROUPED
        return Few.LISTED if most * costs.now.sparse <= candidates else None

    if not queries or kind((layout.grade[: costs.now.sample] > 0).sum(-1)) is None:
        return None  # a few queries suffice to rule it out
    sizes = torch.zeros(queries, dtype=torch.int64, device=CPU)
    items: list[Tensor] = []
    step = max(1, 2**22 // candidates)
    for start in range(0, queries, step):
        query, item = (layout.grade[start : start + step] > 0).nonzero(as_tuple=True)
        sizes[start : start + step] = torch.bincount(query, minlength=min(step, queries - start))
        items.append(item)
        if kind(sizes[: start + step]) is None:
            return None
    item = torch.cat(items)
    query = torch.repeat_interleave(torch.arange(queries, device=CPU), sizes)
    judged = Ragged(item, layout.grade[query, item], torch.nn.functional.pad(sizes.cumsum(0), (1, 0)))
    condensed = CatalogueLayout(
        layout.errors, layout.validate, layout.scores, judged, layout.mask, layout.tie_break, layout.exclude
    )
    return condensed, kind(sizes) or Few.LISTED


def _are_long(layout: DenseLayout, need: Need) -> bool:
    """Whether lists are so long that entries for all candidates would take too much memory."""
    plain = layout.exclude is None and layout.subtopics is None and len(layout.scores) > 0
    long = need.relevant and need.reach is None and plain and layout.scores.shape[1] > costs.now.block
    return long and reading_is_free(layout.scores)


def _rank_as_rows(layout: DenseLayout, need: Need) -> Iterator[Ranking]:
    """Rank one list at a time as flat rows, so that only relevant candidates become entries."""
    for chunk in layout.blocks(need):  # a single query each, because its list is longer than a chunk
        assert isinstance(chunk, DenseLayout)
        columns = (chunk.scores, chunk.grade, chunk.mask, chunk.tie_break)
        scores, grade, mask, tie_break = (None if x is None else x[0] for x in columns)
        assert scores is not None
        assert grade is not None
        indexes = torch.zeros_like(scores, dtype=torch.int8)
        rows = FlatRows(chunk.errors, chunk.validate, scores, grade, indexes, mask, tie_break)
        for ranking in rank_flat(rows, need):
            yield replace(ranking, queries=None)


def _rank_spread(layout: CatalogueLayout | RankedIds, need: Need) -> Iterator[Ranking]:
    """Rank every candidate, not only the judged ones."""
    start = 0
    for judged_only in layout.blocks(need):
        yield from rank_dense(spread(judged_only), need, start)  # type: ignore[arg-type]
        start += judged_only.num_queries


def spread(layout: CatalogueLayout | RankedIds) -> DenseLayout:
    """Convert lists with a few judged items to a dense layout; all other candidates are outside the pool."""
    items, grade = layout.judged.rectangle()
    signed = grade if grade.is_signed() else grade.long()  # grades outside the pool are negative
    if isinstance(layout, CatalogueLayout):
        # One more column, the last, takes the padding of the judged items.
        whole = signed.new_full((len(items), layout.scores.shape[1] + 1), OUTSIDE_THE_POOL)
        whole = whole.scatter(1, torch.where(items < 0, layout.scores.shape[1], items), signed)[:, :-1]
        mask = layout.mask
        if layout.ignored is not None:  # an ignored query gets no candidates, so that its scores cannot be bad values
            counts = ~layout.ignored.unsqueeze(-1)
            mask = counts.expand_as(whole) if mask is None else mask & counts
        return DenseLayout(layout.errors, layout.validate, layout.scores, whole, mask, layout.tie_break, layout.exclude)
    kept, at, valid, errors = positions(layout)
    ids = layout.ids
    # One more column, the first, takes the judged ids that are not in their list: their position is 0.
    whole = signed.new_full((len(ids), ids.shape[1] + 1), OUTSIDE_THE_POOL).scatter(1, at, signed)[:, 1:]
    # Scores that descend with the position. Judged ids that are not in the list follow it, not retrieved.
    by_position = -torch.arange(ids.shape[1], dtype=torch.float32, device=ids.device).expand(ids.shape)
    missing = valid & (at == 0)
    return DenseLayout(
        errors,
        False,
        torch.cat([by_position, torch.full_like(items, float("-inf"), dtype=torch.float32)], -1),
        torch.cat([whole, signed], -1),
        torch.cat([kept, missing], -1),
    )
