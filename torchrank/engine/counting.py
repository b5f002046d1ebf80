"""Methods to count the scores ahead of judged items: the cost and the call of each. A new one is added here alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from torchrank.engine.comparing import count_by_comparing, count_retrieved, equal_in_order, tile_scores
from torchrank.engine.compiled import why_no_kernel
from torchrank.engine.score_counts import ScoreCounts
from torchrank.engine.sorting import descending
from torchrank.engine.thresholds import Thresholds
from torchrank.engine.topk import count_among_best
from torchrank.hardware import costs
from torchrank.hardware.devices import all_finite, by_numpy
from torchrank.hardware.sorted_values import ascending, selection
from torchrank.ranking.quantities import run_bounds


@dataclass(frozen=True)
class Size:
    """The quantities on which costs depend."""

    #: number of judged items per query
    entries: float
    #: number of candidates per query
    candidates: int
    #: ranks that matter, as a share of the candidates; inf = all ranks matter
    share: float
    device: torch.device
    has_tie_break: bool


@dataclass(frozen=True, eq=False)
class JudgedScores:
    """Judged items [query, entry] among scores [query, candidate]."""

    scores: Tensor
    #: bool, False = padding
    mask: Tensor | None
    #: the larger value ranks first among equal scores
    tie_break: Tensor | None
    #: columns of the judged items, int64
    column: Tensor
    judged_scores: Tensor
    judged_tie_break: Tensor | None
    #: the last rank that must be exact; None = all
    reach: int | None
    #: dtype of the counts, for a method that has a choice
    dtype: torch.dtype


@dataclass(frozen=True)
class CountingMethod:
    """A method to count."""

    about: str
    #: cost on a CPU: nanoseconds per score, measured on one and two threads. With up to four threads, numpy sorts and
    #: selects on a single thread; torch does all other work on all threads. On an accelerator: passes over the scores.
    #: With tie breaks: comparisons with one judged item.
    cost: Callable[[Size], float]
    #: counts the scores
    count: Callable[[JudgedScores], ScoreCounts]
    #: whether no score counts as equal to -inf if there are no tie breaks
    lowest_is_alone: bool = False


# ---- compare ---------------------------------------------------------------------------------------------------------


def _cost_of_comparing(size: Size) -> float:
    if size.has_tie_break:
        return size.entries
    if size.device.type != "cpu":
        once, each = _passes_of_comparing(size)
        return once + each * size.entries
    return (costs.now.compare[0] + costs.now.compare[1] * size.entries) / torch.get_num_threads()


def _passes_of_comparing(size: Size) -> tuple[float, float]:
    return costs.now.passes_compare if why_no_kernel(size.device) else costs.now.passes_kernel


def _compare(judged: JudgedScores) -> ScoreCounts:
    thresholds = Thresholds(judged.judged_scores)
    return count_by_comparing(
        judged.scores, thresholds, judged.mask, judged.tie_break, judged.judged_tie_break, judged.dtype
    )


# ---- find the best ---------------------------------------------------------------------------------------------------


def _cost_of_the_best(size: Size) -> float:
    if size.has_tie_break or size.share >= 1:
        return math.inf
    now = costs.now
    if size.device.type != "cpu":
        return now.passes_best[0] + now.passes_best[1] * size.share + 2 * _passes_of_comparing(size)[0]
    threads = torch.get_num_threads()
    heap = (now.heap[0] + now.heap[1] * size.share) / threads
    selected = now.numpy_selection if by_numpy(size.device) else selection(size.share) / threads
    best = min(now.by_groups * size.share / threads, heap if now.heap_from * size.share <= 1 else selected)
    return now.retrieved / threads + best


def _find_the_best(judged: JudgedScores) -> ScoreCounts:
    assert judged.reach is not None
    return count_among_best(judged.scores, judged.judged_scores, judged.reach)


# ---- sort ------------------------------------------------------------------------------------------------------------


def _cost_of_sorting(size: Size) -> float:
    now, threads, halvings = costs.now, torch.get_num_threads(), math.log2(size.candidates + 1)
    if size.has_tie_break:  # two stable sorts
        return now.stable_sorts * halvings
    if size.device.type != "cpu":
        return now.passes_sort
    by_torch = now.torch_sort * halvings / threads
    sort = now.numpy_sort[0] + now.numpy_sort[1] * halvings if by_numpy(size.device) else by_torch
    return sort + now.look_up * halvings * size.entries / max(1, size.candidates) / threads


def _sort(judged: JudgedScores) -> ScoreCounts:
    return count_by_sorting(judged.scores, judged.judged_scores, judged.mask, judged.tie_break, judged.column)


def count_by_sorting(
    scores: Tensor,
    judged: Tensor,
    mask: Tensor | None = None,
    tie_break: Tensor | None = None,
    column: Tensor | None = None,
) -> ScoreCounts:
    """Count as :func:`count_by_comparing`, for many entries per query: sort the scores, and look up each entry.

    With tie breaks pass ``column``, the columns of the entries: int64 [query, entry].
    """
    total = ScoreCounts.nothing(judged.shape, judged.device)
    width = scores.shape[1]
    height = max(1, costs.now.room(scores) // width)
    for row in range(0, len(scores), height):
        rows = slice(row, row + height)
        tile = tile_scores(scores, mask, rows, slice(None))
        judged_scores = judged[rows].to(tile.dtype).contiguous()
        finite = all_finite(tile)
        retrieved, has_nan = count_retrieved(tile, finite=finite)
        if not finite:  # NaN would mislead the binary search
            tile = tile.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
        if tie_break is not None and column is not None:
            _, order, begins = descending(tile, tie_break[rows])
            start, stop = run_bounds(begins)
            place = order.argsort(dim=-1).gather(-1, column[rows])
            start, stop = start.gather(-1, place), stop.gather(-1, place)
            total.add(ScoreCounts(start, stop - start, retrieved, has_nan), rows)
            continue
        ordered = ascending(tile)
        up_to = torch.searchsorted(ordered, judged_scores, right=True)
        total.add(ScoreCounts(width - up_to, equal_in_order(ordered, judged_scores, up_to), retrieved, has_nan), rows)
    return total


# ---- all methods -----------------------------------------------------------------------------------------------------


class Counting(Enum):
    """Methods to find the ranks of judged items.

    Scores in blocks of columns are compared by any method but ``TOP`` and ``SORT``.
    """

    COUNT = CountingMethod(
        "count the scores above and equal to each judged item", _cost_of_comparing, _compare, lowest_is_alone=True
    )
    TOP = CountingMethod("find the best scores, and each judged item among them", _cost_of_the_best, _find_the_best)
    SORT = CountingMethod("sort the scores, and look up each judged item", _cost_of_sorting, _sort)


_METHODS = [*Counting]
_COSTS = [method.value.cost for method in Counting]  # a member finds its value by a call


def cheapest(
    entries: float, candidates: int, reach: int | None, device: torch.device, tie_break: Tensor | None
) -> Counting:
    """Choose the cheapest method to rank judged items; the first of equally cheap ones.

    Args:
        entries: number of judged items per query.
        candidates: number of candidates per query.
        reach: the largest rank that matters; None = all ranks matter, or the layout rules out a search for the best
            scores.
        device: device of the scores.
        tie_break: tie breaks, or None.
    """
    share = math.inf if reach is None or reach >= candidates else reach / candidates
    size = Size(entries, candidates, share, device, tie_break is not None)
    prices = [cost(size) for cost in _COSTS]
    return _METHODS[prices.index(min(prices))]
