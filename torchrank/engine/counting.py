"""Methods to count the scores ahead of judged items: the cost and the call of each. A new one is added here alone."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from torchrank.engine.comparing import (
    count_by_comparing,
    count_equal,
    count_retrieved,
    equal_in_order,
    tile_scores,
    why_no_kernel,
)
from torchrank.engine.counts import ScoreCounts, Thresholds, compared_dtype
from torchrank.engine.sorting import descending
from torchrank.hardware import costs
from torchrank.hardware.devices import all_finite, ascending, best, by_numpy, largest, selection
from torchrank.layouts.arrange import Shard
from torchrank.ranking.ranking import run_bounds


def by_groups_pays(scores: Tensor, k: int) -> bool:
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
        >>> from torchrank.engine.counting import top_k
        >>> top_k(torch.tensor([[0.1, 0.9, 0.5]]), 2)
        (tensor([[0.9000, 0.5000]]), tensor([[1, 2]]))
    """
    queries, candidates = scores.shape
    if not 0 <= k <= candidates:
        raise ValueError(f"Expected k in 0 ... {candidates}, the number of candidates, got {k}")
    if not by_groups_pays(scores, k) or not k or not queries:
        return best(scores, k)
    step = max(1, costs.now.block // (candidates // costs.now.group + costs.now.group * k))
    parts = [_by_groups(scores[row : row + step], k) for row in range(0, queries, step)]
    if len(parts) == 1:
        return parts[0]
    return torch.cat([values for values, _ in parts]), torch.cat([columns for _, columns in parts])


def best_scores(scores: Tensor, k: int) -> Tensor:
    """The k best scores of each row, best first, as :func:`top_k` finds them: [query, k]."""
    if by_groups_pays(scores, k):
        return top_k(scores, k)[0]
    step, wide = max(1, costs.now.room(scores) // max(1, scores.shape[1])), compared_dtype(scores.dtype)
    tiles = (scores[row : row + step] for row in range(0, max(1, len(scores)), step))
    parts = [largest(tile.to(wide), k).to(scores.dtype) for tile in tiles]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _by_groups(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """:func:`top_k` by the maxima of groups: torch.topk of the k best groups and of the columns behind all groups."""
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
        # One more than k shows if the tie group at the cutoff goes on behind it.
        best = best_scores(scores, min(k + 1, width))
        if width < k:
            best = torch.nn.functional.pad(best, (0, k - width), value=float("-inf"))
        top = best[:, :k].contiguous()
        last = top[:, -1:]
        inside = (top == last).sum(-1)
        if width <= k:
            return cls(top, inside)
        goes_on = best[:, k:] == last
        if scores.is_cpu and not goes_on.any():
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
        k = self.scores.shape[1]
        ascending, judged = self.scores.flip(-1).contiguous(), judged.contiguous()
        up_to = torch.searchsorted(ascending, judged, right=True)
        greater, equal = k - up_to, equal_in_order(ascending, judged, up_to)
        last = self.scores[:, -1:]
        # The last score may have equals beyond the k best, so its number is not the number in the list.
        equal = torch.where(judged == last, self.last.unsqueeze(-1), equal)
        return greater, torch.where(judged < last, 0, equal)


def count_among_best(scores: Tensor, judged: Tensor, reach: int) -> ScoreCounts:
    """Count scores as :func:`torchrank.engine.comparing.count_by_comparing`, but exactly up to the rank ``reach`` only.

    Args:
        scores: [query, candidate].
        judged: scores of the judged items, [query, entry].
        reach: the last exact rank.
    """
    total = ScoreCounts.nothing(judged.shape, judged.device)
    step = max(1, costs.now.room(scores) // (reach + 1))  # queries whose best scores are held at a time
    for row in range(0, len(scores), step):
        rows = slice(row, row + step)
        counts = Top.of(scores[rows], reach).before_and_in_tie(judged[rows])
        total.add(ScoreCounts(*counts, *count_retrieved(scores[rows])), rows)
    return total


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
