"""Measures of binary relevance: candidates graded at or above ``relevance_level`` are relevant, others are not."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.gains import Logarithmic
from torchrank.hardware.devices import scalar
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.names.parameters import flag, number, one_of
from torchrank.names.types import EmptyAction
from torchrank.ranking.intervals import only, per, ratio, row_sum
from torchrank.ranking.ranking import Ranking

__all__ = ["F1", "BinG", "FBeta", "FallOut", "Precision", "RPrecision", "Recall", "RelativePrecision", "SetAP"]


class BinaryMetric(RankingMetric):
    """Base of the measures of binary relevance.

    Args:
        relevance_level: a grade at or above it is relevant; > 0. At level 1, a grade of 0.5 is not relevant:
            ``compute`` and ``score`` warn if no query has a relevant candidate for such grades.

    Raises:
        ValueError: ``relevance_level`` is not a number > 0.
    """

    relevance_level: float = number(default=1, above=0)

    def need(self) -> Need:
        return Need(self.top_k, relevant=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.without_relevant(self.relevance_level)

    def hits(self, ranking: Ranking) -> Tensor:
        """(Expected) number of relevant candidates in the first ``top_k``: float64 [query]."""
        return ranking.hits(self.relevance_level, self.top_k)

    def per_relevant(self, ranking: Ranking, values: Tensor) -> Tensor:
        """Mean of values [query, entry] over all relevant candidates, 0 for one not retrieved: float64 [query]."""
        of_hits = only(ranking.hit(self.relevance_level), values)
        return ratio(row_sum(of_hits), ranking.num_relevant(self.relevance_level))

    def length(self, ranking: Ranking) -> Tensor:
        """``top_k``, or the length of each list: float64 [query]."""
        lists = ranking.num_candidates
        return lists if self.top_k is None else scalar(self.top_k, lists.dtype, lists.device).expand_as(lists)


class Precision(BinaryMetric):
    r"""Precision: the share of relevant candidates among the first k, :math:`P@k = \frac{1}{k} \sum_{i \le k} rel_i`.

    A list shorter than k is still divided by k, as in trec_eval's ``P_k``. Without ``top_k``, k is the length of the
    list (trec_eval's ``set_P``).

    Source:
        Kent, Berry, Luehrs and Perry, Machine literature searching VIII, American Documentation 6(2), 1955.

    Args:
        adaptive_k: divide by the length of a list that is shorter than k, like torchmetrics' argument of the same name.

    Raises:
        ValueError: ``adaptive_k`` is not a bool.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Precision(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "precision"

    adaptive_k: bool = flag(default=False)

    def of_one_rank(self) -> bool:
        return not self.adaptive_k and self.top_k is not None

    def numerator(self, ranking: Ranking) -> Tensor:
        length = self.length(ranking)
        return per(self.hits(ranking), torch.minimum(length, ranking.num_candidates) if self.adaptive_k else length)


class Recall(BinaryMetric):
    r"""Recall: the share of the R relevant candidates in the first k ranks, :math:`\frac{1}{R} \sum_{i \le k} rel_i`.

    R also counts relevant candidates that were not retrieved, as in trec_eval's ``recall_k``.

    Source:
        Kent, Berry, Luehrs and Perry, Machine literature searching VIII, American Documentation 6(2), 1955.

    Args:
        normalize: the denominator: "relevant", all R relevant candidates; "min", min(R, k), the largest possible number
            of hits, as in LensKit.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Recall(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "recall"

    normalize: Literal["relevant", "min"] = one_of(default="relevant")
    empty_without_denominator = True

    def of_one_rank(self) -> bool:
        return True

    def numerator(self, ranking: Ranking) -> Tensor:
        return self.hits(ranking)

    def denominator(self, ranking: Ranking) -> Tensor:
        relevant = ranking.num_relevant(self.relevance_level)
        return relevant.clamp_max(self.top_k) if self.normalize == "min" and self.top_k else relevant


class F1(BinaryMetric):
    r"""F1: the harmonic mean of precision and recall, per query.

    :math:`F_1@k = \frac{2 \cdot P@k \cdot R@k}{P@k + R@k}`. This is :class:`FBeta` with beta = 1.

    Source:
        van Rijsbergen, Information Retrieval, 1979.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.F1(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]))
        tensor([0.6667], dtype=torch.float64)
    """

    name = "f1"
    beta = 1.0

    def of_one_rank(self) -> bool:
        return self.top_k is not None

    def numerator(self, ranking: Ranking) -> Tensor:
        return (1 + self.beta**2) * self.hits(ranking)

    def denominator(self, ranking: Ranking) -> Tensor:
        return self.beta**2 * ranking.num_relevant(self.relevance_level) + self.length(ranking)


class FBeta(F1):
    r"""F-measure: :math:`F_\beta = \frac{(1 + \beta^2) P R}{\beta^2 P + R} = \frac{(1 + \beta^2) h}{\beta^2 R_0 + k}`.

    P is precision, R recall, h the number of hits in the first k ranks, and :math:`R_0` the number of relevant
    candidates. F is computed per query, and then averaged.

    Source:
        van Rijsbergen, Information Retrieval, 1979.

    Args:
        beta: recall is this many times as important as precision; > 0.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.FBeta(top_k=2, beta=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]))
        tensor([0.8333], dtype=torch.float64)
    """

    name = "fbeta"

    beta: float = number(default=1, above=0)

    def of_one_rank(self) -> bool:
        return self.top_k is not None


class RPrecision(BinaryMetric):
    r"""R-precision: precision at rank R, the number of relevant candidates, :math:`\frac{1}{R} \sum_{i \le R} rel_i`.

    R also counts relevant candidates that were not retrieved. With a ``multiple`` m it is the precision at rank
    :math:`\lfloor m R + 0.9 \rfloor`, or 0 if this is less than 1. A shorter list is still divided by this rank.

    Source:
        trec_eval, ``Rprec``, and with ``multiple`` ``Rprec_mult``; Buckley and Voorhees, Evaluating evaluation measure
        stability, SIGIR 2000.

    Args:
        multiple: the factor m of R; > 0.

    Raises:
        ValueError: ``multiple`` is not a number > 0.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RPrecision().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "rprecision"
    top_k: None = None

    multiple: float = number(default=1, above=0)

    def measure(self, ranking: Ranking) -> Tensor:
        # The cutoff differs between queries, so the share of each tie group within it is computed here.
        cut = (self.multiple * ranking.num_relevant(self.relevance_level) + 0.9).floor()
        hits, within = ranking.hit(self.relevance_level), cut.unsqueeze(-1)
        if ranking.untied:
            return ratio((hits & (ranking.first <= within)).sum(-1), cut)
        return ratio(only(hits, ratio(ranking.ranks_within(within), ranking.tied)).sum(-1), cut)


class FallOut(BinaryMetric):
    r"""Fall-out: the share of the irrelevant candidates that the first k ranks contain. Lower is better.

    :math:`F@k = \frac{1}{N} \sum_{i \le \min(k, n)} (1 - rel_i)`, where the list has n candidates, N of them
    irrelevant. Only retrieved candidates count. A query without irrelevant ones is empty, and counts as 1 by default.
    A query for which nothing was retrieved has no value.

    Source:
        van Rijsbergen, Information Retrieval, 1979; at k torchmetrics.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.FallOut(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "fallout"
    higher_is_better = False

    empty_target_action: EmptyAction = "pos"

    def need(self) -> Need:
        return Need(relevant=True)  # relevant candidates are counted in the whole list

    def empty(self, ranking: Ranking) -> Tensor:
        return nothing_irrelevant(ranking, self.relevance_level)

    def measure(self, ranking: Ranking) -> Tensor:
        inside = torch.minimum(self.length(ranking), ranking.num_candidates) - self.hits(ranking)
        return ratio(inside, ranking.num_candidates - ranking.hits(self.relevance_level, None))


def uncounted(room: Tensor, among: Tensor) -> Tensor:
    """Mean of max(0, room - t) over t = 0, 1, ..., ``among``.

    In a tie group with ``among`` irrelevant candidates, t is the number of them before one relevant candidate. Each t
    is equally likely.
    """
    # The terms with t < room are positive. They decrease by 1, so their sum is their number times their mean.
    terms = torch.minimum(room.ceil().clamp_min(0), among + 1)
    return terms * (room - (terms - 1) / 2) / (among + 1)


def nothing_irrelevant(ranking: Ranking, level: float) -> Tensor:
    """bool [query]: only relevant candidates were retrieved; False if relevant ones exist but nothing was retrieved."""
    only_relevant = ranking.num_candidates == ranking.hits(level, None)
    return only_relevant & ~((ranking.num_candidates == 0) & (ranking.num_relevant(level) > 0))


class RelativePrecision(BinaryMetric):
    r"""Relative precision: precision at k divided by its largest possible value, :math:`\frac{h@k}{\min(k, R)}`.

    h@k is the number of hits in the first k ranks. R counts all relevant candidates, retrieved or not. The value equals
    precision if k is at most R, and recall if k is larger. Without ``top_k``, k is the length of the list. A query for
    which nothing was retrieved scores 0. Under ``ties="expected"`` it is the exact expectation.

    Source:
        trec_eval, ``relative_P``; without ``top_k`` ``set_relative_P``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RelativePrecision(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 1, 0]]))
        tensor([1.], dtype=torch.float64)
    """

    name = "relprecision"

    def numerator(self, ranking: Ranking) -> Tensor:
        return self.hits(ranking)

    def denominator(self, ranking: Ranking) -> Tensor:
        return torch.minimum(self.length(ranking), ranking.num_relevant(self.relevance_level))


class SetAP(BinaryMetric):
    r"""Average precision of an unordered set, :math:`\frac{h^2}{n R}`: its precision times its recall.

    h of the n retrieved candidates are relevant, and R candidates in all. Every hit contributes the precision of the
    set, h / n. Relevant candidates that were not retrieved contribute 0. The order, and so ties, have no effect.

    Source:
        trec_eval, ``set_map``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.SetAP().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([0.2500], dtype=torch.float64)
    """

    name = "setap"
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        hits = self.hits(ranking)
        return ratio(hits * hits, ranking.num_candidates * ranking.num_relevant(self.relevance_level))


class BinG(BinaryMetric):
    r"""Binary G: the mean over relevant candidates of a discount by the number of irrelevant ones above each.

    :math:`\frac{1}{R} \sum_{i \in rel} \frac{1}{\log_2 (2 + N_i)}`, with :math:`N_i` irrelevant candidates before
    relevant candidate i. This is a logarithmic discount of its filtered rank. A relevant candidate that was not
    retrieved adds nothing. Under ``ties="expected"`` the discount is averaged over all possible :math:`N_i`.

    Source:
        trec_eval, ``binG``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.BinG().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # (1 + 1 / log2(3)) / 2
        tensor([0.8155], dtype=torch.float64)
    """

    name = "bing"
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        single = ranking.each_positive(self.relevance_level)
        values = single.mean_discount(Logarithmic(2), None).reshape(ranking.first.shape)
        return self.per_relevant(ranking, values)
