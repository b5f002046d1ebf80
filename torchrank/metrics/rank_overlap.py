"""Overlap of two rankings: at one depth, or rank-biased over all depths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.concordance import Orders, orders
from torchrank.formulas.random_ranking import reciprocal_sums
from torchrank.hardware.devices import running_sum
from torchrank.metrics.rank_correlation import ComparingMetric
from torchrank.names.parameters import integer, number, one_of
from torchrank.ranking.intervals import ratio
from torchrank.ranking.ranking import Ranking, cached

__all__ = ["LIP", "PMRR", "RBA", "RBO", "RBR", "Overlap"]

# Depths are left out if all of them together have a smaller weight: it is below the precision of float64.
TINY = 1e-18


@dataclass(frozen=True, eq=False)
class RankedList:
    """One of two ranked lists: float64, ranks count from 1. An entry of a query may be in either list or in both."""

    #: [query, entry]: best rank of the entry
    first: Tensor
    #: [query, entry]: size of its tie group; 0 = the entry is not in the list
    tied: Tensor
    #: [query]
    length: Tensor

    def share(self, depth: Tensor) -> Tensor:
        """Probability of each entry to be among the first ``depth``, over all orders of its tie group."""
        return ratio(torch.minimum((depth + 1 - self.first).clamp_min(0), self.tied), self.tied)

    def weight(self, p: float) -> Tensor:
        """The mean of (1 - p) p ** (rank - 1) over the tie group of each entry, 0 outside of the list."""
        return ratio(p ** (self.first - 1) * (1 - p**self.tied), self.tied)

    def interval(self) -> tuple[Tensor, Tensor]:
        """First rank and number of ranks of each entry; the rank behind the list for an entry outside of it."""
        outside = self.tied == 0
        return torch.where(outside, self.length.unsqueeze(-1) + 1, self.first), self.tied + outside


@cached
def two_lists(ranking: Ranking) -> tuple[RankedList, RankedList]:
    """The retrieved candidates, and all candidates by their grades. A grade of -inf is in no list."""
    both: Orders = orders(ranking)
    first, tied, grade = (x.gather(-1, both.entry) for x in (ranking.first, ranking.tied, ranking.grade))
    graded = both.there & (grade > -math.inf) if grade.is_floating_point() else both.there
    by_score = RankedList(first, torch.where(both.there, tied, 0), ranking.num_candidates)
    by_grade = RankedList(
        (both.other_above + 1).to(first.dtype),
        torch.where(graded, both.other_beside, 0).to(first.dtype),
        graded.sum(-1).to(first.dtype),
    )
    return by_score, by_grade


def longer_first(first: RankedList, second: RankedList) -> tuple[RankedList, RankedList]:
    """The longer and the shorter list of each query."""
    swap = (second.length > first.length).unsqueeze(-1)
    # torch.maximum rather than torch.where for the lengths, so that an unknown length (NaN) makes both unknown.
    longer = RankedList(
        torch.where(swap, second.first, first.first),
        torch.where(swap, second.tied, first.tied),
        torch.maximum(first.length, second.length),
    )
    shorter = RankedList(
        torch.where(swap, first.first, second.first),
        torch.where(swap, first.tied, second.tied),
        torch.minimum(first.length, second.length),
    )
    return longer, shorter


@dataclass(frozen=True, eq=False)
class TieGroups:
    """The tie group at each rank of a list: float64 [query, rank]."""

    #: number of entries above the tie group
    above: Tensor
    #: number of entries in the tie group
    size: Tensor

    @classmethod
    def of(cls, ranked: RankedList) -> TieGroups:
        """The tie groups of a list. A rank without an entry is a group of one."""
        width = ranked.first.shape[1]
        # Each group writes to the slot of its best rank, and cummax carries it on to its other ranks. The last slot
        # absorbs entries that are not in the list.
        slot = torch.where(ranked.tied > 0, ranked.first - 1, width).clamp_max(width).long()
        table = torch.zeros_like(ranked.first[:, :1]).expand(-1, width + 1)
        above = table.scatter(-1, slot, ranked.first - 1)[:, :-1].cummax(-1).values
        size = table.scatter(-1, slot, ranked.tied).gather(-1, above.long())
        rank = torch.arange(width, dtype=ranked.first.dtype, device=ranked.first.device)
        empty = rank >= above + size
        return cls(torch.where(empty, rank, above), torch.where(empty, 1.0, size))

    def list_size(self, rank: Tensor, variant: str) -> Tensor:
        """Size of the list up to each rank, by variant of RBO: "w" counts tie groups whole, "a" counts ranks.

        "b" counts the overlap of the list with itself. So a list agrees with itself wholly in spite of its ties.
        """
        if variant == "w":
            return self.above + self.size
        return rank if variant == "a" else self.above + (rank - self.above).square() / self.size


def expected_overlap(first: RankedList, second: RankedList, groups: TieGroups, other_groups: TieGroups) -> Tensor:
    """Expected number of entries that two lists have in common up to each rank: float64 [query, rank].

    Let x(d) and y(d) be the shares of an entry in the first d of each list. The overlap is the sum of x(d) y(d). From
    one depth to the next it grows by (x(d) - x(d-1)) y(d) + x(d-1) (y(d) - y(d-1)).
    """
    # x(d) - x(d-1) is 1 / size for the entries of the tie group at rank d, and 0 for all others.
    growth = _shares_in_other(first, second, groups.above, 0) / groups.size
    other_growth = _shares_in_other(second, first, other_groups.above, 1) / other_groups.size
    return running_sum(growth + other_growth)


def _shares_in_other(ranked: RankedList, other_list: RankedList, above: Tensor, lag: int) -> Tensor:
    """Sum, over the tie group of ``ranked`` at each rank d, of the shares in the first d - ``lag`` of the other list.

    The share of an entry is 0 above its tie group in the other list. Within that group it rises linearly, as start +
    step * (d - ranked.first), and below that group it is 1. ``above`` is :attr:`TieGroups.above` of ``ranked``.
    """
    in_both = (ranked.tied > 0) & (other_list.tied > 0)
    end = ranked.first + ranked.tied
    other_first = other_list.first + lag
    other_end = other_first + other_list.tied
    # Ranks of the entry's tie group, [ranked.first, end): its share begins to rise, stops rising, and is 1 there.
    rise, stop, full = (
        torch.maximum(ranked.first, other_first),
        torch.minimum(end, other_end),
        torch.maximum(ranked.first, other_end),
    )
    rises, fills = in_both & (rise < stop), in_both & (full < end)
    step = torch.where(rises, 1 / other_list.tied, 0.0)
    start, full_share = step * (ranked.first - other_first + 1), fills.to(ranked.first.dtype)
    # Sorted rather than added up in a table, so that the order of summation is always the same.
    position, order = torch.cat([rise, stop, full, end], -1).sort(dim=-1, stable=True)
    rank = torch.arange(1, ranked.first.shape[1] + 1, dtype=ranked.first.dtype, device=ranked.first.device)
    rank = rank.expand(ranked.first.shape)
    so_far = torch.searchsorted(position, rank.contiguous(), right=True)

    def total(*changes: Tensor) -> Tensor:
        """The sum at each rank of changes at ``rise``, ``stop``, ``full`` and ``end``."""
        sums = running_sum(torch.cat(changes, -1).gather(-1, order))
        return torch.nn.functional.pad(sums, (1, 0)).gather(-1, so_far)

    none = torch.zeros_like(full_share)
    # All entries of the tie group at rank d have the same first, above + 1, so d - first is a common factor.
    return total(start, -start, full_share, -full_share) + total(step, -step, none, none) * (rank - 1 - above)


def _number_up_to(rank: Tensor, marked: Tensor) -> Tensor:
    """Number of marked entries whose ``rank``, [query, entry], is at most each rank: float64 [query, rank]."""
    width = rank.shape[1]
    slot = torch.where(marked, rank - 1, width).clamp(0, width).long()  # the last one absorbs all other entries
    table = torch.zeros((len(slot), width + 1), dtype=torch.int64, device=slot.device)
    return table.scatter_add_(-1, slot, torch.ones_like(slot)).cumsum(-1)[:, :-1].to(rank.dtype)


@cached
def agreements(ranking: Ranking, variant: str, extrapolated: bool = True) -> tuple[Tensor, Tensor]:
    """The agreement of both lists at each rank, float64 [query, rank], and the length of the longer list, [query].

    The agreement is the overlap divided by the mean size of the lists. If it is extrapolated, it goes on between the
    ends of the two lists, and is 0 after the longer list.
    """
    longer, shorter = longer_first(*two_lists(ranking))
    groups, shorter_groups = TieGroups.of(longer), TieGroups.of(shorter)
    in_both = (longer.tied > 0) & (shorter.tied > 0)
    rank = torch.arange(1, longer.first.shape[1] + 1, dtype=longer.first.dtype, device=longer.first.device)
    seen = rank <= shorter.length.unsqueeze(-1)
    if variant == "w" or (_untied(longer) and _untied(shorter)):
        # An entry is in both lists from the later one of its best ranks on.
        overlap = _number_up_to(torch.maximum(longer.first, shorter.first), in_both)
    else:
        overlap = expected_overlap(longer, shorter, groups, shorter_groups)
    size = groups.list_size(rank, variant)
    shorter_size = torch.where(seen, shorter_groups.list_size(rank, variant), rank)
    mean_size = (size + shorter_size) / 2 if variant == "w" else (size * shorter_size).sqrt()
    if not extrapolated:
        return ratio(overlap, mean_size).clamp(0, 1), longer.length

    # After its end, the shorter list is assumed to have an entry of the longer list at each rank with probability
    # ``last``, the agreement at that end. Such an entry has the mean share of the entries of the longer list alone.
    end = (shorter.length.long() - 1).clamp_min(0).unsqueeze(-1)
    last = ratio(overlap, mean_size).gather(-1, end) * (shorter.length.unsqueeze(-1) > 0)
    only_in_longer = groups.above + groups.size - _number_up_to(longer.first, in_both)
    mean_share = 1.0 if variant == "w" else ratio(rank - overlap, only_in_longer)
    unseen = (rank - shorter.length.unsqueeze(-1)) * last * mean_share
    agreement = ratio(torch.where(seen, overlap, overlap + unseen), mean_size)
    # Rounding may leave [0, 1].
    return torch.where(rank <= longer.length.unsqueeze(-1), agreement.clamp(0, 1), 0.0), longer.length


def _untied(ranked: RankedList) -> bool:
    """Whether a list is known to have no ties; always False if reading values would wait for the device."""
    return ranked.tied.is_cpu and not bool((ranked.tied > 1).any())


class Overlap(ComparingMetric):
    r"""Overlap of the first k of both rankings: :math:`|A_k \cap B_k| / k`.

    :math:`A_k` and :math:`B_k` are the first k candidates by ``preds`` and by ``target``. With ties this is the exact
    mean over all orders of tied candidates in both rankings. Candidates that were not retrieved are not in the list of
    ``preds``. The overlap is divided by k even if a list is shorter. Without ``top_k``, k is the length of the longer
    list. A query without candidates is skipped by default.

    Source:
        Webber, Moffat and Zobel, A similarity measure for indefinite rankings, TOIS 28(4), 2010, as the overlap at a
        depth; Fagin, Kumar and Sivakumar, Comparing top k lists, SIAM J. Discrete Mathematics 17(1), 2003.

    Args:
        top_k: k, the number of ranks to compare; None = the length of the longer list.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Overlap(top_k=2).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "overlap"
    value_range = (0.0, 1.0)
    top_k: int | None = integer(default=None, least=1, kw_only=False)  # type: ignore[assignment]

    def empty(self, ranking: Ranking) -> Tensor:
        longer, _ = longer_first(*two_lists(ranking))
        return longer.length == 0

    def measure(self, ranking: Ranking) -> Tensor:
        first, second = two_lists(ranking)
        length = torch.maximum(first.length, second.length).nan_to_num(nan=0)
        depth = (length if self.top_k is None else torch.full_like(length, self.top_k)).unsqueeze(-1)
        # Ties of the two rankings are broken independently, so the probability to be in both is the product.
        return ratio((first.share(depth) * second.share(depth)).sum(-1), depth.squeeze(-1))


class LIP(ComparingMetric):
    r"""Least item promoted: how far the lowest candidate of another ranking rose to be among the first k.

    :math:`\max_{i \in A_k} \max(0, rank_i - k)`. :math:`A_k` are the first k candidates by ``preds``, for example
    after a list was reranked. :math:`rank_i` is the rank of a candidate by ``target``, the ranking before. Candidates
    that ``target`` lacks have no effect. A query whose ``target`` has no candidate is skipped by default.

    With ties in ``preds`` this is the exact mean over all orders of tied candidates. Candidates tied in ``target``
    share the best of their ranks.

    Source:
        LensKit, ``least_item_promoted``.

    Args:
        top_k: k, the number of ranks of ``preds`` that count; None = all of them, and k is the length of that list.

    Example:
        >>> import torch, torchrank as tr
        >>> reranked, before = torch.tensor([[7, 3, 9, 5]]), torch.tensor([[3, 5, 9, 7]])
        >>> tr.LIP(top_k=2).score(tr.Ranking.from_rankings(reranked, before))  # 7 had rank 4
        tensor([2.], dtype=torch.float64)
    """

    name = "lip"
    value_range = (0.0, math.inf)
    higher_is_better = False
    top_k: int | None = integer(default=None, least=1, kw_only=False)  # type: ignore[assignment]

    def empty(self, ranking: Ranking) -> Tensor:
        _, other = two_lists(ranking)
        return other.length == 0

    def measure(self, ranking: Ranking) -> Tensor:
        first, second = two_lists(ranking)
        length = first.length.nan_to_num(nan=0)
        k = (length if self.top_k is None else torch.full_like(length, self.top_k)).unsqueeze(-1)
        rank, share = torch.where(second.tied > 0, second.first, 0.0), first.share(k)
        certain = torch.maximum(torch.where(share == 1, rank, 0.0).amax(-1, keepdim=True), k)
        # Of the n candidates of the tie group at the cutoff, s are among the first k. The i-th lowest of them is the
        # lowest one there if no lower one is: P(none of the i lowest) = C(n - i, s) / C(n, s).
        in_cut_group = (share > 0) & (share < 1)
        n = torch.where(in_cut_group, first.tied, 0.0).amax(-1, keepdim=True)
        s = torch.where(in_cut_group, k + 1 - first.first, 0.0).amax(-1, keepdim=True)
        lower = torch.arange(rank.shape[1], dtype=rank.dtype, device=rank.device)
        none = ratio(n - s - lower, n - lower).cumprod(-1)
        lowest = torch.nn.functional.pad(none[:, :-1], (1, 0), value=1.0) - none
        lowest_first = torch.where(in_cut_group, rank, 0.0).sort(dim=-1, descending=True).values
        return (lowest * torch.maximum(lowest_first, certain)).sum(-1) - k.squeeze(-1)


class RBO(ComparingMetric):
    r"""Rank-biased overlap, extrapolated: :math:`(1 - p) \sum_d p^{d-1} |S_d \cap L_d| / d`.

    The agreement of the lists S and L at depth d is the share of their first d candidates that they have in common. It
    is weighed by the probability that a user who goes on with probability p reaches depth d. The unseen ends of both
    lists are extrapolated from their seen parts (RBO_ext).

    The lists may differ in length and content: candidates that were not retrieved are not in the list of ``preds``. The
    value is 0 if one list is empty. If both are, the query is skipped by default.

    With ``top_k`` the overlap is truncated: only the depths 1 to k count, nothing is extrapolated, and the weights are
    divided by their sum, :math:`\frac{1 - p}{1 - p^k} \sum_{d \le k} p^{d-1} |S_d \cap L_d| / d`.

    Ties follow Corsi and Urbano. ``variant`` "w": tied candidates share the best of their ranks, as in sports. "a": the
    mean, at each depth, over all orders of tied candidates in both lists. "b": "a" corrected for ties, so that a
    ranking agrees with itself wholly. Without ties all three are equal.

    Source:
        Webber, Moffat and Zobel, A similarity measure for indefinite rankings, TOIS 28(4), 2010; ties: Corsi and
        Urbano, The treatment of ties in rank-biased overlap, SIGIR 2024.

    Args:
        top_k: k, the depth at which the overlap is truncated; None = extrapolate it to all depths.
        p: the probability that the user goes on to the next rank, between 0 and 1.
        variant: the treatment of ties: "a", "b" or "w".

    Raises:
        ValueError: p is not between 0 and 1, or an unknown variant.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RBO(p=0.5).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))  # 1/2 + 1/4 * 1/2 + 1/4
        tensor([0.8750], dtype=torch.float64)
    """

    name = "rbo"
    value_range = (0.0, 1.0)
    top_k: int | None = integer(default=None, least=1, kw_only=False)  # type: ignore[assignment]

    p: float = number(default=0.9, above=0, below=1)
    variant: Literal["a", "b", "w"] = one_of(default="a")

    def empty(self, ranking: Ranking) -> Tensor:
        longer, _ = longer_first(*two_lists(ranking))
        return longer.length == 0

    def measure(self, ranking: Ranking) -> Tensor:
        if self.top_k is not None:
            return self.truncated(ranking, self.top_k)
        agreement, length = agreements(ranking, self.variant)
        depth = torch.arange(1, agreement.shape[1] + 1, dtype=agreement.dtype, device=agreement.device)
        weight = torch.where(depth <= length.unsqueeze(-1), (1 - self.p) * self.p ** (depth - 1), 0.0)
        # Beyond both lists the last agreement goes on; the weights of all those depths sum to p ** length.
        last = agreement.gather(-1, (length.long() - 1).clamp_min(0).unsqueeze(-1)).squeeze(-1)
        return (agreement * weight).sum(-1) + last * self.p**length

    def truncated(self, ranking: Ranking, top_k: int) -> Tensor:
        """The overlap down to the depth ``top_k``: float64 [query]."""
        agreement, _ = agreements(ranking, self.variant, extrapolated=False)
        agreement = agreement[:, :top_k]
        deepest = max(agreement.shape[1], math.ceil(math.log(TINY) / math.log(self.p)))
        depths = torch.arange(1, min(top_k, deepest) + 1, dtype=agreement.dtype, device=agreement.device)
        weight = self.p ** (depths - 1)
        last = agreement.shape[1]
        # Behind the end of both lists they have as many entries in common as at their end.
        behind = agreement[:, -1] * last * (weight[last:] / depths[last:]).sum()
        return ((agreement * weight[:last]).sum(-1) + behind) / weight.sum()


class RBA(ComparingMetric):
    r"""Rank-biased alignment of two rankings: :math:`(1 - p) \sum_i p^{(rank_i + rank'_i) / 2 - 1}`.

    A candidate contributes the geometric mean of its weights :math:`(1 - p) p^{rank - 1}` by its ranks in ``preds`` and
    in ``target``; outside of a list the weight is 0. Tied candidates share the mean of their weights. RBA is symmetric,
    and tells a small rearrangement from a reversal. Two equal rankings of n candidates have :math:`1 - p^n`, because
    nothing is assumed about unseen ranks. The value is 0 if one list is empty. If both are, the query is skipped by
    default.

    Source:
        Moffat, Mackenzie, Mallia and Petri, Rank-biased quality measurement for sets and rankings, SIGIR-AP 2024; the
        lower bound of RBStar.

    Args:
        p: the probability that the user goes on to the next rank, between 0 and 1.

    Example:
        >>> import torch, torchrank as tr
        >>> preds, target = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2, 3, 1]])
        >>> tr.RBA(p=0.7).score(preds, target)  # 0.3 (2 * 0.7^0.5 + 0.7^2)
        tensor([0.6490], dtype=torch.float64)
    """

    name = "rba"
    value_range = (0.0, 1.0)

    p: float = number(default=0.95, above=0, below=1)

    def empty(self, ranking: Ranking) -> Tensor:
        return longer_first(*two_lists(ranking))[0].length == 0

    def measure(self, ranking: Ranking) -> Tensor:
        first, second = two_lists(ranking)
        return (first.weight(self.p) * second.weight(self.p)).sqrt().sum(-1)


class RBR(ComparingMetric):
    r"""Rank-biased recall of a reference ranking in the first k: :math:`\sum_{i \in A_k} (1 - p) p^{rank_i - 1}`.

    :math:`A_k` are the first k candidates by ``preds``, as a set; :math:`rank_i` is the rank by ``target``, the
    reference, for example of a slower model. So a first stage loses most by missing what the reference has at its top.
    A candidate that the reference lacks adds nothing. Candidates tied in ``target`` share the mean of their weights,
    and ties of ``preds`` at the cutoff count by their probability to be within it. A reference of n candidates allows
    :math:`1 - p^n` at most. A query without a reference is skipped by default.

    Source:
        Moffat, Mackenzie, Mallia and Petri, Rank-biased quality measurement for sets and rankings, SIGIR-AP 2024; the
        lower bound of RBStar.

    Args:
        top_k: k, the size of the set; None = all candidates that were retrieved.
        p: the probability that the reader of the reference goes on to the next rank, between 0 and 1.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RBR(top_k=2, p=0.5).score(torch.tensor([[0.9, 0.1, 0.8]]), torch.tensor([[3, 2, 1]]))  # 1/2 + 1/8
        tensor([0.6250], dtype=torch.float64)
    """

    name = "rbr"
    value_range = (0.0, 1.0)
    top_k: int | None = integer(default=None, least=1, kw_only=False)  # type: ignore[assignment]

    p: float = number(default=0.95, above=0, below=1)

    def empty(self, ranking: Ranking) -> Tensor:
        return two_lists(ranking)[1].length == 0

    def measure(self, ranking: Ranking) -> Tensor:
        first, second = two_lists(ranking)
        depth = torch.full_like(second.length, math.inf if self.top_k is None else self.top_k)
        return (first.share(depth.unsqueeze(-1)) * second.weight(self.p)).sum(-1)


class PMRR(ComparingMetric):
    r"""p-MRR, the mean change of rank by an instruction: :math:`(r - o) / \max(r, o)`.

    o is the rank of a document before, by ``target``, and r its rank after, by ``preds``. The mean is over the changed
    documents of a query, which the instruction makes irrelevant. So 0 is no change, positive values are ranks that
    fell, as they should, and negative ones ranks that rose. A document outside of a list has the rank behind it.
    :meth:`torchrank.Ranking.from_rankings` takes the changed documents as ``changed``; all documents of either list
    count in any other layout. A query without changed documents is skipped by default.

    With ties it is the exact mean over all orders of tied candidates in both rankings.

    Source:
        Weller et al., FollowIR: evaluating and teaching information retrieval models to follow instructions, NAACL
        2025; MTEB, ``p-MRR``.

    Example:
        >>> import torch, torchrank as tr
        >>> after, before, changed = torch.tensor([[7, 8, 9]]), torch.tensor([[9, 7, 8]]), torch.tensor([[9]])
        >>> tr.PMRR().score(tr.Ranking.from_rankings(after, before, changed))  # from rank 1 to rank 3: 1 - 1/3
        tensor([0.6667], dtype=torch.float64)
    """

    name = "pmrr"

    def empty(self, ranking: Ranking) -> Tensor:
        return _changed(ranking).isnan().any(-1)

    def measure(self, ranking: Ranking) -> Tensor:
        after, before = two_lists(ranking)
        change, share = _mean_change(*before.interval(), *after.interval()), _changed(ranking)
        # Changed documents outside of both lists have the ranks behind them.
        old, new = before.length.unsqueeze(-1) + 1, after.length.unsqueeze(-1) + 1
        behind = _mean_change(old, torch.ones_like(old), new, torch.ones_like(new)).squeeze(-1)
        return (change * share).sum(-1) + (1 - share.sum(-1)) * behind


@cached
def _changed(ranking: Ranking) -> Tensor:
    """The share of each entry in the changed documents of its query, float64 [query, entry]; NaN without any."""
    both, (first, second) = orders(ranking), two_lists(ranking)
    if ranking.changed is not None:
        return torch.where(both.there, ranking.changed.gather(-1, both.entry), 0.0)
    listed = (both.there & ((first.tied > 0) | (second.tied > 0))).to(first.first.dtype)
    return listed / listed.sum(-1, keepdim=True)


def _mean_change(old: Tensor, number: Tensor, new: Tensor, new_number: Tensor) -> Tensor:
    """Mean of 1 - o / r if r > o, else r / o - 1, over ranks o from ``old`` on and r from ``new`` on."""
    # The change is antisymmetric, so it cancels over the ranks that both intervals have.
    total = _falls(old, number, new, new_number) - _falls(new, new_number, old, number)
    return total / (number * new_number)


def _falls(old: Tensor, number: Tensor, new: Tensor, new_number: Tensor) -> Tensor:
    """Sum of 1 - o / r over o < r, without pairs of ranks that both intervals have."""
    before = torch.minimum(new - old, number).clamp_min(0)  # ranks of o before all r
    start = torch.maximum(new, old + number)
    after = (new + new_number - start).clamp_min(0)  # ranks of r behind all o
    rest, first_rest = number - before, old + before
    low = before * new_number - before * (old + (before - 1) / 2) * reciprocal_sums(new, new_number)[0]
    return low + rest * after - rest * (first_rest + (rest - 1) / 2) * reciprocal_sums(start, after)[0]
