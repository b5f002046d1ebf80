"""Means that are weighted: of ranks by grades, and of grades by ranks."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchrank.lists import Need
from torchrank.metrics.gains import reciprocal
from torchrank.metrics.graded import GradedMetric
from torchrank.pieces import ratio
from torchrank.ranking import Ranking


class ARP(GradedMetric):
    r"""Average relevance position: :math:`\sum_i gain_i \, rank_i \,/\, \sum_i gain_i`. Lower is better.

    The mean rank of what gains, weighted by how much. As in :class:`MR`, a candidate that was not retrieved takes the
    rank behind the list, and queries in which nothing gains are skipped by default.

    Source:
        TensorFlow Ranking's ``ARPMetric``.

    Also in:
        TensorFlow Ranking (``ARPMetric``, whose mean over queries is weighted by what they gain) and pytorchltr
        (``arp``).

    Args:
        gain: "linear", "exponential" or a callable with a name; see :class:`GradedMetric`.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.ARP().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 0, 1]]))  # (3 * 1 + 1 * 3) / 4
        tensor([1.5000], dtype=torch.float64)
    """

    name = "arp"
    value_range = (1.0, math.inf)
    higher_is_better = False
    takes_top_k = False

    def __init__(self, top_k: None = None, *, empty_target_action: str = "skip", **kwargs: Any) -> None:
        super().__init__(top_k, empty_target_action=empty_target_action, **kwargs)

    def need(self) -> Need:
        return Need(relevant=True)

    def measure(self, ranking: Ranking) -> Tensor:
        gains = ranking.gains(self.gain_function)
        return ratio(torch.where(gains > 0, gains * ranking.mean_rank(), 0.0).sum(-1), gains.sum(-1))


class PWA(GradedMetric):
    r"""Position-weighted average of gains: :math:`\sum_{i \le k} \frac{gain_i}{i} \,/\, \sum_{i \le k} \frac{1}{i}`.

    A list shorter than k is averaged over its own ranks.

    Source:
        TensorFlow Ranking's ``PWAMetric``.

    Also in:
        TensorFlow Ranking (``PWAMetric``, of which k is 5 unless given).

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        gain: "linear", "exponential" or a callable with a name; see :class:`GradedMetric`.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.PWA(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 4, 0]]))  # (1 + 4/2) / (1 + 1/2)
        tensor([2.0000], dtype=torch.float64)
    """

    name = "pwa"

    def measure(self, ranking: Ranking) -> Tensor:
        gained = (ranking.gains(self.gain_function) * ranking.discounted(reciprocal, self.top_k)).sum(-1)
        length = ranking.num_candidates.nan_to_num(nan=math.inf).clamp_max(self.top_k or math.inf)
        return ratio(gained, torch.digamma(length + 1) - torch.digamma(torch.ones_like(length)))
