"""Measures of the set of candidates in the first ranks, whatever their order."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.metrics.binary import BinaryMetric
from torchrank.pieces import ratio
from torchrank.ranking import Ranking


class RelativePrecision(BinaryMetric):
    r"""Relative precision: precision at k divided by the largest possible, :math:`\frac{h@k}{\min(k, R)}`.

    With h hits it is precision up to rank R and recall beyond. R counts relevant candidates that were not retrieved.
    Without ``top_k``, k is the length of the list. A query of which nothing was retrieved scores 0. Under
    ``ties="expected"`` the exact expectation.

    Source:
        trec_eval, ``relative_P``; without ``top_k`` ``set_relative_P``.

    Also in:
        pytrec_eval (``relative_P``, ``set_relative_P``), ir_measures (``SetP(relative=True)``), RecTools
        (``Precision(r_precision=True)``).

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RelativePrecision(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 1, 0]]))
        tensor([1.], dtype=torch.float64)
    """

    name = "relprecision"

    def measure(self, ranking: Ranking) -> Tensor:
        most = torch.minimum(self.length(ranking), ranking.num_relevant(self.relevance_level))
        return ratio(self.hits(ranking), most)


class SetAP(BinaryMetric):
    r"""Average precision of an unordered set, :math:`\frac{h^2}{n R}`: its precision times its recall.

    h of the n retrieved candidates are relevant, of R in all: every hit has the precision of the set, and what was not
    retrieved has 0. The order, and so ties, change nothing.

    Source:
        trec_eval, ``set_map``.

    Also in:
        pytrec_eval (``set_map``), ir_measures (``SetAP``).

    Args:
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.SetAP().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([0.2500], dtype=torch.float64)
    """

    name = "setap"
    takes_top_k = False

    def measure(self, ranking: Ranking) -> Tensor:
        hits = self.hits(ranking)
        return ratio(hits * hits, ranking.num_candidates * ranking.num_relevant(self.relevance_level))
