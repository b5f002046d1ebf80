"""Judged items among scores: how many scores are ahead of each, counted by comparing, selecting or sorting."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchrank.engine.sorting import descending
from torchrank.hardware import costs
from torchrank.hardware.devices import (
    ascending,
    best,
    keep_number_of_threads,
    keeps_denormals,
    largest,
    possibly,
    scalar,
    widest_float,
)
from torchrank.layouts.arrange import Shard
from torchrank.layouts.canonical import CatalogueLayout, Judged, Pairs, RankedIds
from torchrank.layouts.checks import Problem, count
from torchrank.layouts.conversions import found, listed_ids, removed
from torchrank.ranking.ranking import Ranking, run_bounds


class ScoreCounts(NamedTuple):
    """Counts over a block of columns of the scores. The counts over all columns are the sums over the blocks."""

    #: int64 [query, entry]: candidates ahead of each judged item
    greater: Tensor
    #: int64 [query, entry]: candidates tied with each judged item, itself included
    equal: Tensor
    #: int64 [query]: scores above -inf
    retrieved: Tensor
    #: bool [query]: whether a score is NaN; the sum over blocks is "or"
    has_nan: Tensor

    @classmethod
    def nothing(cls, shape: Sequence[int], device: torch.device) -> ScoreCounts:
        """Counts over no columns, all 0, for judged items of a shape [query, entry]."""
        entries, queries = math.prod(shape), shape[0]
        counts = torch.zeros(2 * entries + queries, dtype=torch.int64, device=device)
        greater, equal, retrieved = counts.split((entries, entries, queries))
        has_nan = torch.zeros(queries, dtype=torch.bool, device=device)
        return cls(greater.view(shape), equal.view(shape), retrieved, has_nan)

    def add(self, other: ScoreCounts, rows: slice = slice(None)) -> None:
        """Add, in place, the counts over other columns for the queries ``rows``."""
        for total, part in zip(self, other):
            total[rows].add_(part)


class Counting(Enum):
    """Methods to find the ranks of judged items."""

    COUNT = "count the scores above and equal to each judged item"
    TOP = "find the best scores, and each judged item among them"
    SORT = "sort the scores, and look up each judged item"


def cheapest(
    entries: int, candidates: int, reach: int | None, device: torch.device, tie_break: Tensor | None = None
) -> Counting:
    """The method to rank judged items.

    Args:
        entries: number of judged items per query.
        candidates: number of candidates per query.
        reach: the largest rank that matters; None = all ranks matter, or the best scores cannot be searched.
        device: device of the scores.
        tie_break: tie breaks, or None.
    """
    if tie_break is not None:
        return Counting.SORT
    now = costs.now
    limits = now.few if device.type == "cpu" else now.few_by_torch if why_no_kernel(device) else now.few_by_kernel
    few_before_best, few_before_sort = limits
    if reach is not None and now.best_of * reach <= candidates and entries > few_before_best:
        return Counting.TOP
    return Counting.SORT if entries > few_before_sort and candidates >= now.sorted_from else Counting.COUNT


# ---- compare ---------------------------------------------------------------------------------------------------------


def count_by_comparing(
    scores: Tensor, judged: Tensor, mask: Tensor | None = None, total: ScoreCounts | None = None
) -> ScoreCounts:
    """Count by comparing all scores with the score of each judged item.

    Args:
        scores: [query, candidate].
        judged: scores of the judged items, [query, entry].
        mask: bool [query, candidate], False = padding.
        total: counts of other columns, to which these counts are added in place; None = no other columns.

    Returns:
        the counts; ``equal`` is 0 for a judged item with the score -inf.
    """
    if not why_no_kernel(scores.device):
        from torchrank.engine.kernels import count_scores

        total = total or ScoreCounts.nothing(judged.shape, scores.device)
        count_scores(scores, judged.to(compared_dtype(scores.dtype)), mask, total)
        return total
    counts = _compiled(scores, judged) if _requested and mask is None and judged.shape[1] else None
    if counts is None:
        lowest = scalar(-math.inf, judged.dtype, judged.device).expand(len(judged), 1)
        above = count_above(scores, torch.cat([judged, next_below(judged), lowest], dim=-1), mask)
        greater, at_least, retrieved = above.tensor_split([judged.shape[1], 2 * judged.shape[1]], dim=-1)
        retrieved = retrieved.squeeze(-1)
        counts = ScoreCounts(greater, at_least - greater, retrieved, find_nan(scores, retrieved, mask))
    if total is None:
        return counts
    total.add(counts)
    return total


def count_above(scores: Tensor, bounds: Tensor, mask: Tensor | None = None) -> Tensor:
    """Number of scores of each row above each of its ``bounds`` [query, bound]: int64 [query, bound].

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
    return counts[0].long() if len(counts) == 1 else torch.stack(counts).long().sum(0)


def tile_shape(scores: Tensor, results: int) -> tuple[int, list[slice]]:
    """The height of strips of rows, and the columns of the tiles of a strip, which stay in a processor's cache.

    Args:
        scores: [query, candidate].
        results: number of comparisons with each score in one operation.

    Returns:
        the height, at least 1; the columns of at least one tile.
    """
    queries, candidates = scores.shape
    if scores.is_cpu:  # threads have rows of their own: each reads the same rows in all operations
        size, threads = costs.now.tile, min(torch.get_num_threads(), costs.now.tile_threads)
    else:  # the tiles only bound the temporaries
        size, threads = costs.now.device_tile * costs.now.block, 1
    # A row is cut only if it is much too long, because more tiles are more operations.
    pieces = max(1, -(-candidates * results // (2 * size)))
    width = max(1, -(-candidates // pieces))
    height = max(1, min(queries, max(1, size // max(1, width * results)) * threads))
    return height, [slice(start, start + width) for start in range(0, max(1, candidates), width)]


def _joined(strips: Sequence[Tensor]) -> Tensor:
    """Concatenate the results of the strips of rows; a single result is not copied."""
    return strips[0] if len(strips) == 1 else torch.cat([*strips])


def tile_scores(scores: Tensor, mask: Tensor | None, rows: slice, columns: slice = slice(None)) -> Tensor:
    """The scores of a tile; -inf where ``mask`` is False. Dtypes other than float64 become float32, which is exact."""
    tile = scores[rows, columns].to(compared_dtype(scores.dtype))
    return tile if mask is None else tile.masked_fill(~mask[rows, columns], float("-inf"))


def compared_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which scores are compared: torch is slow with 16 bits."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def next_below(judged: Tensor) -> Tensor:
    """The next number below ``judged`` in the type of comparisons: scores above it are at least ``judged``."""
    judged = judged.to(compared_dtype(judged.dtype))
    below = torch.nextafter(judged, scalar(-math.inf, judged.dtype, judged.device))
    if keeps_denormals(judged.device):
        return below
    # Where denormal numbers are 0, the next number below 0 is a normal one. None is below -inf.
    return torch.where(below == judged, judged.clamp_max(-torch.finfo(judged.dtype).tiny), below)


def count_equal(scores: Tensor, value: Tensor) -> Tensor:
    """Number of scores of each row that equal its ``value`` [query, 1]: int64 [query]; 0 for a value of -inf."""
    if not why_no_kernel(scores.device):
        return count_by_comparing(scores, value).equal.squeeze(-1)
    greater, at_least = count_above(scores, torch.cat([value, next_below(value)], dim=-1)).unbind(-1)
    return at_least - greater


def count_retrieved(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Number of scores above -inf, int64 [query], and whether a score is NaN, bool [query]."""
    return count_by_comparing(scores, scores.new_empty((len(scores), 0)))[2:]


def find_nan(scores: Tensor, retrieved: Tensor, mask: Tensor | None) -> Tensor:
    """Whether a score is NaN: bool [query]. ``retrieved`` [query] is the number of scores above -inf."""
    if mask is None:
        # If all scores are above -inf, no score is NaN. This is so for most data, and saves another pass.
        if scores.is_cpu and (retrieved.numpy() == scores.shape[1]).all():
            return torch.zeros_like(retrieved, dtype=torch.bool)
        return scores.amin(-1).isnan()  # the minimum is NaN if any score is
    step = max(1, costs.now.room(scores) // max(1, scores.shape[1]))
    tiles = (tile_scores(scores, mask, slice(row, row + step)) for row in range(0, max(1, len(scores)), step))
    return _joined([tile.amin(-1) for tile in tiles]).isnan()


# ---- find the best ---------------------------------------------------------------------------------------------------


def _by_groups_pays(scores: Tensor, k: int) -> bool:
    """Whether maxima of groups find the k best scores faster than :func:`torch.topk` does: not on CUDA."""
    return scores.device.type != "cuda" and scores.shape[1] >= costs.now.group * costs.now.groups_per_rank * k


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best scores of each row, best first, and their columns.

    Among equal scores the choice is arbitrary, as in :func:`torch.topk`. NaN counts as best.

    Args:
        scores: floating [query, candidate].
        k: number of scores, at most the number of candidates.

    Returns:
        scores and int64 columns, [query, k] each.

    Raises:
        ValueError: ``k`` is negative or larger than the number of candidates.

    Example:
        >>> import torch
        >>> from torchrank.engine.judged import top_k
        >>> top_k(torch.tensor([[0.1, 0.9, 0.5]]), 2)
        (tensor([[0.9000, 0.5000]]), tensor([[1, 2]]))
    """
    queries, candidates = scores.shape
    if not 0 <= k <= candidates:
        raise ValueError(f"Expected k in 0 ... {candidates}, the number of candidates, got {k}")
    if not _by_groups_pays(scores, k) or not k or not queries:
        return best(scores, k)
    step = max(1, costs.now.block // (candidates // costs.now.group + costs.now.group * k))
    values, columns = zip(*(_by_groups(part, k) for part in scores.split(step)))
    return _joined(values), _joined(columns)


def _by_groups(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """:func:`top_k` by the maxima of groups: torch.topk of the k best groups and of the columns after all groups."""
    size = costs.now.group
    groups = scores.shape[1] // size
    grouped, rest = scores[:, : groups * size].unflatten(1, (groups, size)), scores[:, groups * size :]
    chosen = grouped.amax(-1).topk(k, sorted=False).indices
    row = torch.arange(len(scores), device=scores.device).unsqueeze(-1)
    pool = torch.cat([grouped[row, chosen].flatten(1), rest], dim=-1)
    values, column = pool.topk(k)
    # From places in the pool to columns: the pool begins with k groups, then the rest follows.
    group = chosen.gather(1, (column // size).clamp_max(k - 1))
    from_rest = column >= k * size
    return values, torch.where(from_rest, column + (groups - k) * size, group * size + column % size)


def best_scores(scores: Tensor, k: int) -> Tensor:
    """The k best scores of each row, best first: [query, k]."""
    if _by_groups_pays(scores, k):
        return top_k(scores, k)[0]
    step, wide = max(1, costs.now.room(scores) // max(1, scores.shape[1])), compared_dtype(scores.dtype)
    tiles = (scores[row : row + step] for row in range(0, max(1, len(scores)), step))
    return _joined([largest(tile.to(wide), k).to(scores.dtype) for tile in tiles])


@dataclass(frozen=True, eq=False)
class Top:
    """The k best scores of each query, with the size of the tie group at the cutoff. Parts can be merged."""

    #: [query, k], best first; -inf if there are fewer scores
    scores: Tensor
    #: int64 [query]: number of scores equal to the last one, including scores beyond the k best
    last: Tensor

    @classmethod
    def nothing(cls, queries: int, k: int, dtype: torch.dtype, device: torch.device) -> Top:
        """The top of no scores, from which merging begins."""
        scores = torch.full((queries, k), float("-inf"), dtype=dtype, device=device)
        return cls(scores, torch.zeros(queries, dtype=torch.int64, device=device))

    @classmethod
    def of(cls, scores: Tensor, k: int) -> Top:
        """The top of scores [query, candidate]."""
        width = scores.shape[1]
        # One more than k shows if the tie group at the cutoff goes on.
        best = best_scores(scores, min(k + 1, width))
        if width < k:
            best = torch.nn.functional.pad(best, (0, k - width), value=float("-inf"))
        top = best[:, :k].contiguous()
        last = top[:, -1:]
        inside = (top == last).sum(-1)
        if width <= k:
            return cls(top, inside)
        goes_on = best[:, k:] == last
        if not possibly(goes_on):
            return cls(top, inside)
        return cls(top, torch.where(goes_on.squeeze(-1), count_equal(scores, last), inside))

    def merge(self, other: Top) -> Top:
        """The top of the scores of both."""
        k = self.scores.shape[1]
        top = best_scores(torch.cat([self.scores, other.scores], dim=-1), k)
        last = top[:, -1:]
        return Top(top, sum(part._equal(last) for part in (self, other)))  # type: ignore[arg-type]

    def gather(self, shard: Shard) -> Top:
        """The top of the scores of all workers."""
        parts = zip(shard.gather(self.scores), shard.gather(self.last))
        return functools.reduce(Top.merge, (Top(scores, last) for scores, last in parts))

    def _equal(self, score: Tensor) -> Tensor:
        """Number of scores equal to ``score`` [query, 1], which must be at least the last one: int64 [query]."""
        inside = (self.scores == score).sum(-1)
        return torch.where(self.scores[:, -1] == score.squeeze(-1), self.last, inside)

    def before_and_in_tie(self, judged: Tensor) -> tuple[Tensor, Tensor]:
        """Number of scores greater than, and equal to, each score of ``judged`` [query, entry]: int64 each.

        A score below the k best is reported as rank k + 1, and as equal to nothing, for several have this rank.
        """
        greater, equal = look_up(self.scores.flip(-1).contiguous(), judged.contiguous())
        last = self.scores[:, -1:]
        # The last score may have equals beyond the k best, so its number is not the number in the list.
        equal = torch.where(judged == last, self.last.unsqueeze(-1), equal)
        return greater, torch.where(judged < last, 0, equal)


def count_among_best(scores: Tensor, judged: Tensor, reach: int) -> ScoreCounts:
    """Count as :func:`count_by_comparing`, but exactly up to the rank ``reach`` only."""
    total = ScoreCounts.nothing(judged.shape, judged.device)
    step = max(1, costs.now.room(scores) // (reach + 1))  # queries whose best scores are held at a time
    for row in range(0, len(scores), step):
        rows = slice(row, row + step)
        counts = Top.of(scores[rows], reach).before_and_in_tie(judged[rows])
        total.add(ScoreCounts(*counts, *count_retrieved(scores[rows])), rows)
    return total


# ---- sort ------------------------------------------------------------------------------------------------------------


def look_up(ordered: Tensor, judged: Tensor) -> tuple[Tensor, Tensor]:
    """Number of scores greater than, and equal to, each of ``judged`` [query, entry], in ascending order: int64."""
    up_to = torch.searchsorted(ordered, judged, right=True)
    return ordered.shape[1] - up_to, up_to - torch.searchsorted(ordered, judged)


def count_by_sorting(
    scores: Tensor,
    judged: Tensor,
    mask: Tensor | None = None,
    tie_break: Tensor | None = None,
    column: Tensor | None = None,
) -> ScoreCounts:
    """Count as :func:`count_by_comparing`, for many entries per query: sort the scores, and look up each entry.

    With tie breaks [query, candidate], the larger of which rank first among equal scores, pass ``column``, the columns
    of the entries: int64 [query, entry]. Then few entries are compared.
    """
    total = ScoreCounts.nothing(judged.shape, judged.device)
    step = max(1, costs.now.room(scores) // scores.shape[1])
    for row in range(0, len(scores), step):
        rows = slice(row, row + step)
        tile = tile_scores(scores, mask, rows)
        retrieved, has_nan = count_retrieved(tile)
        # NaN would mislead the binary search.
        tile = tile.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
        if tie_break is not None and column is not None:
            breaks, entries = tie_break[rows], column[rows]
            if 0 < entries.shape[1] <= costs.now.few[1]:  # two stable sorts take longer than comparisons
                pairs = ((tile.gather(-1, entry), breaks.gather(-1, entry)) for entry in entries.split(1, -1))
                each = [[x.sum(-1) for x in ahead_and_tied(tile, breaks, *pair)] for pair in pairs]
                ahead, tied = (torch.stack(sums, dim=-1) for sums in zip(*each))
                total.add(ScoreCounts(ahead, tied, retrieved, has_nan), rows)
                continue
            _, order, begins = descending(tile, breaks)
            start, stop = run_bounds(begins)
            place = order.argsort(dim=-1).gather(-1, entries)
            start, stop = start.gather(-1, place), stop.gather(-1, place)
            total.add(ScoreCounts(start, stop - start, retrieved, has_nan), rows)
            continue
        counts = look_up(ascending(tile), judged[rows].to(tile.dtype).contiguous())
        total.add(ScoreCounts(*counts, retrieved, has_nan), rows)
    return total


# ---- excluded pairs --------------------------------------------------------------------------------------------------


def removable(
    exclude: Pairs | None, items: Tensor, grade: Tensor, mask: Tensor | None = None
) -> tuple[Pairs | None, Tensor | None]:
    """The excluded pairs that must be removed, and the entries that they remove, bool [query, entry]; None = none.

    Pairs that are relevant, or no candidates under ``mask``, get query -1.

    Args:
        exclude: the pairs.
        items: the judged items, int64 [query, entry].
        grade: their grades, [query, entry].
        mask: bool [query, candidate].
    """
    if exclude is None:
        return None, None
    query, item = exclude.query, exclude.item
    if mask is not None:
        query = query.masked_fill(~mask[query, item], -1)
    applies, gone = removed(Pairs(query, item), items, grade)
    return Pairs(query.masked_fill(~applies, -1), item), gone


def subtract(
    counts: ScoreCounts,
    pairs: Pairs,
    scores: Tensor,
    judged: Tensor,
    tie_break: Tensor | None = None,
    judged_tie_break: Tensor | None = None,
) -> None:
    """Subtract excluded pairs from the counts, in place. This reads the pairs only, and not all scores again.

    Time grows with the number of pairs times the logarithm of the number of entries. Temporary memory grows with the
    number of entries, not with the number of pairs.

    Args:
        counts: the counts.
        pairs: the pairs; query -1 = the pair has no effect.
        scores: score of each pair.
        judged: scores of the judged items, [query, entry].
        tie_break: tie break of each pair.
        judged_tie_break: tie breaks of the judged items, [query, entry].
    """
    queries, entries = judged.shape
    # Entries in ascending order of score and tie break, NaN last.
    if judged_tie_break is None:
        order = judged.argsort(dim=-1, stable=True)
    else:
        order = judged_tie_break.argsort(dim=-1, stable=True)
        order = order.gather(-1, judged.gather(-1, order).argsort(dim=-1, stable=True))
    keys = [None if x is None else x.gather(-1, order).flatten() for x in (judged, judged_tie_break)]
    # found[0] counts the pairs that are ahead of exactly the first n entries of their query, for n = 0 ... entries;
    # found[1] counts the pairs that are ahead of, or tied with, exactly the first n.
    counted = torch.zeros((2, queries * (entries + 1)), dtype=torch.int64, device=judged.device)
    step = costs.now.room(judged)
    for start in range(0, len(pairs.query), step):
        part = slice(start, start + step)
        real, row = pairs.query[part] >= 0, pairs.query[part].clamp_min(0)
        mine = scores[part], None if tie_break is None else tie_break[part]
        for number, tied_too in enumerate((False, True)):
            place = _first_entries(row * entries, entries, keys, mine, tied_too)
            counted[number].index_add_(0, row * (entries + 1) + place, real.long())
        counts.retrieved.index_add_(0, row, -(real & (mine[0] > float("-inf"))).long())
    # The n-th entry ranks after each pair that is ahead of at least the first n entries.
    after = counted.view(2, queries, entries + 1).flip(-1).cumsum(-1).flip(-1)[..., 1:]
    ahead, at_least = torch.zeros_like(after).scatter_(-1, order.expand_as(after), after)
    counts.greater.sub_(ahead)
    counts.equal.sub_(at_least - ahead)


def _first_entries(
    begin: Tensor, entries: int, keys: list[Tensor | None], mine: tuple[Tensor, Tensor | None], tied_too: bool
) -> Tensor:
    """Number of entries that a pair is ahead of, or also tied with: int64 [pair].

    Args:
        begin: place of the first entry of the query of each pair, int64 [pair].
        entries: number of entries of each query.
        keys: scores and tie breaks of the entries of all queries, each query's in ascending order.
        mine: score and tie break of each pair.
        tied_too: whether ties count.
    """
    count = torch.zeros_like(begin)
    step = 1 << entries.bit_length()
    while step := step >> 1:
        further = count + step
        score, tie_break = (None if x is None else x.take(begin + (further - 1).clamp_max(entries - 1)) for x in keys)
        assert score is not None
        ahead, tied = ahead_and_tied(*mine, score, tie_break)
        count = torch.where((further <= entries) & (ahead | tied if tied_too else ahead), further, count)
    return count


def ahead_and_tied(
    scores: Tensor, tie_break: Tensor | None, judged: Tensor, judged_tie_break: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Whether each score ranks ahead of ``judged``, and whether each score is tied with ``judged``: bool each."""
    if tie_break is None or judged_tie_break is None:
        return scores > judged, scores == judged
    same = scores == judged
    return (scores > judged) | (same & (tie_break > judged_tie_break)), same & (tie_break == judged_tie_break)


# ---- rankings --------------------------------------------------------------------------------------------------------


def rank_judged(layout: CatalogueLayout, reach: int | None) -> Ranking:
    """Rank the judged items in a matrix of scores."""
    scores, mask, tie_break = layout.scores, layout.mask, layout.tie_break
    items, grade = layout.judged.rectangle()
    column, valid = items.clamp_min(0), items >= 0
    if mask is not None:
        valid = valid & mask.gather(-1, column)
    pairs, gone = removable(layout.exclude, items, grade, mask)
    judged = scores.gather(-1, column)
    # The search for the best scores does not support a mask, tie breaks or exclusions.
    reach = reach if mask is None and tie_break is None and pairs is None else None
    method = cheapest(items.shape[1], scores.shape[1], reach, scores.device, tie_break)
    # Padding and NaN get the score -inf: no score counts as equal to it, and all retrieved scores are above it.
    placed = method is Counting.COUNT and pairs is None
    if placed:
        lowest = scalar(-math.inf, judged.dtype, judged.device)
        judged = torch.where(valid, judged, lowest).fmax(lowest)
    if method is Counting.TOP:
        assert reach is not None
        counts = count_among_best(scores, judged, reach)
    elif method is Counting.SORT:
        counts = count_by_sorting(scores, judged, mask, tie_break, column)
    else:
        counts = count_by_comparing(scores, judged, mask)
    # Excluded pairs are counted above and subtracted here, so that the scores need not be copied.
    if pairs is not None:
        # A flat index is faster than two indexes. A pair with query -1 reads the last row, and has no effect.
        place = pairs.query * scores.shape[1] + pairs.item
        tie_breaks = (None, None) if tie_break is None else (tie_break.take(place), tie_break.gather(-1, column))
        subtract(counts, pairs, scores.take(place), judged, *tie_breaks)
    valid = valid if gone is None else valid & ~gone
    of_batch = layout.errors, layout.validate, scores.shape[1], reach, layout.judged
    return as_ranking(counts, judged, grade, valid, *of_batch, placed=placed)


def as_ranking(
    counts: ScoreCounts,
    judged_scores: Tensor,
    grade: Tensor,
    valid: Tensor,
    errors: Tensor,
    validate: bool,
    width: int,
    reach: int | None,
    judged: Judged,
    placed: bool = False,
) -> Ranking:
    """The ranking of the judged items, from the counts of the scores greater than, and equal to, theirs.

    ``placed``: whether padding and NaN had the score -inf when scores were counted, so that their counts are ranks.
    """
    if validate:
        errors = count(Problem.NAN_SCORES, counts.has_nan, judged.ignored, errors)
    dtype = widest_float(judged_scores.device)
    # The operation with a floating point scalar also converts the counts to the dtype of the scalar.
    zero, one = (scalar(number, dtype, judged_scores.device) for number in (0, 1))
    tied = counts.equal.to(dtype)
    if not placed:
        tied = torch.where(valid & (judged_scores > float("-inf")), tied, zero)
    first, lengths = counts.greater + one, counts.retrieved.to(dtype)
    return Ranking.in_rank_order(
        first, tied, grade, valid, lengths, errors, width, reach, placed=placed, of_labels=judged.ungraded
    )


def rank_ids(layout: RankedIds) -> Ranking:
    """Rank the judged ids; judged ids that are not in their list are not retrieved."""
    items, grade = layout.judged.rectangle()
    ids, valid, errors = listed_ids(layout, items, grade)
    position = found(items, ids)
    # A rank is the number of candidates up to a position, because padding and excluded ids take no rank. Position 0
    # (not in the list) has the rank after the list.
    number = (ids >= 0).cumsum(-1, dtype=widest_float(ids.device))
    length = number[:, -1]
    rank = torch.cat([length.unsqueeze(-1) + 1, number], -1).gather(-1, position)
    tied, ones = (position > 0).to(rank.dtype), layout.judged.ungraded
    return Ranking.in_rank_order(rank, tied, grade, valid, length, errors, depth=1, placed=True, of_labels=ones)


# ---- kernels ---------------------------------------------------------------------------------------------------------


@functools.cache
def why_no_kernel(device: torch.device, *products: Any) -> str:
    """The reason why Triton's kernels do not count on a device; "" = they do.

    The first call compiles, waits for the device, and warns if the kernel does not work.

    Args:
        device: device of the scores, or of the embeddings.
        products: dtype, precision and dimensions of the embeddings; none = the scores are a matrix.
    """
    on_gpu = device.type == "cuda" and torch.cuda.is_available()
    if not on_gpu and os.environ.get("TRITON_INTERPRET") != "1":
        return "the scores are not on a CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    try:
        from torchrank.engine import kernels

        right = kernels.multiply_right(device, *products) if products else kernels.count_right(device)
        reason = "" if right else "the kernel counts wrong on this device"
    except Exception as error:  # of the compiler, or of the driver
        reason = f"the kernel fails on this device: {error}"
    if reason:
        warnings.warn(f"Counts of scores on {device} take several times as long, because {reason}", stacklevel=2)
    return reason


#: whether to count by the compiled function
_requested = False


def use_compiled(enabled: bool) -> None:
    """Compile the kernel that counts scores with :func:`torch.compile`, off by default. Results do not change.

    The kernel serves score matrices without mask and tie breaks. It reads them once for each right answer of a query.
    On a CUDA device with Triton nothing is compiled, because a kernel of torchrank's own reads the scores once.
    Scores are read again if they contain NaN or -inf, and on any device but a CPU.
    While it is on, torch's own threads serve all batches, also on a busy machine.
    The first batch compiles: about ten seconds on two cores, or one second if torch's cache contains the kernel.
    Another dtype or memory layout, or a dimension of 1, compiles again; other sizes do not. Compiling for the CPU
    requires a C++ compiler. If compiling fails, or has reached torch's ``recompile_limit`` of eight kinds of batch, one
    warning is given, and the eager kernel is used until the next ``use_compiled(True)``.

    Args:
        enabled: whether to use the compiled kernel from now on.

    Example:
        >>> import torchrank as tr
        >>> tr.use_compiled(False)
    """
    global _requested
    _requested = enabled
    keep_number_of_threads(enabled)  # torch compiles a kernel again for another number of threads


@functools.cache
def _kernel() -> Callable[..., Any]:
    # Without fullgraph, torch may run a function uncompiled, whose temporaries fill the memory.
    return torch.compile(_compare, dynamic=True, fullgraph=True)


def _compare(scores: Tensor, judged: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The counts of :func:`count_by_comparing`, without the search for NaN."""
    wide, mine = scores.unsqueeze(1), judged.unsqueeze(-1)
    # Vector registers hold twice as many counts of 32 bits as of 64, and no row has 2 ** 31 columns.
    greater = (wide > mine).sum(-1, dtype=torch.int32)
    equal = (wide == mine).sum(-1, dtype=torch.int32) * (judged > float("-inf"))
    retrieved = (scores > float("-inf")).sum(-1, dtype=torch.int32)
    return greater.long(), equal.long(), retrieved.long()


def _compiled(scores: Tensor, judged: Tensor) -> ScoreCounts | None:
    """The counts of :func:`count_by_comparing` by the compiled kernel; None if compiling fails."""
    try:
        with torch.no_grad():  # always, because a kernel is compiled again if the gradient mode changes
            greater, equal, retrieved = _kernel()(scores, judged)
    except Exception as error:
        use_compiled(False)
        warnings.warn(
            "torch.compile failed, so the scores are counted by the eager kernel until use_compiled(True):"
            f" {error.__cause__ or error}",
            stacklevel=2,
        )
        return None
    return ScoreCounts(greater, equal, retrieved, find_nan(scores, retrieved, None))
