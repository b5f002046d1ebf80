"""Measures of binary relevance: candidates graded at or above ``relevance_level`` are relevant, others are not."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from torchrank.formulas import random_ranking
from torchrank.formulas.gains import (
    RECIPROCAL,
    UNDISCOUNTED,
    AtLeast,
    Logarithmic,
    OfRelevant,
    checked_weighing,
    gain_of,
)
from torchrank.formulas.judgment_bounds import UNEQUAL
from torchrank.hardware.devices import scalar
from torchrank.layouts.canonical import Need
from torchrank.layouts.checks import Problem, count
from torchrank.metrics.base import RankingMetric
from torchrank.names.parameters import flag, integer, number, one_of, parameter
from torchrank.names.types import Described, EmptyAction, GainOption
from torchrank.ranking.ranking import Gain, Ranking, cached, only, per, ratio, row_sum
from torchrank.state.sums import MEANS, Mean, Sum, effective_size

__all__ = [
    "F1",
    "INP",
    "MAP",
    "MCC",
    "MR",
    "MRR",
    "YAAP",
    "Accuracy",
    "AllHit",
    "BinG",
    "EachRR",
    "FBeta",
    "FallOut",
    "FirstRank",
    "HitRate",
    "MAPAtR",
    "Precision",
    "RPrecision",
    "Recall",
    "RelativePrecision",
    "SetAP",
    "TrapezoidalAP",
    "Utility",
]


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

    def numerator(self, ranking: Ranking) -> Tensor:
        length = self.length(ranking)
        return per(self.hits(ranking), torch.minimum(length, ranking.num_candidates) if self.adaptive_k else length)


class WeighingMetric(BinaryMetric):
    """Base of the measures in which relevant candidates can have weights.

    Args:
        gain: the weight of a relevant candidate by its grade: "linear", "exponential", a callable or a table, as the
            gain of :class:`DCG`; None = all have the same weight.

    Raises:
        ValueError: ``gain`` is unknown, or given together with another ``normalize`` than "relevant"; or ``unjudged``
            asks for bounds with a table or callable as gain, or with a gain and a ``relevance_level`` below 1.
    """

    normalize: str = one_of("relevant", default="relevant")
    gain: Described[GainOption | None] = parameter(default=None, check=checked_weighing)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gain is not None and self.normalize != "relevant":
            raise ValueError(f"Expected normalize='relevant' together with gain={self.gain!r}, got {self.normalize!r}")

    @property
    def weighing(self) -> Gain:
        """The function from grades to the weights of relevant candidates."""
        return OfRelevant(gain_of(self.gain or "linear"), self.relevance_level)

    @property
    def no_bounds_reason(self) -> str:
        # Of MAP: a candidate that gains most may lose more precision on its way up than the others win.
        if self.gain is not None and not (self.weighing.monotone and self.relevance_level >= 1):
            return "whose unjudged candidates may gain more than others that are relevant"
        return ""

    def errors(self, ranking: Ranking) -> Tensor:
        if self.gain is None:
            return ranking.errors
        # The gain of a huge grade can overflow, and the value would be NaN without an error.
        finite = ranking.total_gain(self.weighing).isfinite()
        return ranking.errors + count(Problem.BAD_GRADES, ~finite & ranking.finite())


class Recall(WeighingMetric):
    r"""Recall: the share of the R relevant candidates in the first k ranks, :math:`\frac{1}{R} \sum_{i \le k} rel_i`.

    R also counts relevant candidates that were not retrieved, as in trec_eval's ``recall_k``.

    Source:
        Kent, Berry, Luehrs and Perry, Machine literature searching VIII, American Documentation 6(2), 1955.

    Args:
        normalize: the denominator: "relevant", all R relevant candidates; "min", min(R, k), the largest possible number
            of hits, as in LensKit.
        gain: None, every relevant candidate has the same weight; or the weight of a relevant candidate by its grade:
            "linear", "exponential", a callable or a table, as the gain of :class:`DCG`. Then it is the share of the
            total weight. It requires ``normalize="relevant"``. Weights of single candidates are grades with
            ``gain="linear"`` and a small ``relevance_level``.

    Raises:
        ValueError: ``gain`` is unknown, or given together with ``normalize="min"``; or ``unjudged`` asks for bounds
            with a table or callable as gain, or with a gain and a ``relevance_level`` below 1.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Recall(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
        >>> tr.Recall(top_k=2, gain="linear").score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 0, 1]]))
        tensor([0.7500], dtype=torch.float64)
    """

    name = "recall"

    normalize: Literal["relevant", "min"] = one_of(default="relevant")
    empty_without_denominator = True

    def numerator(self, ranking: Ranking) -> Tensor:
        if self.gain is not None:
            return ranking.discounted_gain(self.weighing, UNDISCOUNTED, self.top_k)
        return self.hits(ranking)

    def denominator(self, ranking: Ranking) -> Tensor:
        if self.gain is not None:
            return ranking.total_gain(self.weighing)
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

    Relevant candidates in the first k ranks and irrelevant ones after them are on the right side. N counts the list
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
        if not self.rejection and self.empty_target_action == "neg":
            return ""
        return "whose lists matter beyond their sums unless rejection is 0 and empty_target_action is 'neg'"

    def empty(self, ranking: Ranking) -> Tensor:
        return super().empty(ranking) & (ranking.num_candidates == 0)

    def numerator(self, ranking: Ranking) -> Tensor:
        hits, chosen, relevant, all_candidates = self.table(ranking)
        if self.collection_size is not None:
            # As in trec_eval the size is used as it is, even if the list is longer.
            all_candidates = torch.full_like(all_candidates, self.collection_size)
        shown = self.hit * hits + self.false_alarm * (chosen - hits)
        return shown + self.miss * (relevant - hits) + self.rejection * (all_candidates - chosen - relevant + hits)


# Up to this rank, the expected precision of tied candidates is computed from differences, which lose a digit each time
# that the rank grows by a factor of ten. The sums that are used after it lose none, and take longer.
FAR = 2**15


class MAP(WeighingMetric):
    r"""Average precision, whose mean over queries is MAP: :math:`AP@k = \frac{1}{N} \sum_{i \le k} rel_i \, P@i`.

    ``normalize`` sets N. Ties follow McSherry and Najork, Computing information retrieval performance measures
    efficiently in the presence of tied scores, ECIR 2008. With ``normalize="retrieved"``, a tie group at the cutoff
    makes N random; AP is then averaged over the number of hits.

    Source:
        trec_eval; Buckley and Voorhees, Evaluating evaluation measure stability, SIGIR 2000.

    Args:
        normalize: the denominator N: "relevant", all R relevant candidates (trec_eval's ``map`` and ``map_cut``);
            "min", min(R, k); "length", min(R, k, length of the list), as in LensKit; "k", k itself (without ``top_k``
            the length of the list), an option of RecTools; "retrieved", the relevant candidates among the first k. With
            ``top_k`` and expected ties, "retrieved" has no bounds over unjudged candidates.
        gain: None, every relevant candidate has the same weight; or the weight of a relevant candidate by its grade:
            "linear", "exponential", a callable or a table, as the gain of :class:`DCG`. Then :math:`AP@k =
            \frac{\sum_{i \le k} gain_i \, rel_i \, P@i}{\sum_i gain_i \, rel_i}`. It requires ``normalize="relevant"``.
            Weights of single candidates are grades with ``gain="linear"`` and a small ``relevance_level``. With a gain
            ``ties="optimistic"`` is the order by descending grade, which need not be the best one: the candidate behind
            has the higher precision.

    Raises:
        ValueError: ``gain`` is unknown, or given together with another ``normalize`` than "relevant"; or ``unjudged``
            asks for bounds with a table or callable as gain, or with a gain and a ``relevance_level`` below 1.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.7, 0.6, 0.5]]), torch.tensor([[1, 0, 1, 1, 0]])
        >>> tr.MAP().score(scores, target)  # (1 + 2/3 + 3/4) / 3
        tensor([0.8056], dtype=torch.float64)
        >>> tr.MAP(gain="linear").score(scores, torch.tensor([[1, 0, 3, 1, 0]]))  # (1 * 1 + 3 * 2/3 + 1 * 3/4) / 5
        tensor([0.7500], dtype=torch.float64)
    """

    name = "map"
    monotone_behind = True

    normalize: Literal["relevant", "min", "length", "k", "retrieved"] = one_of(default="relevant")

    def empty(self, ranking: Ranking) -> Tensor:
        return super().empty(ranking) if self.gain is None else ranking.total_gain(self.weighing) == 0

    @property
    def no_bounds_reason(self) -> str:
        random = self.normalize == "retrieved" and self.top_k is not None and self.ties == "expected"
        return super().no_bounds_reason or (
            "whose denominator is random if a tie group crosses the cutoff" if random else ""
        )

    def measure(self, ranking: Ranking) -> Tensor:
        # The expectation of a ratio is not the ratio of expectations, so a random N needs a formula of its own.
        if self.normalize == "retrieved" and self.top_k is not None and not ranking.untied:
            return _precision_by_hits(ranking, self.relevance_level, self.top_k)
        if self.gain is None:
            return per(_sum_of_precisions(ranking, self.relevance_level, self.top_k), self.denominator(ranking))
        values = precisions(ranking, self.relevance_level, self.top_k)
        # All orders of a tie group are equally likely, so its relevant entries have the same expected precision.
        return ratio((ranking.gains(self.weighing) * values).sum(-1), ranking.total_gain(self.weighing))

    def denominator(self, ranking: Ranking) -> Tensor:
        """The denominator N, if it is not random: float64 [query]."""
        if self.normalize in ("retrieved", "k"):
            return self.length(ranking) if self.normalize == "k" else self.hits(ranking)
        relevant = ranking.num_relevant(self.relevance_level)
        if self.normalize == "length":
            relevant = torch.minimum(relevant, ranking.num_candidates)
        return relevant if self.normalize == "relevant" or self.top_k is None else relevant.clamp_max(self.top_k)


@cached
def _sum_of_precisions(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Expected sum of :func:`precisions`: float64 [query]."""
    if ranking.untied:
        return ranking.sum_up_to(top_k, precisions, level, None)
    if (expected := random_ranking.relevant_ranks(ranking, level)) is not None:
        return expected.precisions(top_k)
    return row_sum(precisions(ranking, level, top_k), top_k)


@cached
def precisions(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Expected precision at the rank of each relevant entry, 0 beyond ``top_k``: float64 [query, entry].

    An entry is tied in a group of n candidates, r of them relevant. a candidates precede the group, ``before`` of them
    relevant. If the entry has rank j, j - a - 1 candidates of the group are before it. Each of these is relevant with
    probability c = (r - 1) / (n - 1). So the expected precision at j is (before + 1 + c (j - a - 1)) / j.
    """
    if ranking.first.shape[1] == 1:  # a single relevant entry has precision 1 / rank
        return only(ranking.hit(level), ranking.mean_discount(RECIPROCAL, top_k))
    before, beside = ranking.relevant_before_and_in_tie(level)
    if ranking.untied:
        return (before + beside).mul_(ranking.discount_sum(RECIPROCAL, top_k)).mul_(beside)
    sums = _sums_over_ties(ranking, top_k)  # a rank after the cutoff contributes 0
    return ranking.hit_numbers(level) * _mean_precision(ranking, level, *sums, itself=1)


def _sums_over_ties(ranking: Ranking, top_k: int | None) -> tuple[Tensor, Tensor]:
    """Sums of 1 / j and of (j - first) / j over an entry's ranks j up to ``top_k``: float64 [query, entry] each."""
    inside = ranking.ranks_in_top_k(top_k)
    if ranking.depth <= FAR:
        harmonic = ranking.discount_sum(RECIPROCAL, top_k)
        return harmonic, inside - ranking.first * harmonic
    harmonic, rising = random_ranking.reciprocal_sums(ranking.first, inside)
    return torch.where(ranking.tied > 1, harmonic, inside / ranking.first), rising


def _precision_by_hits(ranking: Ranking, level: float, top_k: int) -> Tensor:
    """Expected AP divided by the number of hits in the first k: float64 [query].

    A tie group at the cutoff makes the number of hits random, so this is a mean over that number.
    """
    # Entries before this tie group are in the first k for certain, with the same precision for every number of hits.
    surely = ranking.hit(level) & (ranking.prob_in_top_k(top_k) == 1)
    full = only(surely, precisions(ranking, level, top_k)).sum(-1)
    # s places of the tie group are before the cutoff. Given h hits, they are a tie group of s candidates, h of them
    # relevant, and the formula of `precisions` holds for it.
    cut = random_ranking.CutoffTie.of(ranking, level, top_k)
    h, s = cut.hits, cut.places
    harmonic, rising = (cut.of_group(x) for x in _sums_over_ties(ranking, top_k))
    c = ratio(h - 1, s - 1)
    partial = ratio(h, s) * ((cut.before + 1) * harmonic + c * rising)
    return (cut.chance * ratio(full.unsqueeze(-1) + partial, cut.before + h)).sum(-1)


class MAPAtR(BinaryMetric):
    r"""Average precision at R, whose mean over queries is MAP@R: :math:`\frac{1}{R} \sum_{i \le R} rel_i \, P@i`.

    R is the number of relevant candidates, retrieved or not. So the value is 1 only if the first R candidates are all
    relevant, and, unlike :class:`RPrecision`, it depends on their order.

    Source:
        Musgrave, Belongie and Lim, A metric learning reality check, ECCV 2020.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.MAPAtR().score(torch.tensor([[0.9, 0.8, 0.7, 0.6]]), torch.tensor([[0, 1, 1, 1]]))  # (1/2 + 2/3) / 3
        tensor([0.3889], dtype=torch.float64)
    """

    name = "mapatr"
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        level = self.relevance_level
        within = ranking.ranks_within(ranking.num_relevant(level).unsqueeze(-1))
        if ranking.untied:
            return self.per_relevant(ranking, only(within > 0, precisions(ranking, level, None)))
        sums = random_ranking.reciprocal_sums(ranking.first, within)
        return self.per_relevant(ranking, _mean_precision(ranking, level, *sums, itself=1))


class TrapezoidalAP(BinaryMetric):
    r"""Average precision by trapezia: :math:`\frac{1}{R} \sum_{i} rel_i \, \frac{P@i + P@(i-1)}{2}`.

    P@0 is 1. This is the area under the curve of precision and recall whose points are joined by lines. :class:`MAP`
    is the area under its steps, and is never smaller. R counts all relevant candidates, retrieved or not. Leave the
    candidates that a benchmark ignores, such as junk images, out of the list, for example by ``mask``.

    Source:
        Philbin, Chum, Isard, Sivic and Zisserman, Object retrieval with large vocabularies and fast spatial matching,
        CVPR 2007, ``compute_ap``.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[1, 0, 1]])
        >>> tr.TrapezoidalAP().score(scores, target)  # ((1 + 1) / 2 + (2/3 + 1/2) / 2) / 2
        tensor([0.7917], dtype=torch.float64)
    """

    name = "trapezoidalap"
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        level = self.relevance_level
        at_rank, above = precisions(ranking, level, None), (ranking.first - 1).clamp_min(1)
        alone = above.reciprocal(), torch.zeros_like(above)
        sums = alone if ranking.untied else random_ranking.reciprocal_sums(above, ranking.tied)
        # Before the ranks 1, 2, ..., n of the first tie group the expected precisions are 1, c, ..., c.
        in_first = ranking.relevant_before_and_in_tie(level)[1] / ranking.tied.clamp_min(1)
        one_before = torch.where(ranking.first == 1, in_first, _mean_precision(ranking, level, *sums, itself=0))
        return self.per_relevant(ranking, (at_rank + one_before) / 2)


def _mean_precision(ranking: Ranking, level: float, harmonic: Tensor, rising: Tensor, itself: int) -> Tensor:
    """Mean of (before + ``itself`` + c i) / rank over an entry's ranks, with the sums of 1 / rank and of i / rank.

    The entry is relevant, and i = 0, 1, ... candidates of its tie group are before it. Each of them is relevant with
    probability c = (r - 1) / (n - 1), if r of the n candidates of the group are. float64 [query, entry].
    """
    before, beside = ranking.relevant_before_and_in_tie(level)
    # Other entries than relevant ones get any numbers, and are left out in the end.
    c = (beside - 1) / (ranking.tied - 1).clamp_min(1)
    # Each of the n ranks is equally likely, also one that the sums leave out.
    return ((before + itself) * harmonic + c * rising) / ranking.tied.clamp_min(1)


class YAAP(BinaryMetric):
    r"""Yet another average precision, the log odds of AP: :math:`\ln \frac{1 + R \, AP}{1 + R - R \, AP}`.

    With log odds, the mean over queries depends less on queries of middling precision. Under ``ties="expected"`` it is
    the log odds of the expected average precision, not the expectation of the log odds.

    Source:
        Robertson, On smoothing average precision, ECIR 2012; trec_eval, ``yaap``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.YAAP().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # ln((1 + 5/3) / (3 - 5/3))
        tensor([0.6931], dtype=torch.float64)
    """

    name = "yaap"
    value_range = (-math.inf, math.inf)
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        total = precisions(ranking, self.relevance_level, None).sum(-1)
        return torch.log((1 + total) / (1 + ranking.num_relevant(self.relevance_level) - total))


class PositionMetric(BinaryMetric):
    """Base of the measures of single positions of relevant candidates.

    Such a measure can be adjusted for chance: the ranks are compared with a random order of each query's candidates
    (Berrendorf et al., 2020; Hoyt et al., 2022). Let m be the mean over queries, e its expectation and v its variance
    in random order. "index" is (m - e) / (1 - e): 1 at best, 0 by chance. "z" is (m - e) / sqrt(v), negated if lower is
    better. "ratio", for :class:`MR` only, is m / e.

    ``compute`` adjusts the mean m, and ``score`` adjusts each query. So in ``compute``, the adjusted queries have
    weights that depend on their expectation or variance. A query that leaves nothing to chance, as one with a single
    candidate, scores 0 and has weight 0. If all queries are like this, the result is 0. Weights passed to ``update``
    count in m, e and v alike. An ``aggregation`` other than "mean" reduces the adjusted queries without the weights by
    chance.

    Lists must contain all candidates; a relevant one that was not retrieved is counted as one more. With ``filtered``,
    the candidates of a positive are itself and the irrelevant ones, and v treats the positives of a query as
    independent. Otherwise all orders of a query's candidates are equally likely, however many are relevant.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        filtered: rank every positive against the irrelevant candidates only, as link prediction does (Bordes et al.,
            NIPS 2013), and average over positives.
        average: with ``filtered``: "query", the mean over queries of the mean over their positives; "positive", the
            mean over all positives, to which a query without positives contributes nothing.
        adjusted: the adjustment for chance: None, "index" or "z", for :class:`MR` also "ratio".
        kwargs: as :class:`BinaryMetric`; ``ties`` may be "realistic".

    Raises:
        ValueError: ``average="positive"`` for a measure with one value per query; ``adjusted`` together with a
            geometric or harmonic mean, or with bounds over unjudged candidates.
    """

    policies = ("expected", "optimistic", "pessimistic", "realistic")
    #: whether every positive has a value of its own even without ``filtered``
    of_every_positive = False
    #: the adjustments for chance that the measure supports, and the range of the adjusted values
    adjustments: ClassVar[dict[str, tuple[float, float]]] = {"index": (-math.inf, 1.0), "z": (-math.inf, math.inf)}

    filtered: bool = flag(default=False)
    average: Literal["query", "positive"] = one_of(default="query")
    adjusted: Literal["ratio", "index", "z"] | None = one_of(default=None, among=lambda cls: (None, *cls.adjustments))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == "positive" and not (self.filtered or self.of_every_positive):
            raise ValueError(
                f"Expected filtered=True together with average='positive' for {self.name}, got filtered=False"
            )
        if self.adjusted is None:
            return
        if self.aggregation in ("geometric", "harmonic"):
            raise ValueError(
                f"Expected adjusted=None together with aggregation={self.aggregation!r}, got {self.adjusted!r}"
            )
        self.reports(self.adjustments[self.adjusted], self.higher_is_better or self.adjusted != "ratio")

    def need(self) -> Need:
        # A candidate after the cutoff can be within it once the list is filtered. The values by chance depend on the
        # number of relevant candidates in the whole list.
        return Need(relevant=True) if self.filtered or self.adjusted else super().need()

    def resolve_ties(self, ranking: Ranking) -> Ranking:
        # Filtering ranks each positive separately, so a tie between two positives has no effect. The policy is applied
        # to the filtered lists, in `plain`.
        return ranking if self.filtered else ranking.under(self.ties)

    def measure(self, ranking: Ranking) -> Tensor:
        value = self.plain(ranking)
        if self.adjusted is None:
            return value
        return self.by_chance(ranking).adjusted(value, self.adjusted, type(self).higher_is_better)

    def plain(self, ranking: Ranking) -> Tensor:
        """The measure without adjustment for chance: float64 [query]."""
        if not self.filtered:
            return self.unfiltered(ranking)
        # Every positive becomes a query of its own, and these are averaged per query.
        single = ranking.each_positive(self.relevance_level).under(self.ties)
        values = self.inner.inside(self.unfiltered(single).reshape(ranking.first.shape))
        relevant = ranking.relevant(self.relevance_level)
        total = only(relevant, values).sum(-1)
        return self.inner.outside(ratio(total, ranking.num_relevant(self.relevance_level)))

    @property
    def inner(self) -> Mean:
        """The kind of mean over the positives of one query."""
        return MEANS["mean"]

    def unfiltered(self, ranking: Ranking) -> Tensor:
        """The formula, without any filtering of the lists: float64 [query]."""
        raise NotImplementedError

    def by_chance(self, ranking: Ranking) -> random_ranking.Moments:
        """Mean and variance of :meth:`plain` over random orders of the candidates of each query."""
        retrieved = ranking.hit(self.relevance_level).sum(-1).to(ranking.first.dtype)
        relevant, length = ranking.num_relevant(self.relevance_level), ranking.num_candidates
        # Relevant candidates that were not retrieved are candidates, too.
        if not self.filtered:
            return self.chance(length + relevant - retrieved, relevant, most=ranking.first.shape[1])
        # The candidates of each positive are itself and the irrelevant ones. Positives of a query are treated as
        # independent, so the variance of their mean is divided by their number.
        each = self.chance(length - retrieved + 1, relevant.clamp_max(1), most=1)
        return random_ranking.Moments(each.mean, ratio(each.variance, relevant))

    def chance(self, n: Tensor, r: Tensor, most: int) -> random_ranking.Moments:
        """Mean and variance of :meth:`unfiltered` by chance, for r <= ``most`` relevant among n candidates: [query]."""
        raise NotImplementedError

    @property
    def no_bounds_reason(self) -> str:
        return UNEQUAL if self.average == "positive" or self.adjusted else ""

    def weight(self, ranking: Ranking) -> Tensor | None:
        weight = ranking.num_relevant(self.relevance_level) if self.average == "positive" else None
        if self.adjusted is None or self.aggregation != "mean":
            return weight
        # With these weights, the mean of the adjusted queries is the adjusted mean (for "z", up to a factor).
        by_chance = self.by_chance(ranking).weight(self.adjusted)
        return by_chance if weight is None else weight * by_chance

    def transform_result(self, average: Tensor, sums: Tensor) -> Tensor:
        if self.adjusted is None or self.aggregation != "mean":
            return average
        # If no query leaves anything to chance, all weights are 0 and the average is 0 / 0.
        certain = (sums[..., Sum.W] == 0) & (sums[..., Sum.QUERIES] > sums[..., Sum.EMPTY])
        return torch.where(certain, 0.0, average * self.slope(sums))

    def slope(self, sums: Tensor) -> Tensor:
        """The size of the derivative of the reported value with respect to the average."""
        if self.adjusted == "z" and self.aggregation == "mean":
            return effective_size(sums).sqrt()
        return torch.ones_like(sums[..., Sum.W])

    def error_of(self, sums: Tensor) -> Tensor:
        return super().error_of(sums) * self.slope(sums)


class MR(PositionMetric):
    r"""Mean rank of the relevant candidates: :math:`\frac{1}{R} \sum_{i \in rel} rank_i`. Lower is better.

    A relevant candidate that was not retrieved has the rank after the list. Queries without relevant candidates are
    skipped by default, and queries for which nothing was retrieved always.

    With ``aggregation="geometric"`` or "harmonic", the mean over the positives of a query is of the same kind. Together
    with ``filtered=True, average="positive"`` it is this mean of the ranks of all positives. Under ``ties="expected"``,
    the expectation is taken of the logarithm, or of the reciprocal, of a rank. So 1 over the harmonic mean is the
    filtered :class:`MRR`. The middle rank is ``aggregation="median"``, the lower of two, or "midpoint", halfway between
    them; each query counts with its mean rank. :func:`torchrank.expected_median_rank` is the middle rank by chance.

    Adjusted for chance, with m, e and v as in :class:`torchrank.extend.PositionMetric`, "ratio" is the adjusted mean
    rank m / e: 1 by chance, lower is better. "index" is 1 - (m - 1) / (e - 1), at worst -1. "z" is (e - m) / sqrt(v).
    With one relevant among n candidates, e = (n + 1) / 2 and v = (n^2 - 1) / 12.

    Source:
        Bordes et al., Translating embeddings for modeling multi-relational data, NIPS 2013. Adjusted: Berrendorf,
        Faerman, Vermue and Tresp, On the ambiguity of rank-based evaluation of entity alignment or link prediction
        methods, arXiv 2002.06914, 2020. z and the other means: Hoyt, Berrendorf, Galkin, Tresp and Gyori, A unified
        framework for rank-based evaluation metrics for link prediction in knowledge graphs, arXiv 2203.07544, 2022.

    Args:
        filtered: rank every positive against the irrelevant candidates only; see
            :class:`torchrank.extend.PositionMetric`.
        average: "query", the mean over queries of their mean rank, or "positive", the mean over all positives.
        adjusted: the adjustment for chance: None, "ratio", "index" or "z".
        inverse: ``compute`` returns 1 / the average, for which higher is better; ``score`` still returns ranks.

    Raises:
        ValueError: ``inverse`` together with ``adjusted``, and as :class:`torchrank.extend.PositionMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]])
        >>> tr.MR().score(scores, target)
        tensor([2.], dtype=torch.float64)
        >>> tr.MR(adjusted="index").score(scores, target)  # as good as chance
        tensor([0.], dtype=torch.float64)
    """

    name = "mr"
    value_range = (1.0, math.inf)
    higher_is_better = False
    of_every_positive = True
    top_k: None = None
    adjustments: ClassVar = {"ratio": (0.0, 2.0), "index": (-1.0, 1.0), "z": (-math.inf, math.inf)}

    inverse: bool = flag(default=False)
    empty_target_action: EmptyAction = "skip"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inverse and self.adjusted is not None:
            raise ValueError(f"Expected adjusted=None together with inverse=True, got {self.adjusted!r}")
        if self.inverse:
            self.reports((0.0, 1.0), higher_is_better=True)

    @property
    def turned(self) -> bool:
        return self.inverse

    @property
    def inner(self) -> Mean:
        return self.mean

    def plain(self, ranking: Ranking) -> Tensor:
        if not self.filtered or self.inner is not MEANS["mean"]:
            return super().plain(ranking)
        # The same without a ranking of each positive: their ranks among the irrelevant candidates, added up. Ranks are
        # multiples of 1/2, so the order of the sum does not matter.
        level = self.relevance_level
        hits, relevant = ranking.hit(level), ranking.num_relevant(level)
        before, in_tie = ranking.relevant_before_and_in_tie(level)
        rank = ranking.first - before
        if not ranking.untied and self.ties != "optimistic":
            rank = rank + (ranking.tied - in_tie) / (1 if self.ties == "pessimistic" else 2)
        retrieved = row_sum(hits).to(rank.dtype)
        missing, behind = relevant - retrieved, ranking.num_candidates - retrieved + 1
        return ratio(row_sum(only(hits, rank)) + only(missing > 0, missing * behind), relevant)

    def unfiltered(self, ranking: Ranking) -> Tensor:
        rank = ranking.mean_rank()
        if self.mean is not MEANS["mean"]:
            # For example the mean of log(rank) over the tied ranks, not the log of their mean.
            expected = ranking.mean_discount(self.mean.inside, None)
            rank = torch.where(ranking.tied > 0, expected, self.mean.inside(rank))
        total = only(ranking.relevant(self.relevance_level), rank)
        return self.mean.outside(per(row_sum(total), ranking.num_relevant(self.relevance_level)))

    def chance(self, n: Tensor, r: Tensor, most: int) -> random_ranking.Moments:
        # Of the mean of r of the ranks 1, ..., n, drawn without replacement.
        return random_ranking.Moments((n + 1) / 2, ratio((n + 1) * (n - r), 12 * r))

    def transform_result(self, average: Tensor, sums: Tensor) -> Tensor:
        return 1 / average if self.inverse else super().transform_result(average, sums)

    def slope(self, sums: Tensor) -> Tensor:
        return 1 / self.result(sums).square() if self.inverse else super().slope(sums)


class MRR(PositionMetric):
    r"""Reciprocal rank of the first relevant candidate, whose mean over queries is MRR: :math:`\frac{1}{rank}`.

    It is 0 if the rank is beyond k. Under ``ties="expected"`` it is the mean of 1 / rank over all ranks that the first
    relevant candidate can have (McSherry and Najork, ECIR 2008); under "realistic", 1 over its middle rank. With
    ``filtered`` it is the mean over positives of 1 / rank. For ``adjusted`` see
    :class:`torchrank.extend.PositionMetric`. With one relevant among n candidates, the expectation is H / n; H is the
    sum of the reciprocal ranks up to n, or up to k.

    Source:
        Voorhees, The TREC-8 question answering track report, TREC 1999. Adjusted: Hoyt et al., arXiv 2203.07544, 2022.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        filtered: rank every positive against the irrelevant candidates only.
        average: over queries, or over positives; see :class:`torchrank.extend.PositionMetric`.
        adjusted: the adjustment for chance: None, "index" or "z".

    Example:
        >>> import torch, torchrank as tr
        >>> tr.MRR().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "mrr"
    monotone_behind = True

    def chance(self, n: Tensor, r: Tensor, most: int) -> random_ranking.Moments:
        return random_ranking.reciprocal_rank_moments(n, r, self.top_k, most)

    def unfiltered(self, ranking: Ranking) -> Tensor:
        return random_ranking.reciprocal_rank(ranking, self.relevance_level, self.top_k)


class HitRate(PositionMetric):
    r"""Hits@k, hit rate, success: 1 if a relevant candidate is among the first k, else 0, :math:`\max_{i \le k} rel_i`.

    Under ``ties="expected"`` it is a probability. For a tie group of n candidates, r of them relevant, with s places
    within the cutoff, this is :math:`1 - \binom{n-s}{r} / \binom{n}{r}`. With ``filtered`` it is the share of the
    positives whose rank is at most k. Without ``top_k`` it is 1 if any relevant candidate was retrieved; this leaves
    nothing to chance, so ``adjusted`` values are 0. For ``adjusted`` see :class:`torchrank.extend.PositionMetric`: with
    one relevant among n candidates, the expectation is min(k, n) / n.

    Source:
        trec_eval, ``success``; Hits@10 of Bordes et al., NIPS 2013. Adjusted: Hoyt et al., arXiv 2203.07544, 2022.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        filtered: rank every positive against the irrelevant candidates only.
        average: over queries, or over positives; see :class:`torchrank.extend.PositionMetric`.
        adjusted: the adjustment for chance: None, "index" or "z".

    Example:
        >>> import torch, torchrank as tr
        >>> tr.HitRate(top_k=1).score(torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[0, 1, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "hitrate"
    monotone_behind = True

    def chance(self, n: Tensor, r: Tensor, most: int) -> random_ranking.Moments:
        return random_ranking.hit_moments(n, r, self.top_k, most)

    def unfiltered(self, ranking: Ranking) -> Tensor:
        return random_ranking.hit(ranking, self.relevance_level, self.top_k)


class AllHit(BinaryMetric):
    r"""Complete recall: 1 if all relevant candidates are in the first k ranks, :math:`\min_{i \in rel} [rank_i \le k]`.

    Where an answer needs all of its evidence, as in multi-hop questions and in the memory of agents, a part of the
    evidence is no success. A relevant candidate that was not retrieved makes the value 0, and so do more than k
    relevant ones. With ``enough=2``, two relevant candidates among the first k are enough.

    Under ``ties="expected"`` it is a probability. Let the cutoff leave s places to a tie group of n candidates, r of
    them relevant. If no relevant candidate comes after the group, all are within the cutoff with probability
    :math:`\binom{n-r}{s-r} / \binom{n}{s}`. The mean of :class:`Recall` does not give this probability.

    Source:
        Wu, Wang, Yu, Zhang, Chang and Yu, LongMemEval: benchmarking chat assistants on long-term interactive memory,
        ICLR 2025, ``recall_all`` of its code.

    Args:
        enough: the number of relevant candidates that must be among the first k, >= 1; None = all. A query that has
            fewer scores 0. 1 is :class:`HitRate`.

    Raises:
        ValueError: ``enough`` is neither None nor an integer >= 1.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.AllHit(top_k=2).score(torch.tensor([[0.9, 0.5, 0.5, 0.1]]), torch.tensor([[1, 1, 0, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "allhit"
    monotone_behind = True

    enough: int | None = integer(default=None, least=1)

    def measure(self, ranking: Ranking) -> Tensor:
        cut = random_ranking.CutoffTie.of(ranking, self.relevance_level, self.top_k)
        needed = self.enough or ranking.num_relevant(self.relevance_level).unsqueeze(-1)
        return only(cut.before + cut.hits >= needed, cut.chance).sum(-1).clamp_max(1)


class EachRR(BinaryMetric):
    r"""Mean reciprocal rank of all relevant candidates: :math:`\frac{1}{R} \sum_{i \in rel} \frac{1}{rank_i}`.

    :class:`MRR` counts the first relevant candidate only. A relevant candidate beyond k, or one that was not retrieved,
    adds 0. With R relevant candidates the largest value is :math:`(1 + 1/2 + ... + 1/R) / R`.

    Source:
        The evaluation script of MIND: Wu et al., MIND: a large-scale dataset for news recommendation, ACL 2020.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.EachRR().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 1, 1]]))  # (1/2 + 1/3) / 2
        tensor([0.4167], dtype=torch.float64)
    """

    name = "eachrr"

    def numerator(self, ranking: Ranking) -> Tensor:
        return ranking.discounted_gain(AtLeast(self.relevance_level), RECIPROCAL, self.top_k)

    def denominator(self, ranking: Ranking) -> Tensor:
        return ranking.num_relevant(self.relevance_level)


class INP(BinaryMetric):
    r"""Inverse negative penalty, whose mean over queries is mINP: :math:`R \,/\, \max_{i \in rel} rank_i`.

    The precision at the rank of the last of the R relevant candidates, the hardest match. It is 0 if a relevant
    candidate was not retrieved. Under ``ties="expected"`` it is the exact expectation, not R over the mean rank of
    :class:`CoverageError`.

    Source:
        Ye, Shen, Lin, Xiang, Shao and Hoi, Deep learning for person re-identification: a survey and outlook, IEEE TPAMI
        44(6), 2022.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.INP().score(torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 0, 1, 0]]))  # 2 / 3
        tensor([0.6667], dtype=torch.float64)
    """

    name = "inp"
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        inverse = random_ranking.reciprocal_last_rank(ranking, self.relevance_level)
        return ranking.num_relevant(self.relevance_level) * inverse


class FirstRank(BinaryMetric):
    r"""Rank of the first relevant candidate: :math:`\min_{i \in rel} rank_i`. Lower is better.

    Under ``ties="expected"`` it is the exact expectation. If the first tie group with relevant candidates has n
    candidates, r of them relevant, after a others, this is :math:`a + \frac{n + 1}{r + 1}`. It is not 1 over the
    :class:`MRR`: with four tied candidates, two of them relevant, it is 5/3, and the mean of 1 / rank is 13/18. If no
    relevant candidate was retrieved, the rank is the one after the list; NaN if its length is unknown. Queries without
    relevant candidates are skipped by default, and queries for which nothing was retrieved always.

    Source:
        Cooper, Expected search length, American Documentation 19(1), 1968, which counts the irrelevant candidates above
        this rank and averages over ties in the same way.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.FirstRank().score(torch.tensor([[0.5, 0.5, 0.5, 0.5]]), torch.tensor([[1, 0, 1, 0]]))
        tensor([1.6667], dtype=torch.float64)
    """

    name = "firstrank"
    value_range = (1.0, math.inf)
    higher_is_better = False
    top_k: None = None

    empty_target_action: EmptyAction = "skip"

    def measure(self, ranking: Ranking) -> Tensor:
        first = random_ranking.first_rank(ranking, self.relevance_level)
        return torch.where(first.isfinite(), first, ranking.num_candidates + 1)
