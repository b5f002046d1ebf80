"""Bounds of the difference of two systems over all judgments of the unjudged candidates, the same for both systems.

Assume that m of the u unjudged candidates of a query are relevant. The measures here are a sum of contributions of
candidates, divided by a number that judgments determine. In the difference of the systems, an unjudged candidate
contributes the difference of its two contributions. With a given m, the extremes are reached when the m smallest or
the m largest of these differences are relevant. So u + 1 values are enough, instead of 2 ** u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch
from torch import Tensor

from torchrank.hardware.devices import running_sum, widest_float
from torchrank.layouts.arrange import Batch, arrange_batch
from torchrank.layouts.canonical import BLOCK, DenseLayout
from torchrank.layouts.checks import explain
from torchrank.metrics.base import RankingMetric
from torchrank.names.parse import parse
from torchrank.names.types import Array
from torchrank.ranking.intervals import ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["difference_bounds"]


def difference_bounds(
    metric: RankingMetric | str,
    preds_a: Array,
    preds_b: Array,
    target: Tensor | numpy.ndarray,
    *,
    mask: Array | None = None,
) -> tuple[Tensor, Tensor]:
    r"""The smallest and largest value of b - a for each query, over all judgments of its unjudged candidates.

    Each unjudged candidate is either irrelevant or relevant, to both systems alike. A relevant one has grade 1, or the
    metric's ``relevance_level`` if that is larger. So the bounds are narrower than :math:`[lower_b - upper_a,
    upper_b - lower_a]`, where a candidate may be relevant to one system only. They are exact: a judgment reaches each.
    If 0 is outside of the bounds, the missing judgments cannot change which system is better for the query.

    For a measure :math:`\frac{1}{D} \sum_d g_d w_d` with gain g and weight w of candidate d,

    .. math:: b - a = \frac{1}{D} \sum_d g_d (w_d^b - w_d^a), \qquad
        \mathrm{upper} = \max_m \frac{1}{D_m} \Big( n + \sum_{\text{m largest unjudged}} g (w_d^b - w_d^a) \Big).

    n is the sum over the judged candidates. The denominator D may depend on the number m of unjudged candidates that
    are relevant. Measures of this form: ``Precision``, ``Recall``, ``RelativePrecision``, ``F1`` and ``FBeta`` (without
    ``top_k`` for lists of equal length), ``NumRel``, ``NumRelRet``, ``Utility``, ``CG``, ``DCG``, ``NDCG``, ``PSP``,
    ``PSNDCG``, ``IPS``, ``PWA``, ``RBP``, and ``CWL`` of the users "precision", "rbp", "sdcg" and "insq"; also measures
    of your own that define ``numerator`` and ``denominator``.

    Time is O(D log D) per query; for a normalised measure there are also as many evaluations of its denominator as
    unjudged candidates. The bounds are for lists of tens or hundreds of candidates.

    Source:
        Comparison of systems over a distribution of possible judgments: Carterette, Allan and Sitaraman, Minimal test
        collections for retrieval evaluation, SIGIR 2006.

    Args:
        metric: the metric or its name; ``ties="expected"`` and ``unjudged="irrelevant"``.
        preds_a: floating scores [query, candidate] of system a; -inf = not retrieved.
        preds_b: the same of system b. The candidates of both systems are in the same columns.
        target: grades [query, candidate]; negative = unjudged.
        mask: bool [query, candidate], True for real candidates.

    Returns:
        The smallest and the largest difference, float64 [query] each. NaN if ``empty_target_action="skip"`` leaves a
        query out whatever its judgments are.

    Raises:
        TypeError: the arguments are not scores and grades for each candidate.
        ValueError: the measure does not have this form, shapes differ, or there are bad values.

    Example:
        >>> import torch, torchrank as tr
        >>> a, b = torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[0.7, 0.9, 0.8]])
        >>> target = torch.tensor([[0, 1, -1]])  # ranks: 1, 2, 3 in a and 3, 1, 2 in b
        >>> tr.difference_bounds("dcg", a, b, target)  # 1 - 1 / log2(3), and 1 - 1 / 2
        (tensor([0.3691], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
        >>> metric = tr.DCG(unjudged="upper"), tr.DCG(unjudged="lower")
        >>> metric[0].score(b, target) - metric[1].score(a, target)  # not under one judgment
        tensor([1.], dtype=torch.float64)
    """
    metric = parse(metric) if isinstance(metric, str) else metric
    if not isinstance(metric, RankingMetric):
        raise TypeError(f"Expected a metric or its name, got {type(metric).__name__}")
    _check(metric)
    a, b = _dense("preds_a", preds_a, target, mask), _dense("preds_b", preds_b, target, mask)
    queries, width = a.scores.shape
    bounds = [torch.zeros((0, 2), dtype=widest_float(a.scores.device), device=a.scores.device)]
    rows = max(1, BLOCK // 8 // width)  # there are a few dozen temporaries of the size of a chunk
    for start in range(0, queries, rows):
        pair = _Pair.of(a.rows(start, start + rows), b.rows(start, start + rows), metric)
        bounds.append(_bounds(metric, pair))
    lower, upper = torch.cat(bounds).unbind(1)
    return lower, upper


def _check(metric: RankingMetric) -> None:
    """Raise ValueError unless numerator and denominator define the values of a metric."""
    options = [
        ("ties", ("expected",), "which orders ties differently for each judgment"),
        ("unjudged", ("irrelevant",), "which makes a choice about unjudged candidates itself"),
        ("empty_target_action", ("neg", "pos", "skip"), "which has no value to compare"),
    ]
    for name, known, why in options:
        if (value := getattr(metric, name)) not in known:
            raise ValueError(
                f"Expected {name}={' or '.join(map(repr, known))} for bounds of differences, got {value!r}, {why}"
            )
    if why := metric.nonlinear_reason:
        names = ", ".join(sorted(name for name, cls in RankingMetric.registry.items() if cls.linear()))
        raise ValueError(
            f"Expected a measure with bounds of differences, got {metric.label}, {why}; use one of {names}"
        )


# ---- two systems -----------------------------------------------------------------------------------------------------


def _dense(name: str, preds: Any, target: Any, mask: Any) -> DenseLayout:
    """The checked scores and grades of a system."""
    batch = Batch(preds, target, mask=mask)
    for argument, x in ((name, batch.preds), ("target", batch.target)):
        if not isinstance(x, Tensor) or x.dim() != 2 or not x.shape[1]:
            got = f"shape {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(
                f"Expected {argument} of shape [query, candidate], whose columns are the same candidates for both"
                f" systems, got {got}; pass scores and grades of all candidates of either list"
            )
    layout = arrange_batch(batch)
    if not isinstance(layout, DenseLayout):
        raise TypeError(f"Expected {name} to be floating point scores, got {batch.preds.dtype}")
    return layout


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two systems on the same candidates: rankings whose entries are candidates, and the column of each entry."""

    #: a ranking with an entry for every candidate, in which unjudged candidates are irrelevant; of a, then of b
    rankings: tuple[Ranking, Ranking]
    #: int64 [query, entry]: the column of each entry; of a, then of b
    columns: tuple[Tensor, Tensor]
    #: [query, candidate]: grades, 0 if unjudged
    judged: Tensor
    #: bool [query, candidate]
    unjudged: Tensor
    #: the grade of an unjudged candidate that is assumed to be relevant
    relevant: float

    @classmethod
    def of(cls, a: Any, b: Any, metric: RankingMetric) -> _Pair:
        grade = a.grade if a.grade.is_floating_point() else a.grade.long()
        relevant = max(1, getattr(metric, "relevance_level", 1))
        relevant = relevant if grade.is_floating_point() else math.ceil(relevant)
        unjudged = grade < 0 if a.mask is None else (grade < 0) & a.mask
        judged = grade.clamp_min(0)
        # The entries of a ranking are in rank order. As grades, the columns move with them.
        places = torch.arange(grade.shape[1], device=grade.device).expand_as(grade)
        ranked = [Ranking.rank(replace(system, grade=places)) for system in (a, b)]
        if problem := explain(torch.maximum(ranked[0].errors, ranked[1].errors)):
            raise ValueError(f"{metric.label}: {problem}")
        columns = tuple(ranking.grade.long() for ranking in ranked)
        rankings = tuple(replace(ranking, grade=judged.gather(1, column)) for ranking, column in zip(ranked, columns))
        return cls(rankings, columns, judged, unjudged, relevant)  # type: ignore[arg-type]

    def contributions(self, metric: RankingMetric) -> Tensor:
        """How much more each candidate adds to the sum of b than to the sum of a if relevant: [query, candidate]."""
        sums = []
        for ranking, column in zip(self.rankings, self.columns):
            value, least = (metric.numerator(_single_entries(ranking, grade)) for grade in (self.relevant, 0))
            increase = (value - least).view(ranking.first.shape)
            # Padding adds 0 to any column. The rankings lack columns that are candidates of no query.
            sums.append(torch.zeros_like(self.judged, dtype=increase.dtype).scatter_add(1, column, increase))
        return sums[1] - sums[0]

    def with_relevant(self, number: int, system: int = 0) -> Ranking:
        """The ranking of a system if the first ``number`` unjudged candidates of each query are relevant."""
        relevant = self.unjudged & (self.unjudged.cumsum(1) <= number)
        grade = torch.where(relevant, self.relevant, self.judged).to(self.judged.dtype)
        return replace(self.rankings[system], grade=grade.gather(1, self.columns[system]))


def _single_entries(ranking: Ranking, grade: float) -> Ranking:
    """Each entry in a query of its own, at its ranks among the same number of candidates: rows [query * entry]."""
    width = ranking.first.shape[1]
    return replace(
        ranking,
        first=ranking.first.reshape(-1, 1),
        tied=ranking.tied.reshape(-1, 1),
        grade=torch.full_like(ranking.grade.reshape(-1, 1), grade),
        valid=ranking.valid.reshape(-1, 1),
        num_candidates=ranking.num_candidates.repeat_interleave(width),
        complete=False,
        queries=None,
    )


def _bounds(metric: RankingMetric, pair: _Pair) -> Tensor:
    """The smallest and largest difference of each query: float64 [query, 2]."""
    a, b = pair.rankings
    judged = (metric.numerator(b) - metric.numerator(a)).unsqueeze(1)
    increase = pair.contributions(metric)
    most = pair.unjudged.sum(1, keepdim=True)
    numbers = torch.arange(int(most.max()) + 1, device=increase.device)
    # [query, number of relevant unjudged candidates]
    lowest, highest = (
        judged + _prefix_sums(torch.where(pair.unjudged, increase, worst), descending)[:, : len(numbers)]
        for worst, descending in ((math.inf, False), (-math.inf, True))
    )
    possible = numbers <= most
    skips = metric.empty_target_action == "skip"
    if skips or metric.denominator(a) is not None:
        judgments = list(map(pair.with_relevant, range(len(numbers))))
        divisors: list[Any] = [metric.denominator(ranking) for ranking in judgments]
        if divisors[-1] is not None:
            other: Any = metric.denominator(pair.with_relevant(len(numbers) - 1, system=1))
            if not torch.equal(divisors[-1], other):
                raise ValueError(
                    f"Expected lists of equal length for {metric.label}, which divides by it, got others of one system;"
                    " pass top_k"
                )
            divisor = torch.stack(divisors, -1)
            lowest, highest = ratio(lowest, divisor), ratio(highest, divisor)
        # Both systems have the same value for an empty query, or none.
        empty = torch.stack(list(map(metric.empty, judgments)), 1)
        lowest, highest = (torch.where(empty, 0.0, x) for x in (lowest, highest))
        possible = possible & ~empty if skips else possible
    lower = torch.where(possible, lowest, math.inf).amin(1)
    upper = torch.where(possible, highest, -math.inf).amax(1)
    return torch.where(possible.any(1, keepdim=True), torch.stack([lower, upper], 1), math.nan)


def _prefix_sums(x: Tensor, descending: bool) -> Tensor:
    """Sums of the first 0, 1, ... elements of each row in order of size: [query, 1 + element]."""
    return torch.nn.functional.pad(running_sum(x.sort(1, descending=descending).values), (1, 0))
