"""Base classes for measures of groups of items: how much attention the lists give to each group."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, one_hot

from torchrank.hardware.devices import widened
from torchrank.metrics.item_data import is_integer, kind_of
from torchrank.metrics.item_lists import Catalogue, ListMetric, Recommended
from torchrank.metrics.rank_discount import Discount, RankDiscount
from torchrank.names.parameters import described
from torchrank.names.types import Described
from torchrank.ranking.intervals import ratio


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
