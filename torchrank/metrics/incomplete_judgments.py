"""Measures that know that not everything was judged.

A candidate of grade 0 or above is judged. One of grade -1 was in the pool from which some were drawn for judging, and
was not drawn; one below -1, or that a layout does not name, was outside the pool.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free, widest_float
from torchrank.layouts.canonical import BLOCK, Need
from torchrank.layouts.cutting import groups
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import BinaryMetric, uncounted
from torchrank.ranking.arithmetic import ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["Bpref", "InfAP", "Judged"]

# trec_eval's smoothing of InfAP, so that a rank with nothing judged before it has a precision.
EPSILON = 1e-5


# From so many terms on the mean reciprocal ranks of a block follow from each other.
LONG = 2**18


# Padding that costs as much as another rectangle.
OVERHEAD = 2**15


class Bpref(BinaryMetric):
    r"""Binary preference: :math:`\frac{1}{R} \sum_{i \in rel} 1 - \frac{\min(n_i, R)}{\min(N, R)}`.

    R of the judged candidates are relevant and N are not, retrieved or not, and :math:`n_i` of the latter were
    retrieved before the relevant one i; a relevant one with none before it counts 1, one not retrieved 0. What is
    unjudged has no part in it. Under ``ties="expected"`` the mean over all orders, in which the irrelevant ones of a
    block that come before a relevant one of it are 0, 1, ... all of them, equally often. ``aggregation="geometric"``
    gives trec_eval's ``gm_bpref``.

    Source:
        Buckley and Voorhees, Retrieval evaluation with incomplete information, SIGIR 2004, as trec_eval has computed it
        since version 8: the paper divides by R where trec_eval divides by min(N, R).

    Args:
        relevance_level: a grade at or above it is relevant, one from 0 up to it is irrelevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``unjudged``, ``validate_args``: as
            :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Bpref().score(torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 0, -1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {
        "parse": "binary_preference",
        "trec_eval": {"bpref": "", "gm_bpref": "(aggregation=geometric)"},
        "ir_measures": "Bpref",
        "ranx": {"bpref": "NaN where nothing is judged irrelevant"},
        "TensorFlow Ranking": {"BPrefMetric": "whose `use_trec_version=False` divides by R"},
    }
    name = "bpref"
    top_k: None = None

    def need(self) -> Need:
        return Need()

    def measure(self, ranking: Ranking) -> Tensor:
        relevant = ranking.num_relevant(self.relevance_level)
        irrelevant = _judged(ranking) & ~ranking.relevant(self.relevance_level)
        before, beside = ranking.before_and_in_tie(irrelevant & (ranking.tied > 0))
        most = relevant.unsqueeze(-1)
        least = torch.minimum(irrelevant.sum(-1, keepdim=True), most)
        # min(n, R) is R less what n leaves of it, for n = before, before + 1, ... before + beside.
        violated = ratio(most - uncounted(most - before, beside), least)
        return self.per_relevant(ranking, 1 - violated)


class InfAP(BinaryMetric):
    r"""Inferred AP: :math:`\frac{1}{R} \sum_{i \in rel} \frac{1}{i} \left(1 + d_i \frac{r_i + e}{j_i + 2 e}\right)`.

    Before rank i there are :math:`d_i` candidates of the pool, :math:`j_i` of them judged and :math:`r_i` of these
    relevant; e is 1e-5. So the pool is taken to be as relevant as its judged part, and what is outside it irrelevant:
    where a random part of the pool was judged, this is an estimate of the average precision had all been judged.

    Under ``ties="expected"`` the exact mean over all orders. It takes time proportional to the unjudged candidates of a
    block of ties for each judged one of it; on an accelerator, which cannot look for ties without waiting, to the
    square of the length of the lists.

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

    known_as = {"parse": "inferred_ap inferred_average_precision", "trec_eval": "infAP", "ir_measures": "infAP"}
    name = "infap"
    top_k: None = None

    def need(self) -> Need:
        return Need()

    def measure(self, ranking: Ranking) -> Tensor:
        found, listed = ranking.found(self.relevance_level), ranking.tied > 0
        judged = _judged(ranking) & listed
        hits, relevant = ranking.before_and_in_tie(found)
        known, beside = ranking.before_and_in_tie(judged)
        others, pooled = ranking.before_and_in_tie(ranking.valid & (ranking.grade < 0) & (ranking.grade >= -1) & listed)
        # The judged candidates of a block are its first, second, ... in some order, each as likely to be relevant as
        # any other, with ``slot`` before it. Between them stand the rest, of which a share is in the pool.
        slot = torch.where(judged, judged.cumsum(-1) - 1 - known, 0.0)
        rest, best = ranking.tied - beside, ranking.first + slot
        share, reciprocal = ratio(pooled, rest), _mean_reciprocal(ranking, judged, slot, beside, rest)
        density = (hits + slot * ratio(relevant - 1, beside - 1) + EPSILON) / (known + slot + 2 * EPSILON)
        before = (known + slot + others - share * best) * reciprocal + share  # pool before it / rank, on average
        value = torch.where(judged, ratio(relevant, beside) * (reciprocal + before * density), 0.0)
        return ratio(value.sum(-1), ranking.num_relevant(self.relevance_level))


class Judged(RankingMetric):
    r"""The share of the first k ranks that is judged: :math:`\frac{1}{\min(k, n)} \sum_{i \le k} [grade_i \ge 0]`.

    For lists of length n. A low value says that another measure at k may be far from what it is. A query of which
    nothing was retrieved is empty; one without any judgment is not, and has the value 0.

    Source:
        ir_measures (MacAvaney et al., Streamlining evaluation with ir-measures, ECIR 2022), after OpenNIR.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Judged(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, -1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {
        "ir_measures": {
            "Judged": "where also a negative grade counts as a judgment, and queries without any are left out"
        },
        "trec_eval": {"unj_{k}": "~ 1 - judged@k, but for lists shorter than k"},
        "trec_eval9": {},
    }
    name = "judged"
    takes_unjudged_for = ("irrelevant",)

    def need(self) -> Need:
        return Need(self.top_k)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_candidates == 0

    def measure(self, ranking: Ranking) -> Tensor:
        length = ranking.num_candidates if self.top_k is None else ranking.num_candidates.clamp_max(self.top_k)
        return ratio(torch.where(_judged(ranking), ranking.prob_in_top_k(self.top_k), 0.0).sum(-1), length)


def _judged(ranking: Ranking) -> Tensor:
    """bool [query, entry]: known to be relevant or not, retrieved or not."""
    return ranking.valid & (ranking.grade >= 0)


def _mean_reciprocal(ranking: Ranking, where: Tensor, slot: Tensor, beside: Tensor, rest: Tensor) -> Tensor:
    """Mean of 1 / rank for a candidate with ``slot`` of the ``beside`` judged ones of its block before it.

    How many of the ``rest`` of the block also are before it is negative hypergeometric. All are float64 [query, entry].
    """
    alone = 1 / (ranking.first + slot)
    if ranking.untied:
        return alone
    # Looking at values costs nothing on a CPU, and few candidates are tied with unjudged ones.
    looks = reading_is_free(alone)
    wanted = (where & (rest > 0)).nonzero(as_tuple=True) if looks else (slice(None),)
    first, slot, beside, rest = (x[wanted].long().reshape(-1, 1) for x in (ranking.first, slot, beside, rest))
    longest = ranking.depth if not looks else int(rest.max()) if len(rest) else 0
    if looks and len(first) * longest > LONG:
        begins = slot.squeeze(-1) == 0  # every judged candidate of a block is wanted, in the order of slots
        block = begins.cumsum(0) - 1
        first, beside, rest = first[begins], beside[begins], rest[begins]
        for some, width in groups(beside.squeeze(-1), OVERHEAD, LONG):
            table = _by_recurrence(first[some], beside[some], rest[some], width, ranking.depth)
            number = torch.full((len(first),), -1, device=first.device).index_copy_(
                0, some, torch.arange(len(some), device=first.device)
            )[block]
            here = (number >= 0).nonzero().squeeze(-1)
            means = table[number[here], slot[here, 0]]
            alone[wanted] = alone[wanted].index_copy_(0, here, means)
        return alone
    alone[wanted] = _by_summing(first, slot, beside, rest, longest, ranking.depth).reshape(alone[wanted].shape)
    return alone


def _by_recurrence(first: Tensor, beside: Tensor, rest: Tensor, width: int, depth: int) -> Tensor:
    """The mean of 1 / rank in blocks for the slots 0, 1, ...: float64 [block, slot], of int64 [block, 1].

    Let B be ``beside``, R ``rest``, c the candidates before the block and A(i) the mean for the i-th judged one. The
    chances w(i, x) of its place x in the block obey (R + i + 1 - x) i w(i + 1, x) = (B - i) (x - i) w(i, x). Divided by
    c + x and summed, A(i + 1) = (B - (B - i) (i + c) A(i)) / (i (R + i + 1 + c)). At some i the factor of A(i) falls
    below 1, and before it the inverse is below 1: from there errors fade both ways.
    """
    c, b, r = ((x.squeeze(-1)).to(torch.float64) for x in (first - 1, beside, rest))
    slope = b - r - 1 - 2 * c
    start = ((slope + (slope**2 + 8 * b * c).sqrt()) / 4).ceil().clamp_min(1).minimum(b).long().unsqueeze(-1)
    middle = _by_summing(first, start - 1, beside, rest, int(rest.max()), depth)
    table = torch.zeros((len(first), width), dtype=torch.float64, device=first.device).scatter_(1, start - 1, middle)
    value, begin = table.T.contiguous(), start.squeeze(-1)
    for i in range(1, width):  # from A(i) to A(i + 1)
        following = (b - (b - i) * (i + c) * value[i - 1]) / (i * (r + i + 1 + c))
        value[i] = torch.where((begin <= i) & (i < b), following, value[i])
    for i in range(width - 1, 0, -1):  # and back
        before = (b - i * (r + i + 1 + c) * value[i]) / ((b - i) * (i + c)).clamp_min(1)
        value[i - 1] = torch.where(i < begin, before, value[i - 1])
    return value.T


def _by_summing(first: Tensor, slot: Tensor, beside: Tensor, rest: Tensor, longest: int, depth: int) -> Tensor:
    """The mean of 1 / rank as the sum over how many of the ``rest`` are before: float64 [candidate, 1], of int64."""
    dtype = widest_float(first.device)
    factorial = torch.arange(1, depth + 3, dtype=dtype, device=first.device).lgamma()

    def choose(n: Tensor, k: Tensor) -> Tensor:
        """Logarithm of the number of ways, of 1 if there is none."""
        n, k = n.clamp(0, depth), k.clamp_min(0)
        return factorial.take(n) - factorial.take(torch.minimum(k, n)) - factorial.take((n - k).clamp_min(0))

    total, chance = torch.zeros_like(first, dtype=dtype), torch.zeros_like(first, dtype=dtype)
    all_ways, behind = choose(beside + rest, rest), beside - 1 - slot
    step = max(1, BLOCK // 4 // max(1, len(first)))
    for start in range(0, longest + 1, step):
        between = torch.arange(start, min(start + step, longest + 1), device=first.device)
        ways = choose(slot + between, between) + choose(behind + rest - between, rest - between)
        weight = torch.where(between <= rest, (ways - all_ways).exp(), 0.0)
        chance += weight.sum(-1, keepdim=True)  # 1, but for rounding, which is the same in both
        total += (weight / (first + slot + between)).sum(-1, keepdim=True)
    return ratio(total, chance)
