"""Measures of what was observed only with some propensity: the grade of a candidate is 1 / its propensity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from torchrank.formulas.gains import DISCOUNTS, POSITIVE
from torchrank.formulas.judgment_bounds import UNEQUAL
from torchrank.metrics.graded import DCG, GradedMetric
from torchrank.names.arguments import number
from torchrank.names.parameters import one_of
from torchrank.ranking.arithmetic import ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["IPS", "PSNDCG", "PSP", "inverse_propensity", "propensities"]


class PropensityScored(GradedMetric):
    """A sum of gains over the largest possible one: the mean of the ratio over queries, or a ratio of sums over them.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        average: "query", or "pooled": the sum of what is measured over queries by the sum of what is possible.
        kwargs: as :class:`GradedMetric`.

    Raises:
        ValueError: ``average`` is none of those that the measure knows.
    """

    value_range = (0.0, 1.0)
    averages: ClassVar[tuple[str, ...]] = ("query", "pooled")

    average: Literal["query", "pooled", "scaled"] = one_of(default="query", among=lambda cls: cls.averages)

    def measure(self, ranking: Ranking) -> Tensor:
        return ratio(super().measure(ranking), self.ideal(ranking))

    @property
    def no_bounds_reason(self) -> str:
        return "" if self.average == "query" else UNEQUAL

    def weight(self, ranking: Ranking) -> Tensor:
        # A mean of ratios weighted by what they were divided by is the ratio of the sums.
        return super().weight(ranking) if self.average == "query" else self.ideal(ranking)


class PSP(PropensityScored):
    r"""Propensity-scored precision over the best possible, :math:`\sum_{i \le k} gain_i / \max \sum_{i \le k} gain_i`.

    The grade of a relevant candidate is 1 / its propensity, see :func:`torchrank.inverse_propensity`. The factor 1/k of
    a precision is the same above and below. Linear in the gains, so ``ties="expected"`` is exact.

    Source:
        Jain, Prabhu and Varma, Extreme multi-label loss functions for recommendation, tagging, ranking and other
        missing label applications, KDD 2016.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        average: "query", the mean over queries of their ratios; "pooled", the ratio of the sums over all queries, as
            the tables of the paper have it, in which a query with nothing relevant has no part.
        gain: "linear", the inverse propensity itself; a callable with a name may clip it; see :class:`GradedMetric`.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: an unknown average.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.PSP(top_k=1).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2.0, 0, 8.0]]))
        tensor([0.2500], dtype=torch.float64)
    """

    known_as = {"parse": "psprecision", "pyxclib": {"psprecision": "(average=pooled)"}}
    name = "psp"


class PSNDCG(PropensityScored, DCG):
    r"""Propensity-scored NDCG, the DCG of gains 1 / propensity over the best possible: :math:`DCG@k / \max DCG@k`.

    :math:`DCG@k = \sum_{i \le k} \frac{gain_i}{\log_2 (1+i)}`. The grade of a relevant candidate is 1 / its propensity,
    see :func:`torchrank.inverse_propensity`. Linear in the gains, so ``ties="expected"`` is exact.

    Source:
        Jain, Prabhu and Varma, Extreme multi-label loss functions for recommendation, tagging, ranking and other
        missing label applications, KDD 2016.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        average: "query", the mean over queries of their ratios; "pooled", the ratio of the sums over all queries, as
            the tables of the paper have it; "scaled", the same after both parts of a query were divided by the sum of
            the discounts of its first min(k, relevant) ranks, as pyxclib does. In the last two a query with nothing
            relevant has no part.
        gain: "linear", the inverse propensity itself; a callable with a name may clip it; see :class:`GradedMetric`.
        discount, log_base: "log2", "reciprocal" or a callable with a name; see :class:`DCG`.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: an unknown average.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.PSNDCG(top_k=1).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2.0, 0, 8.0]]))
        tensor([0.2500], dtype=torch.float64)
    """

    known_as = {"pyxclib": {"psndcg": "(average=scaled)"}}
    name = "psndcg"
    averages = ("query", "pooled", "scaled")

    def weight(self, ranking: Ranking) -> Tensor:
        weight = super().weight(ranking)
        if self.average != "scaled":
            return weight
        return ratio(weight, ranking.ideal(POSITIVE, self.discount_function, self.top_k))


class IPS(GradedMetric):
    r"""Inverse-propensity estimate of a linear measure, :math:`\sum_{i \le k} gain_i \, discount(i)`.

    With 1 / propensity as the grade of what was observed, see :func:`torchrank.inverse_propensity`, its mean over
    queries is an unbiased estimate of the hits in the first k ranks, or of DCG, had everything been observed. Linear in
    the gains, so ``ties="expected"`` is exact. A query in which nothing was observed counts 0. What was not retrieved
    adds nothing.

    Source:
        Schnabel et al., Recommendations as treatments, ICML 2016; of ranking measures, Joachims, Swaminathan and
        Schnabel, Unbiased learning-to-rank with biased feedback, WSDM 2017. Self-normalised: Swaminathan and Joachims,
        The self-normalized estimator for counterfactual learning, NIPS 2015; for each query: Yang et al., Unbiased
        offline recommender evaluation for missing-not-at-random implicit feedback, RecSys 2018.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        discount: "none", 1 at every rank; "log2", 1 / log2(1 + rank); "reciprocal", 1 / rank; or a callable with a
            name, from ranks float64 to discounts.
        self_normalized: divide by the sum of the gains of all that was observed, retrieved or not: True, the sum over
            all queries by that over all queries (SNIPS); "query", each query by its own.
        gain: "linear", the inverse propensity itself; a callable with a name may clip it; see :class:`GradedMetric`.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: an unknown discount, or another ``self_normalized``.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, inverse = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2.0, 0, 8.0]])
        >>> tr.IPS(top_k=1).score(scores, inverse), tr.IPS(top_k=1, self_normalized=True).score(scores, inverse)
        (tensor([2.], dtype=torch.float64), tensor([0.2000], dtype=torch.float64))
    """

    known_as = {"parse": {"snips": "(self_normalized=True)"}}
    name = "ips"

    discount: Literal["none", "log2", "reciprocal"] | Callable[[Tensor], Tensor] = one_of(default="none")
    self_normalized: bool | Literal["query"] = one_of(False, True, "query", default=False)

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        return self.discount if callable(self.discount) else DISCOUNTS[self.discount]

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.total_gain(self.gain_function) == 0

    def measure(self, ranking: Ranking) -> Tensor:
        value = super().measure(ranking)
        return ratio(value, ranking.total_gain(self.gain_function)) if self.self_normalized else value

    @property
    def no_bounds_reason(self) -> str:
        return UNEQUAL if self.self_normalized is True else ""

    def weight(self, ranking: Ranking) -> Tensor:
        return ranking.total_gain(self.gain_function) if self.self_normalized is True else super().weight(ranking)


def propensities(counts: Tensor, num_samples: int, *, a: float = 0.55, b: float = 1.5) -> Tensor:
    r"""How likely a relevant item is to have been observed, :math:`1 / (1 + C (n_i + b)^{-a})`, after Jain et al.

    :math:`C = (\ln N - 1) (b + 1)^a`. The authors fitted a = 0.5, b = 0.4 to Wikipedia and a = 0.6, b = 2.6 to Amazon;
    the defaults are for other data.

    Source:
        Jain, Prabhu and Varma, KDD 2016.

    Also in:
        pyxclib's ``compute_inv_propesity``, which gives the inverse.

    Args:
        counts: [item], how often each item was observed as relevant in the training data.
        num_samples: N, the number of training samples (users, documents); at least 3, or C would be negative.
        a: how fast the propensity grows with the count; > 0.
        b: added to every count; > 0.

    Returns:
        float64 [item].

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.propensities(torch.tensor([0, 10, 1000]), num_samples=10_000)
        tensor([0.0842, 0.2199, 0.7669], dtype=torch.float64)
    """
    number("num_samples", num_samples, above=math.e)
    number("a", a, above=0)
    number("b", b, above=0)
    if not isinstance(counts, Tensor) or counts.dim() != 1 or counts.is_complex():
        got = list(counts.shape) if isinstance(counts, Tensor) else type(counts).__name__
        raise ValueError(f"Expected counts [item], how often each item was observed, got {got}")
    c = (math.log(num_samples) - 1) * (b + 1) ** a
    return 1 / (1 + c * (counts.detach().to(torch.float64) + b) ** -a)


def inverse_propensity(
    target: Tensor | list[Tensor] | tuple[Tensor, ...], propensities: Tensor
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Grades of 1 / propensity for what is relevant, in whatever layout targets come, as a target for metrics.

    Grades that are there already, dense or in triples, are multiplied by the inverse where they are positive: what is
    irrelevant or unjudged stays so.

    Args:
        target: grades [query, item]; or the relevant item of each query, int [query], or several, [query, entry] (as
            in the layout of ids; give ``propensities`` of more items than there are entries), negative = none; or a
            list of one id tensor per query; or a (query, item) or (query, item, grade) tuple of 1-D tensors.
        propensities: floating [item], or [query, item] where they differ between queries; > 0.

    Returns:
        float64 [query, item] for dense grades; else a (query, item, grade) tuple.

    Raises:
        TypeError, ValueError: the arguments do not fit together.

    Example:
        >>> import torch, torchrank as tr
        >>> propensity = torch.tensor([0.5, 0.25, 0.125])
        >>> tr.inverse_propensity(torch.tensor([[1, 0, 1]]), propensity)
        tensor([[2., 0., 8.]], dtype=torch.float64)
        >>> tr.inverse_propensity([torch.tensor([1])], propensity)
        (tensor([0]), tensor([1]), tensor([4.], dtype=torch.float64))
    """
    if not isinstance(propensities, Tensor) or not propensities.is_floating_point() or propensities.dim() not in (1, 2):
        got = getattr(propensities, "dtype", type(propensities).__name__)
        raise TypeError(f"Expected propensities floating [item] or [query, item], got {got}")
    if not bool((propensities > 0).all()):
        raise ValueError(f"Expected propensities > 0, got {propensities.min().item()} among them")
    inverse = 1 / propensities.detach().to(torch.float64)
    items = propensities.shape[-1]
    if isinstance(target, Tensor) and target.dim() == 2 and target.shape[1] == items:
        return torch.where(target == 0, 0.0, target * torch.where(target < 0, 1.0, inverse))
    query, item, grade = _triples(target, inverse.device)
    there = (item >= 0) & (item < items)  # what is outside stays for the metric to report
    column = item.clamp(0, items - 1)
    row = query.clamp(0, len(inverse) - 1)
    found = inverse[column] if inverse.dim() == 1 else inverse[row, column]
    return query, item, torch.where(there & ~(grade <= 0), grade * found, grade)


def _triples(target: Any, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """(query, item, grade) of targets that are ids, all [pair]."""
    ids = isinstance(target, Tensor) and not target.is_floating_point() and target.dtype != torch.bool
    if ids and target.dim() in (1, 2):
        items = target.to(device).long()
        items = items.unsqueeze(-1) if items.dim() == 1 else items
        query = torch.arange(len(items), device=device).repeat_interleave(items.shape[1])
        item = items.flatten()
        kept = item >= 0
        pairs: Any = (query[kept], item[kept])
    elif isinstance(target, list) and all(isinstance(x, Tensor) and x.dim() == 1 for x in target):
        sizes = torch.tensor([len(x) for x in target], dtype=torch.int64, device=device)
        query = torch.arange(len(target), device=device).repeat_interleave(sizes)
        pairs = (
            query,
            torch.cat([torch.empty(0, dtype=torch.int64, device=device), *(x.to(device) for x in target)]).long(),
        )
    elif isinstance(target, tuple) and len(target) in (2, 3) and all(isinstance(x, Tensor) for x in target):
        pairs = tuple(x.to(device) for x in target)
    else:
        got = f"shape {list(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(
            "Expected grades [query, item] with an item for each propensity, ids [query], a list of id tensors or a"
            f" (query, item[, grade]) tuple, got {got}"
        )
    grade = pairs[2] if len(pairs) == 3 else torch.ones_like(pairs[1])
    return pairs[0], pairs[1], grade.to(torch.float64)
