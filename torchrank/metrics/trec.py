"""Measures that trec_eval alone has."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchrank.lists import Need
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import BinaryMetric, precisions
from torchrank.metrics.gains import logarithmic
from torchrank.metrics.graded import GradedMetric
from torchrank.pieces import ratio, running_sum
from torchrank.ranking import Ranking

# Gains that differ by a smaller share are equal.
ROUNDING = 1e-12


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
        ir_measures (``NumRelRet``, ``NumRet(rel=1)``), ranx (``hits@k``, a name that elsewhere is :class:`HitRate`).

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


class NumRet(RankingMetric):
    r"""Number of retrieved candidates among the first k: :math:`\min(k, n)`.

    The mean over queries, where trec_eval prints the sum. A query of which nothing was retrieved is empty. Ties change
    nothing.

    Source:
        trec_eval, ``num_ret``.

    Also in:
        pytrec_eval (``num_ret``), ir_measures (``NumRet``), LensKit (``ListLength``).

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumRet().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([2.], dtype=torch.float64)
    """

    name = "numret"
    value_range = (0.0, math.inf)
    takes_unjudged_for = ("irrelevant",)

    def need(self) -> Need:
        return Need(1, relevant=True)  # it looks at no rank

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_candidates == 0

    def measure(self, ranking: Ranking) -> Tensor:
        return ranking.num_candidates if self.top_k is None else ranking.num_candidates.clamp_max(self.top_k)


class YAAP(BinaryMetric):
    r"""Yet another average precision, the log odds of AP: :math:`\ln \frac{1 + R \, AP}{1 + R - R \, AP}`.

    So that the mean over queries does not hang on those of middling precision. Under ``ties="expected"`` that of the
    expected average precision, which is not the expectation.

    Source:
        Robertson, On smoothing average precision, ECIR 2012; trec_eval, ``yaap``.

    Also in:
        none of the other libraries compared.

    Args:
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.YAAP().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # ln((1 + 5/3) / (3 - 5/3))
        tensor([0.6931], dtype=torch.float64)
    """

    name = "yaap"
    value_range = (-math.inf, math.inf)
    takes_top_k = False

    def measure(self, ranking: Ranking) -> Tensor:
        total = precisions(ranking, self.relevance_level, None).sum(-1)
        return torch.log((1 + total) / (1 + ranking.num_relevant(self.relevance_level) - total))


class BinG(BinaryMetric):
    r"""Binary G: the mean over relevant candidates of a logarithmic discount for what is irrelevant above each.

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
        return self.per_relevant(ranking, values)


class RNDCG(GradedMetric):
    r"""NDCG averaged over the ranks at which the ideal order changes its grade, :math:`\frac{1}{m} \sum_j NDCG@R_j`.

    :math:`R_j` judged candidates are of one of the j largest positive gains. As in trec_eval the whole list counts as
    one more such rank if it is longer than all relevant candidates and one. The discount is 1 / log2(1 + rank). Linear
    in the gains, so exact under ties.

    Source:
        trec_eval, ``Rndcg``.

    Also in:
        pytrec_eval (``Rndcg``).

    Args:
        gain: "linear", "exponential" or a callable with a name; see :class:`GradedMetric`.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RNDCG().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2, 0, 1]]))  # (1 + 2 / 2.6309) / 2
        tensor([0.8801], dtype=torch.float64)
    """

    name = "rndcg"
    value_range = (0.0, 1.0)
    takes_top_k = False

    def measure(self, ranking: Ranking) -> Tensor:
        gain, discount = self.gain_function, logarithmic(2)
        best = ranking.ideal_order(gain, None)
        ranks = torch.arange(1, best.shape[1] + 1, dtype=best.dtype, device=best.device)
        ideal = running_sum(best * discount(ranks))
        reached = running_sum(ranking.gains_by_rank(gain, best.shape[1]) * discount(ranks))
        fall = best - torch.nn.functional.pad(best[:, 1:], (0, 1))
        ends = fall > ROUNDING * best  # gains of equal grades may differ in the last digit
        longer = ranking.num_candidates > (best > 0).sum(-1) + 1
        whole = ratio((ranking.gains(gain) * ranking.discounted(discount, None)).sum(-1), ideal[:, -1])
        total = torch.where(ends, ratio(reached, ideal), 0.0).sum(-1) + torch.where(longer, whole, 0.0)
        return ratio(total, ends.sum(-1) + longer)
