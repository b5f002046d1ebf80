"""Measures of binary relevance: a candidate graded at or above ``relevance_level`` is relevant, any other is not."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.gains import Logarithmic
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.names.parameters import flag, number, one_of
from torchrank.names.types import EmptyAction
from torchrank.ranking.arithmetic import ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["F1", "BinG", "FBeta", "FallOut", "Precision", "RPrecision", "Recall", "RelativePrecision", "SetAP"]


class BinaryMetric(RankingMetric):
    """A measure of relevant against irrelevant candidates.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0. Mind that a grade of 0.5 is not relevant at level 1.
        kwargs: as :class:`RankingMetric`.

    Raises:
        ValueError: ``relevance_level`` is not a number > 0.
    """

    relevance_level: float = number(default=1, above=0)

    def need(self) -> Need:
        return Need(self.top_k, relevant=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_relevant(self.relevance_level) == 0

    def hits(self, ranking: Ranking) -> Tensor:
        """(Expected) number of relevant candidates in the first ``top_k``: float64 [query]."""
        return ranking.hits(self.relevance_level, self.top_k)

    def per_relevant(self, ranking: Ranking, values: Tensor) -> Tensor:
        """Mean of values [query, entry] over the relevant candidates, 0 for what was not retrieved: float64 [query]."""
        found = torch.where(ranking.found(self.relevance_level), values, 0.0)
        return ratio(found.sum(-1), ranking.num_relevant(self.relevance_level))

    def length(self, ranking: Ranking) -> Tensor:
        """``top_k``, or the length of each list: float64 [query]."""
        lists = ranking.num_candidates
        return lists if self.top_k is None else torch.full_like(lists, self.top_k)


class Precision(BinaryMetric):
    r"""Precision: the share of the first k ranks that is relevant, :math:`P@k = \frac{1}{k} \sum_{i \le k} rel_i`.

    A list shorter than k still divides by k, as trec_eval's ``P_k`` does. Without ``top_k``, k is the length of the
    list (trec_eval's ``set_P``).

    Source:
        Kent, Berry, Luehrs and Perry, Machine literature searching VIII, American Documentation 6(2), 1955.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        adaptive_k: divide by the length of a list that is shorter than k, as torchmetrics' argument of that name does.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: ``adaptive_k`` is not a bool.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Precision(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {
        "parse": "P prec",
        "trec_eval": {"P_{k}": "@{k}", "set_P": ""},
        "ir_measures": "P SetP SetP(relative=False)",
        "ranx": "precision",
        "torchmetrics": "RetrievalPrecision",
        "pyg": "LinkPredPrecision",
        "recbole": "precision",
        "rectools": "Precision",
        "RePlay": "Precision",
        "Transformers4Rec": "PrecisionAt",
        "ranking-metrics-torch": "precision_at",
        "rax": {"precision_metric": "(adaptive_k=True)"},
        "TensorFlow Ranking": {"PrecisionMetric": "(adaptive_k=True)"},
        "metrax": {"PrecisionAtK": "(adaptive_k=True)"},
        "lenskit": {"Precision": "(adaptive_k=True,empty_target_action=listed)"},
    }
    name = "precision"

    adaptive_k: bool = flag(default=False)

    def measure(self, ranking: Ranking) -> Tensor:
        length = self.length(ranking)
        return ratio(self.hits(ranking), torch.minimum(length, ranking.num_candidates) if self.adaptive_k else length)


class Recall(BinaryMetric):
    r"""Recall: the share of the R relevant candidates in the first k ranks, :math:`\frac{1}{R} \sum_{i \le k} rel_i`.

    R counts relevant candidates that were not retrieved, as trec_eval's ``recall_k`` does.

    Source:
        Kent, Berry, Luehrs and Perry, Machine literature searching VIII, American Documentation 6(2), 1955.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        normalize: what it is divided by: "relevant", all R relevant candidates; "min", min(R, k), the most that the
            first k ranks can hold, as LensKit does.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Recall(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {
        "parse": "R",
        "trec_eval": {"recall_{k}": "@{k}", "set_recall": ""},
        "ir_measures": "R SetR",
        "ranx": "recall",
        "pyg": "LinkPredRecall",
        "recbole": "recall",
        "rectools": "Recall",
        "RePlay": "Recall",
        "torchmetrics": {"RetrievalRecall": "of the relevant candidates in the list only"},
        "rax": {"recall_metric": "of the relevant candidates in the list only"},
        "TensorFlow Ranking": {"RecallMetric": "of the relevant candidates in the list only"},
        "metrax": {"RecallAtK": "of the relevant candidates in the list only"},
        "torcheval": {"": "of the relevant candidates in the list only"},
        "Transformers4Rec": {"RecallAt": "of the relevant candidates in the list only"},
        "ranking-metrics-torch": {"recall_at": "of the relevant candidates in the list only"},
        "lenskit": {"Recall": "(normalize=min)"},
        "BEIR": {"R_cap": "(normalize=min)", "recall_cap": "(normalize=min)"},
    }
    name = "recall"

    normalize: Literal["relevant", "min"] = one_of(default="relevant")

    def measure(self, ranking: Ranking) -> Tensor:
        relevant = ranking.num_relevant(self.relevance_level)
        most = self.top_k if self.normalize == "min" else None
        return ratio(self.hits(ranking), relevant if most is None else relevant.clamp_max(most))


class FBeta(BinaryMetric):
    r"""F-measure: :math:`F_\beta = \frac{(1 + \beta^2) P R}{\beta^2 P + R} = \frac{(1 + \beta^2) h}{\beta^2 R_0 + k}`.

    h hits in the first k ranks, R0 relevant candidates in all. Per query, then averaged.

    Source:
        van Rijsbergen, Information Retrieval, 1979.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        beta: how many times as important as precision recall is; > 0.
        kwargs: as :class:`BinaryMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.FBeta(top_k=2, beta=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]))
        tensor([0.8333], dtype=torch.float64)
    """

    known_as = {
        "parse": {"F_beta": "", "F1_beta": "", "fbeta_score": "", "F{x}": "(beta={x})", "set_F_{x}": "(beta={root})"},
        "rectools": "",
        "trec_eval": {"": "`set_F_x`, whose x is beta squared"},
        "ir_measures": {"SetF(beta={x})": "(beta={root})"},
    }
    name = "fbeta"

    beta: float = number(default=1, above=0)

    def measure(self, ranking: Ranking) -> Tensor:
        return _f_measure(self, ranking, self.beta**2)


class F1(BinaryMetric):
    r"""F1: the harmonic mean of precision and recall, :math:`F_1@k = \frac{2 P R}{P + R}`, per query.

    :class:`FBeta` with beta = 1.

    Source:
        van Rijsbergen, Information Retrieval, 1979.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.F1(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]))
        tensor([0.6667], dtype=torch.float64)
    """

    known_as = {
        "parse": "F f1_score",
        "trec_eval": "set_F",
        "ir_measures": "SetF",
        "ranx": "f1",
        "pyg": "LinkPredF1",
        "rectools": "F1Beta",
    }
    name = "f1"

    def measure(self, ranking: Ranking) -> Tensor:
        return _f_measure(self, ranking, 1)


def _f_measure(metric: BinaryMetric, ranking: Ranking, square: float) -> Tensor:
    relevant = ranking.num_relevant(metric.relevance_level)
    return ratio((1 + square) * metric.hits(ranking), square * relevant + metric.length(ranking))


class RPrecision(BinaryMetric):
    r"""R-precision: precision at rank R, the number of relevant candidates, :math:`\frac{1}{R} \sum_{i \le R} rel_i`.

    R counts relevant candidates that were not retrieved. With a ``multiple`` m, precision at rank
    :math:`\lfloor m R + 0.9 \rfloor`, 0 where that is no rank. A list that is shorter still divides by it.

    Source:
        trec_eval, ``Rprec``, and with ``multiple`` ``Rprec_mult``; Buckley and Voorhees, Evaluating evaluation measure
        stability, SIGIR 2000.

    Args:
        multiple: at how many times R precision is looked at; > 0.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: ``multiple`` is not a number > 0.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RPrecision().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {
        "parse": {
            "Rprec_mult_{x}": "(multiple={x})",
            "Rprec_mult": [f"(multiple={step / 5:g})" for step in range(1, 11)],
        },
        "trec_eval": {"Rprec": "", "Rprec_mult_0.80": "(multiple=0.8)"},
        "ir_measures": "Rprec",
        "ranx": "r-precision",
        "torchmetrics": {"RetrievalRPrecision": "of the relevant candidates in the list only"},
    }
    name = "rprecision"
    top_k: None = None

    multiple: float = number(default=1, above=0)

    def measure(self, ranking: Ranking) -> Tensor:
        cut = (self.multiple * ranking.num_relevant(self.relevance_level) + 0.9).floor()
        share = ratio(ranking.ranks_within(cut.unsqueeze(-1)), ranking.tied)
        return ratio(torch.where(ranking.found(self.relevance_level), share, 0.0).sum(-1), cut)


class FallOut(BinaryMetric):
    r"""Fall-out: the share of the irrelevant candidates that stands in the first k ranks. Lower is better.

    :math:`F@k = \frac{1}{N} \sum_{i \le \min(k, n)} (1 - rel_i)`, N irrelevant candidates in a list of n, retrieved
    ones only. A query without any is empty, and counts as 1 by default.

    Source:
        van Rijsbergen, Information Retrieval, 1979; at k torchmetrics.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.FallOut(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {"torchmetrics": "RetrievalFallOut"}
    name = "fallout"
    higher_is_better = False

    empty_target_action: EmptyAction = "pos"

    def need(self) -> Need:
        return Need(relevant=True)  # it counts the relevant candidates that were retrieved at all

    def empty(self, ranking: Ranking) -> Tensor:
        return nothing_irrelevant(ranking, self.relevance_level)

    def measure(self, ranking: Ranking) -> Tensor:
        inside = torch.minimum(self.length(ranking), ranking.num_candidates) - self.hits(ranking)
        return ratio(inside, ranking.num_candidates - ranking.hits(self.relevance_level, None))


def uncounted(room: Tensor, among: Tensor) -> Tensor:
    """Mean of max(0, room - t) over t = 0, 1, ..., ``among``: what t tied candidates that are ahead leave of it."""
    terms = torch.minimum(room.ceil().clamp_min(0), among + 1)
    return terms * (room - (terms - 1) / 2) / (among + 1)


def nothing_irrelevant(ranking: Ranking, level: float) -> Tensor:
    """No irrelevant candidate was retrieved, though something was or nothing is relevant."""
    only_relevant = ranking.num_candidates == ranking.hits(level, None)
    return only_relevant & ~((ranking.num_candidates == 0) & (ranking.num_relevant(level) > 0))


class RelativePrecision(BinaryMetric):
    r"""Relative precision: precision at k divided by the largest possible, :math:`\frac{h@k}{\min(k, R)}`.

    With h hits it is precision up to rank R and recall beyond. R counts relevant candidates that were not retrieved.
    Without ``top_k``, k is the length of the list. A query of which nothing was retrieved scores 0. Under
    ``ties="expected"`` the exact expectation.

    Source:
        trec_eval, ``relative_P``; without ``top_k`` ``set_relative_P``.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RelativePrecision(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 1, 0]]))
        tensor([1.], dtype=torch.float64)
    """

    known_as = {
        "parse": {"relative_P": "@5,10,15,20,30,100,200,500,1000"},
        "trec_eval": {"relative_P_{k}": "@{k}", "set_relative_P": ""},
        "ir_measures": "SetP(relative=True) SetRelP",
        "rectools": "Precision(r_precision=True)",
    }
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

    Args:
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.SetAP().score(torch.tensor([[0.9, 0.8, -torch.inf]]), torch.tensor([[1, 0, 1]]))
        tensor([0.2500], dtype=torch.float64)
    """

    known_as = {"trec_eval": "set_map", "ir_measures": "SetAP"}
    name = "setap"
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        hits = self.hits(ranking)
        return ratio(hits * hits, ranking.num_candidates * ranking.num_relevant(self.relevance_level))


class BinG(BinaryMetric):
    r"""Binary G: the mean over relevant candidates of a logarithmic discount for what is irrelevant above each.

    :math:`\frac{1}{R} \sum_{i \in rel} \frac{1}{\log_2 (2 + N_i)}`, with :math:`N_i` irrelevant candidates before
    relevant candidate i: a discount by its filtered rank. One that was not retrieved adds nothing. Under
    ``ties="expected"`` the mean over the numbers of irrelevant tied candidates that can come before it.

    Source:
        trec_eval, ``binG``.

    Args:
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.BinG().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # (1 + 1 / log2(3)) / 2
        tensor([0.8155], dtype=torch.float64)
    """

    known_as = {"trec_eval": "binG"}
    name = "bing"
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        single = ranking.each_positive(self.relevance_level)
        values = single.mean_discount(Logarithmic(2), None).reshape(ranking.first.shape)
        return self.per_relevant(ranking, values)
