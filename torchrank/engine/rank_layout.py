"""Entry points of the engines: rank a layout chunk by chunk, or as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from torchrank.engine.catalogue import rank_catalogue, rank_embedded, rank_fused, rank_ids, rank_sparse, rank_streamed
from torchrank.engine.dense import rank_dense
from torchrank.engine.flat import rank_flat
from torchrank.engine.plan import Plan, Strategy, chunks, plan
from torchrank.hardware.devices import autocast_off
from torchrank.hardware.threads import in_batch
from torchrank.layouts.canonical import ALL, FlatRows, Layout, Need
from torchrank.layouts.conversions import spread
from torchrank.ranking.ranking import Ranking, numbered


def rank(layout: Layout, need: Need = ALL) -> Iterator[Ranking]:
    """Rank a batch chunk by chunk, so that temporaries stay small, however large the batch is.

    Args:
        layout: the batch in canonical form.
        need: the part of the rankings that will be read.

    Returns:
        rankings of some queries each, which have the numbers of these in ``queries`` unless all are in order.
    """
    made = plan(layout, need)
    return _ENGINES[made.strategy](made, need)


def _rank_judged(plan: Plan, need: Need) -> Iterator[Ranking]:
    for chunk, counting in zip(plan.pieces(), plan.counting):
        yield rank_catalogue(chunk, counting, plan.reach)


def _rank_as_rows(plan: Plan, need: Need) -> Iterator[Ranking]:
    """Rank one list at a time as flat rows, so that only relevant candidates become entries."""
    for chunk in plan.pieces():  # a single query each, because its list is longer than a chunk
        mask, tie_break = (None if x is None else x[0] for x in (chunk.mask, chunk.tie_break))
        scores, grade = chunk.scores[0], chunk.grade[0]
        indexes = torch.zeros_like(scores, dtype=torch.int8)
        rows = FlatRows(chunk.errors, chunk.validate, scores, grade, indexes, mask, tie_break)
        for ranking in rank_flat(rows, need):
            yield replace(ranking, queries=None)


def _rank_spread(plan: Plan, need: Need) -> Iterator[Ranking]:
    """Rank every candidate, not only the judged ones."""
    for judged_only in plan.pieces():
        lists = spread(judged_only)
        yield from rank_dense(Plan(lists, Strategy.LISTS, chunks=chunks(lists, need)), need)


#: an engine for each strategy: yields the rankings of chunks of queries, so that temporaries stay small
_ENGINES: dict[Strategy, Callable[[Plan, Need], Iterator[Ranking]]] = {
    Strategy.LISTS: rank_dense,
    Strategy.ONE_BY_ONE: _rank_as_rows,
    Strategy.ROWS: lambda plan, need: rank_flat(plan.layout, need),
    Strategy.JUDGED: _rank_judged,
    Strategy.GROUPS: lambda plan, _: rank_sparse(plan.layout),
    Strategy.ALL: _rank_spread,
    Strategy.IDS: lambda plan, _: map(rank_ids, plan.pieces()),
    Strategy.PRODUCTS: rank_embedded,
    Strategy.FUSED: lambda plan, _: rank_fused(plan.layout),
    Strategy.BLOCKS: lambda plan, need: rank_streamed(plan.layout, need),
}


def rank_whole(layout: Layout, need: Need = ALL) -> Ranking:
    """Rank a whole batch. Flat rows get entries of relevant candidates only, unless others are needed."""
    work: Callable[[Any, Need], Ranking] = _rank_rows if isinstance(layout, FlatRows) else _rank_narrow
    with autocast_off(layout.errors.device), in_batch(layout.errors.device, layout.size):
        return work(layout, need)


def _rank_rows(layout: FlatRows, need: Need) -> Ranking:
    return Ranking.join(replace(chunk, only_relevant=need.relevant) for chunk in rank_flat(layout, need))


def _rank_narrow(layout: Layout, need: Need) -> Ranking:
    parts: list[Ranking] = []
    start = 0
    chunks: Iterable[Ranking] = rank(layout, need)
    if layout.ignored is not None:
        whole = list(chunks)
        chunks = numbered(whole) if len(whole) > 1 else whole
    for chunk in chunks:
        # An engine may rank further than the reach. It is set all the same, so that it is the same in all chunks.
        changes: dict[str, Any] = {} if need.reach is None else {"reach": need.reach}
        if layout.ignored is not None:
            changes["ignored"] = layout.ignored if chunk.queries is None else layout.ignored[chunk.queries]
        chunk = replace(chunk, **changes) if changes else chunk
        parts += chunk.narrowed(start)
        start += chunk.num_queries
    return Ranking.join(parts)
