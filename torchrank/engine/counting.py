"""Counts of the scores greater than, and equal to, the scores of a few judged items, without sorting the list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from torchrank.engine.compiled import fused, is_compiled
from torchrank.hardware.devices import reading_is_free
from torchrank.hardware.threads import parts_at_once
from torchrank.layouts.canonical import BLOCK

# Number of scores that stay in the caches of a processor's cores between several passes over them, beside a buffer of
# the same size. On two cores with 2 MB each this is twice as fast as four times the number.
CACHED = 2**18


class ScoreCounts(NamedTuple):
    """Counts over some columns of the scores. The counts of all columns are the sum over parts of the columns."""

    #: int64 [query, entry]: candidates ahead of each judged item
    greater: Tensor
    #: int64 [query, entry]: candidates tied with each judged item, itself included
    equal: Tensor
    #: int64 [query]: scores above -inf
    retrieved: Tensor
    #: int64 [query]: positive if a score is NaN
    has_nan: Tensor

    @classmethod
    def nothing(cls, queries: int, entries: int, device: torch.device) -> ScoreCounts:
        """Counts over no columns: all 0."""
        shapes = ((queries, entries), (queries, entries), (queries,), (queries,))
        return cls._make(torch.zeros(shape, dtype=torch.int64, device=device) for shape in shapes)

    def add(self, other: ScoreCounts, rows: slice = slice(None)) -> None:
        """Add, in place, the counts over other columns for the queries ``rows``."""
        for total, part in zip(self, other):
            total[rows] += part


def count_by_comparing(
    scores: Tensor,
    own: Tensor,
    mask: Tensor | None = None,
    tie_break: Tensor | None = None,
    own_tie_break: Tensor | None = None,
) -> ScoreCounts:
    """Count by comparing all scores with the score of one judged item after the other.

    Args:
        scores: [query, candidate].
        own: scores of the judged items, [query, entry].
        mask: bool [query, candidate], False = padding.
        tie_break: [query, candidate], the larger value ranks first among equal scores.
        own_tie_break: tie breaks of the judged items, [query, entry].
    """
    if is_compiled() and own.shape[1] == 1 and mask is None and tie_break is None:
        greater, equal, smallest = fused(scores, own)
    else:
        greater, equal, smallest = _compared(scores, own, mask, tie_break, own_tie_break)
    return ScoreCounts(greater, equal, *count_retrieved(scores, smallest, mask))


def _compared(
    scores: Tensor, own: Tensor, mask: Tensor | None, tie_break: Tensor | None, own_tie_break: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Number of candidates ahead of, and tied with, each entry, int64 [query, entry]; smallest score of each query."""
    # The smallest score costs one more pass over the cached scores. It tells if all are retrieved, and if one is NaN.
    smallest, counts = [scores.new_empty(0)], [own.new_empty((2 * own.shape[1], 0), dtype=torch.int64)]
    for rows, tiles in strips(scores, mask):
        mine = own[rows].T.unsqueeze(-1)
        least: list[Tensor] = []
        sums: list[Tensor] = []
        for columns, tile, out in tiles:
            least.append(tile.amin(-1))
            # Two counts of each entry, in the order greater, equal, greater, equal, ...
            if tie_break is None or own_tie_break is None:
                parts = [compare(tile, one, out=out).sum(-1) for one in mine for compare in (torch.gt, torch.eq)]
            else:
                tile_breaks, my_breaks = tie_break[rows, columns], own_tie_break[rows].T.unsqueeze(-1)
                parts = [x.sum(-1) for pair in zip(mine, my_breaks) for x in ahead_and_tied(tile, tile_breaks, *pair)]
            sums = [x.long() + y.long() for x, y in zip(sums, parts)] if sums else parts
        smallest.append(least[0] if len(least) == 1 else torch.stack(least).amin(0))
        counts.append(torch.stack(sums))
    greater, equal = torch.cat(counts, dim=-1).long().T.unflatten(-1, (-1, 2)).unbind(-1)
    return greater, equal, torch.cat(smallest)


def count_by_sorting(scores: Tensor, own: Tensor, mask: Tensor | None = None) -> ScoreCounts:
    """Count as :func:`count_by_comparing`, for many entries per query: sort the scores, and look each entry up."""
    total = ScoreCounts.nothing(own.shape[0], own.shape[1], own.device)
    height = max(1, BLOCK // scores.shape[1])
    for row in range(0, len(scores), height):
        rows = slice(row, row + height)
        tile, mine = scores[rows], own[rows].contiguous()
        if mask is not None:
            tile = tile.masked_fill(~mask[rows], float("-inf"))
        ordered = tile.sort(dim=-1).values  # NaN last
        greater = tile.shape[1] - torch.searchsorted(ordered, mine, right=True)
        equal = tile.shape[1] - greater - torch.searchsorted(ordered, mine)
        not_retrieved = torch.searchsorted(ordered, torch.full_like(ordered[:, :1], float("-inf")), right=True)
        retrieved = tile.shape[1] - not_retrieved.squeeze(-1)
        total.add(ScoreCounts(greater, equal, retrieved, ordered[:, -1].isnan().long()), rows)
    return total


def count_equal(scores: Tensor, value: Tensor) -> Tensor:
    """Number of scores of each row that equal its ``value`` [query, 1]: int64 [query]."""
    total = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    for rows, tiles in strips(scores):
        for _, tile, out in tiles:
            total[rows] += _sum(torch.eq(tile, value[rows], out=out))
    return total


def count_retrieved(scores: Tensor, smallest: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Number of scores above -inf, and 1 if a score is NaN, else 0: int64 [query] each.

    ``smallest`` [query] is the smallest score of each query, NaN if any score is.
    """
    has_nan = smallest.isnan().long()
    # Most data has no -inf, and then the smallest scores save another pass.
    if reading_is_free(scores) and bool((smallest > float("-inf")).all()):
        return torch.full_like(has_nan, scores.shape[1]), has_nan
    total = torch.zeros_like(has_nan)
    for rows, tiles in strips(scores, mask):
        for _, tile, out in tiles:
            total[rows] += _sum(torch.gt(tile, float("-inf"), out=out))
    return total, has_nan


def strips(
    scores: Tensor, mask: Tensor | None = None
) -> Iterator[tuple[slice, Iterator[tuple[slice, Tensor, Tensor]]]]:
    """Cut scores into strips of rows, and each strip into tiles that stay in a processor's cache between passes.

    Yields:
        the rows of a strip, and an iterator over its tiles: columns, scores, and a buffer for comparisons with them.
    """
    on_cpu = scores.device.type == "cpu"
    # On an accelerator the tiles only bound the temporaries, which are bool.
    size = CACHED // parts_at_once() if on_cpu else BLOCK * 64
    width = max(1, min(scores.shape[1], size))
    height = min(max(1, size // width), len(scores))
    # torch sums floats with vector instructions, but not bool. So on a CPU comparisons are written as floats.
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


def ahead_and_tied(
    scores: Tensor, tie_break: Tensor | None, own: Tensor, own_tie_break: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Whether each score ranks ahead of ``own``, and whether it is tied with it: bool each."""
    if tie_break is None or own_tie_break is None:
        return scores > own, scores == own
    same = scores == own
    return (scores > own) | (same & (tie_break > own_tie_break)), same & (tie_break == own_tie_break)


def _sum(compared: Tensor) -> Tensor:
    """Number of true comparisons in each row: int64. A float32 counts exactly up to 2 ** 24, more than a tile has."""
    return compared.sum(-1).long()
