"""Beyond accuracy: how different the items of a list are, by their categories or embeddings."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchrank.metrics.item_data import item_categories, item_embeddings
from torchrank.metrics.item_lists import Catalogue, PerUserMetric, Recommended
from torchrank.names.parameters import derived, described, flag, number
from torchrank.names.types import Described
from torchrank.ranking.intervals import ratio
from torchrank.ranking.ranking import run_bounds, run_starts

__all__ = ["CategoricalDiversity", "CategoryEntropy", "IntraListDiversity"]


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
        return {"categories": item_categories(categories, several=False).unique(return_inverse=True)[1]}, len(
            categories
        )

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
