"""How many scores are greater than, and equal to, those of a few judged items: a read of the scores, no sort."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from torchrank.engine.compiled import fused, is_compiled
from torchrank.hardware.devices import reading_is_free
from torchrank.hardware.threads import beside
from torchrank.layouts.canonical import BLOCK

# Scores to pass over repeatedly while they are in a processor's cache.
CACHED = 2**20


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
        shapes = ((queries, entries), (queries, entries), (queries,), (queries,))
        return cls._make(torch.zeros(shape, dtype=torch.int64, device=device) for shape in shapes)

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
    else:
        greater, equal, smallest = _compared(scores, own, mask, tie_break, own_tie_break)
    return Standing(greater, equal, *listed(scores, smallest, mask))


def _compared(
    scores: Tensor, own: Tensor, mask: Tensor | None, tie_break: Tensor | None, own_tie_break: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Candidates ahead of and beside each entry, int64 [query, entry], and the smallest score of each query."""
    smallest, counts = [scores.new_empty(0)], [own.new_empty((2 * own.shape[1], 0), dtype=torch.int64)]
    for rows, tiles in strips(scores, mask):
        mine = own[rows].T.unsqueeze(-1)
        least: list[Tensor] = []
        sums: list[Tensor] = []
        for columns, tile, out in tiles:
            least.append(tile.amin(-1))
            if tie_break is None or own_tie_break is None:
                parts = [compare(tile, one, out=out).sum(-1) for one in mine for compare in (torch.gt, torch.eq)]
            else:
                beside, theirs = tie_break[rows, columns], own_tie_break[rows].T.unsqueeze(-1)
                parts = [x.sum(-1) for pair in zip(mine, theirs) for x in in_order(tile, beside, *pair)]
            sums = [x.long() + y.long() for x, y in zip(sums, parts)] if sums else parts
        smallest.append(least[0] if len(least) == 1 else torch.stack(least).amin(0))
        counts.append(torch.stack(sums))
    greater, equal = torch.cat(counts, dim=-1).long().T.unflatten(-1, (-1, 2)).unbind(-1)
    return greater, equal, torch.cat(smallest)


def stand_by_sorting(scores: Tensor, own: Tensor, mask: Tensor | None = None) -> Standing:
    """The same for many entries per query: sort the values once, and look each of them up."""
    total = Standing.nothing(own.shape[0], own.shape[1], own.device)
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
    for rows, tiles in strips(scores):
        for _, tile, out in tiles:
            total[rows] += _sum(torch.eq(tile, value[rows], out=out))
    return total


def listed(scores: Tensor, smallest: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Candidates above -inf and whether one is NaN, int64 [query] each, given the smallest score of each query."""
    bad = smallest.isnan().long()
    if reading_is_free(scores) and bool((smallest > float("-inf")).all()):
        return torch.full_like(bad, scores.shape[1]), bad
    total = torch.zeros_like(bad)
    for rows, tiles in strips(scores, mask):
        for _, tile, out in tiles:
            total[rows] += _sum(torch.gt(tile, float("-inf"), out=out))
    return total, bad


def strips(
    scores: Tensor, mask: Tensor | None = None
) -> Iterator[tuple[slice, Iterator[tuple[slice, Tensor, Tensor]]]]:
    """Some rows at a time, and of these some columns: which, their scores, and where to write comparisons with them.

    They stay in a processor's cache between the passes over them.
    """
    on_cpu = scores.device.type == "cpu"
    size = CACHED // beside() if on_cpu else BLOCK * 64
    width = max(1, min(scores.shape[1], size))
    height = min(max(1, size // width), len(scores))
    # Comparisons written as floats are summed by vector instructions, those written as bool are not.
    dtype = (torch.float64 if scores.dtype == torch.float64 else torch.float32) if on_cpu else torch.bool
    buffer = torch.empty(height * width, dtype=dtype, device=scores.device)

    def tiles(rows: slice) -> Iterator[tuple[slice, Tensor, Tensor]]:
        for column in range(0, scores.shape[1], width):
            columns = slice(column, column + width)
            tile = scores[rows, columns]
            if mask is not None:
                tile = tile.masked_fill(~mask[rows, columns], float("-inf"))
            yield columns, tile, buffer[: tile.numel()].view(tile.shape)

    for row in range(0, len(scores), max(1, height)):
        yield slice(row, row + height), tiles(slice(row, row + height))


def in_order(
    scores: Tensor, tie_break: Tensor | None, own: Tensor, own_tie_break: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Which scores stand ahead of ``own``, and which beside it."""
    if tie_break is None or own_tie_break is None:
        return scores > own, scores == own
    same = scores == own
    return (scores > own) | (same & (tie_break > own_tie_break)), same & (tie_break == own_tie_break)


def _sum(compared: Tensor) -> Tensor:
    """How many are true in each row: int64. A float32 counts up to 2 ** 24, which no tile reaches."""
    return compared.sum(-1).long()
