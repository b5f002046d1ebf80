"""Gains of the entries of a ranking, and of the ideal order of its judged candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from torchrank.hardware.devices import every
from torchrank.hardware.sorted_values import largest
from torchrank.ranking.arithmetic import as_numbers, either, number_of, only, row_sum
from torchrank.ranking.derived import Derived, at_least, cached
from torchrank.ranking.gain import Gain, as_gain
from torchrank.ranking.intervals import of_first_ranks, prefix_sums

# The ideal order counts integer grades level by level up to this largest grade, and sorts beyond it.
FEW_LEVELS = 8


@dataclass(frozen=True, eq=False)
class Gained(Derived):
    """The quantities that measures of graded relevance derive from a ranking."""

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
            return self.sum_up_to(top_k, Gained.discounted_gains, gain, discount, None)
        if not self.shares_sums(top_k):
            return row_sum(self.discounted_gains(gain, discount, top_k))
        # Cutoffs share the sums, but a table of discounts over many more ranks than entries would not pay.
        farthest = None if self.depth <= self.first.shape[1] else top_k
        before, up_to = self.before_and_up_to_last(top_k, Gained.discounted_gains, gain, discount, farthest)
        _, inside = self.before_and_in_last(top_k, Gained.gains, gain)
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
