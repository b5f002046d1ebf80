"""Rank correlation: the ranking by scores compared with the ranking by grades, which may be any numbers."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from torchrank.formulas.concordance import Orders, orders
from torchrank.hardware.devices import running_sum, widened, widest_float
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.names.parameters import flag, number, one_of
from torchrank.names.types import EmptyAction
from torchrank.ranking.ranking import Ranking

__all__ = ["APTau", "KendallDistance", "KendallTau", "Spearman", "WeightedTau"]


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
