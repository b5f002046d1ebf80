"""Q-measure: average precision with graded relevance."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torchrank.metrics.graded import GradedMetric
from torchrank.names.parameters import number, one_of
from torchrank.ranking.arithmetic import as_numbers, only, ratio, running_sum
from torchrank.ranking.caching import cached
from torchrank.ranking.gain import Gain
from torchrank.ranking.ranking import Ranking

__all__ = ["QMeasure"]

# Sums over ranks are tabulated at least up to this rank, if ties reach it. Beyond the table a closed form is used.
TABLE = 512


class QMeasure(GradedMetric):
    r"""Q-measure: average precision with graded gains.

    :math:`\frac{1}{R} \sum_{i \in rel} \frac{C_i + \beta \, cg_i}{i + \beta \, cg^*_i}`, a sum over the ranks i of the
    R candidates with a gain. :math:`C_i` is the number of such candidates among the first i, :math:`cg_i` the sum of
    their gains. :math:`cg^*_i` is the same sum for the best order of all judged candidates. With a small beta the value
    approaches average precision.

    Under ``ties="expected"`` it is the exact mean over all orders of the tied candidates: given the rank i of a
    candidate, the expected :math:`C_i` and :math:`cg_i` are linear in i. There are no bounds over unjudged candidates,
    because the value can fall if a candidate with a small gain moves up.

    Source:
        Sakai, New performance metrics based on multigrade relevance: their application to question answering,
        NTCIR-4, 2004; On the reliability of information retrieval metrics based on graded relevance, Information
        Processing and Management 43(2), 2007.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        beta: the weight of gains relative to counts; > 0.
        normalize: the denominator of the sum: "relevant", R; "min", min(R, ``top_k``), as in NTCIREVAL.
        gain: "linear", "exponential" or a callable with a name; see :class:`GradedMetric`.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: ``beta`` is not a number > 0, or ``normalize`` is unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.QMeasure().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 3]]))  # (2/4 + 6/7) / 2
        tensor([0.6786], dtype=torch.float64)
    """

    known_as = {"NTCIREVAL": "Q-measure"}
    name = "qmeasure"
    takes_unjudged_for = ("irrelevant", "condensed")
    value_range = (0.0, 1.0)

    beta: float = number(default=1, above=0)
    normalize: Literal["relevant", "min"] = one_of(default="relevant")

    def measure(self, ranking: Ranking) -> Tensor:
        gain = self.gain_function
        if ranking.untied:
            value = ranking.sum_up_to(self.top_k, _blended_alone, gain, self.beta)
        else:
            value = self._of_ties(ranking)
        number = _num_gaining(ranking, gain)
        return ratio(value, number.clamp_max(self.top_k) if self.normalize == "min" and self.top_k else number)

    def _of_ties(self, ranking: Ranking) -> Tensor:
        """The sum of blended ratios, in a ranking with ties: float64 [query]."""
        gains = only(ranking.retrieved(), ranking.gains(self.gain_function))
        counts, gained = ranking.before_and_in_tie(gains > 0), ranking.before_and_in_tie(gains)
        # The numerator of an entry at the first rank of its tie group, and its expected increase per further rank. At
        # each further rank the entry has one more candidate before it: any of the others in the group, equally likely.
        start = counts[0] + 1 + self.beta * (gained[0] + gains)
        slope = ratio(counts[1] - 1 + self.beta * (gained[1] - gains), ranking.tied - 1)
        ideal = self.beta * running_sum(ranking.ideal_order(self.gain_function, self.top_k))
        return only(gains > 0, _blended(ranking, start, slope, ideal, self.top_k)).sum(-1)


@cached
def _num_gaining(ranking: Ranking, gain: Gain) -> Tensor:
    """Number of judged candidates with a gain above 0: float64 [query]."""
    return (ranking.judged_gains(gain) > 0).sum(-1).to(ranking.first.dtype)


def _blended_alone(ranking: Ranking, gain: Gain, beta: float) -> Tensor:
    """The blended ratio of each entry with a gain, in a ranking without ties: float64 [query, entry]."""
    gains = only(ranking.retrieved(), ranking.gains(gain))
    gaining = gains > 0
    start = running_sum(as_numbers(gaining, gains.dtype)) + beta * running_sum(gains)
    ideal = beta * running_sum(ranking.ideal_order(gain, None))
    return only(gaining, start / (ranking.first + _at_rank(ideal, ranking)))


def _at_rank(x: Tensor, ranking: Ranking) -> Tensor:
    """The element of ``x`` [query, rank] at the best rank of each entry, or its last one: [query, entry]."""
    last = x.shape[1]
    return x.gather(-1, (ranking.first.clamp_max(last) - 1).clamp_min(0).long())


def _blended(ranking: Ranking, start: Tensor, slope: Tensor, ideal: Tensor, top_k: int | None) -> Tensor:
    """The mean of (start + slope (p - first)) / (p + ideal_p) over the ranks p of each entry, 0 beyond ``top_k``.

    Args:
        ranking: with ties as intervals of ranks, or resolved.
        start: float64 [query, entry], the numerator at rank ``first``.
        slope: float64 [query, entry], its increase per rank.
        ideal: float64 [query, rank]; beyond its last rank it is constant.
        top_k: the last rank that counts; None = all ranks count.

    Returns:
        float64 [query, entry]; meaningless if an entry was not retrieved.
    """
    # The closed form beyond the table loses digits if gains are very large. So the table is extended, up to the last
    # tied rank or TABLE ranks.
    longer = min(ranking.depth, top_k or TABLE, TABLE) - ideal.shape[1]
    if longer > 0:
        ideal = torch.cat([ideal, ideal[:, -1:].expand(-1, longer)], -1)
    last = ideal.shape[1]
    ranks = torch.arange(1, last + 1, dtype=ideal.dtype, device=ideal.device)
    # The value at the first rank of an entry, which is its only rank without ties.
    alone = start / (ranking.first + _at_rank(ideal, ranking))
    if top_k is not None:
        alone = only(ranking.first <= top_k, alone)
    # Prefix sums over ranks p of 1 / (p + ideal_p) and of p / (p + ideal_p). Beyond the table ideal_p is a constant c:
    # the sum of 1 / (p + c) is a difference of digamma functions, and p / (p + c) = 1 - c / (p + c).
    inverse = torch.nn.functional.pad(running_sum(1 / (ranks + ideal)), (1, 0))
    share = torch.nn.functional.pad(running_sum(ranks / (ranks + ideal)), (1, 0))
    constant = ideal[:, -1:]

    def up_to(rank: Tensor) -> tuple[Tensor, Tensor]:
        """Both sums over the ranks 1, ..., ``rank``."""
        within = rank.clamp_max(last).long()
        beyond = torch.digamma(rank.clamp_min(last) + constant + 1) - torch.digamma(last + constant + 1)
        rest = (rank - last).clamp_min(0) - constant * beyond
        return inverse.gather(-1, within) + beyond, share.gather(-1, within) + rest

    above = ranking.first - 1
    end = above + ranking.ranks_in_top_k(top_k)
    (inverse_end, share_end), (inverse_above, share_above) = up_to(end), up_to(torch.minimum(above, end))
    inverses, shares = inverse_end - inverse_above, share_end - share_above
    # start + slope (p - first) = (start - slope first) + slope p, so the two sums are enough.
    several = (start - slope * ranking.first) * inverses + slope * shares
    return torch.where(ranking.tied > 1, several / ranking.tied.clamp_min(1), alone)
