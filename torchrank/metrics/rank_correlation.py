"""Two rankings of the same candidates: rank correlation, and overlap at one depth or rank-biased over all."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from torchrank.engine.sorting import by_key, descending
from torchrank.formulas.random_ranking import reciprocal_sums
from torchrank.hardware.devices import ascending, running_sum, surely, widened, widest_float
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.names.parameters import flag, integer, number, one_of
from torchrank.names.types import EmptyAction
from torchrank.ranking.ranking import Ranking, cached, ratio, run_bounds, run_starts

__all__ = [
    "LIP",
    "PMRR",
    "RBA",
    "RBO",
    "RBR",
    "APTau",
    "KendallDistance",
    "KendallTau",
    "Overlap",
    "Spearman",
    "WeightedTau",
]


# A bucket has 2 ** 5 elements, and a group 2 ** 5 buckets. Pairs are compared within buckets, and counted by buckets
# within groups.
BUCKET_BITS = 5


@dataclass(frozen=True, eq=False)
class Orders:
    """The candidates of each query in the order of the other ranking; its ties in the order of the first ranking.

    Places and numbers are int64; places count from 0. Candidates that are not retrieved form one tie group after all
    others. Padding is at the end.
    """

    #: [query, entry]: index of the entry in the first ranking
    entry: Tensor
    #: bool [query, entry]: False for padding
    there: Tensor
    #: no entry is padding; False if this is unknown
    all_valid: bool
    #: [query]: number of candidates
    number: Tensor
    #: [query, entry]: number of candidates above the entry in the first ranking
    above: Tensor
    #: [query, entry]: size of its tie group in the first ranking
    beside: Tensor
    #: [query, entry]: number of candidates above the entry in the other ranking
    other_above: Tensor
    #: [query, entry]: size of its tie group in the other ranking
    other_beside: Tensor

    @functools.cached_property
    def place(self) -> Tensor:
        """int64 [query, entry]: the place in the first ranking; its ties in the order of the other ranking."""
        # Without ties the number of candidates above is the place. With ties the stable sort keeps the other order
        # within a tie group, so tied pairs are never counted as discordant.
        if _strict(self.beside):
            return self.above
        order = by_key(self.above if self.all_valid else torch.where(self.there, self.above, self.above.shape[1]))
        return torch.empty_like(order).scatter_(-1, order, self.other_place.expand_as(order))

    @property
    def untied(self) -> bool:
        """Whether both rankings are known to have no ties."""
        return _strict(self.beside) and _strict(self.other_beside)

    @property
    def other_place(self) -> Tensor:
        """int64 [entry]: the place in the other ranking."""
        return torch.arange(self.above.shape[1], device=self.above.device)

    @functools.cached_property
    def alike(self) -> tuple[Tensor, Tensor]:
        """Number of candidates tied with an entry in both rankings, and its place among them.

        int64 [query, entry] each.
        """
        if _strict(self.beside) or _strict(self.other_beside):
            return _ones(self.above), _ones(self.above) - 1
        start, stop = run_bounds(run_starts(self.above) | run_starts(self.other_above) | run_starts(self.there))
        return stop - start, self.other_place - start

    @functools.cached_property
    def overtaken(self) -> Tensor:
        """int64 [query, entry]: number of candidates before an entry here and after it in the first ranking."""
        return larger_before(self.place)

    @property
    def discordant(self) -> Tensor:
        """int64 [query, entry]: number of candidates that form a discordant pair with an entry."""
        # Of the `place` smaller places, other_place - overtaken stand before the entry, and the others after it. So it
        # has overtaken + place - (other_place - overtaken) discordant pairs.
        return (2 * self.overtaken).add_(self.place).sub_(self.other_place)

    def all_tied(self) -> Tensor:
        """bool [query]: whether all candidates are tied in one of the rankings."""
        return torch.maximum(self.beside[:, 0], self.other_beside[:, 0]) >= self.number

    def of_candidates(self, x: Tensor) -> Tensor:
        """``x`` [query, entry], with 0 for padding."""
        return x if self.all_valid else torch.where(self.there, x, 0)

    def pairs(self, tied: Tensor, weight: Tensor | None = None) -> Tensor:
        """float64 [query]: number of tied pairs of candidates.

        Args:
            tied: int64 [query, entry]: size of the tie group of each entry.
            weight: [query, entry], 0 for padding: a pair counts the sum of its two weights. None = a pair counts 1.
        """
        if _strict(tied):
            return torch.zeros_like(self.number, dtype=widest_float(self.number.device))
        if weight is not None:
            return (weight * (tied - 1)).sum(-1)
        return widened(self.of_candidates(tied - 1).sum(-1)) / 2

    def total(self) -> Tensor:
        """float64 [query]: number of pairs of candidates."""
        number = widened(self.number)
        return number * (number - 1) / 2

    @functools.cached_property
    def reversed(self) -> Tensor:
        """float64 [query]: number of discordant pairs, which the two rankings order differently."""
        # Padding stands last in both orders and adds 0.
        return widened(self.overtaken.sum(-1))

    def net(self) -> Tensor:
        """float64 [query]: number of concordant pairs minus number of discordant pairs."""
        # Pairs tied in both rankings are in the first two terms, and are subtracted once.
        tied = self.pairs(self.beside) + self.pairs(self.other_beside) - self.pairs(self.alike[0])
        return self.total() - tied - 2 * self.reversed

    def classes(self, above: Tensor, place: Tensor) -> Tensor:
        """float64 [query]: number of different values in a ranking, from ``above`` and ``place`` in it."""
        return widened((self.there & (above == place)).sum(-1))


@cached
def orders(ranking: Ranking) -> Orders:
    """The order of the entries by grade, in descending order, beside their order in the ranking."""
    there, width = ranking.valid, ranking.first.shape[1]
    all_valid = surely(there)
    _, entry, begins = descending(ranking.grade if all_valid else torch.where(there, ranking.grade, 0))
    start, stop = run_bounds(begins)
    # run_bounds returns expanded tensors, of stride 0, if it has found that no grades are equal.
    distinct = all_valid and stop[:, :1].numel() > 0 and start.stride(0) == 0
    if not all_valid:  # move padding to the end
        padded = torch.where(there.gather(-1, entry), start, width)
        entry = by_key(padded, entry)
        there = there.gather(-1, entry)
        start, stop = run_bounds(run_starts(ascending(padded)))
    number = torch.full_like(entry[:, 0], width) if all_valid and width else there.sum(-1)
    other_beside = _ones(entry) if distinct else stop - start
    if all_valid and ranking.untied and surely(ranking.tied > 0):
        return Orders(entry, there, all_valid, number, entry, _ones(entry), start.expand_as(entry), other_beside)
    # Candidates that are not retrieved have tied = 0 in a ranking; here they are one tie group after the list.
    missing = (number - ranking.num_candidates.long()).unsqueeze(-1)
    tied = torch.where(ranking.tied > 0, ranking.tied.long(), missing).gather(-1, entry)
    above = (ranking.first.gather(-1, entry) - 1).long()
    return Orders(entry, there, all_valid, number, above, tied, start.expand_as(entry), other_beside)


def _ones(like: Tensor) -> Tensor:
    """Ones, int64 of the shape of a tensor, as an expanded scalar: its strides mark that there are no ties."""
    return torch.ones((), dtype=torch.int64, device=like.device).expand(like.shape)


def _strict(tied: Tensor) -> bool:
    """Whether tie groups are known to have one member each, because their sizes come from :func:`_ones`."""
    return not any(tied.stride())


# ---- inversions ------------------------------------------------------------------------------------------------


def larger_before(order: Tensor) -> Tensor:
    """Number of larger elements before each element of a permutation: int64 like ``order``, [row, element].

    A radix sort from the highest bit, stable in each step: an element that moves towards the front overtakes larger
    elements only, so the distance is counted. Groups of 1024 elements are left to :func:`_in_group`. O(D log D).
    """
    width = order.shape[1]
    if width < 2:
        return torch.zeros_like(order)
    bits, low = (width - 1).bit_length(), 2 * BUCKET_BITS
    unit = 1 << (low if bits > low else BUCKET_BITS)
    padded = -(-width // unit) * unit
    position = torch.arange(padded, device=order.device)
    # Padding continues the permutation with larger elements at the end, which are before no other element.
    element = torch.cat([order, position[width:].expand(len(order), -1)], -1) if padded > width else order
    if bits <= low:
        return _in_group(element)[:, :width].long()
    moved = torch.zeros_like(element)
    for bit in reversed(range(low, bits)):
        upper = (element >> bit) & 1
        ones = upper.cumsum(-1)
        # Each earlier group has as many elements with the bit as without it: 2 ** bit, `half` in total. A group begins
        # at 2 half; in it elements without the bit come first.
        half = (position >> (bit + 1)) << bit
        to = torch.where(upper > 0, ones + (half + (1 << bit) - 1), (half + position) - ones)
        moved += (position - to).clamp_min_(0)
        element, moved = (torch.empty_like(to).scatter_(-1, to, x) for x in (element, moved))
    # Each group now contains 1024 consecutive values, in their original order.
    groups = (element & (unit - 1)).reshape(-1, unit)
    moved += _in_group(groups).view(moved.shape)
    return torch.empty_like(moved).scatter_(-1, element, moved).gather(-1, order)


def _in_group(order: Tensor) -> Tensor:
    """:func:`larger_before` for permutations of at most 1024 elements, a multiple of the size of a bucket: int32.

    Places and values are both cut into buckets. A pair in different buckets of places and of values is counted in a
    table of buckets. Pairs in one bucket of places are compared, and so are pairs in one bucket of values.
    """
    rows, width = order.shape
    size = 1 << BUCKET_BITS
    buckets = width // size
    position = torch.arange(width, device=order.device) // size
    small = order.to(torch.int16)
    # The table has an empty row in front. So the same cell adds an element at its own bucket of places, and reads the
    # sums over the earlier buckets.
    cell = (small >> BUCKET_BITS).add_((position * buckets).to(torch.int16)).long()
    ones = torch.ones((), dtype=torch.int32, device=order.device).expand(order.shape)
    table = torch.zeros((rows, (buckets + 1) * buckets), dtype=torch.int32, device=order.device)
    table[:, buckets:].scatter_add_(-1, cell, ones)
    upto = table.view(rows, buckets + 1, buckets).cumsum(1, dtype=torch.int32).cumsum(2, dtype=torch.int32)
    # All elements in earlier buckets of places, minus those in the same or a lower bucket of values.
    before = (position * size).int() - upto.flatten(1).gather(-1, cell)
    before += _compared(small.view(rows, buckets, size)).view(order.shape)
    # In one bucket of values count larger values in a strictly earlier bucket of places. Reversed and negated, this is
    # the same comparison.
    bucket = position.to(torch.int8).expand(order.shape)
    by_value = torch.empty_like(bucket, memory_format=torch.contiguous_format).scatter_(-1, order, bucket)
    near_values = _compared(by_value.view(rows, buckets, size).flip(-1).neg_()).flip(-1)
    return before.add_(near_values.reshape(order.shape).gather(-1, order))


def _compared(x: Tensor) -> Tensor:
    """Number of larger elements before each element of its bucket: int8 [row, bucket, element], like ``x``."""
    # Compares all pairs of one distance at a time. Each comparison reads two contiguous pieces of memory.
    x = x.permute(2, 0, 1).contiguous()
    counts = torch.zeros(x.shape, dtype=torch.int8, device=x.device)
    for distance in range(1, len(x)):
        counts[distance:] += (x[:-distance] > x[distance:]).view(torch.int8)
    return counts.permute(1, 2, 0).contiguous()


class ComparingMetric(RankingMetric):
    """A measure of how alike two rankings of the same candidates are.

    ``preds`` gives the first ranking. ``target`` gives the other ranking: its grades are scores, larger is better. A
    grade may be any finite number; a negative grade is a value like any other. Candidates that a layout gives no grade
    have -2, and ``mask`` is False for entries that are not candidates. Candidates that were not retrieved (a score of
    -inf) are tied with each other after all others. :meth:`torchrank.Ranking.from_rankings` makes a ranking of two
    lists of ids.

    Under ``ties="expected"`` each measure treats ties by its own definition. "optimistic" and "pessimistic" break the
    ties of ``preds``, in favour of the grades or against them. Ties among grades, and among candidates that were not
    retrieved, stay. Queries with fewer than two candidates or an undefined value are skipped by default.

    Args:
        empty_target_action: the value of a query with nothing to compare: "skip", no value; "neg" 0; "pos" 1; "error".
    """

    value_range = (-1.0, 1.0)
    top_k: None = None
    takes_unjudged_for = ("irrelevant",)

    empty_target_action: EmptyAction = "skip"

    def need(self) -> Need:
        return Need(all_candidates=True)

    def check(self, preds: Any, target: Any) -> None:
        graded = isinstance(target, tuple) and len(target) == 3
        if isinstance(preds, Tensor) and not preds.is_floating_point() and not graded:
            raise TypeError(
                f"Expected scores and grades of the same candidates for {self.label}, got a list of ids; for two lists"
                " of ids pass Ranking.from_rankings(preds, target)"
            )

    #: whether a query is empty if all candidates are tied in one of the rankings
    of_differences = True

    def empty(self, ranking: Ranking) -> Tensor:
        both = orders(self.resolve_ties(ranking))
        return (both.number < 2) | both.all_tied() if self.of_differences else both.number < 2

    def measure(self, ranking: Ranking) -> Tensor:
        return self.compare(orders(ranking))

    def compare(self, both: Orders) -> Tensor:
        """The formula on two orders: float64 [query]."""
        raise NotImplementedError


class KendallTau(ComparingMetric):
    r"""Kendall's tau of each query, from its concordant and discordant pairs: :math:`\tau_a = (C - D) / {n \choose 2}`.

    Of n candidates, C pairs are concordant: both rankings order them alike. D pairs are discordant: the rankings order
    them differently. A pair tied in either ranking is neither. T pairs are tied in the first ranking, U in the other,
    and m is the smaller number of different values of the two. The variants are:

    - "a": :math:`(C - D) / (n (n-1) / 2)`, which is the mean over all orders of tied candidates in both rankings.
    - "b": :math:`(C - D) / \sqrt{(n(n-1)/2 - T)(n(n-1)/2 - U)}`.
    - "c": :math:`2 (C - D) m / (n^2 (m - 1))`.
    - "gamma": :math:`(C - D) / (C + D)`.

    If all candidates are tied in one ranking, only "a" is defined; its value is 0.

    Source:
        "a": Kendall, A new measure of rank correlation, Biometrika 30, 1938; "b": Kendall, The treatment of ties in
        ranking problems, Biometrika 33, 1945; "c": Stuart, Biometrika 40, 1953; "gamma": Goodman and Kruskal, JASA 49,
        1954.

    Args:
        variant: "a", "b", "c" or "gamma".

    Raises:
        ValueError: an unknown variant.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.KendallTau().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([0.3333], dtype=torch.float64)
    """

    name = "kendalltau"

    variant: Literal["a", "b", "c", "gamma"] = one_of(default="b")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.of_differences = self.variant != "a"

    def empty(self, ranking: Ranking) -> Tensor:
        if self.variant != "gamma":
            return super().empty(ranking)
        both = orders(self.resolve_ties(ranking))
        return both.net() + 2 * both.reversed == 0  # C + D = (C - D) + 2 D

    def compare(self, both: Orders) -> Tensor:
        net, discordant, total = both.net(), both.reversed, both.total()
        if self.variant == "a":
            return net / total
        if self.variant == "gamma":
            return net / (net + 2 * discordant)
        untied, other_untied = total - both.pairs(both.beside), total - both.pairs(both.other_beside)
        if self.variant == "b":
            return (net / untied.sqrt() / other_untied.sqrt()).clamp(-1, 1)
        # m, the smaller number of different values
        values = torch.minimum(both.classes(both.above, both.place), both.classes(both.other_above, both.other_place))
        return 2 * net / (widened(both.number).square() * (values - 1) / values)


class KendallDistance(ComparingMetric):
    r"""Kendall's tau distance: :math:`K = D + penalty \cdot S`, the number of pairs in different order.

    D is the number of discordant pairs and S the number of pairs that are tied in exactly one ranking. Lower is better.
    For two lists with different ids it is :math:`K^{(penalty)}` of Fagin, Kumar and Sivakumar, Comparing top k lists,
    2003.

    Source:
        Fagin, Kumar, Mahdian, Sivakumar and Vee, Comparing and aggregating rankings with ties, PODS 2004.

    Args:
        normalized: divide by the number of all pairs.
        penalty: the count of a pair that is tied in exactly one ranking, from 0 to 1.

    Raises:
        ValueError: ``penalty`` is not a number from 0 to 1.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.KendallDistance().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([1.], dtype=torch.float64)
    """

    name = "kendalldistance"
    value_range = (0.0, math.inf)
    higher_is_better = False
    of_differences = False

    normalized: bool = flag(default=False)
    penalty: float = number(default=0.5, least=0, most=1)

    def compare(self, both: Orders) -> Tensor:
        tied, other_tied, alike = (both.pairs(x) for x in (both.beside, both.other_beside, both.alike[0]))
        # Pairs tied in both rankings are in both counts of ties, so they are taken off twice.
        distance = both.reversed + self.penalty * (tied + other_tied - 2 * alike)
        return distance / both.total() if self.normalized else distance


class WeightedTau(ComparingMetric):
    r"""Vigna's weighted tau, Kendall's tau of weighted pairs: :math:`\sum w s s' / \sqrt{\sum w s^2 \sum w s'^2}`.

    The sums are over all pairs of candidates. s and s' are the signs of their differences in the two rankings. The
    weight of a pair at ranks i and j is :math:`w = \frac{1}{i} + \frac{1}{j}`. Ties are treated as in tau b.

    The ranks i and j come from ``preds``, with equal scores ranked by ``target``, or the other way round. By default
    the value is the mean of both.

    Source:
        Vigna, A weighted correlation index for rankings with ties, WWW 2015, additive and hyperbolic.

    Args:
        weigh_by: the source of the ranks in the weights: "both", "preds" or "target".

    Raises:
        ValueError: an unknown ``weigh_by``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.WeightedTau().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([0.5455], dtype=torch.float64)
    """

    name = "weightedtau"

    weigh_by: Literal["both", "preds", "target"] = one_of(default="both")

    def compare(self, both: Orders) -> Tensor:
        places = {"preds": both.place, "target": both.other_place}
        return torch.stack([self.weighted(both, places[by]) for by in places if self.weigh_by in (by, "both")]).mean(0)

    def weighted(self, both: Orders, place: Tensor) -> Tensor:
        """The value for weights 1 / (1 + place)."""
        weight = both.of_candidates(widened(place + 1).reciprocal_().expand(both.place.shape))
        total = weight.sum(-1) * (both.number - 1)  # each candidate is in number - 1 pairs
        tied, other_tied, alike = (both.pairs(x, weight) for x in (both.beside, both.other_beside, both.alike[0]))
        net = total - tied - other_tied + alike - 2 * (weight * both.discordant).sum(-1)
        return (net / (total - tied).sqrt() / (total - other_tied).sqrt()).clamp(-1, 1)


class APTau(ComparingMetric):
    r"""AP correlation, in which errors at the top weigh more: :math:`\frac{2}{n-1} \sum_{i=2}^n \frac{C_i}{i-1} - 1`.

    ``target`` is the true ranking. Of the i - 1 candidates above rank i in ``preds``, :math:`C_i` are above the
    candidate of rank i in ``target`` too. With ties this is the exact mean over all orders of tied candidates in both
    rankings. For ties in ``preds`` it is tau_AP,a of Urbano and Marrero, ICTIR 2017. A pair tied in ``target`` counts
    as half concordant.

    Source:
        Yilmaz, Aslam and Robertson, A new rank correlation coefficient for information retrieval, SIGIR 2008.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.APTau().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "aptau"
    of_differences = False

    def compare(self, both: Orders) -> Tensor:
        # Of the candidates above a candidate's tie group in ``preds``, ``misplaced`` are below it in ``target`` and
        # ``indifferent`` are tied with it there. ``net`` counts the concordant less the discordant ones.
        # Candidates in the group itself are above it in half of the orders, so they add 0 on average.
        misplaced = (both.discordant + both.place - both.other_place) // 2
        indifferent = both.other_place - both.other_above - both.alike[1]
        net = both.of_candidates(both.above - 2 * misplaced - indifferent)
        ranks = torch.arange(1, net.shape[1] + 1, dtype=widest_float(net.device), device=net.device)
        harmonic = torch.nn.functional.pad(running_sum(1 / ranks), (1, 0))
        # The mean of 1 / (rank - 1) over the ranks of the tie group, as a difference of harmonic numbers.
        above = (both.above - 1).clamp_(0, net.shape[1])
        mean = (harmonic[(above + both.beside).clamp_max_(net.shape[1])] - harmonic[above]) / both.beside.clamp_min(1)
        return (net * mean).sum(-1) / (both.number - 1)


class Spearman(ComparingMetric):
    r"""Spearman's rank correlation: :math:`\sum (x - m) (y - m) / \sqrt{\sum (x - m)^2 \sum (y - m)^2}`.

    This is Pearson's correlation of the ranks x and y of the candidates in the two rankings, both with the mean m.
    Without ties it is :math:`1 - 6 \sum (x - y)^2 / (n^3 - n)` for n candidates. Tied candidates have the mean of their
    ranks. The value is undefined if all candidates are tied in one of the rankings.

    Source:
        Spearman, The proof and measurement of association between two things, 1904.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Spearman().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "spearman"

    def compare(self, both: Orders) -> Tensor:
        if both.all_valid and both.untied:
            # The sum of the squares is the same in both rankings, and with the middle of the ranks in only one factor
            # the products have the same sum. All terms are integers, so nothing is rounded here.
            width = both.entry.shape[1]
            away = 2 * widened(both.other_place) - (width - 1)
            return (6 * (widened(both.above) @ away) / (width**3 - width)).clamp(-1, 1)
        # Twice the distance of each mean rank from the middle: a whole number, so nothing is rounded here.
        middle = both.number.unsqueeze(-1)
        first, second = (
            widened(both.of_candidates(2 * above + beside - middle))
            for above, beside in ((both.above, both.beside), (both.other_above, both.other_beside))
        )
        spread = first.square().sum(-1).sqrt() * second.square().sum(-1).sqrt()
        return ((first * second).sum(-1) / spread).clamp(-1, 1)


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
        """First rank and number of ranks of each entry; the rank after the list for an entry outside of it."""
        outside = self.tied == 0
        return torch.where(outside, self.length.unsqueeze(-1) + 1, self.first), self.tied + outside


@cached
def two_lists(ranking: Ranking) -> tuple[RankedList, RankedList]:
    """The retrieved candidates, and all candidates by their grades. A grade of -inf is in no list."""
    both: Orders = orders(ranking)
    first, tied, grade = (x.gather(-1, both.entry) for x in (ranking.first, ranking.tied, ranking.grade))
    graded = both.there & (grade > -math.inf) if grade.is_floating_point() else both.there
    by_score = RankedList(first, torch.where(both.there, tied, 0), ranking.num_candidates)
    by_grade = (both.other_above + 1, torch.where(graded, both.other_beside, 0), graded.sum(-1))
    return by_score, RankedList(*(x.to(first.dtype) for x in by_grade))


def longer_first(first: RankedList, second: RankedList) -> tuple[RankedList, RankedList]:
    """The longer and the shorter list of each query."""
    swap = (second.length > first.length).unsqueeze(-1)
    # torch.maximum rather than torch.where for the lengths, so that an unknown length (NaN) makes both unknown.

    def chosen(from_second: Tensor, length: Tensor) -> RankedList:
        first_rank = torch.where(from_second, second.first, first.first)
        return RankedList(first_rank, torch.where(from_second, second.tied, first.tied), length)

    longest, shortest = (extreme(first.length, second.length) for extreme in (torch.maximum, torch.minimum))
    return chosen(swap, longest), chosen(~swap, shortest)


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
    rise, full = (torch.maximum(ranked.first, x) for x in (other_first, other_end))
    stop = torch.minimum(end, other_end)
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
    if variant == "w" or surely(torch.maximum(longer.tied, shorter.tied) <= 1):
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


class ComparedLists(ComparingMetric):
    """A measure of how much two lists have in common. A query is empty if both of its lists are."""

    value_range = (0.0, 1.0)
    top_k: int | None = integer(default=None, least=1, kw_only=False)  # type: ignore[assignment]

    def empty(self, ranking: Ranking) -> Tensor:
        first, second = two_lists(ranking)
        return torch.maximum(first.length, second.length) == 0


class Overlap(ComparedLists):
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

    def measure(self, ranking: Ranking) -> Tensor:
        first, second = two_lists(ranking)
        length = torch.maximum(first.length, second.length).nan_to_num(nan=0)
        depth = (length if self.top_k is None else torch.full_like(length, self.top_k)).unsqueeze(-1)
        # Ties of the two rankings are broken independently, so the probability to be in both is the product.
        return ratio((first.share(depth) * second.share(depth)).sum(-1), depth.squeeze(-1))


class LIP(ComparedLists):
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


class RBO(ComparedLists):
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

    p: float = number(default=0.9, above=0, below=1)
    variant: Literal["a", "b", "w"] = one_of(default="a")

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


class RBA(ComparedLists):
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
    top_k: None = None

    p: float = number(default=0.95, above=0, below=1)

    def measure(self, ranking: Ranking) -> Tensor:
        first, second = two_lists(ranking)
        return (first.weight(self.p) * second.weight(self.p)).sqrt().sum(-1)


class RBR(ComparedLists):
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
    fell, as they should, and negative ones ranks that rose. A document outside of a list has the rank after it.
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
        # Changed documents outside of both lists have the ranks after them.
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
    after = (new + new_number - start).clamp_min(0)  # ranks of r after all o
    rest, first_rest = number - before, old + before
    low = before * new_number - before * (old + (before - 1) / 2) * reciprocal_sums(new, new_number)[0]
    return low + rest * after - rest * (first_rest + (rest - 1) / 2) * reciprocal_sums(start, after)[0]
