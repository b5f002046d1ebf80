"""Two rankings of the same candidates compared: that of the scores with that of the grades, which are any numbers."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from torchrank.formulas.concordance import Orders, orders
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.names.parameters import flag, number, one_of
from torchrank.names.types import EmptyAction
from torchrank.ranking.arithmetic import running_sum
from torchrank.ranking.ranking import Ranking

__all__ = ["APTau", "KendallDistance", "KendallTau", "Spearman", "WeightedTau"]


class ComparingMetric(RankingMetric):
    """A measure of how alike two rankings of the same candidates are.

    ``preds`` gives the first ranking. ``target`` gives the other one: a grade is a score there, the larger the better,
    and may be any finite number; a negative one is a value like others. What a layout names no grade of has -2, and
    ``mask`` says what is no candidate. Candidates that were not retrieved (a score of -inf) are tied with each other
    behind all others. Two lists of ids become a ranking by :meth:`torchrank.Ranking.from_rankings`.

    Under ``ties="expected"`` ties are treated as the measure says. "optimistic" and "pessimistic" settle those of
    ``preds``, in favour of the grades or against them; ties among the grades, and among what was not retrieved, stay.
    Queries with fewer than two candidates, or whose value is not defined, are skipped by default.

    Args:
        empty_target_action: "skip", or "neg" 0, "pos" 1, "error": what a query counts that has nothing to compare.
        kwargs: ``ties``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.
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
                f"Expected two rankings of the same candidates for {self.label}, got a list of ids and what is"
                " relevant: of two lists of ids make one Ranking.from_rankings(preds, target)"
            )

    #: whether there is nothing to compare where all candidates are tied in one of the rankings
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

    A pair of candidates is concordant if both rankings order it alike, discordant if they do not, and neither if one
    of them has a tie. With T and U the pairs tied in the one and in the other ranking and m the smaller number of
    different values, variant "b" is :math:`(C - D) / \sqrt{(n(n-1)/2 - T)(n(n-1)/2 - U)}`, "c"
    :math:`2 (C - D) m / (n^2 (m - 1))`, "gamma" :math:`(C - D) / (C + D)`. "a" is the mean over all orders of what is
    tied, in both rankings. Where all candidates are tied only "a" is defined, and 0.

    Source:
        "a": Kendall, A new measure of rank correlation, Biometrika 30, 1938; "b": Kendall, The treatment of ties in
        ranking problems, Biometrika 33, 1945; "c": Stuart, Biometrika 40, 1953; "gamma": Goodman and Kruskal, JASA 49,
        1954.

    Args:
        variant: "a", "b", "c" or "gamma".
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`ComparingMetric`.

    Raises:
        ValueError: an unknown variant.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.KendallTau().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([0.3333], dtype=torch.float64)
    """

    known_as = {
        "parse": "kendall tau kendall_tau_b kendall_rank_corr_coef",
        "scipy": {"kendalltau": "with its variants b and c"},
        "torchmetrics": {"KendallRankCorrCoef": "~ over all samples, and its variant a is gamma here"},
    }
    name = "kendalltau"

    variant: Literal["a", "b", "c", "gamma"] = one_of(default="b")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.of_differences = self.variant != "a"

    def empty(self, ranking: Ranking) -> Tensor:
        if self.variant != "gamma":
            return super().empty(ranking)
        both = orders(self.resolve_ties(ranking))
        return both.net() + 2 * both.reversed() == 0

    def compare(self, both: Orders) -> Tensor:
        net, discordant, total = both.net(), both.reversed(), both.total()
        if self.variant == "a":
            return net / total
        if self.variant == "gamma":
            return net / (net + 2 * discordant)
        untied, other_untied = total - both.pairs(both.beside), total - both.pairs(both.other_beside)
        if self.variant == "b":
            return (net / untied.sqrt() / other_untied.sqrt()).clamp(-1, 1)
        values = torch.minimum(both.classes(both.above, both.place), both.classes(both.other_above, both.other_place))
        return 2 * net / (both.number.double().square() * (values - 1) / values)


class KendallDistance(ComparingMetric):
    r"""Kendall's tau distance: :math:`K = D + penalty \cdot S`, the number of pairs in different order.

    D are the discordant pairs, S those that are tied in one ranking only. Of two lists of ids, each of which may have
    some that the other lacks, it is :math:`K^{(penalty)}` of Fagin, Kumar and Sivakumar, Comparing top k lists, 2003.
    Lower is better.

    Source:
        Fagin, Kumar, Mahdian, Sivakumar and Vee, Comparing and aggregating rankings with ties, PODS 2004.

    Args:
        normalized: the share of all pairs instead of their number.
        penalty: what a pair counts that is tied in one ranking only, from 0 to 1.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`ComparingMetric`.

    Raises:
        ValueError: a penalty that is not from 0 to 1.

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
        distance = both.reversed() + self.penalty * (tied + other_tied - 2 * alike)
        return distance / both.total() if self.normalized else distance


class WeightedTau(ComparingMetric):
    r"""Vigna's weighted tau, Kendall's tau of weighted pairs: :math:`\sum w s s' / \sqrt{\sum w s^2 \sum w s'^2}`.

    Over all pairs of candidates, s being the signs of their differences in the two rankings and the weights
    :math:`w = \frac{1}{i} + \frac{1}{j}` for ranks i and j: a correlation in the sense of tau b. The ranks that make
    the weights are those of ``preds``, equal ones ranked by ``target``; or the other way round; or, by default, the
    mean of both values.

    Source:
        Vigna, A weighted correlation index for rankings with ties, WWW 2015, additive and hyperbolic.

    Args:
        weigh_by: whose ranks make the weights: "both", "preds" or "target".
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`ComparingMetric`.

    Raises:
        ValueError: an unknown ``weigh_by``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.WeightedTau().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([0.5455], dtype=torch.float64)
    """

    known_as = {"parse": "weighted_kendall_tau", "scipy": {"weightedtau": "whose `rank=True` is the default here"}}
    name = "weightedtau"

    weigh_by: Literal["both", "preds", "target"] = one_of(default="both")

    def compare(self, both: Orders) -> Tensor:
        places = {"preds": both.place, "target": both.other_place}
        return torch.stack([self.weighted(both, places[by]) for by in places if self.weigh_by in (by, "both")]).mean(0)

    def weighted(self, both: Orders, place: Tensor) -> Tensor:
        """The value for weights 1 / (1 + place)."""
        weight = both.of_candidates((place + 1).double().reciprocal_().expand(both.place.shape))
        total = weight.sum(-1) * (both.number - 1)
        tied, other_tied, alike = (both.pairs(x, weight) for x in (both.beside, both.other_beside, both.alike[0]))
        net = total - tied - other_tied + alike - 2 * (weight * both.discordant).sum(-1)
        return (net / (total - tied).sqrt() / (total - other_tied).sqrt()).clamp(-1, 1)


class APTau(ComparingMetric):
    r"""AP correlation, for which errors at the top weigh more: :math:`\frac{2}{n-1} \sum_{i=2}^n \frac{C_i}{i-1} - 1`.

    :math:`C_i` of the i - 1 candidates above rank i in ``preds`` are above that candidate in ``target`` too, which is
    the true ranking. With ties the exact mean over all orders of what is tied, in both rankings: that of tau_AP,a of
    Urbano and Marrero, ICTIR 2017, for ties in ``preds``; a pair tied in ``target`` is as good as half concordant.

    Source:
        Yilmaz, Aslam and Robertson, A new rank correlation coefficient for information retrieval, SIGIR 2008.

    Args:
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`ComparingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.APTau().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {"parse": "tau_ap", "ircor": ""}
    name = "aptau"
    of_differences = False

    def compare(self, both: Orders) -> Tensor:
        # In the blocks above a candidate: those that should be below it, and those tied with it in the true ranking.
        misplaced = (both.discordant + both.place - both.other_place) // 2
        indifferent = both.other_place - both.other_above - both.alike[1]
        net = both.of_candidates(both.above - 2 * misplaced - indifferent)
        ranks = torch.arange(1, net.shape[1] + 1, dtype=torch.float64, device=net.device)
        harmonic = torch.nn.functional.pad(running_sum(1 / ranks), (1, 0))
        above = (both.above - 1).clamp_(0, net.shape[1])
        mean = (harmonic[(above + both.beside).clamp_max_(net.shape[1])] - harmonic[above]) / both.beside.clamp_min(1)
        return (net * mean).sum(-1) / (both.number - 1)


class Spearman(ComparingMetric):
    r"""Spearman's rank correlation: :math:`\sum (x - m) (y - m) / \sqrt{\sum (x - m)^2 \sum (y - m)^2}`.

    Pearson's correlation of the ranks x and y that each candidate has in the two rankings, whose mean is m. It is
    :math:`1 - 6 \sum (x - y)^2 / (n^3 - n)` where nothing is tied. Tied candidates have the mean of their ranks. Not
    defined where all candidates are tied in one of the rankings.

    Source:
        Spearman, The proof and measurement of association between two things, 1904.

    Args:
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`ComparingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Spearman().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[3, 1, 2]]))
        tensor([0.5000], dtype=torch.float64)
    """

    known_as = {
        "parse": "spearman_rho spearman_corr_coef",
        "scipy": "spearmanr",
        "torchmetrics": {"SpearmanCorrCoef": "~ over all samples"},
    }
    name = "spearman"

    def compare(self, both: Orders) -> Tensor:
        # Twice the distance of each mean rank from the middle, a whole number.
        middle = both.number.unsqueeze(-1)
        one, other = (
            both.of_candidates(2 * above + beside - middle).double()
            for above, beside in ((both.above, both.beside), (both.other_above, both.other_beside))
        )
        spread = one.square().sum(-1).sqrt() * other.square().sum(-1).sqrt()
        return ((one * other).sum(-1) / spread).clamp(-1, 1)
