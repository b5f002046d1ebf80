"""The choice of an engine for a layout, and all rewriting of one layout into another that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from torchrank.engine.catalogue import Engine, cheapest, rank_catalogue
from torchrank.engine.dense import rank_dense
from torchrank.engine.flat import rank_flat
from torchrank.engine.ids import positions, rank_ids
from torchrank.engine.sparse import rank_sparse
from torchrank.engine.streaming import rank_embedded, rank_streamed
from torchrank.hardware.devices import reading_is_free
from torchrank.layouts.canonical import (
    BLOCK,
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

# Relevant candidates are looked up one by one if they are no more than one in so many.
SPARSE = 4

# Queries to look at before all others.
AHEAD = 64

CPU = torch.device("cpu")

# Lists of equal length are looked for up to this one.
LONGEST = 2**12

#: ranks a layout: some queries at a time, so that temporaries stay small
Rank = Callable[[Any, Need], Iterator[Ranking]]


class Few(Enum):
    """How the few relevant candidates of a dense layout are ranked."""

    LISTED = "as the judged items of a catalogue"
    COUNTED = "by counting, queries with similar numbers of them together"


def choose_engine(layout: Layout, need: Need) -> tuple[Layout, Rank]:
    """The engine that ranks a layout fastest, and the layout in the form in which that engine takes it."""
    if isinstance(layout, FlatRows):
        layout = as_matrix(layout)
    if need.all_candidates and isinstance(layout, CatalogueLayout | RankedIds):
        return layout, _rank_spread
    if isinstance(layout, DenseLayout):
        condensed = condense(layout, need)
        if condensed is not None:
            layout, few = condensed
            return layout, rank_sparse if few is Few.COUNTED else _by_blocks(rank_catalogue)
        return layout, _rank_as_rows if _are_long(layout, need) else _by_blocks(rank_dense)
    return layout, _ENGINES[type(layout)]


def _by_blocks(rank: Callable[[Any, Need], Ranking]) -> Rank:
    def rank_blocks(layout: Layout, need: Need) -> Iterator[Ranking]:
        return (rank(block, need) for block in layout.blocks(need))

    return rank_blocks


_ENGINES: dict[type[Layout], Rank] = {
    CatalogueLayout: _by_blocks(rank_catalogue),
    RankedIds: _by_blocks(rank_ids),
    FlatRows: rank_flat,
    EmbeddedLayout: rank_embedded,
    StreamedLayout: rank_streamed,
}


def as_matrix(layout: FlatRows) -> Layout:
    """Rows that lie side by side in lists of equal length as the matrix that they are; any other as they are.

    It shows in the values, at which only the CPU can look without waiting.
    """
    indexes = layout.indexes
    if not reading_is_free(indexes) or not len(indexes):
        return layout
    start = indexes[:LONGEST]
    width = int((start != indexes[0]).int().argmax()) or len(indexes)
    if width > BLOCK or len(indexes) % width or bool((start[1:] < start[:-1]).any()):
        return layout
    of_row = indexes.reshape(-1, width)
    if not bool((of_row == of_row[:, :1]).all()) or not bool((of_row[1:, 0] > of_row[:-1, 0]).all()):
        return layout

    scores, grade = layout.scores.reshape(-1, width), layout.grade.reshape(-1, width)
    mask, tie_break = (None if x is None else x.reshape(-1, width) for x in (layout.mask, layout.tie_break))
    return DenseLayout(layout.errors, layout.validate, scores, grade, mask, tie_break)


def condense(layout: DenseLayout, need: Need) -> tuple[CatalogueLayout, Few] | None:
    """A dense layout with few relevant candidates as a catalogue of these few; None if they are many.

    The values tell how many are relevant, so a layout on an accelerator stays as it is.
    """
    if not need.relevant or not reading_is_free(layout.scores) or layout.subtopics is not None:
        return None
    queries, candidates = layout.grade.shape
    plain = layout.mask is None and layout.exclude is None and layout.tie_break is None
    # Queries with similar numbers go together where all ranks matter, so that some may have many.
    counted = plain and need.reach is None

    def kind(sizes: Tensor) -> Few | None:
        each, most = float(sizes.float().mean()), int(sizes.max())
        if counted and each * SPARSE <= candidates and cheapest(each, candidates, None, CPU, None) is Engine.COUNT:
            return Few.COUNTED
        return Few.LISTED if most * SPARSE <= candidates else None

    if not queries or kind((layout.grade[:AHEAD] > 0).sum(-1)) is None:
        return None  # as a few queries show already
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
    """Whether lists are longer than a block, so that entries for all candidates would take too much memory."""
    plain = layout.exclude is None and layout.subtopics is None and reading_is_free(layout.scores)
    return need.relevant and need.reach is None and plain and layout.scores.shape[1] > BLOCK


def _rank_as_rows(layout: DenseLayout, need: Need) -> Iterator[Ranking]:
    """Rank one list at a time as flat rows, of which only the relevant become entries."""
    for block in layout.blocks(need):
        assert isinstance(block, DenseLayout)
        columns = (block.scores, block.grade, block.mask, block.tie_break)
        scores, grade, mask, tie_break = (None if x is None else x[0] for x in columns)
        assert scores is not None
        assert grade is not None
        indexes = torch.zeros_like(scores, dtype=torch.int8)
        rows = FlatRows(block.errors, block.validate, scores, grade, indexes, mask, tie_break)
        for ranking in rank_flat(rows, need):
            yield replace(ranking, queries=None)


def _rank_spread(layout: CatalogueLayout | RankedIds, need: Need) -> Iterator[Ranking]:
    """Rank every candidate, not just the judged ones."""
    for named in layout.blocks(need):
        for block in spread(named).blocks(need):  # type: ignore[arg-type]
            yield rank_dense(block, need)  # type: ignore[arg-type]


def spread(layout: CatalogueLayout | RankedIds) -> DenseLayout:
    """Lists of which a few items are judged, with a grade for every candidate, all others outside the pool."""
    items, grade = layout.judged.rectangle()
    signed = grade if grade.is_signed() else grade.long()
    if isinstance(layout, CatalogueLayout):
        whole = signed.new_full((len(items), layout.scores.shape[1] + 1), OUTSIDE_THE_POOL)
        whole = whole.scatter(1, torch.where(items < 0, layout.scores.shape[1], items), signed)[:, :-1]
        mask = layout.mask
        if layout.ignored is not None:  # has no candidates, and so no bad scores
            counts = ~layout.ignored.unsqueeze(-1)
            mask = counts.expand_as(whole) if mask is None else mask & counts
        return DenseLayout(layout.errors, layout.validate, layout.scores, whole, mask, layout.tie_break, layout.exclude)
    kept, at, valid, errors = positions(layout)
    ids = layout.ids  # one more column, the first, for what is in none
    whole = signed.new_full((len(ids), ids.shape[1] + 1), OUTSIDE_THE_POOL).scatter(1, at, signed)[:, 1:]
    by_position = -torch.arange(ids.shape[1], dtype=torch.float32, device=ids.device).expand(ids.shape)
    missing = valid & (at == 0)
    return DenseLayout(
        errors,
        False,
        torch.cat([by_position, torch.full_like(items, float("-inf"), dtype=torch.float32)], -1),
        torch.cat([whole, signed], -1),
        torch.cat([kept, missing], -1),
    )
