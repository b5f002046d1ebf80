"""Entry points of the engines: rank a layout chunk by chunk, or as a whole."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from torchrank.engine.choice import choose_engine
from torchrank.engine.flat import rank_flat
from torchrank.hardware.devices import autocast_off
from torchrank.hardware.threads import in_batch
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


def rank_whole(layout: Layout, need: Need = ALL) -> Ranking:
    """Rank a whole batch. Flat rows get entries of relevant candidates only, unless others are needed."""
    work: Callable[[Any, Need], Ranking] = _rank_rows if isinstance(layout, FlatRows) else _rank_narrow
    with autocast_off(layout.errors.device):
        return in_batch(layout.errors.device, layout.size, work, layout, need)


Ranking.rank = rank_whole


def _rank_rows(layout: FlatRows, need: Need) -> Ranking:
    return Ranking.join(replace(chunk, only_relevant=need.relevant) for chunk in rank_flat(layout, need))


def _rank_narrow(layout: Layout, need: Need) -> Ranking:
    parts: list[Ranking] = []
    start = 0
    chunks = rank(layout, need)
    for chunk in chunks if layout.ignored is None else numbered(list(chunks)):
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
