"""Judged items among scores that come in blocks of columns: the user's, or products of embeddings."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from torchrank.engine.judged import (
    Counting,
    ScoreCounts,
    Top,
    as_ranking,
    cheapest,
    count_by_comparing,
    count_by_sorting,
    count_retrieved,
    removable,
    subtract,
    why_no_kernel,
)
from torchrank.hardware import costs
from torchrank.hardware.devices import multiplying
from torchrank.layouts.arrange import Shard
from torchrank.layouts.canonical import CatalogueLayout, EmbeddedLayout, Judged, Need, Pairs, StreamedLayout, buckets
from torchrank.layouts.checks import Problem, count
from torchrank.ranking.ranking import Ranking, Tolerance

Blocks: TypeAlias = Iterable[tuple[int, Tensor]]


@dataclass(frozen=True, eq=False)
class Columns:
    """Scores [query, item] that exist only some columns at a time."""

    #: returns (first column, scores [query, column]) from left to right
    read: Callable[[], Blocks]
    #: number of columns of all workers; None = unknown before the reading
    width: int | None
    dtype: torch.dtype
    #: whether ``read`` can be called more than once
    again: bool
    #: within which scores are tied with that of a relevant item; None = only equal ones are
    tolerance: Tolerance | None
    #: number of columns of each reading but the last, at most; unless it is known, many are assumed
    at_once: int = 2**17
    #: returns the scores of pairs, given rows and items [pair], without a reading; None if a reading costs less
    score: Callable[[Tensor, Tensor], Tensor | None] | None = None
    #: this worker's part, if other workers have other columns of the same queries
    shard: Shard | None = None


def within(items: Tensor, first: int, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The columns of items in scores that begin at column ``first``, clamped; and whether the items are in there."""
    column, last = items - first, scores.shape[1] - 1
    return column.clamp(0, last), (column >= 0) & (column <= last)


def rank_columns(
    columns: Columns, layout: EmbeddedLayout | StreamedLayout | CatalogueLayout, need: Need
) -> Iterator[Ranking]:
    """Rank the judged items of a layout whose scores are ``columns``; yields a ranking for each group of queries.

    Counting needs the scores of the judged items before the first block. These scores are computed from the embeddings,
    or read in a first pass over all columns.
    """
    all_groups, errors = list(_groups(columns, layout.judged, layout.exclude, need)), layout.errors
    counted = [group for group in all_groups if group.top is None]
    _set_judged_scores(columns, counted, [group for group in counted if not group.compute_scores()])
    _read(columns, all_groups)
    # The counts are wrong if a computed score differs from the score in the column, even in the last bit. Then a CPU
    # counts again with the scores from the columns.
    checked = [group for group in counted if group.checked]
    differing = sum((group.differing() for group in checked), torch.zeros((), device=errors.device))
    differing = _sum_over_workers(columns, counted, differing)
    if checked and bool(differing):
        _set_judged_scores(columns, counted, counted)
        for group in counted:
            group.counts = ScoreCounts.nothing(group.items.shape, group.items.device)
        _read(columns, counted)
        _sum_over_workers(columns, counted, differing)
    for group in all_groups:
        yield group.ranking(errors, layout.validate)
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
                group.pick(first, scores)
        for group in unknown:
            group.judged_scores, group.picks = group.seen_judged, group.checked
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
        self, columns: Columns, rows: Tensor | None, judged: Judged, exclude: Pairs | None, reach: int | None
    ) -> None:
        #: rows of the queries, int64 [query]; None = all queries
        self.rows = rows
        self.columns, self.judged, self.reach, self.width = columns, judged, reach, 0
        self.items, self.grade = judged.rectangle()
        self.pairs, self.removed = removable(exclude, self.items, self.grade)
        device = self.items.device
        method = cheapest(self.items.shape[1], columns.at_once, reach, device)
        self.sort = method is Counting.SORT
        self.top: Top | None = None
        # Columns that can be read only once rule out counting, which needs the scores of the judged items first.
        select_best = method is Counting.TOP and columns.tolerance is None
        if reach is not None and (select_best or not columns.again):
            self.top = Top.nothing(len(self.items), reach, columns.dtype, device)
        self.counts = ScoreCounts.nothing(self.items.shape, device)
        # Rows of the whole batch and items, int64 [pair]: the scores of judged items, and then those of excluded pairs,
        # are picked from the columns as they are read. A pair of query -1 reads the last row, without effect.
        rows = torch.arange(len(self.items), device=device) if rows is None else rows
        self.row, self.item = rows.unsqueeze(-1).expand_as(self.items).flatten(), self.items.flatten()
        if self.pairs is not None and self.top is None:
            self.row, self.item = torch.cat([self.row, rows[self.pairs.query]]), torch.cat([self.item, self.pairs.item])
        self.seen = torch.zeros(self.item.shape, dtype=columns.dtype, device=device)
        #: whether a pair was in the columns
        self.here = torch.zeros_like(self.item, dtype=torch.bool)
        #: whether the host may look for computed scores that differ from those in the columns. On an accelerator this
        #: would make it wait, so there a difference is an error
        self.checked = self.items.is_cpu
        #: whether the counting pass also picks these scores
        self.picks = True
        self.judged_scores = self.seen_judged

    @property
    def seen_judged(self) -> Tensor:
        """Picked scores of the judged items [query, entry], 0 for those that were not seen."""
        return self.seen[: self.items.numel()].view(self.items.shape)

    def pick(self, first: int, scores: Tensor) -> None:
        """Pick from scores [query, column] of the columns from ``first`` on."""
        column, inside = within(self.item, first, scores)
        self.seen = torch.where(inside, scores[self.row, column], self.seen)
        self.here = self.here | inside
        self.width = max(self.width, first + scores.shape[1])

    def compute_scores(self) -> bool:
        """Compute the scores of the judged items only; False if these scores must be read from the columns."""
        score, item = self.columns.score, self.items.flatten()
        judged_scores = None if score is None else score(self.row[: len(item)], item)
        if judged_scores is None:
            return False
        self.judged_scores, self.picks = judged_scores.view(self.items.shape), self.checked or self.pairs is not None
        return True

    def add(self, first: int, scores: Tensor) -> None:
        """Count a block of scores [query, column], whose first column has the number ``first``."""
        if self.picks:
            self.pick(first, scores)
        for some_rows, part in self._parts(scores):
            if self.top is None:
                judged, part = (self._snapped(x, some_rows) for x in (self.judged_scores[some_rows], part))
                total = ScoreCounts._make(x[some_rows] for x in self.counts)
                if self.sort:
                    total.add(count_by_sorting(part, judged))
                else:
                    count_by_comparing(part, judged, total=total)
                continue
            assert self.reach is not None
            # Excluded pairs could push candidates out of the best scores, so they are removed before the search.
            if self.pairs is not None:
                part = _without_pairs(part, self.pairs, first, some_rows.start or 0)
            retrieved, has_nan = count_retrieved(part)
            self.counts.retrieved[some_rows] += retrieved
            self.counts.has_nan[some_rows] += has_nan
            best = Top.of(part, self.reach).merge(Top(self.top.scores[some_rows], self.top.last[some_rows]))
            self.top.scores[some_rows], self.top.last[some_rows] = best.scores, best.last

    def _snapped(self, scores: Tensor, rows: slice | Tensor) -> Tensor:
        """Scores of ``rows`` of the group; a score within the tolerance becomes that of the nearest relevant item."""
        if self.columns.tolerance is None:
            return scores
        return self.columns.tolerance.snapped(scores, torch.where(self.grade > 0, self.judged_scores, -math.inf)[rows])

    def _parts(self, scores: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yields rows of the group and their scores; a few rows at a time if scores are copied or snapped."""
        if self.rows is None and self.columns.tolerance is None:
            yield slice(None), scores
            return
        step = max(1, costs.now.copied // max(1, scores.shape[1]))
        for start in range(0, len(self.items), step):
            some_rows = slice(start, start + step)
            yield some_rows, scores[some_rows if self.rows is None else self.rows[some_rows]]

    def subtract(self) -> None:
        """Subtract the excluded pairs from the counts."""
        if self.pairs is not None and self.top is None:
            # Each worker subtracts only the pairs in its columns.
            judged = self.items.numel()
            local = Pairs(torch.where(self.here[judged:], self.pairs.query, -1), self.pairs.item)
            scores = self._snapped(self.seen[judged:].unsqueeze(-1), self.pairs.query).squeeze(-1)
            subtract(self.counts, local, scores, self._snapped(self.judged_scores, slice(None)))

    def differing(self) -> Tensor:
        """Number of judged items whose computed score differs from the score in the columns."""
        seen, judged_scores = self.seen_judged, self.judged_scores
        on_this_worker = self.here[: judged_scores.numel()].view(judged_scores.shape)
        return (on_this_worker & (seen != judged_scores) & ~(seen.isnan() & judged_scores.isnan())).sum()

    def ranking(self, errors: Tensor, validate: bool) -> Ranking:
        """The ranking of the group, after all columns were read."""
        columns, judged_scores, counts = self.columns, self.judged_scores, self.counts
        if self.top is not None:
            judged_scores, top = self.seen_judged, self.top
            if columns.shard is not None:
                judged_scores, retrieved, has_nan = columns.shard.sum(judged_scores, counts.retrieved, counts.has_nan)
                counts, top = counts._replace(retrieved=retrieved, has_nan=has_nan), top.gather(columns.shard)
            greater, equal = top.before_and_in_tie(judged_scores)
            counts = counts._replace(greater=greater, equal=equal)
        valid, width = self.items >= 0, columns.width
        valid = valid if self.removed is None else valid & ~self.removed
        if width is None:  # the number of columns was unknown before the pass, so items are checked here
            width = self.width
            outside = self.items >= width
            errors, valid = errors + count(Problem.OUT_OF_RANGE, outside), valid & ~outside
            if self.pairs is not None:
                errors = errors + count(Problem.OUT_OF_RANGE, self.pairs.item >= width)
        if self.top is None and not self.checked:
            differing = valid & (judged_scores > float("-inf")) & (counts.equal == 0)
            errors = count(Problem.UNEQUAL_SCORES, differing, others=errors)
        of_batch = errors, validate, max(1, width), self.reach, self.judged
        ranking = as_ranking(counts, judged_scores, self.grade, valid, *of_batch)
        return ranking if self.rows is None else replace(ranking, queries=self.rows)


def _groups(columns: Columns, judged: Judged, exclude: Pairs | None, need: Need) -> Iterator[_Group]:
    """Group queries with similar numbers of judged items, if the overhead of more groups costs less than padding."""
    sizes, device = judged.sizes, judged.items.device
    for rows, _ in buckets(sizes, costs.now.rectangle_counted + 2 * len(sizes), costs.now.block):
        if len(rows) == len(sizes):
            yield _Group(columns, None, judged, exclude, need.reach)
            return
        # The number of each query within the group; -1 = not in the group. The last element is for pairs of query -1.
        number = torch.full((len(sizes) + 1,), -1, device="cpu")
        number = number.index_copy_(0, rows, torch.arange(len(rows), device="cpu")).to(device, non_blocking=True)
        pairs = None if exclude is None else exclude.numbered(number)
        yield _Group(columns, rows.to(device, non_blocking=True), judged.take(rows), pairs, need.reach)


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


def rank_streamed(layout: StreamedLayout, need: Need) -> Iterator[Ranking]:
    """Rank the judged items among scores that are given in blocks of columns."""

    def read() -> Blocks:
        first = 0
        for scores in layout.scores():
            if scores.shape[1]:
                yield first, scores
            first += scores.shape[1]

    return rank_columns(Columns(read, None, layout.dtype, layout.again, layout.tolerance), layout, need)


def rank_in_groups(layout: CatalogueLayout, need: Need) -> Iterator[Ranking]:
    """Rank the judged items in a matrix of scores, in groups of queries with similar numbers of judged items."""
    scores = layout.scores
    columns = Columns(
        lambda: [(0, scores)], scores.shape[1], scores.dtype, True, None, scores.shape[1], lambda *pair: scores[pair]
    )
    return rank_columns(columns, layout, need)


# ---- embeddings ------------------------------------------------------------------------------------------------------


def why_not_fused(layout: EmbeddedLayout) -> str:
    """The reason why the fused kernel does not rank a layout; "" = the kernel ranks the layout."""
    queries, precision, sizes = layout.queries, fused_precision(layout), layout.judged.sizes
    entries = int(sizes.max()) if len(sizes) else 0
    if reason := why_no_kernel(queries.device):
        return reason
    if precision is None:
        return f"products of {queries.dtype} need precision 'tf32', 'tf32x3' or 'bf16', got {layout.precision!r}"
    if entries > costs.now.fused:
        return f"a query has {entries:,} judged items, more than {costs.now.fused}"
    if layout.tolerance is not None:
        return "the kernel does not support atol and rtol"
    return why_no_kernel(queries.device, queries.dtype, precision, queries.shape[1])


def fused_precision(layout: EmbeddedLayout) -> str | None:
    """The precision of the kernel's products; None = the kernel does not support this dtype and precision."""
    dtype = layout.queries.dtype
    if dtype in (torch.bfloat16, torch.float16):
        return "ieee"  # products of 16-bit numbers are exact
    return layout.precision if dtype == torch.float32 and layout.precision in ("tf32", "tf32x3") else None


def rank_fused(layout: EmbeddedLayout) -> Iterator[Ranking]:
    """Rank the judged items; yields one ranking.

    The score of a judged item is computed twice: for itself, and among all others. Both must have the same bits, or the
    item would rank after itself. They are compared on the device, and ``compute`` raises if they differ.
    """
    from torchrank.engine.kernels import count_products

    queries, shard = layout.queries.contiguous(), layout.shard
    catalogue, precision = layout.catalogue.contiguous(), fused_precision(layout)
    assert precision is not None
    scored = functools.partial(_scores, queries, catalogue, precision)
    items, grade = layout.judged.rectangle()
    pairs, gone = removable(layout.exclude, items, grade)
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
        subtract(counts, removed, scored(pairs.query, column, inside), judged)
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


def rank_embedded(layout: EmbeddedLayout, need: Need) -> Iterator[Ranking]:
    """Score queries, some items at a time. Judged items get their scores from the same products as the others."""
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

    def products() -> Blocks:
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
    columns = Columns(read, layout.total, queries.dtype, True, layout.tolerance, chunk, alone, layout.shard)
    return rank_columns(columns, layout, need)


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
