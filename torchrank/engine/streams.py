"""Scores that are made, or come, some columns at a time: the matrix of all of them never exists."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torchrank.engine.catalogue import Columns, place_columns
from torchrank.engine.places import Places
from torchrank.lists import EmbeddedLists, Need, StreamedLists

# Queries whose judged items are scored ahead in one product: enough for it to round as the large products do.
AHEAD = 256


def place_embedded(lists: EmbeddedLists, need: Need) -> Places:
    """Score a block of queries, some items at a time. Nothing is scored in another way than everybody else."""
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
    guess = None if made is not None else _guess(lists)
    columns = Columns(
        products if made is None else lambda: made, lists.total, queries.dtype, guess=guess, shard=lists.shard
    )
    return place_columns(columns, lists.judged, lists.exclude, lists.errors, lists.validate, need)


def place_streamed(lists: StreamedLists, need: Need) -> Places:
    """Places among scores that come in blocks of columns."""

    def read() -> Iterator[tuple[int, Tensor]]:
        first = 0
        for scores in lists.scores():
            if scores.shape[1]:
                yield first, scores
            first += scores.shape[1]

    columns = Columns(read, None, lists.dtype, lists.again)
    return place_columns(columns, lists.judged, lists.exclude, lists.errors, lists.validate, need)


def _guess(lists: EmbeddedLists) -> Tensor | None:
    """What the judged items will probably score, where finding out that they do is free and this costs little."""
    items, _ = lists.judged.rectangle()
    if items.device.type != "cpu" or AHEAD * items.shape[1] > lists.total // 8:
        return None
    local = items - lists.offset
    here = (local >= 0) & (local < len(lists.catalogue))
    local = torch.where(here, local, 0)
    own = lists.queries.new_zeros(items.shape)
    for start in range(0, len(items) if len(lists.catalogue) else 0, AHEAD):
        rows = slice(start, start + AHEAD)
        for entry in range(items.shape[1]):
            product = lists.queries[rows] @ lists.catalogue[local[rows, entry]].T
            own[rows, entry] = product.diagonal()
    return torch.where(here, own, 0)
