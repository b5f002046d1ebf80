"""Counts of candidates."""

from __future__ import annotations

import math

from torch import Tensor

from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import BinaryMetric
from torchrank.ranking.ranking import Ranking

__all__ = ["NumRel", "NumRelRet", "NumRet"]


class NumRel(BinaryMetric):
    r"""Number of relevant candidates, retrieved or not, :math:`R`.

    The result is the mean over queries, while trec_eval prints the sum. Ties have no effect.

    Source:
        trec_eval, ``num_rel``.

    Args:
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumRel().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([2.], dtype=torch.float64)
    """

    known_as = {"trec_eval": "num_rel", "ir_measures": "NumRel"}
    name = "numrel"
    value_range = (0.0, math.inf)
    top_k: None = None

    def need(self) -> Need:
        return Need(1, relevant=True)  # no rank is read

    def measure(self, ranking: Ranking) -> Tensor:
        return ranking.num_relevant(self.relevance_level)


class NumRelRet(BinaryMetric):
    r"""Number of relevant candidates among the first k, :math:`\sum_{i \le k} rel_i`.

    It is an expected number if a tie group crosses the cutoff. The result is the mean over queries, while trec_eval
    prints the sum.

    Source:
        trec_eval, ``num_rel_ret``.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumRelRet().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([1.], dtype=torch.float64)
    """

    known_as = {
        "trec_eval": "num_rel_ret",
        "ir_measures": {"NumRelRet": "", "NumRet(rel={x})": "(relevance_level={x})"},
        "ranx": {"hits": "a name that other libraries have for `HitRate`"},
    }
    name = "numrelret"
    value_range = (0.0, math.inf)

    def measure(self, ranking: Ranking) -> Tensor:
        return self.hits(ranking)


class NumRet(RankingMetric):
    r"""Number of retrieved candidates among the first k: :math:`\min(k, n)`.

    The result is the mean over queries, while trec_eval prints the sum. A query for which nothing was retrieved is
    empty. Ties have no effect.

    Source:
        trec_eval, ``num_ret``.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumRet().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([2.], dtype=torch.float64)
    """

    known_as = {
        "parse": "list_length",
        "trec_eval": "num_ret",
        "ir_measures": "NumRet",
        "lenskit": {"": "`ListLength`"},
    }
    name = "numret"
    value_range = (0.0, math.inf)
    takes_unjudged_for = ("irrelevant", "condensed")

    def need(self) -> Need:
        return Need(1, relevant=True)  # no rank is read

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_candidates == 0

    def measure(self, ranking: Ranking) -> Tensor:
        return ranking.num_candidates if self.top_k is None else ranking.num_candidates.clamp_max(self.top_k)
