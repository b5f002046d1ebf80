"""The entries of a ranking, and what measures derive from them: ranks, counts, gains and the ideal order."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, Self, TypeGuard, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchrank.hardware.devices import constant, every, largest, running_sum, scalar
from torchrank.layouts.canonical import BLOCK
from torchrank.names.arguments import integer, one_of
from torchrank.ranking.intervals import (
    Intervals,
    LastGroup,
    RelevantRanks,
    as_numbers,
    either,
    first_discounts,
    number_of,
    of_first_ranks,
    only,
    prefix_differences,
    prefix_sums,
    ratio,
    row_sum,
)

# Fields of a ranking that few rankings have, [query, entry, ...], and all fields with a column per entry.
FURTHER = ("subtopics", "partly_judged", "changed", "costs")
PER_ENTRY = ("first", "tied", "grade", "valid", *FURTHER)

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


# The ideal order counts integer grades level by level up to this largest grade, and sorts beyond it.
FEW_LEVELS = 8


@dataclass(frozen=True, eq=False)
class Positive:
    """The only relevant candidate of each query: bool or float64, [query] each."""

    #: whether the query has a relevant candidate
    exists: Tensor
    #: whether it is retrieved; if not, the numbers are 0
    retrieved: Tensor
    #: number of negatives above it
    above: Tensor
    #: number of negatives tied with it
    tied: Tensor
    #: number of all negatives in the list
    negatives: Tensor


@dataclass(frozen=True)
class Draw:
    """A uniform draw of negatives, with which the relevant candidate of each query is ranked.

    The sampled list can have ``num_negatives`` + 3 outcomes: the relevant candidate has one of the ranks 1, 2, ...,
    ``num_negatives`` + 1; it is not retrieved; there is none.
    """

    num_negatives: int
    replacement: bool
    #: grade of the relevant candidates
    grade: float

    @classmethod
    def of(cls, num_negatives: int, replacement: bool, grades: Tensor) -> Draw:
        """A draw for relevant candidates with ``grades`` [candidate].

        Raises:
            ValueError: an argument has a wrong value, or grades differ.
        """
        integer("num_negatives", num_negatives, least=1, or_none=False)
        one_of("replacement", replacement, (True, False))
        if len(grades) and (grades != grades[0]).any():
            graded = ", ".join(f"{grade:g}" for grade in grades.unique().tolist()[:3])
            raise ValueError(f"Expected relevant candidates of one grade, got {graded}; make the target binary")
        return cls(int(num_negatives), replacement, grades[0].item() if len(grades) else 1)

    def check(self, positive: Positive, num_relevant: Tensor) -> None:
        """Raise ValueError for the first query that has no such draw; ``num_relevant`` is [query]."""
        least = 1 if self.replacement else self.num_negatives
        negatives = positive.negatives.masked_fill(~positive.retrieved, least)
        cases = [
            (num_relevant > 1, "one relevant candidate", "rank each by itself: ranking.each_positive(1).sampled(...)"),
            (negatives.isnan(), "lists of known length", "pass num_candidates to Ranking.from_ranks"),
            (negatives < least, f"{least} negatives or more", "lower num_negatives"),
            (positive.above.frac() != 0, "a whole rank", "pass an interval of ranks, as scores with ties have it"),
        ]
        for wrong, wanted, way_out in cases:
            if wrong.any():
                row = int(wrong.nonzero()[0])
                got = f"{num_relevant[row]:g} relevant and {positive.negatives[row]:g} other candidates"
                raise ValueError(f"Expected {wanted} in each query, got {got} in query {row}; {way_out}")

    @property
    def places(self) -> int:
        """Number of ranks in the sampled list."""
        return self.num_negatives + 1

    def expect(self, positive: Positive, values: Tensor) -> Tensor:
        """The expectation over the draw of values that depend on the outcome.

        Args:
            positive: the relevant candidate of each query.
            values: float64 [outcome, number].

        Returns:
            float64 [query, number].
        """
        rows, again = torch.stack([positive.above, positive.tied, positive.negatives], -1), None
        if rows.is_cpu:  # equal ranks have equal probabilities
            rows, again = rows.unique(dim=0, return_inverse=True)
        parts = rows.split(max(1, BLOCK // self.places))
        mean = torch.cat([self.chances(*part.unbind(-1)) @ values[: self.places] for part in parts])
        mean = mean if again is None else mean[again]
        other = torch.where(positive.exists.unsqueeze(-1), values[-2], values[-1])
        return torch.where(positive.retrieved.unsqueeze(-1), mean, other)

    def chances(self, above: Tensor, tied: Tensor, negatives: Tensor) -> Tensor:
        """The distribution of the rank among the sampled negatives: float64 [row, rank].

        Args:
            above: float64 [row]: negatives above the relevant candidate.
            tied: float64 [row]: negatives tied with it. Its rank is uniform on the interval of the sampled ties.
            negatives: float64 [row]: all negatives.
        """
        alone = chances_above(above, negatives, self.num_negatives, self.replacement)
        if tied.is_cpu and not tied.any():
            return alone
        # Sums over the interval telescope. With N negatives, m draws and t ties behind a others, the probability of
        # x above is (N + 1) / ((m + 1) (t + 1)) times P(X' > x | a + t + 1) - P(X' > x | a), with X' the number above
        # of m + 1 draws from N + 1. With replacement the integral over the share above has N and t for N + 1 and t + 1.
        added = 0 if self.replacement else 1
        behind, all_of = above + tied + added, negatives + added
        scale = all_of / (self.places * (tied + added).clamp_min(1))
        several = self._beyond(behind, all_of) - self._beyond(above, all_of)
        return torch.where((tied > 0).unsqueeze(-1), several.clamp_min(0) * scale.unsqueeze(-1), alone)

    def _beyond(self, above: Tensor, total: Tensor) -> Tensor:
        """P(more than x above) for one more draw and x = 0, ..., ``num_negatives``: float64 [row, x]."""
        chances = chances_above(above, total, self.places, self.replacement)
        return running_sum(chances[:, 1:].flip(-1)).flip(-1)


def chances_above(above: Tensor, total: Tensor, draws: int, replacement: bool) -> Tensor:
    """P(x of the drawn negatives are above) for x = 0, 1, ..., ``draws``: float64 [row, x].

    Of ``total`` [row] negatives ``above`` [row] are above the relevant candidate. The distribution is hypergeometric,
    or binomial with replacement. It is the softmax of sums of log(P(x + 1) / P(x)): no factorial of a large number, in
    which digits would be lost, is part of it.
    """
    x = torch.arange(draws, dtype=above.dtype, device=above.device)
    above, below = above.unsqueeze(-1), (total - above).unsqueeze(-1)
    used, left = (0, 0) if replacement else (x, draws - 1 - x)
    # Fewer than ``least`` are impossible, because there are not enough negatives below.
    least = (below <= 0) * draws if replacement else (draws - below).clamp_min(0)
    ratio = (above - used).clamp_min(0) * (draws - x) / ((below - left) * (x + 1))
    logits = pad(running_sum(torch.where(x < least, 0.0, ratio.log())), (1, 0))
    return logits.masked_fill(torch.arange(draws + 1, device=x.device) < least, float("-inf")).softmax(-1)


class Gain:
    """A function from grades to gains. Gains with equal parameters are equal, so that their sums are cached once."""

    #: whether the gain is the grade itself
    identity: bool = False
    #: whether a larger grade never has a smaller gain
    monotone: bool = False
    #: grades below it have gain 0; None = no such level
    level: float | None = None
    #: whether all grades at or above this level have gain 1
    binary: bool = False
    #: whether grade 0 may have a gain above 0
    of_zero: bool = False

    def __call__(self, grade: Tensor) -> Tensor:
        """The gains of grades >= 0, float like ``grade``."""
        raise NotImplementedError(f"Expected {type(self).__name__} to define __call__(grade)")


@dataclass(frozen=True)
class PlainGain(Gain):
    """A gain that is a plain function, without known properties."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, grade: Tensor) -> Tensor:
        """The gains of grades. The function gets a copy, because it may work in place."""
        return self.function(grade.clone())


def as_gain(gain: Callable[[Tensor], Tensor]) -> Gain:
    """Convert a function to a gain; return a gain unchanged."""
    return gain if isinstance(gain, Gain) else PlainGain(gain)


@dataclass(frozen=True, eq=False)
class Quantities:
    """One row of entries per query: its judged candidates in rank order, unretrieved ones last, then padding.

    Ties make a rank an interval: an entry's rank is uniform on [first, first + tied - 1]. A ranking never changes, so
    what measures derive from it is cached in ``_cache``.
    """

    #: float64 [query, entry]: best rank of the entry, 1 + number of candidates with a higher score
    first: Tensor
    #: float64 [query, entry]: size of its tie group, itself included; 1 = no tie, 0 = not retrieved
    tied: Tensor
    #: [query, entry]: relevance grade in the user's dtype; negative = unjudged
    grade: Tensor
    #: bool [query, entry]: False for padding
    valid: Tensor
    #: float64 [query]: length of the ranked list
    num_candidates: Tensor
    #: int64 [kind]: counters of bad values, see ``torchrank/layouts/checks.py``
    errors: Tensor
    #: upper bound on the ranks of tied candidates, known from shapes, so that tables over ranks need not read values
    depth: int
    #: the last exact rank: larger ranks are only known to be larger; None = all ranks are exact
    reach: int | None = None
    #: [query, judged]: grades of all judged candidates, 0 = padding; None = all judged candidates are entries
    pool: Tensor | None = None
    #: whether every retrieved candidate up to ``reach`` is an entry, so that an entry's place in its row is its rank
    complete: bool = False
    #: int64 [query]: number of each query in its batch; None = consecutive
    queries: Tensor | None = None
    #: whether every candidate is an entry, retrieved or not
    all_candidates: bool = False
    #: whether irrelevant candidates were left out
    only_relevant: bool = False
    #: whether the only entry of each query is its label: a relevant candidate of grade 1, or padding
    of_labels: bool = False
    #: [query, entry, subtopic]: grade for each subtopic; ``grade`` is the largest of them; None = no subtopics
    subtopics: Tensor | None = None
    #: bool [query, entry]: the entry is a group with judged and unjudged candidates, so that its ``grade``, the largest
    #: of the judged ones, is a lower bound; None = there is no such group
    partly_judged: Tensor | None = None
    #: float64 [query, entry]: the share of the entry in the changed documents of its query; None = not given
    changed: Tensor | None = None
    #: float64 [query, subtopic]: probability, or another weight, of each subtopic; None = all are equally likely
    intents: Tensor | None = None
    #: float64 [query, entry]: cost of each candidate, and every candidate is an entry; None = unknown
    costs: Tensor | None = None
    #: bool [query]: the query does not count in any mean; None = all queries count
    ignored: Tensor | None = None
    #: draw of negatives, over which measures take their expectation; None = all candidates are ranked
    draw: Draw | None = None
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def in_rank_order(
        cls,
        first: Tensor,
        tied: Tensor,
        grade: Tensor,
        valid: Tensor,
        num_candidates: Tensor,
        errors: Tensor,
        depth: int,
        reach: int | None = None,
        queries: Tensor | None = None,
        placed: bool = False,
        **others: Any,
    ) -> Self:
        """Make a ranking of entries in any order: sort each row by rank.

        Entries that are not retrieved get the rank behind their list. Padding follows them. ``placed``: ``first`` is
        already that rank for both. ``others`` are further fields.
        """
        # The bound from shapes is far too large for most data, which has no ties.
        if first.is_cpu and depth > 1:
            depth = depth_of(first, tied)
        if not placed:
            first = torch.where(tied > 0, first, rank_after_list(num_candidates).unsqueeze(-1))
        if first.shape[-1] > 1:
            order = torch.where(valid, first, scalar(math.inf, first.dtype, first.device)).argsort(dim=-1, stable=True)
            first, tied, grade, valid = (x.gather(-1, order) for x in (first, tied, grade, valid))
            others |= {name: of_entries(x, order) for name in FURTHER if (x := others.get(name)) is not None}
        return cls(first, tied, grade, valid, num_candidates, errors, depth, reach, queries=queries, **others)

    @property
    def joined(self) -> Self:
        """This ranking as one rectangle."""
        return self

    def take(self, queries: Tensor | slice) -> Self:
        """The ranking of some queries, given by their rows in this ranking, int64 [query], or as a slice."""
        others = ("num_candidates", "pool", "queries", "intents", "ignored")
        taken = {}
        for name in (*PER_ENTRY, *others):
            if (x := getattr(self, name)) is not None:
                taken[name] = x[queries]
        return replace(self, **taken)

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
        return self.sum_up_to(top_k, Quantities.hit_numbers, level)

    def hits_by_rank(self, level: float, ranks: int) -> Tensor:
        """float64 [query, rank]: :meth:`hits` for ``top_k`` = 1, 2, ..., ``ranks``. Not for "realistic" ties."""
        if self.untied and self.complete and self.first.shape[1]:  # columns are ranks
            hit = self._running(Quantities.hit_numbers, level)[:, :ranks]
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
            return self._running(Quantities.hit_numbers, level) - alone, alone
        if self.first.shape[1] > 1 and self.first.is_cpu:
            return self._before_and_in_tie(self._running(Quantities.hit_numbers, level))
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

    # ---- gains ----

    @cached
    def gains(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, entry]: gain of each entry; 0 if unjudged or padding, and for most gains at grade 0."""
        return gains_of(self.grade, self.valid, gain, self.first.dtype)

    @cached
    def discounted_gains(
        self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """float64 [query, entry]: gain of each entry times its (expected) discount, 0 if it was not retrieved."""
        return self.gains(gain) * self.mean_discount(discount, top_k)

    def discounted_gain(
        self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """float64 [query]: (expected) sum of discounted gains over the first ``top_k`` ranks."""
        if self.untied:
            return self.sum_up_to(top_k, Quantities.discounted_gains, gain, discount, None)
        if not self.shares_sums(top_k):
            return row_sum(self.discounted_gains(gain, discount, top_k))
        # Cutoffs share the sums, but a table of discounts over many more ranks than entries would not pay.
        farthest = None if self.depth <= self.first.shape[1] else top_k
        before, up_to = self.before_and_up_to_last(top_k, Quantities.discounted_gains, gain, discount, farthest)
        _, inside = self.before_and_in_last(top_k, Quantities.gains, gain)
        last = self.last_group(top_k)
        return torch.where(
            last.complete, up_to, before + inside * self.discount_in_last(discount, top_k) / last.ranks.number
        )

    @cached
    def judged_gains(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, judged]: :meth:`gains` of all judged candidates, also beyond ``reach``, in any order."""
        if self.pool is None:
            return self.gains(gain)
        return gains_of(self.pool, None, gain, self.first.dtype)

    @cached
    def total_gain(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query]: sum of the gains of all judged candidates, retrieved or not, also beyond ``reach``."""
        return self.judged_gains(gain).sum(-1)

    @cached
    def ideal(
        self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """float64 [query]: the largest sum of discounted gains over all orders of the judged candidates."""
        gain = gain if isinstance(gain, Gain) else as_gain(gain)
        if not gain.monotone:
            return self._ideal_by_rank(gain, discount, top_k)
        if (levels := self.levels) is not None:
            return self._ideal_by_level(gain, discount, top_k, levels)
        value = self._ideal_by_rank(gain, discount, top_k)
        judged = self._judged_grades
        if not judged.is_cpu or judged.is_floating_point() or not judged.shape[1]:
            return value
        # A query whose own grades are small gets the same digits as in a batch without others.
        small = judged.amax(-1) <= FEW_LEVELS
        return either(small, self._ideal_by_level(gain, discount, top_k, FEW_LEVELS), value)

    def _ideal_by_rank(self, gain: Gain, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        best = self._best(gain)[:, :top_k]
        return row_sum(best * of_first_ranks(discount, best.shape[1], best.dtype, best.device))

    def _ideal_by_level(
        self, gain: Gain, discount: Callable[[Tensor], Tensor], top_k: int | None, levels: int
    ) -> Tensor:
        judged = self._judged_grades
        limit = min(top_k or judged.shape[1], judged.shape[1])
        # The n(l) candidates at or above level l have the ranks 1 ... n(l) in the ideal order. So each level l adds
        # gain(l) - gain(l - 1) times the sum of the first n(l) discounts.
        sums = prefix_sums(discount, limit, self.first.dtype, self.first.device)
        discounts = sums.take(self._reached(levels).clamp_max(limit))
        # The table of a function at 1, 2, ... serves gains of grades as well as discounts of ranks.
        by_level = of_first_ranks(gain, levels, self.first.dtype, self.first.device)
        total, below = torch.zeros_like(self.num_candidates), 0.0
        for worth, of_level in zip(by_level.tolist(), discounts):
            total, below = total + of_level * (worth - below), worth
        return total

    @cached
    def _reached(self, levels: int) -> Tensor:
        """int64 [level, query]: number of judged candidates at or above each of the levels 1, 2, ..., ``levels``."""
        if not levels:
            return self.num_candidates.new_zeros((0, self.num_queries), dtype=torch.int64)
        grade = only(self.valid, self.grade) if self.pool is None else self.pool
        return torch.stack([number_of(grade >= level, self.first.dtype) for level in range(1, levels + 1)]).long()

    def ideal_order(self, gain: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, rank]: gains of all judged candidates in descending order, up to ``top_k``."""
        return self._best(as_gain(gain))[:, :top_k]

    @cached
    def _best(self, gain: Gain) -> Tensor:
        """Gains of all judged candidates in descending order, up to ``reach``: float64 [query, rank].

        Negative gains are replaced by 0: in the ideal order such candidates rank behind all others, and layouts differ
        in how many of the others are entries.
        """
        grade = self._ideal_grades() if gain.monotone else None
        if grade is not None:
            by_level = gains_of(torch.arange(FEW_LEVELS + 1, device=grade.device), None, gain, self.first.dtype)
            by_level = by_level.clamp_min_(0)
            return by_level.index_select(0, grade.view(-1)).view(grade.shape)
        if self.pool is None:
            gains = self.gains(gain)
            several = gains.shape[1] > 1
            return largest(gains, gains.shape[1]).clamp_min_(0) if several else gains.clamp_min(0)
        return largest(self.judged_gains(gain), self._ideal_width()).clamp_min_(0)

    @cached
    def _ideal_grades(self) -> Tensor | None:
        """Grades of all judged candidates in descending order, 0 for all below 0: int64 [query, rank].

        None if grades are not few small integers.
        """
        levels = self.levels
        if levels is None:
            return None
        ranks = torch.arange(1, self._ideal_width() + 1, dtype=self.first.dtype, device=self.first.device)
        grade = torch.zeros((self.num_queries, len(ranks)), dtype=torch.int8, device=ranks.device)
        # The grade at a rank is the number of levels with at least so many candidates at or above them.
        for reached in self._reached(levels):
            grade += (ranks <= reached.unsqueeze(-1)).view(torch.int8)
        return grade.long()

    def _ideal_width(self) -> int:
        """Number of ranks of the ideal order, up to ``reach``."""
        return self.first.shape[1] if self.pool is None else self.pool[:, : self.reach].shape[1]

    @cached_property
    def levels(self) -> int | None:
        """The largest grade if grades are small integers on the CPU, else None."""
        judged = self._judged_grades
        if not judged.is_cpu or judged.is_floating_point() or not judged.numel():
            return None
        most = int(judged.max())
        return max(0, most) if most <= FEW_LEVELS else None

    @cached_property
    def _judged_grades(self) -> Tensor:
        """[query, judged]: grades of all judged candidates."""
        return self.grade if self.pool is None else self.pool

    @cached
    def finite(self) -> Tensor:
        """bool [query]: all grades are finite numbers."""
        grade = self._judged_grades
        if not grade.is_floating_point() or not grade.shape[1]:
            return torch.ones(len(grade), dtype=torch.bool, device=grade.device)
        return grade.amax(-1).isfinite() & grade.amin(-1).isfinite()  # NaN is both

    def gains_by_rank(self, gain: Callable[[Tensor], Tensor], ranks: int) -> Tensor:
        """float64 [query, rank]: (expected) gain at the ranks 1, 2, ..., ``ranks``. Not for "realistic" ties."""
        gains = only(self.retrieved(), self.gains(gain))
        return self.by_rank(gains if self.untied else self.before_and_in_tie(gains)[1], ranks)

    # ---- subtopics ----

    def each_subtopic(self) -> Self:
        """This ranking once for each subtopic, graded for this subtopic alone: rows [query * subtopic].

        Grades without subtopics count as grades for a single subtopic.
        """
        return self if self.subtopics is None else self._of_subtopics(self.subtopics)

    @cached
    def _of_subtopics(self, subtopics: Tensor) -> Self:
        # Each query is repeated for all its subtopics, side by side.
        rows = torch.arange(self.num_queries, device=self.first.device).repeat_interleave(self.num_subtopics)
        grade = subtopics.transpose(1, 2).reshape(-1, subtopics.shape[1])
        return replace(replace(self.joined, subtopics=None, intents=None, queries=None).take(rows), grade=grade)

    @cached
    def head(self, top_k: int | None) -> Self:
        """This ranking with the entries that can be among the first ``top_k``, for sums over these ranks alone."""
        if top_k is None or not self.first.is_cpu or not self.first.numel():
            return self
        inside = (self.first <= top_k).any(0).nonzero()
        width = int(inside.amax()) + 1 if len(inside) else 1  # sums over tie groups need a column
        cut = {name: x[:, :width] for name in PER_ENTRY if (x := getattr(self, name)) is not None}
        return replace(self.joined, **cut)

    @cached
    def gains_by_subtopic(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, subtopic, judged]: gains of all judged candidates for each subtopic, in any order."""
        if self.subtopics is None:
            return self.judged_gains(gain).unsqueeze(1)
        return gains_of(self.subtopics.transpose(1, 2).contiguous(), self.valid.unsqueeze(1), gain, self.first.dtype)


def run_starts(x: Tensor) -> Tensor:
    """bool [query, entry], like ``x``: an element differs from the element before it in its row, or is the first."""
    first = scalar(True, torch.bool, x.device).expand(len(x), 1)
    return torch.cat([first, x[:, 1:] != x[:, :-1]], -1)[:, : x.shape[1]]


def run_bounds(begins: Tensor) -> Tensor:
    """The columns where the run of each element starts and stops: int64 [2, query, entry].

    ``begins`` is bool [query, entry], True where a run begins.
    """
    position = columns(begins.shape[-1] + 1, begins.device)
    if begins.is_cpu and every(begins):
        return position.unfold(0, 2, 1).T.unsqueeze(1).expand(2, *begins.shape)
    # Runs are numbered from 1. The table maps a run to its first column. Slot 0 absorbs the elements that do not begin
    # a run; slots without a run hold the width, so that the last run stops there.
    run, width = begins.cumsum(-1), begins.shape[-1]
    table = position.new_full((len(begins), width + 2), width)
    table.scatter_(-1, run * begins, position[:-1].expand_as(begins))
    return table.unfold(-1, 2, 1).movedim(-1, 0).gather(-1, run.expand(2, -1, -1))


@constant
def columns(number: int, device: torch.device) -> Tensor:
    """0, 1, ..., ``number`` - 1: int64 [number]."""
    return torch.arange(number, device=device)


def depth_of(first: Tensor, tied: Tensor) -> int:
    """The largest rank of a tied entry, 1 if no entry is tied. Reads values."""
    alone = tied <= 1
    return 1 if every(alone) else int((first + tied)[~alone].max()) - 1


def rank_after_list(num_candidates: Tensor) -> Tensor:
    """The rank behind a list; larger than every rank if the length of the list is unknown (NaN)."""
    return num_candidates.nan_to_num(nan=2.0**60) + 1


def of_entries(x: Tensor, order: Tensor) -> Tensor:
    """Reorder a field [query, entry] or [query, entry, subtopic] by an order of the entries, int64 [query, entry]."""
    return x.gather(1, order if x.dim() == 2 else order.unsqueeze(-1).expand(-1, -1, x.shape[2]))


def _ranks_up_to(first: Tensor, tied: Tensor, cut: Tensor | int | None) -> Tensor:
    """Number of ranks of each interval up to a cutoff."""
    return tied if cut is None else torch.minimum((cut + 1 - first).clamp_min_(0), tied)


def at_least(grade: Tensor, level: float) -> Tensor:
    """bool, shaped like ``grade``: the grade is at or above ``level``."""
    if not grade.is_floating_point() and level > torch.iinfo(grade.dtype).max:
        return torch.zeros_like(grade, dtype=torch.bool)  # in the dtype of ``grade``, the level would wrap around
    return grade >= level


def gains_of(grade: Tensor, valid: Tensor | None, gain: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Tensor:
    """Gains of grades in a floating dtype, 0 where ``valid`` is False; for most gains 0 at grade 0, and below it."""
    gain = gain if isinstance(gain, Gain) else as_gain(gain)
    all_valid = valid is None or (valid.is_cpu and every(valid))
    if gain.level is None and all_valid and not grade.is_floating_point():
        wide = grade.clamp_min(0).to(dtype)
        return wide if gain.identity else only(_gaining(grade, gain), gain(wide))
    gaining = _gaining(grade, gain) if valid is None or all_valid else _gaining(grade, gain) & valid
    # The level is compared in the grade's dtype: 0.1 in float16 is below 0.1 in float64. A grade at or above it is
    # lifted to the level, so that the gain function decides in the same way.
    if gain.level is not None and gain.binary:
        return as_numbers(gaining & at_least(grade, gain.level), dtype)
    wide = only(gaining, grade).to(dtype)
    if gain.level is not None:
        wide = only(at_least(grade, gain.level), wide.clamp_min(gain.level))
    return wide if gain.identity else only(gaining, gain(wide))


def _gaining(grade: Tensor, gain: Gain) -> Tensor:
    """bool, like ``grade``: the gain may differ from 0. A table of gains may have a gain for grade 0."""
    return grade >= 0 if gain.of_zero else grade > 0
