"""Measures that know that not everything was judged.

A candidate of grade 0 or above is judged. One of grade -1 was in the pool from which some were drawn for judging, and
was not drawn; one below -1, or that a layout does not name, was outside the pool.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchrank.lists import BLOCK, Need
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import BinaryMetric, uncounted
from torchrank.pieces import ratio
from torchrank.ranking import Ranking

# trec_eval's smoothing of InfAP, so that a rank with nothing judged before it has a precision.
EPSILON = 1e-5


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

    Also in:
        trec_eval, pytrec_eval (``bpref``), ir_measures (``Bpref``); ranx (``bpref``), NaN where nothing is judged
        irrelevant; TensorFlow Ranking (``BPrefMetric``), where ``use_trec_version=False`` divides by R.

    Args:
        relevance_level: a grade at or above it is relevant, one from 0 up to it is irrelevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``unjudged``, ``validate_args``: as
            :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Bpref().score(torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 0, -1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "bpref"
    takes_top_k = False

    def need(self) -> Need:
        return Need()

    def measure(self, ranking: Ranking) -> Tensor:
        relevant = ranking.num_relevant(self.relevance_level)
        irrelevant = _judged(ranking) & ~ranking.relevant(self.relevance_level)
        before, beside = ranking.around(irrelevant & (ranking.tied > 0))
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

    Also in:
        trec_eval, pytrec_eval (``infAP``), ir_measures (``infAP``).

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
    takes_top_k = False

    def need(self) -> Need:
        return Need()

    def measure(self, ranking: Ranking) -> Tensor:
        found, listed = ranking.found(self.relevance_level), ranking.tied > 0
        judged = _judged(ranking) & listed
        hits, relevant = ranking.around(found)
        known, beside = ranking.around(judged)
        others, pooled = ranking.around(ranking.valid & (ranking.grade < 0) & (ranking.grade >= -1) & listed)
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

    Also in:
        ir_measures (``Judged``), where also a negative grade counts as a judgment, and queries without any are left
        out; trec_eval (``unj``), the unjudged in the first k divided by k: 1 less this value if k were retrieved.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Judged(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, -1, 1]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "judged"
    takes_unjudged_for = ("irrelevant",)

    def __init__(self, top_k: int | None = None, **kwargs: Any) -> None:
        super().__init__(top_k, **kwargs)

    def need(self) -> Need:
        return Need(self.top_k)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_candidates == 0

    def measure(self, ranking: Ranking) -> Tensor:
        length = ranking.num_candidates if self.top_k is None else ranking.num_candidates.clamp_max(self.top_k)
        return ratio(torch.where(_judged(ranking), ranking.share(self.top_k), 0.0).sum(-1), length)


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
    wanted = (where & (rest > 0)).nonzero(as_tuple=True) if alone.device.type == "cpu" else (slice(None),)
    first, slot, beside, rest = (x[wanted].long().reshape(-1, 1) for x in (ranking.first, slot, beside, rest))
    longest = ranking.depth if alone.device.type != "cpu" else int(rest.max()) if len(rest) else 0
    factorial = torch.arange(1, ranking.depth + 3, dtype=alone.dtype, device=alone.device).lgamma()

    def choose(n: Tensor, k: Tensor) -> Tensor:
        """Logarithm of the number of ways, of 1 if there is none."""
        n, k = n.clamp(0, ranking.depth), k.clamp_min(0)
        return factorial.take(n) - factorial.take(torch.minimum(k, n)) - factorial.take((n - k).clamp_min(0))

    total, chance = torch.zeros_like(first, dtype=alone.dtype), torch.zeros_like(first, dtype=alone.dtype)
    all_ways, behind = choose(beside + rest, rest), beside - 1 - slot
    step = max(1, BLOCK // 4 // max(1, len(first)))
    for start in range(0, longest + 1, step):
        between = torch.arange(start, min(start + step, longest + 1), device=alone.device)
        ways = choose(slot + between, between) + choose(behind + rest - between, rest - between)
        weight = torch.where(between <= rest, (ways - all_ways).exp(), 0.0)
        chance += weight.sum(-1, keepdim=True)  # 1, but for rounding, which is the same in both
        total += (weight / (first + slot + between)).sum(-1, keepdim=True)
    alone[wanted] = ratio(total, chance).reshape(alone[wanted].shape)
    return alone
