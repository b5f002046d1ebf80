"""Measures of single positions, as link prediction and next-item recommendation use them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchrank.lists import BLOCK, Need
from torchrank.metrics.arguments import one_of
from torchrank.metrics.binary import BinaryMetric
from torchrank.metrics.gains import reciprocal
from torchrank.pieces import ratio
from torchrank.ranking import Ranking


class PositionMetric(BinaryMetric):
    """A measure of where relevant candidates stand.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        filtered: rank every positive against the irrelevant candidates only, as link prediction does (Bordes et al.,
            NIPS 2013), and average over positives.
        average: with ``filtered``, "query": the mean over queries of the mean over their positives; "positive": the
            mean over all positives, in which a query without any has no part.
        kwargs: as :class:`BinaryMetric`; ``ties`` may be "realistic".

    Raises:
        ValueError: ``average="positive"`` for a measure that has one value per query.
    """

    policies = ("expected", "optimistic", "pessimistic", "realistic")
    #: whether every positive has a value even where it is not filtered
    of_every_positive = False

    def __init__(
        self, top_k: int | None = None, *, filtered: bool = False, average: str = "query", **kwargs: Any
    ) -> None:
        one_of("filtered", filtered, (True, False))
        one_of("average", average, ("query", "positive"))
        if average == "positive" and not (filtered or self.of_every_positive):
            raise ValueError(
                f"Expected filtered=True together with average='positive', got filtered=False: unfiltered, {self.name}"
                " has one value per query, that of the first relevant candidate"
            )
        super().__init__(top_k, filtered=bool(filtered), average=average, **kwargs)
        if average == "positive" and self.unjudged in ("lower", "upper"):
            raise ValueError(
                f"Expected average='query' with unjudged={self.unjudged!r}, got 'positive': what a query weighs would"
                " depend on what its unjudged candidates are"
            )

    filtered: bool
    average: str

    def need(self) -> Need:
        return Need(relevant=True) if self.filtered else super().need()  # unfiltered, a rank may be any

    def settled(self, ranking: Ranking) -> Ranking:
        # Filtered positives are lists of their own: a tie between two of them is none.
        return ranking if self.filtered else ranking.under(self.ties)

    def measure(self, ranking: Ranking) -> Tensor:
        if not self.filtered:
            return self.unfiltered(ranking)
        single = ranking.each_positive(self.relevance_level).under(self.ties)
        values = self.unfiltered(single).reshape(ranking.first.shape)
        relevant = ranking.relevant(self.relevance_level)
        return ratio(torch.where(relevant, values, 0.0).sum(-1), ranking.num_relevant(self.relevance_level))

    def unfiltered(self, ranking: Ranking) -> Tensor:
        """The formula on lists as they are: float64 [query]."""
        raise NotImplementedError

    def weight(self, ranking: Ranking) -> Tensor:
        if self.average == "query":
            return super().weight(ranking)
        return ranking.num_relevant(self.relevance_level)


class MR(PositionMetric):
    r"""Mean rank of the relevant candidates: :math:`\frac{1}{R} \sum_{i \in rel} rank_i`. Lower is better.

    One that was not retrieved takes the rank behind the list. Queries without any are skipped by default.

    Args:
        relevance_level: a grade at or above it is relevant; > 0.
        filtered: rank every positive against the irrelevant candidates only; see :class:`PositionMetric`.
        average: "query", the mean over queries of their mean rank, or "positive", the mean over all positives.
        kwargs: ``ties`` (also "realistic"), ``empty_target_action``, ``aggregation``, ``validate_args``: as
            :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.MR().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        tensor([2.], dtype=torch.float64)
    """

    name = "mr"
    value_range = (1.0, math.inf)
    higher_is_better = False
    of_every_positive = True
    takes_top_k = False

    def __init__(self, top_k: None = None, *, empty_target_action: str = "skip", **kwargs: Any) -> None:
        super().__init__(top_k, empty_target_action=empty_target_action, **kwargs)

    def unfiltered(self, ranking: Ranking) -> Tensor:
        missing = (ranking.num_candidates + 1).unsqueeze(-1)
        rank = torch.where(ranking.tied > 0, ranking.first + (ranking.tied - 1) / 2, missing)
        relevant = ranking.relevant(self.relevance_level)
        return ratio(torch.where(relevant, rank, 0.0).sum(-1), ranking.num_relevant(self.relevance_level))


class MRR(PositionMetric):
    r"""Reciprocal rank, whose mean is MRR: :math:`\frac{1}{rank}` of the first relevant candidate, 0 beyond k.

    trec_eval's ``recip_rank``; Voorhees, TREC-8 question answering track, 1999. Under ``ties="expected"`` the mean
    of 1/rank over the ranks that the first relevant candidate can have (McSherry and Najork, ECIR 2008), under
    "realistic" 1 over its middle rank. With ``filtered``, the mean over positives of 1/rank.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        filtered, average: every positive against the irrelevant only, and what is averaged: see :class:`PositionMetric`
        kwargs: ``ties`` (also "realistic"), ``empty_target_action``, ``aggregation``, ``validate_args``: as
            :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.MRR().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "mrr"

    def unfiltered(self, ranking: Ranking) -> Tensor:
        found = ranking.found(self.relevance_level)
        alone = ranking.discounted(reciprocal, self.top_k)
        value = torch.where(found, alone, 0.0).amax(-1)  # of the first, if no other relevant one is tied with it
        if found.shape[1] == 1 or ranking.untied:
            return value
        before, beside = ranking.relevant_around(self.relevance_level)
        several = found & (before == 0) & (beside > 1)  # the first block with a relevant one, if there is company
        rows = _rows(several)
        several = several[rows]
        at = several.int().argmax(-1, keepdim=True)
        r, s, n, above = (
            x[rows].gather(-1, at).squeeze(-1)
            for x in (beside, ranking.places(self.top_k), ranking.tied, ranking.first - 1)
        )
        longest = min(self.top_k or ranking.depth, ranking.depth)
        crowded = several.any(-1)
        value[rows] = torch.where(crowded, _first_of_several(n, r, s, above, crowded, longest), value[rows])
        return value


class HitRate(PositionMetric):
    r"""Hits@k, hit rate, success: 1 if a relevant candidate is among the first k, else 0.

    trec_eval's ``success``. Under ``ties="expected"`` the chance of it, for a block of n tied candidates with r
    relevant of which s places are inside, :math:`1 - \binom{n-s}{r} / \binom{n}{r}`. With ``filtered``, the share of
    the positives whose rank is at most k. Without ``top_k``: whether any was retrieved.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        filtered, average: every positive against the irrelevant only, and what is averaged: see :class:`PositionMetric`
        kwargs: ``ties`` (also "realistic"), ``empty_target_action``, ``aggregation``, ``validate_args``: as
            :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.HitRate(top_k=1).score(torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[0, 1, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "hitrate"

    def unfiltered(self, ranking: Ranking) -> Tensor:
        return hit(ranking, self.relevance_level, self.top_k)


def hit(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Chance that a candidate graded at or above ``level`` is among the first ``top_k``: float64 [query]."""
    found = ranking.found(level)
    value = torch.where(found, ranking.share(top_k), 0.0).amax(-1)
    if found.shape[1] == 1 or ranking.untied:
        return value
    # In a block that is cut, C(n-s, r) / C(n, r) is a product with a factor for each of its relevant candidates.
    rows = _rows(((value > 0) & (value < 1)).unsqueeze(-1))
    found, before = found[rows], ranking.relevant_around(level)[0][rows]
    n, s = ranking.tied[rows], ranking.places(top_k)[rows]
    index = torch.minimum(found.cumsum(-1) - 1 - before, n - 1)  # among its block's relevant: 0, 1, ...
    miss = ratio((n - s - index).clamp_min(0), n - index)
    value[rows] = 1 - torch.where(found, miss, 1.0).prod(-1)
    return value


def _rows(where: Tensor) -> Tensor | slice:
    """Rows in which something is marked; all of them where finding out would mean waiting for the device."""
    return where.any(-1).nonzero().squeeze(-1) if where.device.type == "cpu" else slice(None)


def _first_of_several(n: Tensor, r: Tensor, s: Tensor, above: Tensor, where: Tensor, longest: int) -> Tensor:
    """Expected 1 / rank of the first of r relevant in a block of n behind ``above`` others, cut after s: [query].

    sum over j <= s of P(none of the first j - 1) * r / (n - j + 1) / (above + j), in pieces of bounded size.
    """
    if where.device.type == "cpu":  # looking at values costs nothing here, and most data has no such tie
        longest = min(longest, int(torch.where(where, s, 0.0).amax())) if len(s) else 0
    total, none_yet = torch.zeros_like(n), torch.ones_like(n).unsqueeze(-1)
    step = max(1, BLOCK // 4 // max(1, len(n)))
    n, r, s, above = (x.unsqueeze(-1) for x in (n, r, s, above))
    for start in range(0, longest, step):
        j = torch.arange(start + 1, min(start + step, longest) + 1, dtype=n.dtype, device=n.device)
        left = (n - j + 1).clamp_min(1)
        survive = (none_yet * ((left - r) / left).clamp_min(0).cumprod(-1)).clamp_min(0)
        reached = torch.cat([none_yet, survive[:, :-1]], dim=-1)
        chance = torch.where(j <= s, reached * (r / left).clamp_max(1), 0.0)
        total = total + (chance / (above + j)).sum(-1)
        none_yet = survive[:, -1:]
    return total
