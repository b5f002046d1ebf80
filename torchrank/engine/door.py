"""The door of the engine: a layout becomes rankings, block by block, on threads, or as a whole."""

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
    """Rank a batch block by block, so that temporaries stay small however large the batch is.

    Args:
        layout: the batch, in canonical form.
        need: the part of the rankings that will be read.
    """
    if layout.errors.device.type == "cpu":
        _keep_freed_memory()
    layout, engine = choose_engine(layout, need)
    yield from engine(layout, need)


def rank_parts(layout: Layout, ranked: Callable[[Any], Iterable[Ranking]]) -> list[Ranking]:
    """Rank a batch whose parts run on threads: blocks of queries, numbered unless they are in order."""
    parts = each(lambda part: list(ranked(part)), layout.parts())
    if all(block.queries is None for part in parts for block in part):
        return [block for part in parts for block in part]
    found: list[Ranking] = []
    for part in parts:
        found += numbered(part, start=sum(block.num_queries for block in found))
    return found


def rank_whole(layout: Layout, need: Need = ALL) -> Ranking:
    """One ranking of a whole batch. Flat rows have entries of relevant candidates only, unless others are needed."""
    work = _rank_rows if isinstance(layout, FlatRows) else _rank_narrow
    with autocast_off(layout.errors.device):
        return serially(layout.errors.device, layout.size, work, layout, need)


def _rank_rows(layout: Layout, need: Need) -> Ranking:
    blocks = rank_parts(layout, lambda part: rank_flat(part, need))
    return Ranking.join(replace(block, only_relevant=need.relevant) for block in blocks)


def _rank_narrow(layout: Layout, need: Need) -> Ranking:
    parts: list[Ranking] = []
    start = 0
    blocks = rank_parts(layout, lambda part: rank(part, need))
    for block in blocks if layout.ignored is None else numbered(blocks):
        # The promise of ``need`` holds, even if the engine made no use of it.
        block = block if need.reach is None else replace(block, reach=need.reach)
        block = block if layout.ignored is None else replace(block, ignored=layout.ignored[block.queries])
        parts += block.narrowed(start)
        start += block.num_queries
    return Ranking.join(parts)


@functools.cache
def _keep_freed_memory() -> None:
    """Let the C library hold on to up to 64 MB that were freed, for the next temporary.

    By default glibc gives memory back to the system at once and has it paged in again for the next tensor of some
    hundred kilobytes, which takes longer than most operations on it. It learns from the largest block of up to 32 MB
    that was ever freed; this one is never touched, so it takes no memory itself. Elsewhere it changes nothing.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8, device="cpu")


Ranking.rank = staticmethod(rank_whole)
