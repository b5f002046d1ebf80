"""Measures of graded relevance: sums of gains, discounted by rank."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Literal

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
from torchrank.ranking.intervals import only, ratio, sum_over_ranks
from torchrank.ranking.ranking import Gain, Ranking

__all__ = ["ARP", "CG", "DCG", "NDCG", "PWA", "NormalizedGain"]


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

    @property
    def built_in(self) -> bool:
        """Whether gains and discounts are functions of torchrank. A function of the user may change between batches."""
        return isinstance(self.gain, str) and isinstance(getattr(self, "discount", ""), str)

    def errors(self, ranking: Ranking) -> Tensor:
        if self.gain_function is LINEAR and not ranking.grade.is_floating_point():
            return ranking.errors  # sums of integers do not overflow
        # The gain of a huge grade can overflow, and the value would be NaN without an error. Grades that are not finite
        # themselves were counted before.
        finite = self.ideal(ranking).isfinite()
        if finite.is_cpu and bool(finite.all()):
            return super().errors(ranking)
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

    def of_one_rank(self) -> bool:
        return self.built_in


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

    def of_one_rank(self) -> bool:
        return self.built_in

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

    def of_one_rank(self) -> bool:
        return self.built_in

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
    the rank behind the list. Queries without gains are skipped by default, and queries for which nothing was retrieved
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
        best = ranking.ideal_order(self.gain_function, None)
        above_first = torch.nn.functional.pad(running_sum((best - 1).clamp_min(0)), (1, 0))
        middle = only(ranking.retrieved(), ranking.mean_rank())  # the rank behind a list may be unknown
        between = (
            above_first.gather(-1, rank.long().clamp_max(best.shape[1])) for rank in (middle.floor(), middle.ceil())
        )
        behind = middle + sum(between) / 2 - before - (beside + gains) / 2
        reached = only(gains != 0, gains / (2 + behind).log2()).sum(-1)
        return ratio(reached, ranking.total_gain(self.gain_function))
