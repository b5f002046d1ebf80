"""Engines for scores that exist only some columns at a time: products of embeddings, and blocks of the user."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torchrank.engine.catalogue import rank_columns
from torchrank.engine.columns import Columns
from torchrank.engine.plan import Plan, cut
from torchrank.hardware import costs
from torchrank.layouts.canonical import EmbeddedLayout, Need, StreamedLayout
from torchrank.ranking.ranking import Ranking


def rank_embedded(plan: Plan, need: Need) -> Iterator[Ranking]:
    """Score chunks of queries, some items at a time. Judged items get their scores from the same products as others."""
    layout = plan.layout
    if layout.precision == "bf16":  # sums of their products are not rounded to 16 bits
        layout = replace(layout, queries=layout.queries.float(), catalogue=layout.catalogue.float())
    start, finite = 0, _finite(layout.queries, layout.catalogue)
    for chunk in cut(layout, plan.chunks):
        queries = torch.arange(chunk.num_queries, device=layout.queries.device)
        for ranking in _rank(chunk, need, finite):
            number = queries if ranking.queries is None else ranking.queries
            yield replace(ranking, queries=number + start)
        start += chunk.num_queries


def _finite(queries: Tensor, catalogue: Tensor) -> bool:
    """Whether all products are known to be finite. False where finding out costs more than it saves."""
    dimension = queries.shape[1]
    if not queries.is_cpu or not len(catalogue) or not 0 < dimension <= len(queries):
        return False
    # A comparison with NaN is False. Half of the largest number leaves room for rounding.
    largest = [max(abs(float(bound)) for bound in x.aminmax()) for x in (queries, catalogue)]
    return dimension * math.prod(largest) <= torch.finfo(queries.dtype).max / 2


def _rank(layout: EmbeddedLayout, need: Need, finite: bool) -> Iterator[Ranking]:
    """Rank one chunk of queries. ``finite``: whether all products are known to be finite."""
    queries, catalogue, chunk = layout.queries, layout.catalogue, layout.chunk
    starts = range(0, len(catalogue), chunk)
    # All products share one buffer: each is used up before the next one is computed.
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

    # A single product is kept and read twice. Several are computed again, unless the guess makes this unnecessary.
    made = list(products()) if len(starts) == 1 else None
    guess = None if made is not None else functools.partial(_guess, layout)
    read = products if made is None else lambda: made
    columns = Columns(read, layout.total, queries.dtype, at_once=chunk, guess=guess, finite=finite, shard=layout.shard)
    yield from rank_columns(columns, layout.judged, layout.exclude, layout.errors, layout.validate, need)


def rank_streamed(layout: StreamedLayout, need: Need) -> Iterator[Ranking]:
    """Rank the judged items among scores that the user gives in blocks of columns."""

    def read() -> Iterator[tuple[int, Tensor]]:
        first = 0
        for scores in layout.scores():
            if scores.shape[1]:
                yield first, scores
            first += scores.shape[1]

    columns = Columns(read, None, layout.dtype, layout.again)
    yield from rank_columns(columns, layout.judged, layout.exclude, layout.errors, layout.validate, need)


def _guess(layout: EmbeddedLayout, rows: slice | Tensor, items: Tensor) -> Tensor | None:
    """Predicted scores of the judged items, [query, entry].

    None if the prediction is expensive, or if checking it later would wait for a device.
    """
    if not items.is_cpu or costs.now.predicted_share * costs.now.predicted * items.shape[1] > layout.total:
        return None
    local = items - layout.offset
    here = (local >= 0) & (local < len(layout.catalogue))
    local = torch.where(here, local, 0)
    queries = layout.queries[rows]
    own = queries.new_zeros(items.shape)
    for start in range(0, len(items) if len(layout.catalogue) else 0, costs.now.predicted):
        some = slice(start, start + costs.now.predicted)
        for entry in range(items.shape[1]):
            # A matrix product for its diagonal only, because sums over single rows round in another way.
            product = queries[some] @ layout.catalogue[local[some, entry]].T
            own[some, entry] = product.diagonal()
    return torch.where(here, own, 0)
