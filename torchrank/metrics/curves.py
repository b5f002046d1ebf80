"""Measures of ROC and precision-recall curves, and of pairs of candidates."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor
from torchmetrics.utilities.plot import plot_curve

from torchrank.engine.sorting import by_key, descending
from torchrank.formulas.gains import POSITIVE, checked_weighing, gain_of
from torchrank.formulas.random_ranking import CutoffTie
from torchrank.hardware.devices import eager, greatest, running_sum
from torchrank.layouts.canonical import BLOCK, Need
from torchrank.metrics.base import NONLINEAR, RankingMetric
from torchrank.metrics.binary import BinaryMetric, Precision, nothing_irrelevant, precisions, uncounted
from torchrank.names.arguments import number as check_number
from torchrank.names.parameters import integer, number, one_of, parameter
from torchrank.names.types import Described, EmptyAction, GainOption, call_of
from torchrank.ranking.ranking import Gain, Ranking, cached, marked_rows, only, ratio, run_bounds, run_starts
from torchrank.state.scoring import FILLS, Status, Values
from torchrank.state.sums import SIZE, Sum

__all__ = [
    "AUROC",
    "LRAP",
    "OPA",
    "PAP",
    "CoverageError",
    "ElevenPoint",
    "InterpolatedPrecision",
    "PRCurve",
    "PartialAUC",
    "RankingLoss",
    "RecallAtPrecision",
]


class AUROC(BinaryMetric):
    r"""Area under the ROC curve of each query: the probability that a relevant candidate ranks above an irrelevant one.

    :math:`AUC = \frac{1}{P N} \sum_{i \in rel} \sum_{j \notin rel} [rank_i < rank_j]`, over the P relevant and N
    irrelevant candidates among the first k retrieved. A tied pair counts half under ``ties="expected"``. A query is
    empty, and skipped by default, if it has no relevant candidate or if only relevant candidates were retrieved. It
    scores 0 if it has relevant candidates but none was retrieved, or if the first k contain no pair.

    With ``max_fpr`` = F, A is the area under the curve up to a false positive rate of F. It is rescaled to 1/2 by
    chance and 1 at best: :math:`\frac{1}{2} \left(1 + \frac{A - F^2 / 2}{F - F^2 / 2}\right)`.

    Source:
        Hanley and McNeil, Radiology 143, 1982; ``max_fpr``: McClish, Medical Decision Making 9, 1989.

    Args:
        max_fpr: the largest false positive rate that counts, > 0 and <= 1; None = 1.

    Raises:
        ValueError: ``max_fpr`` is not a number > 0 and <= 1.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.AUROC().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "auroc"

    max_fpr: float | None = number(default=None, above=0, most=1)
    empty_target_action: EmptyAction = "skip"

    def need(self) -> Need:
        return Need(relevant=True)  # relevant candidates are counted in the whole list

    def empty(self, ranking: Ranking) -> Tensor:
        return super().empty(ranking) | nothing_irrelevant(ranking, self.relevance_level)

    def measure(self, ranking: Ranking) -> Tensor:
        level, top_k = self.relevance_level, self.top_k
        cut = CutoffTie.of(ranking, level, top_k)
        length = torch.minimum(self.length(ranking), ranking.num_candidates).unsqueeze(-1)
        if self.max_fpr is not None and self.max_fpr < 1:
            return (cut.chance * _partial_area(ranking, level, top_k, cut, length, self.max_fpr)).sum(-1)
        retrieved, share = ranking.hit(level), ranking.prob_in_top_k(top_k)
        before, beside = ranking.relevant_before_and_in_tie(level)
        # For each relevant entry that is certainly in the first k: the irrelevant candidates after its tie group, and
        # half of the irrelevant ones in it. The h hits of the tie group at the cutoff count as irrelevant here ...
        ahead = torch.add(ranking.first, ranking.tied, alpha=0.5).sub_(before).sub_(beside, alpha=0.5)
        pairs = only(retrieved & (share == 1), length + 1 - cut.before - ahead).sum(-1, keepdim=True)
        # ... and are subtracted now. Each of them is before half of the s - h irrelevant candidates of its group that
        # are in the first k.
        h, s, inside = cut.hits, cut.places, cut.before + cut.hits
        ordered = pairs - cut.before * h + h * (s - h) / 2
        return (cut.chance * ratio(ordered, inside * (length - inside))).sum(-1)


def _partial_area(
    ranking: Ranking, level: float, top_k: int | None, cut: CutoffTie, length: Tensor, max_fpr: float
) -> Tensor:
    """The rescaled area up to ``max_fpr``, for each number of hits of the cut tie group: float64 [query, hits].

    In units of pairs, a relevant candidate adds max(0, room - t) to the area: ``room`` is the number of false positives
    that count, t the number of irrelevant candidates before it.
    """
    share = ranking.prob_in_top_k(top_k)
    inside = ranking.hit(level) & (share == 1)
    before, beside = ranking.relevant_before_and_in_tie(level)
    ahead, among = ranking.first - 1 - before, ranking.tied - beside
    h, relevant, others = cut.hits, cut.before + cut.hits, length - cut.before - cut.hits
    room = max_fpr * others
    # Tie groups that end within the room: t is ahead + among / 2 on average, and no term is cut off at 0. Prefix sums
    # over the entries add up all these groups at once. ``ends`` ascends, so a binary search finds the last of them.
    ends = torch.where(share == 1, ahead + among, float("inf")).contiguous()
    within = torch.searchsorted(ends, room.contiguous(), right=True)
    num_within = torch.nn.functional.pad(running_sum(inside.to(room.dtype)), (1, 0)).gather(-1, within)
    middle = only(inside, ahead + among / 2)
    area = room * num_within - torch.nn.functional.pad(running_sum(middle), (1, 0)).gather(-1, within)
    # The next tie group crosses the end of the room, so the mean over t takes the cut at 0 into account. Groups behind
    # it add nothing.
    following = within.clamp_max(ends.shape[1] - 1)
    next_ahead, next_among = ahead.gather(-1, following), among.gather(-1, following)
    crossed = (within < ends.shape[1]) & ends.gather(-1, following).isfinite()
    area = area + only(crossed, beside.gather(-1, following) * uncounted(room - next_ahead, next_among))
    # The h hits of the tie group at the cutoff, in which s - h irrelevant candidates are counted.
    area = area + h * uncounted(room - (cut.of_group(ranking.first) - 1 - cut.before), (cut.places - h).clamp_min(0))
    chance = 0.5 * max_fpr**2  # the area under the diagonal
    rescaled = 0.5 * (1 + (ratio(area, relevant * others) - chance) / (max_fpr - chance))
    return only(relevant * others > 0, rescaled)


class PartialAUC(BinaryMetric):
    r"""Partial AUC: how rarely the first k irrelevant candidates precede relevant ones.

    :math:`\frac{1}{k R} \sum_{i \in rel} \max(0, k - n_i)`. :math:`n_i` irrelevant candidates precede the relevant
    candidate i. One of the R that was not retrieved adds 0. ``top_k`` counts irrelevant candidates, not ranks. So a
    list needs k + R candidates: irrelevant ones that it lacks count as ranked last. Under ``ties="expected"`` it is the
    exact expectation.

    Source:
        Budhiraja et al., Rich-item recommendations for rich-users, arXiv 2001.10495, 2020; RecTools.

    Args:
        top_k: the number of irrelevant candidates that count; None = those in the list, and at least 1.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.7, 0.6]]), torch.tensor([[0, 1, 0, 1]])
        >>> tr.PartialAUC(top_k=2).score(scores, target)  # (1 + 0) / (2 * 2)
        tensor([0.2500], dtype=torch.float64)
    """

    name = "partialauc"

    def need(self) -> Need:
        return Need(relevant=True)  # k irrelevant candidates can reach any rank

    def measure(self, ranking: Ranking) -> Tensor:
        k, before, beside = self._counts(ranking)
        free = uncounted(k - (ranking.first - 1 - before), ranking.tied - beside)
        return self.per_relevant(ranking, free) / k.squeeze(-1)

    def _counts(self, ranking: Ranking) -> tuple[Tensor, Tensor, Tensor]:
        """k of each query [query, 1], and the relevant candidates before and in each tie group [query, entry]."""
        before, beside = ranking.relevant_before_and_in_tie(self.relevance_level)
        if self.top_k is not None:
            k = torch.full_like(ranking.num_candidates, self.top_k)
        else:
            k = (ranking.num_candidates - ranking.hits(self.relevance_level, None)).clamp_min(1)
        return k.unsqueeze(-1), before, beside


class PAP(PartialAUC):
    r"""pAp@k: :class:`PartialAUC` of the first k relevant candidates only.

    :math:`\frac{1}{k \min(k, R)} \sum_{i \in rel, r_i < k} \max(0, k - n_i)`. :math:`n_i` irrelevant and :math:`r_i`
    relevant candidates precede the relevant candidate i. It is like precision for more than k relevant candidates, and
    :class:`PartialAUC` for fewer. Without ``top_k`` all relevant candidates count. Under ``ties="expected"`` it is the
    exact expectation.

    Source:
        Budhiraja et al., Rich-item recommendations for rich-users, arXiv 2001.10495, 2020; Hiranandani et al.,
        Optimization and analysis of the pAp@k metric for recommender systems, ICML 2020.

    Args:
        top_k: the number of irrelevant, and of relevant, candidates that count; None as :class:`PartialAUC`.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.7, 0.6]]), torch.tensor([[1, 0, 1, 1]])
        >>> tr.PAP(top_k=2).score(scores, target)  # (2 + 1) / (2 * 2)
        tensor([0.7500], dtype=torch.float64)
    """

    name = "pap"

    def measure(self, ranking: Ranking) -> Tensor:
        if self.top_k is None:
            return super().measure(ranking)
        k, before, beside = self._counts(ranking)
        room = k - (ranking.first - 1 - before)
        retrieved, others = ranking.hit(self.relevance_level), ranking.tied - beside
        total = only(retrieved & (before + beside <= k), uncounted(room, others)).sum(-1)
        if not ranking.untied:
            # The first relevant entry of the one tie group in which the k-th relevant candidate is not the last.
            crossed = retrieved & (before < k) & (before + beside > k)
            column = crossed.int().argmax(-1, keepdim=True)
            places, room, beside, others = (x.gather(-1, column) for x in (k - before, room, beside, others))
            most = min(self.top_k, ranking.depth)
            for rows in marked_rows(crossed).split(max(1, BLOCK // most)):
                extra = _of_first(places[rows], room[rows], beside[rows], others[rows], most)
                total = total.index_add(0, rows, only(crossed[rows].any(-1), extra))
        return ratio(total, k.squeeze(-1) * torch.minimum(k.squeeze(-1), ranking.num_relevant(self.relevance_level)))


def _of_first(places: Tensor, room: Tensor, relevant: Tensor, others: Tensor, most: int) -> Tensor:
    """The expected sum of max(0, room - n) over the first ``places`` relevant candidates of a tie group.

    n of the ``others``, the irrelevant candidates of the group, precede the j-th of the ``relevant`` ones with a
    probability of :math:`\binom{j - 1 + n}{n} \binom{r - j + m - n}{m - n} / \binom{r + m}{m}`. All are float64
    [query, 1]; the result is float64 [query]. Only n < ``most`` and j <= ``most`` count.
    """
    total = torch.zeros_like(room).squeeze(-1)
    n = torch.arange(most, dtype=room.dtype, device=room.device)
    all_ways = _choose(relevant + others, others)
    for j in range(1, most + 1):
        ways = _choose(j - 1 + n, n) + _choose(relevant - j + others - n, others - n) - all_ways
        possible = (n <= others) & (j <= relevant) & (j <= places)
        total = total + only(possible, ways.exp() * (room - n).clamp_min(0)).sum(-1)
    return total


def _choose(n: Tensor, k: Tensor) -> Tensor:
    """Logarithm of n choose k, for 0 <= k <= n; any number elsewhere."""
    n, k = n.clamp_min(0), k.clamp_min(0)
    return (n + 1).lgamma() - (k + 1).lgamma() - ((n - k).clamp_min(0) + 1).lgamma()


class PRCurve(Precision):
    r"""Precision and recall at every rank up to k, averaged: :math:`P@1, ..., P@k, R@1, ..., R@k`.

    The averages are over queries. Each number equals :class:`Precision` or :class:`Recall` at that rank, also under
    ties. Every query must arrive whole in one ``update``. The state is one vector of sums, whose size is constant.

    Source:
        torchmetrics, ``RetrievalPrecisionRecallCurve``.

    Args:
        top_k: the last rank.
        adaptive_k: divide by the length of a list that is shorter than a rank.
        aggregation: "mean".
        kwargs: ``ties``, ``relevance_level``, ``empty_target_action``, ``validate_args``: as :class:`Precision`; and
            the arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: ``top_k`` is not an integer >= 1, or another argument has an unknown value.

    Example:
        >>> import torch, torchrank as tr
        >>> curve = tr.PRCurve(top_k=3)
        >>> curve(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        (tensor([1.0000, 0.5000, 0.6667]), tensor([0.5000, 0.5000, 1.0000]), tensor([1, 2, 3]))
    """

    name = "prcurve"
    #: a registry of its own: a curve is not a number, so it is not listed among the measures
    registry: ClassVar[dict[str, type[RankingMetric]]] = {}
    takes_unjudged_for = ("irrelevant",)
    nonlinear_reason = NONLINEAR  # of a curve
    shows_extra = True

    top_k: int = integer(least=1, kw_only=False)
    aggregation: Literal["mean"] = one_of(default="mean")

    @property
    def num_extra_sums(self) -> int:
        return 2 * self.top_k

    def per_query(self, ranking: Ranking) -> Values:
        result = super().per_query(ranking)
        # An empty query has the same value at every rank.
        empty = torch.where(result.status == Status.EMPTY, FILLS[self.empty_target_action], math.nan)
        return replace(result, extra=torch.where(result.status > 0, empty, self.curves(ranking)))

    @eager
    def curves(self, ranking: Ranking) -> Tensor:
        """Precision at each rank, then recall at each rank, also of empty queries: float64 [2 * rank, query]."""
        hits = self.resolve_ties(ranking).hits_by_rank(self.relevance_level, self.top_k)
        rank = torch.arange(1, self.top_k + 1, dtype=hits.dtype, device=hits.device).expand_as(hits)
        length = torch.minimum(rank, ranking.num_candidates.unsqueeze(-1)) if self.adaptive_k else rank
        relevant = ranking.num_relevant(self.relevance_level).unsqueeze(-1)
        return torch.cat([ratio(hits, length), ratio(hits, relevant)], -1).mT

    def result(self, sums: Tensor) -> Tensor:
        return sums[SIZE:] / sums[Sum.W]

    def compute(self) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        """Precision and recall, averaged over the queries of all workers.

        Returns:
            float32 [rank], float32 [rank], both NaN if no query was scored; and the ranks, int64 [rank].

        Raises:
            ValueError: a worker received bad values. The metric can still be updated.
        """
        precision, recall = super().compute().view(2, -1)
        return precision, recall, torch.arange(1, self.top_k + 1, device=recall.device)

    def shown(self, result: Values) -> tuple[Tensor, Tensor]:
        """Precision and recall of each query, float64 [query, rank] each; NaN at all ranks if it is left out."""
        precision, recall = torch.where(result.values.isnan(), float("nan"), result.extra).mT.chunk(2, -1)
        return precision, recall

    def plot(self, curve: tuple[Tensor, Tensor, Tensor] | None = None, ax: Any = None) -> Any:
        """Draw precision over recall. Needs matplotlib."""
        precision, recall, ranks = self.compute() if curve is None else curve
        return plot_curve((recall, precision, ranks), ax=ax, label_names=("Recall", "Precision"), name=self.label)

    if TYPE_CHECKING:

        @call_of(RankingMetric.update, tuple[Tensor, Tensor, Tensor])
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[override]


def _rounded(x: Tensor, rounding: str) -> Tensor:
    """The nearest integer, halves up, as C's lround rounds numbers >= 0; or "up", as trec_eval up to 9."""
    floor = x.floor()
    # The sum x + 0.5 could itself be rounded up to an integer.
    return (x + 0.9).floor() if rounding == "up" else floor + (x - floor >= 0.5)


def interpolated(ranking: Ranking, level: float, hits: Tensor) -> Tensor:
    """The best precision at any rank with at least ``hits`` [query, point] expected hits, 0 if there is none.

    float64 [query, point]. Within a tie group, expected precision either rises or falls throughout. Behind the group
    it falls until the next relevant candidate. So two ranks of each group with relevant candidates are compared: its
    last one, and the first one with enough hits.
    """
    before, beside = ranking.relevant_before_and_in_tie(level)
    above, n = ranking.first - 1, ranking.tied
    upto = before + beside
    best = only(ranking.hit(level), upto / (above + n)).flip(-1).cummax(-1).values.flip(-1)
    # The group in which the hits become enough: its first column, because columns are in the order of ranks. There is
    # one, because every relevant candidate has a column.
    reached = torch.where(ranking.retrieved(), upto, math.inf)
    column = torch.searchsorted(reached, hits.contiguous())
    columns = (before, beside, above, n, best)
    before, beside, above, n, best = (x.gather(-1, column) for x in columns)
    place = ratio((hits - before) * n, beside).ceil().clamp_min(1)  # the first place in the group with enough hits
    return torch.maximum(only(beside > 0, (before * n + place * beside) / (n * (above + place))), best)


class InterpolatedPrecision(BinaryMetric):
    r"""Interpolated precision at a recall r: the best precision at any rank that reaches it.

    :math:`\max_{j: h(j) \ge c} \frac{h(j)}{j}` with h(j) hits in the first j ranks. For R relevant candidates, c is r R
    rounded to an integer. The value is 0 if fewer than c of them are retrieved. Under ``ties="expected"`` h(j) is the
    expected number of hits: the result is the measure of the expected curve, not the expectation of the measure.

    Source:
        Salton and McGill, Introduction to Modern Information Retrieval, 1983; trec_eval, ``iprec_at_recall``.

    Args:
        recall: the recall to reach, from 0 to 1.
        rounding: the rounding of r R: "nearest", halves up, as in trec_eval 10; "up", the integer part of r R + 0.9, as
            in trec_eval up to 9, pytrec_eval, ir_measures and ranx.

    Raises:
        ValueError: ``recall`` is not a number from 0 to 1, or ``rounding`` is unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.InterpolatedPrecision(recall=0.5).score(torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[0, 1, 1]]))
        tensor([0.6667], dtype=torch.float64)
    """

    name = "iprec"
    top_k: None = None

    recall: float = number(default=0.5, least=0, most=1)
    rounding: Literal["nearest", "up"] = one_of(default="nearest")

    def measure(self, ranking: Ranking) -> Tensor:
        wanted = _rounded(self.recall * ranking.num_relevant(self.relevance_level), self.rounding)
        return interpolated(ranking, self.relevance_level, wanted.unsqueeze(-1)).squeeze(-1)


ELEVEN = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def _checked_points(points: Collection[float]) -> tuple[float, ...]:
    """Recalls in ascending order.

    Raises:
        ValueError: there is none, one is given twice, or one is not a number from 0 to 1.
    """
    if isinstance(points, str) or not isinstance(points, Collection) or not points:
        raise ValueError(f"Expected points to be recalls, e.g. (0.2, 0.5, 0.8), got {points!r}")
    for point in points:
        check_number("a recall of points", point, least=0, most=1)
    numbers = tuple(sorted(float(point) for point in points))
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"Expected each recall of points once, got {points!r}")
    return numbers


class ElevenPoint(BinaryMetric):
    r"""11-point average: the mean of the interpolated precision at recall 0, 0.1, ..., 1.

    :math:`\frac{1}{11} \sum_{r} IP(r)`, with IP(r) the :class:`InterpolatedPrecision` at recall r, also under ties.
    Other recalls make other averages, as the 3-point average of 0.2, 0.5 and 0.8.

    Source:
        Salton and McGill, Introduction to Modern Information Retrieval, 1983; trec_eval, ``11pt_avg``.

    Args:
        points: the recalls, each from 0 to 1 and given once; a label shows them as ``points={0.2,0.5,0.8}``.
        rounding: "nearest" or "up", as for :class:`InterpolatedPrecision`.

    Raises:
        ValueError: ``rounding`` is unknown, or ``points`` has no recall, one twice, or one that is not from 0 to 1.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.ElevenPoint().score(torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[1, 0, 1]]))  # (8 + 3 * 2/3) / 11
        tensor([0.9091], dtype=torch.float64)
    """

    name = "elevenpoint"
    top_k: None = None

    points: Collection[float] = parameter(default=ELEVEN, check=_checked_points)
    rounding: Literal["nearest", "up"] = one_of(default="nearest")

    def measure(self, ranking: Ranking) -> Tensor:
        relevant = ranking.num_relevant(self.relevance_level)
        wanted = torch.stack([_rounded(recall * relevant, self.rounding) for recall in self.points], -1)
        return interpolated(ranking, self.relevance_level, wanted).mean(-1)


class RecallAtPrecision(BinaryMetric):
    r"""Recall at a fixed precision: the largest recall at any rank with a precision of at least p, 0 if there is none.

    :math:`\max_{j \le k: h(j) / j \ge p} \frac{h(j)}{R}` with h(j) hits in the first j ranks, and R relevant
    candidates. Under ``ties="expected"`` h(j) is the expected number of hits: the result is the measure of the expected
    curve, not the expectation of the measure.

    Source:
        torchmetrics, ``RetrievalRecallAtFixedPrecision``, which reads it from the curve averaged over queries.

    Args:
        min_precision: the required precision p, > 0 and <= 1.

    Raises:
        ValueError: ``min_precision`` is not a number > 0 and <= 1.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.7, 0.6, 0.5]]), torch.tensor([[1, 0, 1, 0, 1]])
        >>> tr.RecallAtPrecision(min_precision=0.65).score(scores, target)
        tensor([0.6667], dtype=torch.float64)
    """

    name = "recallatprecision"
    monotone_behind = True

    min_precision: float = number(default=0.5, above=0, most=1)

    def measure(self, ranking: Ranking) -> Tensor:
        before, beside = ranking.relevant_before_and_in_tie(self.relevance_level)
        above, n, inside = ranking.first - 1, ranking.tied, ranking.ranks_in_top_k(self.top_k)
        # Within a tie group, expected precision either rises or falls throughout, so it crosses p once at most: at this
        # place. Rounding can shift the place by one, so its neighbours are tried as well.
        passes = ((before - self.min_precision * above) * n / (self.min_precision * n - beside)).floor()
        # Recall grows with the rank. So the best place of a group is its last one within the cutoff, or else the last
        # one before precision falls below p.
        best = torch.zeros_like(inside)
        for place in (inside, passes - 1, passes, passes + 1):
            place = torch.minimum(place, inside).clamp_min(1)
            hits = before * n + place * beside  # expected hits, times n
            enough = hits / (n * (above + place)) >= self.min_precision
            best = torch.where(enough, torch.maximum(best, hits / n), best)
        best = only(ranking.hit(self.relevance_level) & (inside > 0), best)
        return ratio(best.amax(-1), ranking.num_relevant(self.relevance_level))


class LRAP(BinaryMetric):
    r"""Label ranking average precision.

    :math:`\frac{1}{R} \sum_{i \in rel} \frac{|\{j \in rel: rank_j \le rank_i\}|}{rank_i}`. R is the number of relevant
    candidates. A relevant candidate that was not retrieved adds 0. Without ties, and under "expected", "optimistic" and
    "pessimistic" ties, the value is average precision. With ``ties="grouped"``, as in the source, the rank of a
    candidate is the last rank of its tie group. All relevant candidates of the group then count as ranked no later.
    scikit-learn's ``label_ranking_average_precision_score`` has ``ties="grouped"`` and ``empty_target_action="pos"``.

    Source:
        Schapire and Singer, BoosTexter: a boosting-based system for text categorization, Machine Learning 39, 2000.

    Args:
        ties: as :class:`RankingMetric`, and "grouped".

    Example:
        >>> import torch, torchrank as tr
        >>> tr.LRAP(ties="grouped").score(torch.tensor([[0.9, 0.5, 0.5, 0.5]]), torch.tensor([[0, 1, 1, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "lrap"
    policies = ("expected", "optimistic", "pessimistic", "grouped")
    top_k: None = None

    def resolve_ties(self, ranking: Ranking) -> Ranking:
        return ranking if self.ties == "grouped" else ranking.under(self.ties)

    def measure(self, ranking: Ranking) -> Tensor:
        if self.ties != "grouped":
            return self.per_relevant(ranking, precisions(ranking, self.relevance_level, None))
        before, beside = ranking.relevant_before_and_in_tie(self.relevance_level)
        # first - 1 + tied is the last rank of the tie group.
        return self.per_relevant(ranking, ratio(before + beside, ranking.first - 1 + ranking.tied))


class CoverageError(BinaryMetric):
    r"""Coverage error: the rank of the last relevant candidate, :math:`\max_{i \in rel} rank_i`.

    Lower is better. A relevant candidate that was not retrieved has the rank after the list. Under ``ties="expected"``
    the value is the mean rank of the last relevant candidate, :math:`a + \frac{r (n + 1)}{r + 1}`. Here the last tie
    group with a relevant candidate comes after a others and has n candidates, of them r relevant. scikit-learn's
    ``coverage_error`` is ``ties="pessimistic"``. A query for which nothing was retrieved has no value.

    Source:
        Schapire and Singer, BoosTexter: a boosting-based system for text categorization, Machine Learning 39, 2000, as
        coverage, which is 1 less.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.CoverageError().score(torch.tensor([[0.9, 0.5, 0.5, 0.1]]), torch.tensor([[1, 1, 0, 0]]))
        tensor([2.5000], dtype=torch.float64)
    """

    name = "coverageerror"
    value_range = (0.0, math.inf)
    higher_is_better = False
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        _, beside = ranking.relevant_before_and_in_tie(self.relevance_level)
        # The largest of r places drawn from 1 ... n has the mean r (n + 1) / (r + 1).
        last = ranking.first - 1 + beside * (ranking.tied + 1) / (beside + 1)
        rank = torch.where(ranking.tied > 0, last, (ranking.num_candidates + 1).unsqueeze(-1))
        return only(ranking.relevant(self.relevance_level), rank).amax(-1)


class RankingLoss(BinaryMetric):
    r"""Ranking loss: the share of wrongly ordered pairs.

    :math:`\frac{1}{R N} \sum_{i \in rel} \sum_{j \notin rel} [rank_i > rank_j]`. A pair has one of the R relevant
    candidates and one of the N irrelevant candidates in the list. Lower is better. A tied pair counts half under
    ``ties="expected"``. A relevant candidate that was not retrieved ranks after all others. A query without a pair is
    empty, and a query for which nothing was retrieved has no value. scikit-learn's ``label_ranking_loss`` is
    ``ties="pessimistic"``.

    Source:
        Schapire and Singer, BoosTexter: a boosting-based system for text categorization, Machine Learning 39, 2000.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RankingLoss().score(torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 0, 1, 0]]))
        tensor([0.2500], dtype=torch.float64)
    """

    name = "rankingloss"
    higher_is_better = False
    top_k: None = None

    def empty(self, ranking: Ranking) -> Tensor:
        return super().empty(ranking) | nothing_irrelevant(ranking, self.relevance_level)

    def measure(self, ranking: Ranking) -> Tensor:
        before, beside = ranking.relevant_before_and_in_tie(self.relevance_level)
        hits = self.hits(ranking).unsqueeze(-1)
        irrelevant = ranking.num_candidates.unsqueeze(-1) - hits
        ahead = ranking.first - 1 - before  # irrelevant candidates before the tie group
        # Right are the pairs with an irrelevant candidate after the tie group, and half of those within it.
        right = irrelevant - ahead - (ranking.tied - beside) / 2
        right = only(ranking.hit(self.relevance_level), right).sum(-1)
        return 1 - ratio(right, irrelevant.squeeze(-1) * ranking.num_relevant(self.relevance_level))


class OPA(RankingMetric):
    r"""Ordered pair accuracy: the share of pairs with different grades in the right order.

    :math:`OPA = \frac{\sum_{g_i > g_j} [rank_i < rank_j]}{|\{(i, j): g_i > g_j\}|}`, with :math:`g_i` the grade of
    candidate i. Candidates are the list and the candidates of positive grade that were not retrieved. The latter rank
    after the list, tied with each other. A tied pair counts half under ``ties="expected"``. A query without a pair is
    empty. But if it has positive grades and nothing was retrieved, it scores 0.

    With ``gain`` a pair weighs as much as its better candidate: both sums have the factor :math:`gain_i`. The weights
    are a function of the grade, so candidates of one grade have one weight.

    Unjudged candidates, with a negative grade or none, count as grade 0. There are no bounds for them, because the
    number of pairs depends on which of them were retrieved.

    Source:
        TensorFlow Ranking, ``OPAMetric``.

    Args:
        gain: None, all pairs weigh the same; or the weight of a pair by the grade of its better candidate:
            "linear", "exponential", a callable or a table, as the gain of :class:`DCG`.
        average: "query", the mean over queries; "pair", the share of all pairs of all queries: a query weighs as much
            as its pairs.
        pairs: "all", pairs of all these candidates; "retrieved", pairs of two retrieved candidates only.

    Raises:
        ValueError: ``pairs`` is unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.OPA().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 2, 0]]))  # one pair of three is wrong
        tensor([0.6667], dtype=torch.float64)
        >>> tr.OPA(gain="linear").score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 2, 0]]))  # (1 + 2) / 5
        tensor([0.6000], dtype=torch.float64)
    """

    name = "opa"
    takes_unjudged_for = ("irrelevant", "condensed")
    top_k: None = None

    pairs: Literal["all", "retrieved"] = one_of(default="all")
    gain: Described[GainOption | None] = parameter(default=None, check=checked_weighing)
    average: Literal["query", "pair"] = one_of(default="query")

    @property
    def weighing(self) -> Gain:
        """The function from the grade of the better candidate to the weight of a pair."""
        return POSITIVE if self.gain is None else gain_of(self.gain)

    def need(self) -> Need:
        return Need(relevant=True)

    def per_query(self, ranking: Ranking) -> Values:
        if self.pairs == "retrieved":
            ranking = replace(ranking, valid=ranking.valid & (ranking.tied > 0))
        return super().per_query(ranking)

    def empty(self, ranking: Ranking) -> Tensor:
        nothing_retrieved = (ranking.num_candidates == 0) & _positive(ranking).any(-1)
        return (different_grades(ranking, self.weighing) == 0) & ~nothing_retrieved

    @property
    def weighs_lists(self) -> bool:
        # Irrelevant candidates of the list are in pairs.
        return self.average == "pair"

    def weight(self, ranking: Ranking) -> Tensor | None:
        # A mean of ratios, weighted by their denominators, is the ratio of the sums.
        return super().weight(ranking) if self.average == "query" else different_grades(ranking, self.weighing)

    def measure(self, ranking: Ranking) -> Tensor:
        pairs = different_grades(ranking, self.weighing)
        # Candidates that were not retrieved are tied with each other, also in a ranking without other ties.
        right = _in_order(ranking if self.ties == "expected" else ranking.resolved(self.ties), self.weighing)
        if self.ties == "expected":
            # The best and the worst order of a tie group reverse each of its pairs, so their mean counts a pair half.
            lacking = _positive(ranking) & ~ranking.retrieved()  # one tie group after the list
            among = lacking.sum(-1, keepdim=True) > 1
            # Both orders are needed only for queries with ties.
            rows = marked_rows(among if ranking.untied else among | (ranking.tied > 1))
            if len(rows):
                part = ranking.take(rows)
                best, worst = (_in_order(part.resolved(ties), self.weighing) for ties in ("optimistic", "pessimistic"))
                right[rows] = (best + worst) / 2
        return torch.where(ranking.num_candidates == 0, 0.0, ratio(right, pairs))


@cached
def _positive(ranking: Ranking) -> Tensor:
    """bool [query, entry]: whether a candidate has a positive grade."""
    return ranking.valid & (ranking.grade > 0)


@cached
def different_grades(ranking: Ranking, gain: Gain) -> Tensor:
    """float64 [query]: number of pairs of candidates with different grades, each times the gain of the larger grade."""
    positive = _positive(ranking)
    several = positive.sum(-1).to(ranking.first.dtype)
    zeros = ranking.num_candidates - (positive & ranking.retrieved()).sum(-1)
    if (levels := ranking.levels) is not None:
        return _over_levels(ranking, gain, levels, zeros)
    grade, begins, _ = grade_classes(ranking)
    position = torch.arange(grade.shape[1], device=grade.device)
    if gain is not POSITIVE:
        lower = zeros.unsqueeze(-1) + several.unsqueeze(-1) - run_bounds(begins)[1]
        wide = grade.to(several.dtype)
        return only(grade > 0, gain(torch.where(grade > 0, wide, 1)) * lower).sum(-1)
    # Each entry adds its pairs with earlier entries of the same grade.
    alike = only(grade > 0, position - run_bounds(begins)[0]).sum(-1)
    # Pairs of a positive grade and 0, and pairs of different positive grades.
    return several * zeros + several * (several - 1) / 2 - alike


def _over_levels(ranking: Ranking, gain: Gain, levels: int, lower: Tensor) -> Tensor:
    """:func:`different_grades` for the grades 1, ..., ``levels``, with ``lower`` [query] candidates of grade 0."""
    total = torch.zeros_like(lower)
    reached = [ranking.num_relevant(level) for level in range(1, levels + 1)] + [total]
    gains = gain(torch.arange(1, levels + 1, dtype=lower.dtype, device=lower.device)).tolist()
    for worth, here, above in zip(gains, reached, reached[1:]):
        total = total + worth * (here - above) * lower
        lower = lower + here - above
    return total


@cached
def grade_classes(ranking: Ranking) -> tuple[Tensor, Tensor, Tensor]:
    """Positive grades in descending order, then 0 for all others; the starts of their runs; the class of each entry.

    Classes are numbered from 0, the class of the largest grade.
    """
    grade, order, begins = descending(only(_positive(ranking), ranking.grade))
    return grade, begins, torch.empty_like(order).scatter_(-1, order, begins.cumsum(-1) - 1)


def _in_order(ranking: Ranking, gain: Gain) -> Tensor:
    """float64 [query]: number of pairs with the higher grade first, each times its gain, in rankings without ties."""
    positive = _positive(ranking)
    hits = (positive & ranking.retrieved()).to(ranking.first.dtype)
    later = ranking.num_candidates.unsqueeze(-1) - ranking.first
    # Entries are in rank order: found.sum - found.cumsum of the later candidates have positive grades.
    so_far = running_sum(hits)
    zeros = later - so_far[:, -1:] + so_far
    # Numbers of pairs are integers, which are added exactly.
    worth = positive.to(hits.dtype) if gain is POSITIVE else only(positive, ranking.gains(gain))
    if (levels := ranking.levels) is not None:
        among = _descents(ranking, worth, levels)
    else:
        among = _ascents(grade_classes(ranking)[2], positive, worth)
    return only(hits > 0, zeros * worth).sum(-1) + among


def _descents(ranking: Ranking, worth: Tensor, levels: int) -> Tensor:
    """Sum, over pairs of entries in which the first has the higher of two grades, of the first's ``worth``: [query].

    The grades are 0, ..., ``levels``; pairs with grade 0 are left out. ``worth`` is float64 [query, entry].
    """
    total = torch.zeros_like(ranking.num_candidates)
    for level in range(1, levels):
        above = ranking.relevant(level + 1)
        total += only(ranking.relevant(level) ^ above, running_sum(only(above, worth))).sum(-1)
    return total


def _ascents(level: Tensor, counted: Tensor, worth: Tensor) -> Tensor:
    """Sum, over pairs of counted elements in which the first has the lower level, of the first's ``worth``: [query].

    float64, as ``worth`` [query, element], which is 0 for elements that are not counted.

    The levels of such a pair agree in their upper binary digits. At the first digit that differs, the earlier element
    has 0 and the later one 1. So one pass for each digit counts all pairs, over elements grouped by the digits above.
    """
    total = torch.zeros_like(worth[:, 0])
    for digit in range(greatest(level, level.shape[1] - 1).bit_length()):
        upper = level >> (digit + 1)
        # Stable: within a group the elements stay in the order of the row.
        order = by_key(upper)
        has = ((level >> digit) & 1).gather(-1, order) > 0
        real = counted.gather(-1, order)
        earlier = torch.where(has, 0, worth.gather(-1, order))
        so_far = torch.nn.functional.pad(running_sum(earlier), (1, 0))
        # The worth of elements with digit 0 before each element, less that of elements before its group.
        ahead = so_far[:, :-1] - so_far.gather(-1, run_bounds(run_starts(upper.gather(-1, order)))[0])
        total = total + only(real & has, ahead).sum(-1)
    return total
