"""Measures of subtopics: a query has several meanings, and a list serves some of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.cascades import best_first, stopped
from torchrank.formulas.gains import RECIPROCAL, AtLeast, Geometric, Satisfying, discount_of
from torchrank.formulas.random_ranking import hit
from torchrank.metrics.binary import MAP, BinaryMetric, Precision
from torchrank.names.parameters import flag, number, one_of
from torchrank.ranking.ranking import Ranking, ratio, sum_over_ranks

__all__ = ["APIA", "ERRIA", "NERRIA", "NNRBP", "NRBP", "PIA", "AlphaDCG", "AlphaNDCG", "SubtopicRecall"]


class IntentMetric(BinaryMetric):
    """A measure of each subtopic's judgments, averaged over the N subtopics with a relevant candidate.

    Judgments are a ``target`` [query, candidate, subtopic]; a target without the last dimension has one subtopic. A
    subtopic without a relevant candidate is padding. All others have equal weight, unless
    :meth:`torchrank.Ranking.with_intents` gives them probabilities. These are then divided by their mean over the N
    subtopics, so that equal ones change nothing. A candidate is unjudged if its grade is negative in every subtopic.

    Ties are "expected" or broken by ``tie_break``, because other policies would order ties differently for each
    subtopic.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant to the subtopic; > 0.
        kwargs: as :class:`RankingMetric`; ``unjudged`` may be "condensed".
    """

    policies = ("expected",)
    takes_unjudged_for = ("irrelevant", "condensed")

    def empty(self, ranking: Ranking) -> Tensor:
        weights = self.intent_weights(ranking)
        empty = super().empty(ranking)
        return empty if weights is None else empty | (weights.sum(-1) == 0)

    def measure(self, ranking: Ranking) -> Tensor:
        return ratio(self.total(ranking), self.num_intents(ranking))

    def total(self, ranking: Ranking) -> Tensor:
        """Weighted sum of the formula over subtopics: float64 [query]."""
        values = self.of_each(self.listed(ranking).each_subtopic()).view(ranking.num_queries, ranking.num_subtopics)
        weights = self.intent_weights(ranking)
        return (values if weights is None else values * weights).sum(-1)

    def listed(self, ranking: Ranking) -> Ranking:
        """The part of the ranking that the formula reads; by default all of it."""
        return ranking

    def intents(self, ranking: Ranking) -> Tensor:
        """bool [query, subtopic]: the subtopic has a relevant candidate."""
        there = ranking.each_subtopic().num_relevant(self.relevance_level) > 0
        return there.view(ranking.num_queries, ranking.num_subtopics)

    def num_intents(self, ranking: Ranking) -> Tensor:
        """N, the number of subtopics with a relevant candidate: float64 [query]."""
        return self.intents(ranking).sum(-1).to(ranking.first.dtype)

    def intent_weights(self, ranking: Ranking) -> Tensor | None:
        """float64 [query, subtopic]: weights with the mean 1 over the N subtopics; None = all are 1."""
        if ranking.intents is None:
            return None
        share = torch.where(self.intents(ranking), ranking.intents, 0.0)
        return ratio(share * self.num_intents(ranking).unsqueeze(-1), share.sum(-1, keepdim=True))

    def of_each(self, rows: Ranking) -> Tensor:
        """The formula on the list of each subtopic, 0 if nothing is relevant: float64 [query * subtopic]."""
        # The next class among the bases of a subclass, such as Precision for PIA.
        return super().measure(rows)


class PIA(IntentMetric, Precision):
    r"""Intent-aware precision: the mean precision over subtopics, :math:`\frac{1}{N} \sum_s P@k_s`.

    N subtopics have a relevant candidate. The precision of a list shorter than k is still divided by k.

    Source:
        Agrawal, Gollapudi, Halverson and Ieong, Diversifying search results, WSDM 2009; Clarke, Craswell and Soboroff,
        Overview of the TREC 2009 Web track. N and k as ndeval has them.

    Args:
        adaptive_k: divide by the length of the list if it is shorter than k.

    Example:
        >>> import torch, torchrank as tr
        >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
        >>> tr.PIA(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), target)  # (2/2 + 1/2) / 2
        tensor([0.7500], dtype=torch.float64)
    """

    name = "pia"


class APIA(IntentMetric, MAP):
    r"""Intent-aware average precision: the mean AP over subtopics, :math:`\frac{1}{N} \sum_s AP@k_s`.

    N subtopics have a relevant candidate. Ties are treated as in :class:`MAP`.

    Source:
        Agrawal, Gollapudi, Halverson and Ieong, Diversifying search results, WSDM 2009. N as ndeval has it.

    Args:
        normalize: the denominator; see :class:`MAP`.
        gain: the weight of a relevant candidate by its grade; see :class:`MAP`.

    Example:
        >>> import torch, torchrank as tr
        >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
        >>> tr.APIA().score(torch.tensor([[0.9, 0.8, 0.1]]), target)  # (1 + 1/2) / 2
        tensor([0.7500], dtype=torch.float64)
    """

    name = "apia"


class SubtopicRecall(IntentMetric):
    r"""Subtopic recall, S-recall: the share of subtopics that have a relevant candidate in the first k ranks.

    :math:`\frac{1}{N} |\{s : \exists i \le k, rel_{s,i}\}|`. N is the number of subtopics with a relevant candidate at
    any rank. Under ``ties="expected"`` each subtopic counts its probability of being covered, as in :class:`HitRate`.

    Source:
        Zhai, Cohen and Lafferty, Beyond independent relevance: methods and evaluation metrics for subtopic retrieval,
        SIGIR 2003.

    Example:
        >>> import torch, torchrank as tr
        >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
        >>> tr.SubtopicRecall(top_k=1).score(torch.tensor([[0.9, 0.8, 0.1]]), target)
        tensor([0.5000], dtype=torch.float64)
    """

    name = "strecall"

    def of_each(self, rows: Ranking) -> Tensor:
        return hit(rows, self.relevance_level, self.top_k)


# Smaller fading factors count as 0, because the closed form divides by the factor.
FAINT = 1e-8


class FadingMetric(IntentMetric):
    r"""A measure in which each candidate reduces the worth of later candidates to the same subtopic.

    The value of a list to a subtopic is :math:`\sum_{i \le k} d(i) \, w_i \prod_{j < i} (1 - a w_j)`. Here :math:`w_i`,
    from 0 to 1, is the worth of the candidate at rank i, a the fading factor and d the discount.
    """

    @property
    def gain_function(self) -> Callable[[Tensor], Tensor]:
        """From grades to worth, from 0 to 1."""
        return AtLeast(self.relevance_level)

    @property
    def fading(self) -> float:
        """The fading factor a, from 0 to 1; with 0 no candidate affects another."""
        raise NotImplementedError

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        """From ranks to discounts."""
        raise NotImplementedError

    def listed(self, ranking: Ranking) -> Ranking:
        return ranking.head(self.top_k)

    def of_each(self, rows: Ranking) -> Tensor:
        gains = rows.gains(self.gain_function)
        if self.fading < FAINT:
            # Without fading the sum is linear in the discounts, so their means are exact under ties.
            return (gains * rows.mean_discount(self.discount_function, self.top_k)).sum(-1)
        # Let R be the rank at which a reader stops who stops at each candidate with probability a * w. R = i has the
        # probability a * w_i * prod_{j < i} (1 - a * w_j), so the sum equals E[d(R)] / a.
        return stopped(rows, self.fading * gains, self.discount_function, self.top_k) / self.fading

    def ideal(self, ranking: Ranking) -> Tensor:
        """The sum over subtopics for the greedy order of all judged candidates, retrieved or not: float64 [query]."""
        # A gain of ``best_first`` contains the fading and is summed over subtopics, so only the discount is missing.
        worth = ranking.gains_by_subtopic(self.gain_function)
        gains = best_first(worth, self.fading, self.top_k, self.intent_weights(ranking))
        ranks = torch.arange(1, gains.shape[1] + 1, dtype=gains.dtype, device=gains.device)
        return (gains * self.discount_function(ranks)).sum(-1)

    def bound(self, most: float) -> float:
        """The value to a subtopic of ``top_k`` candidates that all have the worth ``most``."""
        assert self.top_k is not None
        # On the CPU: the result is a Python number, and reading it from an accelerator would wait.

        def worth(rank: Tensor) -> Tensor:
            return most * (1 - self.fading * most) ** (rank - 1) * self.discount_function(rank)

        return float(sum_over_ranks(worth, self.top_k, torch.float64, torch.device("cpu")))


class NormalizedMetric(FadingMetric):
    """A measure that is divided by its value for an ideal order."""

    def measure(self, ranking: Ranking) -> Tensor:
        return ratio(self.total(ranking), self.ideal(ranking))


class BoundedMetric(FadingMetric):
    """A measure that can be divided by an upper bound, which may be out of reach for a query.

    Args:
        bounded: divide by the value of a list whose first ``top_k`` candidates have the largest worth to every
            subtopic.

    Raises:
        ValueError: ``bounded`` without ``top_k``.
    """

    bounded: bool = flag(default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bounded and self.top_k is None:
            raise ValueError("Expected top_k to be an integer together with bounded=True, got None")


class AlphaMetric(FadingMetric):
    """A measure in which each relevant candidate takes the share alpha from the worth of later candidates.

    Args:
        alpha: the share that each relevant candidate takes from the worth of later ones, from 0 to 1.

    Raises:
        ValueError: ``alpha`` is not a number from 0 to 1.
    """

    alpha: float = number(default=0.5, least=0, most=1)

    @property
    def fading(self) -> float:
        return self.alpha


class DiscountedMetric(AlphaMetric):
    """An alpha measure with a discount of the user's choice.

    Args:
        discount: "log2", 1 / log2(1 + rank); "clipped", 1 / log2(rank), but 1 up to rank 2; "reciprocal", 1 / rank; or
            a callable with a name, from float64 ranks to discounts.
        kwargs: as :class:`AlphaMetric`.
    """

    discount: Literal["log2", "clipped", "reciprocal"] | Callable[[Tensor], Tensor] = one_of(default="log2")

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        return discount_of(self.discount)


class AlphaDCG(BoundedMetric, DiscountedMetric):
    r"""Alpha-DCG: DCG in which each subtopic gains less from each further relevant candidate.

    :math:`DCG_\alpha@k = \sum_{i \le k} \frac{1}{\log_2 (1 + i)} \sum_s rel_{s,i} (1 - \alpha)^{c_{s,i}}`. Here
    :math:`c_{s,i}` is the number of relevant candidates of subtopic s before rank i. With alpha = 0 it is the DCG of
    the number of subtopics.

    Exact under ties: :math:`rel_i (1-\alpha)^{c_i} \alpha` is the probability that a reader who leaves at each relevant
    candidate with probability alpha leaves at rank i. Its mean over all orders of a tie group is computed from averages
    over the group's subsets. On an accelerator this takes one pass for each candidate of a list, because a search for
    ties would wait for the device.

    Candidates have no weights of their own, as in TensorFlow Ranking: the grade of a subtopic only decides whether the
    candidate is relevant.

    Source:
        Clarke, Kolla, Cormack, Vechtomova, Ashkan, Büttcher and MacKinnon, Novelty and diversity in information
        retrieval evaluation, SIGIR 2008. ``bounded`` is ndeval's.

    Args:
        discount: "log2", "clipped", "reciprocal" or a callable with a name; see :class:`DCG`.
        bounded: divide by the value of a list whose first ``top_k`` candidates are all relevant to every subtopic.

    Raises:
        ValueError: ``alpha`` is not a number from 0 to 1, ``discount`` is unknown or a callable without a name, or
            ``bounded`` without ``top_k``.

    Example:
        >>> import torch, torchrank as tr
        >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
        >>> tr.AlphaDCG().score(torch.tensor([[0.9, 0.8, 0.1]]), target)  # 1 + (1/2 + 1) / log2(3)
        tensor([1.9464], dtype=torch.float64)
        >>> tr.AlphaDCG(discount="reciprocal").score(torch.tensor([[0.9, 0.8, 0.1]]), target)  # 1 + (1/2 + 1) / 2
        tensor([1.7500], dtype=torch.float64)
    """

    name = "alphadcg"
    value_range = (0.0, math.inf)

    def measure(self, ranking: Ranking) -> Tensor:
        # The bound is for one subtopic, so it goes with the mean over subtopics; otherwise the sum is the value.
        return super().measure(ranking) / self.bound(1) if self.bounded else self.total(ranking)


class AlphaNDCG(NormalizedMetric, DiscountedMetric):
    r"""Alpha-nDCG: :class:`AlphaDCG` divided by its value for an ideal order.

    :math:`\frac{1}{IDCG_\alpha@k} \sum_{i \le k} \frac{1}{\log_2 (1 + i)} \sum_s rel_{s,i} (1 - \alpha)^{c_{s,i}}`.
    Here :math:`c_{s,i}` is the number of relevant candidates of subtopic s before rank i, and the denominator is the
    value of the sum for the ideal order. The best order is hard to find (NP-complete), so the ideal order is greedy, as
    usual. Each rank gets the judged candidate, retrieved or not, with the largest gain there. Among equal candidates,
    one that is relevant to the first subtopic wins, then one relevant to the second, and so on. A list can, rarely, be
    better than the ideal order. Exact under ties.

    Source:
        Clarke, Kolla, Cormack, Vechtomova, Ashkan, Büttcher and MacKinnon, Novelty and diversity in information
        retrieval evaluation, SIGIR 2008.

    Args:
        discount: "log2", "clipped", "reciprocal" or a callable with a name; see :class:`DCG`.

    Raises:
        ValueError: ``alpha`` is not a number from 0 to 1.

    Example:
        >>> import torch, torchrank as tr
        >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
        >>> tr.AlphaNDCG().score(torch.tensor([[0.9, 0.8, 0.1]]), target)  # (1 + 3/2 / log2(3)) / (2 + 1/2 / log2(3))
        tensor([0.8406], dtype=torch.float64)
    """

    name = "alphandcg"


class CascadeMetric(FadingMetric):
    """A measure of readers of one subtopic each, who stop at a candidate with probability R.

    Args:
        max_grade: the largest grade: :math:`R = (2^{grade} - 1) / 2^{max\\_grade}`. Larger grades count as
            ``max_grade``, grades below ``relevance_level`` as 0. With 1, R is 1/2 for every relevant candidate.

    Raises:
        ValueError: ``max_grade`` is not a number > 0.
    """

    fading = 1.0

    max_grade: float = number(default=1, above=0)

    @property
    def gain_function(self) -> Callable[[Tensor], Tensor]:
        return Satisfying(self.max_grade, self.relevance_level)

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        return RECIPROCAL


class ERRIA(BoundedMetric, CascadeMetric):
    r"""Intent-aware expected reciprocal rank, ERR-IA: the mean of ERR over subtopics.

    :math:`\frac{1}{N} \sum_s \sum_{i \le k} \frac{1}{i} R_{s,i} \prod_{j < i} (1 - R_{s,j})` with
    :math:`R = (2^{grade} - 1) / 2^{max\_grade}`. N subtopics have a relevant candidate. Exact under ties, as
    :class:`AlphaDCG`.

    Source:
        Chapelle, Ji, Liao, Velipasaoglu, Lai and Wu, Intent-based diversification of web search results: metrics and
        algorithms, Information Retrieval 14, 2011. ``bounded`` is ndeval's.

    Args:
        max_grade: the largest grade, > 0. Larger grades count as ``max_grade``, grades below ``relevance_level`` as 0.
            With 1, R is 1/2 for every relevant candidate, as in ndeval.
        bounded: divide by the value of a list whose first ``top_k`` candidates have ``max_grade`` for every subtopic.

    Raises:
        ValueError: ``max_grade`` is not a number > 0, or ``bounded`` without ``top_k``.

    Example:
        >>> import torch, torchrank as tr
        >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
        >>> tr.ERRIA().score(torch.tensor([[0.9, 0.8, 0.1]]), target)  # (1/2 + 1/4/2 + 1/2/2) / 2
        tensor([0.4375], dtype=torch.float64)
    """

    name = "erria"

    def measure(self, ranking: Ranking) -> Tensor:
        mean = super().measure(ranking)
        # The largest R, of a candidate with max_grade, is 1 - 2 ** -max_grade.
        return mean / self.bound(1 - 2.0**-self.max_grade) if self.bounded else mean


class NERRIA(NormalizedMetric, CascadeMetric):
    r"""Normalised intent-aware expected reciprocal rank: :class:`ERRIA` divided by its value for an ideal order.

    :math:`\frac{1}{IERR_{IA}@k} \sum_s \sum_{i \le k} \frac{1}{i} R_{s,i} \prod_{j < i} (1 - R_{s,j})` with R as in
    :class:`ERRIA`. The denominator is the same sum for the ideal order, which is greedy, as in :class:`AlphaNDCG`. So a
    list can, rarely, be better than the ideal order. Exact under ties.

    Source:
        Chapelle, Ji, Liao, Velipasaoglu, Lai and Wu, Intent-based diversification of web search results: metrics and
        algorithms, Information Retrieval 14, 2011; the ideal is ndeval's.

    Args:
        max_grade: the largest grade, > 0; see :class:`ERRIA`.

    Raises:
        ValueError: ``max_grade`` is not a number > 0.

    Example:
        >>> import torch, torchrank as tr
        >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
        >>> tr.NERRIA().score(torch.tensor([[0.9, 0.8, 0.1]]), target)  # (0.875 / 2) / ((1 + 1/8) / 2)
        tensor([0.7778], dtype=torch.float64)
    """

    name = "nerria"


class NRBP(AlphaMetric):
    r"""Novelty- and rank-biased precision.

    :math:`\frac{1 - (1 - \alpha) \beta}{N} \sum_{i \le k} \beta^{i-1} \sum_s rel_{s,i} (1 - \alpha)^{c_{s,i}}`. N
    subtopics have a relevant candidate, and :math:`c_{s,i}` is the number of relevant candidates of subtopic s before
    rank i. An endless list of candidates that are all relevant to every subtopic scores 1. Exact under ties, as
    :class:`AlphaDCG`.

    Source:
        Clarke, Kolla and Vechtomova, An effectiveness measure for ambiguous and underspecified queries, ICTIR 2009.

    Args:
        beta: patience, the probability of going on to the next rank, from 0 to 1.

    Raises:
        ValueError: ``alpha`` or ``beta`` is not a number from 0 to 1.

    Example:
        >>> import torch, torchrank as tr
        >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
        >>> tr.NRBP().score(torch.tensor([[0.9, 0.8, 0.1]]), target)  # 3/4 / 2 * (1 + 1/2 * (1/2 + 1))
        tensor([0.6562], dtype=torch.float64)
    """

    name = "nrbp"

    beta: float = number(default=0.5, least=0, most=1)

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        return Geometric(self.beta)

    def measure(self, ranking: Ranking) -> Tensor:
        # The factor makes the geometric series of an endless perfect list sum to 1.
        return (1 - (1 - self.alpha) * self.beta) * super().measure(ranking)


class NNRBP(NormalizedMetric, NRBP):
    r"""Normalised novelty- and rank-biased precision: :class:`NRBP` divided by its value for an ideal order.

    :math:`\frac{1}{INRBP@k} \sum_{i \le k} \beta^{i-1} \sum_s rel_{s,i} (1 - \alpha)^{c_{s,i}}` with c as in
    :class:`NRBP`. INRBP is the same sum for the ideal order, which is greedy, as in :class:`AlphaNDCG`. So a list can,
    rarely, be better than the ideal order. Exact under ties.

    Source:
        ndeval, of the TREC Web track, after Clarke, Kolla and Vechtomova, ICTIR 2009.

    Raises:
        ValueError: ``alpha`` or ``beta`` is not a number from 0 to 1.

    Example:
        >>> import torch, torchrank as tr
        >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
        >>> tr.NNRBP().score(torch.tensor([[0.9, 0.8, 0.1]]), target)  # (1 + 3/4) / (2 + 1/4)
        tensor([0.7778], dtype=torch.float64)
    """

    name = "nnrbp"
