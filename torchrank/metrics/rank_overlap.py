"""How much two rankings have in common at the top: overlap at one depth, and rank-biased over all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.concordance import Orders, orders
from torchrank.hardware.devices import reading_is_free
from torchrank.metrics.rank_correlation import ComparingMetric
from torchrank.names.parameters import integer, number, one_of
from torchrank.ranking.arithmetic import ratio, running_sum
from torchrank.ranking.derived import cached
from torchrank.ranking.ranking import Ranking

__all__ = ["RBO", "Overlap"]


@dataclass(frozen=True, eq=False)
class Lists:
    """Two ranked lists, of entries that may be in either or both: float64, ranks count from 1."""

    #: [query, entry]: best rank in the first list, and how many share it; 0 = it is not in the list
    first: Tensor
    tied: Tensor
    #: [query, entry]: and in the other list
    other_first: Tensor
    other_tied: Tensor
    #: [query]
    length: Tensor
    other_length: Tensor


@cached
def lists(ranking: Ranking) -> Lists:
    """The list of what was retrieved, and that of all candidates, by their grades. A grade of -inf is in no list."""
    both: Orders = orders(ranking)
    first, tied, grade = (x.gather(-1, both.entry) for x in (ranking.first, ranking.tied, ranking.grade))
    listed = both.there & (grade > -math.inf) if grade.is_floating_point() else both.there
    return Lists(
        first,
        torch.where(both.there, tied, 0),
        (both.other_above + 1).to(first.dtype),
        torch.where(listed, both.other_beside, 0).to(first.dtype),
        ranking.num_candidates,
        listed.sum(-1).to(first.dtype),
    )


def contribution(depth: Tensor, first: Tensor, tied: Tensor) -> Tensor:
    """How much of each entry is among the first ``depth``, on average over the orders of what is tied."""
    return ratio(torch.minimum((depth + 1 - first).clamp_min(0), tied), tied)


@dataclass(frozen=True, eq=False)
class Depths:
    """The blocks of a list, by rank: float64 [query, rank]."""

    #: how many stand above the block of that rank, and how many in it
    above: Tensor
    size: Tensor

    @classmethod
    def of(cls, first: Tensor, tied: Tensor) -> Depths:
        """Ranks that no entry has are blocks of one."""
        width = first.shape[1]
        at = torch.where(tied > 0, first - 1, width).clamp_max(width).long()
        table = torch.zeros_like(first[:, :1]).expand(-1, width + 1)
        above = table.scatter(-1, at, first - 1)[:, :-1].cummax(-1).values
        size = table.scatter(-1, at, tied).gather(-1, above.long())
        rank = torch.arange(width, dtype=first.dtype, device=first.device)
        beyond = rank >= above + size
        return cls(torch.where(beyond, rank, above), torch.where(beyond, 1.0, size))

    def effective(self, rank: Tensor, variant: str) -> Tensor:
        """How large the list counts as at each rank: what is tied as a whole, by rank, or by its own overlap."""
        if variant == "w":
            return self.above + self.size
        return rank if variant == "a" else self.above + (rank - self.above).square() / self.size


def common(
    first: Tensor, tied: Tensor, other: Tensor, other_tied: Tensor, sizes: Depths, other_sizes: Depths
) -> Tensor:
    """Expected size of what two lists have in common up to each rank: float64 [query, rank].

    One rank further down, each entry of the block there adds its share of it, as far as the other list is down to it.
    """
    gained = _gained(first, tied, other, other_tied, sizes.above, 0) / sizes.size
    return running_sum(gained + _gained(other, other_tied, first, tied, other_sizes.above, 1) / other_sizes.size)


def _gained(first: Tensor, tied: Tensor, other: Tensor, other_tied: Tensor, above: Tensor, lag: int) -> Tensor:
    """Over the entries of the block at each rank, the sum of their contributions to the other list ``lag`` ranks above.

    A contribution rises with the rank d as start + step * (d - first) through the block of the other list, and is 1
    below it.
    """
    cached, other = (tied > 0) & (other_tied > 0), other + lag
    end, other_end = first + tied, other + other_tied
    rises, stays, full = torch.maximum(first, other), torch.minimum(end, other_end), torch.maximum(first, other_end)
    rising, filled = cached & (rises < stays), cached & (full < end)
    step = torch.where(rising, 1 / other_tied, 0.0)
    start, one = step * (first - other + 1), filled.to(first.dtype)
    # Sorted rather than added up in a table, so that the order of summation is always the same.
    at, order = torch.cat([rises, stays, full, end], -1).sort(dim=-1, stable=True)
    rank = torch.arange(1, first.shape[1] + 1, dtype=first.dtype, device=first.device).expand(first.shape)
    so_far = torch.searchsorted(at, rank.contiguous(), right=True)

    def total(*changes: Tensor) -> Tensor:
        sums = running_sum(torch.cat(changes, -1).gather(-1, order))
        return torch.nn.functional.pad(sums, (1, 0)).gather(-1, so_far)

    none = torch.zeros_like(one)
    return total(start, -start, one, -one) + total(step, -step, none, none) * (rank - 1 - above)


def _counted(first: Tensor, where: Tensor) -> Tensor:
    """How many marked entries have at least each rank: float64 [query, rank]."""
    width = first.shape[1]
    at = torch.where(where, first - 1, width).clamp(0, width).long()
    table = torch.zeros((len(at), width + 1), dtype=torch.int64, device=at.device)
    return table.scatter_add_(-1, at, torch.ones_like(at)).cumsum(-1)[:, :-1].to(first.dtype)


@cached
def agreements(ranking: Ranking, variant: str) -> tuple[Tensor, Tensor]:
    """The agreement of both lists at each rank, float64 [query, rank], 0 behind the longer one, and its length.

    Behind the end of the shorter list, what it may have in common with the longer one is extrapolated.
    """
    both = lists(ranking)
    swap = (both.other_length > both.length).unsqueeze(-1)
    long, short = (
        (torch.where(swap, b, a), torch.where(swap, d, c))
        for (a, b), (c, d) in (
            ((both.first, both.other_first), (both.tied, both.other_tied)),
            ((both.other_first, both.first), (both.other_tied, both.tied)),
        )
    )
    longer, shorter = torch.maximum(both.length, both.other_length), torch.minimum(both.length, both.other_length)
    blocks, short_blocks = Depths.of(*long), Depths.of(*short)
    there = (long[1] > 0) & (short[1] > 0)
    rank = torch.arange(1, long[0].shape[1] + 1, dtype=long[0].dtype, device=long[0].device)
    seen = rank <= shorter.unsqueeze(-1)
    if variant == "w" or _untied(both):
        overlap = _counted(torch.maximum(long[0], short[0]), there)
    else:
        overlap = common(*long, *short, blocks, short_blocks)
    size, short_size = (x.effective(rank, variant) for x in (blocks, short_blocks))
    short_size = torch.where(seen, short_size, rank)
    whole = (size + short_size) / 2 if variant == "w" else (size * short_size).sqrt()

    at = (shorter.long() - 1).clamp_min(0).unsqueeze(-1)
    last = ratio(overlap, whole).gather(-1, at) * (shorter.unsqueeze(-1) > 0)
    begun = blocks.above + blocks.size - _counted(long[0], there)  # of the longer list only
    mean = 1.0 if variant == "w" else ratio(rank - overlap, begun)
    unseen = (rank - shorter.unsqueeze(-1)) * last * mean
    agreement = ratio(torch.where(seen, overlap, overlap + unseen), whole)
    return torch.where(rank <= longer.unsqueeze(-1), agreement.clamp(0, 1), 0.0), longer


def _untied(both: Lists) -> bool:
    """Whether it is known that neither list has ties."""
    if not reading_is_free(both.tied):
        return False
    return not bool((both.tied > 1).any()) and not bool((both.other_tied > 1).any())


class Overlap(ComparingMetric):
    r"""Overlap of the first k of both rankings: :math:`|A_k \cap B_k| / k`.

    With ties the exact mean over all orders of what is tied, in both rankings. Candidates that were not retrieved are
    not in the list of ``preds``; where a list is shorter than k, the overlap is divided by k all the same. Without
    ``top_k``, k is the length of the longer list. A query without candidates is skipped by default.

    Source:
        Webber, Moffat and Zobel, A similarity measure for indefinite rankings, TOIS 28(4), 2010, as the overlap at a
        depth; Fagin, Kumar and Sivakumar, Comparing top k lists, SIAM J. Discrete Mathematics 17(1), 2003.

    Args:
        top_k: how many of each ranking; None = all of the longer one.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`ComparingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Overlap(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "overlap"
    value_range = (0.0, 1.0)
    top_k: int | None = integer(default=None, least=1, kw_only=False)  # type: ignore[assignment]

    def empty(self, ranking: Ranking) -> Tensor:
        both = lists(ranking)
        return torch.maximum(both.length, both.other_length) == 0

    def measure(self, ranking: Ranking) -> Tensor:
        both = lists(ranking)
        longer = torch.maximum(both.length, both.other_length).nan_to_num(nan=0)
        depth = (longer if self.top_k is None else torch.full_like(longer, self.top_k)).unsqueeze(-1)
        inside = contribution(depth, both.first, both.tied) * contribution(depth, both.other_first, both.other_tied)
        return ratio(inside.sum(-1), depth.squeeze(-1))


class RBO(ComparingMetric):
    r"""Rank-biased overlap, extrapolated: :math:`(1 - p) \sum_d p^{d-1} |S_d \cap L_d| / d`.

    Agreement at each depth, weighed by the chance that a user who goes on with probability p gets there; what both
    lists leave open is extrapolated from what they show (RBO_ext). The lists may differ in length and in what they
    hold: what was not retrieved is not in the list of ``preds``. 0 if one of them is empty; where both are, the query
    is skipped by default.

    Ties as Corsi and Urbano say: ``variant`` "w", tied candidates share the best of their ranks, as in sports; "a", at
    each depth the mean over all orders of what is tied, in both lists; "b", "a" corrected for what ties hide, so that a
    ranking agrees with itself wholly. Without ties all three are one.

    Source:
        Webber, Moffat and Zobel, A similarity measure for indefinite rankings, TOIS 28(4), 2010; ties: Corsi and
        Urbano, The treatment of ties in rank-biased overlap, SIGIR 2024.

    Args:
        p: how likely the user goes on to the next rank; between 0 and 1.
        variant: what a tie means: "a", "b" or "w".
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`ComparingMetric`.

    Raises:
        ValueError: p is not between 0 and 1, or an unknown variant.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RBO(p=0.5).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))  # 1/2 + 1/4 * 1/2 + 1/4
        tensor([0.8750], dtype=torch.float64)
    """

    known_as = {"parse": "rank_biased_overlap", "rbo": {"rbo_ext": "without ties"}}
    name = "rbo"
    value_range = (0.0, 1.0)

    p: float = number(default=0.9, above=0, below=1)
    variant: Literal["a", "b", "w"] = one_of(default="a")

    def empty(self, ranking: Ranking) -> Tensor:
        both = lists(ranking)
        return torch.maximum(both.length, both.other_length) == 0

    def measure(self, ranking: Ranking) -> Tensor:
        agreement, last = agreements(ranking, self.variant)
        depth = torch.arange(1, agreement.shape[1] + 1, dtype=agreement.dtype, device=agreement.device)
        longer = last.unsqueeze(-1)
        weight = torch.where(depth <= longer, (1 - self.p) * self.p ** (depth - 1), 0.0)
        beyond = agreement.gather(-1, (last.long() - 1).clamp_min(0).unsqueeze(-1)).squeeze(-1)
        return (agreement * weight).sum(-1) + beyond * self.p**last
