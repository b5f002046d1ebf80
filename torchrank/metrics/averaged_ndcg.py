"""NDCG averaged over ranks that the judgments of a query choose."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.formulas.gains import Logarithmic
from torchrank.hardware.devices import running_sum
from torchrank.metrics.graded import GradedMetric
from torchrank.ranking.intervals import only, ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["RNDCG", "NDCGRel"]


# Gains with a smaller relative difference count as equal.
ROUNDING = 1e-12


class RNDCG(GradedMetric):
    r"""NDCG averaged over the ranks at which the ideal order changes its grade, :math:`\frac{1}{m} \sum_j NDCG@R_j`.

    :math:`R_j` is the number of judged candidates with one of the j largest positive gains; m is the number of such
    ranks. As in trec_eval, the whole list counts as one more rank if it is longer than the number of relevant
    candidates plus one. So the value is NaN for a list of unknown length. The discount is 1 / log2(1 + rank). The
    measure is linear in the gains, so it is exact under ties.

    Source:
        trec_eval, ``Rndcg``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RNDCG().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2, 0, 1]]))  # (1 + 2 / 2.6309) / 2
        tensor([0.8801], dtype=torch.float64)
    """

    name = "rndcg"
    value_range = (0.0, 1.0)
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        gain, discount = self.gain_function, Logarithmic(2)
        best = ranking.ideal_order(gain, None)
        # DCG and ideal DCG at every rank; the ranks R_j are selected below.
        ranks = torch.arange(1, best.shape[1] + 1, dtype=best.dtype, device=best.device)
        ideal = running_sum(best * discount(ranks))
        reached = running_sum(ranking.gains_by_rank(gain, best.shape[1]) * discount(ranks))
        # R_j are the ranks behind which the ideal order has a smaller gain.
        fall = best - torch.nn.functional.pad(best[:, 1:], (0, 1))
        ends = fall > ROUNDING * best  # a gain function can differ in the last digit for equal grades
        longer = ranking.num_candidates > (best > 0).sum(-1) + 1
        over_all_ranks = ratio((ranking.gains(gain) * ranking.mean_discount(discount, None)).sum(-1), ideal[:, -1])
        total = only(ends, ratio(reached, ideal)).sum(-1) + only(longer, over_all_ranks)
        return torch.where(ranking.num_candidates.isnan(), torch.nan, ratio(total, ends.sum(-1) + longer))


@dataclass(frozen=True)
class TimesRank:
    """A discount times the rank."""

    discount: Logarithmic

    def __call__(self, rank: Tensor) -> Tensor:
        return rank * self.discount(rank)


class NDCGRel(GradedMetric):
    r"""NDCG averaged over the ranks of the relevant candidates, :math:`\frac{1}{R} \sum_{i \in rel} NDCG@rank_i`.

    R candidates have a gain above 0. One that was not retrieved adds the DCG of the whole list, divided by the ideal
    DCG of all candidates. The discount is 1 / log2(1 + rank). Under ``ties="expected"`` it is the exact expectation.

    Source:
        trec_eval, ``ndcg_rel``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NDCGRel().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # (1 + 1.5 / 1.6309) / 2
        tensor([0.9599], dtype=torch.float64)
    """

    name = "ndcgrel"
    takes_unjudged_for = ("irrelevant", "condensed")
    value_range = (0.0, 1.0)
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        gain, discount = self.gain_function, Logarithmic(2)
        best = ranking.ideal_order(gain, None)
        width = best.shape[1]
        discounts = discount(torch.arange(1, width + 1, dtype=best.dtype, device=best.device))
        sums = torch.nn.functional.pad(running_sum(discounts), (1, 0))
        ideal = running_sum(best * discounts)
        gains = ranking.gains(gain)
        has_gain, reached = gains > 0, gains * ranking.mean_discount(discount, None)
        # A tie group has n candidates, r of them relevant, and the gains S. ``above`` is the expected DCG before it,
        # and D(p) the sum of the first p discounts d. The candidate at rank p of the group is relevant with probability
        # r / n. DCG@p then contains its own gain, and gains of others of the group between D(a) and D(p - 1):
        # E[relevant at p, DCG@p] = (r above + S d_p + pairs (D(p - 1) - D(a))) / n with pairs = S (r - 1) / (n - 1).
        n, r, (above, _) = ranking.tied, ranking.before_and_in_tie(has_gain)[1], ranking.before_and_in_tie(reached)
        total = ranking.before_and_in_tie(gains)[1]
        pairs = ratio(total * (r - 1), n - 1)
        # First the sums over all ranks of a group, to be divided by the ideal DCG of the whole list ...
        span = ranking.discount_sum(discount, None)
        between = (ranking.first + n - 1) * span - ranking.discount_sum(TimesRank(discount), None)
        each = only(has_gain, above + ratio(total * span + pairs * between, n * r)).sum(-1)
        # ... then the ranks at which the ideal DCG is still smaller. They are columns of the ideal order.
        start = sums.take((ranking.first - 1).clamp(0, width).long())
        per_rank = ranking.by_rank(r * above - pairs * start, width) + ranking.by_rank(total, width) * discounts
        per_rank = per_rank + ranking.by_rank(pairs, width) * sums[:-1]
        ideal_of_all, relevant = ideal[:, -1], (best > 0).sum(-1)
        early = per_rank * (ratio(ideal_of_all.unsqueeze(-1), ideal) - 1)
        missing = (relevant - has_gain.sum(-1)) * reached.sum(-1)
        # Only rounding exceeds 1.
        return ratio(each + early.sum(-1) + missing, ideal_of_all * relevant).clamp_max(1)
