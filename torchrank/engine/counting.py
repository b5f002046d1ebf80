"""How many scores are greater than, and equal to, those of a few judged items: a read of the scores, no sort."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from torchrank.engine.fused import fused, is_compiled
from torchrank.lists import BLOCK

# Scores to pass over repeatedly while they are in a processor's cache.
CACHED = 2**19


class Standing(NamedTuple):
    """What the scores of some columns say of the judged items; of several parts of the columns, the sum."""

    #: int64 [query, entry]: candidates ahead of each judged item
    greater: Tensor
    #: int64 [query, entry]: candidates beside it, itself included
    equal: Tensor
    #: int64 [query]: scores above -inf
    listed: Tensor
    #: int64 [query]: more than 0 if a score is NaN
    bad: Tensor

    @classmethod
    def nothing(cls, queries: int, entries: int, device: torch.device) -> Standing:
        """Of no column."""
        grid = (torch.zeros((queries, entries), dtype=torch.int64, device=device) for _ in range(2))
        return cls(*grid, *(torch.zeros(queries, dtype=torch.int64, device=device) for _ in range(2)))

    def add(self, other: Standing, rows: slice = slice(None)) -> None:
        """Add, in place, what other columns say of some of the queries."""
        for total, part in zip(self, other):
            total[rows] += part


def stand_by_counting(
    scores: Tensor,
    own: Tensor,
    mask: Tensor | None = None,
    tie_break: Tensor | None = None,
    own_tie_break: Tensor | None = None,
) -> Standing:
    """Compare the scores [query, candidate] with those of the judged items [query, entry], one entry after another."""
    if is_compiled() and own.shape[1] == 1 and mask is None and tie_break is None:
        greater, equal, smallest = fused(scores, own)
        return Standing(greater, equal, *listed(scores, smallest))
    greater, equal = (torch.zeros(own.shape, dtype=torch.int64, device=own.device) for _ in range(2))
    smallest = scores.new_full((len(scores),), float("inf"))
    buffer = _buffer(scores)
    for rows, columns in tiles(scores):
        tile, mine = scores[rows, columns], own[rows]
        if mask is not None:
            tile = tile.masked_fill(~mask[rows, columns], float("-inf"))
        smallest[rows] = torch.minimum(smallest[rows], tile.amin(-1))
        for entry in range(own.shape[1]):
            one = mine[:, entry, None]
            if tie_break is None or own_tie_break is None:
                out = _fit(buffer, tile)
                greater[rows, entry] += _sum(torch.gt(tile, one, out=out))
                equal[rows, entry] += _sum(torch.eq(tile, one, out=out))
            else:
                ahead, beside = compare(tile, tie_break[rows, columns], one, own_tie_break[rows, entry, None])
                greater[rows, entry] += ahead.sum(-1)
                equal[rows, entry] += beside.sum(-1)
    return Standing(greater, equal, *listed(scores, smallest, mask))


def stand_by_sorting(scores: Tensor, own: Tensor, mask: Tensor | None = None) -> Standing:
    """The same for many entries per query: sort the values once, and look each of them up."""
    total = Standing.nothing(*own.shape, own.device)
    height = max(1, BLOCK // scores.shape[1])
    for row in range(0, len(scores), height):
        rows = slice(row, row + height)
        tile, mine = scores[rows], own[rows].contiguous()
        if mask is not None:
            tile = tile.masked_fill(~mask[rows], float("-inf"))
        ordered = tile.sort(dim=-1).values  # NaN last
        greater = tile.shape[1] - torch.searchsorted(ordered, mine, right=True)
        equal = tile.shape[1] - greater - torch.searchsorted(ordered, mine)
        unlisted = torch.searchsorted(ordered, torch.full_like(ordered[:, :1], float("-inf")), right=True)
        counts = tile.shape[1] - unlisted.squeeze(-1)
        total.add(Standing(greater, equal, counts, ordered[:, -1].isnan().long()), rows)
    return total


def count_equal(scores: Tensor, value: Tensor) -> Tensor:
    """How many scores of each row equal its ``value`` [query, 1]: int64 [query]."""
    total = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    buffer = _buffer(scores)
    for rows, columns in tiles(scores):
        total[rows] += _sum(torch.eq(scores[rows, columns], value[rows], out=_fit(buffer, scores[rows, columns])))
    return total


def listed(scores: Tensor, smallest: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Candidates above -inf and whether one is NaN, int64 [query] each, given the smallest score of each query."""
    bad = smallest.isnan().long()
    if scores.device.type == "cpu" and bool((smallest > float("-inf")).all()):  # where looking is free
        return torch.full_like(bad, scores.shape[1]), bad
    total, buffer = torch.zeros_like(bad), _buffer(scores)
    for rows, columns in tiles(scores):
        tile = scores[rows, columns]
        if mask is not None:
            tile = tile.masked_fill(~mask[rows, columns], float("-inf"))
        total[rows] += _sum(torch.gt(tile, float("-inf"), out=_fit(buffer, tile)))
    return total, bad


def tiles(scores: Tensor) -> Iterator[tuple[slice, slice]]:
    """Rows and columns to count in at a time, so that they stay in a processor's cache between the passes."""
    size = CACHED if scores.device.type == "cpu" else BLOCK * 64
    width = max(1, min(scores.shape[1], size))
    height = max(1, size // width)
    for row in range(0, len(scores), height):
        for column in range(0, scores.shape[1], width):
            yield slice(row, row + height), slice(column, column + width)


def compare(
    scores: Tensor, tie_break: Tensor | None, own: Tensor, own_tie_break: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Which scores stand ahead of ``own``, and which beside it."""
    if tie_break is None or own_tie_break is None:
        return scores > own, scores == own
    same = scores == own
    return (scores > own) | (same & (tie_break > own_tie_break)), same & (tie_break == own_tie_break)


def _buffer(scores: Tensor) -> Tensor:
    """Where comparisons are written. As floats they are summed by vector instructions, as bool they are not."""
    rows, columns = next(tiles(scores), (slice(0), slice(0)))
    dtype = torch.bool
    if scores.device.type == "cpu":
        dtype = scores.dtype if scores.dtype in (torch.float32, torch.float64) else torch.float32
    return torch.empty(scores[rows, columns].numel(), dtype=dtype, device=scores.device)


def _fit(buffer: Tensor, scores: Tensor) -> Tensor:
    return buffer[: scores.numel()].view(scores.shape)


def _sum(compared: Tensor) -> Tensor:
    """How many are true in each row: int64. A float32 counts up to 2 ** 24, which no tile reaches."""
    return compared.sum(-1).long()
