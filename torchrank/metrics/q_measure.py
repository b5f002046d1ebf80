"""Q-measure: average precision with graded relevance."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torchrank.metrics.graded import GradedMetric
from torchrank.names.parameters import number, one_of
from torchrank.ranking.arithmetic import ratio, running_sum
from torchrank.ranking.ranking import Ranking

__all__ = ["QMeasure"]

# Ranks of which sums are made one by one.
TABLE = 512


class QMeasure(GradedMetric):
    r"""Q-measure: :math:`\frac{1}{R} \sum_{i \in rel} \frac{C_i + \beta \, cg_i}{i + \beta \, cg^*_i}`.

    At each rank i of the R candidates that gain: how many of them are among the first i, :math:`C_i`, what these gain
    together, :math:`cg_i`, and what the first i of the best order of all judged candidates do, :math:`cg^*_i`. With a
    small beta it is average precision. Under ``ties="expected"`` the exact mean over all orders of the tied candidates:
    given the rank of one, the means of C and cg are linear in it. There are no bounds over what is unjudged: where a
    candidate that gains little moves up, the value may fall.

    Source:
        Sakai, New performance metrics based on multigrade relevance: their application to question answering,
        NTCIR-4, 2004; On the reliability of information retrieval metrics based on graded relevance, Information
        Processing and Management 43(2), 2007.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        beta: how much gains matter beside counts; > 0.
        normalize: what the sum is divided by: "relevant", R; "min", R or ``top_k`` if that is less, as NTCIREVAL does.
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
        gains = torch.where(ranking.tied > 0, ranking.gains(self.gain_function), 0.0)
        counts, gained = ranking.before_and_in_tie(gains > 0), ranking.before_and_in_tie(gains)
        # The numerator at the first rank that each can have, and what is to be expected of every further one.
        start = counts[0] + 1 + self.beta * (gained[0] + gains)
        slope = ratio(counts[1] - 1 + self.beta * (gained[1] - gains), ranking.tied - 1)
        ideal = self.beta * running_sum(ranking.ideal_order(self.gain_function, self.top_k))
        value = torch.where(gains > 0, _blended(ranking, start, slope, ideal, self.top_k), 0.0).sum(-1)
        number = (ranking.judged_gains(self.gain_function) > 0).sum(-1).to(value.dtype)
        return ratio(value, number.clamp_max(self.top_k) if self.normalize == "min" and self.top_k else number)


def _blended(ranking: Ranking, start: Tensor, slope: Tensor, ideal: Tensor, top_k: int | None) -> Tensor:
    """The mean over the ranks p of each entry, 0 beyond ``top_k``, of (start + slope (p - first)) / (p + ideal_p).

    Args:
        ranking: with its ties as intervals, or settled.
        start: float64 [query, entry].
        slope: float64 [query, entry].
        ideal: float64 [query, rank]; it stays what it is at its last rank.
        top_k: the last rank to look at; None = all.

    Returns:
        float64 [query, entry]; of no meaning where an entry was not retrieved.
    """
    # The closed form beyond the last rank loses digits of very large gains: better a longer table, if ties are short.
    longer = min(ranking.depth, top_k or TABLE, TABLE) - ideal.shape[1]
    if longer > 0:
        ideal = torch.cat([ideal, ideal[:, -1:].expand(-1, longer)], -1)
    last = ideal.shape[1]
    ranks = torch.arange(1, last + 1, dtype=ideal.dtype, device=ideal.device)
    at = (ranking.first.clamp_max(last) - 1).clamp_min(0).long()
    alone = start / (ranking.first + ideal.gather(-1, at))
    if top_k is not None:
        alone = torch.where(ranking.first <= top_k, alone, 0.0)
    if ranking.untied:
        return alone
    # Sums up to a rank of 1 / (p + ideal) and of p / (p + ideal). Beyond the last, ideal is a constant c, of which the
    # sum of 1 / (p + c) is a difference of digamma functions, and p / (p + c) = 1 - c / (p + c).
    inverse = torch.nn.functional.pad(running_sum(1 / (ranks + ideal)), (1, 0))
    share = torch.nn.functional.pad(running_sum(ranks / (ranks + ideal)), (1, 0))
    constant = ideal[:, -1:]

    def up_to(rank: Tensor) -> tuple[Tensor, Tensor]:
        within = rank.clamp_max(last).long()
        beyond = torch.digamma(rank.clamp_min(last) + constant + 1) - torch.digamma(last + constant + 1)
        rest = (rank - last).clamp_min(0) - constant * beyond
        return inverse.gather(-1, within) + beyond, share.gather(-1, within) + rest

    above = ranking.first - 1
    end = above + ranking.ranks_in_top_k(top_k)
    (inverse_end, share_end), (inverse_above, share_above) = up_to(end), up_to(torch.minimum(above, end))
    inverses, shares = inverse_end - inverse_above, share_end - share_above
    several = (start - slope * ranking.first) * inverses + slope * shares
    return torch.where(ranking.tied > 1, several / ranking.tied.clamp_min(1), alone)
