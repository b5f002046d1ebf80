"""A few judged items in a long list, whose scores come whole, some columns at a time, or spread over workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from torchrank.engine.counting import Standing, in_order, listed, stand_by_counting, stand_by_sorting
from torchrank.engine.places import Places, in_rank_order, real
from torchrank.engine.shards import Shard
from torchrank.engine.topk import Top
from torchrank.lists import BLOCK, CatalogueLists, Judged, Need, Pairs
from torchrank.problems import Problem, count

# What an iterator of unknown length is taken for.
MANY = 2**17


class Engine(Enum):
    """How to find where judged items stand."""

    COUNT = "count the scores above and beside each"
    TOP = "look for the best scores, and each among them"
    SORT = "sort the scores, and look each up"


@dataclass(frozen=True, eq=False)
class Columns:
    """Scores [query, item], of which some columns are there at a time."""

    #: gives (first column, scores [query, column]) from left to right; can be called again if ``again``
    read: Callable[[], Iterable[tuple[int, Tensor]]]
    #: how many there are, on all workers; None = not known before they were read
    width: int | None
    dtype: torch.dtype
    again: bool = True
    #: the scores of judged items as they are expected to come out, [query, entry], which saves reading twice
    guess: Tensor | None = None
    #: the other workers, which have other columns of the same queries
    shard: Shard | None = None


def place_catalogue(lists: CatalogueLists, need: Need) -> Places:
    """Places of the judged items in a matrix of scores."""
    scores, mask, tie_break = lists.scores, lists.mask, lists.tie_break
    items, grade = lists.judged.rectangle()
    column, valid = items.clamp_min(0), items >= 0
    if mask is not None:
        valid = valid & mask.gather(-1, column)
    pairs, gone = _removable(lists.exclude, items, grade, mask)
    plain = mask is None and tie_break is None and lists.exclude is None
    engine = cheapest(items.shape[1], scores.shape[1], need.reach if plain else None, scores.device, tie_break)
    if engine is Engine.TOP:
        columns = Columns(lambda: [(0, scores)], scores.shape[1], scores.dtype)
        return place_columns(columns, lists.judged, None, lists.errors, lists.validate, need)
    own = scores.gather(-1, column)
    own_tie_break = None if tie_break is None else tie_break.gather(-1, column)
    if engine is Engine.SORT:
        standing = stand_by_sorting(scores, own, mask)
    else:
        standing = stand_by_counting(scores, own, mask, tie_break, own_tie_break)
    if pairs is not None:
        beside = None if tie_break is None else tie_break[pairs.query, pairs.item]
        _subtract(standing, pairs, scores[pairs.query, pairs.item], own, beside, own_tie_break)
    return _placed(
        standing, own, grade, valid & ~gone, lists.errors, lists.validate, scores.shape[1], None, lists.ignored
    )


def place_columns(
    columns: Columns, judged: Judged, exclude: Pairs | None, errors: Tensor, validate: bool, need: Need
) -> Places:
    """Places of the judged items among scores that come some columns at a time."""
    items, grade = judged.rectangle()
    pairs, gone = _removable(exclude, items, grade, None)
    reach = need.reach
    engine = cheapest(items.shape[1], columns.width or MANY, reach, items.device, None)
    if reach is not None and (engine is Engine.TOP or not columns.again):
        standing, seen = _look_among_the_best(columns, items, pairs, reach)
    else:
        reach = None
        standing, seen = _stand(columns, items, pairs, stand_by_sorting if engine is Engine.SORT else stand_by_counting)
    valid = (items >= 0) & ~gone
    if columns.width is None:
        outside = items >= seen.width
        errors, valid = errors + count(Problem.OUT_OF_RANGE, outside), valid & ~outside
        if pairs is not None:
            errors = errors + count(Problem.OUT_OF_RANGE, pairs.item >= seen.width)
    width = seen.width if columns.width is None else columns.width
    return _placed(standing, seen.own, grade, valid, errors, validate, max(1, width), reach, judged.ignored)


def cheapest(
    entries: float, candidates: int, reach: int | None, device: torch.device, tie_break: Tensor | None
) -> Engine:
    """The engine to take for so many judged among so many candidates, if ranks up to ``reach`` matter.

    By nanoseconds for each score, as they were measured on two CPU cores: counting 0.18 for each judged item, sorting
    1.8 log2(candidates), the best k 0.1 + 250 k / candidates by maxima of groups or 0.5 + 60 k / candidates by
    torch.topk. On an accelerator what counts are passes over the scores, of which sorting takes several dozen.
    """
    if tie_break is not None:
        return Engine.COUNT
    share = math.inf if reach is None or reach >= candidates else reach / candidates
    if device.type == "cpu":
        cost = {
            Engine.COUNT: 0.05 + 0.18 * entries,
            Engine.TOP: 0.25 + min(250 * share, 0.4 + 60 * share),
            Engine.SORT: 1.8 * math.log2(candidates + 1),
        }
    else:
        cost = {Engine.COUNT: entries, Engine.TOP: 16 + 1000 * share, Engine.SORT: 64}
    return min(cost, key=lambda engine: cost[engine])


class _Seen:
    """The scores of judged items and of excluded pairs, picked up as columns go by."""

    def __init__(self, columns: Columns, items: Tensor, pairs: Pairs | None) -> None:
        self.items, self.pairs = items, pairs
        self.own = torch.zeros(items.shape, dtype=columns.dtype, device=items.device)
        self.here = torch.zeros_like(items, dtype=torch.bool)
        self.width = 0
        if pairs is not None:
            self.pair_scores = torch.zeros(pairs.item.shape, dtype=columns.dtype, device=items.device)
            self.pairs_here = torch.zeros_like(pairs.item, dtype=torch.bool)

    def pick(self, first: int, scores: Tensor) -> None:
        """Take what is wanted of the columns from ``first`` on."""
        column, inside = _within(self.items, first, scores)
        self.own = torch.where(inside, scores.gather(-1, column), self.own)
        self.here = self.here | inside
        self.width = max(self.width, first + scores.shape[1])
        if self.pairs is not None:
            column, inside = _within(self.pairs.item, first, scores)
            self.pair_scores = torch.where(inside, scores[self.pairs.query, column], self.pair_scores)
            self.pairs_here = self.pairs_here | inside


def _within(items: Tensor, first: int, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The columns of items among those from ``first`` on, and which of the items are there at all."""
    column, last = items - first, scores.shape[1] - 1
    return column.clamp(0, last), (column >= 0) & (column <= last)


def _look_among_the_best(columns: Columns, items: Tensor, pairs: Pairs | None, reach: int) -> tuple[Standing, _Seen]:
    """One reading: the best scores of all columns, and the judged items among them."""
    seen, standing = _Seen(columns, items, None), Standing.nothing(items.shape[0], items.shape[1], items.device)
    top = Top.nothing(len(items), reach, columns.dtype, items.device)
    for first, scores in columns.read():
        seen.pick(first, scores)
        left = scores if pairs is None else _without(scores, pairs, first)
        counts, bad = listed(left, left.amin(-1))
        standing.listed.add_(counts)
        standing.bad.add_(bad)
        top = top.merge(Top.of(left, reach))
    if columns.shard is not None:
        seen.own, counts, bad = columns.shard.sum(seen.own, standing.listed, standing.bad)
        standing, top = standing._replace(listed=counts, bad=bad), top.gather(columns.shard)
    greater, equal = top.around(seen.own)
    return standing._replace(greater=greater, equal=equal), seen


def _without(scores: Tensor, pairs: Pairs, first: int) -> Tensor:
    """A copy of some columns in which excluded pairs are not retrieved."""
    column, inside = _within(pairs.item, first, scores)
    inside = inside & (pairs.query >= 0)
    at = pairs.query.clamp_min(0) * scores.shape[1] + column
    bound = torch.where(inside, float("-inf"), float("inf")).to(scores.dtype)
    return scores.flatten().scatter_reduce(0, at, bound, "amin").view_as(scores)


def _stand(
    columns: Columns, items: Tensor, pairs: Pairs | None, by: Callable[[Tensor, Tensor], Standing]
) -> tuple[Standing, _Seen]:
    """Two readings, of which the first finds the scores of the judged items; one, if these can be foreseen.

    They are the very same numbers that all others are compared with: a score made by another product may differ from
    itself in the last bit. So what was foreseen is held against what came out, and counts only if nothing differs.
    """
    shard, own = columns.shard, columns.guess
    if own is None:
        own = _read_own(columns, items)
    elif shard is not None:
        (own,) = shard.sum(own)
    standing, seen = _reading(columns, items, pairs, own, by)
    differing = (seen.here & (seen.own != own) & ~(seen.own.isnan() & own.isnan())).sum()
    if shard is not None:
        *totals, differing = shard.sum(*standing, differing)
        standing = Standing(*totals)
    if own.device.type == "cpu" and bool(differing):  # elsewhere nothing is foreseen, as looking would be waiting
        own = _read_own(columns, items)
        standing, seen = _reading(columns, items, pairs, own, by)
        if shard is not None:
            standing = Standing(*shard.sum(*standing))
    seen.own = own
    return standing, seen


def _read_own(columns: Columns, items: Tensor) -> Tensor:
    seen = _Seen(columns, items, None)
    for first, scores in columns.read():
        seen.pick(first, scores)
    return seen.own if columns.shard is None else columns.shard.sum(seen.own)[0]


def _reading(
    columns: Columns, items: Tensor, pairs: Pairs | None, own: Tensor, by: Callable[[Tensor, Tensor], Standing]
) -> tuple[Standing, _Seen]:
    standing, seen = Standing.nothing(items.shape[0], items.shape[1], items.device), _Seen(columns, items, pairs)
    for first, scores in columns.read():
        seen.pick(first, scores)
        standing.add(by(scores, own))
    if pairs is not None:
        here = Pairs(torch.where(seen.pairs_here, pairs.query, -1), pairs.item)
        _subtract(standing, here, seen.pair_scores, own, None, None)
    return standing, seen


def _placed(
    standing: Standing,
    own: Tensor,
    grade: Tensor,
    valid: Tensor,
    errors: Tensor,
    validate: bool,
    width: int,
    reach: int | None,
    ignored: Tensor | None,
) -> Places:
    if validate:
        errors = errors + count(Problem.NAN_SCORES, standing.bad > 0, ignored)
    dtype = real(own.device)
    tied = torch.where(valid & (own > float("-inf")), standing.equal, 0).to(dtype)
    first = (standing.greater + 1).to(dtype)
    return in_rank_order(first, tied, grade, valid, standing.listed.to(dtype), errors, width, reach)


def _removable(exclude: Pairs | None, items: Tensor, grade: Tensor, mask: Tensor | None) -> tuple[Pairs | None, Tensor]:
    """The pairs to take out, each a candidate and not relevant; and the entries that go with them."""
    if exclude is None:
        return None, torch.zeros_like(items, dtype=torch.bool)
    query, item = exclude.query.clone(), exclude.item
    if mask is not None:
        query = query.masked_fill(~mask[query, item], -1)
    gone = torch.zeros_like(items, dtype=torch.int32)
    step = max(1, BLOCK // items.shape[1])
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        judged = (items[query[part]] == item[part].unsqueeze(-1)) & (query[part] >= 0).unsqueeze(-1)
        relevant = (judged & (grade[query[part]] > 0)).any(-1)
        gone.index_add_(0, query[part].clamp_min(0), (judged & ~relevant.unsqueeze(-1)).int())
        query[part] = query[part].masked_fill(relevant, -1)
    return Pairs(query, item), gone > 0


def _subtract(
    standing: Standing,
    pairs: Pairs,
    scores: Tensor,
    own: Tensor,
    tie_break: Tensor | None,
    own_tie_break: Tensor | None,
) -> None:
    """Take excluded pairs out of the counts, which costs their number and not another pass over the scores."""
    step = max(1, BLOCK // own.shape[1])
    for start in range(0, len(pairs.query), step):
        part = slice(start, start + step)
        query, score = pairs.query[part], scores[part].unsqueeze(-1)
        there = (query >= 0).unsqueeze(-1)
        tie = None if tie_break is None else tie_break[part].unsqueeze(-1)
        ahead, beside = in_order(score, tie, own[query], None if own_tie_break is None else own_tie_break[query])
        query = query.clamp_min(0)
        standing.greater.index_add_(0, query, -(ahead & there).long())
        standing.equal.index_add_(0, query, -(beside & there).long())
        standing.listed.index_add_(0, query, -(there & (score > float("-inf"))).squeeze(-1).long())
