"""Beyond accuracy: how lists use the catalogue, and how new, varied and surprising they are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor
from torchmetrics.utilities.plot import plot_curve

from torchrank.hardware.devices import running_sum
from torchrank.layouts.arrange import Batch
from torchrank.layouts.checks import check_tensor
from torchrank.layouts.conversions import identifiers
from torchrank.metrics.item_lists import (
    Catalogue,
    Discount,
    ExposureMetric,
    ListMetric,
    PerUserMetric,
    RankDiscount,
    Recommended,
    is_integer,
    item_categories,
    item_embeddings,
    item_numbers,
    kind_of,
)
from torchrank.names.parameters import derived, described, flag, number, one_of
from torchrank.names.types import Array, Described, Target, call_of
from torchrank.ranking.ranking import ratio, run_bounds, run_starts
from torchrank.state.scoring import Values
from torchrank.state.sums import Sum

__all__ = [
    "Aliasing",
    "CategoricalDiversity",
    "CategoryEntropy",
    "Coverage",
    "Duplication",
    "Entropy",
    "Gini",
    "IntraListDiversity",
    "LorenzCurve",
    "Novelty",
    "Personalization",
    "Popularity",
    "Serendipity",
    "Unexpectedness",
    "Validity",
]


class Coverage(ExposureMetric):
    r"""Catalogue coverage: the share of items that at least one list contains, :math:`|\bigcup_u L_u| / N`.

    :math:`L_u` is the list of user u and N the number of items.

    Source:
        Ge, Delgado-Battenfeld and Jannach, Beyond accuracy: evaluating recommender systems by coverage and serendipity,
        RecSys 2010.

    Args:
        num_items: N, the number of items in the catalogue.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.Coverage(num_items=5)
        >>> metric.update(torch.tensor([[0, 1], [1, 4]]))
        >>> metric.compute()
        tensor(0.6000)
    """

    name = "coverage"

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        return (exposure > 0).to(exposure.dtype).mean()


class Personalization(ExposureMetric):
    r"""Personalization: how different the lists of two users are, :math:`1 - |L_u \cap L_v| / \sqrt{|L_u| |L_v|}`.

    The value is 1 - cosine of the lists of users u and v, averaged over all pairs of users. It is computed from one sum
    over users. Let :math:`x_i = \sum_u [i \in L_u] / \sqrt{|L_u|}`, and let U be the number of lists that are not
    empty. The mean is then :math:`1 - (|x|^2 - U) / (U (U - 1))`, so no list is stored and no pair enumerated. It is
    NaN for fewer than two lists. With weights, a pair counts the product of the weights of its lists.

    Source:
        Zhou et al., Solving the apparent diversity-accuracy dilemma of recommender systems, PNAS 107(10), 2010 (as
        inter-user diversity, of lists of equal length).

    Args:
        num_items: the number of items in the catalogue.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.Personalization(num_items=5)
        >>> metric.update(torch.tensor([[0, 1], [1, 4]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    name = "personalization"

    def amounts(self, lists: Recommended, weights: Tensor) -> Tensor:
        return super().amounts(lists, weights / lists.length.clamp_min(1).sqrt())

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        themselves = sums[Sum.W2]  # the pairs of a list with itself: the sum of squared weights
        pairs, alike = sums[Sum.W] ** 2 - themselves, exposure.square().sum() - themselves
        # One list makes no pair: the difference is 0 up to rounding.
        return torch.where(pairs > 1e-12 * themselves, 1 - alike / pairs, float("nan"))


class Spread(RankDiscount, ExposureMetric):
    """A measure of how evenly exposure is spread over the catalogue.

    The exposure of an item is the sum of the discounts of its ranks in all lists.

    Args:
        num_items: the number of items in the catalogue.
    """

    discount: Discount = "none"
    patience: float = 0.85

    def amounts(self, lists: Recommended, weights: Tensor) -> Tensor:
        return super().amounts(lists, weights) * self.discount_function(lists.rank.clamp_min(1).to(lists.dtype))


class Entropy(Spread):
    r"""Shannon entropy of the items' shares of the exposure: :math:`-\sum_i p_i \log_b p_i`.

    :math:`p_i` is the share of item i in the sum of all exposure, and b the base of the logarithm.

    Source:
        Shannon, A mathematical theory of communication, 1948; of recommendations, Adomavicius and Kwon, Improving
        aggregate recommendation diversity using ranking-based techniques, TKDE 24(5), 2012.

    Args:
        num_items: N, the number of items in the catalogue.
        normalize: True divides by :math:`\log_b N`, the entropy of the uniform distribution; "distinct", as in RecBole,
            by the number of different items in the lists.
        log_base: b, the base of the logarithm, > 1.

    Raises:
        ValueError: an argument is out of range, or unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.Entropy(num_items=4)
        >>> metric.update(torch.tensor([[0, 1], [0, 2]]))
        >>> metric.compute()
        tensor(1.5000)
    """

    name = "entropy"
    value_range = (0.0, math.inf)

    normalize: bool | Literal["distinct"] = one_of(False, True, "distinct", default=False)
    log_base: float = number(default=2, above=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize is True and self.log_base != 2:
            raise ValueError(f"Expected no log_base together with normalize=True, got {self.log_base}")

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        share = exposure / exposure.sum()
        nats = -torch.xlogy(share, share).sum()
        if self.normalize is True:
            return nats / max(math.log(len(exposure)), 1e-300)  # avoids 0 / 0 if the catalogue has one item
        distinct = (exposure > 0).sum() if self.normalize else 1
        return nats / math.log(self.log_base) / distinct


class Gini(Spread):
    r"""Gini index of exposure x in ascending order: :math:`\frac{\sum_i (2i - N - 1) x_i}{N \sum_i x_i}`.

    N is the number of items. The index is 0 if all items have equal exposure, and near 1 if a few items have nearly all
    of it. Lower is more even.

    Source:
        Gini, 1912; of recommendations, Fleder and Hosanagar, Blockbuster culture's next rise or fall, Management
        Science 55(5), 2009.

    Args:
        num_items: N, the number of items in the catalogue.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.Gini(num_items=4)
        >>> metric.update(torch.tensor([[0, 1], [0, 2]]))
        >>> metric.compute()
        tensor(0.3750)
    """

    name = "gini"
    higher_is_better = False

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        n = len(exposure)
        place = torch.arange(1, n + 1, dtype=exposure.dtype, device=exposure.device)
        return ((2 * place - n - 1) * exposure.sort().values).sum() / (n * exposure.sum())


class LorenzCurve(Spread):
    r"""Lorenz curve of exposure: the share of all exposure that the n least exposed of N items have together.

    :math:`L(n / N) = \sum_{i \le n} x_i / \sum_i x_i` for exposure x in ascending order and n = 0, 1, ..., N. Equal
    exposure gives the diagonal. :class:`Gini` is twice the area between the diagonal and the curve, whose points are
    joined by straight lines.

    Source:
        Lorenz, Methods of measuring the concentration of wealth, Publications of the American Statistical Association
        9(70), 1905.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        num_items: N, the number of items in the catalogue.
        discount: the exposure at a rank: "none", 1 at every rank; "log2", 1 / log2(1 + rank); "clipped",
            1 / log2(max(rank, 2)); "reciprocal", 1 / rank; "geometric", patience ** (rank - 1); or a callable with a
            name, from ranks float64.
        patience: the base of the geometric discount, > 0 and <= 1.
        kwargs: ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> curve = tr.LorenzCurve(num_items=4)
        >>> curve(torch.tensor([[0, 1], [0, 2]]))
        (tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000]), tensor([0.0000, 0.0000, 0.2500, 0.5000, 1.0000]))
    """

    name = "lorenzcurve"
    #: a registry of its own: a curve is not a number, so it is not listed among the measures
    registry: ClassVar[dict[str, type[ListMetric]]] = {}

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        so_far = running_sum(exposure.sort().values)
        return torch.nn.functional.pad(so_far / so_far[-1], (1, 0))

    def compute(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """The curve over the lists of all workers.

        Returns:
            shares of the items, n / N for n = 0, 1, ..., N, and their shares of the exposure: float32 [N + 1] both. The
            latter are NaN if there was no item in any list.

        Raises:
            ValueError: a worker received bad values. The metric can still be updated.
        """
        exposure = super().compute()
        return torch.linspace(0, 1, len(exposure), dtype=exposure.dtype, device=exposure.device), exposure

    def plot(self, curve: tuple[Tensor, Tensor] | None = None, ax: Any = None) -> Any:
        """Draw the share of exposure over the share of items. Needs matplotlib."""
        items, exposure = self.compute() if curve is None else curve
        names = ("Share of items", "Share of exposure")
        return plot_curve((items, exposure, items), ax=ax, label_names=names, name=self.label)


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


class IntraListDiversity(PerUserMetric):
    r"""Intra-list diversity: the mean distance between two items of a list.

    :math:`\frac{\sum_{i \ne j} d(i, j)}{m (m-1)}`. The items i and j are in one list, and m is its number of items. A
    list shorter than k has fewer pairs. A list of fewer than two items is left out. The distance d depends on the data
    about the items:

    - ``embeddings``: 1 - cosine. An embedding of zeros has distance 1 from every item.
    - one category for each item: 1 if the categories differ, else 0.
    - a set of categories for each item: the Hamming distance divided by the number of categories.

    The mean is computed from sums over the list, without enumerating its pairs.

    Source:
        Smyth and McClave, Similarity vs. diversity, ICCBR 2001; Ziegler et al., Improving recommendation lists through
        topic diversification, WWW 2005.

    Args:
        embeddings: floating [item, dimension].
        categories: int [item], or bool [item, category] if items have several. Give this or ``embeddings``.

    Raises:
        TypeError, ValueError: neither or both tensors are given, or one has a wrong shape or dtype.

    Example:
        >>> import torch, torchrank as tr
        >>> lists = torch.tensor([[0, 1, 2], [0, 2, -1]])
        >>> tr.IntraListDiversity(categories=torch.tensor([5, 7, 5])).score(lists)
        tensor([0.6667, 0.0000], dtype=torch.float64)
        >>> tr.IntraListDiversity(embeddings=torch.tensor([[1.0, 0], [0, 2], [3, 0]])).score(lists)
        tensor([0.6667, 0.0000], dtype=torch.float64)
    """

    name = "diversity"
    value_range = (0.0, 2.0)
    fewest = 2

    embeddings: Described[Tensor | None] = described(default=None)
    categories: Described[Tensor | None] = described(default=None)

    def describe(self, embeddings: Tensor | None, categories: Tensor | None) -> tuple[Catalogue, int]:
        if (embeddings is None) == (categories is None):
            raise ValueError("Expected either embeddings or categories, got " + ("both", "neither")[embeddings is None])
        known = item_categories(categories) if embeddings is None else item_embeddings(embeddings)
        return {"embeddings": embeddings, "categories": categories}, len(known)

    def width(self, lists: Recommended) -> int:
        known = self.categories if self.embeddings is None else self.embeddings
        return 1 if known is None or known.dim() == 1 else known.shape[1]

    def measure(self, lists: Recommended) -> Tensor:
        pairs = lists.length * (lists.length - 1)
        if self.embeddings is not None:
            return 1 - _cosines(self.embeddings[lists.ids], lists) / pairs
        assert self.categories is not None
        alike = _alike if self.categories.dim() == 1 else _alike_in_each
        return 1 - alike(self.categories[lists.ids], lists) / pairs


def _cosines(vectors: Tensor, lists: Recommended) -> Tensor:
    """Sum of the cosines of all ordered pairs of different items in each list: float64 [query]."""
    # The tiny eps keeps the direction of short vectors; a vector of zeros stays 0.
    eps = max(1e-150, torch.finfo(lists.dtype).tiny)
    vectors = torch.nn.functional.normalize(vectors.to(lists.dtype), dim=-1, eps=eps) * lists.is_item.unsqueeze(-1)
    # The squared norm of the sum is the sum over all pairs, including each item with itself.
    return vectors.sum(1).square().sum(-1) - vectors.square().sum((1, 2))


def _alike(category: Tensor, lists: Recommended) -> Tensor:
    """Number of ordered pairs of a list with equal categories, int [query, position]: int64 [query]."""
    # Sorting by ``is_item`` first puts the unfilled positions of a category before its items, as a run of their own.
    is_item, order = lists.is_item.sort(dim=-1)
    category, again = category.gather(-1, order).sort(dim=-1, stable=True)
    is_item = is_item.gather(-1, again)
    start, stop = run_bounds(run_starts(category) | run_starts(is_item))
    return torch.where(is_item, stop - start - 1, 0).sum(-1)


def _alike_in_each(having: Tensor, lists: Recommended) -> Tensor:
    """Number of ordered pairs that agree on a category, averaged over categories: float64 [query].

    ``having`` is bool [query, position, category].
    """
    # A pair agrees on a category if both items have it or both lack it.
    have = (having & lists.is_item.unsqueeze(-1)).sum(1).to(lists.dtype)
    lack = lists.length.unsqueeze(-1) - have
    return (have * (have - 1) + lack * (lack - 1)).mean(-1)


class CategoricalDiversity(PerUserMetric):
    r"""Categorical diversity: the number of different categories among the first k items, :math:`|C(L)| / k`.

    C(L) are the categories of the list L. A list shorter than k is divided by k, too. An empty list is left out.

    Source:
        RePlay, ``CategoricalDiversity``.

    Args:
        top_k: k, the first ranks that count; None = all of them, so each list is divided by its length.
        categories: int [item], the category of each item.
        adaptive_k: divide by the length of a list that is shorter than k.

    Raises:
        TypeError: ``categories`` is not a 1-D tensor of integers.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.CategoricalDiversity(3, categories=torch.tensor([5, 7, 5, 9]))
        >>> metric.score(torch.tensor([[0, 1, 2, 3], [3, 0, -1, -1]]))
        tensor([0.6667, 0.6667], dtype=torch.float64)
    """

    name = "categoricaldiversity"

    categories: Described[Tensor] = described()
    adaptive_k: bool = flag(default=False)

    def describe(self, categories: Tensor) -> tuple[Catalogue, int]:
        # Only their equality matters. Numbers from 0 leave negative ones for padding.
        _, numbers = item_categories(categories, several=False).unique(return_inverse=True)
        return {"categories": numbers}, len(categories)

    def measure(self, lists: Recommended) -> Tensor:
        k = lists.length if self.adaptive_k or self.top_k is None else self.top_k
        return lists.distinct(self.categories[lists.ids]) / k


class CategoryEntropy(PerUserMetric):
    r"""Shannon entropy of the categories in a list, in bits: :math:`-\sum_c q_c \log_2 q_c`.

    :math:`q_c` is the share of category c, :math:`(\epsilon + \sum_i w_i \, p_{i,c}) \,/\, Z`, where Z makes the shares
    sum to 1. An item of m categories has :math:`p_{i,c} = 1 / m` for each of them; an item without any has 0. The item
    at rank i has the weight :math:`w_i = patience^{i-1}`, or 1. :math:`\epsilon` is ``smoothing``.

    An empty list is left out. A list in which no item has a category scores 0. With smoothing it scores the logarithm
    of the number of categories, as in LensKit.

    Source:
        LensKit, ``Entropy`` and ``RankBiasedEntropy``; Shannon, A mathematical theory of communication, 1948.

    Args:
        categories: int [item], negative = no category; or bool [item, category] if items have several.
        patience: the rank-biased entropy, of a user who goes on to the next rank with this probability, > 0 and < 1;
            None = all ranks weigh the same.
        smoothing: the weight that every category has beside the items, >= 0.

    Raises:
        TypeError: ``categories`` has a wrong shape or dtype.
        ValueError: ``patience`` or ``smoothing`` is out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> lists = torch.tensor([[0, 1, 2, 3], [0, 2, -1, -1]])
        >>> tr.CategoryEntropy(categories=torch.tensor([5, 7, 5, 7])).score(lists)
        tensor([1., 0.], dtype=torch.float64)
    """

    name = "categoryentropy"
    value_range = (0.0, math.inf)

    categories: Described[Tensor] = described()
    patience: float | None = number(default=None, above=0, below=1)
    smoothing: float = number(default=0, least=0)
    num_categories: int = derived()

    def describe(self, categories: Tensor) -> tuple[Catalogue, int]:
        item_categories(categories)
        if categories.dim() == 2:
            return {"categories": categories, "num_categories": categories.shape[1]}, len(categories)
        # Numbers from 0 in place of the categories; all negative ones become -1.
        known, inverse = categories.clamp_min(-1).unique(return_inverse=True)
        without = int((known < 0).sum())
        return {"categories": inverse - without, "num_categories": len(known) - without}, len(categories)

    def width(self, lists: Recommended) -> int:
        # One category for each item: a table has a row of categories for each list.
        return -(-self.num_categories // lists.ids.shape[1]) if self.categories.dim() == 1 else self.num_categories

    def measure(self, lists: Recommended) -> Tensor:
        weight = lists.is_item.to(lists.dtype)
        if self.patience is not None:
            weight = weight * self.patience ** (lists.rank - 1).to(lists.dtype)
        share = self.amounts(self.categories[lists.ids], weight) + self.smoothing
        share = ratio(share, share.sum(-1, keepdim=True))
        return torch.special.entr(share).sum(-1) / math.log(2)

    def amounts(self, of_item: Tensor, weight: Tensor) -> Tensor:
        """The weight of each category: float64 [query, category], from ``weight`` [query, position]."""
        if of_item.dim() == 3:
            having = of_item.to(weight.dtype)
            return torch.einsum("qp,qpc->qc", weight, ratio(having, having.sum(-1, keepdim=True)))
        # The last column absorbs items without a category.
        column = torch.where(of_item < 0, self.num_categories, of_item)
        table = weight.new_zeros((len(weight), self.num_categories + 1))
        return table.scatter_add(1, column, weight)[:, :-1]


# The number of an identifier begins with the number of its items, up to two, above this bit.
BIT = 40


class GeneratedMetric(PerUserMetric):
    """Base of measures of generated identifiers. Reads values, so ``update`` waits for an accelerator."""

    takes_repeats = True

    ids_of: Described[Tensor] = described()

    def describe(self, ids_of: Any) -> tuple[Catalogue, None]:
        return {"ids_of": check_tensor(ids_of, "ids_of")}, None

    def per_query(self, batch: Batch) -> Values:
        beams, _, counts = identifiers(check_tensor(batch.preds, "beams"), self.ids_of)
        kinds = counts.clamp_max(2) << BIT
        return super().per_query(replace(batch, preds=torch.where(beams < 0, -1, kinds + beams)))

    def share(self, lists: Recommended, items: int) -> Tensor:
        """The share of a list whose identifiers are of at least so many items: float64 [query]."""
        return lists.mean(lists.ids >> BIT >= items)

    if TYPE_CHECKING:

        @call_of(PerUserMetric.update, Tensor)
        def __call__(self, beams: Array, target: Target | None = None, **kwargs: Any) -> Any: ...


class Validity(GeneratedMetric):
    r"""The share of the first k generated identifiers that an item of ``ids_of`` has: :math:`\sum_{b} [c_b > 0] / k`.

    The sum is over the first k beams b, so an identifier that is repeated counts each time; k is their number, if there
    are fewer. :math:`c_b` is the number of items with the identifier. ``preds`` of
    ``update`` and ``score`` are the beams, int [query, beam] or [query, beam, level], best first, negative = padding.
    A list without beams is left out.

    Source:
        Rajput et al., Recommender systems with generative retrieval, NeurIPS 2023, who count invalid identifiers.

    Args:
        ids_of: int [item] or [item, level], the identifier of each item.

    Example:
        >>> import torch, torchrank as tr
        >>> ids_of = torch.tensor([[0, 1], [0, 1], [2, 0]])
        >>> beams = torch.tensor([[[7, 7], [0, 1], [2, 0], [2, 0]]])
        >>> tr.Validity(2, ids_of=ids_of).score(beams), tr.Validity(ids_of=ids_of).score(beams)
        (tensor([0.5000], dtype=torch.float64), tensor([0.7500], dtype=torch.float64))
    """

    name = "validity"

    def measure(self, lists: Recommended) -> Tensor:
        return self.share(lists, 1)


class Aliasing(GeneratedMetric):
    r"""The share of valid beams whose identifier is of several items, :math:`\sum_{b} [c_b > 1] / \sum_{b} [c_b > 0]`.

    The sums are over the first k beams b, so an identifier that is repeated counts each time. :math:`c_b` is the number
    of items with the identifier. ``preds`` are as for :class:`Validity`. A list without a valid identifier is 0. For
    the share of a catalogue, pass each item as a list, ``ids_of.unsqueeze(1)``.

    Source:
        Rajput et al., Recommender systems with generative retrieval, NeurIPS 2023, who count collisions of identifiers.

    Args:
        ids_of: int [item] or [item, level], the identifier of each item.

    Example:
        >>> import torch, torchrank as tr
        >>> ids_of = torch.tensor([[0, 1], [0, 1], [2, 0]])
        >>> metric = tr.Aliasing(ids_of=ids_of)
        >>> metric.score(torch.tensor([[[7, 7], [0, 1], [2, 0]]]))
        tensor([0.5000], dtype=torch.float64)
        >>> metric(ids_of.unsqueeze(1))  # two of three items share their identifier
        tensor(0.6667)
    """

    name = "aliasing"
    higher_is_better = False

    def measure(self, lists: Recommended) -> Tensor:
        return ratio(self.share(lists, 2), self.share(lists, 1))


class Duplication(GeneratedMetric):
    r"""The share of generated identifiers that repeat an earlier one, :math:`1 - |\{b : b \in L_k\}| / |L_k|`.

    :math:`L_k` are the first k beams. ``preds`` are as for :class:`Validity`. A list without beams is left out.

    Source:
        The share that :class:`Unrepeated` has of items, RecTools' ``UnrepeatedReco``.

    Args:
        ids_of: int [item] or [item, level], the identifier of each item.

    Example:
        >>> import torch, torchrank as tr
        >>> ids_of = torch.tensor([[0, 1], [0, 1], [2, 0]])
        >>> tr.Duplication(ids_of=ids_of).score(torch.tensor([[[7, 7], [0, 1], [2, 0], [2, 0]]]))
        tensor([0.2500], dtype=torch.float64)
    """

    name = "duplication"
    higher_is_better = False

    def measure(self, lists: Recommended) -> Tensor:
        return 1 - lists.distinct(lists.ids) / lists.length
