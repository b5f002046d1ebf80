"""Measures of binary relevance: a candidate graded at or above ``relevance_level`` is relevant, any other is not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchrank.lists import Need
from torchrank.metrics.arguments import number, one_of
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.boundary import Boundary
from torchrank.metrics.gains import reciprocal
from torchrank.pieces import ratio, running_sum
from torchrank.ranking import Ranking


class BinaryMetric(RankingMetric):
    """A measure of relevant against irrelevant candidates.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0. Mind that a grade of 0.5 is not relevant at level 1.
        kwargs: as :class:`RankingMetric`.

    Raises:
        ValueError: ``relevance_level`` is not a number > 0.
    """

    def __init__(self, top_k: int | None = None, *, relevance_level: float = 1, **kwargs: Any) -> None:
        number("relevance_level", relevance_level, above=0)
        super().__init__(top_k, relevance_level=relevance_level, **kwargs)

    relevance_level: float

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

    Also in:
        trec_eval and pytrec_eval (``P_k``, ``set_P``), ir_measures (``P``), ranx, torchmetrics, PyG, RecTools, RePlay,
        RecBole, Transformers4Rec, ranking-metrics-torch; divided by the length of a shorter list (``adaptive_k``), rax,
        TensorFlow Ranking, metrax, LensKit.

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

    name = "precision"

    def __init__(self, top_k: int | None = None, *, adaptive_k: bool = False, **kwargs: Any) -> None:
        one_of("adaptive_k", adaptive_k, (True, False))
        super().__init__(top_k, adaptive_k=bool(adaptive_k), **kwargs)

    adaptive_k: bool

    def measure(self, ranking: Ranking) -> Tensor:
        length = self.length(ranking)
        return ratio(self.hits(ranking), torch.minimum(length, ranking.num_candidates) if self.adaptive_k else length)


class Recall(BinaryMetric):
    r"""Recall: the share of the R relevant candidates in the first k ranks, :math:`\frac{1}{R} \sum_{i \le k} rel_i`.

    R counts relevant candidates that were not retrieved, as trec_eval's ``recall_k`` does.

    Source:
        Kent, Berry, Luehrs and Perry, Machine literature searching VIII, American Documentation 6(2), 1955.

    Also in:
        trec_eval and pytrec_eval (``recall_k``, ``set_recall``), ir_measures (``R``), ranx, PyG, RecTools, RePlay,
        RecBole; of the relevant candidates in the list only, torchmetrics, rax, TensorFlow Ranking, metrax, torcheval,
        Transformers4Rec, ranking-metrics-torch.

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

    name = "recall"

    def __init__(self, top_k: int | None = None, *, normalize: str = "relevant", **kwargs: Any) -> None:
        one_of("normalize", normalize, ("relevant", "min"))
        super().__init__(top_k, normalize=normalize, **kwargs)

    normalize: str

    def measure(self, ranking: Ranking) -> Tensor:
        relevant = ranking.num_relevant(self.relevance_level)
        most = self.top_k if self.normalize == "min" else None
        return ratio(self.hits(ranking), relevant if most is None else relevant.clamp_max(most))


class FBeta(BinaryMetric):
    r"""F-measure: :math:`F_\beta = \frac{(1 + \beta^2) P R}{\beta^2 P + R} = \frac{(1 + \beta^2) h}{\beta^2 R_0 + k}`.

    h hits in the first k ranks, R0 relevant candidates in all. Per query, then averaged.

    Source:
        van Rijsbergen, Information Retrieval, 1979.

    Also in:
        RecTools; trec_eval and ir_measures (``set_F``) with their parameter in place of beta squared.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        beta: how many times as important as precision recall is; > 0.
        kwargs: as :class:`BinaryMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.FBeta(top_k=2, beta=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]))
        tensor([0.8333], dtype=torch.float64)
    """

    name = "fbeta"

    def __init__(self, top_k: int | None = None, *, beta: float = 1, **kwargs: Any) -> None:
        number("beta", beta, above=0)
        super().__init__(top_k, beta=beta, **kwargs)

    beta: float

    def measure(self, ranking: Ranking) -> Tensor:
        return _f_measure(self, ranking, self.beta**2)


class F1(BinaryMetric):
    r"""F1: the harmonic mean of precision and recall, :math:`F_1@k = \frac{2 P R}{P + R}`, per query.

    :class:`FBeta` with beta = 1.

    Source:
        van Rijsbergen, Information Retrieval, 1979.

    Also in:
        ranx (``f1``), PyG (``LinkPredF1``), RecTools; trec_eval (``set_F``) over the whole list.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.F1(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]))
        tensor([0.6667], dtype=torch.float64)
    """

    name = "f1"

    def measure(self, ranking: Ranking) -> Tensor:
        return _f_measure(self, ranking, 1)


def _f_measure(metric: BinaryMetric, ranking: Ranking, square: float) -> Tensor:
    relevant = ranking.num_relevant(metric.relevance_level)
    return ratio((1 + square) * metric.hits(ranking), square * relevant + metric.length(ranking))


class MAP(BinaryMetric):
    r"""Average precision, whose mean over queries is MAP: :math:`AP@k = \frac{1}{N} \sum_{i \le k} rel_i \, P@i`.

    Ties after McSherry and Najork, Computing information retrieval performance measures efficiently in the presence of
    tied scores, ECIR 2008; the form for ``normalize="retrieved"`` sums over how many of a tie cut by k come before it.

    Source:
        trec_eval; Buckley and Voorhees, Evaluating evaluation measure stability, SIGIR 2000.

    Also in:
        trec_eval and pytrec_eval (``map``, ``map_cut_k``), ir_measures (``AP``), ranx, rax, TensorFlow Ranking, metrax,
        RecTools; with ``normalize="min"`` PyG, RePlay, RecBole, Transformers4Rec, ranking-metrics-torch; with "length"
        LensKit; with "retrieved" torchmetrics.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        normalize: what N is: "relevant", all R relevant candidates (trec_eval's ``map`` and ``map_cut``); "min",
            min(R, k); "length", min(R, k, length of the list), as LensKit does; "k", k itself (without ``top_k`` the
            length of the list), as RecTools can; "retrieved", the relevant ones among the first k, with ``top_k`` and
            expected ties without bounds over what is unjudged.
        kwargs: as :class:`BinaryMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.7, 0.6, 0.5]]), torch.tensor([[1, 0, 1, 1, 0]])
        >>> tr.MAP().score(scores, target)  # (1 + 2/3 + 3/4) / 3
        tensor([0.8056], dtype=torch.float64)
    """

    name = "map"

    def __init__(self, top_k: int | None = None, *, normalize: str = "relevant", **kwargs: Any) -> None:
        one_of("normalize", normalize, ("relevant", "min", "length", "k", "retrieved"))
        super().__init__(top_k, normalize=normalize, **kwargs)

    normalize: str

    @property
    def unbounded(self) -> str:
        random = self.normalize == "retrieved" and self.top_k is not None and self.ties == "expected"
        return "of which a tie cut by top_k makes the number of hits random" if random else ""

    def measure(self, ranking: Ranking) -> Tensor:
        if self.normalize == "retrieved" and self.top_k is not None and not ranking.untied:
            return _precision_by_hits(ranking, self.relevance_level, self.top_k)
        return ratio(precisions(ranking, self.relevance_level, self.top_k).sum(-1), self.whole(ranking))

    def whole(self, ranking: Ranking) -> Tensor:
        """What the precisions are divided by, where that is no matter of chance: float64 [query]."""
        relevant, length = ranking.num_relevant(self.relevance_level), self.length(ranking)
        if self.normalize in ("retrieved", "k"):
            return length if self.normalize == "k" else self.hits(ranking)
        if self.normalize == "length":
            return torch.minimum(relevant, torch.minimum(length, ranking.num_candidates))
        return relevant if self.normalize == "relevant" or self.top_k is None else torch.minimum(relevant, length)


def precisions(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Expected rel * P@rank, summed over the ranks that an entry can have: float64 [query, entry].

    A share c = (r - 1) / (n - 1) of the others in its block is relevant: P@j is (before + 1 + c (j - a - 1)) / j.
    """
    before, beside = ranking.relevant_around(level)
    if ranking.untied:
        return (before + beside) * ranking.summed(reciprocal, top_k) * beside
    above = ranking.first - 1
    inside = ranking.places(top_k)
    c = ratio(beside - 1, ranking.tied - 1)
    harmonic = ranking.summed(reciprocal, top_k)
    total = (before + 1 - (above + 1) * c) * harmonic + c * inside
    return torch.where(ranking.found(level), ratio(total, ranking.tied), 0.0)


def _precision_by_hits(ranking: Ranking, level: float, top_k: int) -> Tensor:
    """AP divided by the hits in the first k, which a tie cut by k makes random: a sum over their number."""
    surely = ranking.found(level) & (ranking.share(top_k) == 1)
    full = torch.where(surely, precisions(ranking, level, top_k), 0.0).sum(-1)
    # Given h hits among the s places of the cut block, they are a block of s with h relevant ones.
    cut = Boundary.of(ranking, level, top_k)
    h, s = cut.hits, cut.places
    first, harmonic = cut.at(ranking.first), cut.at(ranking.summed(reciprocal, top_k))
    c = ratio(h - 1, s - 1)
    partial = torch.where(h > 0, ratio(h, s) * ((cut.before + 1 - first * c) * harmonic + c * s), 0.0)
    return (cut.chance * ratio(full.unsqueeze(-1) + partial, cut.before + h)).sum(-1)


class RPrecision(BinaryMetric):
    r"""R-precision: precision at rank R, the number of relevant candidates, :math:`\frac{1}{R} \sum_{i \le R} rel_i`.

    R counts relevant candidates that were not retrieved. With a ``multiple`` m, precision at rank
    :math:`\lfloor m R + 0.9 \rfloor`, 0 where that is no rank. A list that is shorter still divides by it.

    Source:
        trec_eval, ``Rprec``, and with ``multiple`` ``Rprec_mult``; Buckley and Voorhees, Evaluating evaluation measure
        stability, SIGIR 2000.

    Also in:
        trec_eval and pytrec_eval (``Rprec``, ``Rprec_mult``), ir_measures (``Rprec``), ranx (``r-precision``),
        torchmetrics, of the relevant candidates in the list only.

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

    name = "rprecision"
    takes_top_k = False

    def __init__(self, top_k: None = None, *, multiple: float = 1, **kwargs: Any) -> None:
        number("multiple", multiple, above=0)
        super().__init__(top_k, multiple=multiple, **kwargs)

    multiple: float

    def measure(self, ranking: Ranking) -> Tensor:
        cut = (self.multiple * ranking.num_relevant(self.relevance_level) + 0.9).floor()
        share = ratio(ranking.places_within(cut.unsqueeze(-1)), ranking.tied)
        return ratio(torch.where(ranking.found(self.relevance_level), share, 0.0).sum(-1), cut)


class FallOut(BinaryMetric):
    r"""Fall-out: the share of the irrelevant candidates that stands in the first k ranks. Lower is better.

    :math:`F@k = \frac{1}{N} \sum_{i \le \min(k, n)} (1 - rel_i)`, N irrelevant candidates in a list of n, retrieved
    ones only. A query without any is empty, and counts as 1 by default.

    Source:
        van Rijsbergen, Information Retrieval, 1979; at k torchmetrics.

    Also in:
        torchmetrics (``RetrievalFallOut``).

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.FallOut(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "fallout"
    higher_is_better = False

    def __init__(self, top_k: int | None = None, *, empty_target_action: str = "pos", **kwargs: Any) -> None:
        super().__init__(top_k, empty_target_action=empty_target_action, **kwargs)

    def need(self) -> Need:
        return Need(relevant=True)  # it counts the relevant candidates that were retrieved at all

    def empty(self, ranking: Ranking) -> Tensor:
        return nothing_irrelevant(ranking, self.relevance_level)

    def measure(self, ranking: Ranking) -> Tensor:
        inside = torch.minimum(self.length(ranking), ranking.num_candidates) - self.hits(ranking)
        return ratio(inside, ranking.num_candidates - ranking.hits(self.relevance_level, None))


class AUROC(BinaryMetric):
    r"""Area under the ROC curve of each query: the chance that a relevant candidate stands before an irrelevant one.

    :math:`AUC = \frac{1}{P N} \sum_{i \in rel} \sum_{j \notin rel} [rank_i < rank_j]`, over the P relevant and N
    irrelevant candidates among the first k retrieved. A tied pair counts half under ``ties="expected"``. A
    query without a pair to compare is empty, and skipped by default, except that it scores 0 where relevant candidates
    exist but none was retrieved, and where the first k hold no pair.

    With ``max_fpr`` = F only the part of the curve up to a false positive rate of F counts, rescaled to 1/2 for chance
    and 1 at best: :math:`\frac{1}{2} \left(1 + \frac{A - F^2 / 2}{F - F^2 / 2}\right)`, A its area.

    Source:
        Hanley and McNeil, Radiology 143, 1982; ``max_fpr``: McClish, Medical Decision Making 9, 1989.

    Also in:
        torchmetrics (``RetrievalAUROC``, where one class counts 0), ir_measures (``Accuracy``), scikit-learn
        (``roc_auc_score`` of one query); RePlay (``RocAuc``), 1 where the first k are all relevant; RecTools
        (``PartialAUC``), cut at the k-th irrelevant one; RecBole (``GAUC``), weighted by the relevant; torchrec
        (``GAUC``), without queries of equal scores alone.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        max_fpr: the largest false positive rate that counts, > 0 and <= 1; None = 1.
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: ``max_fpr`` is not a number > 0 and <= 1.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.AUROC().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "auroc"

    def __init__(
        self,
        top_k: int | None = None,
        *,
        max_fpr: float | None = None,
        empty_target_action: str = "skip",
        **kwargs: Any,
    ) -> None:
        if max_fpr is not None:
            number("max_fpr", max_fpr, above=0, most=1)
        super().__init__(top_k, max_fpr=max_fpr, empty_target_action=empty_target_action, **kwargs)

    max_fpr: float | None

    def need(self) -> Need:
        return Need(relevant=True)  # it counts the relevant candidates that were retrieved at all

    def empty(self, ranking: Ranking) -> Tensor:
        return super().empty(ranking) | nothing_irrelevant(ranking, self.relevance_level)

    def measure(self, ranking: Ranking) -> Tensor:
        level, top_k = self.relevance_level, self.top_k
        cut = Boundary.of(ranking, level, top_k)
        length = torch.minimum(self.length(ranking), ranking.num_candidates).unsqueeze(-1)
        if self.max_fpr is not None and self.max_fpr < 1:
            return (cut.chance * _partial_area(ranking, level, top_k, cut, length, self.max_fpr)).sum(-1)
        found, share = ranking.found(level), ranking.share(top_k)
        before, beside = ranking.relevant_around(level)
        # Irrelevant candidates behind each relevant one that is surely inside, and half of those tied with it ...
        behind = length - (ranking.first + ranking.tied - 1) - (cut.before - before - beside)
        pairs = torch.where(found & (share == 1), behind + (ranking.tied - beside) / 2, 0.0).sum(-1, keepdim=True)
        # ... less the h that a tie cut by k puts behind it, which themselves are ahead of half of theirs.
        h, s, inside = cut.hits, cut.places, cut.before + cut.hits
        ordered = pairs - cut.before * h + h * (s - h) / 2
        return (cut.chance * ratio(ordered, inside * (length - inside))).sum(-1)


def _partial_area(
    ranking: Ranking, level: float, top_k: int | None, cut: Boundary, length: Tensor, max_fpr: float
) -> Tensor:
    """The rescaled area of the first ``length``, for each number of hits in a tie cut by k: float64 [query, hits]."""
    share = ranking.share(top_k)
    inside = ranking.found(level) & (share == 1)
    before, beside = ranking.relevant_around(level)
    ahead, among = ranking.first - 1 - before, ranking.tied - beside
    h, relevant, others = cut.hits, cut.before + cut.hits, length - cut.before - cut.hits
    room = max_fpr * others  # false positives that count
    # All irrelevant candidates tied with an entry are within the room, or it is of the next block, or they are not.
    ends = torch.where((share == 1) & (ranking.tied > 0), ahead + among, float("inf")).contiguous()
    within = torch.searchsorted(ends, room.contiguous(), right=True)
    some = torch.nn.functional.pad(running_sum(inside.to(room.dtype)), (1, 0)).gather(-1, within)
    middle = torch.where(inside, ahead + among / 2, 0.0)
    area = room * some - torch.nn.functional.pad(running_sum(middle), (1, 0)).gather(-1, within)
    following = within.clamp_max(ends.shape[1] - 1)
    next_ahead, next_among = ahead.gather(-1, following), among.gather(-1, following)
    crossed = (within < ends.shape[1]) & ends.gather(-1, following).isfinite()
    area = area + torch.where(crossed, beside.gather(-1, following) * uncounted(room - next_ahead, next_among), 0.0)
    area = area + h * uncounted(room - (cut.at(ranking.first) - 1 - cut.before), (cut.places - h).clamp_min(0))
    chance = 0.5 * max_fpr**2
    rescaled = 0.5 * (1 + (ratio(area, relevant * others) - chance) / (max_fpr - chance))
    return torch.where(relevant * others > 0, rescaled, 0.0)


def uncounted(room: Tensor, among: Tensor) -> Tensor:
    """Mean of max(0, room - t) over t = 0, 1, ..., ``among``: what t tied candidates that are ahead leave of it."""
    terms = torch.minimum(room.ceil().clamp_min(0), among + 1)
    return terms * (room - (terms - 1) / 2) / (among + 1)


def nothing_irrelevant(ranking: Ranking, level: float) -> Tensor:
    """No irrelevant candidate was retrieved, though something was or nothing is relevant."""
    only_relevant = ranking.num_candidates == ranking.hits(level, None)
    return only_relevant & ~((ranking.num_candidates == 0) & (ranking.num_relevant(level) > 0))
