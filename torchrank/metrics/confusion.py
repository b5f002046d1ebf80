"""Measures of the contingency table: relevant or not, in the first ranks or not."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torchrank.layouts.canonical import Need
from torchrank.metrics.binary import BinaryMetric
from torchrank.names.parameters import integer, number
from torchrank.ranking.arithmetic import ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["MCC", "Accuracy", "Utility"]


class Table(NamedTuple):
    """The margins of a query's contingency table, and the hits, which are all that is left to say. float64 [query]."""

    #: (expected) relevant candidates in the first k ranks
    hits: Tensor
    #: candidates in the first k ranks of the list
    chosen: Tensor
    #: relevant candidates, retrieved or not
    relevant: Tensor
    #: candidates of the list, and relevant ones that it lacks; or of the collection, if these are more
    all: Tensor


class ConfusionMetric(BinaryMetric):
    """A measure of the contingency table at rank k.

    The first k ranks of a list, or all of a shorter one, are what was chosen. Not chosen is the rest of the list, and
    every relevant candidate that was not retrieved. Given these numbers the table follows from the hits, and such
    measures are linear in them, so their expectation under ties is exact.

    Args:
        top_k: the first ``top_k`` ranks are chosen; None = all of the list.
        collection_size: candidates that there are in all; None = those of the list, and relevant ones that it lacks.
        kwargs: as :class:`BinaryMetric`.

    Raises:
        ValueError: ``collection_size`` is neither None nor an integer >= 0.
    """

    collection_size: int | None = integer(default=None, least=0)

    def need(self) -> Need:
        return Need(relevant=True)  # relevant candidates of the whole list are counted

    def table(self, ranking: Ranking) -> Table:
        """The contingency table."""
        relevant, listed = ranking.num_relevant(self.relevance_level), ranking.num_candidates
        missing = relevant - ranking.hits(self.relevance_level, None)
        all_candidates = listed + missing
        if self.collection_size is not None:
            all_candidates = all_candidates.clamp_min(self.collection_size)
        return Table(self.hits(ranking), torch.minimum(self.length(ranking), listed), relevant, all_candidates)


class Accuracy(ConfusionMetric):
    r"""Accuracy at k, :math:`\frac{TP + TN}{N}`: the share of all N candidates on the right side of the cut.

    Right are relevant candidates in the first k ranks and irrelevant ones behind them. N counts the list and the
    relevant candidates that it lacks, which are on the wrong side. Lists of ids name no other candidates: give
    ``collection_size`` with them. Without ``top_k`` all of the list is chosen, so that only relevant candidates of it
    are right. Under ``ties="expected"`` the exact expectation.

    Two other measures bear this name: the ``accuracy@k`` of sentence-transformers and BEIR is :class:`HitRate`, and
    ir_measures' ``Accuracy`` is :class:`AUROC`.

    Source:
        RecTools, ``Accuracy``, where a list shorter than k counts as k candidates.

    Args:
        top_k: the first ``top_k`` ranks are chosen; None = all of the list.
        collection_size: candidates that there are in all, listed or not; None, or fewer than N, = N.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Accuracy(top_k=1).score(torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 0, 1, 0]]))
        tensor([0.7500], dtype=torch.float64)
    """

    known_as = {"rectools": {"Accuracy": "where a list shorter than k counts as k candidates"}}
    name = "accuracy"

    def measure(self, ranking: Ranking) -> Tensor:
        hits, chosen, relevant, all_candidates = self.table(ranking)
        return ratio(all_candidates - chosen - relevant + 2 * hits, all_candidates)


class MCC(ConfusionMetric):
    r"""Matthews correlation at k, :math:`\frac{TP \cdot TN - FP \cdot FN}{\sqrt{(TP+FP)(TP+FN)(TN+FP)(TN+FN)}}`.

    The correlation of being relevant with standing in the first k ranks, from -1 to 1, over the list and the relevant
    candidates that it lacks; 0 where one of the sums is 0, as without ``top_k`` unless the list lacks relevant
    candidates. Lists of ids name no other candidates: give ``collection_size`` with them. Under ``ties="expected"`` the
    exact expectation.

    Source:
        Matthews, Comparison of the predicted and observed secondary structure of T4 phage lysozyme, Biochimica et
        Biophysica Acta 405, 1975.

    Args:
        top_k: the first ``top_k`` ranks are chosen; None = all of the list.
        collection_size: candidates that there are in all, listed or not; None = those of the list, and relevant ones
            that it lacks, which is also the least.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.MCC(top_k=2).score(torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 1, 0, 0]]))
        tensor([1.], dtype=torch.float64)
    """

    known_as = {
        "parse": "matthews matthews_correlation matthews_corrcoef",
        "rectools": {"MCC": "where a list shorter than k counts as k candidates"},
    }
    name = "mcc"
    value_range = (-1.0, 1.0)

    def measure(self, ranking: Ranking) -> Tensor:
        hits, chosen, relevant, all_candidates = self.table(ranking)
        spread = ((chosen * (all_candidates - chosen)) * (relevant * (all_candidates - relevant))).sqrt()
        return ratio(hits * all_candidates - chosen * relevant, spread)


class Utility(ConfusionMetric):
    r"""Linear utility of the first k ranks, :math:`a \, TP + b \, FP + c \, FN + d \, TN`.

    What is in the first k ranks, or in the whole list without ``top_k``, is shown to a user, who gains by each relevant
    candidate and loses by each other. A list shorter than k shows no more than it has. The rest is the rest of the
    list and the relevant candidates that were not retrieved or, with ``collection_size``, of the whole collection. Only
    a query without relevant candidates and without a list is empty. Under ``ties="expected"`` the exact expectation.

    Source:
        trec_eval, ``utility`` with its coefficients in this order and ``-N collection_size``, where nothing given is 0.

    Args:
        top_k: the first ``top_k`` ranks are shown; None = all of the list.
        hit: what a relevant candidate that is shown is worth.
        false_alarm: what an irrelevant one that is shown is worth.
        miss: what a relevant one that is not shown is worth.
        rejection: what an irrelevant one that is not shown is worth.
        collection_size: candidates that there are in all; None = those of the list, and relevant ones that it lacks.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: a worth is no finite number, or ``collection_size`` neither None nor an integer >= 0.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Utility(miss=-0.5).score(torch.tensor([[0.9, 0.8, 0.7, -torch.inf]]), torch.tensor([[1, 1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {
        "parse": {
            "utility_{hit},{false_alarm},{miss},{rejection}": (
                "(hit={hit},false_alarm={false_alarm},miss={miss},rejection={rejection})"
            )
        },
        "trec_eval": "utility",
    }
    name = "utility"
    value_range = (-math.inf, math.inf)

    hit: float = number(default=1)
    false_alarm: float = number(default=-1)
    miss: float = number(default=0)
    rejection: float = number(default=0)

    @property
    def no_bounds_reason(self) -> str:
        known = self.collection_size is not None or not self.rejection
        return "" if known else "which has more candidates the more of those that the list lacks are relevant"

    def empty(self, ranking: Ranking) -> Tensor:
        return super().empty(ranking) & (ranking.num_candidates == 0)

    def measure(self, ranking: Ranking) -> Tensor:
        hits, chosen, relevant, all_candidates = self.table(ranking)
        if self.collection_size is not None:
            all_candidates = torch.full_like(all_candidates, self.collection_size)
        shown = self.hit * hits + self.false_alarm * (chosen - hits)
        return shown + self.miss * (relevant - hits) + self.rejection * (all_candidates - chosen - relevant + hits)
