"""Engines for judged items: in matrices, blocks of columns, products of embeddings, groups of queries, lists of ids."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchrank.engine.comparing import ahead_and_tied, count_by_comparing, count_retrieved
from torchrank.engine.counting import Counting, JudgedScores, Top, cheapest, count_by_sorting
from torchrank.engine.counts import ScoreCounts, Thresholds
from torchrank.engine.plan import Plan, cut, fused_precision
from torchrank.engine.sorting import sorted_rows
from torchrank.hardware import costs
from torchrank.hardware.devices import multiplying, scalar, widest_float
from torchrank.layouts.arrange import Shard
from torchrank.layouts.canonical import (
    CatalogueLayout,
    EmbeddedLayout,
    Judged,
    Need,
    Pairs,
    RankedIds,
    StreamedLayout,
    buckets,
)
from torchrank.layouts.checks import Problem, count
from torchrank.layouts.conversions import found, listed_ids, removed
from torchrank.ranking.ranking import Ranking, Tolerance, depth_of


def removable(
    exclude: Pairs | None, items: Tensor, grade: Tensor, mask: Tensor | None, labels: bool
) -> tuple[Pairs | None, Tensor | None]:
    """The excluded pairs that must be removed, and the entries that they remove, bool [query, entry]; None = none.

    Pairs that are relevant, or no candidates under ``mask``, get query -1.

    Args:
        exclude: the pairs.
        items: the judged items, int64 [query, entry].
        grade: their grades, [query, entry].
        mask: bool [query, candidate].
        labels: each query has at most one judged item, which is relevant. Then pairs remove no entries.
    """
    if exclude is None:
        return None, None
    query, item = exclude.query, exclude.item
    if mask is not None:
        query = query.masked_fill(~mask[query, item], -1)
    if labels:  # a pair of query -1 reads the last label, and keeps its -1
        return Pairs(query.masked_fill(items[:, 0][query] == item, -1), item), None
    if items.shape[1] > costs.now.compared:
        applies, gone = removed(Pairs(query, item), items, grade)
        return Pairs(query.masked_fill(~applies, -1), item), gone
    query, gone = query.clone(), torch.zeros_like(items, dtype=torch.int32)
    # Some pairs at a time, because each is compared with all judged items of its query.
    step = max(1, costs.now.room(items) // items.shape[1])
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        row = query[part]
        judged = (items[row] == item[part].unsqueeze(-1)) & (row >= 0).unsqueeze(-1)
        relevant = (judged & (grade[row] > 0)).any(-1)
        gone.index_add_(0, row.clamp_min(0), (judged & ~relevant.unsqueeze(-1)).int())
        query[part] = torch.where(relevant, -1, row)
    return Pairs(query, item), gone > 0


def subtract(
    counts: ScoreCounts,
    pairs: Pairs,
    scores: Tensor,
    judged: Tensor,
    tie_break: Tensor | None,
    judged_tie_break: Tensor | None,
) -> None:
    """Subtract excluded pairs from the counts, in place. This reads the pairs only, and not all scores again."""
    if judged.shape[1] > costs.now.compared:
        _subtract_sorted(counts, pairs, scores, judged, tie_break, judged_tie_break)
        return
    step = max(1, costs.now.room(judged) // judged.shape[1])
    for start in range(0, len(pairs.query), step):
        part = slice(start, start + step)
        query, score = pairs.query[part], scores[part].unsqueeze(-1)
        real = (query >= 0).unsqueeze(-1)  # a pair of query -1 subtracts 0 from query 0
        tie = None if tie_break is None else tie_break[part].unsqueeze(-1)
        ahead, tied = ahead_and_tied(
            score, tie, judged[query], None if judged_tie_break is None else judged_tie_break[query]
        )
        query = query.clamp_min(0)
        counts.greater.index_add_(0, query, -(ahead & real).long())
        counts.equal.index_add_(0, query, -(tied & real).long())
        counts.retrieved.index_add_(0, query, -(real & (score > float("-inf"))).squeeze(-1).long())


def _subtract_sorted(
    counts: ScoreCounts,
    pairs: Pairs,
    scores: Tensor,
    judged: Tensor,
    tie_break: Tensor | None,
    judged_tie_break: Tensor | None,
) -> None:
    """Subtract excluded pairs from the counts, in place.

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
    order = judged.argsort(dim=-1, stable=True) if judged_tie_break is None else _by_both(judged, judged_tie_break)
    # Entries in ascending order, NaN last.
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
    # The n-th entry is behind each pair that is ahead of at least the first n entries.
    behind = counted.view(2, queries, entries + 1).flip(-1).cumsum(-1).flip(-1)[..., 1:]
    ahead, at_least = torch.zeros_like(behind).scatter_(-1, order.expand_as(behind), behind)
    counts.greater.sub_(ahead)
    counts.equal.sub_(at_least - ahead)


def _by_both(judged: Tensor, tie_break: Tensor) -> Tensor:
    """Order of the entries by score, and by tie break among equal scores."""
    by_tie_break = tie_break.argsort(dim=-1, stable=True)
    return by_tie_break.gather(-1, judged.gather(-1, by_tie_break).argsort(dim=-1, stable=True))


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


@dataclass(frozen=True, eq=False)
class Columns:
    """Scores [query, item] that exist only some columns at a time."""

    #: returns (first column, scores [query, column]) from left to right
    read: Callable[[], Iterable[tuple[int, Tensor]]]
    #: number of columns of all workers; None = unknown before the reading
    width: int | None
    dtype: torch.dtype
    #: whether ``read`` can be called more than once
    again: bool
    #: within which scores are tied with that of a relevant item; None = only equal ones are
    tolerance: Tolerance | None
    #: number of columns of each reading but the last, at most; None = unknown
    at_once: int | None = None
    #: returns the scores of pairs, given rows and items [pair], without a reading; None if a reading costs less
    score: Callable[[Tensor, Tensor], Tensor | None] | None = None
    #: whether all scores are known to be finite
    finite: bool = False
    #: this worker's part, if other workers have other columns of the same queries
    shard: Shard | None = None


class Seen:
    """Scores of judged items and of excluded pairs, picked from the columns as they are read."""

    def __init__(self, rows: slice | Tensor, items: Tensor, pairs: Pairs | None, dtype: torch.dtype) -> None:
        self.shape, self.width = items.shape, 0
        if isinstance(rows, slice):
            rows = torch.arange(len(items), device=items.device) + (rows.start or 0)
        #: rows of the whole batch and items, judged items before excluded pairs: int64 [pair] each
        self.row, self.item = rows.unsqueeze(-1).expand_as(items).flatten(), items.flatten()
        if pairs is not None:  # a pair of query -1 reads the last row, without effect
            self.row, self.item = torch.cat([self.row, rows[pairs.query]]), torch.cat([self.item, pairs.item])
        self.scores = torch.zeros(self.item.shape, dtype=dtype, device=items.device)
        self.here = torch.zeros_like(self.item, dtype=torch.bool)

    @property
    def judged_scores(self) -> Tensor:
        """Scores of the judged items [query, entry], 0 for those that were not seen."""
        return self.scores[: self.shape.numel()].view(self.shape)

    def pick(self, first: int, scores: Tensor) -> None:
        """Pick from scores [query, column] of the columns from ``first`` on."""
        column, inside = within(self.item, first, scores)
        self.scores = torch.where(inside, scores[self.row, column], self.scores)
        self.here = self.here | inside
        self.width = max(self.width, first + scores.shape[1])


def within(items: Tensor, first: int, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The columns of items in scores that begin at column ``first``, clamped; and whether the items are in there."""
    column, last = items - first, scores.shape[1] - 1
    return column.clamp(0, last), (column >= 0) & (column <= last)


def rank_catalogue(layout: CatalogueLayout, method: Counting, reach: int | None) -> Ranking:
    """Rank the judged items in a matrix of scores."""
    scores, mask, tie_break = layout.scores, layout.mask, layout.tie_break
    items, grade = layout.judged.rectangle()
    column = items.clamp_min(0)
    valid = grade.view(torch.bool) if layout.judged.labels else items >= 0
    if mask is not None:
        valid = valid & mask.gather(-1, column)
    pairs, removed = removable(layout.exclude, items, grade, mask, layout.judged.labels)
    judged_scores = scores.gather(-1, column)
    # Padding and NaN get the score -inf: no score counts as equal to -inf, and all retrieved scores are above -inf. Not
    # with excluded pairs, because a pair with the score -inf would be subtracted from a count of 0.
    counting = method.value
    placed = counting.lowest_is_alone and tie_break is None and pairs is None
    if placed:
        lowest = scalar(-math.inf, judged_scores.dtype, judged_scores.device)
        judged_scores = torch.where(valid, judged_scores, lowest).fmax(lowest)
    judged_tie_break = None if tie_break is None else tie_break.gather(-1, column)
    # Excluded pairs are subtracted from integers. Without pairs, the counts have the dtype of ranks at once.
    dtype = widest_float(judged_scores.device) if placed else torch.int64
    counts = counting.count(
        JudgedScores(scores, mask, tie_break, column, judged_scores, judged_tie_break, reach, dtype)
    )
    # Excluded pairs are counted above and subtracted here, so that the scores need not be copied.
    if pairs is not None:
        # A flat index is faster than two indexes. A pair with query -1 reads the last row, and has no effect.
        place = pairs.query * scores.shape[1] + pairs.item
        pair_tie_break = None if tie_break is None else tie_break.take(place)
        subtract(counts, pairs, scores.take(place), judged_scores, pair_tie_break, judged_tie_break)
    valid = valid if removed is None else valid & ~removed
    return as_ranking(
        counts,
        judged_scores,
        grade,
        valid,
        layout.errors,
        layout.validate,
        scores.shape[1],
        reach,
        layout.judged,
        placed=placed,
    )


def rank_columns(
    columns: Columns, judged: Judged, exclude: Pairs | None, errors: Tensor, validate: bool, need: Need
) -> Iterator[Ranking]:
    """Rank the judged items among scores that come in blocks of columns; yields a ranking for each group of queries.

    Counting needs the scores of the judged items before the first block. These scores are computed from the embeddings,
    or read in a first pass over all columns.
    """
    all_groups = list(_groups(columns, judged, exclude, need))
    counted = [group for group in all_groups if group.top is None]
    _set_judged_scores(columns, counted, [group for group in counted if not group.compute_scores()])
    _read(columns, all_groups)
    # The counts are wrong if a computed score differs from the score in the column, even in the last bit. Then a CPU
    # counts again with the scores from the columns. On an accelerator this check would make the host wait, so there a
    # difference is an error.
    checked = counted if errors.is_cpu else []
    differing = sum((group.differing() for group in checked), torch.zeros((), device=errors.device))
    differing = _sum_over_workers(columns, counted, differing)
    if errors.is_cpu and bool(differing):
        _set_judged_scores(columns, counted, counted)
        for group in counted:
            group.begin()
        _read(columns, counted)
        _sum_over_workers(columns, counted, differing)
    for group in all_groups:
        yield group.ranking(errors, validate)
        errors = torch.zeros_like(errors)


def _set_judged_scores(columns: Columns, counted: list[_Group], unknown: list[_Group]) -> None:
    """Set ``judged_scores``, the scores of the judged items, of the groups that are ranked by counting.

    Args:
        columns: the scores.
        counted: all groups that are ranked by counting.
        unknown: the groups without computed scores, which are read from the columns in a separate pass.
    """
    if unknown:
        for first, scores in columns.read():
            for group in unknown:
                group.seen.pick(first, scores)
        for group in unknown:
            group.judged_scores, group.picks = group.seen.judged_scores, group.items.is_cpu
    # An item has its score on one worker and 0 on all other workers, so the sum is the score.
    if columns.shard is not None and counted:
        for group, judged_scores in zip(counted, columns.shard.sum(*(group.judged_scores for group in counted))):
            group.judged_scores = judged_scores


def _read(columns: Columns, groups: list[_Group]) -> None:
    """Read all columns once, and count them for all groups."""
    for first, scores in columns.read():
        for group in groups:
            group.add(first, scores)
    for group in groups:
        group.subtract()


def _sum_over_workers(columns: Columns, counted: list[_Group], differing: Tensor) -> Tensor:
    """Sum the counts over the workers, in place, and return the sum of ``differing``, by a single collective."""
    if columns.shard is None or not counted:
        return differing
    *totals, differing = columns.shard.sum(*(x for group in counted for x in group.counts), differing)
    for number, group in enumerate(counted):
        group.counts = ScoreCounts(*totals[4 * number : 4 * number + 4])  # each group has four tensors of counts
    return differing


class _Group:
    """Queries with similar numbers of judged items, and their counts over the columns read so far."""

    def __init__(
        self, columns: Columns, rows: slice | Tensor, judged: Judged, exclude: Pairs | None, reach: int | None
    ) -> None:
        self.columns, self.rows, self.reach = columns, rows, reach
        self.items, self.grade = judged.rectangle()
        self.judged = judged
        self.pairs, self.removed = removable(exclude, self.items, self.grade, None, judged.labels)
        method = cheapest(self.items.shape[1], _width(columns), reach, self.items.device, None)
        self.sort = method is Counting.SORT
        self.top: Top | None = None
        # Columns that can be read only once rule out counting, which needs the scores of the judged items first.
        select_best = method is Counting.TOP and columns.tolerance is None
        if reach is not None and (select_best or not columns.again):
            self.top = Top.nothing(len(self.items), reach, columns.dtype, self.items.device)
        self.seen = Seen(rows, self.items, self.pairs if self.top is None else None, columns.dtype)
        #: whether the counting pass also picks the scores of judged items and excluded pairs
        self.picks = True
        self.judged_scores = self.seen.judged_scores
        self.begin()

    @property
    def judged_scores(self) -> Tensor:
        """Scores of the judged items, [query, entry]."""
        return self._thresholds.scores

    @judged_scores.setter
    def judged_scores(self, scores: Tensor) -> None:
        self._thresholds = Thresholds(scores, self.columns.finite)

    def begin(self) -> None:
        """Reset the counts, before another reading."""
        self.counts = ScoreCounts.nothing(self.items.shape, self.items.device)

    def compute_scores(self) -> bool:
        """Compute the scores of the judged items only; False if these scores must be read from the columns."""
        score, item = self.columns.score, self.items.flatten()
        judged_scores = None if score is None else score(self.seen.row[: len(item)], item)
        if judged_scores is None:
            return False
        self.judged_scores, self.picks = judged_scores.view(self.items.shape), item.is_cpu or self.pairs is not None
        return True

    def add(self, first: int, scores: Tensor) -> None:
        """Count a block of scores [query, column], whose first column has the number ``first``."""
        if self.picks:
            self.seen.pick(first, scores)
        for some_rows, part in self._parts(scores):
            if self.top is None:
                self._count(part, some_rows)
                continue
            assert self.reach is not None
            # Excluded pairs could push candidates out of the best scores, so they are removed before the search.
            if self.pairs is not None:
                part = _without_pairs(part, self.pairs, first, some_rows.start or 0)
            retrieved, has_nan = count_retrieved(part, finite=self.columns.finite and self.pairs is None)
            self.counts.retrieved[some_rows] += retrieved
            self.counts.has_nan[some_rows] += has_nan
            best = Top.of(part, self.reach)
            if first:  # before column 0 there are no best scores
                best = best.merge(Top(self.top.scores[some_rows], self.top.last[some_rows]))
            self.top.scores[some_rows], self.top.last[some_rows] = best.scores, best.last

    def _count(self, scores: Tensor, some_rows: slice) -> None:
        """Count scores [query, column] of ``some_rows`` of the group."""
        # The thresholds of some rows are computed again for each block: little work, because the rows are copied too.
        thresholds = self._thresholds
        if some_rows != slice(None):
            thresholds = Thresholds(self._snapped(self.judged_scores[some_rows], some_rows), self.columns.finite)
        scores, total = self._snapped(scores, some_rows), ScoreCounts._make(x[some_rows] for x in self.counts)
        if self.sort:
            total.add(count_by_sorting(scores, thresholds.scores))
        else:
            count_by_comparing(scores, thresholds, total=total)

    def _snapped(self, scores: Tensor, rows: slice | Tensor) -> Tensor:
        """Scores of ``rows`` of the group; a score within the tolerance becomes that of the nearest relevant item."""
        if self.columns.tolerance is None:
            return scores
        return self.columns.tolerance.snapped(scores, torch.where(self.grade > 0, self.judged_scores, -math.inf)[rows])

    def _parts(self, scores: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yields rows of the group and their scores; a few rows at a time if scores are copied or snapped."""
        rows = self.rows
        if isinstance(rows, slice) and self.columns.tolerance is None:
            yield slice(None), scores[rows]
            return
        step = max(1, costs.now.copied // max(1, scores.shape[1]))
        for start in range(0, len(self.items), step):
            some_rows = slice(start, start + step)
            yield some_rows, scores[rows][some_rows] if isinstance(rows, slice) else scores[rows[some_rows]]

    def subtract(self) -> None:
        """Subtract the excluded pairs from the counts."""
        if self.pairs is not None and self.top is None:
            # Each worker subtracts only the pairs in its columns.
            judged = self.items.numel()
            local = Pairs(torch.where(self.seen.here[judged:], self.pairs.query, -1), self.pairs.item)
            scores = self._snapped(self.seen.scores[judged:].unsqueeze(-1), self.pairs.query).squeeze(-1)
            subtract(self.counts, local, scores, self._snapped(self.judged_scores, slice(None)), None, None)

    def differing(self) -> Tensor:
        """Number of judged items whose computed score differs from the score in the columns."""
        seen, judged_scores = self.seen.judged_scores, self.judged_scores
        on_this_worker = self.seen.here[: judged_scores.numel()].view(judged_scores.shape)
        return (on_this_worker & (seen != judged_scores) & ~(seen.isnan() & judged_scores.isnan())).sum()

    def ranking(self, errors: Tensor, validate: bool) -> Ranking:
        """The ranking of the group, after all columns were read."""
        columns, judged_scores, counts = self.columns, self.judged_scores, self.counts
        if self.top is not None:
            judged_scores, top = self.seen.judged_scores, self.top
            if columns.shard is not None:
                judged_scores, retrieved, has_nan = columns.shard.sum(judged_scores, counts.retrieved, counts.has_nan)
                counts, top = counts._replace(retrieved=retrieved, has_nan=has_nan), top.gather(columns.shard)
            greater, equal = top.before_and_in_tie(judged_scores)
            counts = counts._replace(greater=greater, equal=equal)
        valid, width = self.items >= 0, columns.width
        valid = valid if self.removed is None else valid & ~self.removed
        if width is None:  # the number of columns was unknown before the pass, so items are checked here
            width = self.seen.width
            outside = self.items >= width
            errors, valid = errors + count(Problem.OUT_OF_RANGE, outside), valid & ~outside
            if self.pairs is not None:
                errors = errors + count(Problem.OUT_OF_RANGE, self.pairs.item >= width)
        if self.top is None and not judged_scores.is_cpu:  # a CPU has counted such scores again
            differing = valid & (judged_scores > float("-inf")) & (counts.equal == 0)
            errors = count(Problem.UNEQUAL_SCORES, differing, others=errors)
        ranking = as_ranking(
            counts, judged_scores, self.grade, valid, errors, validate, max(1, width), self.reach, self.judged
        )
        if isinstance(self.rows, Tensor):
            return replace(ranking, queries=self.rows)
        if self.rows == slice(None):
            return ranking
        return replace(ranking, queries=torch.arange(self.rows.start, self.rows.stop, device=judged_scores.device))


def _groups(columns: Columns, judged: Judged, exclude: Pairs | None, need: Need) -> Iterator[_Group]:
    """Group queries with similar numbers of judged items, if the overhead of more groups costs less than padding."""
    sizes, device = judged.sizes, judged.items.device
    for rows, _ in buckets(sizes, costs.now.rectangle_counted + 2 * len(sizes), costs.now.block):
        if len(rows) == len(sizes):
            yield _Group(columns, slice(None), judged, exclude, need.reach)
            return
        start, stop = int(rows[0]), int(rows[-1]) + 1
        if stop - start == len(rows) and bool((rows.diff() == 1).all()):  # consecutive rows need no copy
            inside = slice(start, stop)
            pairs = None if exclude is None else exclude.rows(start, stop)
            yield _Group(columns, inside, judged[inside], pairs, need.reach)
            continue
        # The number of each query within the group; -1 = not in the group. The last element is for pairs of query -1.
        number = torch.full((len(sizes) + 1,), -1, device="cpu")
        number = number.index_copy_(0, rows, torch.arange(len(rows), device="cpu")).to(device, non_blocking=True)
        pairs = None if exclude is None else exclude.numbered(number)
        yield _Group(columns, rows.to(device, non_blocking=True), judged.take(rows), pairs, need.reach)


def _width(columns: Columns) -> int:
    """Number of columns in a block, from which the cheapest method follows."""
    return columns.at_once or columns.width or costs.now.columns


def _without_pairs(scores: Tensor, pairs: Pairs, first: int, start: int) -> Tensor:
    """A copy of ``scores`` [query, column] in which excluded pairs have -inf.

    The scores begin at column ``first`` and at query ``start``.
    """
    column, inside = within(pairs.item, first, scores)
    query = pairs.query - start
    inside = inside & (pairs.query >= 0) & (query >= 0) & (query < len(scores))
    place = query.clamp(0, len(scores) - 1) * scores.shape[1] + column
    # For a pair in these scores take the minimum with -inf; for any other pair the minimum with inf, which changes
    # nothing. So there is no branch on values, for which the host would wait for an accelerator.
    bound = torch.where(inside, float("-inf"), float("inf")).to(scores.dtype)
    return scores.flatten().scatter_reduce(0, place, bound, "amin").view_as(scores)


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
    tied = counts.equal if placed else torch.where(valid & (judged_scores > float("-inf")), counts.equal, zero)
    first, lengths = counts.greater + one, counts.retrieved.to(dtype)
    return Ranking.in_rank_order(
        first, tied, grade, valid, lengths, errors, width, reach, placed=placed, of_labels=judged.labels
    )


def rank_fused(layout: EmbeddedLayout) -> Iterator[Ranking]:
    """Rank the judged items; yields one ranking.

    The score of a judged item is computed twice: for itself, and among all others. Both must have the same bits, or the
    item would rank behind itself. They are compared on the device, and ``compute`` raises if they differ.
    """
    from torchrank.engine.kernels import count_products

    queries, shard = layout.queries.contiguous(), layout.shard
    catalogue, precision = layout.catalogue.contiguous(), fused_precision(layout)
    assert precision is not None
    scored = functools.partial(_scores, queries, catalogue, precision)
    items, grade = layout.judged.rectangle()
    pairs, gone = removable(layout.exclude, items, grade, None, layout.judged.labels)
    local = items - layout.offset
    here = (local >= 0) & (local < len(catalogue)) & (items >= 0)
    query = torch.arange(len(items), device=items.device).unsqueeze(-1).expand_as(items)
    judged = scored(query, local, here)
    if shard is not None:  # a worker has 0 for the items of other workers, so the sum is the score
        (judged,) = shard.sum(judged)
    layout.progress(1)
    counts = ScoreCounts.nothing(judged.shape, judged.device)
    count_products(queries, catalogue, judged, precision, counts)
    differing = count(Problem.UNEQUAL_SCORES, here & (judged > float("-inf")) & (counts.equal == 0))
    if pairs is not None:
        column = pairs.item - layout.offset
        inside = (pairs.query >= 0) & (column >= 0) & (column < len(catalogue))
        removed = Pairs(torch.where(inside, pairs.query, -1), pairs.item)
        subtract(counts, removed, scored(pairs.query, column, inside), judged, None, None)
    if shard is not None:
        *totals, differing = shard.sum(*counts, differing)
        counts = ScoreCounts(*totals)
    layout.progress(-1)
    valid = items >= 0 if gone is None else (items >= 0) & ~gone
    errors = layout.errors + differing
    yield as_ranking(counts, judged, grade, valid, errors, layout.validate, layout.total, None, layout.judged)


def _scores(queries: Tensor, catalogue: Tensor, precision: str, query: Tensor, item: Tensor, there: Tensor) -> Tensor:
    """Scores of pairs, of the shape of their numbers; 0 for pairs that are not ``there``."""
    from torchrank.engine.kernels import score_pairs

    if not len(catalogue):
        return torch.zeros(query.shape, dtype=torch.float32, device=query.device)
    row, column = (torch.where(there, x, 0).flatten() for x in (query, item))
    return torch.where(there, score_pairs(queries, catalogue, row, column, precision).view(query.shape), 0)


def rank_embedded(plan: Plan, need: Need) -> Iterator[Ranking]:
    """Score chunks of queries, some items at a time. Judged items get their scores from the same products as others."""
    layout, start = plan.layout, 0
    finite = _finite(layout.queries, layout.catalogue)
    for chunk in cut(layout, plan.chunks):
        queries = torch.arange(chunk.num_queries, device=layout.queries.device)
        for ranking in _rank(chunk, need, finite):
            number = queries if ranking.queries is None else ranking.queries
            yield replace(ranking, queries=number + start)
        start += chunk.num_queries


def _finite(queries: Tensor, catalogue: Tensor) -> bool:
    """Whether all products are known to be finite. False where finding out costs more than it saves."""
    dimension = queries.shape[1]
    if not queries.is_cpu or not len(catalogue) or not 0 < dimension <= len(queries):
        return False
    # A comparison with NaN is False. Half of the largest number leaves room for rounding.
    largest = [max(abs(float(bound)) for bound in x.aminmax()) for x in (queries, catalogue)]
    return dimension * math.prod(largest) <= torch.finfo(queries.dtype).max / 2


def _rank(layout: EmbeddedLayout, need: Need, finite: bool) -> Iterator[Ranking]:
    """Rank one chunk of queries. ``finite``: whether all products are known to be finite."""
    catalogue, chunk, free = layout.catalogue, layout.chunk, layout.queries.is_cpu
    queries = layout.queries.to(layout.score_dtype)
    width = min(chunk, len(catalogue))
    starts = range(0, len(catalogue), chunk)
    # All products share one buffer: each is used up before the next one is computed.
    buffer = queries.new_empty(len(queries) * width)

    def multiply(items: Tensor) -> Tensor:
        out = buffer[: len(queries) * len(items)].view(len(queries), len(items))
        with multiplying(layout.precision, queries.device):
            return torch.mm(queries, layout.factors(items).T, out=out)

    def product(start: int) -> tuple[int, Tensor]:
        # On a device all products have one shape, so the last one begins before its first new column.
        first = start if free else min(start, len(catalogue) - width)
        return layout.offset + start, multiply(catalogue[first : first + chunk])[:, start - first :]

    def products() -> Iterator[tuple[int, Tensor]]:
        layout.progress(len(starts))
        for start in starts:
            yield product(start)
            layout.progress(-1)

    def score(row: Tensor, item: Tensor) -> Tensor | None:
        local = item - layout.offset
        here = (local >= 0) & (local < len(catalogue))
        local = torch.where(here, local, 0)
        scores = _guess(layout, row, local) if free else _paired(layout, multiply, width, row, local)
        return None if scores is None else torch.where(here, scores, 0)

    # A single product is kept and read twice. Several are computed again, unless the scores of the judged items are
    # computed alone.
    made = list(products()) if len(starts) == 1 else None
    alone = score if len(starts) > 1 else None
    read = products if made is None else lambda: made
    columns = Columns(read, layout.total, queries.dtype, True, layout.tolerance, chunk, alone, finite, layout.shard)
    yield from rank_columns(columns, layout.judged, layout.exclude, layout.errors, layout.validate, need)


def rank_streamed(layout: StreamedLayout, need: Need) -> Iterator[Ranking]:
    """Rank the judged items among scores that the user gives in blocks of columns."""

    def read() -> Iterator[tuple[int, Tensor]]:
        first = 0
        for scores in layout.scores():
            if scores.shape[1]:
                yield first, scores
            first += scores.shape[1]

    columns = Columns(read, None, layout.dtype, layout.again, layout.tolerance)
    yield from rank_columns(columns, layout.judged, layout.exclude, layout.errors, layout.validate, need)


def _guess(layout: EmbeddedLayout, row: Tensor, item: Tensor) -> Tensor | None:
    """Predicted scores of pairs, in the order of the pairs; None if the prediction is expensive. It is checked later.

    The predictions are the diagonals of matrix products, because sums over single rows round in another way.
    """
    step, queries, catalogue = costs.now.predicted, layout.queries, layout.catalogue
    if costs.now.predicted_share * step * len(item) > layout.total * len(queries):
        return None
    scores = torch.empty(len(item), dtype=layout.score_dtype, device=item.device)
    for start in range(0, len(item), step):
        some = slice(start, start + step)
        left, right = queries[row[some]].to(scores.dtype), layout.factors(catalogue[item[some]])
        with multiplying(layout.precision, item.device):
            scores[some] = (left @ right.T).diagonal()
    return scores


def _paired(
    layout: EmbeddedLayout, multiply: Callable[[Tensor], Tensor], width: int, row: Tensor, item: Tensor
) -> Tensor | None:
    """Scores of pairs by products of the shape of all others, which a device computes in the same way, to the bit.

    None if they are more than the products of the whole catalogue, or if a copy of so many items takes much memory.
    """
    items = width * layout.queries.shape[1] * layout.queries.element_size()
    if not 0 < len(item) <= len(layout.catalogue) or items > costs.now.cached_bytes:
        return None
    rows, parts = (torch.nn.functional.pad(x, (0, -len(x) % width)).view(-1, width) for x in (row, item))
    column = torch.arange(width, device=item.device)
    scores = [multiply(layout.catalogue[part])[some, column] for some, part in zip(rows, parts)]
    return torch.cat(scores)[: len(item)]


def rank_sparse(layout: CatalogueLayout) -> Iterator[Ranking]:
    """Rank the judged items, and yield rankings of queries with similar numbers of them.

    For layouts without mask, exclusions and tie breaks, on the CPU.
    """
    scores, judged, errors = layout.scores, layout.judged, layout.errors
    queries, candidates = scores.shape
    sizes = judged.sizes
    owner = torch.repeat_interleave(torch.arange(queries, device="cpu"), sizes)
    judged_scores = scores[owner, judged.items]
    # Sorted by score within each query, the entries are in rank order without another sort.
    order = sorted_rows(judged_scores, owner).rows
    judged_scores, grade, start = judged_scores[order], judged.grade[order], sizes.cumsum(0) - sizes
    dtype = widest_float(scores.device)
    for group, width in buckets(sizes, max(1, costs.now.rectangle_compared // candidates), costs.now.block):
        complete = len(group) == queries
        compares = cheapest(width, candidates, None, scores.device, None) is Counting.COUNT
        for chosen in [group] if complete else group.split(max(1, costs.now.copied_lists // candidates)):
            position = torch.arange(width, device="cpu")
            valid = position < sizes[chosen].unsqueeze(-1)
            slot = torch.where(valid, start[chosen].unsqueeze(-1) + position, 0)
            mine = judged_scores[slot] if len(judged_scores) else judged_scores.new_zeros(slot.shape)
            lists = scores if complete else scores[chosen]
            counts = count_by_comparing(lists, Thresholds(mine)) if compares else count_by_sorting(lists, mine)
            retrieved = valid & (mine > float("-inf"))
            lengths = counts.retrieved.to(dtype)
            first = torch.where(retrieved, (counts.greater + 1).to(dtype), (lengths + 1).unsqueeze(-1))
            tied = torch.where(retrieved, counts.equal, 0).to(dtype)
            if layout.validate:
                errors = errors + count(Problem.NAN_SCORES, counts.has_nan)
            grades = (
                torch.where(valid, grade[slot], 0) if len(judged_scores) else torch.zeros_like(slot, dtype=grade.dtype)
            )
            yield Ranking(first, tied, grades, valid, lengths, errors, depth_of(first, tied), queries=chosen)
            errors = torch.zeros_like(errors)


def rank_ids(layout: RankedIds) -> Ranking:
    """Rank the judged ids; judged ids that are not in their list are not retrieved."""
    items, grade = layout.judged.rectangle()
    ids, valid, errors = listed_ids(layout, items, grade)
    position = found(items, ids)
    # A rank is the number of candidates up to a position, because padding and excluded ids take no rank. Position 0
    # (not in the list) has the rank behind the list.
    number = (ids >= 0).cumsum(-1, dtype=widest_float(ids.device))
    length = number[:, -1]
    rank = torch.cat([length.unsqueeze(-1) + 1, number], -1).gather(-1, position)
    tied, labels = (position > 0).to(rank.dtype), layout.judged.labels
    return Ranking.in_rank_order(rank, tied, grade, valid, length, errors, depth=1, placed=True, of_labels=labels)
