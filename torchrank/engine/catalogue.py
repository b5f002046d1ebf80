"""A few judged items in a long list, whose scores come whole, some columns at a time, or spread over workers."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from torchrank.engine.counting import Standing, in_order, listed, stand_by_counting, stand_by_sorting
from torchrank.engine.topk import Top
from torchrank.hardware.devices import reading_is_free, widest_float
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.canonical import BLOCK, CatalogueLayout, Need
from torchrank.layouts.cutting import groups
from torchrank.layouts.items import JudgedItems, Pairs, Ragged
from torchrank.layouts.sharding import Shard
from torchrank.ranking.ranking import Ranking

# What an iterator of unknown length is taken for.
MANY = 2**17


# Padding of so many judged items, and of two for each query, costs as much as another group of queries.
OVERHEAD = 2**10


# Scores of which copies are made in one go.
COPIED = 2**20


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
    #: leads from rows and their judged items [query, entry] to scores as they are expected to come out, which saves
    #: reading twice; None = nothing can be said
    guess: Callable[[slice | Tensor, Tensor], Tensor | None] | None = None
    #: the other workers, which have other columns of the same queries
    shard: Shard | None = None


def rank_catalogue(layout: CatalogueLayout, need: Need) -> Ranking:
    """Places of the judged items in a matrix of scores."""
    scores, mask, tie_break = layout.scores, layout.mask, layout.tie_break
    items, grade = layout.judged.rectangle()
    column, valid = items.clamp_min(0), items >= 0
    if mask is not None:
        valid = valid & mask.gather(-1, column)
    pairs, gone = _removable(layout.exclude, items, grade, mask)
    plain = mask is None and tie_break is None and layout.exclude is None
    engine = cheapest(items.shape[1], scores.shape[1], need.reach if plain else None, scores.device, tie_break)
    if engine is Engine.TOP:
        columns = Columns(lambda: [(0, scores)], scores.shape[1], scores.dtype)
        group = _Group(columns, slice(None), layout.judged, None, need.reach)
        group.add(0, scores)
        return group.ranking(layout.errors, layout.validate, need.reach)
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
        standing, own, grade, valid & ~gone, layout.errors, layout.validate, scores.shape[1], None, layout.ignored
    )


def rank_columns(
    columns: Columns, judged: JudgedItems, exclude: Pairs | None, errors: Tensor, validate: bool, need: Need
) -> Iterator[Ranking]:
    """Places of the judged items among scores that come some columns at a time, of similar queries at a time."""
    every = list(_groups(columns, judged, exclude, need))
    counted = [group for group in every if group.top is None]
    _find_own(columns, counted, [group for group in counted if not group.guess()])
    _read(columns, every)
    differing = sum((group.differing() for group in counted), torch.zeros((), device=errors.device))
    differing = _add_up(columns, counted, differing)
    if reading_is_free(errors) and bool(differing):  # elsewhere nothing is foreseen, as looking would be waiting
        _find_own(columns, counted, counted)
        for group in counted:
            group.begin()
        _read(columns, counted)
        _add_up(columns, counted, differing)
    for group in every:
        yield group.ranking(errors, validate, need.reach)
        errors = torch.zeros_like(errors)


def _find_own(columns: Columns, counted: list[_Group], unknown: list[_Group]) -> None:
    """The scores of judged items, which are to be compared with all others: known once they are ``unknown`` no more.

    They are the very same numbers that all others are compared with: a score made by another product may differ from
    itself in the last bit. So what was foreseen is held against what came out, and counts only if nothing differs.
    """
    if unknown:
        for first, scores in columns.read():
            for group in unknown:
                group.seen.pick(first, scores)
        for group in unknown:
            group.own = group.seen.own
    if columns.shard is not None and counted:
        for group, own in zip(counted, columns.shard.sum(*(group.own for group in counted))):
            group.own = own
    for group in counted:
        group.seen.forget()


def _read(columns: Columns, groups: list[_Group]) -> None:
    for first, scores in columns.read():
        for group in groups:
            group.add(first, scores)
    for group in groups:
        group.subtract()


def _add_up(columns: Columns, counted: list[_Group], differing: Tensor) -> Tensor:
    """The counts of all workers; and where they differ from what was foreseen."""
    if columns.shard is None or not counted:
        return differing
    *totals, differing = columns.shard.sum(*(x for group in counted for x in group.standing), differing)
    for number, group in enumerate(counted):
        group.standing = Standing(*totals[4 * number : 4 * number + 4])
    return differing


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

    def __init__(self, columns: Columns, rows: slice | Tensor, items: Tensor, pairs: Pairs | None) -> None:
        self.rows, self.items, self.pairs, self.dtype = rows, items, pairs, columns.dtype
        self.width = 0
        self.forget()

    def forget(self) -> None:
        """Begin again."""
        self.own = torch.zeros(self.items.shape, dtype=self.dtype, device=self.items.device)
        self.here = torch.zeros_like(self.items, dtype=torch.bool)
        if self.pairs is not None:
            self.pair_scores = torch.zeros(self.pairs.item.shape, dtype=self.dtype, device=self.items.device)
            self.pairs_here = torch.zeros_like(self.pairs.item, dtype=torch.bool)

    def pick(self, first: int, scores: Tensor) -> None:
        """Take what is wanted of the columns from ``first`` on."""
        column, inside = _within(self.items, first, scores)
        if isinstance(self.rows, slice):
            picked = scores[self.rows].gather(-1, column)
        else:
            picked = scores[self.rows.unsqueeze(-1), column]
        self.own = torch.where(inside, picked, self.own)
        self.here = self.here | inside
        self.width = max(self.width, first + scores.shape[1])
        if self.pairs is not None:
            column, inside = _within(self.pairs.item, first, scores)
            query = self.pairs.query
            query = query + (self.rows.start or 0) if isinstance(self.rows, slice) else self.rows[query]
            self.pair_scores = torch.where(inside, scores[query, column], self.pair_scores)
            self.pairs_here = self.pairs_here | inside


class _Group:
    """Queries with similar numbers of judged items, and what the columns that went by say of these."""

    def __init__(
        self, columns: Columns, rows: slice | Tensor, judged: JudgedItems, exclude: Pairs | None, reach: int | None
    ) -> None:
        self.columns, self.rows, self.reach = columns, rows, reach
        self.items, self.grade = judged.rectangle()
        self.ignored = judged.ignored
        self.pairs, self.gone = _removable(exclude, self.items, self.grade, None)
        engine = cheapest(self.items.shape[1], columns.width or MANY, reach, self.items.device, None)
        self.by = stand_by_sorting if engine is Engine.SORT else stand_by_counting
        self.top: Top | None = None
        if reach is not None and (engine is Engine.TOP or not columns.again):
            self.top = Top.nothing(len(self.items), reach, columns.dtype, self.items.device)
        self.seen = _Seen(columns, rows, self.items, self.pairs if self.top is None else None)
        self.own = self.seen.own
        self.begin()

    def begin(self) -> None:
        """Begin again to count."""
        self.standing = Standing.nothing(len(self.items), self.items.shape[1], self.items.device)
        self.seen.forget()

    def guess(self) -> bool:
        """Whether the scores of the judged items can be foreseen."""
        own = None if self.columns.guess is None else self.columns.guess(self.rows, self.items)
        self.own = self.own if own is None else own
        return own is not None

    def add(self, first: int, scores: Tensor) -> None:
        """What the columns from ``first`` on say."""
        self.seen.pick(first, scores)
        for some, block in self._of(scores):
            if self.top is None:
                self.standing.add(self.by(block, self.own[some]), some)
                continue
            assert self.reach is not None
            if self.pairs is not None:
                block = _without(block, self.pairs, first, some.start or 0)
            counts, bad = listed(block, block.amin(-1))
            self.standing.listed[some] += counts
            self.standing.bad[some] += bad
            before = Top(self.top.scores[some], self.top.last[some])
            best = before.merge(Top.of(block, self.reach))
            self.top.scores[some], self.top.last[some] = best.scores, best.last

    def _of(self, scores: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Its rows of the scores, copied some at a time if they are not side by side."""
        if isinstance(self.rows, slice):
            yield slice(None), scores[self.rows]
            return
        step = max(1, COPIED // max(1, scores.shape[1]))
        for start in range(0, len(self.rows), step):
            some = slice(start, start + step)
            yield some, scores[self.rows[some]]

    def subtract(self) -> None:
        """Take excluded pairs out of the counts."""
        if self.pairs is not None and self.top is None:
            here = Pairs(torch.where(self.seen.pairs_here, self.pairs.query, -1), self.pairs.item)
            _subtract(self.standing, here, self.seen.pair_scores, self.own, None, None)

    def differing(self) -> Tensor:
        """How many scores of judged items are not as they were foreseen."""
        seen, own = self.seen.own, self.own
        return (self.seen.here & (seen != own) & ~(seen.isnan() & own.isnan())).sum()

    def ranking(self, errors: Tensor, validate: bool, reach: int | None) -> Ranking:
        """Where the judged items stand."""
        columns, own, standing = self.columns, self.own, self.standing
        if self.top is not None:
            own, top = self.seen.own, self.top
            if columns.shard is not None:
                own, counts, bad = columns.shard.sum(own, standing.listed, standing.bad)
                standing, top = standing._replace(listed=counts, bad=bad), top.gather(columns.shard)
            greater, equal = top.before_and_in_tie(own)
            standing = standing._replace(greater=greater, equal=equal)
        valid, width = (self.items >= 0) & ~self.gone, columns.width
        if width is None:
            width = self.seen.width
            outside = self.items >= width
            errors, valid = errors + count(Problem.OUT_OF_RANGE, outside), valid & ~outside
            if self.pairs is not None:
                errors = errors + count(Problem.OUT_OF_RANGE, self.pairs.item >= width)
        reach = None if self.top is None else reach
        ranking = _placed(standing, own, self.grade, valid, errors, validate, max(1, width), reach, self.ignored)
        if isinstance(self.rows, Tensor):
            return replace(ranking, queries=self.rows)
        if self.rows == slice(None):
            return ranking
        return replace(ranking, queries=torch.arange(self.rows.start, self.rows.stop, device=own.device))


def _groups(columns: Columns, judged: JudgedItems, exclude: Pairs | None, need: Need) -> Iterator[_Group]:
    """Queries for which another rectangle of judged items, or another engine, costs less than padding would."""
    sizes, device = judged.sizes, judged.items.device
    engines = range(1, 2**10)  # far beyond the number from which counting is not the cheapest
    alike = bisect.bisect_left(
        engines,
        True,
        key=lambda entries: cheapest(entries, columns.width or MANY, need.reach, device, None) is not Engine.COUNT,
    )
    for rows, _ in groups(sizes, OVERHEAD + 2 * len(sizes), BLOCK, alike=max(1, alike)):
        if len(rows) == len(sizes):
            yield _Group(columns, slice(None), judged, exclude, need.reach)
            return
        start, stop = int(rows[0]), int(rows[-1]) + 1
        if stop - start == len(rows) and bool((rows.diff() == 1).all()):
            inside = slice(start, stop)
            pairs = None if exclude is None else exclude.rows(start, stop)
            yield _Group(columns, inside, judged[inside], pairs, need.reach)
            continue
        assert isinstance(judged, Ragged)
        number = torch.full((len(sizes) + 1,), -1, device="cpu")
        number = number.index_copy_(0, rows, torch.arange(len(rows), device="cpu")).to(device, non_blocking=True)
        pairs = None if exclude is None else exclude.numbered(number)  # -1 is the last
        yield _Group(columns, rows.to(device, non_blocking=True), judged.take(rows), pairs, need.reach)


def _within(items: Tensor, first: int, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The columns of items among those from ``first`` on, and which of the items are there at all."""
    column, last = items - first, scores.shape[1] - 1
    return column.clamp(0, last), (column >= 0) & (column <= last)


def _without(scores: Tensor, pairs: Pairs, first: int, start: int) -> Tensor:
    """A copy of some columns of the queries from ``start`` on in which excluded pairs are not retrieved."""
    column, inside = _within(pairs.item, first, scores)
    query = pairs.query - start
    inside = inside & (pairs.query >= 0) & (query >= 0) & (query < len(scores))
    at = query.clamp(0, len(scores) - 1) * scores.shape[1] + column
    bound = torch.where(inside, float("-inf"), float("inf")).to(scores.dtype)
    return scores.flatten().scatter_reduce(0, at, bound, "amin").view_as(scores)


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
) -> Ranking:
    if validate:
        errors = errors + count(Problem.NAN_SCORES, standing.bad > 0, ignored)
    dtype = widest_float(own.device)
    tied = torch.where(valid & (own > float("-inf")), standing.equal, 0).to(dtype)
    first = (standing.greater + 1).to(dtype)
    return Ranking.in_rank_order(first, tied, grade, valid, standing.listed.to(dtype), errors, width, reach)


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
