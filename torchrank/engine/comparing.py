"""Counts of the scores above, and equal to, those of judged items, by comparing all of them in tiles of the cache."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from torchrank.engine.compiled import fused, is_compiled, why_no_kernel
from torchrank.engine.score_counts import ScoreCounts
from torchrank.engine.thresholds import Thresholds, compared_dtype, next_below
from torchrank.hardware import costs


def count_by_comparing(
    scores: Tensor,
    thresholds: Thresholds,
    mask: Tensor | None = None,
    tie_break: Tensor | None = None,
    judged_tie_break: Tensor | None = None,
    dtype: torch.dtype = torch.int64,
    total: ScoreCounts | None = None,
) -> ScoreCounts:
    """Count by comparing all scores with the score of each judged item.

    Args:
        scores: [query, candidate].
        thresholds: scores of the judged items, [query, entry]; not ``among_finite`` with ``mask`` or tie breaks.
        mask: bool [query, candidate], False = padding.
        tie_break: [query, candidate], the larger value ranks first among equal scores.
        judged_tie_break: tie breaks of the judged items, [query, entry].
        dtype: the dtype of the counts.
        total: counts of other columns, to which these counts are added in place; None = no other columns.

    Returns:
        the counts; without tie breaks, ``equal`` is 0 for a judged item with the score -inf.
    """
    if tie_break is None and not why_no_kernel(scores.device):
        from torchrank.engine.kernels import count_scores

        total = total or ScoreCounts.nothing(thresholds.scores.shape, scores.device, dtype)
        count_scores(scores, thresholds.scores.to(compared_dtype(scores.dtype)), mask, total)
        return total
    counted: tuple[Tensor, Tensor, Tensor, Tensor | None] | None = None
    if tie_break is not None and judged_tie_break is not None:
        greater, equal = _by_tie_break(scores, thresholds.scores, mask, tie_break, judged_tie_break)
        counted = greater, equal, *count_retrieved(scores, mask)
    elif mask is None and is_compiled():
        counted = fused(scores, thresholds)
    if counted is None:
        # If all scores are finite, the bounds lack -inf, so ``above_lowest`` is empty and not read.
        above, entries = count_above(scores, thresholds.bounds, mask, dtype), thresholds.scores.shape[1]
        greater, at_least, above_lowest = above.tensor_split([entries, 2 * entries], dim=-1)
        counted = greater, at_least - greater, above_lowest.squeeze(-1), None
    greater, equal, retrieved, has_nan = counted
    if thresholds.among_finite:
        retrieved, has_nan = count_retrieved(scores, finite=True)
    elif has_nan is None:
        has_nan = find_nan(scores, retrieved, mask)
    counts = ScoreCounts(greater.to(dtype), equal.to(dtype), retrieved.to(dtype), has_nan)
    if total is None:
        return counts
    total.add(counts)
    return total


def _by_tie_break(
    scores: Tensor, judged: Tensor, mask: Tensor | None, tie_break: Tensor, judged_tie_break: Tensor
) -> tuple[Tensor, Tensor]:
    """Number of candidates ahead of, and tied with, each entry: int64 [query, entry] each."""
    ahead, tied = (torch.zeros(judged.shape, dtype=torch.int64, device=judged.device) for _ in range(2))
    all_rows, all_columns = strips(scores, 2)
    for rows in all_rows:
        pairs = list(zip(judged[rows].T.unsqueeze(-1), judged_tie_break[rows].T.unsqueeze(-1)))
        for columns in all_columns:
            tile, tile_breaks = tile_scores(scores, mask, rows, columns), tie_break[rows, columns]
            for entry, pair in enumerate(pairs):
                for total, where in zip((ahead, tied), ahead_and_tied(tile, tile_breaks, *pair)):
                    total[rows, entry] += where.sum(-1)
    return ahead, tied


def equal_in_order(ordered: Tensor, judged: Tensor, up_to: Tensor) -> Tensor:
    """Number of scores that equal each of ``judged``, among scores in ascending order: int64 [query, entry].

    Args:
        ordered: [query, candidate].
        judged: [query, entry].
        up_to: number of scores at most ``judged``.
    """
    if ordered.is_cpu:
        last, before = (ordered.gather(-1, (up_to - n).clamp_min_(0)) == judged for n in (1, 2))
        if not bool((before & (up_to > 1)).any()):  # no ties, so a second search can be saved
            return last.long()  # where ``up_to`` is 0, the smallest score is above the judged one
    return up_to - torch.searchsorted(ordered, judged)


def count_equal(scores: Tensor, value: Tensor) -> Tensor:
    """Number of scores of each row that equal its ``value`` [query, 1]: int64 [query]; 0 for a value of -inf."""
    if not why_no_kernel(scores.device):
        return count_by_comparing(scores, Thresholds(value)).equal.squeeze(-1)
    greater, at_least = count_above(scores, torch.cat([value, next_below(value)], dim=-1)).unbind(-1)
    return at_least - greater


def count_retrieved(scores: Tensor, mask: Tensor | None = None, finite: bool = False) -> tuple[Tensor, Tensor]:
    """Number of scores above -inf, int64 [query], and whether a score is NaN, bool [query].

    ``finite``: whether all scores are known to be finite; then no score is read.
    """
    if finite:
        retrieved = torch.full((len(scores),), scores.shape[1], device=scores.device)
        return retrieved, torch.zeros_like(retrieved, dtype=torch.bool)
    if not why_no_kernel(scores.device):
        return count_by_comparing(scores, Thresholds(scores.new_empty((len(scores), 0))), mask)[2:]
    retrieved = count_above(scores, scores.new_full((len(scores), 1), float("-inf")), mask).squeeze(-1)
    return retrieved, find_nan(scores, retrieved, mask)


def find_nan(scores: Tensor, retrieved: Tensor, mask: Tensor | None) -> Tensor:
    """Whether a score is NaN: bool [query]. ``retrieved`` [query] is the number of scores above -inf."""
    # If all scores are above -inf, no score is NaN. This is so for most data, and saves another pass.
    if mask is None and scores.is_cpu and (retrieved.numpy() == scores.shape[1]).all():
        return torch.zeros_like(retrieved, dtype=torch.bool)
    smallest = []
    all_rows, all_columns = strips(scores, 1)
    for rows in all_rows:
        # The minimum of several scores is NaN if any score is NaN.
        least = [tile_scores(scores, mask, rows, columns).amin(-1) for columns in all_columns]
        smallest.append(least[0] if len(least) == 1 else torch.stack(least).amin(0))
    return _joined(smallest).isnan()


def count_above(scores: Tensor, bounds: Tensor, mask: Tensor | None = None, dtype: torch.dtype = torch.int64) -> Tensor:
    """Number of scores of each row above each of its ``bounds`` [query, bound]: [query, bound] in ``dtype``.

    All bounds are compared in one operation, and all comparisons are summed in another, while a tile stays in cache.
    """
    wide = compared_dtype(scores.dtype)
    bounds = bounds.to(wide).unsqueeze(-1)
    # torch sums floats with vector instructions, but not bools. So the comparisons are written as floats.
    buffer, counts = None, []
    height, all_columns = tile_shape(scores, bounds.shape[1])
    limits = bounds.split(height)
    for columns in all_columns:
        # The overhead per tile must be small, because an operation on a tile takes only about twenty microseconds.
        tile = scores[:, columns]
        parts: Iterable[Tensor] = tile.split(height)
        if mask is not None or scores.dtype != wide:
            starts = range(0, max(1, len(scores)), height)
            parts = (tile_scores(scores, mask, slice(start, start + height), columns) for start in starts)
        shape = min(height, len(bounds)), bounds.shape[1], tile.shape[1]
        if buffer is None:  # the first tile is the widest
            buffer = torch.empty(math.prod(shape), dtype=wide, device=scores.device)
        out, sums = buffer[: math.prod(shape)].view(shape), []
        for part, limit in zip(parts, limits):
            above = torch.gt(part.unsqueeze(1), limit, out=out if len(part) == len(out) else out[: len(part)])
            sums.append(above.sum(-1))
        counts.append(_joined(sums))
    # float32 counts exactly up to 2 ** 24, and a tile has fewer columns.
    return (counts[0] if len(counts) == 1 else torch.stack(counts).to(dtype).sum(0)).to(dtype)


def tile_shape(scores: Tensor, results: int) -> tuple[int, list[slice]]:
    """The height of strips of rows, and the columns of the tiles of a strip, which stay in a processor's cache.

    Args:
        scores: [query, candidate].
        results: number of comparisons with each score in one operation.

    Returns:
        the height, at least 1; the columns of at least one tile.
    """
    queries, candidates = scores.shape
    # On an accelerator the tiles only bound the temporaries.
    size = costs.now.tile if scores.is_cpu else costs.now.device_tile * costs.now.block
    # Threads have rows of their own: each reads the same rows in all operations.
    threads = min(torch.get_num_threads(), costs.now.tile_threads) if scores.is_cpu else 1
    # A row is cut only if it is much too long, because more tiles are more operations.
    pieces = max(1, -(-candidates * results // (2 * size)))
    width = max(1, -(-candidates // pieces))
    height = max(1, min(queries, max(1, size // max(1, width * results)) * threads))
    return height, [slice(start, start + width) for start in range(0, max(1, candidates), width)]


def strips(scores: Tensor, results: int) -> tuple[list[slice], list[slice]]:
    """The rows of at least one strip, and the columns of the tiles of each strip."""
    height, columns = tile_shape(scores, results)
    return [slice(start, start + height) for start in range(0, max(1, len(scores)), height)], columns


def _joined(strips: list[Tensor]) -> Tensor:
    """Concatenate the results of the strips of rows; a single result is not copied."""
    return strips[0] if len(strips) == 1 else torch.cat(strips)


def tile_scores(scores: Tensor, mask: Tensor | None, rows: slice, columns: slice) -> Tensor:
    """The scores of a tile; -inf where ``mask`` is False. Dtypes other than float64 become float32, which is exact."""
    tile = scores[rows, columns].to(compared_dtype(scores.dtype))
    return tile if mask is None else tile.masked_fill(~mask[rows, columns], float("-inf"))


def ahead_and_tied(
    scores: Tensor, tie_break: Tensor | None, judged: Tensor, judged_tie_break: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Whether each score ranks ahead of ``judged``, and whether each score is tied with ``judged``: bool each."""
    if tie_break is None or judged_tie_break is None:
        return scores > judged, scores == judged
    same = scores == judged
    return (scores > judged) | (same & (tie_break > judged_tie_break)), same & (tie_break == judged_tie_break)
