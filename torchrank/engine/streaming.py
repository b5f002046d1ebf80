"""Engines for scores that exist only some columns at a time: products of embeddings, and blocks of the user."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torchrank.engine.catalogue import rank_columns
from torchrank.engine.columns import Columns
from torchrank.engine.plan import Plan, cut
from torchrank.hardware import costs
from torchrank.hardware.devices import multiplying
from torchrank.layouts.canonical import EmbeddedLayout, Need, StreamedLayout
from torchrank.ranking.ranking import Ranking


def rank_embedded(plan: Plan, need: Need) -> Iterator[Ranking]:
    """Score chunks of queries, some items at a time. Judged items get their scores from the same products as others."""
    layout, start = plan.layout, 0
    finite = _finite(layout.queries, layout.catalogue)
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
    catalogue, chunk, free = layout.catalogue, layout.chunk, layout.queries.is_cpu
    queries = layout.queries.to(layout.score_dtype)
    width = min(chunk, len(catalogue))
    starts = range(0, len(catalogue), chunk)
    # All products share one buffer: each is used up before the next one is computed.
    buffer = queries.new_empty(len(queries) * width)

    def multiply(items: Tensor) -> Tensor:
        out = buffer[: len(queries) * len(items)].view(len(queries), len(items))
        with multiplying(layout.precision, queries.device):
            return torch.mm(queries, layout.factors(items).T, out=out)

    def product(start: int) -> tuple[int, Tensor]:
        # On a device all products have one shape, so the last one begins before its first new column.
        first = start if free else min(start, len(catalogue) - width)
        return layout.offset + start, multiply(catalogue[first : first + chunk])[:, start - first :]

    def products() -> Iterator[tuple[int, Tensor]]:
        layout.progress(len(starts))
        for start in starts:
            yield product(start)
            layout.progress(-1)

    def score(row: Tensor, item: Tensor) -> Tensor | None:
        local = item - layout.offset
        here = (local >= 0) & (local < len(catalogue))
        local = torch.where(here, local, 0)
        scores = _guess(layout, row, local) if free else _paired(layout, multiply, width, row, local)
        return None if scores is None else torch.where(here, scores, 0)

    # A single product is kept and read twice. Several are computed again, unless the scores of the judged items are
    # computed alone.
    made = list(products()) if len(starts) == 1 else None
    alone = score if len(starts) > 1 else None
    read = products if made is None else lambda: made
    columns = Columns(read, layout.total, queries.dtype, True, layout.tolerance, chunk, alone, finite, layout.shard)
    yield from rank_columns(columns, layout.judged, layout.exclude, layout.errors, layout.validate, need)


def rank_streamed(layout: StreamedLayout, need: Need) -> Iterator[Ranking]:
    """Rank the judged items among scores that the user gives in blocks of columns."""

    def read() -> Iterator[tuple[int, Tensor]]:
        first = 0
        for scores in layout.scores():
            if scores.shape[1]:
                yield first, scores
            first += scores.shape[1]

    columns = Columns(read, None, layout.dtype, layout.again, layout.tolerance)
    yield from rank_columns(columns, layout.judged, layout.exclude, layout.errors, layout.validate, need)


def _guess(layout: EmbeddedLayout, row: Tensor, item: Tensor) -> Tensor | None:
    """Predicted scores of pairs, in the order of the pairs; None if the prediction is expensive. It is checked later.

    The predictions are the diagonals of matrix products, because sums over single rows round in another way.
    """
    step, queries, catalogue = costs.now.predicted, layout.queries, layout.catalogue
    if costs.now.predicted_share * step * len(item) > layout.total * len(queries):
        return None
    scores = torch.empty(len(item), dtype=layout.score_dtype, device=item.device)
    for start in range(0, len(item), step):
        some = slice(start, start + step)
        left, right = queries[row[some]].to(scores.dtype), layout.factors(catalogue[item[some]])
        with multiplying(layout.precision, item.device):
            scores[some] = (left @ right.T).diagonal()
    return scores


def _paired(
    layout: EmbeddedLayout, multiply: Callable[[Tensor], Tensor], width: int, row: Tensor, item: Tensor
) -> Tensor | None:
    """Scores of pairs by products of the shape of all others, which a device computes in the same way, to the bit.

    None if they are more than the products of the whole catalogue, or if a copy of so many items takes much memory.
    """
    items = width * layout.queries.shape[1] * layout.queries.element_size()
    if not 0 < len(item) <= len(layout.catalogue) or items > costs.now.cached_bytes:
        return None
    rows, parts = (torch.nn.functional.pad(x, (0, -len(x) % width)).view(-1, width) for x in (row, item))
    column = torch.arange(width, device=item.device)
    scores = [multiply(layout.catalogue[part])[some, column] for some, part in zip(rows, parts)]
    return torch.cat(scores)[: len(item)]
