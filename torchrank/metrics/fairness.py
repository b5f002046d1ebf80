"""Fairness to groups of items: the attention that lists give to each group, and the share it should have."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.concordance import difference, kullback_leibler
from torchrank.hardware.devices import running_sum
from torchrank.metrics.item_groups import (
    GroupMetric,
    PopulationMetric,
    amounts_of,
    distribution,
    membership,
)
from torchrank.metrics.item_lists import Catalogue, ExposureMetric, PerUserMetric, Recommended
from torchrank.metrics.rank_discount import Discount
from torchrank.names.parameters import derived, described, number, one_of
from torchrank.names.types import Described
from torchrank.ranking.intervals import ratio

__all__ = ["AWRF", "NDKL", "DemographicParity", "ExposureParity"]


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
