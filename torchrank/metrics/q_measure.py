"""Q-measure: average precision with graded relevance."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchrank.hardware.devices import running_sum
from torchrank.metrics.graded import GradedMetric
from torchrank.names.parameters import number, one_of
from torchrank.ranking.intervals import as_numbers, only, ratio
from torchrank.ranking.ranking import Gain, Ranking, cached

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
        beta: the weight of gains relative to counts; > 0.
        normalize: the denominator of the sum: "relevant", R; "min", min(R, ``top_k``), as in NTCIREVAL.

    Raises:
        ValueError: ``beta`` is not a number > 0, or ``normalize`` is unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.QMeasure().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 3]]))  # (2/4 + 6/7) / 2
        tensor([0.6786], dtype=torch.float64)
    """

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
        if ranking.shares_sums(self.top_k) and ranking.depth <= TABLE:
            return _up_to_last(ranking, self.gain_function, self.beta, self.top_k)
        return _blended_tied(ranking, self.gain_function, self.beta, self.top_k).sum(-1)


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
    return only(gaining, start / (ranking.first + _by_best_rank(ideal, ranking)))


def _blended_tied(ranking: Ranking, gain: Gain, beta: float, top_k: int | None) -> Tensor:
    """The expected blended ratio of each entry with a gain, 0 beyond ``top_k``: float64 [query, entry]."""
    gains = only(ranking.retrieved(), ranking.gains(gain))
    counts, gained = ranking.before_and_in_tie(gains > 0), ranking.before_and_in_tie(gains)
    # The numerator of an entry at the first rank of its tie group, and its expected increase per further rank. At
    # each further rank the entry has one more candidate before it: any of the others in the group, equally likely.
    start = counts[0] + 1 + beta * (gained[0] + gains)
    slope = ratio(counts[1] - 1 + beta * (gained[1] - gains), ranking.tied - 1)
    return only(gains > 0, _blended(ranking, start, slope, _tables(ranking, gain, beta, top_k), top_k))


def _up_to_last(ranking: Ranking, gain: Gain, beta: float, top_k: int) -> Tensor:
    """The sum of :func:`_blended_tied`, from running sums over the entries and over the ranks: float64 [query]."""
    sooner, up_to = ranking.before_and_up_to_last(top_k, _blended_tied, gain, beta, None)
    count, counts = ranking.before_and_in_last(top_k, _gaining, gain)
    gained, gains = ranking.before_and_in_last(top_k, Ranking.gains, gain)
    # The numerators of all gaining entries of the group together.
    last, both = ranking.last_group(top_k), counts + beta * gains
    start = counts * (count + 1 + beta * gained) + beta * gains
    slope = ratio((counts - 1) * both, last.ranks.tied - 1)
    tables, above = _tables(ranking, gain, beta, None), last.ranks.first - 1
    ends = torch.stack([above, above + last.places], -1).long().clamp_max_(tables.ideal.shape[1])
    inverse, share = (x.gather(-1, ends).diff(dim=-1).squeeze(-1) for x in (tables.inverse, tables.share))
    cut = ((start - slope * last.ranks.first) * inverse + slope * share) / last.ranks.number
    return torch.where(last.complete, up_to, sooner + cut)


@cached
def _gaining(ranking: Ranking, gain: Gain) -> Tensor:
    """1 for a retrieved entry with a gain, else 0: float64 [query, entry]."""
    return as_numbers(ranking.retrieved() & (ranking.gains(gain) > 0), ranking.first.dtype)


def _by_best_rank(x: Tensor, ranking: Ranking) -> Tensor:
    """The element of ``x`` [query, rank] at the best rank of each entry, or its last one: [query, entry]."""
    last, width = x.shape[1], ranking.first.shape[1]
    if ranking.untied and ranking.complete and last == width:  # columns are ranks; entries not retrieved do not count
        return x
    return x.gather(-1, (ranking.first.clamp_max(last) - 1).clamp_min(0).long())


class Tables(NamedTuple):
    """The gains of the ideal order, and sums over the first ranks."""

    #: float64 [query, rank]: beta times the sum of the gains up to each rank; beyond its last rank it is constant
    ideal: Tensor
    #: float64 [query, 1 + rank]: sums over ranks p of 1 / (p + ideal_p)
    inverse: Tensor
    #: float64 [query, 1 + rank]: sums over ranks p of p / (p + ideal_p)
    share: Tensor


@cached
def _tables(ranking: Ranking, gain: Gain, beta: float, top_k: int | None) -> Tables:
    ideal = beta * running_sum(ranking.ideal_order(gain, top_k))
    # The closed form beyond the table loses digits if gains are very large. So the table is extended, up to the last
    # tied rank or TABLE ranks.
    longer = min(ranking.depth, top_k or TABLE, TABLE) - ideal.shape[1]
    if longer > 0:
        ideal = torch.cat([ideal, ideal[:, -1:].expand(-1, longer)], -1)
    ranks = torch.arange(1, ideal.shape[1] + 1, dtype=ideal.dtype, device=ideal.device)
    inverse, share = (torch.nn.functional.pad(running_sum(x / (ranks + ideal)), (1, 0)) for x in (1, ranks))
    return Tables(ideal, inverse, share)


def _blended(ranking: Ranking, start: Tensor, slope: Tensor, tables: Tables, top_k: int | None) -> Tensor:
    """The mean of (start + slope (p - first)) / (p + ideal_p) over the ranks p of each entry, 0 beyond ``top_k``.

    Args:
        ranking: with ties as intervals of ranks, or resolved.
        start: float64 [query, entry], the numerator at rank ``first``.
        slope: float64 [query, entry], its increase per rank.
        tables: sums over ranks, up to ``top_k``.
        top_k: the last rank that counts; None = all ranks count.

    Returns:
        float64 [query, entry]; meaningless if an entry was not retrieved.
    """
    ideal, inverse, share = tables
    last, constant = ideal.shape[1], ideal[:, -1:]
    # The value at the first rank of an entry, which is its only rank without ties.
    alone = start / (ranking.first + _by_best_rank(ideal, ranking))
    if top_k is not None:
        alone = only(ranking.first <= top_k, alone)
    # Beyond the table ideal_p is a constant c: the sum of 1 / (p + c) is a difference of digamma functions, and
    # p / (p + c) = 1 - c / (p + c).

    def up_to(rank: Tensor) -> tuple[Tensor, Tensor]:
        """Both sums over the ranks 1, ..., ``rank``."""
        within = rank.clamp_max(last).long()
        if ranking.depth <= last:  # no tied rank is beyond the table
            return inverse.gather(-1, within), share.gather(-1, within)
        beyond = torch.digamma(rank.clamp_min(last) + constant + 1) - torch.digamma(last + constant + 1)
        rest = (rank - last).clamp_min(0) - constant * beyond
        return inverse.gather(-1, within) + beyond, share.gather(-1, within) + rest

    above = ranking.first - 1
    end = above + ranking.ranks_in_top_k(top_k)
    (inverse_end, share_end), (inverse_above, share_above) = up_to(end), up_to(torch.minimum(above, end))
    inverses, shares = inverse_end - inverse_above, share_end - share_above
    # start + slope (p - first) = (start - slope first) + slope p, so the two sums are enough.
    several = (start - slope * ranking.first) * inverses + slope * shares
    return torch.where(ranking.tied > 1, several / ranking.tied, alone)
