"""Quantities that measures derive from a ranking. Each is computed once and cached, for all measures of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free
from torchrank.layouts.canonical import BLOCK
from torchrank.ranking.arithmetic import ratio, running_sum
from torchrank.ranking.entries import RankIntervals, of_entries, rank_after_list, run_bounds, run_starts
from torchrank.ranking.gain import as_gain
from torchrank.ranking.sampled import Positive

P = ParamSpec("P")


T = TypeVar("T")


# The ideal order counts integer grades level by level up to this largest grade, and sorts beyond it.
FEW_LEVELS = 8


# Prefix sums up to this rank are accurate enough. Longer ones come with the digits that rounding has taken from them.
NEAR = 2**8


def cached(piece: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Decorator that caches a method of a ranking by its arguments, so that measures share its result.

    Pass gains and discounts that are equal if they compute the same, not a new lambda for each call.
    """

    @functools.wraps(piece)
    def once(self: Derived, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (piece.__name__, args, tuple(kwargs.items()))
        if key not in self._cache:
            self._cache[key] = piece(self, *args, **kwargs)
        return self._cache[key]

    return once


@dataclass(frozen=True, eq=False)
class Derived(RankIntervals):
    """The ranks of the judged candidates, and the quantities that measures derive from them.

    A ranking never changes, so derived quantities are cached in ``_cache``.
    """

    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        # Keys of the cache may be functions, which cannot be pickled. So a copy begins with an empty cache.
        return {**self.__dict__, "_cache": {}}

    # ---- transforms --------------------------------------------------------------------------------------------

    def under(self, ties: str) -> Self:
        """This ranking with its ties resolved by a policy.

        "expected" keeps the intervals. "optimistic" and "pessimistic" are real orders, in which the higher or the lower
        grades rank first among equal scores. "realistic" gives each entry the middle of its interval.
        """
        return self if ties == "expected" else self._resolved(ties)

    @cached
    def _resolved(self, ties: str) -> Self:
        """This ranking without ties, by any policy but "expected"."""
        if ties == "realistic":
            middle = self.first + (self.tied - 1).clamp_min(0) / 2
            return replace(self, first=middle, tied=self.tied.clamp_max(1), depth=1, complete=False)
        best_first = ties == "optimistic"
        # Two stable sorts, by grade and then by rank, order each tie group by grade.
        order = self.grade.argsort(dim=-1, descending=best_first, stable=True)
        order = order.gather(-1, self.first.gather(-1, order).argsort(dim=-1, stable=True))
        first, tied, grade, valid = (x.gather(-1, order) for x in (self.first, self.tied, self.grade, self.valid))
        start, stop = self.run_bounds()
        position = torch.arange(first.shape[1], device=first.device)
        # Tied candidates that are no entries (unjudged or irrelevant ones) rank behind the entries under "optimistic",
        # and before them under "pessimistic".
        first = first + (position - start if best_first else (tied - (stop - position)).clamp_min(0))
        first = torch.where(tied > 0, first, rank_after_list(self.num_candidates).unsqueeze(-1))
        subtopics = None if self.subtopics is None else of_entries(self.subtopics, order)
        tied = tied.clamp_max(1)
        return replace(self, first=first, tied=tied, grade=grade, valid=valid, depth=1, subtopics=subtopics)

    @cached
    def positive(self) -> Positive:
        """The relevant candidate of each query, for a ranking with at most one in each query."""
        relevant = self.valid & (self.grade > 0)
        first, tied = (torch.where(relevant, x, 0.0).sum(-1) for x in (self.first, self.tied))
        found, numbers = tied > 0, (first - 1, tied - 1, self.num_candidates - 1)
        return Positive(relevant.any(-1), found, *(torch.where(found, x, 0.0) for x in numbers))

    @cached
    def condensed(self) -> Self:
        """This ranking without unjudged candidates, so that the judged ones move up (Sakai, SIGIR 2007)."""
        judged = self.judged()
        found = judged & (self.tied > 0)
        before, in_tie = self.before_and_in_tie(found)
        # The judged and retrieved candidates are the whole list now. Those tied before are tied still.
        lengths = found.sum(-1).to(self.first.dtype)
        first, tied = torch.where(found, before + 1, 0), torch.where(found, in_tie, 0)
        moved_up = self.in_rank_order(
            first, tied, self.grade, judged, lengths, self.errors, self.depth, None, self.queries, self.subtopics
        )
        return replace(moved_up, ignored=self.ignored, draw=self.draw, intents=self.intents)

    @cached
    def each_positive(self, level: float) -> Self:
        """Filtered ranking: each relevant entry is a query of its own, among the irrelevant candidates only.

        Rows [query * entry], one entry each.
        """
        before, in_tie = self.relevant_before_and_in_tie(level)
        found = self.found(level)
        others = found.sum(-1, keepdim=True)
        length = (self.num_candidates.unsqueeze(-1) - others).expand_as(self.first)  # without the entry itself
        # An entry moves up by the relevant entries before it. Its tie group loses the other relevant entries.
        return replace(
            self,
            first=torch.where(found, self.first - before, rank_after_list(length)).reshape(-1, 1),
            tied=torch.where(found, self.tied - in_tie + 1, 0).reshape(-1, 1),
            grade=self.grade.reshape(-1, 1),
            valid=self.relevant(level).reshape(-1, 1),
            num_candidates=(length + found).reshape(-1),
            complete=False,
            subtopics=None,
            intents=None,
            ignored=None if self.ignored is None else self.ignored.repeat_interleave(self.first.shape[1]),
        )

    # ---- quantities that measures share ------------------------------------------------------------------------

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return len(self.num_candidates)

    @property
    def num_subtopics(self) -> int:
        """Number of subtopics, including subtopics that are padding for some queries."""
        return 1 if self.subtopics is None else self.subtopics.shape[2]

    @cached
    def judged(self) -> Tensor:
        """bool [query, entry]: whether an entry is judged, retrieved or not."""
        return self.valid & (self.grade >= 0)

    def num_within(self, top_k: int | None) -> Tensor:
        """float64 [query]: number of candidates, at most ``top_k``."""
        return self.num_candidates if top_k is None else self.num_candidates.clamp_max(top_k)

    @cached
    def relevant(self, level: float) -> Tensor:
        """bool [query, entry]: the grade is at or above ``level``."""
        return self.valid & _at_least(self.grade, level)

    @cached
    def found(self, level: float) -> Tensor:
        """bool [query, entry]: relevant and retrieved."""
        return self.relevant(level) & (self.tied > 0)

    @cached
    def num_relevant(self, level: float) -> Tensor:
        """float64 [query]: number of relevant candidates, retrieved or not, also beyond ``reach``."""
        relevant = self.relevant(level) if self.pool is None else _at_least(self.pool, level)
        return relevant.sum(-1).to(self.first.dtype)

    @property
    def untied(self) -> bool:
        """True if ``depth`` guarantees that no two candidates are tied."""
        return self.depth <= 1

    @cached
    def prob_in_top_k(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: probability that an entry is among the first ``top_k``."""
        if self.untied:
            return self.ranks_in_top_k(top_k)
        return self._of_interval(lambda first, tied: _ranks_up_to(first, tied, top_k) / tied.clamp_min(1))

    @cached
    def ranks_in_top_k(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: number of possible ranks of an entry that are among the first ``top_k``."""
        return self.ranks_within(top_k)

    def ranks_within(self, cut: Tensor | int | None) -> Tensor:
        """:meth:`ranks_in_top_k` for a cutoff that may differ between queries: [query, 1]."""
        if self.untied and cut is not None:
            return (self.first <= cut) * self.tied
        return _ranks_up_to(self.first, self.tied, cut)

    @cached
    def hits(self, level: float, top_k: int | None) -> Tensor:
        """float64 [query]: (expected) number of relevant candidates among the first ``top_k``."""
        return torch.where(self.found(level), self.prob_in_top_k(top_k), 0.0).sum(-1)

    def hits_by_rank(self, level: float, ranks: int) -> Tensor:
        """float64 [query, rank]: :meth:`hits` for ``top_k`` = 1, 2, ..., ``ranks``. Not for "realistic" ties."""
        return running_sum(self.by_rank(self.relevant_before_and_in_tie(level)[1], ranks))

    def gains_by_rank(self, gain: Callable[[Tensor], Tensor], ranks: int) -> Tensor:
        """float64 [query, rank]: (expected) gain at the ranks 1, 2, ..., ``ranks``. Not for "realistic" ties."""
        gains = torch.where(self.tied > 0, self.gains(gain), 0.0)
        return self.by_rank(gains if self.untied else self.before_and_in_tie(gains)[1], ranks)

    def by_rank(self, in_tie: Tensor, ranks: int) -> Tensor:
        """Spread the sum over each tie group evenly over its ranks: float64 [query, rank].

        ``in_tie`` [query, entry] is the sum over the tie group of each entry, the same for all its entries.
        """
        share = ratio(in_tie, self.tied)
        # Column ``ranks`` absorbs the groups that begin beyond the last rank.
        table = share.new_zeros((len(share), ranks + 1))
        begins = (self.first.ceil() - 1).clamp_max(ranks).long()
        density = table.scatter(1, begins, share)
        # With ties the density is a sum of steps: plus the share where a group begins, minus the share behind its end.
        if not self.untied:
            ends = torch.where(self.tied > 0, self.first - 1 + self.tied, ranks).clamp_max(ranks).long()
            density = running_sum(density - table.scatter(1, ends, share))
        return density[:, :ranks]

    @cached
    def relevant_before_and_in_tie(self, level: float) -> tuple[Tensor, Tensor]:
        """Number of retrieved relevant entries before, and in, each entry's tie group: float64 [query, entry] each."""
        return self.before_and_in_tie(self.found(level))

    def before_and_in_tie(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of ``x`` over the entries before, and in, each entry's tie group: float64 [query, entry] each.

        ``x`` is bool or float64 [query, entry].
        """
        alone = x.to(self.first.dtype)
        if self.first.shape[1] == 1:
            return torch.zeros_like(self.first), alone
        if self.untied:
            return running_sum(alone) - alone, alone
        # Differences of prefix sums at the ends of each tie group. Sums of bool are integers, so cumsum is exact.
        sums = x.cumsum(-1) if x.dtype == torch.bool else running_sum(x)
        so_far = torch.nn.functional.pad(sums, (1, 0)).to(self.first.dtype)
        start, stop = self.run_bounds()
        before = so_far.gather(-1, start)
        return before, so_far.gather(-1, stop) - before

    @cached
    def run_bounds(self) -> tuple[Tensor, Tensor]:
        """The columns where each entry's tie group starts and stops: int64 [query, entry] each."""
        if self.complete:  # columns are ranks, so the interval of ranks gives the columns
            above = torch.where(self.tied > 0, self.first - 1, 0)
            return above.long(), (above + self.tied).long()
        return run_bounds(run_starts(self.first))

    @cached
    def mean_rank(self) -> Tensor:
        """float64 [query, entry]: mean of the possible ranks of an entry; the rank behind the list if not retrieved."""
        missing = (self.num_candidates + 1).unsqueeze(-1)
        return torch.where(self.tied > 0, self.first + (self.tied - 1) / 2, missing)

    @cached
    def mean_discount(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: (expected) ``discount(rank)``, 0 beyond ``top_k`` and if not retrieved."""
        if self.untied:
            return self.discount_sum(discount, top_k)
        return self._of_interval(
            lambda first, tied: self._discount_sum(first, tied, discount, top_k) / tied.clamp_min(1)
        )

    @cached
    def discount_sum(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: sum of the discount over an entry's interval of ranks up to ``top_k``."""
        if self.untied:
            inside = self.tied > 0 if top_k is None else (self.tied > 0) & (self.first <= top_k)
            return torch.where(inside, self._discount_at_best_rank(discount), 0.0)
        return self._of_interval(lambda first, tied: self._discount_sum(first, tied, discount, top_k))

    def _discount_sum(
        self, first: Tensor, tied: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        # The sum over a tie group is a difference of prefix sums. An entry without ties gets its discount directly,
        # because its rank may be larger than the table, which ends at ``depth``.
        alone = tied == 1 if top_k is None else (tied == 1) & (first <= top_k)
        last = self.depth if top_k is None else min(top_k, self.depth)
        above = torch.where(tied > 0, first - 1, 0).long()
        start, stop = above.clamp_max(last), (above + tied.long()).clamp_max(last)
        table = self._prefix(discount, last)
        several = table.take(stop) - table.take(start)
        if last > NEAR:
            lost = self._lost(discount, last)
            several = several + (lost.take(stop) - lost.take(start))
        return torch.where(alone, discount(first.clamp_min(1)), torch.where(tied > 1, several, 0.0))

    @cached
    def _discount_at_best_rank(self, discount: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, entry]: the discount at the best rank of each entry."""
        return discount(self.first.clamp_min(1))

    def _of_interval(self, piece: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """``piece(first, tied)`` of each entry, computed once for each interval of ranks if there are few intervals."""
        grid = self._grid()
        if grid is None:
            return piece(self.first, self.tied)
        first, tied, at = grid
        return piece(first, tied).index_select(0, at).view(self.first.shape)

    @cached
    def _grid(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """All possible intervals of entries, and the number of each entry's interval; None if there are too many.

        Returns:
            ``first`` and ``tied`` of each interval, float64 [interval] each; int64 [query * entry].
        """
        if not reading_is_free(self.first) or not len(self.first):  # the number of intervals depends on values
            return None
        above = torch.where(self.tied > 0, self.first - 1, 0)
        ranks, longest = int(above.max()) + 1, int(self.tied.max()) + 1
        # With fewer than 4 entries per interval the detour does not pay.
        if ranks * longest * 4 > above.numel():
            return None
        cells = torch.arange(ranks * longest, device=self.first.device)
        at = above.mul_(longest).add_(self.tied).long().flatten()
        return (cells // longest + 1).to(self.first.dtype), (cells % longest).to(self.first.dtype), at

    @cached
    def _prefix(self, discount: Callable[[Tensor], Tensor], limit: int) -> Tensor:
        """Prefix sums of a discount: element r is the sum over the ranks 1 ... r; float64 [limit + 1]."""
        ranks = torch.arange(1, limit + 1, dtype=self.first.dtype, device=self.first.device)
        return torch.nn.functional.pad(running_sum(discount(ranks)), (1, 0))

    @cached
    def _lost(self, discount: Callable[[Tensor], Tensor], limit: int) -> Tensor:
        """Exact prefix sums minus :meth:`_prefix`: the digits that rounding has taken; float64 [limit + 1]."""
        table = self._prefix(discount, limit)
        lost = torch.zeros_like(table)
        for start in range(0, limit, BLOCK):
            stop = min(start + BLOCK, limit)
            ranks = torch.arange(start + 1, stop + 1, dtype=table.dtype, device=table.device)
            low, high = table[start:stop], table[start + 1 : stop + 1]
            # ``step`` and its rounding error ``off`` make up the difference of two prefix sums (Knuth's TwoSum).
            step = high - low
            back = step - high
            off = (high - (step - back)) - (low + back)
            lost[start + 1 : stop + 1] = lost[start] + running_sum(discount(ranks) - step - off)
        return lost

    @cached
    def gains(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, entry]: gain of each entry; 0 if unjudged or padding, and for most gains at grade 0."""
        return gains_of(self.grade, self.valid, gain, self.first.dtype)

    @cached
    def judged_gains(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, judged]: :meth:`gains` of all judged candidates, also beyond ``reach``, in any order."""
        return self.gains(gain) if self.pool is None else gains_of(self.pool, None, gain, self.first.dtype)

    @cached
    def total_gain(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query]: sum of the gains of all judged candidates, retrieved or not, also beyond ``reach``."""
        return self.judged_gains(gain).sum(-1)

    @cached
    def ideal(
        self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """float64 [query]: the largest sum of discounted gains over all orders of the judged candidates."""
        judged = self.grade if self.pool is None else self.pool
        levels = self._levels() if as_gain(gain).monotone else None
        # The n(l) candidates at or above level l have the ranks 1 ... n(l) in the ideal order. So each level l adds
        # gain(l) - gain(l - 1) times the sum of the first n(l) discounts.
        if levels is not None:
            sums = self._prefix(discount, min(top_k or judged.shape[1], judged.shape[1]))
            by_level = gain(torch.arange(levels + 1, dtype=sums.dtype, device=sums.device)).tolist()
            total = torch.zeros_like(self.num_candidates)
            for level in range(1, levels + 1):
                discounts = sums.take(self.num_relevant(level).long().clamp_max_(len(sums) - 1))
                total += (by_level[level] - (by_level[level - 1] if level > 1 else 0)) * discounts
            return total
        best = self._best(gain)[:, :top_k]
        ranks = torch.arange(1, best.shape[1] + 1, dtype=best.dtype, device=best.device)
        return (best * discount(ranks)).sum(-1)

    def ideal_order(self, gain: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, rank]: gains of all judged candidates in descending order, up to ``top_k``."""
        return self._best(gain)[:, :top_k]

    @cached
    def _best(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """Gains of all judged candidates in descending order, up to ``reach``: float64 [query, rank].

        Negative gains are replaced by 0: in the ideal order such candidates rank behind all others, and layouts differ
        in how many of the others are entries.
        """
        if self.pool is None:
            return self.gains(gain).sort(dim=-1, descending=True).values.clamp_min_(0)
        rank = min(self.reach or self.pool.shape[1], self.pool.shape[1])
        return self.judged_gains(gain).topk(rank).values.clamp_min_(0)

    @cached
    def _levels(self) -> int | None:
        """The largest grade if grades are small integers on the CPU, else None."""
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


def _ranks_up_to(first: Tensor, tied: Tensor, cut: Tensor | int | None) -> Tensor:
    """Number of ranks of each interval up to a cutoff."""
    return tied if cut is None else torch.minimum((cut + 1 - first).clamp_min_(0), tied)


def _at_least(grade: Tensor, level: float) -> Tensor:
    """bool, like ``grade``: at or above a level."""
    if not grade.is_floating_point() and level > torch.iinfo(grade.dtype).max:
        return torch.zeros_like(grade, dtype=torch.bool)  # torch would wrap the level around in the grade's dtype
    return grade >= level


def _gaining(grade: Tensor, gain: Callable[[Tensor], Tensor]) -> Tensor:
    """bool, like ``grade``: the gain may differ from 0. A table of gains may have a gain for grade 0."""
    return grade >= 0 if as_gain(gain).of_zero else grade > 0


def gains_of(grade: Tensor, judged: Tensor | None, gain: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Tensor:
    """Gains of the judged grades in a floating dtype, 0 for all others; ``judged`` is bool, None = all."""
    gaining = _gaining(grade, gain) if judged is None else judged & _gaining(grade, gain)
    level = as_gain(gain).level
    if level is not None and as_gain(gain).binary:
        return (gaining & _at_least(grade, level)).to(dtype)
    wide = torch.where(gaining, grade, torch.zeros_like(grade)).to(dtype)
    # The level is compared in the grade's dtype: 0.1 in float16 is below 0.1 in float64. A grade at or above it is
    # lifted to the level, so that the gain function decides in the same way.
    if level is not None:
        wide = torch.where(_at_least(grade, level), wide.clamp_min(level), torch.zeros_like(wide))
    return torch.where(gaining, gain(wide), 0.0)
