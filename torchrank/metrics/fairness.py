"""Popularity, fairness and calibration: who gets the attention of users."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, one_hot

from torchrank.hardware.devices import running_sum, widened
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.beyond_accuracy import Popularity
from torchrank.metrics.item_lists import (
    Catalogue,
    Discount,
    ExposureMetric,
    ListMetric,
    PerUserMetric,
    RankDiscount,
    Recommended,
    is_integer,
    item_flags,
    item_numbers,
    kind_of,
)
from torchrank.names.parameters import derived, described, fixed, number, one_of
from torchrank.names.types import Described, EmptyAction
from torchrank.ranking.ranking import Ranking, ratio, run_bounds, run_starts

__all__ = [
    "ACLT",
    "APLT",
    "AWRF",
    "EED",
    "EEL",
    "EER",
    "NDKL",
    "DemographicParity",
    "ExposureParity",
    "Miscalibration",
    "PopularityLift",
    "TailCoverage",
    "TailPercentage",
]


class GroupMetric(RankDiscount, ListMetric):
    """A measure of the attention that lists give to groups of items.

    The attention to a group is the sum of the discounts at the ranks of its items. An item of several groups counts
    for each by its share. Items without a group keep their ranks, and their attention counts for no group. A list
    without a grouped item is left out.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        groups: the groups, or genres, of each item. int [item]: one group, numbered from 0, negative = none. bool
            [item, group]: several groups with equal shares. floating [item, group]: shares, finite and >= 0. Kept as
            float64 [item, group].
        kwargs: as :class:`ListMetric`.

    Raises:
        TypeError, ValueError: ``groups`` has a wrong shape, dtype or value, or as :class:`ListMetric`.
    """

    groups: Described[Tensor] = described()
    discount: Discount = "log2"

    def describe(self, groups: Tensor) -> tuple[Catalogue, int]:
        shares = membership(groups)
        return {"groups": shares}, len(shares)

    def width(self, lists: Recommended) -> int:
        # The tables have a row of groups for each list.
        return -(-self.groups.shape[1] // lists.ids.shape[1])

    def attention(self, lists: Recommended) -> Tensor:
        """The discount at each rank, 0 where no item is: float64 [query, position]."""
        return torch.where(lists.is_item, self.discount_function(lists.rank.clamp_min(1).to(lists.dtype)), 0.0)

    def by_group(self, ids: Tensor, weights: Tensor) -> Tensor:
        """Sum of ``weights`` over the items of each group: float64 [query, group].

        Args:
            ids: int64 [query, position], ids of the catalogue.
            weights: float64 [query, position], 0 for positions that do not count.
        """
        if not ids.numel():
            return self.groups.new_zeros((len(ids), self.groups.shape[1]))
        return embedding_bag(ids, self.groups, per_sample_weights=weights.to(self.groups.dtype), mode="sum")

    def attention_by_group(self, lists: Recommended) -> Tensor:
        """The attention to each group: float64 [query, group]."""
        return self.by_group(lists.ids, self.attention(lists))

    def empty(self, lists: Recommended) -> Tensor:
        return self.attention_by_group(lists).sum(-1) == 0


class PopulationMetric(GroupMetric):
    """A measure that compares the groups in a list with the shares that they should have.

    Args:
        population: floating [group], the share that each group should have, up to a factor, finite and >= 0; None =
            the share of each group in the catalogue. ``torch.ones(groups)`` = equal shares.
        kwargs: as :class:`GroupMetric`.
    """

    population: Described[Tensor | None] = described(default=None)

    def describe(self, groups: Tensor, population: Tensor | None = None) -> tuple[Catalogue, int]:
        shares = membership(groups)
        amounts = shares.sum(0) if population is None else amounts_of("population", population, shares)
        return {"groups": shares, "population": amounts / amounts.sum()}, len(shares)


def distribution(amounts: Tensor) -> Tensor:
    """Shares of amounts [..., group] in their sum; 0 if the sum is 0."""
    return ratio(amounts, amounts.sum(-1, keepdim=True))


def membership(groups: Any) -> Tensor:
    """The share of each item in each group, checked: float64 [item, group].

    Raises:
        TypeError: ``groups`` is not int [item], bool [item, group] or floating [item, group].
        ValueError: shares are negative or not finite, or no item has a group.
    """
    known = isinstance(groups, Tensor) and not groups.is_complex()
    if not known or groups.dim() != (1 if is_integer(groups) else 2):
        raise TypeError(
            "Expected groups to be a tensor, int [item], bool [item, group] or floating [item, group],"
            f" got {kind_of(groups, 'groups')}"
        )
    if is_integer(groups):
        shares = widened(one_hot(groups.detach().long().clamp_min(-1) + 1)[:, 1:])
    else:
        shares = widened(groups.detach())
    if groups.dtype == torch.bool:
        shares = distribution(shares)
    if not bool((shares.isfinite() & (shares >= 0)).all()) or not bool(shares.any()):
        raise ValueError("Expected groups to be finite shares >= 0, some above 0, got other values or no group")
    return shares


def amounts_of(name: str, amounts: Any, shares: Tensor) -> Tensor:
    """A number for each group, checked: float64 [group], on the device of ``shares`` [item, group].

    Raises:
        ValueError: not a tensor of finite numbers >= 0 for each group, some above 0.
    """
    number_of_groups = shares.shape[1]
    if not isinstance(amounts, Tensor) or amounts.is_complex() or amounts.shape != (number_of_groups,):
        raise ValueError(
            f"Expected {name} to be a tensor [group] of {number_of_groups} numbers, got {kind_of(amounts, name)}"
        )
    numbers = amounts.detach().to(shares)
    if not bool((numbers.isfinite() & (numbers >= 0)).all()) or not bool(numbers.any()):
        raise ValueError(f"Expected {name} to be finite numbers >= 0, some above 0, got other values")
    return numbers


def kullback_leibler(p: Tensor, q: Tensor) -> Tensor:
    """KL divergence in nats: the sum of p ln(p / q); infinite if q is 0 where p is not."""
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1).clamp_min(0)


def difference(name: str, p: Tensor, q: Tensor, log_base: float) -> Tensor:
    """The difference of two distributions by its name; logarithms are to the base ``log_base``."""
    if name == "tv":  # half the sum of absolute differences, from 0 to 1
        return ((p - q).abs().sum(-1) / 2).clamp_max(1)
    if name == "hellinger":  # from 0 to 1
        return ((p.sqrt() - q.sqrt()).square().sum(-1) / 2).clamp_max(1).sqrt()
    nats = kullback_leibler(p, q)
    if name == "js":  # the mean divergence of both from their mean, at most ln 2
        middle = (p + q) / 2
        nats = ((kullback_leibler(p, middle) + kullback_leibler(q, middle)) / 2).clamp_max(math.log(2))
    return nats / math.log(log_base)


class AWRF(PopulationMetric, PerUserMetric):
    r"""Attention-weighted rank fairness: 1 - the distance of the groups' attention from a population.

    :math:`1 - d(a, p)`. The attention of group g is :math:`a_g \propto \sum_{i \in L} s_{i,g} \, w(rank_i)`. L is a
    list, :math:`s_{i,g}` the share of item i in group g and w the discount. The attention :math:`a_g` and the
    population :math:`p_g` each sum to 1. The distance d is

    - "js": the Jensen-Shannon divergence, as in the TREC Fair Ranking tracks. With the natural logarithm it is at most
      ln 2, with ``log_base=2`` at most 1.
    - "tv": the total variation, half the sum of :math:`|a_g - p_g|`. Of two groups it is the absolute difference of
      Raj and Ekstrand.
    - "hellinger": the Hellinger distance.

    Source:
        Sapiezynski, Zeng, Robertson, Mislove and Wilson, Quantifying the impact of user attention on fair group
        representation in ranked lists, WWW Companion 2019; "js" and the default discount are of the TREC 2022 Fair
        Ranking track; "tv": Raj and Ekstrand, Measuring fairness in ranked results, SIGIR 2022.

    Args:
        population: [group], the share that each group should have; None = its share in the catalogue.
        distance: "js", "tv" or "hellinger".
        log_base: the base of the logarithm of "js", >= 2; math.e by default.

    Raises:
        TypeError, ValueError: ``groups`` or ``population`` has a wrong shape, dtype or value.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.AWRF(groups=torch.tensor([0, 0, 1, 1]), discount="none", distance="tv")
        >>> metric.score(torch.tensor([[0, 2], [0, 1]]))  # the groups have equal shares in the catalogue
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """

    name = "awrf"

    discount: Discount = "clipped"
    distance: Literal["js", "tv", "hellinger"] = one_of(default="js")
    log_base: float = number(default=math.e, least=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distance != "js" and self.log_base != math.e:
            raise ValueError(f"Expected log_base only with distance='js', got {self.log_base} with {self.distance!r}")

    def measure(self, lists: Recommended) -> Tensor:
        attention = distribution(self.attention_by_group(lists))
        assert self.population is not None
        return 1 - difference(self.distance, attention, self.population, self.log_base)


class NDKL(PopulationMetric, PerUserMetric):
    r"""Normalised discounted cumulative KL divergence of a list's prefixes from a population.

    :math:`\frac{1}{Z} \sum_i w(i) \sum_g a_{g,i} \ln \frac{a_{g,i}}{p_g}` with :math:`Z = \sum_i w(i)`. Here w is the
    discount, :math:`a_{g,i}` the share of group g in the first i items, and :math:`p_g` its share in the population.
    The sums over i are over the ranks of items with a group. Lower is fairer; 0 if every prefix has the shares of the
    population.

    Source:
        Geyik, Ambler and Kenthapadi, Fairness-aware ranking in search and recommendation systems with application to
        LinkedIn talent search, KDD 2019.

    Args:
        population: [group], the share that each group should have, above 0 for groups with items; None = its share in
            the catalogue.

    Raises:
        TypeError, ValueError: ``groups`` or ``population`` has a wrong shape, dtype or value.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.NDKL(groups=torch.tensor([0, 0, 1, 1]))
        >>> metric.score(torch.tensor([[0, 2], [0, 1]]))  # ln 2 for a prefix of one group, 0 for one of both
        tensor([0.4250, 0.6931], dtype=torch.float64)
    """

    name = "ndkl"
    value_range = (0.0, math.inf)
    higher_is_better = False

    def describe(self, groups: Tensor, population: Tensor | None = None) -> tuple[Catalogue, int]:
        described, items = super().describe(groups, population)
        shares, wanted = described["groups"], described["population"]
        if bool(((wanted == 0) & (shares.sum(0) > 0)).any()):
            raise ValueError("Expected population above 0 for each group with items, got 0; NDKL would be infinite")
        return described, items

    def width(self, lists: Recommended) -> int:
        return self.groups.shape[1]

    def measure(self, lists: Recommended) -> Tensor:
        shares = torch.where(lists.is_item.unsqueeze(-1), self.groups[lists.ids], 0.0)
        weights = torch.where(shares.sum(-1) > 0, self.attention(lists), 0.0)
        assert self.population is not None
        divergence = kullback_leibler(distribution(running_sum(shares.mT).mT), self.population)
        return ratio((weights * divergence).sum(-1), weights.sum(-1))


class DemographicParity(GroupMetric, PerUserMetric):
    r"""Demographic parity of exposure: the smallest mean exposure of a group's items over the largest.

    :math:`\min_g e_g / \max_g e_g` with :math:`e_g = \sum_{i \in L} s_{i,g} \, w(rank_i) \,/\, \sum_{i \in L} s_{i,g}`.
    L is a list, w the discount and :math:`s_{i,g}` the share of item i in group g. Groups without an item in the list
    are left out, and so are lists with fewer than two groups or without exposure. 1 is parity of all groups.

    Source:
        Singh and Joachims, Fairness of exposure in rankings, KDD 2018; the ratio of the smallest and the largest value:
        FairRankTune.

    Raises:
        TypeError, ValueError: ``groups`` has a wrong shape, dtype or value.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.DemographicParity(groups=torch.tensor([0, 0, 1, 1]))
        >>> metric.score(torch.tensor([[0, 2], [0, 1]]))  # 1 / log2(3); one group alone has no value
        tensor([0.6309,    nan], dtype=torch.float64)
    """

    name = "demographicparity"

    def empty(self, lists: Recommended) -> Tensor:
        return super().empty(lists) | ((self.sizes(lists) > 0).sum(-1) < 2)

    def sizes(self, lists: Recommended) -> Tensor:
        """Number of items of each group in each list: float64 [query, group]."""
        return self.by_group(lists.ids, lists.is_item.to(lists.dtype))

    def measure(self, lists: Recommended) -> Tensor:
        return evenness(self.attention_by_group(lists), self.sizes(lists))


class ExposureParity(GroupMetric, ExposureMetric):
    r"""Parity of exposure over all lists: the smallest exposure of a group per merit over the largest.

    :math:`\min_g (E_g / m_g) \,/\, \max_g (E_g / m_g)` with :math:`E_g = \sum_L \sum_{i \in L} s_{i,g} \, w(rank_i)`. L
    is a list, w the discount and :math:`s_{i,g}` the share of item i in group g. The merit :math:`m_g` of a group is
    its number of items in the catalogue: demographic parity. If ``merit`` is the sum of relevance of its items, it is
    disparate treatment. Groups of merit 0 are left out. 1 is parity of all groups. NaN if fewer than two groups have
    merit, or if none of these has exposure.

    The lists may be several samples of a stochastic ranking. The state has one number for each group.

    Source:
        Singh and Joachims, Fairness of exposure in rankings, KDD 2018; the ratio of the smallest and the largest value:
        FairRankTune.

    Args:
        merit: [group], the exposure that each group deserves, up to a factor; None = its number of items.

    Raises:
        TypeError, ValueError: ``groups`` or ``merit`` has a wrong shape, dtype or value.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.ExposureParity(groups=torch.tensor([0, 0, 1, 1]), discount="none")
        >>> metric.update(torch.tensor([[0, 2], [0, 1]]))
        >>> metric.compute()  # 3 to 1 for groups of the same size
        tensor(0.3333)
    """

    name = "exposureparity"

    num_items: int = derived()
    merit: Described[Tensor | None] = described(default=None)

    def describe(self, groups: Tensor, merit: Tensor | None = None) -> tuple[Catalogue, int]:
        shares = membership(groups)
        amounts = shares.sum(0) if merit is None else amounts_of("merit", merit, shares)
        return {"groups": shares, "merit": amounts}, len(shares)

    @property
    def num_extra_sums(self) -> int:
        return self.groups.shape[1]

    def further_sums(self, lists: Recommended, weights: Tensor) -> Tensor:
        exposure = (weights.unsqueeze(-1).to(lists.dtype) * self.attention_by_group(lists)).sum(0)
        return exposure.to(weights)

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        assert self.merit is not None
        merit = self.merit.to(exposure)
        defined = ((merit > 0).sum() > 1) & (exposure[merit > 0].sum() > 0)
        return torch.where(defined, evenness(exposure, merit), float("nan"))


def evenness(exposure: Tensor, size: Tensor) -> Tensor:
    """The smallest exposure / size of the groups with a size above 0, over the largest: [..., group] to [...]."""
    there = size > 0
    each = exposure / size
    least = torch.where(there, each, math.inf).amin(-1)
    return least / torch.where(there, each, 0.0).amax(-1)


class ExpectedExposureMetric(RankDiscount, RankingMetric):
    r"""Base of the measures of expected exposure.

    The exposure :math:`\epsilon_d` of candidate d is the expected discount of its rank over a distribution of rankings.
    Under ``ties="expected"`` a tie is such a distribution: all orders of the tie group, equally likely. The target
    :math:`\epsilon^*_d` is the exposure in an ideal distribution: candidates in descending order of grade, and all
    orders of candidates with equal grades equally likely. Unjudged candidates have grade 0. The target is over
    candidates that are retrieved or have a grade above 0; the others are not candidates.

    Several sampled rankings of one query are not ties. Their mean exposure goes into ``of_exposure``.

    Args:
        top_k: count only the first ``top_k`` ranks: ranks after it have no exposure, in the target too.
        kwargs: ``ties``, ``empty_target_action`` ("skip" by default), ``aggregation``, ``validate_args``: as
            :class:`RankingMetric`.

    Raises:
        ValueError: an unknown discount, or a patience out of range.
    """

    value_range = (0.0, math.inf)
    takes_unjudged_for = ("irrelevant", "condensed")

    empty_target_action: EmptyAction = "skip"
    discount: Discount = "geometric"

    def need(self) -> Need:
        # The exposure of irrelevant candidates counts, also of those that a layout does not name.
        return Need(all_candidates=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return ~(ranking.valid & (ranking.grade > 0)).any(-1)

    def measure(self, ranking: Ranking) -> Tensor:
        candidates = ranking.valid & ((ranking.tied > 0) | (ranking.grade > 0))
        exposure = ranking.mean_discount(self.discount_function, self.top_k)
        return self.of_exposure(exposure, ranking.grade, candidates)

    def of_exposure(self, exposure: Tensor, grade: Tensor, mask: Tensor | None = None) -> Tensor:
        """The value of given exposures, such as means over sampled rankings: float64 [query].

        Args:
            exposure: floating [query, candidate], the expected discount of each candidate.
            grade: [query, candidate]; negative = unjudged, as 0.
            mask: bool [query, candidate], False for padding.

        Example:
            >>> import torch, torchrank as tr
            >>> ranks = torch.tensor([[[1, 2, 3], [2, 3, 1]]])  # [query, sample, candidate]
            >>> exposure = (0.5 ** (ranks.double() - 1)).mean(1)
            >>> tr.EED(patience=0.5).of_exposure(exposure, torch.tensor([[1, 0, 1]]))  # 0.75**2 + 0.375**2 + 0.625**2
            tensor([1.0938], dtype=torch.float64)
        """
        there = torch.ones_like(exposure, dtype=torch.bool) if mask is None else mask
        exposure = torch.where(there, exposure.to(torch.promote_types(exposure.dtype, torch.float32)), 0.0)
        target = target_exposure(grade, there, self.discount_function, self.top_k, exposure)
        return self.compare(exposure, target)

    def compare(self, exposure: Tensor, target: Tensor) -> Tensor:
        """The formula: float64 [query], from exposures of candidates, [query, candidate] each."""
        raise NotImplementedError


def target_exposure(
    grade: Tensor, mask: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None, like: Tensor
) -> Tensor:
    """Exposure if candidates are in descending order of grade, and equal grades in random order.

    Returns:
        [query, candidate], with the dtype of ``like``; 0 where ``mask`` is False.
    """
    key = torch.where(mask, grade.to(like.dtype).clamp_min(0), -1.0)
    ordered, order = key.sort(dim=-1, descending=True, stable=True)
    start, stop = run_bounds(run_starts(ordered))
    ranks = torch.arange(1, key.shape[1] + 1, dtype=like.dtype, device=key.device)
    seen = discount(ranks) if top_k is None else torch.where(ranks <= top_k, discount(ranks), 0.0)
    sums = torch.nn.functional.pad(running_sum(seen), (1, 0))
    mean = ratio(sums.take(stop) - sums.take(start), (stop - start).to(like.dtype))
    return torch.where(mask, torch.zeros_like(like).scatter(-1, order, mean), 0.0)


class EEL(ExpectedExposureMetric):
    r"""Expected exposure loss, EE-L: the squared distance of the exposures of candidates from their targets.

    :math:`\sum_d (\epsilon_d - \epsilon^*_d)^2`. :math:`\epsilon_d` is the exposure of candidate d, and
    :math:`\epsilon^*_d` its target: its exposure if the candidates are in descending order of grade, and all orders of
    candidates with equal grades are equally likely. The loss equals EE-D - 2 EE-R plus a constant of the query. It is 0
    if candidates of equal grade share the ranks that their grade earns. A single order of several relevant candidates
    has a loss, because it prefers some of them. The paper's cascade model, in which relevant candidates reduce the
    exposure of later ones, is not available.

    Source:
        Diaz, Mitra, Ekstrand, Biega and Carterette, Evaluating stochastic rankings with expected exposure, CIKM 2020.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        discount: "geometric", the user of :class:`RBP`; "log2", "clipped", "reciprocal", "none" or a callable.
        patience: the probability that the user goes on to the next rank, > 0 and <= 1.

    Raises:
        ValueError: an unknown discount, or a patience out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, grades = torch.tensor([[0.9, 0.9, 0.1], [0.9, 0.8, 0.1]]), torch.tensor([[1, 1, 0], [1, 1, 0]])
        >>> tr.EEL().score(scores, grades)  # a tie shares the exposure, an order does not: 2 * 0.25**2
        tensor([0.0000, 0.1250], dtype=torch.float64)
    """

    name = "eel"
    higher_is_better = False

    def compare(self, exposure: Tensor, target: Tensor) -> Tensor:
        return (exposure - target).square().sum(-1)


class EED(ExpectedExposureMetric):
    r"""Expected exposure disparity, EE-D: how unevenly exposure is spread over candidates, :math:`\sum_d \epsilon_d^2`.

    :math:`\epsilon_d` is the exposure of candidate d. A fixed order has the largest value, and a tie of all candidates
    the smallest. Grades have no effect, except that queries without a relevant candidate are skipped, as for
    :class:`EEL`.

    Source:
        Diaz, Mitra, Ekstrand, Biega and Carterette, Evaluating stochastic rankings with expected exposure, CIKM 2020.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        discount: "geometric", the user of :class:`RBP`; "log2", "clipped", "reciprocal", "none" or a callable.
        patience: the probability that the user goes on to the next rank, > 0 and <= 1.

    Raises:
        ValueError: an unknown discount, or a patience out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, grades = torch.tensor([[0.9, 0.9], [0.9, 0.8]]), torch.tensor([[1, 0], [1, 0]])
        >>> tr.EED().score(scores, grades)  # 2 * 0.75**2 and 1 + 0.5**2
        tensor([1.1250, 1.2500], dtype=torch.float64)
    """

    name = "eed"
    higher_is_better = False

    def compare(self, exposure: Tensor, target: Tensor) -> Tensor:
        return exposure.square().sum(-1)


class EER(ExpectedExposureMetric):
    r"""Expected exposure relevance, EE-R: how much exposure goes where the target has it.

    :math:`\sum_d \epsilon_d \, \epsilon^*_d`. :math:`\epsilon_d` is the exposure of candidate d, and
    :math:`\epsilon^*_d` its target, as in :class:`EEL`. It is linear in the exposure, so the mean over sampled rankings
    is exact.

    Source:
        Diaz, Mitra, Ekstrand, Biega and Carterette, Evaluating stochastic rankings with expected exposure, CIKM 2020.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        discount: "geometric", the user of :class:`RBP`; "log2", "clipped", "reciprocal", "none" or a callable.
        patience: the probability that the user goes on to the next rank, > 0 and <= 1.

    Raises:
        ValueError: an unknown discount, or a patience out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.EER().score(torch.tensor([[0.9, 0.8]]), torch.tensor([[0, 1]]))  # 1 * 0.5 + 0.5 * 1
        tensor([1.], dtype=torch.float64)
    """

    name = "eer"

    def compare(self, exposure: Tensor, target: Tensor) -> Tensor:
        return (exposure * target).sum(-1)


class Miscalibration(GroupMetric, PerUserMetric):
    r"""Miscalibration: how far the genres of a list are from the genres of the user's history.

    :math:`KL(p, \tilde q) = \sum_g p_g \ln \frac{p_g}{\tilde q_g}` with
    :math:`\tilde q = (1 - \alpha) q + \alpha p`. The share of genre g in the history H is
    :math:`p_g \propto \sum_{i \in H} v_i \, s_{i,g}`, in the list L :math:`q_g \propto \sum_{i \in L} w(rank_i) \,
    s_{i,g}`. Here :math:`s_{i,g}` is the share of item i in genre g, :math:`v_i` the weight of an item in the history
    and w the discount. :math:`\alpha` keeps the value finite for genres that the list lacks. 0 is perfect calibration.

    ``update`` takes the history of each user as ``target``: ids of items, all of weight 1, or (query, item, weight)
    triples. So the metric belongs to another collection than measures of relevant items. Items of the history that
    ``exclude`` names stay candidates, as relevant items do: remove them from the lists instead. A list or a history
    without an item of a genre is left out.

    Source:
        Steck, Calibrated recommendations, RecSys 2018: "kl".

    Args:
        distance: "kl"; or "js", the Jensen-Shannon divergence, "hellinger" or "tv", the total variation, of p and q.
        alpha: the share of the history in :math:`\tilde q`, of "kl" only; > 0 and < 1.
        log_base: the base of the logarithm of "kl" and "js", >= 2; math.e by default.

    Raises:
        TypeError, ValueError: ``groups`` has a wrong shape, dtype or value, or a parameter is out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> genres = torch.tensor([[1, 0], [1, 1], [0, 1], [0, 1]], dtype=torch.bool)
        >>> history = [torch.tensor([0, 2]), torch.tensor([0, 3])]  # both half and half
        >>> tr.Miscalibration(groups=genres).score(torch.tensor([[1, -1], [2, 3]]), history)
        tensor([0.0000, 1.9585], dtype=torch.float64)
    """

    name = "miscalibration"
    value_range = (0.0, math.inf)
    higher_is_better = False
    needs_target = True

    discount: Discount = "none"
    distance: Literal["kl", "js", "tv", "hellinger"] = one_of(default="kl")
    alpha: float = number(default=0.01, above=0, below=1)
    log_base: float = number(default=math.e, least=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distance != "kl" and self.alpha != 0.01:
            raise ValueError(f"Expected alpha only with distance='kl', got {self.alpha} with {self.distance!r}")
        if self.distance not in ("kl", "js") and self.log_base != math.e:
            raise ValueError(
                f"Expected log_base only with distance='kl' or 'js', got {self.log_base} with {self.distance!r}"
            )

    def of_target(self, items: Tensor, grade: Tensor) -> Tensor:
        weights = torch.where(items >= 0, grade, torch.zeros_like(grade)).clamp_min(0).to(self.groups.dtype)
        return self.by_group(items.clamp_min(0), weights)

    def empty(self, lists: Recommended) -> Tensor:
        return super().empty(lists) | (lists.from_target.sum(-1) == 0)

    def measure(self, lists: Recommended) -> Tensor:
        history, shown = distribution(lists.from_target), distribution(self.attention_by_group(lists))
        if self.distance == "kl":
            shown = (1 - self.alpha) * shown + self.alpha * history
        return difference(self.distance, history, shown, self.log_base)


class TailMetric(ListMetric):
    """A measure of the items of the long tail.

    Args:
        long_tail: bool [item], True for items of the long tail.

    Raises:
        TypeError: ``long_tail`` is not a 1-D bool tensor.
    """

    long_tail: Described[Tensor] = described()

    def describe(self, long_tail: Tensor) -> tuple[Catalogue, int]:
        return {"long_tail": item_flags("long_tail", long_tail, "items of the long tail")}, len(long_tail)


class APLT(TailMetric, PerUserMetric):
    r"""Average percentage of long-tail items: :math:`|L \cap T| / |L|`.

    T is the long tail, and L a list. The value is a share, from 0 to 1. A list shorter than k is averaged over its own
    length. An empty list is left out.

    The literature has several tails. The least popular items with 20 % of all interactions, for example, are
    ``long_tail[order[interactions[order].cumsum(0) <= 0.2 * interactions.sum()]] = True`` for
    ``order = interactions.argsort()``.

    Source:
        Abdollahpouri, Burke and Mobasher, Managing popularity bias in recommender systems with personalized re-ranking,
        FLAIRS 2019.

    Raises:
        TypeError: ``long_tail`` is not a 1-D bool tensor.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.APLT(long_tail=torch.tensor([False, False, True])).score(torch.tensor([[0, 2], [1, -1]]))
        tensor([0.5000, 0.0000], dtype=torch.float64)
    """

    name = "aplt"

    def measure(self, lists: Recommended) -> Tensor:
        return lists.mean(self.long_tail[lists.ids])


class TailPercentage(APLT):
    r"""Tail percentage: the share of a list that is in the long tail by interactions, :math:`|L \cap T| / |L|`.

    This is :class:`APLT` with RecBole's long tail. The tail contains used items only, which have an interaction. If
    ``tail`` is at most 1, it is a share: of n used items, the max(1, floor(``tail`` n)) items with the fewest
    interactions are the tail. Among items with equal numbers those of smaller id come first. If ``tail`` is larger than
    1, used items with at most ``tail`` interactions are the tail. To let unused items into a tail by share, add 1 to
    all ``interactions``.

    A list shorter than k is averaged over its own length. An empty list is left out.

    Source:
        RecBole, ``TailPercentage``, after Abdollahpouri, Burke and Mobasher, Managing popularity bias in recommender
        systems with personalized re-ranking, FLAIRS 2019, as average percentage of long-tail items.

    Args:
        interactions: [item], the number of interactions of each item.
        tail: the tail, as a share of the used items (at most 1) or as a number of interactions (larger than 1); > 0.

    Raises:
        ValueError: ``interactions`` is not a 1-D tensor of finite numbers >= 0, or ``tail`` is not above 0.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.TailPercentage(interactions=torch.tensor([8, 1, 2, 0]), tail=2)  # items 1 and 2
        >>> metric.score(torch.tensor([[0, 1], [2, 1]]))
        tensor([0.5000, 1.0000], dtype=torch.float64)
    """

    name = "tailpercentage"

    interactions: Described[Tensor] = described()
    tail: float = number(default=0.1, above=0)
    long_tail: Tensor = derived()

    def describe(self, interactions: Tensor) -> tuple[Catalogue, int]:
        counts = item_numbers("interactions", interactions)
        used = counts > 0
        if self.tail > 1:
            return {"long_tail": used & (counts <= self.tail)}, len(counts)
        # The stable sort keeps equal numbers in the order of ids.
        rarest = torch.where(used, counts, math.inf).argsort(stable=True)
        size = max(1, int(int(used.sum()) * self.tail))
        return {"long_tail": torch.zeros_like(used).index_fill(0, rarest[:size], True) & used}, len(counts)


class ACLT(TailMetric, PerUserMetric):
    r"""Average coverage of long-tail items: the number of them in a list, :math:`|L \cap T|`.

    T is the long tail, and L a list. An empty list is left out. The paper describes the share of the long tail that all
    lists cover together, which is :class:`TailCoverage`; its formula is this mean number.

    Source:
        Abdollahpouri, Burke and Mobasher, Managing popularity bias in recommender systems with personalized re-ranking,
        FLAIRS 2019.

    Raises:
        TypeError: ``long_tail`` is not a 1-D bool tensor.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.ACLT(long_tail=torch.tensor([False, True, True])).score(torch.tensor([[1, 2], [0, -1]]))
        tensor([2., 0.], dtype=torch.float64)
    """

    name = "aclt"
    value_range = (0.0, math.inf)

    def measure(self, lists: Recommended) -> Tensor:
        return (self.long_tail[lists.ids] & lists.is_item).sum(-1).to(lists.dtype)


class TailCoverage(TailMetric, ExposureMetric):
    r"""Coverage of the long tail: the share of it that all lists cover together, :math:`|T \cap \bigcup_u L_u| / |T|`.

    T is the long tail, and :math:`L_u` the list of user u. The value is NaN if T is empty.

    Source:
        Abdollahpouri, Burke and Mobasher, Managing popularity bias in recommender systems with personalized re-ranking,
        FLAIRS 2019, in the words that introduce :class:`ACLT`.

    Raises:
        TypeError: ``long_tail`` is not a 1-D bool tensor.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.TailCoverage(long_tail=torch.tensor([False, False, True, True]))
        >>> metric.update(torch.tensor([[0, 1], [1, 3]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    name = "tailcoverage"

    num_items: int = derived()

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        tail = self.long_tail.to(exposure.dtype)
        return ((exposure > 0) * tail).sum() / tail.sum()


class PopularityLift(Popularity):
    r"""Popularity lift of a group of users: how much more popular their lists are than their profiles.

    :math:`\frac{GAP_r - GAP_p}{GAP_p}`. The group average popularity :math:`GAP_r` is the mean over users of the mean
    popularity of their list, as :class:`Popularity`. :math:`GAP_p` is the same mean for their profiles, the items that
    they have used. The target of each list is the profile of its user. 0 means that the lists are as popular as the
    profiles.

    The value of one user is :math:`r / p - 1` for the mean popularity r of the list and p of the profile. A user counts
    with weight p, so that the mean over users is the formula. Groups can be slices of :class:`torchrank.Sliced`. Empty
    lists are left out, and so are users whose profile has no item or only items of popularity 0.

    Source:
        Abdollahpouri, Mansoury, Burke and Mobasher, The unfairness of popularity bias in recommendation, RMSE workshop
        at RecSys 2019; named popularity lift in: The connection between popularity bias, calibration, and fairness in
        recommendation, RecSys 2020.

    Args:
        top_k: count only the first ``top_k`` ranks of the list; None = all of them.

    Raises:
        ValueError: ``interactions`` is not a 1-D tensor of finite numbers >= 0.

    Example:
        >>> import torch, torchrank as tr
        >>> lift = tr.PopularityLift(interactions=torch.tensor([8, 4, 2, 2]))
        >>> lists, profiles = torch.tensor([[0, 1], [1, 2]]), [torch.tensor([1]), torch.tensor([2, 3])]
        >>> lift.update(lists, profiles)
        >>> lift.compute()  # (6 + 3) / (4 + 2) - 1
        tensor(0.5000)
    """

    name = "popularitylift"
    value_range = (-1.0, math.inf)
    needs_target = True

    normalize: bool = fixed(False, "which is the same for any unit of popularity")

    def of_target(self, items: Tensor, grade: Tensor) -> Tensor:
        inside = (items >= 0) & (grade > 0)
        popularity = torch.where(inside, self.interactions[items.clamp_min(0)], 0.0)
        return popularity.sum(-1) / inside.sum(-1).clamp_min(1)

    def empty(self, lists: Recommended) -> Tensor:
        return super().empty(lists) | (self.weight(lists) <= 0)

    def weight(self, lists: Recommended) -> Tensor:
        return lists.from_target

    def measure(self, lists: Recommended) -> Tensor:
        return super().measure(lists) / self.weight(lists) - 1
