"""Incomplete data: judged, clicked or ranked in part; and counts of what there is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from torchrank.formulas.gains import POSITIVE, discount_of
from torchrank.formulas.judgment_bounds import UNEQUAL
from torchrank.formulas.random_ranking import CutoffTie, hypergeometric
from torchrank.hardware.devices import greatest, widened, widest_float
from torchrank.layouts.canonical import BLOCK, Need, buckets
from torchrank.layouts.checks import tensor_of
from torchrank.metrics.base import RankingMetric, RetrievedMetric
from torchrank.metrics.binary import BinaryMetric, uncounted
from torchrank.metrics.graded import DCG, GradedMetric
from torchrank.metrics.item_lists import PerUserMetric, Recommended
from torchrank.names.arguments import number, warn
from torchrank.names.parameters import flag, one_of
from torchrank.names.types import Aggregation, Array, Target
from torchrank.ranking.ranking import Ranking, marked_rows, only, ratio

__all__ = [
    "IPS",
    "PSNDCG",
    "PSP",
    "Bpref",
    "Filled",
    "Hole",
    "InfAP",
    "Judged",
    "NumNonrelRet",
    "NumQ",
    "NumRel",
    "NumRelRet",
    "NumRet",
    "Unrepeated",
    "inverse_propensity",
    "propensities",
]


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
        top_k: relevant candidates after rank ``top_k`` count 0; None = no such rank.
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
    # Shares of tie groups may add up to a rounding error more than all ranks.
    return ranking.sum_up_to(top_k, _judged_numbers).minimum(ranking.num_within(top_k))


def _judged_numbers(ranking: Ranking) -> Tensor:
    """1 for a judged and retrieved entry, else 0: float64 [query, entry]."""
    return (ranking.judged() & ranking.retrieved()).to(ranking.first.dtype)


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

    def measure(self, ranking: Ranking) -> Tensor:
        unjudged = ranking.num_within(self.top_k) - judged_within(ranking, self.top_k)
        return unjudged / self.top_k if self.top_k else ratio(unjudged, ranking.num_candidates)


def _mean_reciprocal(ranking: Ranking, judged: Tensor, slot: Tensor, beside: Tensor, rest: Tensor) -> Tensor:
    """Mean of 1 / rank for a judged candidate, over all orders of its tie group: float64 [query, entry].

    The group has ``beside`` judged candidates, of which ``slot`` are before this one, and ``rest`` other candidates.
    The number of these others before it is negative hypergeometric. All arguments are float64 [query, entry].
    """
    means = 1 / (ranking.first + slot)  # exact without others in the tie group
    if ranking.untied:
        return means
    # Few candidates are tied with unjudged ones.
    wanted, values = marked_rows((judged & (rest > 0)).view(-1, 1), means.shape[1]), means.flatten()
    first, slot, beside, rest = (x.reshape(-1, 1)[wanted].long() for x in (ranking.first, slot, beside, rest))
    longest = greatest(rest, 0, means.shape[1])
    if len(first) * longest > LONG:
        # All judged candidates of such a tie group are wanted, and adjacent in the order of their slots. So slot 0
        # begins a group, and ``group`` is the number of the group of each candidate.
        begins = slot.squeeze(-1) == 0
        group = begins.cumsum(0) - 1
        first, beside, rest = first[begins], beside[begins], rest[begins]
        for members, width in buckets(beside.squeeze(-1), OVERHEAD, LONG):
            table = _by_recurrence(first[members], beside[members], rest[members], width, ranking.depth)
            # The row of the table for each candidate; -1 if its group is in another table.
            row = torch.full((len(first),), -1, device=first.device)
            row = row.index_copy_(0, members, torch.arange(len(members), device=first.device))[group]
            here = (row >= 0).nonzero().squeeze(-1)
            values[wanted[here]] = table[row[here], slot[here, 0]]
    else:
        values[wanted] = _by_summing(first, slot, beside, rest, longest or ranking.depth, ranking.depth).squeeze(-1)
    return values.view_as(means)


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


class NumNonrelRet(RetrievedMetric, BinaryMetric):
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


class InverseGrades(GradedMetric):
    """A measure of grades 1 / propensity. It warns of a batch in which all positive grades are 1, as raw clicks are."""

    def errors(self, ranking: Ranking) -> Tensor:
        ones, others = (ranking.valid & where for where in (ranking.grade == 1, ranking.grade > 1))
        if greatest(ones, 0) and not greatest(others, 1):  # on an accelerator nothing is read, and nobody warned
            warn(
                f"Expected grades 1 / propensity for {self.label}, got positive grades of 1 only, as raw clicks have;"
                " pass target=torchrank.inverse_propensity(target, propensities), or target / propensities of flat rows"
            )
        return super().errors(ranking)


class PropensityScored(InverseGrades):
    """A sum of gains divided by the largest possible sum, for each query or pooled over all queries.

    Args:
        average: "query", the mean of the ratios of all queries; "pooled", the sum of their gains divided by the sum of
            their largest possible gains.

    Raises:
        ValueError: an unknown average.
    """

    value_range = (0.0, 1.0)
    averages: ClassVar[tuple[str, ...]] = ("query", "pooled")

    average: Literal["query", "pooled", "scaled"] = one_of(default="query", among=lambda cls: cls.averages)

    def denominator(self, ranking: Ranking) -> Tensor:
        return self.ideal(ranking)

    @property
    def no_bounds_reason(self) -> str:
        return "" if self.average == "query" else UNEQUAL

    def weight(self, ranking: Ranking) -> Tensor | None:
        # A mean of ratios, weighted by their denominators, is the ratio of the sums.
        return super().weight(ranking) if self.average == "query" else self.ideal(ranking)


class PSP(PropensityScored):
    r"""Propensity-scored precision divided by the largest possible.

    :math:`\sum_{i \le k} gain_i / \max \sum_{i \le k} gain_i`. The grade of a relevant candidate is 1 / its propensity,
    see :func:`torchrank.inverse_propensity`. The factor 1/k of a precision cancels. The sums are linear in the gains,
    so ``ties="expected"`` is exact.

    Source:
        Jain, Prabhu and Varma, Extreme multi-label loss functions for recommendation, tagging, ranking and other
        missing label applications, KDD 2016.

    Args:
        average: "query", the mean of the ratios of all queries; "pooled", the ratio of the sums over all queries, as
            in the tables of the paper. A query with nothing relevant does not count in "pooled".
        gain: "linear", the inverse propensity itself; a callable with a name may clip it; see :class:`DCG`.

    Raises:
        ValueError: an unknown average.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.PSP(top_k=1).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2.0, 0, 8.0]]))
        tensor([0.2500], dtype=torch.float64)
    """

    name = "psp"


class PSNDCG(PropensityScored, DCG):
    r"""Propensity-scored NDCG: DCG with gains 1 / propensity, divided by the largest possible.

    :math:`\frac{1}{\max DCG@k} \sum_{i \le k} \frac{gain_i}{\log_2 (1 + i)}`, where max DCG is the largest possible
    value of the sum. The grade of a relevant candidate is 1 / its propensity, see :func:`torchrank.inverse_propensity`.
    DCG is linear in the gains, so ``ties="expected"`` is exact.

    Source:
        Jain, Prabhu and Varma, Extreme multi-label loss functions for recommendation, tagging, ranking and other
        missing label applications, KDD 2016.

    Args:
        average: "query", the mean of the ratios of all queries; "pooled", the ratio of the sums over all queries, as
            in the tables of the paper; "scaled", as in pyxclib: "pooled", but both sums of a query are first divided by
            the discounts of its first min(k, R) ranks. R is its number of relevant candidates. A query with nothing
            relevant does not count in "pooled" and "scaled".
        gain: "linear", the inverse propensity itself; a callable with a name may clip it; see :class:`DCG`.
        discount: "log2", "reciprocal" or a callable with a name; see :class:`DCG`.
        log_base: base of the logarithm, > 1.

    Raises:
        ValueError: an unknown average.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.PSNDCG(top_k=1).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2.0, 0, 8.0]]))
        tensor([0.2500], dtype=torch.float64)
    """

    name = "psndcg"
    averages = ("query", "pooled", "scaled")

    def weight(self, ranking: Ranking) -> Tensor | None:
        if self.average != "scaled":
            return super().weight(ranking)
        # With a gain of 1 for each relevant candidate, the ideal is the sum of the first min(k, R) discounts.
        return ratio(self.ideal(ranking), ranking.ideal(POSITIVE, self.discount_function, self.top_k))


class IPS(InverseGrades):
    r"""Inverse-propensity estimate of a linear measure, :math:`\sum_{i \le k} gain_i \, discount(i)`.

    The grade of an observed candidate is 1 / its propensity, see :func:`torchrank.inverse_propensity`. The mean over
    queries is then an unbiased estimate of the measure under complete observation: of the hits in the first k ranks, or
    of DCG. The sum is linear in the gains, so ``ties="expected"`` is exact. A query without observations counts 0.
    Candidates that were not retrieved add nothing.

    Source:
        Schnabel et al., Recommendations as treatments, ICML 2016; of ranking measures, Joachims, Swaminathan and
        Schnabel, Unbiased learning-to-rank with biased feedback, WSDM 2017. Self-normalised: Swaminathan and Joachims,
        The self-normalized estimator for counterfactual learning, NIPS 2015; for each query: Yang et al., Unbiased
        offline recommender evaluation for missing-not-at-random implicit feedback, RecSys 2018.

    Args:
        discount: "none", 1 at every rank; "log2", 1 / log2(1 + rank); "reciprocal", 1 / rank; or a callable with a
            name, from ranks float64 to discounts.
        self_normalized: divide by the sum of the gains of all observed candidates, retrieved or not: True, the sum over
            all queries by the sum over all queries (SNIPS); "query", each query by its own sum.
        gain: "linear", the inverse propensity itself; a callable with a name may clip it; see :class:`DCG`.

    Raises:
        ValueError: an unknown discount or ``self_normalized``.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, inverse = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2.0, 0, 8.0]])
        >>> tr.IPS(top_k=1).score(scores, inverse), tr.IPS(top_k=1, self_normalized=True).score(scores, inverse)
        (tensor([2.], dtype=torch.float64), tensor([0.2000], dtype=torch.float64))
        >>> clicks, seen = torch.tensor([[1, 0, 1]]), torch.tensor([[0.5, 0.25, 0.125]])  # seen: probability to be seen
        >>> tr.IPS(top_k=1).score(scores, tr.inverse_propensity(clicks, seen))  # a click here counts for two
        tensor([2.], dtype=torch.float64)
    """

    name = "ips"

    discount: Literal["none", "log2", "reciprocal"] | Callable[[Tensor], Tensor] = one_of(default="none")
    self_normalized: bool | Literal["query"] = one_of(False, True, "query", default=False)

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        return discount_of(self.discount)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.total_gain(self.gain_function) == 0

    def denominator(self, ranking: Ranking) -> Tensor | None:
        return ranking.total_gain(self.gain_function) if self.self_normalized else None

    @property
    def no_bounds_reason(self) -> str:
        return UNEQUAL if self.self_normalized is True else ""

    def weight(self, ranking: Ranking) -> Tensor | None:
        # As in PropensityScored.weight: the weighted mean of the ratios is the ratio of the sums.
        return ranking.total_gain(self.gain_function) if self.self_normalized is True else super().weight(ranking)


def propensities(counts: Array, num_samples: int, *, a: float = 0.55, b: float = 1.5) -> Tensor:
    r"""Propensities of items to be observed if they are relevant, :math:`1 / (1 + C (n_i + b)^{-a})`, after Jain et al.

    :math:`n_i` is the count of item i, N the number of samples, and :math:`C = (\ln N - 1) (b + 1)^a`. The authors
    fitted a = 0.5, b = 0.4 to Wikipedia and a = 0.6, b = 2.6 to Amazon. The defaults are for other data.

    Source:
        Jain, Prabhu and Varma, KDD 2016.

    Also in:
        pyxclib's ``compute_inv_propesity``, which returns the inverse.

    Args:
        counts: [item], the number of times that each item was observed as relevant in the training data.
        num_samples: N, the number of training samples (users, documents); at least 3, because C must be positive.
        a: how fast the propensity grows with the count; > 0.
        b: added to every count; > 0.

    Returns:
        float64 [item].

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.propensities(torch.tensor([0, 10, 1000]), num_samples=10_000)
        tensor([0.0842, 0.2199, 0.7669], dtype=torch.float64)
    """
    number("num_samples", num_samples, above=math.e)  # ln N - 1, and with it C, is positive
    number("a", a, above=0)
    number("b", b, above=0)
    counts = tensor_of(counts)
    if not isinstance(counts, Tensor) or counts.dim() != 1 or counts.is_complex():
        got = list(counts.shape) if isinstance(counts, Tensor) else type(counts).__name__
        raise ValueError(f"Expected counts to be a tensor [item], a number for each item, got {got}")
    c = (math.log(num_samples) - 1) * (b + 1) ** a
    return 1 / (1 + c * (widened(counts.detach()) + b) ** -a)


def inverse_propensity(target: Target, propensities: Array) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """A target for metrics with the grade 1 / propensity for relevant candidates, from a target of any layout.

    Positive grades of a dense target or of triples are multiplied by the inverse propensity. Irrelevant and unjudged
    candidates keep their grades.

    Args:
        target: grades [query, item]; or the relevant item of each query, int [query]; or several relevant items, int
            [query, entry], negative = none; or a list of one id tensor per query; or a (query, item) or (query, item,
            grade) tuple of 1-D tensors. A matrix with a column for each propensity is read as grades.
        propensities: floating [item], or [query, item] if they differ between queries; > 0.

    Returns:
        float64 [query, item] for dense grades; else a (query, item, grade) tuple.

    Raises:
        TypeError, ValueError: the arguments do not fit together.

    Example:
        >>> import torch, torchrank as tr
        >>> propensity = torch.tensor([0.5, 0.25, 0.125])
        >>> tr.inverse_propensity(torch.tensor([[1, 0, 1]]), propensity)
        tensor([[2., 0., 8.]], dtype=torch.float64)
        >>> tr.inverse_propensity([torch.tensor([1])], propensity)
        (tensor([0]), tensor([1]), tensor([4.], dtype=torch.float64))
    """
    propensities = tensor_of(propensities)
    target = target if isinstance(target, list | tuple) else tensor_of(target)
    if not isinstance(propensities, Tensor) or not propensities.is_floating_point() or propensities.dim() not in (1, 2):
        got = getattr(propensities, "dtype", type(propensities).__name__)
        raise TypeError(f"Expected propensities to be floating [item] or [query, item], got {got}")
    if not bool((propensities > 0).all()):
        raise ValueError(f"Expected propensities > 0, got {propensities.min().item()}")
    inverse = 1 / widened(propensities.detach())
    items = propensities.shape[-1]
    if isinstance(target, Tensor) and target.dim() == 2 and target.shape[1] == items:
        # Zeros are set, not multiplied, because an inverse may be infinite. Negative grades mean unjudged and stay.
        return torch.where(target == 0, 0.0, target * torch.where(target < 0, 1.0, inverse))
    if isinstance(target, Tensor) and target.shape == propensities.shape and items > 2 and not (target // 2).any():
        warn(
            "Read target as the relevant item of each query, got only 0 and 1, one for each propensity; if these are"
            " clicks in flat rows, pass target / propensities to the metric"
        )
    query, item, grade = _triples(target, inverse.device)
    # The metric reports pairs outside the propensities; clamping makes them safe to look up.
    column = item.clamp(0, items - 1)
    row = query.clamp(0, len(inverse) - 1)
    inverse_of_pair = inverse[column] if inverse.dim() == 1 else inverse[row, column]
    # ~(grade <= 0) rather than grade > 0, so that a NaN stays NaN for the metric to report.
    return query, item, torch.where(~(grade <= 0), grade * inverse_of_pair, grade)


def _triples(target: Any, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """(query, item, grade) of a target of ids or pairs, each [pair]."""
    target = type(target)(map(tensor_of, target)) if isinstance(target, list | tuple) else target
    ids = isinstance(target, Tensor) and not target.is_floating_point() and target.dtype != torch.bool
    if ids and target.dim() in (1, 2):
        items = target.to(device).long()
        items = items.unsqueeze(-1) if items.dim() == 1 else items
        query = torch.arange(len(items), device=device).repeat_interleave(items.shape[1])
        item = items.flatten()
        is_id = item >= 0
        pairs: Any = (query[is_id], item[is_id])
    elif isinstance(target, list) and all(isinstance(x, Tensor) and x.dim() == 1 for x in target):
        sizes = torch.tensor([len(x) for x in target], dtype=torch.int64, device=device)
        query = torch.arange(len(target), device=device).repeat_interleave(sizes)
        item = torch.cat([torch.empty(0, dtype=torch.int64, device=device), *(x.to(device) for x in target)])
        pairs = (query, item.long())
    elif isinstance(target, tuple) and len(target) in (2, 3) and all(isinstance(x, Tensor) for x in target):
        pairs = tuple(x.to(device) for x in target)
    else:
        got = f"shape {list(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
        rows = isinstance(target, Tensor) and target.dim() == 1
        way_out = "; of flat rows, pass target / propensities to the metric" if rows else ""
        raise ValueError(
            "Expected grades [query, item] with an item for each propensity, ids [query], a list of id tensors or a"
            f" (query, item[, grade]) tuple, got {got}{way_out}"
        )
    grade = pairs[2] if len(pairs) == 3 else torch.ones_like(pairs[1])
    return pairs[0], pairs[1], widened(grade)
