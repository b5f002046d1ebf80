"""Measures for incomplete judgments.

A candidate with a grade of 0 or above is judged. A candidate with grade -1 was in the pool of candidates to judge, but
was not drawn from it. A candidate with a lower grade, or that a layout does not name, was outside the pool.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.random_ranking import CutoffTie, hypergeometric
from torchrank.hardware.devices import widened, widest_float, worth_reading
from torchrank.layouts.canonical import BLOCK, Need, groups
from torchrank.metrics.base import RetrievedMetric
from torchrank.metrics.binary import BinaryMetric, uncounted
from torchrank.names.parameters import one_of
from torchrank.ranking.intervals import as_numbers, only, ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["Bpref", "Hole", "InfAP", "Judged"]

# trec_eval's smoothing of InfAP. It defines the precision above a rank if no candidate there is judged.
EPSILON = 1e-5

# With more terms the mean reciprocal ranks of a tie group are computed by a recurrence instead of sums.
LONG = 2**18

# Number of padding elements that cost as much as another rectangle.
OVERHEAD = 2**15


class Bpref(BinaryMetric):
    r"""Binary preference: how rarely candidates judged irrelevant precede relevant ones.

    :math:`\frac{1}{R} \sum_{i \in rel} 1 - \frac{\min(n_i, R)}{\min(N, R)}`. R of the judged candidates are relevant
    and N irrelevant, retrieved or not. :math:`n_i` of the irrelevant ones were retrieved before the relevant candidate
    i. A relevant candidate with none before it counts 1, and one that was not retrieved counts 0. So does one behind
    rank k. Unjudged candidates are ignored, but have ranks. ``aggregation="geometric"`` is trec_eval's ``gm_bpref``.

    Under ``ties="expected"`` this is the mean over all orders. If a tie group has m irrelevant candidates, then 0, 1,
    ..., m of them precede a relevant candidate of the group with equal probability.

    Source:
        Buckley and Voorhees, Retrieval evaluation with incomplete information, SIGIR 2004, as trec_eval has computed it
        since version 8; ``normalize="relevant"``: as in the paper.

    Args:
        top_k: relevant candidates behind rank ``top_k`` count 0; None = no such rank.
        normalize: the denominator of each term: "min", min(N, R), as in trec_eval; "relevant", R, as in the paper.
        relevance_level: a grade at or above it is relevant, one from 0 up to it is irrelevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``unjudged``, ``validate_args``: as
            :class:`RankingMetric`.

    Raises:
        ValueError: ``normalize`` is unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Bpref().score(torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 0, -1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "bpref"

    normalize: Literal["min", "relevant"] = one_of(default="min")

    def need(self) -> Need:
        return Need()

    def measure(self, ranking: Ranking) -> Tensor:
        relevant = ranking.num_relevant(self.relevance_level)
        irrelevant = ranking.judged() & ~ranking.relevant(self.relevance_level)
        before, beside = ranking.before_and_in_tie(irrelevant & ranking.retrieved())
        most = relevant.unsqueeze(-1)
        least = most if self.normalize == "relevant" else torch.minimum(irrelevant.sum(-1, keepdim=True), most)
        # min(n, R) = R - max(R - n, 0). ``uncounted`` is the mean of max(R - n, 0) over n = before ... before + beside.
        lost = torch.minimum(before, most) if ranking.untied else most - uncounted(most - before, beside)
        violated = ratio(lost, least)
        if self.top_k is None:
            return self.per_relevant(ranking, 1 - violated)
        inside = ranking.prob_in_top_k(self.top_k) == 1
        value = self.per_relevant(ranking, only(inside, 1 - violated))
        return value if ranking.untied else value + self._in_cut_tie(ranking, self.top_k, before, beside, most, least)

    def _in_cut_tie(
        self, ranking: Ranking, top_k: int, before: Tensor, beside: Tensor, most: Tensor, least: Tensor
    ) -> Tensor:
        """The mean of the relevant candidates of the tie group that crosses the cutoff, over R: float64 [query].

        Let a relevant candidate and the m irrelevant ones of the group have the slots 0, 1, ..., m among themselves. It
        is equally likely in each slot. It is within the cutoff if its slot is below the number h of them that are,
        which is hypergeometric.
        """
        tie = CutoffTie.of(ranking, self.relevance_level, top_k)
        size, m, ahead = tie.of_group(ranking.tied), tie.of_group(beside), tie.of_group(before)
        h = torch.arange(min(top_k, ranking.first.shape[1]) + 1, dtype=size.dtype, device=size.device)
        h = h.expand(len(size), -1)
        chance = hypergeometric(h, size, torch.minimum(m + 1, size), tie.places)
        violated = ratio(most - uncounted(most - ahead, (h - 1).clamp_min(0)), least)  # the mean of the slots below h
        each = (chance * h * (1 - violated)).sum(-1, keepdim=True) / (m + 1)
        relevant = tie.of_group(ranking.relevant_before_and_in_tie(self.relevance_level)[1])
        return ratio(relevant * each, most).squeeze(-1)


class InfAP(BinaryMetric):
    r"""Inferred AP: average precision estimated from a judged part of the pool.

    :math:`\frac{1}{R} \sum_{i \in rel} \frac{1}{i} \left(1 + d_i \frac{r_i + e}{j_i + 2 e}\right)`. Of the candidates
    above rank i, :math:`d_i` are in the pool, :math:`j_i` judged and :math:`r_i` judged relevant; e is 1e-5. So the
    pool is assumed to be as relevant as its judged part, and candidates outside the pool irrelevant. If a random part
    of the pool was judged, this estimates the average precision under complete judgments.

    Under ``ties="expected"`` this is the exact mean over all orders. The time for each judged candidate of a tie group
    is proportional to the group's unjudged candidates. On an accelerator it is proportional to the square of the length
    of the lists, because a search for ties would wait for the device.

    Source:
        Yilmaz and Aslam, Estimating average precision with incomplete and imperfect judgments, CIKM 2006, as trec_eval
        computes it. There every grade below 0 is in the pool, as in :meth:`Ranking.from_run`; here only from -1 up.

    Args:
        relevance_level: a grade at or above it is relevant, one from 0 up to it is irrelevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``unjudged``, ``validate_args``: as
            :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.7, 0.6]]), torch.tensor([[1, -1, -2, 1]])
        >>> tr.InfAP().score(scores, target)  # (1 + (1 + 2 * 1) / 4) / 2
        tensor([0.8750], dtype=torch.float64)
    """

    name = "infap"
    top_k: None = None

    def need(self) -> Need:
        return Need()

    def measure(self, ranking: Ranking) -> Tensor:
        # In the notation of Yilmaz and Aslam, the expected precision at a relevant candidate of rank k is:
        # 1 / k + d100 / k * (rel + e) / (rel + nonrel + 2 e). All are counts above rank k, d100 of the pool. Here
        # ``judged`` is rel + nonrel.
        is_judged = ranking.judged()
        is_unjudged = ranking.valid & (ranking.grade < 0) & (ranking.grade >= -1)  # in the pool
        rel_before, rel_in_tie = ranking.before_and_in_tie(ranking.hit(self.relevance_level))
        judged_before, judged_in_tie = ranking.before_and_in_tie(is_judged)
        unjudged_before, unjudged_in_tie = ranking.before_and_in_tie(is_unjudged)
        # In any order of a tie group, one of its judged candidates is the first of them, one the second, and so on. So
        # the value is computed for each slot in this sequence: each candidate is equally likely to be there. ``slot``
        # is the number of judged candidates of the group before it. The rest of the group is mixed in at random.
        slot = only(is_judged, is_judged.cumsum(-1) - 1 - judged_before)
        rest = ranking.tied - judged_in_tie
        pool_share = ratio(unjudged_in_tie, rest)
        reciprocal = _mean_reciprocal(ranking, is_judged, slot, judged_in_tie, rest)
        rel = rel_before + slot * ratio(rel_in_tie - 1, judged_in_tie - 1)  # mean, given that this slot is relevant
        judged = judged_before + slot
        precision = (rel + EPSILON) / (judged + 2 * EPSILON)
        # k - (first + slot) candidates of the rest are before rank k, a share of them in the pool. So d100 is linear in
        # k, and the mean of d100 / k follows from the mean of 1 / k.
        d100_per_rank = (judged + unjudged_before - pool_share * (ranking.first + slot)) * reciprocal + pool_share
        value = ratio(rel_in_tie, judged_in_tie) * (reciprocal + d100_per_rank * precision)
        return ratio(only(is_judged, value).sum(-1), ranking.num_relevant(self.relevance_level))


def judged_within(ranking: Ranking, top_k: int | None) -> Tensor:
    """(Expected) number of judged candidates among the first ``top_k``: float64 [query]."""
    return ranking.sum_up_to(top_k, _judged_numbers)


def _judged_numbers(ranking: Ranking) -> Tensor:
    """1 for a judged and retrieved entry, else 0: float64 [query, entry]."""
    return as_numbers(ranking.judged() & ranking.retrieved(), ranking.first.dtype)


class Judged(RetrievedMetric):
    r"""The share of the first k ranks that is judged: :math:`\frac{1}{\min(k, n)} \sum_{i \le k} [grade_i \ge 0]`.

    n is the length of the list. If the value is low, more judgments may change other measures at k a lot. A query for
    which nothing was retrieved is empty. A query without any judgment is not empty and has the value 0.

    Source:
        ir_measures (MacAvaney et al., Streamlining evaluation with ir-measures, ECIR 2022), after OpenNIR.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Judged(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, -1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "judged"
    takes_unjudged_for = ("irrelevant",)

    def need(self) -> Need:
        return Need(self.top_k)

    def measure(self, ranking: Ranking) -> Tensor:
        judged = judged_within(ranking, self.top_k)
        return ratio(judged, ranking.num_within(self.top_k))


class Hole(RetrievedMetric):
    r"""The share of the first k ranks with an unjudged candidate: :math:`\frac{1}{k} \sum_{i \le k} [grade_i < 0]`.

    A list shorter than k is still divided by k, as in trec_eval. So this is 1 - :class:`Judged` for lists of k or more
    candidates. Without ``top_k``, k is the length of the list. Lower is better: a high value shows that other measures
    at k depend on missing judgments. A query for which nothing was retrieved has no value.

    Source:
        trec_eval, ``unj``; Thakur et al., BEIR, NeurIPS 2021, for documents without a judgment for any query.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Hole(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, -1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "hole"
    higher_is_better = False

    def need(self) -> Need:
        return Need(self.top_k)

    def measure(self, ranking: Ranking) -> Tensor:
        length = ranking.num_candidates
        judged = judged_within(ranking, self.top_k)
        return ratio(
            ranking.num_within(self.top_k) - judged,
            length if self.top_k is None else torch.full_like(length, self.top_k),
        )


def _mean_reciprocal(ranking: Ranking, judged: Tensor, slot: Tensor, beside: Tensor, rest: Tensor) -> Tensor:
    """Mean of 1 / rank for a judged candidate, over all orders of its tie group: float64 [query, entry].

    The group has ``beside`` judged candidates, of which ``slot`` are before this one, and ``rest`` other candidates.
    The number of these others before it is negative hypergeometric. All arguments are float64 [query, entry].
    """
    means = 1 / (ranking.first + slot)  # exact without others in the tie group
    if ranking.untied:
        return means
    # Few candidates are tied with unjudged ones.
    reads = worth_reading(means, means.shape[1])
    wanted = (judged & (rest > 0)).nonzero(as_tuple=True) if reads else (slice(None),)
    first, slot, beside, rest = (x[wanted].long().reshape(-1, 1) for x in (ranking.first, slot, beside, rest))
    longest = int(rest.max()) if reads and len(rest) else ranking.depth
    if reads and len(first) * longest > LONG:
        # All judged candidates of such a tie group are wanted, and adjacent in the order of their slots. So slot 0
        # begins a group, and ``group`` is the number of the group of each candidate.
        begins = slot.squeeze(-1) == 0
        group = begins.cumsum(0) - 1
        first, beside, rest = first[begins], beside[begins], rest[begins]
        for members, width in groups(beside.squeeze(-1), OVERHEAD, LONG):
            table = _by_recurrence(first[members], beside[members], rest[members], width, ranking.depth)
            # The row of the table for each candidate; -1 if its group is in another table.
            row = torch.full((len(first),), -1, device=first.device)
            row = row.index_copy_(0, members, torch.arange(len(members), device=first.device))[group]
            here = (row >= 0).nonzero().squeeze(-1)
            means[wanted] = means[wanted].index_copy_(0, here, table[row[here], slot[here, 0]])
        return means
    means[wanted] = _by_summing(first, slot, beside, rest, longest, ranking.depth).reshape(means[wanted].shape)
    return means


def _by_recurrence(first: Tensor, beside: Tensor, rest: Tensor, width: int, depth: int) -> Tensor:
    """The mean of 1 / rank in tie groups for the slots 0, 1, ...: float64 [group, slot], from int64 [group, 1].

    Let B be ``beside``, R ``rest``, c the number of candidates before the group, and A(i) the mean for the i-th judged
    candidate. Its place in the group is x with a probability w(i, x), for which

        (R + i + 1 - x) i w(i + 1, x) = (B - i) (x - i) w(i, x).

    Division by c + x and summation over x give

        A(i + 1) = (B - (B - i) (i + c) A(i)) / (i (R + i + 1 + c)).

    From some i on, the factor of A(i) is below 1. Before that i the factor of the inverse step is below 1. So the
    recurrence starts there and goes both ways, and rounding errors fade.
    """
    c, b, r = (widened(x.squeeze(-1)) for x in (first - 1, beside, rest))
    # The factor is 1 if (B - i) (i + c) = i (R + i + 1 + c), at the positive root of 2 i^2 - slope i - B c = 0.
    slope = b - r - 1 - 2 * c
    start = ((slope + (slope**2 + 8 * b * c).sqrt()) / 4).ceil().clamp_min(1).minimum(b).long().unsqueeze(-1)
    middle = _by_summing(first, start - 1, beside, rest, int(rest.max()), depth)
    table = torch.zeros((len(first), width), dtype=c.dtype, device=first.device).scatter_(1, start - 1, middle)
    value, begin = table.T.contiguous(), start.squeeze(-1)
    i = torch.arange(1, width, dtype=c.dtype, device=first.device).unsqueeze(-1)
    down, up = (b - i) * (i + c), i * (r + i + 1 + c)
    _follow(value, (begin <= i) & (i < b), b / up, down / up)  # from A(i) to A(i + 1)
    # From A(i + 1) to A(i): the same on the table upside down.
    value = value.flip(0)
    _follow(value, (i < begin).flip(0), (b / down).flip(0), (up / down).flip(0))
    return value.flip(0).T


def _follow(value: Tensor, wanted: Tensor, constant: Tensor, factor: Tensor) -> None:
    """Replace the wanted rows n + 1 of ``value`` [row, group], in place, by constant[n] - factor[n] * value[n].

    ``wanted``, ``constant`` and ``factor`` are [row - 1, group].
    """
    # A row that is kept is a constant with factor 0, so a step is one operation.
    constant, factor = torch.where(wanted, constant, value[1:]), only(wanted, factor)
    rows = value.unbind(0)
    for before, row, *of_row in zip(rows, rows[1:], constant.unbind(0), factor.unbind(0)):
        torch.addcmul(of_row[0], of_row[1], before, value=-1, out=row)


def _by_summing(first: Tensor, slot: Tensor, beside: Tensor, rest: Tensor, longest: int, depth: int) -> Tensor:
    """The mean of 1 / rank as a sum over the number of the ``rest`` before: float64 [candidate, 1], from int64.

    ``longest`` is a bound on ``rest``, and ``depth`` a bound on the ranks.
    """
    dtype = widest_float(first.device)
    factorial = torch.arange(1, depth + 3, dtype=dtype, device=first.device).lgamma()

    def choose(n: Tensor, k: Tensor) -> Tensor:
        """Logarithm of n choose k, with both clamped so that k is from 0 to n."""
        n, k = n.clamp(0, depth), k.clamp_min(0)
        return factorial.take(n) - factorial.take(torch.minimum(k, n)) - factorial.take((n - k).clamp_min(0))

    total, chance = torch.zeros_like(first, dtype=dtype), torch.zeros_like(first, dtype=dtype)
    all_ways, behind = choose(beside + rest, rest), beside - 1 - slot
    step = max(1, BLOCK // 4 // max(1, len(first)))  # terms at a time, to bound the memory
    for start in range(0, longest + 1, step):
        between = torch.arange(start, min(start + step, longest + 1), device=first.device)
        ways = choose(slot + between, between) + choose(behind + rest - between, rest - between)
        weight = only(between <= rest, (ways - all_ways).exp())
        # The probabilities sum to 1 up to rounding. Both sums are rounded alike, so their ratio is more precise.
        chance += weight.sum(-1, keepdim=True)
        total += (weight / (first + slot + between)).sum(-1, keepdim=True)
    return ratio(total, chance)
