"""Beyond accuracy: the novelty, popularity and unexpectedness of the items recommended to each user."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchrank.metrics.item_data import is_integer, item_numbers, kind_of
from torchrank.metrics.item_lists import Catalogue, PerUserMetric, Recommended
from torchrank.names.parameters import derived, described, flag, number
from torchrank.names.types import Described

__all__ = ["Novelty", "Popularity", "Serendipity", "Unexpectedness"]


class Novelty(PerUserMetric):
    r"""Mean inverse user frequency: :math:`\frac{1}{|L|} \sum_{i \in L} -\log_2 \frac{n_i}{U}`.

    L is a list, U the number of users, and :math:`n_i` the number of users who have used item i. An unused item counts
    as used by one user, as in RecTools and RePlay. A list shorter than k is averaged over its own length. An empty list
    is left out.

    Source:
        Castells, Vargas and Wang, Novelty and diversity metrics for recommender systems, DDR 2011; Zhou et al., Solving
        the apparent diversity-accuracy dilemma of recommender systems, PNAS 107(10), 2010.

    Args:
        interactions: [item], the number of users who have used each item.
        num_users: U, the number of users.
        normalize: divide by :math:`\log_2 U`, the novelty of an item that one user has used.

    Raises:
        ValueError: a value of ``interactions`` is not between 0 and ``num_users``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Novelty(interactions=torch.tensor([8, 1, 2]), num_users=8).score(torch.tensor([[0, 1], [2, -1]]))
        tensor([1.5000, 2.0000], dtype=torch.float64)
    """

    name = "novelty"
    value_range = (0.0, math.inf)

    interactions: Described[Tensor] = described()
    num_users: int = number(above=1)
    normalize: bool = flag(default=False)

    def describe(self, interactions: Tensor) -> tuple[Catalogue, int]:
        counts = item_numbers("interactions", interactions)
        if (most := float(counts.max())) > self.num_users:
            raise ValueError(f"Expected interactions to be at most num_users={self.num_users}, got {most:g}")
        return {"interactions": counts, "num_users": self.num_users}, len(counts)

    def measure(self, lists: Recommended) -> Tensor:
        # An unused item counts as used by one user, because the logarithm of 0 is infinite.
        surprise = math.log2(self.num_users) - torch.log2(self.interactions[lists.ids].clamp_min(1))
        return lists.mean(surprise) / (math.log2(self.num_users) if self.normalize else 1)


class Popularity(PerUserMetric):
    r"""Average recommendation popularity: :math:`\frac{1}{|L|} \sum_{i \in L} pop_i`.

    L is a list and :math:`pop_i` the popularity of item i. A lower value means rarer items. A list shorter than k is
    averaged over its own length. An empty list is left out.

    Source:
        Yin et al., Challenging the long tail recommendation, VLDB 2012.

    Args:
        interactions: [item], the popularity of each item, such as its number of interactions; >= 0.
        normalize: divide by the sum of ``interactions``.

    Raises:
        ValueError: ``interactions`` is not a 1-D tensor of finite numbers >= 0.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Popularity(interactions=torch.tensor([8, 1, 2])).score(torch.tensor([[0, 1], [2, -1]]))
        tensor([4.5000, 2.0000], dtype=torch.float64)
    """

    name = "popularity"
    value_range = (0.0, math.inf)
    higher_is_better = False

    interactions: Described[Tensor] = described()
    normalize: bool = flag(default=False)

    def describe(self, interactions: Tensor) -> tuple[Catalogue, int]:
        counts = item_numbers("interactions", interactions)
        return {"interactions": counts / counts.sum().clamp_min(1e-300) if self.normalize else counts}, len(counts)

    def measure(self, lists: Recommended) -> Tensor:
        return lists.mean(self.interactions[lists.ids])


class Unexpectedness(PerUserMetric):
    r"""Unexpectedness: the share of a list L that a baseline list B does not contain, :math:`1 - |L \cap B| / |L|`.

    B is cut at k, too, if it is one list for all users. Without ``baseline`` the ids in ``target`` are B, a set of its
    own for each list, and are not cut. So the target decides the meaning:

    - the list of another recommender, ``other[:, :k]``: unexpectedness as in RePlay.
    - the previous list of the user, ``previous[:, :k]``: temporal diversity.
    - all items that were recommended to the user before: temporal novelty.
    - all items that the user knows: novelty as in RePlay.

    A list shorter than k is averaged over its own length. An empty list is left out. If B is empty, the value is 1.

    Source:
        Ge, Delgado-Battenfeld and Jannach, Beyond accuracy: evaluating recommender systems by coverage and serendipity,
        RecSys 2010. Temporal diversity and novelty: Lathia, Hailes, Capra and Amatriain, Temporal diversity in
        recommender systems, SIGIR 2010.

    Args:
        baseline: int [position], item ids, best first; None = the target of each list.

    Raises:
        TypeError: ``baseline`` is not a 1-D tensor of integer ids.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.Unexpectedness(2, baseline=torch.tensor([7, 3, 5])).score(torch.tensor([[3, 9, 7], [5, 1, 2]]))
        tensor([0.5000, 1.0000], dtype=torch.float64)
        >>> last_week, today = torch.tensor([[3, 9], [5, 1]]), torch.tensor([[9, 3], [5, 2]])
        >>> tr.Unexpectedness(2).score(today, last_week)  # temporal diversity
        tensor([0.0000, 0.5000], dtype=torch.float64)
    """

    name = "unexpectedness"

    baseline: Described[Tensor | None] = described(default=None)

    @property
    def needs_target(self) -> bool:  # type: ignore[override]
        """Whether the baselines are the targets."""
        return self.baseline is None

    def describe(self, baseline: Tensor | None) -> tuple[Catalogue, None]:
        if baseline is None:
            return {"baseline": None}, None
        if not isinstance(baseline, Tensor) or baseline.dim() != 1 or not is_integer(baseline):
            raise TypeError(f"Expected baseline to be integer ids [position], got {kind_of(baseline, 'baseline')}")
        return {"baseline": baseline[: self.top_k].long()}, None

    def measure(self, lists: Recommended) -> Tensor:
        if self.baseline is not None:
            return lists.mean(~torch.isin(lists.ids, self.baseline))
        return lists.mean(lists.grade <= 0)


class Serendipity(PerUserMetric):
    r"""Serendipity: how far relevant items rank above their rank by popularity.

    :math:`\frac{1}{|L|} \sum_{i \in L} \max(p_i - pu_i, 0) \, rel_i`. N is the number of items, and :math:`rel_i` is 1
    for a relevant item, else 0. The item at rank i of the list L is recommended with probability
    :math:`p_i = (N + 1 - i) / N`. Popularity alone recommends it with probability
    :math:`pu_i = (N + 1 - poprank_i) / N`, or 0 if nobody has used it. Items of equal popularity share a rank, and the
    next item has the next number.

    A list shorter than k is averaged over its own length. An empty list is left out. A list without a relevant item
    scores 0.

    Source:
        RecTools' ``Serendipity``, after Murakami, Mori and Orihara, Metrics for evaluating the serendipity of
        recommendation lists, JSAI 2007.

    Args:
        interactions: [item], the number of interactions of each item.
        relevance_level: a grade at or above it is relevant; > 0. Ids without grades have grade 1.

    Raises:
        ValueError: ``interactions`` is not a 1-D tensor of finite numbers >= 0.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.Serendipity(interactions=torch.tensor([3, 2, 0, 0]))
        >>> metric.score(torch.tensor([[0, 1], [1, 2]]), torch.tensor([[0, 1], [1, 2]]))
        tensor([0.0000, 0.5000], dtype=torch.float64)
    """

    name = "serendipity"
    needs_target = True

    interactions: Described[Tensor] = described()
    relevance_level: float = number(default=1, above=0)
    expected: Tensor = derived()

    def describe(self, interactions: Tensor) -> tuple[Catalogue, int]:
        counts = item_numbers("interactions", interactions)
        levels = torch.unique(counts[counts > 0])
        # Dense ranks: equally popular items share one, and no number is skipped after them.
        rank = len(levels) - torch.searchsorted(levels, counts).to(counts.dtype)
        expected = torch.where(counts > 0, (len(counts) + 1 - rank) / len(counts), 0.0)
        return {"expected": expected}, len(counts)

    def measure(self, lists: Recommended) -> Tensor:
        relevant = lists.grade.to(lists.dtype) >= self.relevance_level
        items = len(self.expected)
        chance = (items + 1 - lists.rank).to(lists.dtype) / items
        return lists.mean((chance - self.expected[lists.ids]).clamp_min(0) * relevant)
