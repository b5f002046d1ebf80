"""Scores that are made, or come, some columns at a time: the matrix of all of them never exists."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torchrank.engine.catalogue import Columns, rank_columns
from torchrank.hardware.devices import reading_is_free
from torchrank.layouts.canonical import EmbeddedLayout, Need, StreamedLayout
from torchrank.ranking.ranking import Ranking

# Queries whose judged items are scored ahead in one product: enough for it to round as the large products do.
AHEAD = 256


def rank_embedded(layout: EmbeddedLayout, need: Need) -> Iterator[Ranking]:
    """Score a block of queries, some items at a time. Nothing is scored in another way than everybody else."""
    start = 0
    for block in layout.blocks(need):
        queries = torch.arange(block.num_queries, device=layout.queries.device)
        for ranking in _rank(block, need):  # type: ignore[arg-type]
            number = queries if ranking.queries is None else ranking.queries
            yield replace(ranking, queries=number + start)
        start += block.num_queries


def _rank(layout: EmbeddedLayout, need: Need) -> Iterator[Ranking]:
    queries, catalogue, chunk = layout.queries, layout.catalogue, layout.chunk
    starts = range(0, len(catalogue), chunk)
    buffer = queries.new_empty(len(queries) * min(chunk, len(catalogue)))

    def product(start: int) -> tuple[int, Tensor]:
        items = catalogue[start : start + chunk]
        out = buffer[: len(queries) * len(items)].view(len(queries), len(items))
        torch.mm(queries, items.T, out=out)
        return layout.offset + start, out

    def products() -> Iterator[tuple[int, Tensor]]:
        if layout.progress is not None:
            layout.progress(len(starts))
        for start in starts:
            yield product(start)
            if layout.progress is not None:
                layout.progress(-1)

    made = list(products()) if len(starts) == 1 else None
    guess = None if made is not None else functools.partial(_guess, layout)
    columns = Columns(
        products if made is None else lambda: made, layout.total, queries.dtype, guess=guess, shard=layout.shard
    )
    yield from rank_columns(columns, layout.judged, layout.exclude, layout.errors, layout.validate, need)


def rank_streamed(layout: StreamedLayout, need: Need) -> Iterator[Ranking]:
    """Places among scores that come in blocks of columns."""

    def read() -> Iterator[tuple[int, Tensor]]:
        first = 0
        for scores in layout.scores():
            if scores.shape[1]:
                yield first, scores
            first += scores.shape[1]

    columns = Columns(read, None, layout.dtype, layout.again)
    yield from rank_columns(columns, layout.judged, layout.exclude, layout.errors, layout.validate, need)


def _guess(layout: EmbeddedLayout, rows: slice | Tensor, items: Tensor) -> Tensor | None:
    """What the judged items will probably score, where finding out that they do is free and this costs little."""
    if not reading_is_free(items) or AHEAD * items.shape[1] > layout.total // 8:
        return None
    local = items - layout.offset
    here = (local >= 0) & (local < len(layout.catalogue))
    local = torch.where(here, local, 0)
    queries = layout.queries[rows]
    own = queries.new_zeros(items.shape)
    for start in range(0, len(items) if len(layout.catalogue) else 0, AHEAD):
        some = slice(start, start + AHEAD)
        for entry in range(items.shape[1]):
            product = queries[some] @ layout.catalogue[local[some, entry]].T
            own[some, entry] = product.diagonal()
    return torch.where(here, own, 0)
