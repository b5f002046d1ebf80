"""Popularity bias: the long tail of the catalogue in the lists, and lists compared with the profiles of their users."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchrank.metrics.beyond_accuracy import Popularity
from torchrank.metrics.item_data import item_flags, item_numbers
from torchrank.metrics.item_lists import Catalogue, ExposureMetric, ListMetric, PerUserMetric, Recommended
from torchrank.names.parameters import derived, described, fixed, number
from torchrank.names.types import Described

__all__ = ["ACLT", "APLT", "PopularityLift", "TailCoverage", "TailPercentage"]


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
