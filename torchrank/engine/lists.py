"""Lists whose candidates all have grades: the rows of a matrix, or flat rows. Both are sorted."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchrank.engine.judged import top_k
from torchrank.engine.sorting import Descending, descending, falling
from torchrank.hardware import costs
from torchrank.hardware.devices import every, sort_in_place, widest_float
from torchrank.layouts.canonical import DenseLayout, FlatRows, Need, buckets, octaves
from torchrank.layouts.checks import Problem, count
from torchrank.layouts.conversions import included
from torchrank.ranking.ranking import Ranking, depth_of, reordered, run_bounds, run_starts

# ---- rows of a matrix ------------------------------------------------------------------------------------------------


def rank_lists(layout: DenseLayout, reach: int | None) -> Iterator[Ranking]:
    """Rank the candidates of each list: few lists with ties after the others, many in several parts.

    Args:
        layout: the lists.
        reach: the last rank of the entries, apart from ties with this rank, for the CPU only, because the number of
            ties depends on values; None = all candidates are entries.
    """
    scores, mask, errors = layout.scores, layout.mask, layout.errors
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if layout.exclude is not None:
        if layout.validate:
            has_nan = scores.isnan().any(-1)  # before -inf replaces the scores of excluded candidates
        mask = included(layout, layout.exclude)
        scores = scores.masked_fill(~mask, float("-inf"))
    on_cpu = scores.is_cpu
    finite = on_cpu and math.isfinite(scores.sum())  # a finite sum has finite terms
    if reach is None or reach >= scores.shape[1] or layout.tie_break is not None:
        ordered, order, begins = descending(scores, layout.tie_break, finite)
    else:
        ordered, order, begins = _best(scores, reach, finite)
    if layout.validate and not finite:  # NaN sorts first: only the first column is read
        has_nan = ordered[:, 0].isnan() if layout.exclude is None else has_nan
        errors = count(Problem.NAN_SCORES, has_nan, others=errors)
    # NaN counts as retrieved, so that the rank of every entry is its column. None = all entries are retrieved.
    retrieved = None if finite else ordered != float("-inf")
    reach = None if ordered.shape == scores.shape else reach
    if retrieved is None:
        lengths = torch.full((len(scores),), scores.shape[1], device=scores.device)
    else:
        lengths = (retrieved if reach is None else scores != float("-inf")).sum(-1)
        if on_cpu:  # unretrieved candidates are not tied; an accelerator saves this kernel
            begins = begins | ~retrieved
    untied = on_cpu and every(begins)
    if untied and retrieved is None:  # else columns after ``reach`` are needed: ties with this rank, or not retrieved
        order = order[:, :reach]
    begins = begins[:, : order.shape[1]]
    places = _parts(begins) if on_cpu and not untied else [(slice(None), untied)]
    options = mask, retrieved, layout.subtopics, layout.partly_judged, layout.costs
    for number, (place, alone) in enumerate(places):
        kept, found, subtopics, partly, costs_of = (None if x is None else x[place] for x in options)
        grade, columns, counts = layout.grade[place], order[place], lengths[place]
        first, tied = _ranks(begins[place], found, counts, alone)
        yield Ranking(
            first,
            tied,
            grade.gather(-1, columns),
            order.new_ones((), dtype=torch.bool).expand(columns.shape) if kept is None else kept.gather(-1, columns),
            counts.to(first.dtype),
            torch.zeros_like(errors) if number else errors,
            depth=1 if alone else order.shape[1],
            reach=reach,
            queries=place if isinstance(place, Tensor) else None,
            pool=None if reach is None else grade if kept is None else grade.masked_fill(~kept, 0),
            complete=True,
            all_candidates=reach is None,
            subtopics=None if subtopics is None else reordered(subtopics, columns),
            partly_judged=None if partly is None else reordered(partly, columns),
            costs=None if costs_of is None else reordered(costs_of, columns),
        )


def _parts(begins: Tensor) -> list[tuple[slice | Tensor, bool]]:
    """Which lists are ranked together, some of them with ties, and whether they are known to have none.

    Ties double time and memory: so lists with ties are ranked alone if they are few, and some at a time if not.
    """
    number, width = begins.shape
    alone = begins.view(torch.int8).amin(-1).bool()
    places = [chosen.nonzero().squeeze(-1) for chosen in (alone, ~alone)]
    if costs.now.few_tied * len(places[1]) <= number:
        return [(places[0], True), (places[1], False)]
    step = max(1, costs.now.tied // width)
    return [(slice(start, start + step), False) for start in range(0, number, step)]


def _best(scores: Tensor, reach: int, finite: bool) -> Descending:
    """Sort scores in descending order, at least up to rank ``reach`` and the scores tied with this rank."""
    if costs.now.best_of * reach <= scores.shape[1]:
        best, order = top_k(scores, reach + 1)
        if not (best[:, reach - 1] == best[:, reach]).any():  # no tie at the cutoff
            return Descending(best[:, :reach], order[:, :reach], run_starts(best[:, :reach]))
    values, order, begins = descending(scores, finite=finite)
    # Add columns for the longest tie group at rank ``reach``. torch sums rows of int8 faster than it searches columns.
    tied = values[:, reach:] == values[:, reach - 1, None]
    width = reach + int(tied.view(torch.int8).sum(-1, dtype=torch.int32).numpy().max(initial=0))
    return Descending(values[:, :width], order[:, :width], begins[:, :width])


def _ranks(begins: Tensor, retrieved: Tensor | None, lengths: Tensor, untied: bool) -> tuple[Tensor, Tensor]:
    """The first rank, and the number of ranks, of sorted entries, in a floating dtype.

    Args:
        begins: bool [query, entry], a tie group begins at an entry.
        retrieved: bool [query, entry]; None = all entries are retrieved.
        lengths: int64 [query], number of retrieved candidates.
        untied: whether no entry is known to be tied.
    """
    lengths, dtype = lengths.unsqueeze(-1), widest_float(lengths.device)
    if not untied:
        bounds = run_bounds(begins)
        before, last = bounds if retrieved is None else torch.where(retrieved, bounds, lengths)
        return (before + 1).to(dtype), (last - before).to(dtype)
    # In every query, the rank of a retrieved entry is its column, counted from 1. Later steps recognise this by the
    # strides: the ranks of all queries are expanded from one row.
    first = torch.arange(1, begins.shape[1] + 1, dtype=dtype, device=begins.device).expand(begins.shape)
    if retrieved is None or every(retrieved[:, -1:]):
        return first, first.new_ones(()).expand(first.shape)
    return torch.where(retrieved, first, (lengths + 1).to(dtype)), retrieved.to(dtype)


# ---- flat rows -------------------------------------------------------------------------------------------------------

# The score of -inf as an integer, and the difference to its integer by `falling`, which has a sign.
NOT_RETRIEVED, UNSIGNED = 0xFF800000, -(2**31)

# The places of the lower and of the upper half of an integer of 64 bits in memory.
LOWER, UPPER = (0, 1) if sys.byteorder == "little" else (1, 0)


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Sorted integers of rows: from the upper bits to the lower ones the query, the score and the grade."""

    #: int64 [row], ascending: by query, descending score and grade
    keys: Tensor
    #: int64 [query]: the place where each query begins
    query_start: Tensor
    #: number of bits of the grade; rows that are no entries have 0 there
    bits: int
    #: grade of an entry minus its lower bits
    least: int
    #: dtype of the grades
    dtype: torch.dtype

    @classmethod
    def of(cls, layout: FlatRows, scores: Tensor, need: Need) -> PackedRows | None:
        """Sort rows with the given scores; None if they do not fit in integers, or if values cannot be read."""
        indexes, grade = layout.indexes, layout.grade
        short = scores.dtype.itemsize <= 4 and not grade.is_floating_point() and layout.tie_break is None
        if not short or not scores.is_cpu or not len(scores):
            return None
        low, high = torch.stack(indexes.aminmax()).tolist()
        least, most = torch.stack(grade.aminmax()).tolist()
        # The lower bits of an entry are larger than 0. Without irrelevant entries, they are the grade.
        base = 0 if need.relevant else least - 1
        bits = (most - base).bit_length()
        if (high - low).bit_length() + bits > 31:
            return None
        keys = torch.empty(len(scores), dtype=torch.int64, device=scores.device)
        for block in _blocks(len(keys)):
            query = indexes[block] if not low else indexes[block].long() - low
            score = falling(scores[block]).bitwise_xor_(UNSIGNED)
            worth = grade[block] if not base else grade[block].long() - least + 1
            worth = worth.clamp_min(0) if least < 0 and not base else worth
            worth = worth if layout.mask is None else worth * layout.mask[block]
            # Each half is made for itself, because operations on 64 bits take several times as long.
            halves = keys[block].view(torch.int32).view(-1, 2)
            upper = (score >> (32 - bits)).bitwise_and_(2**bits - 1)
            halves[:, UPPER] = upper.bitwise_or_(query.to(torch.int32, copy=True).bitwise_left_shift_(bits))
            halves[:, LOWER] = score.bitwise_left_shift_(bits).bitwise_or_(worth.to(torch.int32))
        sort_in_place(keys)
        if high - low < len(keys):  # few possible indexes: look each up, and keep those with rows
            last = torch.searchsorted(keys, torch.arange(high - low + 2, device="cpu") << (32 + bits))
            query_start = last[:-1][last[1:] > last[:-1]]
        else:
            query_start = _new(keys >> (32 + bits))[:-1].nonzero().squeeze(-1)
        return cls(keys, query_start, bits, base, grade.dtype)

    def __len__(self) -> int:
        return len(self.keys)

    def entries(self) -> tuple[Tensor, Tensor]:
        """The places of the entries in the order, int64 [entry], and their grades [entry]."""
        part = 2**self.bits - 1
        places = [
            (self.keys[block] & part).nonzero().squeeze(-1).add_(block.start) for block in _blocks(len(self.keys))
        ]
        place = torch.cat(places)
        if part == 1 and not self.least:
            return place, torch.ones((), dtype=self.dtype, device=place.device).expand(len(place))
        grade = (self.keys.take(place) & part).to(self.dtype)
        return place, grade + self.least if self.least else grade

    def tied(self, place: Tensor) -> Tensor:
        """bool [entry]: whether another row of the query has the score of an entry; rarely also for other entries."""
        # The neighbour of the first row is the last one, and the other way round. Equal ones are in one query, or are
        # one row: then its tie group has one row.
        key, before = self.keys.take(place), self.keys.take(place - 1)
        after = self.keys.take(place + (1 - len(self.keys)))
        return torch.minimum(before.bitwise_xor_(key), after.bitwise_xor_(key)) < 2**self.bits

    def tie_groups(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """The place of the first row, and the place after the last one, of each entry's tie group: int64 [entry]."""
        key = self.keys.take(place) >> self.bits
        begin, end = (torch.searchsorted(self.keys, end << self.bits) for end in (key, key + 1))
        return begin, end

    def num_retrieved(self) -> Tensor:
        """Number of rows of each query whose score is not -inf: int64 [query]."""
        query = self.keys[self.query_start] >> (32 + self.bits)
        cut = ((query << 32) + NOT_RETRIEVED) << self.bits
        return torch.searchsorted(self.keys, cut) - self.query_start


def _blocks(rows: int) -> list[slice]:
    """Cut rows into blocks of a block's size."""
    return [slice(start, start + costs.now.block) for start in range(0, rows, costs.now.block)]


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of all queries in one row: by query, and by rank within a query. The fields are as in a ranking."""

    #: float64 [entry]: the rank, plus ``before`` of the query
    first: Tensor
    #: float64 [entry]; expanded from a single 1 if no entry is tied
    tied: Tensor
    #: [entry]; expanded from a single 1 if all grades are 1
    grade: Tensor
    #: int64 [query]: number of entries of each query
    sizes: Tensor
    #: int64 [query]: where the entries of each query begin
    start: Tensor
    #: float64 [query]
    num_candidates: Tensor
    #: no tied entry has a larger rank
    depth: int
    #: float64 [query], to be subtracted from ``first``; None = 0 for every query
    before: Tensor | None = None
    #: bool [entry]; None = no entry
    partly_judged: Tensor | None = None

    def rankings(self, errors: Tensor) -> Iterator[Ranking]:
        """Rankings of queries with similar numbers of entries, the first with the counters of bad values."""
        return self._rectangles(buckets(self.sizes, costs.now.rectangle, costs.now.room(self.first)), errors)

    def alone(self, errors: Tensor) -> Iterator[Ranking]:
        """:meth:`rankings` in rectangles whose width depends on no other query, so that values do not either."""
        return self._rectangles(octaves(self.sizes, costs.now.room(self.first)), errors)

    def of_subtopics(self, grades: Tensor, errors: Tensor) -> Ranking:
        """The ranking of all queries in one rectangle, with ``grades`` [entry, subtopic]."""
        width = max(1, int(self.sizes.max()))
        queries, places = (torch.arange(n, device=self.sizes.device) for n in (len(self.sizes), width))
        (rectangle,) = self._rectangles([(queries, width)], errors)
        grades = grades if len(grades) else grades.new_zeros((1, grades.shape[1]))  # no query has an entry
        row = (self.start.unsqueeze(-1) + places).clamp_max(len(grades) - 1)
        subtopics = torch.where(rectangle.valid.unsqueeze(-1), grades[row], 0.0)
        return replace(rectangle, subtopics=subtopics, queries=None)

    def _rectangles(self, cuts: Iterable[tuple[Tensor, int]], errors: Tensor) -> Iterator[Ranking]:
        queries, widths = zip(*cuts)
        # The queries of all rectangles are looked up at once, and then cut into those of each.
        order, numbers = torch.cat(queries), [len(chosen) for chosen in queries]
        before = torch.zeros_like(self.num_candidates) if self.before is None else self.before
        fields = [x[order].unsqueeze(-1).split(numbers) for x in (self.sizes, self.start, before, self.num_candidates)]
        for chosen, width, of_queries in zip(queries, widths, zip(*fields)):
            yield _rectangle(self, chosen, width, of_queries, errors)
            errors = torch.zeros_like(errors)


def rank_flat(layout: FlatRows, need: Need) -> Iterator[Ranking]:
    """Rank all rows, and yield rankings of queries with similar numbers of entries.

    Entries are the relevant rows, or all rows if these are needed.
    """
    scores, errors = layout.scores, layout.errors
    if layout.mask is not None:
        scores = scores.masked_fill(~layout.mask, float("-inf"))
    least = float(scores.min()) if len(scores) else 0.0
    if layout.validate and math.isnan(least):  # the minimum is NaN if any score is
        with_nan = torch.unique(layout.indexes[scores.isnan()])
        errors = errors + count(Problem.NAN_SCORES, torch.ones_like(with_nan, dtype=torch.bool))
    packed = None if layout.partly_judged is not None else PackedRows.of(layout, scores, need)
    rows = NumberedRows.of(layout, scores, need) if packed is None else packed
    entries = _entries(rows, all_retrieved=least > -math.inf)
    if layout.partly_judged is not None:
        assert isinstance(rows, NumberedRows)  # packed rows have no other fields
        entries = replace(entries, partly_judged=layout.partly_judged[rows.rows[rows.entries()[0]]])
    for ranking in entries.rankings(errors):
        yield ranking if need.relevant else replace(ranking, all_candidates=True)


@dataclass(frozen=True, eq=False)
class NumberedRows:
    """Sorted rows by their numbers, for rows that do not fit in :class:`PackedRows`; the methods are the same."""

    #: int64 [row]: numbers of the rows by query, descending score and descending tie break
    rows: Tensor
    #: bool [row + 1]: a tie group begins at this place of the order; True at both ends
    run_starts: Tensor
    #: int64 [query]: the place where each query begins
    query_start: Tensor
    #: the scores and grades of the rows, and whether they are entries; in the order of the layout
    scores: Tensor
    grade: Tensor
    is_entry: Tensor

    @classmethod
    def of(cls, layout: FlatRows, scores: Tensor, need: Need) -> NumberedRows:
        """Sort rows with the given scores, by several stable sorts, by the least important key first."""
        is_entry = layout.grade > 0 if need.relevant else torch.ones_like(layout.grade, dtype=torch.bool)
        is_entry = is_entry if layout.mask is None else is_entry & layout.mask
        rows = torch.arange(len(scores), device=scores.device)
        if layout.tie_break is not None:
            rows = layout.tie_break.argsort(descending=True, stable=True)
        rows = rows[scores[rows].argsort(descending=True, stable=True)]
        rows = rows[layout.indexes[rows].argsort(stable=True)]
        new_query = _new(layout.indexes[rows])
        run_starts = new_query | _new(scores[rows])
        if layout.tie_break is not None:
            run_starts = run_starts | _new(layout.tie_break[rows])
        return cls(rows, run_starts, new_query[:-1].nonzero().squeeze(-1), scores, layout.grade, is_entry)

    def __len__(self) -> int:
        return len(self.scores)

    def entries(self) -> tuple[Tensor, Tensor]:
        place = self.is_entry.gather(0, self.rows).nonzero().squeeze(-1)
        return place, self.grade.gather(0, self.rows.gather(0, place))

    def tied(self, place: Tensor) -> Tensor:
        # An entry is tied unless a run starts at its row and the next run starts at the next row.
        return ~(self.run_starts[place] & self.run_starts[place + 1])

    def tie_groups(self, place: Tensor) -> tuple[Tensor, Tensor]:
        beginning = self.run_starts.nonzero().squeeze(-1)
        group = torch.searchsorted(beginning, place, right=True) - 1
        return beginning[group], beginning[group + 1]

    def num_retrieved(self) -> Tensor:
        # Rows at -inf stand last in their query.
        retrieved = (self.scores.gather(0, self.rows) > -math.inf).nonzero().squeeze(-1)
        return torch.diff(torch.searchsorted(retrieved, self.query_start), append=_end(len(retrieved), retrieved))


def _new(x: Tensor) -> Tensor:
    """bool [row + 1]: an element differs from the element before it; True at both ends."""
    edge = torch.ones(min(1, len(x)), dtype=torch.bool, device=x.device)
    return torch.cat([edge, x[1:] != x[:-1], torch.ones(1, dtype=torch.bool, device=x.device)])


def _entries(rows: PackedRows | NumberedRows, all_retrieved: bool) -> Entries:
    """Derive the entries from their places in the sorted order of all rows."""
    place, grade = rows.entries()
    start = torch.searchsorted(place, rows.query_start)
    sizes = torch.diff(start, append=_end(len(place), place))
    ends = _end(len(rows), place)
    num_candidates = torch.diff(rows.query_start, append=ends) if all_retrieved else rows.num_retrieved()
    dtype = widest_float(place.device)
    tied_ones = rows.tied(place).nonzero().squeeze(-1)
    lengths = num_candidates.to(dtype)
    if all_retrieved and not len(tied_ones) and dtype == torch.float64:  # a float32 would not hold all places
        first = place.to(dtype)
        untied = first.new_ones(()).expand(first.shape)
        return Entries(first, untied, grade, sizes, start, lengths, 1, before=(rows.query_start - 1).to(dtype))
    first, tied = place + 1 - rows.query_start.repeat_interleave(sizes), torch.ones_like(place)
    begin, end = rows.tie_groups(place[tied_ones])
    first[tied_ones] += begin - place[tied_ones]
    tied[tied_ones] = end - begin
    if not all_retrieved:  # rows at -inf are no part of the list of their query
        after_list = num_candidates.repeat_interleave(sizes) + 1
        tied = torch.where(first < after_list, tied, 0)
        first = torch.minimum(first, after_list)
    return Entries(first.to(dtype), tied.to(dtype), grade, sizes, start, lengths, depth_of(first, tied))


def _end(size: int, like: Tensor) -> Tensor:
    """A size as the last of the starts that :func:`torch.diff` subtracts: int64 [1]."""
    return torch.tensor([size], device=like.device)


def _rectangle(entries: Entries, queries: Tensor, width: int, of_queries: Sequence[Tensor], errors: Tensor) -> Ranking:
    """The ranking of some queries, with entries padded to a rectangle.

    ``of_queries`` are ``sizes``, ``start``, ``before`` and ``num_candidates`` of these queries, [query, 1] each.
    """
    sizes, start, before, lengths = of_queries
    position = torch.arange(width, device=queries.device)
    valid, row = position < sizes, (start + position).clamp_max_(max(0, len(entries.first) - 1)).flatten()

    def cut(x: Tensor) -> Tensor:
        return x.index_select(0, row).view(valid.shape) if len(x) else torch.zeros_like(valid, dtype=x.dtype)

    def filled(x: Tensor) -> Tensor:
        return torch.where(valid, cut(x), 0) if any(x.stride()) or not len(x) else valid.to(x.dtype)

    first = torch.where(valid, cut(entries.first).sub_(before), lengths + 1)
    tied, grade = filled(entries.tied), filled(entries.grade)
    partly = None if entries.partly_judged is None else filled(entries.partly_judged).bool()
    lengths = lengths.squeeze(-1)
    return Ranking(first, tied, grade, valid, lengths, errors, entries.depth, queries=queries, partly_judged=partly)
