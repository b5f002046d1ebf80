"""Measures that trec_eval alone has: counts, and precision discounted by the irrelevant."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchrank.lists import Need
from torchrank.metrics.binary import BinaryMetric
from torchrank.metrics.gains import logarithmic
from torchrank.pieces import ratio
from torchrank.ranking import Ranking


class NumRel(BinaryMetric):
    r"""Number of relevant candidates, retrieved or not, :math:`R`.

    The mean over queries, where trec_eval prints the sum. Ties change nothing.

    Source:
        trec_eval, ``num_rel``.

    Also in:
        ir_measures (``NumRel``).

    Args:
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumRel().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([2.], dtype=torch.float64)
    """

    name = "numrel"
    value_range = (0.0, math.inf)
    takes_top_k = False

    def need(self) -> Need:
        return Need(1, relevant=True)  # it looks at no rank

    def measure(self, ranking: Ranking) -> Tensor:
        return ranking.num_relevant(self.relevance_level)


class NumRelRet(BinaryMetric):
    r"""Number of relevant candidates among the first k, :math:`\sum_{i \le k} rel_i`; expected, where k cuts a tie.

    The mean over queries, where trec_eval prints the sum.

    Source:
        trec_eval, ``num_rel_ret``.

    Also in:
        ir_measures (``NumRelRet``, ``NumRet(rel=1)``), ranx (``hits@k``).

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumRelRet().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([1.], dtype=torch.float64)
    """

    name = "numrelret"
    value_range = (0.0, math.inf)

    def measure(self, ranking: Ranking) -> Tensor:
        return self.hits(ranking)


class BinG(BinaryMetric):
    r"""Binary G: precision of every relevant candidate, discounted by what is irrelevant above it.

    :math:`\frac{1}{R} \sum_{i \in rel} \frac{1}{\log_2 (2 + N_i)}`, with :math:`N_i` irrelevant candidates before
    relevant candidate i: a discount by its filtered rank. One that was not retrieved adds nothing. Under
    ``ties="expected"`` the mean over the numbers of irrelevant tied candidates that can come before it.

    Source:
        trec_eval, ``binG``.

    Also in:
        pytrec_eval (``binG``).

    Args:
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.BinG().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # (1 + 1 / log2(3)) / 2
        tensor([0.8155], dtype=torch.float64)
    """

    name = "bing"
    takes_top_k = False

    def measure(self, ranking: Ranking) -> Tensor:
        single = ranking.each_positive(self.relevance_level)
        values = single.discounted(logarithmic(2), None).reshape(ranking.first.shape)
        found = ranking.found(self.relevance_level)
        return ratio(torch.where(found, values, 0.0).sum(-1), ranking.num_relevant(self.relevance_level))
