"""Counts of candidates, and lists that lack or repeat some."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric, RetrievedMetric
from torchrank.metrics.binary import BinaryMetric
from torchrank.metrics.item_lists import PerUserMetric, Recommended
from torchrank.names.parameters import flag
from torchrank.names.types import Aggregation
from torchrank.ranking.intervals import only
from torchrank.ranking.ranking import Ranking

__all__ = ["Filled", "NumNonrelRet", "NumQ", "NumRel", "NumRelRet", "NumRet", "Unrepeated"]


class NumRel(BinaryMetric):
    r"""Number of relevant candidates, retrieved or not, :math:`R`.

    The result is the mean over queries. trec_eval prints the sum, ``aggregation="sum"``. Ties have no effect.

    Source:
        trec_eval, ``num_rel``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumRel().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([2.], dtype=torch.float64)
    """

    name = "numrel"
    value_range = (0.0, math.inf)
    top_k: None = None

    def need(self) -> Need:
        return Need(1, relevant=True)  # no rank is read

    def numerator(self, ranking: Ranking) -> Tensor:
        return ranking.num_relevant(self.relevance_level)


class NumRelRet(BinaryMetric):
    r"""Number of relevant candidates among the first k, :math:`\sum_{i \le k} rel_i`.

    It is an expected number if a tie group crosses the cutoff. The result is the mean over queries. trec_eval prints
    the sum, ``aggregation="sum"``.

    Source:
        trec_eval, ``num_rel_ret``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumRelRet().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([1.], dtype=torch.float64)
    """

    name = "numrelret"
    value_range = (0.0, math.inf)

    def numerator(self, ranking: Ranking) -> Tensor:
        return self.hits(ranking)


class NumRet(RetrievedMetric):
    r"""Number of retrieved candidates among the first k: :math:`\min(k, n)`.

    The result is the mean over queries. trec_eval prints the sum, ``aggregation="sum"``. A query for which nothing was
    retrieved is empty. Ties have no effect.

    Source:
        trec_eval, ``num_ret``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumRet().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([2.], dtype=torch.float64)
    """

    name = "numret"
    value_range = (0.0, math.inf)

    def need(self) -> Need:
        return Need(1, relevant=True)  # no rank is read

    def measure(self, ranking: Ranking) -> Tensor:
        return ranking.num_within(self.top_k)


class NumNonrelRet(BinaryMetric):
    r"""Number of candidates judged irrelevant among the first k, :math:`\sum_{i \le k} [0 \le grade_i < level]`.

    It is an expected number if a tie group crosses the cutoff. The result is the mean over queries. trec_eval prints
    the sum, ``aggregation="sum"``. A query for which nothing was retrieved is empty: 0 by default, as in trec_eval.

    Source:
        trec_eval, ``num_nonrel_judged_ret``.

    Args:
        relevance_level: a grade at or above it is relevant, one from 0 up to it is irrelevant; > 0.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumNonrelRet().score(torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[0, -1, 1]]))
        tensor([1.], dtype=torch.float64)
    """

    name = "numnonrelret"
    value_range = (0.0, math.inf)
    higher_is_better = False
    lower_is_better = False  # a mere count: of no candidates 0 is the number of trec_eval, not a reward
    takes_unjudged_for = ("irrelevant", "condensed")

    def need(self) -> Need:
        return Need(self.top_k)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_candidates == 0

    def measure(self, ranking: Ranking) -> Tensor:
        irrelevant = ranking.judged() & ~ranking.relevant(self.relevance_level)
        return only(irrelevant, ranking.prob_in_top_k(self.top_k)).sum(-1)


class NumQ(RankingMetric):
    r"""Number of queries: each counts :math:`1`, also an empty one. Queries with weights count their weights.

    Unlike other measures it is a sum by default. No query is empty.

    Source:
        trec_eval, ``num_q``.

    Args:
        aggregation: as :class:`RankingMetric`, but "sum" by default.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NumQ()(torch.tensor([[0.9, 0.8], [0.7, 0.9]]), torch.tensor([[1, 0], [0, 0]]))
        tensor(2.)
    """

    name = "numq"
    value_range = (0.0, math.inf)
    takes_unjudged_for = ("irrelevant", "condensed")
    top_k: None = None

    aggregation: Aggregation = "sum"

    def need(self) -> Need:
        return Need(1, relevant=True)  # no rank is read

    def empty(self, ranking: Ranking) -> Tensor:
        return torch.zeros_like(ranking.num_candidates, dtype=torch.bool)

    def measure(self, ranking: Ranking) -> Tensor:
        return torch.ones_like(ranking.num_candidates)


class Filled(RetrievedMetric):
    r"""The share of the first k ranks that have a candidate: :math:`\min(k, n) / k`.

    n is the length of the list. Without ``top_k`` the value is 1 for a list with any candidate, so the mean is the
    share of queries that are served. A query for which nothing was retrieved is empty. Ties have no effect.

    Source:
        RecTools, ``SufficientReco`` and ``CoveredUsers``.

    Args:
        top_k: k, the number of ranks to fill; None = the list of each query is filled by any candidate.
        whole: 1 if all k ranks have a candidate, else 0. The mean is then the share of lists that are long enough.

    Example:
        >>> import torch, torchrank as tr
        >>> lists, target = torch.tensor([[3, 1, 4], [5, -1, -1]]), torch.tensor([1, 1])
        >>> tr.Filled(top_k=2).score(lists, target), tr.Filled(top_k=2, whole=True).score(lists, target)
        (tensor([1.0000, 0.5000], dtype=torch.float64), tensor([1., 0.], dtype=torch.float64))
    """

    name = "filled"

    whole: bool = flag(default=False)

    def need(self) -> Need:
        return Need(1, relevant=True)  # no rank is read

    def measure(self, ranking: Ranking) -> Tensor:
        share = (ranking.num_candidates / (self.top_k or 1)).clamp_max(1)
        return share.floor() if self.whole else share  # NaN stays NaN: a list of unknown length


class Unrepeated(PerUserMetric):
    r"""The share of a list that repeats no earlier item: items by length, :math:`|\{i : i \in L\}| \,/\, |L|`.

    Measures of rankings refuse a list L with repeated items, unless ``repeats`` says what is done with them. This one
    reads the list as it is. If ``exclude`` has a repeated item, only its last copy leaves the list. An empty list is
    left out.

    Source:
        RecTools, ``UnrepeatedReco``.

    Args:
        whole: 1 if no item is repeated, else 0. The mean is then the share of lists without repetitions.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Unrepeated().score(torch.tensor([[3, 1, 3, 3], [5, 2, -1, -1]]))  # items 3 and 1 of four ranks
        tensor([0.5000, 1.0000], dtype=torch.float64)
    """

    name = "unrepeated"
    takes_repeats = True

    whole: bool = flag(default=False)

    def measure(self, lists: Recommended) -> Tensor:
        share = lists.distinct(lists.ids) / lists.length
        return (share >= 1).to(share.dtype) if self.whole else share
