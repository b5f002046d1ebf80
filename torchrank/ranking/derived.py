"""What measures ask of a ranking, and share: computed once, however many of them ask."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free
from torchrank.ranking.arithmetic import ratio, running_sum
from torchrank.ranking.entries import RankIntervals, of_entries, rank_after_list, run_bounds, run_starts
from torchrank.ranking.gain import as_gain

P = ParamSpec("P")


T = TypeVar("T")


# Up to so many grades are counted level by level for the ideal order, rather than sorted.
FEW_LEVELS = 8


def cached(piece: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Compute a piece of a ranking once, however many measures ask for it."""

    @functools.wraps(piece)
    def once(self: Derived, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (piece.__name__, args, tuple(kwargs.items()))
        if key not in self._cache:
            self._cache[key] = piece(self, *args, **kwargs)
        return self._cache[key]

    return once


@dataclass(frozen=True, eq=False)
class Derived(RankIntervals):
    """Where the judged candidates stand, and what follows from it for whatever measure.

    Never changed: what it computes is kept in ``_pieces``.
    """

    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}  # whose keys are functions: a copy computes its own pieces

    # ---- transforms --------------------------------------------------------------------------------------------

    def under(self, ties: str) -> Self:
        """This ranking with its ties settled by a policy; "expected" leaves the intervals as they are.

        "optimistic" and "pessimistic" are real orders, which put higher or lower grades first among equal scores.
        "realistic" puts each entry in the middle of its interval.
        """
        return self if ties == "expected" else self._settled(ties)

    @cached
    def _settled(self, ties: str) -> Self:
        if ties == "realistic":
            middle = self.first + (self.tied - 1).clamp_min(0) / 2
            return replace(self, first=middle, tied=self.tied.clamp_max(1), depth=1, complete=False)
        best_first = ties == "optimistic"
        order = self.grade.argsort(dim=-1, descending=best_first, stable=True)
        order = order.gather(-1, self.first.gather(-1, order).argsort(dim=-1, stable=True))
        first, tied, grade, valid = (x.gather(-1, order) for x in (self.first, self.tied, self.grade, self.valid))
        start, stop = self.run_bounds()
        position = torch.arange(first.shape[1], device=first.device)
        first = first + (position - start if best_first else (tied - (stop - position)).clamp_min(0))
        first = torch.where(tied > 0, first, rank_after_list(self.num_candidates).unsqueeze(-1))
        subtopics = None if self.subtopics is None else of_entries(self.subtopics, order)
        tied = tied.clamp_max(1)
        return replace(self, first=first, tied=tied, grade=grade, valid=valid, depth=1, subtopics=subtopics)

    @cached
    def condensed(self) -> Self:
        """The lists without their unjudged candidates, so that the judged ones move up (Sakai, SIGIR 2007)."""
        judged = self.valid & (self.grade >= 0)
        found = judged & (self.tied > 0)
        before, beside = self.before_and_in_tie(found)
        lengths = found.sum(-1).to(self.first.dtype)
        first, tied = torch.where(found, before + 1, 0), torch.where(found, beside, 0)
        moved_up = self.in_rank_order(
            first, tied, self.grade, judged, lengths, self.errors, self.depth, None, self.queries, self.subtopics
        )
        return replace(moved_up, ignored=self.ignored)

    def each_subtopic(self) -> Self:
        """The lists as each subtopic sees them: rows [query * subtopic], a grade for that subtopic alone.

        Grades without subtopics are those for the only one.
        """
        return self if self.subtopics is None else self._of_subtopics(self.subtopics)

    @cached
    def _of_subtopics(self, subtopics: Tensor) -> Self:
        rows = torch.arange(self.num_queries, device=self.first.device).repeat_interleave(self.num_subtopics)
        grade = subtopics.transpose(1, 2).reshape(-1, subtopics.shape[1])
        return replace(replace(self, subtopics=None, queries=None).take(rows), grade=grade)

    @cached
    def each_positive(self, level: float) -> Self:
        """Filtered ranking: every relevant entry as a query of its own, among the non-relevant candidates only.

        Rows [query * entry], one entry each.
        """
        before, beside = self.relevant_before_and_in_tie(level)
        found = self.found(level)
        others = found.sum(-1, keepdim=True)
        length = (self.num_candidates.unsqueeze(-1) - others).expand_as(self.first)
        return replace(
            self,
            first=torch.where(found, self.first - before, rank_after_list(length)).reshape(-1, 1),
            tied=torch.where(found, self.tied - beside + 1, 0).reshape(-1, 1),
            grade=self.grade.reshape(-1, 1),
            valid=self.relevant(level).reshape(-1, 1),
            num_candidates=length.reshape(-1),
            complete=False,
            ignored=None if self.ignored is None else self.ignored.repeat_interleave(self.first.shape[1]),
        )

    # ---- pieces that measures share ----------------------------------------------------------------------------

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return len(self.num_candidates)

    @property
    def num_subtopics(self) -> int:
        """Number of subtopics, also of those that a query has only for padding."""
        return 1 if self.subtopics is None else self.subtopics.shape[2]

    @cached
    def relevant(self, level: float) -> Tensor:
        """bool [query, entry]: graded at or above ``level``."""
        return self.valid & _at_least(self.grade, level)

    @cached
    def found(self, level: float) -> Tensor:
        """bool [query, entry]: relevant and retrieved."""
        return self.relevant(level) & (self.tied > 0)

    @cached
    def num_relevant(self, level: float) -> Tensor:
        """float64 [query]: relevant candidates, retrieved or not, also those beyond ``reach``."""
        relevant = self.relevant(level) if self.pool is None else _at_least(self.pool, level)
        return relevant.sum(-1).to(self.first.dtype)

    @property
    def untied(self) -> bool:
        """Whether it is known, from ``depth``, that no two candidates are tied."""
        return self.depth <= 1

    @cached
    def prob_in_top_k(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: probability that an entry is among the first ``top_k``."""
        if self.untied:
            return self.ranks_in_top_k(top_k)
        return self._of_interval(lambda first, tied: _places(first, tied, top_k) / tied.clamp_min(1))

    @cached
    def ranks_in_top_k(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: how many of the ranks that an entry can have are among the first ``top_k``."""
        return self.ranks_within(top_k)

    def ranks_within(self, cut: Tensor | int | None) -> Tensor:
        """:meth:`places` for a cut that may differ between queries: [query, 1]."""
        if self.untied and cut is not None:
            return (self.first <= cut) * self.tied
        return _places(self.first, self.tied, cut)

    @cached
    def hits(self, level: float, top_k: int | None) -> Tensor:
        """float64 [query]: (expected) number of relevant candidates among the first ``top_k``."""
        return torch.where(self.found(level), self.prob_in_top_k(top_k), 0.0).sum(-1)

    def hits_by_rank(self, level: float, ranks: int) -> Tensor:
        """float64 [query, rank]: :meth:`hits` of ``top_k`` = 1, 2, ..., ``ranks``. Not under "realistic" ties."""
        return running_sum(self._by_rank(self.relevant_before_and_in_tie(level)[1], ranks))

    def gains_by_rank(self, gain: Callable[[Tensor], Tensor], ranks: int) -> Tensor:
        """float64 [query, rank]: (expected) gain at the ranks 1, 2, ..., ``ranks``. Not under "realistic" ties."""
        gains = torch.where(self.tied > 0, self.gains(gain), 0.0)
        return self._by_rank(gains if self.untied else self.before_and_in_tie(gains)[1], ranks)

    def _by_rank(self, of_block: Tensor, ranks: int) -> Tensor:
        """The sum over a block of ties, given for each of its entries, spread evenly over its ranks."""
        share = ratio(of_block, self.tied)
        table = share.new_zeros((len(share), ranks + 1))
        begins = (self.first.ceil() - 1).clamp_max(ranks).long()
        density = table.scatter(1, begins, share)
        if not self.untied:
            ends = torch.where(self.tied > 0, self.first - 1 + self.tied, ranks).clamp_max(ranks).long()
            density = running_sum(density - table.scatter(1, ends, share))
        return density[:, :ranks]

    @cached
    def relevant_before_and_in_tie(self, level: float) -> tuple[Tensor, Tensor]:
        """Retrieved relevant entries strictly before, and in, each entry's block of ties: float64 [query, entry]."""
        return self.before_and_in_tie(self.found(level))

    def before_and_in_tie(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of ``x`` over the entries strictly before, and in, each entry's block of ties: float64 [query, entry].

        ``x`` is bool or float64 [query, entry].
        """
        alone = x.to(self.first.dtype)
        if self.first.shape[1] == 1:
            return torch.zeros_like(self.first), alone
        if self.untied:
            return running_sum(alone) - alone, alone
        sums = x.cumsum(-1) if x.dtype == torch.bool else running_sum(x)
        so_far = torch.nn.functional.pad(sums, (1, 0)).to(self.first.dtype)
        start, stop = self.run_bounds()
        before = so_far.gather(-1, start)
        return before, so_far.gather(-1, stop) - before

    @cached
    def run_bounds(self) -> tuple[Tensor, Tensor]:
        """Where each entry's block starts and stops in its row: int64 [query, entry]. Blocks are adjacent entries."""
        if self.complete:
            above = torch.where(self.tied > 0, self.first - 1, 0)
            return above.long(), (above + self.tied).long()
        return run_bounds(run_starts(self.first))

    @cached
    def mean_rank(self) -> Tensor:
        """float64 [query, entry]: the mean of the ranks an entry can have, that behind the list if not retrieved."""
        missing = (self.num_candidates + 1).unsqueeze(-1)
        return torch.where(self.tied > 0, self.first + (self.tied - 1) / 2, missing)

    @cached
    def mean_discount(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: (expected) ``discount(rank)``, 0 beyond ``top_k`` and where not retrieved."""
        if self.untied:
            return self.discount_sum(discount, top_k)
        return self._of_interval(
            lambda first, tied: self._discount_sum(first, tied, discount, top_k) / tied.clamp_min(1)
        )

    @cached
    def discount_sum(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: sum of the discount over an entry's interval of ranks, cut at ``top_k``."""
        if self.untied:
            inside = self.tied > 0 if top_k is None else (self.tied > 0) & (self.first <= top_k)
            return torch.where(inside, self._rate(discount), 0.0)
        return self._of_interval(lambda first, tied: self._discount_sum(first, tied, discount, top_k))

    def _discount_sum(
        self, first: Tensor, tied: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        alone = tied == 1 if top_k is None else (tied == 1) & (first <= top_k)
        table = self._table(discount, top_k)
        last = len(table) - 1
        above = torch.where(tied > 0, first - 1, 0).long()
        several = table.take((above + tied.long()).clamp_max(last)) - table.take(above.clamp_max(last))
        return torch.where(alone, discount(first.clamp_min(1)), torch.where(tied > 1, several, 0.0))

    @cached
    def _rate(self, discount: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, entry]: the discount at the best rank of each entry."""
        return discount(self.first.clamp_min(1))

    def _of_interval(self, piece: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """``piece(first, tied)`` of each entry: computed once for each interval of ranks, where these are few."""
        grid = self._grid()
        if grid is None:
            return piece(self.first, self.tied)
        first, tied, at = grid
        return piece(first, tied).index_select(0, at).view(self.first.shape)

    @cached
    def _grid(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """All intervals that entries have, float64 [interval] each, and which each has, int64 [query * entry]."""
        if not reading_is_free(self.first) or not len(self.first):  # how many there are shows in the values
            return None
        above = torch.where(self.tied > 0, self.first - 1, 0)
        ranks, longest = int(above.max()) + 1, int(self.tied.max()) + 1
        if ranks * longest * 4 > above.numel():
            return None
        cells = torch.arange(ranks * longest, device=self.first.device)
        at = above.mul_(longest).add_(self.tied).long().flatten()
        return (cells // longest + 1).to(self.first.dtype), (cells % longest).to(self.first.dtype), at

    def _table(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """Prefix sums of a discount over the ranks 0, 1, ..., as far as they can matter to what is tied."""
        return self._prefix(discount, self.depth if top_k is None else min(top_k, self.depth))

    @cached
    def _prefix(self, discount: Callable[[Tensor], Tensor], limit: int) -> Tensor:
        """Sums of a discount over the ranks from 1 to 0, 1, ..., ``limit``: float64 [limit + 1]."""
        ranks = torch.arange(1, limit + 1, dtype=self.first.dtype, device=self.first.device)
        return torch.nn.functional.pad(running_sum(discount(ranks)), (1, 0))

    @cached
    def gains(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, entry]: gain of each entry; 0 for unjudged ones and padding, as a rule also for grade 0."""
        return _gains(self.grade, self.valid & _gaining(self.grade, gain), gain, self.first.dtype)

    @cached
    def judged_gains(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, judged]: :meth:`gains` of all judged candidates, also beyond ``reach``, in some order."""
        return (
            self.gains(gain)
            if self.pool is None
            else _gains(self.pool, _gaining(self.pool, gain), gain, self.first.dtype)
        )

    @cached
    def total_gain(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query]: sum of the gains of all judged candidates, retrieved or not, also those beyond ``reach``."""
        return self.judged_gains(gain).sum(-1)

    @cached
    def ideal(
        self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """float64 [query]: the largest sum of discounted gains that an order of all judged candidates can have."""
        judged = self.grade if self.pool is None else self.pool
        levels = self._levels() if as_gain(gain).monotone else None
        if levels is not None:  # each level adds its part of the gain to all ranks of those at or above it
            sums = self._prefix(discount, min(top_k or judged.shape[1], judged.shape[1]))
            worth = gain(torch.arange(levels + 1, dtype=sums.dtype, device=sums.device)).tolist()
            total = torch.zeros_like(self.num_candidates)
            for level in range(1, levels + 1):
                reached = sums.take(self.num_relevant(level).long().clamp_max_(len(sums) - 1))
                total += (worth[level] - (worth[level - 1] if level > 1 else 0)) * reached
            return total
        best = self._best(gain)[:, :top_k]
        ranks = torch.arange(1, best.shape[1] + 1, dtype=best.dtype, device=best.device)
        return (best * discount(ranks)).sum(-1)

    def ideal_order(self, gain: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, rank]: gains of all judged candidates in descending order, as far as ``top_k``."""
        return self._best(gain)[:, :top_k]

    @cached
    def _best(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """Gains of all judged candidates in descending order, as far as ``reach``: float64 [query, rank].

        A negative gain stands behind the zeros of all others, however many of these a layout names.
        """
        if self.pool is None:
            return self.gains(gain).sort(dim=-1, descending=True).values.clamp_min_(0)
        rank = min(self.reach or self.pool.shape[1], self.pool.shape[1])
        return self.judged_gains(gain).topk(rank).values.clamp_min_(0)

    @cached
    def _levels(self) -> int | None:
        """The largest grade, where grades are small integers and finding out costs nothing; else None."""
        grade = self.grade if self.pool is None else self.pool
        if not reading_is_free(grade) or grade.is_floating_point() or not grade.numel():
            return None
        largest = int(grade.max())
        return max(0, largest) if largest <= FEW_LEVELS else None

    @cached
    def finite(self) -> Tensor:
        """bool [query]: all grades are finite numbers."""
        grade = self.grade if self.pool is None else self.pool
        if not grade.is_floating_point() or not grade.shape[1]:
            return torch.ones(len(grade), dtype=torch.bool, device=grade.device)
        return grade.amax(-1).isfinite() & grade.amin(-1).isfinite()  # NaN is both


def _places(first: Tensor, tied: Tensor, cut: Tensor | int | None) -> Tensor:
    """Ranks of the intervals up to a cut."""
    return tied if cut is None else torch.minimum((cut + 1 - first).clamp_min_(0), tied)


def _at_least(grade: Tensor, level: float) -> Tensor:
    if not grade.is_floating_point() and level > torch.iinfo(grade.dtype).max:
        return torch.zeros_like(grade, dtype=torch.bool)  # where the comparison would wrap around
    return grade >= level


def _gaining(grade: Tensor, gain: Callable[[Tensor], Tensor]) -> Tensor:
    """Grades that can gain: a table of gains may have one for grade 0."""
    return grade >= 0 if as_gain(gain).of_zero else grade > 0


def _gains(grade: Tensor, judged: Tensor, gain: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Tensor:
    wide = torch.where(judged, grade, torch.zeros_like(grade)).to(dtype)
    if (level := as_gain(gain).level) is not None:  # a grade at the level in its own dtype is at least the level here
        wide = torch.where(_at_least(grade, level), wide.clamp_min(level), torch.zeros_like(wide))
    return torch.where(judged, gain(wide), 0.0)
