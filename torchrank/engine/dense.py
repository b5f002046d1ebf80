"""Engine for lists whose candidates all have grades: one sort of each list, up to the last rank that is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchrank.engine.counting import top_k
from torchrank.engine.plan import Plan
from torchrank.engine.sorting import Descending, descending
from torchrank.hardware import costs
from torchrank.hardware.devices import all_finite, every, put, widest_float
from torchrank.layouts.canonical import DenseLayout, Need, Pairs
from torchrank.layouts.checks import Problem, count
from torchrank.ranking.ranking import Ranking, reordered, run_bounds, run_starts


def rank_dense(plan: Plan, need: Need) -> Iterator[Ranking]:
    """Rank the candidates of each list, chunk by chunk. ``need`` is a parameter of all engines, and not read here."""
    for chunk in plan.pieces() if plan.chunks else [plan.layout]:
        parts = _sort(chunk, plan.reach, plan.best)
        while parts:  # free each part and its ranking before the next ranking is made
            yield parts.pop(0).ranking()


def _sort(layout: DenseLayout, reach: int | None, best: bool) -> list[_Lists]:
    """Sort all candidates, or those up to rank ``reach``, as planned; return the sorted lists of each ranking."""
    scores, grade, mask, errors = layout.scores, layout.grade, layout.mask, layout.errors
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if layout.exclude is not None:
        if layout.validate:
            has_nan = scores.isnan().any(-1)  # before -inf replaces the scores of excluded candidates
        included = ~_excluded(layout.exclude, grade)
        mask = included if mask is None else mask & included
        scores = scores.masked_fill(~included, float("-inf"))
    on_cpu, finite = scores.is_cpu, all_finite(scores)
    in_order = _sort_rows(scores, layout.tie_break, reach, best, finite)
    ordered, order, begins = in_order
    if layout.validate and not finite:  # NaN sorts first: only the first column is read
        has_nan = ordered[:, 0].isnan() if layout.exclude is None else has_nan
        errors = count(Problem.NAN_SCORES, has_nan, others=errors)
    retrieved, lengths = _retrieved(ordered, scores, finite)
    if retrieved is not None and on_cpu:  # unretrieved candidates are not tied; an accelerator saves this kernel
        begins = begins | ~retrieved
    reach = None if ordered.shape == scores.shape else reach
    untied = on_cpu and every(begins)
    of_candidates = (layout.subtopics, layout.partly_judged, layout.costs)
    lists = _Lists(begins, retrieved, lengths, order, grade, mask, errors, reach, untied, *of_candidates)
    return lists.cut() if on_cpu and not untied else [lists]


class _Lists(NamedTuple):
    """Sorted lists of candidates."""

    #: bool [query, entry]: whether a tie group begins at an entry
    begins: Tensor
    #: bool [query, entry]: whether an entry is retrieved; None = all entries are retrieved
    retrieved: Tensor | None
    #: int64 [query]: number of retrieved candidates
    lengths: Tensor
    #: int64 [query, entry]: the columns of the entries
    order: Tensor
    #: [query, candidate]
    grade: Tensor
    #: bool [query, candidate], False = padding; None = no padding
    mask: Tensor | None
    #: int64 [kind]: counters of bad values
    errors: Tensor
    #: the last rank of the entries, apart from ties with this rank; None = all candidates are entries
    reach: int | None
    #: whether the lists are known to have no ties
    untied: bool
    #: [query, candidate, subtopic], or None
    subtopics: Tensor | None
    #: bool [query, candidate], or None
    partly_judged: Tensor | None
    #: float64 [query, candidate], or None
    costs: Tensor | None

    def cut(self) -> list[_Lists]:
        """Cut the lists into pieces of consecutive lists, each with about the same number of lists."""
        number = len(self.begins)
        most_lists = max(1, costs.now.tied_entries // self.begins.shape[1])
        if number <= most_lists:
            return [self]
        step = -(-number // -(-number // most_lists))
        first, *rest = (self._take(slice(start, start + step)) for start in range(0, number, step))
        return [first, *(piece._replace(errors=torch.zeros_like(self.errors)) for piece in rest)]

    def _take(self, queries: slice) -> _Lists:
        """The lists of consecutive queries."""
        fields = ("begins", "retrieved", "lengths", "order", "grade", "mask", "subtopics", "partly_judged", "costs")
        taken: dict[str, Any] = {name: x[queries] for name in fields if (x := getattr(self, name)) is not None}
        return self._replace(**taken)

    def ranking(self) -> Ranking:
        """The ranking of these lists."""
        reach, mask = self.reach, self.mask
        # Columns after ``reach`` are needed for ties with this rank, and for candidates that are not retrieved.
        order = self.order[:, : reach if self.untied and self.retrieved is None else None]
        dtype = widest_float(order.device)
        return Ranking(
            *self._ranks(order.shape[1], dtype),
            self.grade.gather(-1, order),
            order.new_ones((), dtype=torch.bool).expand(order.shape) if mask is None else mask.gather(-1, order),
            self.lengths.to(dtype),
            self.errors,
            depth=1 if self.untied else order.shape[1],
            reach=reach,
            pool=None if reach is None else self.grade if mask is None else self.grade.masked_fill(~mask, 0),
            complete=True,
            all_candidates=reach is None,
            subtopics=None if self.subtopics is None else reordered(self.subtopics, order),
            partly_judged=None if self.partly_judged is None else reordered(self.partly_judged, order),
            costs=None if self.costs is None else reordered(self.costs, order),
        )

    def _ranks(self, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The first rank, and the number of ranks, of ``width`` entries of each list, in a floating dtype."""
        retrieved = None if self.retrieved is None else self.retrieved[:, :width]
        lengths = self.lengths.unsqueeze(-1)
        if self.untied:
            # In every query, the rank of a retrieved entry is its column, counted from 1. Later steps recognise this by
            # the strides: the ranks of all queries are expanded from one row.
            first = torch.arange(1, width + 1, dtype=dtype, device=lengths.device).expand(len(lengths), -1)
            if retrieved is None or every(retrieved[:, -1:]):
                return first, first.new_ones(()).expand(first.shape)
            return torch.where(retrieved, first, (lengths + 1).to(dtype)), retrieved.to(dtype)
        bounds = run_bounds(self.begins)
        before, last = bounds if retrieved is None else torch.where(retrieved, bounds, lengths)
        return (before + 1).to(dtype), (last - before).to(dtype)


def _retrieved(ordered: Tensor, scores: Tensor, finite: bool) -> tuple[Tensor | None, Tensor]:
    """Whether each entry is retrieved, bool [query, entry], None = all entries are; and the lengths, int64 [query].

    NaN is a bad value that sorts first. NaN counts as retrieved, so that the rank of every entry is its column.
    """
    if finite:
        return None, torch.full((len(scores),), scores.shape[1], device=scores.device)
    retrieved = ordered != float("-inf")
    complete = ordered.shape == scores.shape
    return retrieved, (retrieved if complete else scores != float("-inf")).sum(-1)


def _sort_rows(scores: Tensor, tie_break: Tensor | None, reach: int | None, try_best: bool, finite: bool) -> Descending:
    """Sort scores in descending order, at least up to rank ``reach`` and the scores tied with this rank."""
    if reach is not None and reach < scores.shape[1] and tie_break is None:
        # A tie at this rank in one of the first queries already rules out the shortcut for the batch.
        promising = try_best and _best(scores[: costs.now.sample], reach) is not None
        best = _best(scores, reach) if promising else None
        if best is not None:
            return Descending(*best, run_starts(best[0]))
        in_order = descending(scores, finite=finite)
        width = reach
        if not every(in_order.begins):
            # Add columns for the longest tie group at rank ``reach``. torch sums rows of int8 faster than it searches
            # columns.
            tied = in_order.values[:, reach:] == in_order.values[:, reach - 1, None]
            width += int(tied.view(torch.int8).sum(-1, dtype=torch.int32).numpy().max(initial=0))
        return Descending(in_order.values[:, :width], in_order.order[:, :width], in_order.begins[:, :width])
    return descending(scores, tie_break, finite)


def _best(scores: Tensor, reach: int) -> tuple[Tensor, Tensor] | None:
    """The ``reach`` best scores of each query and their columns; None if a query has a tie at the cutoff."""
    best, order = top_k(scores, reach + 1)
    if (best[:, reach - 1] == best[:, reach]).any():
        return None
    return best[:, :reach], order[:, :reach]


def _excluded(exclude: Pairs, grade: Tensor) -> Tensor:
    """bool [query, candidate]: excluded and not relevant."""
    # An additional last row takes the pairs with query -1.
    marked = torch.zeros((grade.shape[0] + 1, grade.shape[1]), dtype=torch.bool, device=grade.device)
    put(marked, (exclude.query, exclude.item), True)
    return marked[:-1] & (grade <= 0)
