"""Measures for data observed with known propensities: the grade of a candidate is 1 / its propensity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from torchrank.formulas.gains import POSITIVE, discount_of
from torchrank.formulas.judgment_bounds import UNEQUAL
from torchrank.hardware.devices import widened
from torchrank.layouts.checks import tensor_of
from torchrank.metrics.graded import DCG, GradedMetric
from torchrank.names.arguments import number, warn
from torchrank.names.parameters import one_of
from torchrank.names.types import Array, Target
from torchrank.ranking.intervals import only, ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["IPS", "PSNDCG", "PSP", "inverse_propensity", "propensities"]


class InverseGrades(GradedMetric):
    """A measure of grades 1 / propensity. It warns of a batch in which all positive grades are 1, as raw clicks are."""

    def errors(self, ranking: Ranking) -> Tensor:
        grade = ranking.grade
        if grade.is_cpu and grade.numel() and float(only(ranking.valid, grade).amax()) == 1:
            warn(
                f"Expected grades 1 / propensity for {self.label}, got positive grades of 1 only, as raw clicks have;"
                " pass target=torchrank.inverse_propensity(target, propensities), or target / propensities of flat rows"
            )
        return super().errors(ranking)


class PropensityScored(InverseGrades):
    """A sum of gains divided by the largest possible sum, for each query or pooled over all queries.

    Args:
        average: "query", the mean of the ratios of all queries; "pooled", the sum of their gains divided by the sum of
            their largest possible gains.

    Raises:
        ValueError: an unknown average.
    """

    value_range = (0.0, 1.0)
    averages: ClassVar[tuple[str, ...]] = ("query", "pooled")

    average: Literal["query", "pooled", "scaled"] = one_of(default="query", among=lambda cls: cls.averages)

    def denominator(self, ranking: Ranking) -> Tensor:
        return self.ideal(ranking)

    @property
    def no_bounds_reason(self) -> str:
        return "" if self.average == "query" else UNEQUAL

    def weight(self, ranking: Ranking) -> Tensor | None:
        # A mean of ratios, weighted by their denominators, is the ratio of the sums.
        return super().weight(ranking) if self.average == "query" else self.ideal(ranking)


class PSP(PropensityScored):
    r"""Propensity-scored precision divided by the largest possible.

    :math:`\sum_{i \le k} gain_i / \max \sum_{i \le k} gain_i`. The grade of a relevant candidate is 1 / its propensity,
    see :func:`torchrank.inverse_propensity`. The factor 1/k of a precision cancels. The sums are linear in the gains,
    so ``ties="expected"`` is exact.

    Source:
        Jain, Prabhu and Varma, Extreme multi-label loss functions for recommendation, tagging, ranking and other
        missing label applications, KDD 2016.

    Args:
        average: "query", the mean of the ratios of all queries; "pooled", the ratio of the sums over all queries, as
            in the tables of the paper. A query with nothing relevant does not count in "pooled".
        gain: "linear", the inverse propensity itself; a callable with a name may clip it; see :class:`DCG`.

    Raises:
        ValueError: an unknown average.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.PSP(top_k=1).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2.0, 0, 8.0]]))
        tensor([0.2500], dtype=torch.float64)
    """

    name = "psp"


class PSNDCG(PropensityScored, DCG):
    r"""Propensity-scored NDCG: DCG with gains 1 / propensity, divided by the largest possible.

    :math:`\frac{1}{\max DCG@k} \sum_{i \le k} \frac{gain_i}{\log_2 (1 + i)}`, where max DCG is the largest possible
    value of the sum. The grade of a relevant candidate is 1 / its propensity, see :func:`torchrank.inverse_propensity`.
    DCG is linear in the gains, so ``ties="expected"`` is exact.

    Source:
        Jain, Prabhu and Varma, Extreme multi-label loss functions for recommendation, tagging, ranking and other
        missing label applications, KDD 2016.

    Args:
        average: "query", the mean of the ratios of all queries; "pooled", the ratio of the sums over all queries, as
            in the tables of the paper; "scaled", as in pyxclib: "pooled", but both sums of a query are first divided by
            the discounts of its first min(k, R) ranks. R is its number of relevant candidates. A query with nothing
            relevant does not count in "pooled" and "scaled".
        gain: "linear", the inverse propensity itself; a callable with a name may clip it; see :class:`DCG`.
        discount: "log2", "reciprocal" or a callable with a name; see :class:`DCG`.
        log_base: base of the logarithm, > 1.

    Raises:
        ValueError: an unknown average.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.PSNDCG(top_k=1).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2.0, 0, 8.0]]))
        tensor([0.2500], dtype=torch.float64)
    """

    name = "psndcg"
    averages = ("query", "pooled", "scaled")

    def weight(self, ranking: Ranking) -> Tensor | None:
        if self.average != "scaled":
            return super().weight(ranking)
        # With a gain of 1 for each relevant candidate, the ideal is the sum of the first min(k, R) discounts.
        return ratio(self.ideal(ranking), ranking.ideal(POSITIVE, self.discount_function, self.top_k))


class IPS(InverseGrades):
    r"""Inverse-propensity estimate of a linear measure, :math:`\sum_{i \le k} gain_i \, discount(i)`.

    The grade of an observed candidate is 1 / its propensity, see :func:`torchrank.inverse_propensity`. The mean over
    queries is then an unbiased estimate of the measure under complete observation: of the hits in the first k ranks, or
    of DCG. The sum is linear in the gains, so ``ties="expected"`` is exact. A query without observations counts 0.
    Candidates that were not retrieved add nothing.

    Source:
        Schnabel et al., Recommendations as treatments, ICML 2016; of ranking measures, Joachims, Swaminathan and
        Schnabel, Unbiased learning-to-rank with biased feedback, WSDM 2017. Self-normalised: Swaminathan and Joachims,
        The self-normalized estimator for counterfactual learning, NIPS 2015; for each query: Yang et al., Unbiased
        offline recommender evaluation for missing-not-at-random implicit feedback, RecSys 2018.

    Args:
        discount: "none", 1 at every rank; "log2", 1 / log2(1 + rank); "reciprocal", 1 / rank; or a callable with a
            name, from ranks float64 to discounts.
        self_normalized: divide by the sum of the gains of all observed candidates, retrieved or not: True, the sum over
            all queries by the sum over all queries (SNIPS); "query", each query by its own sum.
        gain: "linear", the inverse propensity itself; a callable with a name may clip it; see :class:`DCG`.

    Raises:
        ValueError: an unknown discount or ``self_normalized``.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, inverse = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[2.0, 0, 8.0]])
        >>> tr.IPS(top_k=1).score(scores, inverse), tr.IPS(top_k=1, self_normalized=True).score(scores, inverse)
        (tensor([2.], dtype=torch.float64), tensor([0.2000], dtype=torch.float64))
        >>> clicks, seen = torch.tensor([[1, 0, 1]]), torch.tensor([[0.5, 0.25, 0.125]])  # seen: probability to be seen
        >>> tr.IPS(top_k=1).score(scores, tr.inverse_propensity(clicks, seen))  # a click here counts for two
        tensor([2.], dtype=torch.float64)
    """

    name = "ips"

    discount: Literal["none", "log2", "reciprocal"] | Callable[[Tensor], Tensor] = one_of(default="none")
    self_normalized: bool | Literal["query"] = one_of(False, True, "query", default=False)

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        return discount_of(self.discount)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.total_gain(self.gain_function) == 0

    def denominator(self, ranking: Ranking) -> Tensor | None:
        return ranking.total_gain(self.gain_function) if self.self_normalized else None

    @property
    def no_bounds_reason(self) -> str:
        return UNEQUAL if self.self_normalized is True else ""

    def weight(self, ranking: Ranking) -> Tensor | None:
        # As in PropensityScored.weight: the weighted mean of the ratios is the ratio of the sums.
        return ranking.total_gain(self.gain_function) if self.self_normalized is True else super().weight(ranking)


def propensities(counts: Array, num_samples: int, *, a: float = 0.55, b: float = 1.5) -> Tensor:
    r"""Propensities of items to be observed if they are relevant, :math:`1 / (1 + C (n_i + b)^{-a})`, after Jain et al.

    :math:`n_i` is the count of item i, N the number of samples, and :math:`C = (\ln N - 1) (b + 1)^a`. The authors
    fitted a = 0.5, b = 0.4 to Wikipedia and a = 0.6, b = 2.6 to Amazon. The defaults are for other data.

    Source:
        Jain, Prabhu and Varma, KDD 2016.

    Also in:
        pyxclib's ``compute_inv_propesity``, which returns the inverse.

    Args:
        counts: [item], the number of times that each item was observed as relevant in the training data.
        num_samples: N, the number of training samples (users, documents); at least 3, because C must be positive.
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
    number("num_samples", num_samples, above=math.e)  # ln N - 1, and with it C, is positive
    number("a", a, above=0)
    number("b", b, above=0)
    counts = tensor_of(counts)
    if not isinstance(counts, Tensor) or counts.dim() != 1 or counts.is_complex():
        got = list(counts.shape) if isinstance(counts, Tensor) else type(counts).__name__
        raise ValueError(f"Expected counts to be a tensor [item], a number for each item, got {got}")
    c = (math.log(num_samples) - 1) * (b + 1) ** a
    return 1 / (1 + c * (widened(counts.detach()) + b) ** -a)


def inverse_propensity(target: Target, propensities: Array) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """A target for metrics with the grade 1 / propensity for relevant candidates, from a target of any layout.

    Positive grades of a dense target or of triples are multiplied by the inverse propensity. Irrelevant and unjudged
    candidates keep their grades.

    Args:
        target: grades [query, item]; or the relevant item of each query, int [query]; or several relevant items, int
            [query, entry], negative = none; or a list of one id tensor per query; or a (query, item) or (query, item,
            grade) tuple of 1-D tensors. A matrix with a column for each propensity is read as grades.
        propensities: floating [item], or [query, item] if they differ between queries; > 0.

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
    propensities = tensor_of(propensities)
    target = target if isinstance(target, list | tuple) else tensor_of(target)
    if not isinstance(propensities, Tensor) or not propensities.is_floating_point() or propensities.dim() not in (1, 2):
        got = getattr(propensities, "dtype", type(propensities).__name__)
        raise TypeError(f"Expected propensities to be floating [item] or [query, item], got {got}")
    if not bool((propensities > 0).all()):
        raise ValueError(f"Expected propensities > 0, got {propensities.min().item()}")
    inverse = 1 / widened(propensities.detach())
    items = propensities.shape[-1]
    if isinstance(target, Tensor) and target.dim() == 2 and target.shape[1] == items:
        # Zeros are set, not multiplied, because an inverse may be infinite. Negative grades mean unjudged and stay.
        return torch.where(target == 0, 0.0, target * torch.where(target < 0, 1.0, inverse))
    if (
        isinstance(target, Tensor)
        and target.shape == propensities.shape
        and items > 2
        and bool((target // 2 == 0).all())
    ):
        warn(
            "Read target as the relevant item of each query, got only 0 and 1, one for each propensity; if these are"
            " clicks in flat rows, pass target / propensities to the metric"
        )
    query, item, grade = _triples(target, inverse.device)
    # The metric reports pairs outside the propensities; clamping makes them safe to look up.
    column = item.clamp(0, items - 1)
    row = query.clamp(0, len(inverse) - 1)
    inverse_of_pair = inverse[column] if inverse.dim() == 1 else inverse[row, column]
    # ~(grade <= 0) rather than grade > 0, so that a NaN stays NaN for the metric to report.
    return query, item, torch.where(~(grade <= 0), grade * inverse_of_pair, grade)


def _triples(target: Any, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """(query, item, grade) of a target of ids or pairs, each [pair]."""
    target = type(target)(map(tensor_of, target)) if isinstance(target, list | tuple) else target
    ids = isinstance(target, Tensor) and not target.is_floating_point() and target.dtype != torch.bool
    if ids and target.dim() in (1, 2):
        items = target.to(device).long()
        items = items.unsqueeze(-1) if items.dim() == 1 else items
        query = torch.arange(len(items), device=device).repeat_interleave(items.shape[1])
        item = items.flatten()
        is_id = item >= 0
        pairs: Any = (query[is_id], item[is_id])
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
        rows = isinstance(target, Tensor) and target.dim() == 1
        way_out = "; of flat rows, pass target / propensities to the metric" if rows else ""
        raise ValueError(
            "Expected grades [query, item] with an item for each propensity, ids [query], a list of id tensors or a"
            f" (query, item[, grade]) tuple, got {got}{way_out}"
        )
    grade = pairs[2] if len(pairs) == 3 else torch.ones_like(pairs[1])
    return pairs[0], pairs[1], widened(grade)
