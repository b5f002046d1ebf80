"""Quantities that measures derive from a ranking. Each is computed once and cached, for all measures of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, Self, TypeGuard, TypeVar

import torch
from torch import Tensor

from torchrank.hardware.devices import running_sum
from torchrank.ranking.arithmetic import as_numbers, either, number_of, only, ratio, row_sum
from torchrank.ranking.entries import (
    FURTHER,
    PER_ENTRY,
    RankIntervals,
    of_entries,
    rank_after_list,
    run_bounds,
    run_starts,
)
from torchrank.ranking.intervals import Intervals, LastGroup, first_discounts, prefix_differences
from torchrank.ranking.relevant_ranks import RelevantRanks
from torchrank.ranking.sampled import Positive

P = ParamSpec("P")

T = TypeVar("T")

_MISSING: Any = object()


def cached(piece: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Decorator that caches a method of a ranking by its arguments, so that measures share its result.

    Pass gains and discounts that compare equal if they compute the same values, not a new lambda for each call.
    """

    @functools.wraps(piece)
    def once(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (piece, args, tuple(kwargs.items()))
        result = self._cache.get(key, _MISSING)
        if result is _MISSING:
            result = self._cache[key] = piece(self, *args, **kwargs)
        return result

    return once


def of_ranks(piece: Callable[Concatenate[Any, P], Tensor]) -> Callable[Concatenate[Any, P], Tensor]:
    """As :func:`cached`, for a quantity [query, entry] of ranks only: computed once if all queries have equal ranks."""

    @functools.wraps(piece)
    def once(self: Any, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        key = (piece, args, tuple(kwargs.items()))
        result = self._cache.get(key)
        if result is None:
            result = self._cache[key] = piece(self.distinct, *args, **kwargs).expand(self.first.shape)
        return result

    return once


@dataclass(frozen=True, eq=False)
class Derived(RankIntervals):
    """The ranks of the judged candidates, and the quantities that measures derive from them.

    A ranking never changes, so derived quantities are cached in ``_cache``.
    """

    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of_intervals(cls, ranks: Intervals, *fields: Any, **others: Any) -> Self:
        """A ranking of entries with these intervals of ranks, which cache what is computed from them."""
        ranking = cls(ranks.first, ranks.tied, *fields, **others)
        vars(ranking)["_intervals_of_entries"] = ranks
        return ranking

    def __getstate__(self) -> dict[str, Any]:
        # Some keys of the cache are functions that cannot be pickled, so a copy begins with an empty cache.
        # Cached properties are left out too: some depend on strides, which can differ in a copy.
        fields = {
            name: x
            for name, x in self.__dict__.items()
            if not isinstance(getattr(type(self), name, None), cached_property)
        }
        return {**fields, "_cache": {}}

    # ---- transforms --------------------------------------------------------------------------------------------

    def under(self, ties: str) -> Self:
        """This ranking with its ties resolved by a policy.

        "expected" keeps the intervals. "optimistic" and "pessimistic" are orders without ties: among equal scores, the
        higher or the lower grades rank first. "realistic" gives each entry the middle of its interval.
        """
        return self if ties == "expected" or self.untied else self.resolved(ties)

    @cached
    def resolved(self, ties: str) -> Self:
        """This ranking without ties, by any policy but "expected".

        "optimistic" and "pessimistic" also sort the candidates that were not retrieved by grade. :meth:`under` leaves
        these candidates in any order if no retrieved candidates are tied.
        """
        if ties == "realistic":
            middle = self.first + (self.tied - 1).clamp_min(0) / 2
            return replace(self.joined, first=middle, tied=self.tied.clamp_max(1), depth=1, complete=False)
        best_first = ties == "optimistic"
        # Two stable sorts, by grade and then by rank, order each tie group by grade.
        order = self.grade.argsort(dim=-1, descending=best_first, stable=True)
        if self.costs is not None:  # of equal grades the cheapest, or the dearest, ranks first
            by_cost = self.costs.argsort(dim=-1, descending=not best_first, stable=True)
            order = self.grade.gather(-1, by_cost).argsort(dim=-1, descending=best_first, stable=True)
            order = by_cost.gather(-1, order)
        order = order.gather(-1, self.first.gather(-1, order).argsort(dim=-1, stable=True))
        present = ((name, getattr(self, name)) for name in PER_ENTRY)
        fields: dict[str, Any] = {name: of_entries(x, order) for name, x in present if x is not None}
        first, tied = fields["first"], fields["tied"]
        start, stop = self.run_bounds()
        position = torch.arange(first.shape[1], device=first.device)
        # Tied candidates that are not entries are unjudged or irrelevant. They rank behind the entries of their tie
        # group under "optimistic", and before these entries under "pessimistic".
        first = first + (position - start if best_first else (tied - (stop - position)).clamp_min(0))
        first = torch.where(tied > 0, first, rank_after_list(self.num_candidates).unsqueeze(-1))
        return replace(self.joined, **fields | {"first": first, "tied": tied.clamp_max(1)}, depth=1)

    @cached
    def positive(self) -> Positive:
        """The relevant candidate of each query. Each query must have at most one relevant candidate."""
        relevant = self.valid & (self.grade > 0)
        first, tied = (only(relevant, x).sum(-1) for x in (self.first, self.tied))
        retrieved, numbers = tied > 0, (first - 1, tied - 1, self.num_candidates - 1)
        return Positive(relevant.any(-1), retrieved, *(only(retrieved, x) for x in numbers))

    @cached
    def condensed(self) -> Self:
        """This ranking without unjudged candidates, so that judged candidates move up (Sakai, SIGIR 2007)."""
        judged = self.judged()
        listed = judged & (self.tied > 0)
        before, in_tie = self.before_and_in_tie(listed)
        # The list now contains only candidates that are judged and retrieved. Candidates that were tied stay tied.
        lengths = listed.sum(-1).to(self.first.dtype)
        first, tied = only(listed, before + 1), only(listed, in_tie)
        moved_up = self.joined.in_rank_order(
            first,
            tied,
            self.grade,
            judged,
            lengths,
            self.errors,
            self.depth,
            None,
            self.queries,
            **{name: getattr(self, name) for name in FURTHER},
        )
        return replace(moved_up, ignored=self.ignored, draw=self.draw, intents=self.intents)

    @cached
    def each_positive(self, level: float) -> Self:
        """Filtered ranking: each relevant entry is a separate query, ranked among the irrelevant candidates only.

        The result has a row for each entry of each query, [query * entry, 1].
        """
        before, in_tie = self.relevant_before_and_in_tie(level)
        hit = self.hit(level)
        num_hits = hit.sum(-1, keepdim=True)
        length = (self.num_candidates.unsqueeze(-1) - num_hits).expand_as(self.first)  # without the entry itself
        # An entry moves up by the number of relevant entries before it. Its tie group loses the other relevant entries.
        return replace(
            self.joined,
            first=either(hit, self.first - before, rank_after_list(length)).reshape(-1, 1),
            tied=only(hit, self.tied - in_tie + 1).reshape(-1, 1),
            grade=self.grade.reshape(-1, 1),
            valid=self.relevant(level).reshape(-1, 1),
            num_candidates=(length + hit).reshape(-1),
            complete=False,
            subtopics=None,
            partly_judged=None,
            changed=None,
            intents=None,
            costs=None,
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

    @cached_property
    def distinct(self) -> Self:
        """This ranking; only its first query if the ranks are expanded from one row, so that all queries share them."""
        same = len(self.num_candidates) > 1 and not self.first.stride(0) and not self.tied.stride(0)
        return self.take(slice(0, 1)) if same else self

    @of_ranks
    def retrieved(self) -> Tensor:
        """bool [query, entry]: the entry is in the ranked list."""
        return self.tied > 0

    @cached
    def relevant(self, level: float) -> Tensor:
        """bool [query, entry]: the grade is at or above ``level``."""
        if self.of_labels and level <= 1:
            return self.valid
        return self.valid & at_least(self.grade, level)

    @cached
    def has_fractions(self) -> Tensor:
        """bool []: whether a grade above 0 is no whole number, also beyond ``reach``."""
        return ((self.valid & (self.grade.frac() > 0)) if self.pool is None else self.pool.frac() > 0).any()

    @cached
    def hit(self, level: float) -> Tensor:
        """bool [query, entry]: relevant and retrieved."""
        return self.relevant(level) if self.in_columns else self.relevant(level) & self.retrieved()

    @cached
    def num_relevant(self, level: float) -> Tensor:
        """float64 [query]: number of relevant candidates, retrieved or not, also beyond ``reach``."""
        relevant = self.relevant(level) if self.pool is None else at_least(self.pool, level)
        return number_of(relevant, self.first.dtype)

    @cached
    def without_relevant(self, level: float) -> Tensor:
        """bool [query]: no candidate is relevant."""
        return self.num_relevant(level) == 0

    @cached_property
    def in_columns(self) -> bool:
        """Whether every entry is known to be retrieved without ties: then its rank is its column, counted from 1."""
        return self.complete and self.untied and not any(self.tied.stride())

    @cached_property
    def untied(self) -> bool:
        """True if ``depth`` guarantees that no two candidates are tied."""
        return self.depth <= 1

    @of_ranks
    def prob_in_top_k(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: probability that an entry is among the first ``top_k``."""
        if self.untied:
            return self.ranks_in_top_k(top_k)
        return self._of_interval(lambda ranks: _ranks_up_to(ranks.first, ranks.tied, top_k) / ranks.number)

    @of_ranks
    def ranks_in_top_k(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: number of possible ranks of an entry that are among the first ``top_k``."""
        return self.ranks_within(top_k)

    def ranks_within(self, cut: Tensor | int | None) -> Tensor:
        """:meth:`ranks_in_top_k` for a cutoff that may differ between queries: [query, 1]."""
        if self.untied and cut is not None:
            return only(self.first <= cut, self.tied)
        return _ranks_up_to(self.first, self.tied, cut)

    def sum_up_to(self, top_k: int | None, piece: Callable[..., Tensor], *args: Any) -> Tensor:
        """float64 [query]: (expected) sum of ``piece(self, *args)`` over the entries up to a rank.

        ``piece`` must be a function of a module or of this class, because it is a key of the cache. It returns float64
        [query, entry], and 0 for entries that were not retrieved.
        """
        # Queries with and without ties are summed in the same way, so that a value does not depend on other queries.
        if self.shares_sums(top_k):
            running = self._running(piece, *args)
            if not self.untied:
                return self.last_group(top_k).up_to_cutoff(running)
            if self.in_columns:
                return running[:, :top_k][:, -1]
            has_entry, last = self._last_up_to(top_k)
            return only(has_entry, running.gather(-1, last)).squeeze(-1)
        x = piece(self, *args)
        if top_k is None:
            return row_sum(x)
        return row_sum(only(self.first <= top_k, x) if self.untied else x * self.prob_in_top_k(top_k))

    def shares_sums(self, top_k: int | None) -> TypeGuard[int]:
        """Whether sums up to a cutoff are read from running sums, which all cutoffs share.

        Not on an accelerator, where a new sum costs less than the kernels of running sums.
        """
        return top_k is not None and self.first.shape[1] > 1 and self.first.is_cpu

    @cached
    def last_group(self, top_k: int) -> LastGroup:
        """The last tie group that begins at or before a rank."""
        has_entry, last = self._last_up_to(top_k)
        first, tied = self.first.gather(-1, last).squeeze(-1), self.tied.gather(-1, last).squeeze(-1)
        tied = only(has_entry.squeeze(-1), tied)
        if self.complete:
            start = (first - 1).long().unsqueeze(-1)
            stop = start + tied.long().unsqueeze(-1)
        else:
            start, stop = (x.gather(-1, last) for x in self.run_bounds())
        # If all entries are behind the rank, there is no group.
        columns = only(has_entry, torch.cat([start, stop], -1))
        return LastGroup(Intervals(first, tied), _ranks_up_to(first, tied, top_k), columns)

    @cached
    def _last_up_to(self, top_k: int) -> tuple[Tensor, Tensor]:
        """Whether entries begin at or before a rank, bool, and the column of the last such entry, int64: [query, 1]."""
        if self.complete:  # columns are ranks
            number = self._num_retrieved.clamp_max(top_k)
        else:
            number = (self.retrieved() & (self.first <= top_k)).sum(-1, keepdim=True)
        return number > 0, (number - 1).clamp_min(0)

    @cached_property
    def _num_retrieved(self) -> Tensor:
        """int64 [query, 1]: number of retrieved entries."""
        return (self.tied > 0).sum(-1, keepdim=True)

    def before_and_in_last(self, top_k: int, piece: Callable[..., Tensor], *args: Any) -> tuple[Tensor, Tensor]:
        """Sums of ``piece(self, *args)`` over the entries before, and in, :meth:`last_group`: float64 [query] each."""
        return self.last_group(top_k).before_and_in(self._running(piece, *args))

    def before_and_up_to_last(self, top_k: int, piece: Callable[..., Tensor], *args: Any) -> tuple[Tensor, Tensor]:
        """As :meth:`before_and_in_last`, over the entries before, and up to the end of, :meth:`last_group`."""
        return self.last_group(top_k).before_and_up_to(self._running(piece, *args))

    @cached
    def discount_in_last(self, discount: Callable[[Tensor], Tensor], top_k: int) -> Tensor:
        """float64 [query]: sum of the discount over the ranks of :meth:`last_group` up to ``top_k``."""
        return self._discount_sum(self.last_group(top_k).ranks, discount, top_k)

    @cached
    def _running(self, piece: Callable[..., Tensor], *args: Any) -> Tensor:
        """float64 [query, entry]: running sums of ``piece(self, *args)``."""
        return running_sum(piece(self, *args))

    @cached
    def relevant_ranks(self, level: float) -> RelevantRanks | None:
        """The expected relevant candidates at each rank, if there are ties and the columns are ranks; else None."""
        if self.untied or not self.complete or not self.first.shape[1]:
            return None
        return RelevantRanks(*self.relevant_before_and_in_tie(level), self._intervals_of_entries)

    @cached
    def hit_numbers(self, level: float) -> Tensor:
        """float64 [query, entry]: 1 for a relevant and retrieved entry, else 0."""
        return as_numbers(self.hit(level), self.first.dtype)

    @cached
    def hits(self, level: float, top_k: int | None) -> Tensor:
        """float64 [query]: (expected) number of relevant candidates among the first ``top_k``."""
        if self.in_columns and self.shares_sums(top_k):
            # A sum of the first columns is faster than running sums, and a sum of integers is the same in any order.
            return number_of(self.hit(level)[:, :top_k], self.first.dtype)
        if top_k is not None and (expected := self.relevant_ranks(level)) is not None:
            return expected.hits[:, :top_k][:, -1]
        return self.sum_up_to(top_k, Derived.hit_numbers, level)

    def hits_by_rank(self, level: float, ranks: int) -> Tensor:
        """float64 [query, rank]: :meth:`hits` for ``top_k`` = 1, 2, ..., ``ranks``. Not for "realistic" ties."""
        if self.untied and self.complete and self.first.shape[1]:  # columns are ranks
            hit = self._running(Derived.hit_numbers, level)[:, :ranks]
            missing = ranks - hit.shape[1]
            return torch.cat([hit, hit[:, -1:].expand(-1, missing)], dim=-1) if missing else hit
        return running_sum(self.by_rank(self.relevant_before_and_in_tie(level)[1], ranks))

    def by_rank(self, in_tie: Tensor, ranks: int) -> Tensor:
        """Spread the sum of each tie group evenly over the ranks of the group: float64 [query, rank].

        ``in_tie`` [query, entry] is the sum of each entry's tie group, the same for all entries of a group.
        """
        share = ratio(in_tie, self.tied)
        # Column ``ranks`` absorbs the groups that begin beyond the last rank.
        table = share.new_zeros((len(share), ranks + 1))
        begins = (self.first.ceil() - 1).clamp_max(ranks).long()
        if self.untied:
            return table.scatter(1, begins, share)[:, :ranks]
        # With ties, the density is a running sum of steps: plus the share where a tie group begins, and minus the share
        # behind the end of the group. Entries without ties are set directly, because steps leave rounding errors.
        in_group = self.tied > 1
        starts = torch.where(in_group, begins, ranks)
        ends = torch.where(in_group, self.first - 1 + self.tied, ranks).clamp_max(ranks).long()
        density = running_sum(table.scatter(1, starts, share) - table.scatter(1, ends, share))
        return density.scatter(1, torch.where(in_group, ranks, begins), share)[:, :ranks]

    @cached
    def relevant_before_and_in_tie(self, level: float) -> tuple[Tensor, Tensor]:
        """Number of retrieved relevant entries before, and in, each entry's tie group: float64 [query, entry] each."""
        if self.untied:
            alone = self.hit_numbers(level)
            return self._running(Derived.hit_numbers, level) - alone, alone
        if self.first.shape[1] > 1 and self.first.is_cpu:
            return self._before_and_in_tie(self._running(Derived.hit_numbers, level))
        return self.before_and_in_tie(self.hit(level))

    def before_and_in_tie(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of ``x`` over the entries before, and in, each entry's tie group: float64 [query, entry] each.

        ``x`` is bool or float64 [query, entry].
        """
        exact = x.dtype == torch.bool  # sums of bool are integers
        if self.first.shape[1] > 1 and not self.untied:
            before, inside = self._before_and_in_tie(x.cumsum(-1) if exact else running_sum(x))
            return before, inside if exact else either(self.tied > 1, inside, x)
        alone = as_numbers(x, self.first.dtype) if exact else x
        if self.first.shape[1] == 1:
            return torch.zeros_like(self.first), alone
        sums = x.cumsum(-1) if exact else running_sum(x)
        return torch.nn.functional.pad(sums[:, :-1], (1, 0)).to(self.first.dtype), alone

    def _before_and_in_tie(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`before_and_in_tie`, from running sums: their differences at the ends of each tie group."""
        so_far = torch.nn.functional.pad(sums.to(self.first.dtype), (1, 0))
        before, up_to = so_far.expand(2, -1, -1).gather(-1, self.run_bounds()).unbind(0)
        return before, up_to - before

    @cached
    def run_bounds(self) -> Tensor:
        """The columns where each entry's tie group starts and stops: int64 [2, query, entry]."""
        if self.complete:  # columns are ranks, so the interval of ranks gives the columns
            return self._intervals_of_entries.ends
        return run_bounds(run_starts(self.first))

    @cached
    def mean_rank(self) -> Tensor:
        """float64 [query, entry]: mean of the possible ranks of an entry; the rank behind the list if not retrieved."""
        missing = (self.num_candidates + 1).unsqueeze(-1)
        return either(self.retrieved(), torch.add(self.first, self.tied - 1, alpha=0.5), missing)

    def mean_discount(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: (expected) ``discount(rank)``, 0 beyond ``top_k`` and if not retrieved."""
        if self.in_columns:  # all queries have the ranks 1, 2, ...
            size, like = self.first.shape, self.first
            return first_discounts(discount, top_k, size[1], like.dtype, like.device).expand(size)
        return self.discount_sum(discount, top_k) if self.untied else self._mean_over_tie(discount, top_k)

    @cached
    def _mean_over_tie(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        return self._of_interval(lambda ranks: self._discount_sum(ranks, discount, top_k) / ranks.number)

    @of_ranks
    def discount_sum(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: sum of the discount over an entry's interval of ranks up to ``top_k``."""
        if self.untied:
            inside = self.tied > 0 if top_k is None else (self.tied > 0) & (self.first <= top_k)
            return only(inside, discount(self.first.clamp_min(1)))
        return self._of_interval(lambda ranks: self._discount_sum(ranks, discount, top_k))

    def mean_discount_of(
        self, first: Tensor, tied: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """As :meth:`mean_discount`, for other intervals of ranks in the same lists: float64, shaped like ``first``."""
        ranks = Intervals(first, tied)
        return self._discount_sum(ranks, discount, top_k) / ranks.number

    def _discount_sum(self, ranks: Intervals, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        # The sum over a tie group is a difference of prefix sums. An entry without ties gets its discount directly,
        # because the table of prefix sums ends at ``depth``, and the rank of the entry may be larger.
        limit = self.depth if top_k is None else min(top_k, self.depth)
        of_group = prefix_differences(discount, limit, ranks.ends.clamp(0, limit), self.first.dtype)
        if self.complete:  # no rank is behind the columns
            table = first_discounts(discount, top_k, self.first.shape[1] + 1, self.first.dtype, self.first.device)
            return torch.where(ranks.alone, table.take(ranks.ends[0]), of_group)
        alone = ranks.alone if top_k is None else ranks.alone & (ranks.first <= top_k)
        return torch.where(alone, discount(ranks.first.clamp_min(1)), of_group)

    def _of_interval(self, piece: Callable[[Intervals], Tensor]) -> Tensor:
        """A quantity of each entry's interval, computed once for equal intervals if few intervals are possible."""
        ranks, place = self._intervals
        return piece(ranks) if place is None else piece(ranks).index_select(0, place).view(self.first.shape)

    @cached_property
    def _intervals_of_entries(self) -> Intervals:
        return Intervals(self.first, self.tied)

    @cached_property
    def _intervals(self) -> tuple[Intervals, Tensor | None]:
        """All possible intervals of entries [interval], and the number of each entry's interval, int64 [query * entry].

        If too many intervals are possible: the interval of each entry [query, entry], and None.
        """
        of_entries = self._intervals_of_entries
        if not self.first.is_cpu or not len(self.first):  # the number of intervals depends on values
            return of_entries, None
        above = only(self.retrieved(), self.first - 1)
        ranks, longest = int(above.max()) + 1, int(self.tied.max()) + 1
        # With fewer than 4 entries per interval, the look-up costs more than it saves.
        if ranks * longest * 4 > above.numel():
            return of_entries, None
        cells = torch.arange(ranks * longest, device=self.first.device)
        place = self.tied.add(above, alpha=longest).long().flatten()
        first, tied = (cells // longest + 1).to(self.first.dtype), (cells % longest).to(self.first.dtype)
        return Intervals(first, tied), place


def _ranks_up_to(first: Tensor, tied: Tensor, cut: Tensor | int | None) -> Tensor:
    """Number of ranks of each interval up to a cutoff."""
    return tied if cut is None else torch.minimum((cut + 1 - first).clamp_min_(0), tied)


def at_least(grade: Tensor, level: float) -> Tensor:
    """bool, shaped like ``grade``: the grade is at or above ``level``."""
    if not grade.is_floating_point() and level > torch.iinfo(grade.dtype).max:
        return torch.zeros_like(grade, dtype=torch.bool)  # in the dtype of ``grade``, the level would wrap around
    return grade >= level
