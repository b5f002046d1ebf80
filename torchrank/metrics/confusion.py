"""Measures of the contingency table: relevant or not, in the first k ranks or not."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torchrank.layouts.canonical import Need
from torchrank.metrics.binary import BinaryMetric
from torchrank.names.parameters import integer, number
from torchrank.ranking.intervals import ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["MCC", "Accuracy", "Utility"]


class Table(NamedTuple):
    """The margins of a query's contingency table and its hits, which determine all cells: float64 [query] each."""

    #: (expected) relevant candidates in the first k ranks
    hits: Tensor
    #: candidates in the first k ranks of the list
    chosen: Tensor
    #: relevant candidates, retrieved or not
    relevant: Tensor
    #: the list and the relevant candidates not retrieved; or the size of the collection, if it is larger
    all: Tensor


class ConfusionMetric(BinaryMetric):
    """Base of the measures of the contingency table at rank k.

    The candidates in the first k ranks are chosen, or the whole list if it is shorter. The rest of the list is not
    chosen, nor is any relevant candidate that was not retrieved. Given these numbers, the hits determine the table. The
    measures are linear in the hits, so their expectation under ties is exact.

    Args:
        top_k: the first ``top_k`` ranks are chosen; None = all of the list.
        collection_size: number of all candidates; None = the list and the relevant candidates that were not retrieved.

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
    r"""Accuracy at k, :math:`\frac{TP + TN}{N}`: the share of all N candidates on the right side of the cutoff.

    Relevant candidates in the first k ranks and irrelevant ones behind them are on the right side. N counts the list
    and the relevant candidates that were not retrieved; these are on the wrong side. Lists of ids contain no other
    candidates, so pass ``collection_size`` with them. Without ``top_k`` the whole list is chosen, so only its relevant
    candidates are on the right side. Under ``ties="expected"`` it is the exact expectation.

    Two other measures have this name: the ``accuracy@k`` of sentence-transformers and BEIR is :class:`HitRate`, and
    ir_measures' ``Accuracy`` is :class:`AUROC`.

    Source:
        RecTools, ``Accuracy``, in which a list shorter than k counts as k candidates.

    Args:
        collection_size: number of all candidates, listed or not; None, or a number below N, = N.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Accuracy(top_k=1).score(torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 0, 1, 0]]))
        tensor([0.7500], dtype=torch.float64)
    """

    name = "accuracy"

    def measure(self, ranking: Ranking) -> Tensor:
        hits, chosen, relevant, all_candidates = self.table(ranking)
        return ratio(all_candidates - chosen - relevant + 2 * hits, all_candidates)


class MCC(ConfusionMetric):
    r"""Matthews correlation at k, :math:`\frac{TP \cdot TN - FP \cdot FN}{\sqrt{(TP+FP)(TP+FN)(TN+FP)(TN+FN)}}`.

    The correlation between two properties of a candidate, relevant and in the first k ranks, from -1 to 1. It is taken
    over the list and the relevant candidates that were not retrieved. It is 0 if one of the four sums is 0: without
    ``top_k`` or ``collection_size``, this is so if all relevant candidates were retrieved. Lists of ids contain no
    other candidates, so pass ``collection_size`` with them. Under ``ties="expected"`` it is the exact expectation.

    Source:
        Matthews, Comparison of the predicted and observed secondary structure of T4 phage lysozyme, Biochimica et
        Biophysica Acta 405, 1975.

    Args:
        collection_size: number of all candidates, listed or not; None = the list and the relevant candidates that were
            not retrieved, which is also the minimum.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.MCC(top_k=2).score(torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 1, 0, 0]]))
        tensor([1.], dtype=torch.float64)
    """

    name = "mcc"
    value_range = (-1.0, 1.0)

    def measure(self, ranking: Ranking) -> Tensor:
        hits, chosen, relevant, all_candidates = self.table(ranking)
        # TP N - (TP + FP) (TP + FN) = TP TN - FP FN, so the margins and the hits are enough.
        spread = ((chosen * (all_candidates - chosen)) * (relevant * (all_candidates - relevant))).sqrt()
        return ratio(hits * all_candidates - chosen * relevant, spread)


class Utility(ConfusionMetric):
    r"""Linear utility of the first k ranks, :math:`a \, TP + b \, FP + c \, FN + d \, TN`.

    a = ``hit``, b = ``false_alarm``, c = ``miss``, d = ``rejection``. The candidates in the first k ranks, or in the
    whole list without ``top_k``, are shown to a user. By default, the user gains by each relevant candidate and loses
    by each irrelevant one. A list shorter than k is shown as it is. FN and TN count the rest of the list and the
    relevant candidates that were not retrieved or, with ``collection_size``, the rest of the collection. A query is
    empty only if it has neither relevant candidates nor a list. Under ``ties="expected"`` it is the exact expectation.

    Source:
        trec_eval, ``utility`` with its coefficients in this order and ``-N collection_size``, by default 0.

    Args:
        top_k: the first ``top_k`` ranks are shown; None = all of the list.
        hit: worth of a relevant candidate that is shown.
        false_alarm: worth of an irrelevant candidate that is shown.
        miss: worth of a relevant candidate that is not shown.
        rejection: worth of an irrelevant candidate that is not shown.

    Raises:
        ValueError: a worth is not a finite number, or ``collection_size`` is neither None nor an integer >= 0.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Utility(miss=-0.5).score(torch.tensor([[0.9, 0.8, 0.7, -torch.inf]]), torch.tensor([[1, 1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "utility"
    value_range = (-math.inf, math.inf)

    hit: float = number(default=1)
    false_alarm: float = number(default=-1)
    miss: float = number(default=0)
    rejection: float = number(default=0)

    @property
    def no_bounds_reason(self) -> str:
        # Without a collection size, each unjudged candidate that was not retrieved adds a candidate if it is relevant.
        known = self.collection_size is not None or not self.rejection
        return "" if known else "whose number of candidates depends on the judgments unless collection_size is passed"

    @property
    def nonlinear_reason(self) -> str:
        linear = not self.rejection and self.empty_target_action == "neg"
        return (
            ""
            if linear
            else ("whose lists matter beyond their sums unless rejection is 0 and empty_target_action is 'neg'")
        )

    def empty(self, ranking: Ranking) -> Tensor:
        return super().empty(ranking) & (ranking.num_candidates == 0)

    def numerator(self, ranking: Ranking) -> Tensor:
        hits, chosen, relevant, all_candidates = self.table(ranking)
        if self.collection_size is not None:
            # As in trec_eval the size is used as it is, even if the list is longer.
            all_candidates = torch.full_like(all_candidates, self.collection_size)
        shown = self.hit * hits + self.false_alarm * (chosen - hits)
        return shown + self.miss * (relevant - hits) + self.rejection * (all_candidates - chosen - relevant + hits)
