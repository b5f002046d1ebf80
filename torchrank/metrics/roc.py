"""The area under the ROC curve, and under its first part."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.formulas.random_ranking import CutoffTie
from torchrank.hardware.devices import running_sum
from torchrank.layouts.canonical import BLOCK, Need
from torchrank.metrics.binary import BinaryMetric, nothing_irrelevant, uncounted
from torchrank.names.parameters import number
from torchrank.names.types import EmptyAction
from torchrank.ranking.intervals import marked_rows, only, ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["AUROC", "PAP", "PartialAUC"]


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
        # For each relevant entry that is certainly in the first k: the irrelevant candidates behind its tie group, and
        # half of the irrelevant ones in it. The h hits of the tie group at the cutoff count as irrelevant here ...
        behind = length - (ranking.first + ranking.tied - 1) - (cut.before - before - beside)
        pairs = only(retrieved & (share == 1), behind + (ranking.tied - beside) / 2).sum(-1, keepdim=True)
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
