"""Intent-aware measures: means over the subtopics, or intents, of a query."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.formulas.random_ranking import hit
from torchrank.metrics.average_precision import MAP
from torchrank.metrics.binary import BinaryMetric, Precision
from torchrank.ranking.intervals import ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["APIA", "PIA", "SubtopicRecall"]


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
