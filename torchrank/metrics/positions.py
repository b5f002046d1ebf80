"""Measures of single positions, as link prediction and next-item recommendation use them."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

import torchrank.formulas.random_ranking as chance
from torchrank.formulas.gains import RECIPROCAL
from torchrank.formulas.judgment_bounds import UNEQUAL
from torchrank.formulas.random_ranking import Moments, first_at
from torchrank.hardware.devices import reading_is_free
from torchrank.layouts.canonical import Need
from torchrank.metrics.binary import BinaryMetric
from torchrank.names.parameters import flag, one_of
from torchrank.names.types import EmptyAction
from torchrank.ranking.arithmetic import marked_rows, ratio
from torchrank.ranking.ranking import Ranking
from torchrank.state.aggregation import MEANS, Mean
from torchrank.state.sums import Sum, mean, read, weights_beside_squares

__all__ = ["MR", "MRR", "HitRate"]


class PositionMetric(BinaryMetric):
    """A measure of where relevant candidates stand.

    Adjusted for chance it says how much better the ranks are than those of a random order of each query's candidates
    (Berrendorf et al., 2020; Hoyt et al., 2022). With m the mean over queries, e its expectation and v its variance in
    random order, "index" is (m - e) / (1 - e), 1 at best and 0 by chance; "z" is (m - e) / sqrt(v), negated where
    lower is better; "ratio", for :class:`MR` only, is m / e. ``compute`` says this of the mean, and ``score`` of each
    query, so the former weighs the latter by what a query adds to e or v. Queries that leave nothing to chance, as one
    with a single candidate, score 0 and weigh nothing; if all do, the result is 0. The weights that ``update`` takes
    count in m, e and v alike. An ``aggregation`` other than "mean" takes every query's value as one.

    Lists must hold all candidates; a relevant one that was not retrieved is a candidate besides. With ``filtered``, the
    candidates of a positive are itself and the irrelevant ones, and v takes positives of one query for independent.
    Otherwise all orders of a query's candidates are as likely, however many are relevant.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        filtered: rank every positive against the irrelevant candidates only, as link prediction does (Bordes et al.,
            NIPS 2013), and average over positives.
        average: with ``filtered``, "query": the mean over queries of the mean over their positives; "positive": the
            mean over all positives, in which a query without any has no part.
        adjusted: None, "index" or "z", for :class:`MR` also "ratio": in terms of chance.
        kwargs: as :class:`BinaryMetric`; ``ties`` may be "realistic".

    Raises:
        ValueError: ``average="positive"`` for a measure that has one value per query; ``adjusted`` together with a
            geometric or harmonic mean, or with bounds over what is unjudged.
    """

    policies = ("expected", "optimistic", "pessimistic", "realistic")
    #: whether every positive has a value even where it is not filtered
    of_every_positive = False
    #: what it can be in terms of chance, and the range of that
    adjustments: ClassVar[dict[str, tuple[float, float]]] = {"index": (-math.inf, 1.0), "z": (-math.inf, math.inf)}

    filtered: bool = flag(default=False)
    average: Literal["query", "positive"] = one_of(default="query")
    adjusted: Literal["ratio", "index", "z"] | None = one_of(default=None, among=lambda cls: (None, *cls.adjustments))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == "positive" and not (self.filtered or self.of_every_positive):
            raise ValueError(
                f"Expected filtered=True together with average='positive', got filtered=False: unfiltered, {self.name}"
                " has one value per query, that of the first relevant candidate"
            )
        if self.adjusted is None:
            return
        if self.aggregation in ("geometric", "harmonic"):
            raise ValueError(
                f"Expected adjusted=None together with aggregation={self.aggregation!r}, got {self.adjusted!r}"
            )
        self.reports(self.adjustments[self.adjusted], self.higher_is_better or self.adjusted != "ratio")

    def reports(self, value_range: tuple[float, float], higher_is_better: bool) -> None:
        """Say that this metric reports other values than its class does."""
        low, high = (limit if math.isfinite(limit) else None for limit in value_range)
        own = {"value_range": value_range, "plot_lower_bound": low, "plot_upper_bound": high}
        vars(self).update(own, higher_is_better=higher_is_better)  # torchmetrics lets nobody assign them

    def need(self) -> Need:
        # Unfiltered, a rank may be any; but chance depends on what was retrieved at all.
        return Need(relevant=True) if self.filtered or self.adjusted else super().need()

    def resolve_ties(self, ranking: Ranking) -> Ranking:
        # Filtered positives are lists of their own: a tie between two of them is none.
        return ranking if self.filtered else ranking.under(self.ties)

    def measure(self, ranking: Ranking) -> Tensor:
        value = self.plain(ranking)
        if self.adjusted is None:
            return value
        return self.by_chance(ranking).adjusted(value, self.adjusted, type(self).higher_is_better)

    def plain(self, ranking: Ranking) -> Tensor:
        """The measure itself, whatever chance would give: float64 [query]."""
        if not self.filtered:
            return self.unfiltered(ranking)
        single = ranking.each_positive(self.relevance_level).under(self.ties)
        values = self.inner.inside(self.unfiltered(single).reshape(ranking.first.shape))
        relevant = ranking.relevant(self.relevance_level)
        total = torch.where(relevant, values, 0.0).sum(-1)
        return self.inner.outside(ratio(total, ranking.num_relevant(self.relevance_level)))

    @property
    def inner(self) -> Mean:
        """The mean over the positives of one query."""
        return MEANS["mean"]

    def unfiltered(self, ranking: Ranking) -> Tensor:
        """The formula on lists as they are: float64 [query]."""
        raise NotImplementedError

    def by_chance(self, ranking: Ranking) -> Moments:
        """What :meth:`plain` is in a random order of the candidates of each query."""
        found = ranking.found(self.relevance_level).sum(-1).to(ranking.first.dtype)
        relevant, length = ranking.num_relevant(self.relevance_level), ranking.num_candidates
        if not self.filtered:
            return self.chance(length + relevant - found, relevant, most=ranking.first.shape[1])
        each = self.chance(length - found + 1, relevant.clamp_max(1), most=1)
        return Moments(each.mean, ratio(each.variance, relevant))

    def chance(self, n: Tensor, r: Tensor, most: int) -> Moments:
        """What :meth:`unfiltered` is by chance, of r relevant, ``most`` or fewer, among n candidates: [query] each."""
        raise NotImplementedError

    @property
    def no_bounds_reason(self) -> str:
        return UNEQUAL if self.average == "positive" or self.adjusted else ""

    def weight(self, ranking: Ranking) -> Tensor:
        positives = self.average == "positive"
        weight = ranking.num_relevant(self.relevance_level) if positives else super().weight(ranking)
        if self.adjusted is None or self.aggregation != "mean":
            return weight
        return weight * self.by_chance(ranking).weight(self.adjusted)

    def transform_result(self, average: Tensor, sums: Tensor) -> Tensor:
        if self.adjusted is None or self.aggregation != "mean":
            return average
        certain = (sums[Sum.W] == 0) & (sums[Sum.QUERIES] > sums[Sum.EMPTY])  # 0 / 0, where nothing is left to chance
        return torch.where(certain, 0.0, average * self.slope(sums))

    def slope(self, sums: Tensor) -> Tensor:
        """How much what is reported changes with the average."""
        if self.adjusted == "z" and self.aggregation == "mean":
            return weights_beside_squares(sums)
        return torch.ones_like(sums[Sum.W])

    @property
    def standard_error(self) -> Tensor:
        """Standard error of what is reported, float32 []; see :class:`torchrank.RankingMetric`."""
        return self._narrow(super().standard_error * self.slope(read(self.sums)))


class MR(PositionMetric):
    r"""Mean rank of the relevant candidates: :math:`\frac{1}{R} \sum_{i \in rel} rank_i`. Lower is better.

    One that was not retrieved takes the rank behind the list. Queries without any are skipped by default.

    With ``aggregation="geometric"`` or "harmonic" the mean over the positives of a query is of that kind too, so that
    ``filtered=True, average="positive"`` gives this mean of the ranks of all positives. Under ``ties="expected"`` the
    logarithm, or the reciprocal, of a rank is what is expected; so 1 over the harmonic mean is the filtered
    :class:`MRR`. The middle rank is ``aggregation="median"``, the lower of two, or "midpoint", halfway between them:
    each query counts with its mean rank.

    Adjusted for chance, "ratio" is the adjusted mean rank m / e, 1 by chance and lower if better; "index" is
    1 - (m - 1) / (e - 1), at worst -1; "z" is (e - m) / sqrt(v); see :class:`PositionMetric`. One relevant among n
    candidates has e = (n + 1) / 2 and v = (n^2 - 1) / 12.

    Source:
        Bordes et al., Translating embeddings for modeling multi-relational data, NIPS 2013. Adjusted: Berrendorf,
        Faerman, Vermue and Tresp, On the ambiguity of rank-based evaluation of entity alignment or link prediction
        methods, arXiv 2002.06914, 2020. z and the other means: Hoyt, Berrendorf, Galkin, Tresp and Gyori, A unified
        framework for rank-based evaluation metrics for link prediction in knowledge graphs, arXiv 2203.07544, 2022.

    Args:
        relevance_level: a grade at or above it is relevant; > 0.
        filtered: rank every positive against the irrelevant candidates only; see :class:`PositionMetric`.
        average: "query", the mean over queries of their mean rank, or "positive", the mean over all positives.
        adjusted: None, "ratio", "index" or "z": in terms of chance.
        inverse: ``compute`` reports 1 / the average, of which more is better; ``score`` gives ranks all the same.
        kwargs: ``ties`` (also "realistic"), ``empty_target_action``, ``aggregation``, ``validate_args``: as
            :class:`RankingMetric`.

    Raises:
        ValueError: ``inverse`` together with ``adjusted``, and as :class:`PositionMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]])
        >>> tr.MR().score(scores, target)
        tensor([2.], dtype=torch.float64)
        >>> tr.MR(adjusted="index").score(scores, target)  # as good as chance
        tensor([0.], dtype=torch.float64)
    """

    known_as = {
        "parse": {
            "mean_rank": "",
            "gmr": "(aggregation=geometric)",
            "hmr": "(aggregation=harmonic)",
            "median_rank": "(aggregation=midpoint)",
            "iamr": "(inverse=True)",
            "inverse_geometric_mean_rank": "(aggregation=geometric,inverse=True)",
            "igmr": "(aggregation=geometric,inverse=True)",
            "inverse_median_rank": "(aggregation=midpoint,inverse=True)",
            "adjusted_mean_rank": "(adjusted=ratio)",
            "aamr": "(adjusted=ratio)",
            "amr": "(adjusted=ratio)",
            "adjusted_mean_rank_index": "(adjusted=index)",
            "aamri": "(adjusted=index)",
            "amri": "(adjusted=index)",
            "zamr": "(adjusted=z)",
            "zmr": "(adjusted=z)",
        },
        "pykeen": {
            "": "equal with `filtered=True,average=positive,ties=realistic`",
            "arithmetic_mean_rank": "",
            "geometric_mean_rank": "(aggregation=geometric)",
            "harmonic_mean_rank": "(aggregation=harmonic)",
            "median_rank": "~ the median of positives, not of queries",
            "inverse_arithmetic_mean_rank": "(inverse=True)",
            "adjusted_arithmetic_mean_rank": "(adjusted=ratio)",
            "adjusted_arithmetic_mean_rank_index": "(adjusted=index)",
            "z_arithmetic_mean_rank": "(adjusted=z)",
        },
    }
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
    def inner(self) -> Mean:
        return self.mean

    def unfiltered(self, ranking: Ranking) -> Tensor:
        rank = ranking.mean_rank()
        if self.mean is not MEANS["mean"]:
            expected = ranking.mean_discount(self.mean.inside, None)
            rank = torch.where(ranking.tied > 0, expected, self.mean.inside(rank))
        total = torch.where(ranking.relevant(self.relevance_level), rank, 0.0).sum(-1)
        return self.mean.outside(ratio(total, ranking.num_relevant(self.relevance_level)))

    def chance(self, n: Tensor, r: Tensor, most: int) -> Moments:
        return chance.mean_rank(n, r)

    def transform_result(self, average: Tensor, sums: Tensor) -> Tensor:
        return 1 / average if self.inverse else super().transform_result(average, sums)

    def slope(self, sums: Tensor) -> Tensor:
        return 1 / self.mean.outside(mean(sums)).square() if self.inverse else super().slope(sums)


class MRR(PositionMetric):
    r"""Reciprocal rank of the first relevant candidate, whose mean over queries is MRR: :math:`\frac{1}{rank}`.

    0 beyond k. Under ``ties="expected"`` the mean of 1/rank over the ranks that the first relevant candidate can have
    (McSherry and Najork, ECIR 2008), under "realistic" 1 over its middle rank. With ``filtered``, the mean over
    positives of 1/rank. For ``adjusted`` see :class:`PositionMetric`: one relevant among n candidates has the
    expectation H(n) / n, with H the sum of the reciprocal ranks up to n, or up to k.

    Source:
        Voorhees, The TREC-8 question answering track report, TREC 1999. Adjusted: Hoyt et al., arXiv 2203.07544, 2022.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        filtered, average: every positive against the irrelevant only, and what is averaged: see :class:`PositionMetric`
        adjusted: None, "index" or "z": in terms of chance.
        kwargs: ``ties`` (also "realistic"), ``empty_target_action``, ``aggregation``, ``validate_args``: as
            :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.MRR().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {
        "parse": {
            "RR": "",
            "mean_reciprocal_rank": "",
            "reciprocal_rank": "",
            "retrieval_reciprocal_rank": "",
            "adjusted_mean_reciprocal_rank": "(adjusted=index)",
            "adjusted_mrr": "(adjusted=index)",
            "aihmr": "(adjusted=index)",
            "amrr": "(adjusted=index)",
            "zihmr": "(adjusted=z)",
            "zmrr": "(adjusted=z)",
        },
        "trec_eval": {"recip_rank": "without k"},
        "ir_measures": "RR",
        "ranx": "mrr",
        "torchmetrics": "RetrievalMRR",
        "pyg": "LinkPredMRR",
        "recbole": "mrr",
        "rectools": "MRR",
        "RePlay": "MRR",
        "lenskit": "RecipRank",
        "rax": "mrr_metric",
        "TensorFlow Ranking": "MRRMetric",
        "torcheval": "",
        "metrax": "",
        "Transformers4Rec": "",
        "pykeen": {
            "inverse_harmonic_mean_rank": "",
            "adjusted_inverse_harmonic_mean_rank": "(adjusted=index)",
            "z_inverse_harmonic_mean_rank": "(adjusted=z)",
        },
    }
    name = "mrr"

    def chance(self, n: Tensor, r: Tensor, most: int) -> Moments:
        return chance.reciprocal_rank(n, r, self.top_k, most)

    def unfiltered(self, ranking: Ranking) -> Tensor:
        found = ranking.found(self.relevance_level)
        alone = ranking.mean_discount(RECIPROCAL, self.top_k)
        value = torch.where(found, alone, 0.0).amax(-1)  # of the first, if no other relevant one is tied with it
        if found.shape[1] == 1 or ranking.untied:
            return value
        before, beside = ranking.relevant_before_and_in_tie(self.relevance_level)
        several = found & (before == 0) & (beside > 1)  # the first block with a relevant one, if there is company
        rows = marked_rows(several)
        several = several[rows]
        at = several.int().argmax(-1, keepdim=True)
        r, s, n, above = (
            x[rows].gather(-1, at).squeeze(-1)
            for x in (beside, ranking.ranks_in_top_k(self.top_k), ranking.tied, ranking.first - 1)
        )
        longest = min(self.top_k or ranking.depth, ranking.depth)
        crowded = several.any(-1)
        value[rows] = torch.where(crowded, _first_of_several(n, r, s, above, crowded, longest), value[rows])
        return value


class HitRate(PositionMetric):
    r"""Hits@k, hit rate, success: 1 if a relevant candidate is among the first k, else 0, :math:`\max_{i \le k} rel_i`.

    Under ``ties="expected"`` the chance of it, for a block of n tied candidates with r relevant of which s places are
    inside, :math:`1 - \binom{n-s}{r} / \binom{n}{r}`. With ``filtered``, the share of the positives whose rank is at
    most k. Without ``top_k``: whether any was retrieved, which leaves ``adjusted`` nothing to chance. For that see
    :class:`PositionMetric`: one relevant among n candidates has the expectation min(k, n) / n.

    Source:
        trec_eval, ``success``; Hits@10 of Bordes et al., NIPS 2013. Adjusted: Hoyt et al., arXiv 2203.07544, 2022.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        filtered, average: every positive against the irrelevant only, and what is averaged: see :class:`PositionMetric`
        adjusted: None, "index" or "z": in terms of chance.
        kwargs: ``ties`` (also "realistic"), ``empty_target_action``, ``aggregation``, ``validate_args``: as
            :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.HitRate(top_k=1).score(torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[0, 1, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {
        "parse": {
            "success": "",
            "hits": "",
            "hit": "",
            "HR": "",
            "hit_ratio": "",
            "H": "",
            "top_k_accuracy_score": "",
            "top_{k}_accuracy": "@{k}",
            "h_at_{k}": "@{k}",
            "ahits_at_{k}": "(adjusted=index)@{k}",
            "ah_at_{k}": "(adjusted=index)@{k}",
            "ahits": "(adjusted=index)",
            "ah": "(adjusted=index)",
        },
        "trec_eval": {"success_{k}": "@{k}"},
        "ir_measures": "Success",
        "ranx": {"hit_rate": "", "hits": "~ the number of hits, `numrelret`"},
        "torchmetrics": "RetrievalHitRate",
        "pyg": "LinkPredHitRatio",
        "recbole": "hit",
        "rectools": "HitRate",
        "RePlay": "HitRate",
        "lenskit": "Hit",
        "TensorFlow Ranking": "HitsMetric",
        "torcheval": "",
        "sentence-transformers": "accuracy",
        "BEIR": "accuracy top_k_accuracy",
        "Keras": "top_k_categorical_accuracy",
        "pykeen": {
            "hits_at_{k}": "@{k}",
            "adjusted_hits_at_{k}": "(adjusted=index)@{k}",
            "z_hits_at_{k}": "(adjusted=z)@{k}",
        },
    }
    name = "hitrate"

    def chance(self, n: Tensor, r: Tensor, most: int) -> Moments:
        return chance.hit(n, r, self.top_k, most)

    def unfiltered(self, ranking: Ranking) -> Tensor:
        return hit(ranking, self.relevance_level, self.top_k)


def hit(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Chance that a candidate graded at or above ``level`` is among the first ``top_k``: float64 [query]."""
    found = ranking.found(level)
    value = torch.where(found, ranking.prob_in_top_k(top_k), 0.0).amax(-1)
    if found.shape[1] == 1 or ranking.untied:
        return value
    # In a block that is cut, C(n-s, r) / C(n, r) is a product with a factor for each of its relevant candidates.
    rows = marked_rows(((value > 0) & (value < 1)).unsqueeze(-1))
    found, before = found[rows], ranking.relevant_before_and_in_tie(level)[0][rows]
    n, s = ranking.tied[rows], ranking.ranks_in_top_k(top_k)[rows]
    index = torch.minimum(found.cumsum(-1) - 1 - before, n - 1)  # among its block's relevant: 0, 1, ...
    miss = ratio((n - s - index).clamp_min(0), n - index)
    value[rows] = 1 - torch.where(found, miss, 1.0).prod(-1)
    return value


def _first_of_several(n: Tensor, r: Tensor, s: Tensor, above: Tensor, where: Tensor, longest: int) -> Tensor:
    """Expected 1 / rank of the first of r relevant in a block of n behind ``above`` others, cut after s: [query]."""
    if reading_is_free(where):  # most data has no such tie
        longest = min(longest, int(torch.where(where, s, 0.0).amax())) if len(s) else 0
    total, s, above = torch.zeros_like(n), s.unsqueeze(-1), above.unsqueeze(-1)
    for j, share in first_at(n, r, longest):
        total = total + torch.where(j <= s, share / (above + j), 0.0).sum(-1)
    return total
