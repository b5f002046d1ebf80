"""Entry points of the engines: rank a layout chunk by chunk, in parts on threads, or as a whole."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from torchrank.engine.choice import choose_engine
from torchrank.engine.flat import rank_flat
from torchrank.hardware.devices import autocast_off
from torchrank.hardware.threads import each, serially
from torchrank.layouts.canonical import ALL, FlatRows, Layout, Need
from torchrank.ranking.parts import numbered
from torchrank.ranking.ranking import Ranking


def rank(layout: Layout, need: Need = ALL) -> Iterator[Ranking]:
    """Rank a batch chunk by chunk, so that temporaries stay small, however large the batch is.

    Args:
        layout: the batch in canonical form.
        need: the part of the rankings that will be read.

    Returns:
        rankings of some queries each, which have the numbers of these in ``queries`` unless all are in order.
    """
    if layout.errors.device.type == "cpu":
        _keep_freed_memory()
    layout, engine = choose_engine(layout, need)
    rankings = engine(layout, need)
    judged = getattr(layout, "judged", None)
    if judged is None or not judged.labels or need.all_candidates:
        return rankings
    return map(functools.partial(replace, of_labels=True), rankings)


def rank_parts(layout: Layout, ranked: Callable[[Any], Iterable[Ranking]]) -> list[Ranking]:
    """Rank a batch in parts on threads: ``ranked`` returns the rankings of a part.

    The rankings have numbers of queries unless all queries are in order.
    """
    parts = each(lambda part: list(ranked(part)), layout.parts())
    if all(chunk.queries is None for part in parts for chunk in part):
        return [chunk for part in parts for chunk in part]
    found: list[Ranking] = []
    # A part numbers its queries from 0, so its numbers are moved behind the parts before it.
    for part in parts:
        found += numbered(part, start=sum(chunk.num_queries for chunk in found))
    return found


def rank_whole(layout: Layout, need: Need = ALL) -> Ranking:
    """Rank a whole batch. Flat rows get entries of relevant candidates only, unless others are needed."""
    work = _rank_rows if isinstance(layout, FlatRows) else _rank_narrow
    with autocast_off(layout.errors.device):
        return serially(layout.errors.device, layout.size, work, layout, need)


Ranking.rank = rank_whole


def _rank_rows(layout: Layout, need: Need) -> Ranking:
    chunks = rank_parts(layout, lambda part: rank_flat(part, need))
    return Ranking.join(replace(chunk, only_relevant=need.relevant) for chunk in chunks)


def _rank_narrow(layout: Layout, need: Need) -> Ranking:
    parts: list[Ranking] = []
    start = 0
    chunks = rank_parts(layout, lambda part: rank(part, need))
    for chunk in chunks if layout.ignored is None else numbered(chunks):
        # An engine may rank further than the reach. It is set all the same, so that it is the same in all chunks.
        chunk = chunk if need.reach is None else replace(chunk, reach=need.reach)
        chunk = chunk if layout.ignored is None else replace(chunk, ignored=layout.ignored[chunk.queries])
        parts += chunk.narrowed(start)
        start += chunk.num_queries
    return Ranking.join(parts)


@functools.cache
def _keep_freed_memory() -> None:
    """Make the C library keep up to 64 MB of freed memory for the next temporary.

    By default glibc returns freed memory to the system at once, and the system pages it in again for the next tensor
    of some hundred kilobytes. This takes longer than most operations on the tensor. glibc raises its threshold to the
    largest chunk of up to 32 MB that was ever freed. The tensor below is freed at once and never written, so it takes
    no memory itself. Other C libraries ignore it.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8, device="cpu")
