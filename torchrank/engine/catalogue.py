"""Engine for a few judged items in long lists, whose scores are a matrix, blocks of columns, or spread over workers."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torchrank.engine.columns import Columns, Seen, within
from torchrank.engine.comparing import count_by_comparing, count_retrieved
from torchrank.engine.counting import Counting, JudgedScores, cheapest, count_by_sorting
from torchrank.engine.excluded import removable, subtract
from torchrank.engine.score_counts import ScoreCounts
from torchrank.engine.thresholds import Thresholds
from torchrank.engine.topk import Top
from torchrank.hardware import costs
from torchrank.hardware.devices import scalar, widest_float
from torchrank.layouts.canonical import CatalogueLayout, JudgedItems, Need, Pairs, Ragged, groups
from torchrank.layouts.checks import Problem, count
from torchrank.ranking.ranking import Ranking


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
    columns: Columns, judged: JudgedItems, exclude: Pairs | None, errors: Tensor, validate: bool, need: Need
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
        self, columns: Columns, rows: slice | Tensor, judged: JudgedItems, exclude: Pairs | None, reach: int | None
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


def _groups(columns: Columns, judged: JudgedItems, exclude: Pairs | None, need: Need) -> Iterator[_Group]:
    """Group queries with similar numbers of judged items, if the overhead of more groups costs less than padding."""
    sizes, device = judged.sizes, judged.items.device
    # The cost of counting grows with the number of judged items. From ``alike`` items on, another method is cheaper and
    # padding costs little. The range ends far above ``alike``.
    numbers = range(1, 2**10)
    width = _width(columns)
    alike = bisect.bisect_left(
        numbers,
        True,
        key=lambda entries: cheapest(entries, width, need.reach, device, None) is not Counting.COUNT,
    )
    for rows, _ in groups(sizes, costs.now.rectangle_counted + 2 * len(sizes), costs.now.block, alike=max(1, alike)):
        if len(rows) == len(sizes):
            yield _Group(columns, slice(None), judged, exclude, need.reach)
            return
        start, stop = int(rows[0]), int(rows[-1]) + 1
        if stop - start == len(rows) and bool((rows.diff() == 1).all()):  # consecutive rows need no copy
            inside = slice(start, stop)
            pairs = None if exclude is None else exclude.rows(start, stop)
            yield _Group(columns, inside, judged[inside], pairs, need.reach)
            continue
        assert isinstance(judged, Ragged)
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
    judged: JudgedItems,
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
