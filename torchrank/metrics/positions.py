"""Measures of single positions, common in link prediction and next-item recommendation."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from torchrank.formulas.judgment_bounds import UNEQUAL
from torchrank.formulas.random_ranking import (
    Moments,
    first_rank,
    hit,
    hit_moments,
    mean_rank_moments,
    reciprocal_rank,
    reciprocal_rank_moments,
)
from torchrank.layouts.canonical import Need
from torchrank.metrics.binary import BinaryMetric
from torchrank.names.parameters import flag, one_of
from torchrank.names.types import EmptyAction
from torchrank.ranking.intervals import only, per, ratio, row_sum
from torchrank.ranking.ranking import Ranking
from torchrank.state.sums import MEANS, Mean, Sum, effective_size

__all__ = ["MR", "MRR", "FirstRank", "HitRate"]


class PositionMetric(BinaryMetric):
    """Base of the measures of single positions of relevant candidates.

    Such a measure can be adjusted for chance: the ranks are compared with a random order of each query's candidates
    (Berrendorf et al., 2020; Hoyt et al., 2022). Let m be the mean over queries, e its expectation and v its variance
    in random order. "index" is (m - e) / (1 - e): 1 at best, 0 by chance. "z" is (m - e) / sqrt(v), negated if lower is
    better. "ratio", for :class:`MR` only, is m / e.

    ``compute`` adjusts the mean m, and ``score`` adjusts each query. So in ``compute``, the adjusted queries have
    weights that depend on their expectation or variance. A query that leaves nothing to chance, as one with a single
    candidate, scores 0 and has weight 0. If all queries are like this, the result is 0. Weights passed to ``update``
    count in m, e and v alike. An ``aggregation`` other than "mean" reduces the adjusted queries without the weights by
    chance.

    Lists must contain all candidates; a relevant one that was not retrieved is counted as one more. With ``filtered``,
    the candidates of a positive are itself and the irrelevant ones, and v treats the positives of a query as
    independent. Otherwise all orders of a query's candidates are equally likely, however many are relevant.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        filtered: rank every positive against the irrelevant candidates only, as link prediction does (Bordes et al.,
            NIPS 2013), and average over positives.
        average: with ``filtered``: "query", the mean over queries of the mean over their positives; "positive", the
            mean over all positives, to which a query without positives contributes nothing.
        adjusted: the adjustment for chance: None, "index" or "z", for :class:`MR` also "ratio".
        kwargs: as :class:`BinaryMetric`; ``ties`` may be "realistic".

    Raises:
        ValueError: ``average="positive"`` for a measure with one value per query; ``adjusted`` together with a
            geometric or harmonic mean, or with bounds over unjudged candidates.
    """

    policies = ("expected", "optimistic", "pessimistic", "realistic")
    #: whether every positive has a value of its own even without ``filtered``
    of_every_positive = False
    #: the adjustments for chance that the measure supports, and the range of the adjusted values
    adjustments: ClassVar[dict[str, tuple[float, float]]] = {"index": (-math.inf, 1.0), "z": (-math.inf, math.inf)}

    filtered: bool = flag(default=False)
    average: Literal["query", "positive"] = one_of(default="query")
    adjusted: Literal["ratio", "index", "z"] | None = one_of(default=None, among=lambda cls: (None, *cls.adjustments))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == "positive" and not (self.filtered or self.of_every_positive):
            raise ValueError(
                f"Expected filtered=True together with average='positive' for {self.name}, got filtered=False"
            )
        if self.adjusted is None:
            return
        if self.aggregation in ("geometric", "harmonic"):
            raise ValueError(
                f"Expected adjusted=None together with aggregation={self.aggregation!r}, got {self.adjusted!r}"
            )
        self.reports(self.adjustments[self.adjusted], self.higher_is_better or self.adjusted != "ratio")

    def need(self) -> Need:
        # A candidate behind the cutoff can be within it once the list is filtered. The values by chance depend on the
        # number of relevant candidates in the whole list.
        return Need(relevant=True) if self.filtered or self.adjusted else super().need()

    def resolve_ties(self, ranking: Ranking) -> Ranking:
        # Filtering ranks each positive separately, so a tie between two positives has no effect. The policy is applied
        # to the filtered lists, in `plain`.
        return ranking if self.filtered else ranking.under(self.ties)

    def measure(self, ranking: Ranking) -> Tensor:
        value = self.plain(ranking)
        if self.adjusted is None:
            return value
        return self.by_chance(ranking).adjusted(value, self.adjusted, type(self).higher_is_better)

    def plain(self, ranking: Ranking) -> Tensor:
        """The measure without adjustment for chance: float64 [query]."""
        if not self.filtered:
            return self.unfiltered(ranking)
        # Every positive becomes a query of its own, and these are averaged per query.
        single = ranking.each_positive(self.relevance_level).under(self.ties)
        values = self.inner.inside(self.unfiltered(single).reshape(ranking.first.shape))
        relevant = ranking.relevant(self.relevance_level)
        total = only(relevant, values).sum(-1)
        return self.inner.outside(ratio(total, ranking.num_relevant(self.relevance_level)))

    @property
    def inner(self) -> Mean:
        """The kind of mean over the positives of one query."""
        return MEANS["mean"]

    def unfiltered(self, ranking: Ranking) -> Tensor:
        """The formula, without any filtering of the lists: float64 [query]."""
        raise NotImplementedError

    def by_chance(self, ranking: Ranking) -> Moments:
        """Mean and variance of :meth:`plain` over random orders of the candidates of each query."""
        retrieved = ranking.hit(self.relevance_level).sum(-1).to(ranking.first.dtype)
        relevant, length = ranking.num_relevant(self.relevance_level), ranking.num_candidates
        # Relevant candidates that were not retrieved are candidates, too.
        if not self.filtered:
            return self.chance(length + relevant - retrieved, relevant, most=ranking.first.shape[1])
        # The candidates of each positive are itself and the irrelevant ones. Positives of a query are treated as
        # independent, so the variance of their mean is divided by their number.
        each = self.chance(length - retrieved + 1, relevant.clamp_max(1), most=1)
        return Moments(each.mean, ratio(each.variance, relevant))

    def chance(self, n: Tensor, r: Tensor, most: int) -> Moments:
        """Mean and variance of :meth:`unfiltered` by chance, for r <= ``most`` relevant among n candidates: [query]."""
        raise NotImplementedError

    @property
    def no_bounds_reason(self) -> str:
        return UNEQUAL if self.average == "positive" or self.adjusted else ""

    def weight(self, ranking: Ranking) -> Tensor | None:
        weight = ranking.num_relevant(self.relevance_level) if self.average == "positive" else None
        if self.adjusted is None or self.aggregation != "mean":
            return weight
        # With these weights, the mean of the adjusted queries is the adjusted mean (for "z", up to a factor).
        by_chance = self.by_chance(ranking).weight(self.adjusted)
        return by_chance if weight is None else weight * by_chance

    def transform_result(self, average: Tensor, sums: Tensor) -> Tensor:
        if self.adjusted is None or self.aggregation != "mean":
            return average
        # If no query leaves anything to chance, all weights are 0 and the average is 0 / 0.
        certain = (sums[..., Sum.W] == 0) & (sums[..., Sum.QUERIES] > sums[..., Sum.EMPTY])
        return torch.where(certain, 0.0, average * self.slope(sums))

    def slope(self, sums: Tensor) -> Tensor:
        """The size of the derivative of the reported value with respect to the average."""
        if self.adjusted == "z" and self.aggregation == "mean":
            return effective_size(sums).sqrt()
        return torch.ones_like(sums[..., Sum.W])

    def error_of(self, sums: Tensor) -> Tensor:
        return super().error_of(sums) * self.slope(sums)


class MR(PositionMetric):
    r"""Mean rank of the relevant candidates: :math:`\frac{1}{R} \sum_{i \in rel} rank_i`. Lower is better.

    A relevant candidate that was not retrieved has the rank behind the list. Queries without relevant candidates are
    skipped by default, and queries for which nothing was retrieved always.

    With ``aggregation="geometric"`` or "harmonic", the mean over the positives of a query is of the same kind. Together
    with ``filtered=True, average="positive"`` it is this mean of the ranks of all positives. Under ``ties="expected"``,
    the expectation is taken of the logarithm, or of the reciprocal, of a rank. So 1 over the harmonic mean is the
    filtered :class:`MRR`. The middle rank is ``aggregation="median"``, the lower of two, or "midpoint", halfway between
    them; each query counts with its mean rank. :func:`torchrank.expected_median_rank` is the middle rank by chance.

    Adjusted for chance, with m, e and v as in :class:`torchrank.extend.PositionMetric`, "ratio" is the adjusted mean
    rank m / e: 1 by chance, lower is better. "index" is 1 - (m - 1) / (e - 1), at worst -1. "z" is (e - m) / sqrt(v).
    With one relevant among n candidates, e = (n + 1) / 2 and v = (n^2 - 1) / 12.

    Source:
        Bordes et al., Translating embeddings for modeling multi-relational data, NIPS 2013. Adjusted: Berrendorf,
        Faerman, Vermue and Tresp, On the ambiguity of rank-based evaluation of entity alignment or link prediction
        methods, arXiv 2002.06914, 2020. z and the other means: Hoyt, Berrendorf, Galkin, Tresp and Gyori, A unified
        framework for rank-based evaluation metrics for link prediction in knowledge graphs, arXiv 2203.07544, 2022.

    Args:
        filtered: rank every positive against the irrelevant candidates only; see
            :class:`torchrank.extend.PositionMetric`.
        average: "query", the mean over queries of their mean rank, or "positive", the mean over all positives.
        adjusted: the adjustment for chance: None, "ratio", "index" or "z".
        inverse: ``compute`` returns 1 / the average, for which higher is better; ``score`` still returns ranks.

    Raises:
        ValueError: ``inverse`` together with ``adjusted``, and as :class:`torchrank.extend.PositionMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]])
        >>> tr.MR().score(scores, target)
        tensor([2.], dtype=torch.float64)
        >>> tr.MR(adjusted="index").score(scores, target)  # as good as chance
        tensor([0.], dtype=torch.float64)
    """

    name = "mr"
    value_range = (1.0, math.inf)
    higher_is_better = False
    of_every_positive = True
    top_k: None = None
    adjustments: ClassVar = {"ratio": (0.0, 2.0), "index": (-1.0, 1.0), "z": (-math.inf, math.inf)}

    inverse: bool = flag(default=False)
    empty_target_action: EmptyAction = "skip"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inverse and self.adjusted is not None:
            raise ValueError(f"Expected adjusted=None together with inverse=True, got {self.adjusted!r}")
        if self.inverse:
            self.reports((0.0, 1.0), higher_is_better=True)

    @property
    def turned(self) -> bool:
        return self.inverse

    @property
    def inner(self) -> Mean:
        return self.mean

    def plain(self, ranking: Ranking) -> Tensor:
        if not self.filtered or self.inner is not MEANS["mean"]:
            return super().plain(ranking)
        # The same without a ranking of each positive: their ranks among the irrelevant candidates, added up. Ranks are
        # multiples of 1/2, so the order of the sum does not matter.
        level = self.relevance_level
        hits, relevant = ranking.hit(level), ranking.num_relevant(level)
        before, in_tie = ranking.relevant_before_and_in_tie(level)
        rank = ranking.first - before
        if not ranking.untied and self.ties != "optimistic":
            rank = rank + (ranking.tied - in_tie) / (1 if self.ties == "pessimistic" else 2)
        retrieved = row_sum(hits).to(rank.dtype)
        missing, behind = relevant - retrieved, ranking.num_candidates - retrieved + 1
        return ratio(row_sum(only(hits, rank)) + only(missing > 0, missing * behind), relevant)

    def unfiltered(self, ranking: Ranking) -> Tensor:
        rank = ranking.mean_rank()
        if self.mean is not MEANS["mean"]:
            # For example the mean of log(rank) over the tied ranks, not the log of their mean.
            expected = ranking.mean_discount(self.mean.inside, None)
            rank = torch.where(ranking.tied > 0, expected, self.mean.inside(rank))
        total = only(ranking.relevant(self.relevance_level), rank)
        return self.mean.outside(per(row_sum(total), ranking.num_relevant(self.relevance_level)))

    def chance(self, n: Tensor, r: Tensor, most: int) -> Moments:
        return mean_rank_moments(n, r)

    def of_one_rank(self) -> bool:
        return self.adjusted is None and self.average == "query" and self.mean is MEANS["mean"]

    def transform_result(self, average: Tensor, sums: Tensor) -> Tensor:
        return 1 / average if self.inverse else super().transform_result(average, sums)

    def slope(self, sums: Tensor) -> Tensor:
        return 1 / self.result(sums).square() if self.inverse else super().slope(sums)


class MRR(PositionMetric):
    r"""Reciprocal rank of the first relevant candidate, whose mean over queries is MRR: :math:`\frac{1}{rank}`.

    It is 0 if the rank is beyond k. Under ``ties="expected"`` it is the mean of 1 / rank over all ranks that the first
    relevant candidate can have (McSherry and Najork, ECIR 2008); under "realistic", 1 over its middle rank. With
    ``filtered`` it is the mean over positives of 1 / rank. For ``adjusted`` see
    :class:`torchrank.extend.PositionMetric`. With one relevant among n candidates, the expectation is H / n; H is the
    sum of the reciprocal ranks up to n, or up to k.

    Source:
        Voorhees, The TREC-8 question answering track report, TREC 1999. Adjusted: Hoyt et al., arXiv 2203.07544, 2022.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        filtered: rank every positive against the irrelevant candidates only.
        average: over queries, or over positives; see :class:`torchrank.extend.PositionMetric`.
        adjusted: the adjustment for chance: None, "index" or "z".

    Example:
        >>> import torch, torchrank as tr
        >>> tr.MRR().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "mrr"
    monotone_behind = True

    def chance(self, n: Tensor, r: Tensor, most: int) -> Moments:
        return reciprocal_rank_moments(n, r, self.top_k, most)

    def of_one_rank(self) -> bool:
        return self.adjusted is None

    def unfiltered(self, ranking: Ranking) -> Tensor:
        return reciprocal_rank(ranking, self.relevance_level, self.top_k)


class HitRate(PositionMetric):
    r"""Hits@k, hit rate, success: 1 if a relevant candidate is among the first k, else 0, :math:`\max_{i \le k} rel_i`.

    Under ``ties="expected"`` it is a probability. For a tie group of n candidates, r of them relevant, with s places
    within the cutoff, this is :math:`1 - \binom{n-s}{r} / \binom{n}{r}`. With ``filtered`` it is the share of the
    positives whose rank is at most k. Without ``top_k`` it is 1 if any relevant candidate was retrieved; this leaves
    nothing to chance, so ``adjusted`` values are 0. For ``adjusted`` see :class:`torchrank.extend.PositionMetric`: with
    one relevant among n candidates, the expectation is min(k, n) / n.

    Source:
        trec_eval, ``success``; Hits@10 of Bordes et al., NIPS 2013. Adjusted: Hoyt et al., arXiv 2203.07544, 2022.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        filtered: rank every positive against the irrelevant candidates only.
        average: over queries, or over positives; see :class:`torchrank.extend.PositionMetric`.
        adjusted: the adjustment for chance: None, "index" or "z".

    Example:
        >>> import torch, torchrank as tr
        >>> tr.HitRate(top_k=1).score(torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[0, 1, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "hitrate"
    monotone_behind = True

    def chance(self, n: Tensor, r: Tensor, most: int) -> Moments:
        return hit_moments(n, r, self.top_k, most)

    def of_one_rank(self) -> bool:
        return self.adjusted is None

    def unfiltered(self, ranking: Ranking) -> Tensor:
        return hit(ranking, self.relevance_level, self.top_k)


class FirstRank(BinaryMetric):
    r"""Rank of the first relevant candidate: :math:`\min_{i \in rel} rank_i`. Lower is better.

    Under ``ties="expected"`` it is the exact expectation. If the first tie group with relevant candidates has n
    candidates, r of them relevant, behind a others, this is :math:`a + \frac{n + 1}{r + 1}`. It is not 1 over the
    :class:`MRR`: with four tied candidates, two of them relevant, it is 5/3, and the mean of 1 / rank is 13/18. If no
    relevant candidate was retrieved, the rank is the one behind the list; NaN if its length is unknown. Queries without
    relevant candidates are skipped by default, and queries for which nothing was retrieved always.

    Source:
        Cooper, Expected search length, American Documentation 19(1), 1968, which counts the irrelevant candidates above
        this rank and averages over ties in the same way.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.FirstRank().score(torch.tensor([[0.5, 0.5, 0.5, 0.5]]), torch.tensor([[1, 0, 1, 0]]))
        tensor([1.6667], dtype=torch.float64)
    """

    name = "firstrank"
    value_range = (1.0, math.inf)
    higher_is_better = False
    top_k: None = None

    empty_target_action: EmptyAction = "skip"

    def of_one_rank(self) -> bool:
        return True

    def measure(self, ranking: Ranking) -> Tensor:
        first = first_rank(ranking, self.relevance_level)
        return torch.where(first.isfinite(), first, ranking.num_candidates + 1)
