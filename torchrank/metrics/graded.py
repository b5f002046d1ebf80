"""Measures of graded relevance: sums of gains, discounted by rank."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchrank.formulas.gains import (
    DISCOUNTS_ABOVE_0,
    LINEAR,
    RECIPROCAL,
    UNDISCOUNTED,
    Clipped,
    Logarithmic,
    checked_gain,
    gain_of,
)
from torchrank.hardware.devices import running_sum
from torchrank.layouts.canonical import Need
from torchrank.layouts.checks import Problem, count
from torchrank.metrics.base import RankingMetric
from torchrank.names.parameters import number, one_of, parameter
from torchrank.names.types import Described, EmptyAction, GainOption
from torchrank.ranking.ranking import Gain, Ranking, cached, only, ratio, row_sum, sum_over_ranks

__all__ = ["ARP", "CG", "DCG", "NDCG", "PWA", "RNDCG", "NDCGRel", "NormalizedGain", "QMeasure"]


class GradedMetric(RankingMetric):
    """Base of the measures of graded relevance.

    Args:
        gain: the function from grades to gains: "linear", the grade itself; "exponential", 2 ** grade - 1; a callable
            with a name, from float64 grades to gains, which should not be negative; or a table of gains by grade, as
            ``{1: 1, 2: 4}``, or a list of the gains of grades 0, 1, 2, ... A grade that the table lacks is its own
            gain, as in trec_eval, whose ``ndcg.1=1,2=4`` is read, too. Unjudged candidates always gain 0, and so
            does grade 0, unless a table has a gain for it.

    Raises:
        ValueError: ``gain`` is unknown, a callable without a name, or a table of anything but numbers >= 0.
    """

    value_range = (0.0, math.inf)

    gain: Described[GainOption] = parameter(default="linear", check=checked_gain)

    @functools.cached_property
    def required(self) -> Need:
        needed = super().required
        # With a gain for grade 0, irrelevant candidates at all ranks matter as well.
        return needed | Need() if self.gain_function.of_zero else needed

    def need(self) -> Need:
        return Need(self.top_k, relevant=True)

    @property
    def reach_of_bounds(self) -> int | None:
        return None if self.gain_function.of_zero else super().reach_of_bounds

    @functools.cached_property
    def gain_function(self) -> Gain:
        """The function from grades to gains."""
        return gain_of(self.gain)

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        """The function from ranks to discounts."""
        return UNDISCOUNTED

    def errors(self, ranking: Ranking) -> Tensor:
        if self.gain_function is LINEAR and not ranking.grade.is_floating_point():
            return ranking.errors  # sums of integers do not overflow
        # The gain of a huge grade can overflow, and the value would be NaN without an error. Grades that are not finite
        # themselves were counted before.
        finite = self.ideal(ranking).isfinite()
        return super().errors(ranking) + count(Problem.BAD_GRADES, ~finite & ranking.finite())

    def empty(self, ranking: Ranking) -> Tensor:
        cls = type(self)
        if cls.denominator is RankingMetric.denominator and cls.ideal is GradedMetric.ideal:
            discount = self.discount_function
            if isinstance(discount, DISCOUNTS_ABOVE_0):  # then the first rank decides, for all cutoffs
                return ranking.ideal(self.gain_function, discount, 1) == 0
        return self.ideal(ranking) == 0

    def numerator(self, ranking: Ranking) -> Tensor:
        return ranking.discounted_gain(self.gain_function, self.discount_function, self.top_k)

    def ideal(self, ranking: Ranking) -> Tensor:
        """The largest value over all orders of the judged candidates: float64 [query]."""
        return ranking.ideal(self.gain_function, self.discount_function, self.top_k)


class CG(GradedMetric):
    r"""Cumulative gain: :math:`CG@k = \sum_{i \le k} gain_i`.

    Source:
        Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 20(4), 2002.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.CG().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 3, 5]]))
        tensor([8.], dtype=torch.float64)
    """

    name = "cg"


class DCG(GradedMetric):
    r"""Discounted cumulative gain: :math:`DCG@k = \sum_{i \le k} \frac{gain_i}{\log_b (1 + i)}`.

    Under ``ties="expected"`` a tied candidate gets the mean discount of its ranks (McSherry and Najork, ECIR 2008).

    Session DCG is the sum over the queries of a session, each times a discount of its place q in the session. An
    example is :math:`1 / (1 + \log_{bq} q)` with bq = 4. So ``score`` and these factors give it. If the queries have
    the same judgments, sDCG over its value for ideal lists is the mean :class:`NDCG`, with the factors as ``weights``.

    Source:
        Järvelin and Kekäläinen, TOIS 20(4), 2002; ``gain="exponential"``: Burges et al., ICML 2005. Session DCG:
        Järvelin, Price, Delcambre and Nielsen, Discounted cumulated gain based evaluation of multiple-query IR
        sessions, ECIR 2008.

    Args:
        discount: "log2", 1 / log(1 + rank) to the base ``log_base``; "clipped", 1 / log(rank) to that base, but
            1 up to rank ``log_base``, as in the first definition by Järvelin and Kekäläinen and in LensKit;
            "reciprocal", 1 / rank; or a callable with a name, from float64 ranks to discounts.
        log_base: base of the logarithm, > 1.

    Example:
        >>> import math, torch, torchrank as tr
        >>> tr.DCG().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 3, 5]]))  # 3 / log2(3) + 5 / 2
        tensor([4.3928], dtype=torch.float64)
        >>> scores, grades = torch.tensor([[0.9, 0.8], [0.1, 0.7], [0.3, 0.2]]), torch.tensor([[1, 0], [2, 1], [0, 3]])
        >>> session, place = torch.tensor([0, 0, 1]), torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
        >>> factor = 1 / (1 + place.log() / math.log(4))  # sDCG of two sessions, for bq = 4
        >>> torch.zeros(2, dtype=torch.float64).index_add(0, session, factor * tr.DCG().score(scores, grades))
        tensor([2.5079, 1.8928], dtype=torch.float64)
    """

    name = "dcg"

    discount: Literal["log2", "clipped", "reciprocal"] | Callable[[Tensor], Tensor] = one_of(default="log2")
    log_base: float = number(default=2, above=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.discount not in ("log2", "clipped") and self.log_base != 2:
            raise ValueError(
                "Expected log_base only with discount='log2' or 'clipped', got"
                f" log_base={self.log_base} with discount={self.discount!r}"
            )

    @functools.cached_property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        if callable(self.discount):
            return self.discount
        if self.discount == "reciprocal":
            return RECIPROCAL
        return Clipped(self.log_base) if self.discount == "clipped" else Logarithmic(self.log_base)


class NDCG(DCG):
    r"""Normalised discounted cumulative gain.

    :math:`NDCG@k = \frac{1}{IDCG@k} \sum_{i \le k} \frac{gain_i}{\log_2 (1 + i)}`. The gain of a candidate is its
    grade, or 2 ** grade - 1 with ``gain="exponential"``. The gain at rank i is divided by the discount log2(1 + i), and
    the sum by IDCG: the same sum for the best order of all judged candidates, retrieved or not, cut at k.

    If single candidates have weights, as in TensorFlow Ranking, pass ``weight * gain`` as float grades, with
    ``gain="linear"``. TensorFlow Ranking removes candidates with weight 0: pass ``mask=weight > 0`` to do the same.

    Source:
        Järvelin and Kekäläinen, TOIS 20(4), 2002.

    Args:
        discount: "log2", "clipped", "reciprocal" or a callable with a name; see :class:`DCG`.
        log_base: base of the logarithm, > 1.
        normalize: the denominator: "ideal", IDCG; "k", the DCG of k candidates of grade 1, even if there are fewer, as
            in RecTools. "k" requires ``top_k``, and the value can exceed 1 if grades do.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NDCG().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 3, 5]]))
        tensor([0.6373], dtype=torch.float64)
    """

    name = "ndcg"
    value_range = (0.0, 1.0)

    normalize: Literal["ideal", "k"] = one_of(default="ideal")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize == "k" and self.top_k is None:
            raise ValueError("Expected top_k together with normalize='k', got None")

    @functools.cached_property
    def empty_without_denominator(self) -> bool:
        return self.normalize == "ideal"

    def denominator(self, ranking: Ranking) -> Tensor:
        if self.normalize == "ideal":
            return self.ideal(ranking)
        assert self.top_k is not None
        # k candidates of grade 1: their gain times the sum of the discounts.
        first = ranking.first
        gain = self.gain_function(first.new_ones(1))
        return sum_over_ranks(lambda rank: gain * self.discount_function(rank), self.top_k, first.dtype, first.device)


class ARP(GradedMetric):
    r"""Average relevance position: :math:`\sum_i gain_i \, rank_i \,/\, \sum_i gain_i`. Lower is better.

    The mean rank of the candidates, weighted by their gains. As in :class:`MR`, a candidate that was not retrieved has
    the rank after the list. Queries without gains are skipped by default, and queries for which nothing was retrieved
    always.

    Source:
        TensorFlow Ranking's ``ARPMetric``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.ARP().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 0, 1]]))  # (3 * 1 + 1 * 3) / 4
        tensor([1.5000], dtype=torch.float64)
    """

    name = "arp"
    value_range = (1.0, math.inf)
    higher_is_better = False
    top_k: None = None

    empty_target_action: EmptyAction = "skip"

    def need(self) -> Need:
        return Need(relevant=True)

    def measure(self, ranking: Ranking) -> Tensor:
        gains = ranking.gains(self.gain_function)
        return ratio(only(gains > 0, gains * ranking.mean_rank()).sum(-1), gains.sum(-1))


class PWA(GradedMetric):
    r"""Position-weighted average of gains: :math:`\sum_{i \le k} \frac{gain_i}{i} \,/\, \sum_{i \le k} \frac{1}{i}`.

    If a list is shorter than k, both sums run over its own ranks.

    Source:
        TensorFlow Ranking's ``PWAMetric``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.PWA(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 4, 0]]))  # (1 + 4/2) / (1 + 1/2)
        tensor([2.0000], dtype=torch.float64)
    """

    name = "pwa"

    def numerator(self, ranking: Ranking) -> Tensor:
        gained = ranking.discounted_gain(self.gain_function, RECIPROCAL, self.top_k)
        # The sum of 1 / i up to the length, as a difference of digamma functions. A list of unknown length (NaN)
        # reaches the cutoff. Without a cutoff the value is unknown, too.
        length = ranking.num_candidates.nan_to_num(nan=self.top_k or math.nan).clamp_max(self.top_k or math.inf)
        return ratio(gained, torch.digamma(length + 1) - torch.digamma(length.new_ones(())))


class NormalizedGain(GradedMetric):
    r"""G, normalised gain: gains, discounted by how much an ideal list had gained by the rank of each.

    :math:`\frac{1}{\sum_j ideal_j} \sum_i \frac{gain_i}{\log_2 (2 + C_i - S_i)}`, with :math:`S_i` the gains of the
    first i ranks and :math:`C_i = \sum_{j \le i} \max(1, ideal_j)` those of an ideal list. A candidate behind better
    ones gains almost all that it is worth. Under ``ties="expected"`` a tied candidate is in the middle of its tie
    group, with half of the others before it. The expectation has no known closed form, and is a little larger.

    Source:
        trec_eval, ``G``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NormalizedGain().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2, 0, 1]]))  # (2 + 0.63) / 3
        tensor([0.8770], dtype=torch.float64)
    """

    name = "g"
    takes_unjudged_for = ("irrelevant", "condensed")
    value_range = (0.0, 1.0)
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        gains = only(ranking.retrieved(), ranking.gains(self.gain_function))
        before, beside = ranking.before_and_in_tie(gains)
        best = ranking.ideal_order(self.gain_function)
        above_first = torch.nn.functional.pad(running_sum((best - 1).clamp_min(0)), (1, 0))
        middle = only(ranking.retrieved(), ranking.mean_rank())  # the rank after a list may be unknown
        between = (
            above_first.gather(-1, rank.long().clamp_max(best.shape[1])) for rank in (middle.floor(), middle.ceil())
        )
        behind = middle + sum(between) / 2 - before - (beside + gains) / 2
        reached = only(gains != 0, gains / (2 + behind).log2()).sum(-1)
        return ratio(reached, ranking.total_gain(self.gain_function))


# Gains with a smaller relative difference count as equal.
ROUNDING = 1e-12


class RNDCG(GradedMetric):
    r"""NDCG averaged over the ranks at which the ideal order changes its grade, :math:`\frac{1}{m} \sum_j NDCG@R_j`.

    :math:`R_j` is the number of judged candidates with one of the j largest positive gains; m is the number of such
    ranks. As in trec_eval, the whole list counts as one more rank if it is longer than the number of relevant
    candidates plus one. So the value is NaN for a list of unknown length. The discount is 1 / log2(1 + rank). The
    measure is linear in the gains, so it is exact under ties.

    Source:
        trec_eval, ``Rndcg``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RNDCG().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2, 0, 1]]))  # (1 + 2 / 2.6309) / 2
        tensor([0.8801], dtype=torch.float64)
    """

    name = "rndcg"
    value_range = (0.0, 1.0)
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        gain, discount = self.gain_function, Logarithmic(2)
        best = ranking.ideal_order(gain)
        # DCG and ideal DCG at every rank; the ranks R_j are selected below.
        ranks = torch.arange(1, best.shape[1] + 1, dtype=best.dtype, device=best.device)
        ideal = ranking.ideal_by_rank(gain, discount)
        reached = running_sum(ranking.gains_by_rank(gain, best.shape[1]) * discount(ranks))
        # R_j are the ranks after which the ideal order has a smaller gain.
        fall = best - torch.nn.functional.pad(best[:, 1:], (0, 1))
        ends = fall > ROUNDING * best  # a gain function can differ in the last digit for equal grades
        longer = ranking.num_candidates > (best > 0).sum(-1) + 1
        over_all_ranks = ratio((ranking.gains(gain) * ranking.mean_discount(discount, None)).sum(-1), ideal[:, -1])
        total = only(ends, ratio(reached, ideal)).sum(-1) + only(longer, over_all_ranks)
        return torch.where(ranking.num_candidates.isnan(), torch.nan, ratio(total, ends.sum(-1) + longer))


@dataclass(frozen=True)
class TimesRank:
    """A discount times the rank."""

    discount: Logarithmic

    def __call__(self, rank: Tensor) -> Tensor:
        return rank * self.discount(rank)


class NDCGRel(GradedMetric):
    r"""NDCG averaged over the ranks of the relevant candidates, :math:`\frac{1}{R} \sum_{i \in rel} NDCG@rank_i`.

    R candidates have a gain above 0. One that was not retrieved adds the DCG of the whole list, divided by the ideal
    DCG of all candidates. The discount is 1 / log2(1 + rank). Under ``ties="expected"`` it is the exact expectation.

    Source:
        trec_eval, ``ndcg_rel``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NDCGRel().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # (1 + 1.5 / 1.6309) / 2
        tensor([0.9599], dtype=torch.float64)
    """

    name = "ndcgrel"
    takes_unjudged_for = ("irrelevant", "condensed")
    value_range = (0.0, 1.0)
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        gain, discount = self.gain_function, Logarithmic(2)
        best = ranking.ideal_order(gain)
        width = best.shape[1]
        discounts = discount(torch.arange(1, width + 1, dtype=best.dtype, device=best.device))
        sums = torch.nn.functional.pad(running_sum(discounts), (1, 0))
        ideal = ranking.ideal_by_rank(gain, discount)
        gains = ranking.gains(gain)
        has_gain, reached = gains > 0, gains * ranking.mean_discount(discount, None)
        # A tie group has n candidates, r of them relevant, and the gains S. ``above`` is the expected DCG before it,
        # and D(p) the sum of the first p discounts d. The candidate at rank p of the group is relevant with probability
        # r / n. DCG@p then contains its own gain, and gains of others of the group between D(a) and D(p - 1):
        # E[relevant at p, DCG@p] = (r above + S d_p + pairs (D(p - 1) - D(a))) / n with pairs = S (r - 1) / (n - 1).
        n, r, (above, _) = ranking.tied, ranking.before_and_in_tie(has_gain)[1], ranking.before_and_in_tie(reached)
        total = ranking.before_and_in_tie(gains)[1]
        pairs = ratio(total * (r - 1), n - 1)
        # First the sums over all ranks of a group, to be divided by the ideal DCG of the whole list ...
        span = ranking.discount_sum(discount, None)
        between = (ranking.first + n - 1) * span - ranking.discount_sum(TimesRank(discount), None)
        each = only(has_gain, above + ratio(total * span + pairs * between, n * r)).sum(-1)
        # ... then the ranks at which the ideal DCG is still smaller. They are columns of the ideal order.
        start = sums.take((ranking.first - 1).clamp(0, width).long())
        per_rank = ranking.by_rank(r * above - pairs * start, width) + ranking.by_rank(total, width) * discounts
        per_rank = per_rank + ranking.by_rank(pairs, width) * sums[:-1]
        ideal_of_all, relevant = ideal[:, -1], (best > 0).sum(-1)
        early = per_rank * (ratio(ideal_of_all.unsqueeze(-1), ideal) - 1)
        missing = (relevant - has_gain.sum(-1)) * reached.sum(-1)
        # Only rounding exceeds 1.
        return ratio(each + early.sum(-1) + missing, ideal_of_all * relevant).clamp_max(1)


# Sums over ranks are tabulated at least up to this rank, if ties reach it. Beyond the table a closed form is used.
TABLE = 512


class QMeasure(GradedMetric):
    r"""Q-measure: average precision with graded gains.

    :math:`\frac{1}{R} \sum_{i \in rel} \frac{C_i + \beta \, cg_i}{i + \beta \, cg^*_i}`, a sum over the ranks i of the
    R candidates with a gain. :math:`C_i` is the number of such candidates among the first i, :math:`cg_i` the sum of
    their gains. :math:`cg^*_i` is the same sum for the best order of all judged candidates. With a small beta the value
    approaches average precision.

    Under ``ties="expected"`` it is the exact mean over all orders of the tied candidates: given the rank i of a
    candidate, the expected :math:`C_i` and :math:`cg_i` are linear in i. There are no bounds over unjudged candidates,
    because the value can fall if a candidate with a small gain moves up.

    Source:
        Sakai, New performance metrics based on multigrade relevance: their application to question answering,
        NTCIR-4, 2004; On the reliability of information retrieval metrics based on graded relevance, Information
        Processing and Management 43(2), 2007.

    Args:
        beta: the weight of gains relative to counts; > 0.
        normalize: the denominator of the sum: "relevant", R; "min", min(R, ``top_k``), as in NTCIREVAL.

    Raises:
        ValueError: ``beta`` is not a number > 0, or ``normalize`` is unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.QMeasure().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 3]]))  # (2/4 + 6/7) / 2
        tensor([0.6786], dtype=torch.float64)
    """

    name = "qmeasure"
    takes_unjudged_for = ("irrelevant", "condensed")
    value_range = (0.0, 1.0)

    beta: float = number(default=1, above=0)
    normalize: Literal["relevant", "min"] = one_of(default="relevant")

    def measure(self, ranking: Ranking) -> Tensor:
        gain = self.gain_function
        if ranking.untied:
            value = ranking.sum_up_to(self.top_k, _blended_alone, gain, self.beta)
        else:
            value = row_sum(_blended_tied(ranking, gain, self.beta, self.top_k), self.top_k)
        number = _num_gaining(ranking, gain)
        return ratio(value, number.clamp_max(self.top_k) if self.normalize == "min" and self.top_k else number)


@cached
def _num_gaining(ranking: Ranking, gain: Gain) -> Tensor:
    """Number of judged candidates with a gain above 0: float64 [query]."""
    return (ranking.judged_gains(gain) > 0).sum(-1).to(ranking.first.dtype)


def _blended_alone(ranking: Ranking, gain: Gain, beta: float) -> Tensor:
    """The blended ratio of each entry with a gain, in a ranking without ties: float64 [query, entry]."""
    gains = only(ranking.retrieved(), ranking.gains(gain))
    gaining = gains > 0
    start = running_sum(gaining.to(gains.dtype)) + beta * running_sum(gains)
    ideal = beta * running_sum(ranking.ideal_order(gain))
    return only(gaining, start / (ranking.first + _by_best_rank(ideal, ranking)))


def _blended_tied(ranking: Ranking, gain: Gain, beta: float, top_k: int | None) -> Tensor:
    """The expected blended ratio of each entry with a gain, 0 beyond ``top_k``: float64 [query, entry]."""
    gains = only(ranking.retrieved(), ranking.gains(gain))
    counts, gained = ranking.before_and_in_tie(gains > 0), ranking.before_and_in_tie(gains)
    # The numerator of an entry at the first rank of its tie group, and its expected increase per further rank. At
    # each further rank the entry has one more candidate before it: any of the others in the group, equally likely.
    start = counts[0] + 1 + beta * (gained[0] + gains)
    slope = ratio(counts[1] - 1 + beta * (gained[1] - gains), ranking.tied - 1)
    return only(gains > 0, _blended(ranking, start, slope, _tables(ranking, gain, beta, top_k), top_k))


def _by_best_rank(x: Tensor, ranking: Ranking) -> Tensor:
    """The element of ``x`` [query, rank] at the best rank of each entry, or its last one: [query, entry]."""
    last, width = x.shape[1], ranking.first.shape[1]
    if ranking.untied and ranking.complete and last == width:  # columns are ranks; entries not retrieved do not count
        return x
    return x.gather(-1, (ranking.first.clamp_max(last) - 1).clamp_min(0).long())


class Tables(NamedTuple):
    """The gains of the ideal order, and sums over the first ranks."""

    #: float64 [query, rank]: beta times the sum of the gains up to each rank; beyond its last rank it is constant
    ideal: Tensor
    #: float64 [query, 1 + rank]: sums over ranks p of 1 / (p + ideal_p)
    inverse: Tensor
    #: float64 [query, 1 + rank]: sums over ranks p of p / (p + ideal_p)
    share: Tensor


@cached
def _tables(ranking: Ranking, gain: Gain, beta: float, top_k: int | None) -> Tables:
    ideal = beta * running_sum(ranking.ideal_order(gain)[:, :top_k])
    # The closed form beyond the table loses digits if gains are very large. So the table is extended, up to the last
    # tied rank or TABLE ranks.
    longer = min(ranking.depth, top_k or TABLE, TABLE) - ideal.shape[1]
    if longer > 0:
        ideal = torch.cat([ideal, ideal[:, -1:].expand(-1, longer)], -1)
    ranks = torch.arange(1, ideal.shape[1] + 1, dtype=ideal.dtype, device=ideal.device)
    inverse, share = (torch.nn.functional.pad(running_sum(x / (ranks + ideal)), (1, 0)) for x in (1, ranks))
    return Tables(ideal, inverse, share)


def _blended(ranking: Ranking, start: Tensor, slope: Tensor, tables: Tables, top_k: int | None) -> Tensor:
    """The mean of (start + slope (p - first)) / (p + ideal_p) over the ranks p of each entry, 0 beyond ``top_k``.

    Args:
        ranking: with ties as intervals of ranks, or resolved.
        start: float64 [query, entry], the numerator at rank ``first``.
        slope: float64 [query, entry], its increase per rank.
        tables: sums over ranks, up to ``top_k``.
        top_k: the last rank that counts; None = all ranks count.

    Returns:
        float64 [query, entry]; meaningless if an entry was not retrieved.
    """
    ideal, inverse, share = tables
    last, constant = ideal.shape[1], ideal[:, -1:]
    # The value at the first rank of an entry, which is its only rank without ties.
    alone = start / (ranking.first + _by_best_rank(ideal, ranking))
    if top_k is not None:
        alone = only(ranking.first <= top_k, alone)
    # Beyond the table ideal_p is a constant c: the sum of 1 / (p + c) is a difference of digamma functions, and
    # p / (p + c) = 1 - c / (p + c).

    def up_to(rank: Tensor) -> tuple[Tensor, Tensor]:
        """Both sums over the ranks 1, ..., ``rank``."""
        within = rank.clamp_max(last).long()
        if ranking.depth <= last:  # no tied rank is beyond the table
            return inverse.gather(-1, within), share.gather(-1, within)
        beyond = torch.digamma(rank.clamp_min(last) + constant + 1) - torch.digamma(last + constant + 1)
        rest = (rank - last).clamp_min(0) - constant * beyond
        return inverse.gather(-1, within) + beyond, share.gather(-1, within) + rest

    above = ranking.first - 1
    end = above + ranking.ranks_in_top_k(top_k)
    (inverse_end, share_end), (inverse_above, share_above) = up_to(end), up_to(torch.minimum(above, end))
    inverses, shares = inverse_end - inverse_above, share_end - share_above
    # start + slope (p - first) = (start - slope first) + slope p, so the two sums are enough.
    several = (start - slope * ranking.first) * inverses + slope * shares
    return torch.where(ranking.tied > 1, several / ranking.tied, alone)
