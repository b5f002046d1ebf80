"""Scores that are made, or come, some columns at a time: the matrix of all of them never exists."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torchrank.engine.catalogue import Columns, place_columns
from torchrank.engine.places import Places
from torchrank.lists import EmbeddedLists, Need, StreamedLists

# Queries whose judged items are scored ahead in one product: enough for it to round as the large products do.
AHEAD = 256


def place_embedded(lists: EmbeddedLists, need: Need) -> Iterator[Places]:
    """Score a block of queries, some items at a time. Nothing is scored in another way than everybody else."""
    start = 0
    for block in lists.blocks(need):
        queries = torch.arange(block.num_queries, device=lists.queries.device)
        for places in _place(block, need):  # type: ignore[arg-type]
            number = queries if places.queries is None else places.queries
            yield replace(places, queries=number + start)
        start += block.num_queries


def _place(lists: EmbeddedLists, need: Need) -> Iterator[Places]:
    queries, catalogue, chunk = lists.queries, lists.catalogue, lists.chunk
    starts = range(0, len(catalogue), chunk)
    buffer = queries.new_empty(len(queries) * min(chunk, len(catalogue)))

    def product(start: int) -> tuple[int, Tensor]:
        items = catalogue[start : start + chunk]
        out = buffer[: len(queries) * len(items)].view(len(queries), len(items))
        torch.mm(queries, items.T, out=out)
        return lists.offset + start, out

    def products() -> Iterator[tuple[int, Tensor]]:
        if lists.progress is not None:
            lists.progress(len(starts))
        for start in starts:
            yield product(start)
            if lists.progress is not None:
                lists.progress(-1)

    made = list(products()) if len(starts) == 1 else None
    guess = None if made is not None else functools.partial(_guess, lists)
    columns = Columns(
        products if made is None else lambda: made, lists.total, queries.dtype, guess=guess, shard=lists.shard
    )
    yield from place_columns(columns, lists.judged, lists.exclude, lists.errors, lists.validate, need)


def place_streamed(lists: StreamedLists, need: Need) -> Iterator[Places]:
    """Places among scores that come in blocks of columns."""

    def read() -> Iterator[tuple[int, Tensor]]:
        first = 0
        for scores in lists.scores():
            if scores.shape[1]:
                yield first, scores
            first += scores.shape[1]

    columns = Columns(read, None, lists.dtype, lists.again)
    yield from place_columns(columns, lists.judged, lists.exclude, lists.errors, lists.validate, need)


def _guess(lists: EmbeddedLists, rows: slice | Tensor, items: Tensor) -> Tensor | None:
    """What the judged items will probably score, where finding out that they do is free and this costs little."""
    if items.device.type != "cpu" or AHEAD * items.shape[1] > lists.total // 8:
        return None
    local = items - lists.offset
    here = (local >= 0) & (local < len(lists.catalogue))
    local = torch.where(here, local, 0)
    queries = lists.queries[rows]
    own = queries.new_zeros(items.shape)
    for start in range(0, len(items) if len(lists.catalogue) else 0, AHEAD):
        some = slice(start, start + AHEAD)
        for entry in range(items.shape[1]):
            product = queries[some] @ lists.catalogue[local[some, entry]].T
            own[some, entry] = product.diagonal()
    return torch.where(here, own, 0)
