"""Bounds of the difference of two systems over all judgments of the unjudged candidates, the same for both systems.

Assume that m of the u unjudged candidates of a query are relevant. The measures here are a sum of contributions of
candidates, divided by a number that judgments determine. In the difference of the systems, an unjudged candidate
contributes the difference of its two contributions. With a given m, the extremes are reached when the m smallest or
the m largest of these differences are relevant. So u + 1 values are enough, instead of 2 ** u.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchrank.formulas.gains import Geometric
from torchrank.hardware.devices import widest_float
from torchrank.layouts.arrange import arrange_batch
from torchrank.layouts.bad_values import explain
from torchrank.layouts.batch import Batch
from torchrank.layouts.canonical import BLOCK, DenseLayout
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import F1, BinaryMetric, FBeta, Precision, Recall, RelativePrecision
from torchrank.metrics.confusion import Utility
from torchrank.metrics.counts import NumRel, NumRelRet
from torchrank.metrics.graded import CG, DCG, NDCG, PWA, GradedMetric
from torchrank.metrics.propensity import IPS, PSNDCG, PSP
from torchrank.metrics.user_models import BLIND_USERS, CWL, RBP
from torchrank.names.parse import parse
from torchrank.ranking.arithmetic import ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["difference_bounds"]


def difference_bounds(
    metric: RankingMetric | str, preds_a: Tensor, preds_b: Tensor, target: Tensor, *, mask: Tensor | None = None
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
    are relevant. Measures of this form: ``Precision``, ``Recall``, ``RelativePrecision``, ``F1`` and ``FBeta`` with
    ``top_k``, ``NumRel``, ``NumRelRet``, ``Utility``, ``CG``, ``DCG``, ``NDCG``, ``PSP``, ``PSNDCG``, ``IPS``,
    ``PWA``, ``RBP``, and ``CWL`` of the users "precision", "rbp", "sdcg" and "insq".

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
    parts = _parts(metric)
    a, b = _dense("preds_a", preds_a, target, mask), _dense("preds_b", preds_b, target, mask)
    queries, width = a.scores.shape
    bounds = [torch.zeros((0, 2), dtype=widest_float(a.scores.device), device=a.scores.device)]
    rows = max(1, BLOCK // 8 // width)  # there are a few dozen temporaries of the size of a chunk
    for start in range(0, queries, rows):
        pair = _Pair.of(a.rows(start, start + rows), b.rows(start, start + rows), metric)
        bounds.append(_bounds(metric, parts, pair))
    lower, upper = torch.cat(bounds).unbind(-1)
    return lower, upper


# ---- measures as sums over candidates --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parts:
    """A measure as a sum over candidates, divided by a number that does not depend on the system."""

    #: the sum: float64 [query]. It is linear in the gains of the entries of a ranking
    numerator: Callable[[Ranking], Tensor]
    #: the divisor, from a ranking of either system: float64 [query]; None = 1
    denominator: Callable[[Ranking], Tensor] | None = None


def _parts(metric: Any) -> _Parts:
    """The sum and the denominator of a metric. Raises ValueError if it has no such form."""
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
    form = FORMS.get(type(metric))
    parts = form(metric) if form else "whose value is no sum over candidates with weights that judgments do not change"
    if isinstance(parts, str):
        raise ValueError(
            f"Expected a measure with bounds of differences, got {metric.label}, {parts}; use one of"
            f" {', '.join(sorted(cls.name for cls in FORMS))}"
        )
    return parts


def _plain(metric: RankingMetric) -> _Parts:
    return _Parts(metric.measure)


def _of_gains(metric: GradedMetric) -> _Parts:
    """Gains divided by the largest possible ones."""
    return _Parts(lambda ranking: GradedMetric.measure(metric, ranking), metric.ideal)


def _of_hits(denominator: Callable[[Any, Tensor], Tensor]) -> Callable[[BinaryMetric], _Parts | str]:
    """Hits divided by a function of the metric and the number of relevant candidates."""
    return lambda metric: _Parts(
        metric.hits, lambda ranking: denominator(metric, ranking.num_relevant(metric.relevance_level))
    )


def _f_measure(metric: FBeta | F1) -> _Parts | str:
    if metric.top_k is None:
        return "whose denominator depends on the length of the list unless top_k is passed"
    square = metric.beta**2 if isinstance(metric, FBeta) else 1
    return _of_hits(lambda metric, relevant: (square * relevant + metric.top_k) / (1 + square))(metric)


def _relative_precision(metric: RelativePrecision) -> _Parts | str:
    if metric.top_k is None:
        return "whose denominator depends on the length of the list unless top_k is passed"
    return _of_hits(lambda metric, relevant: relevant.clamp_max(metric.top_k))(metric)


def _recall(metric: Recall) -> _Parts | str:
    most = metric.top_k if metric.normalize == "min" else None
    return _of_hits(lambda metric, relevant: relevant if most is None else relevant.clamp_max(most))(metric)


def _utility(metric: Utility) -> _Parts | str:
    if metric.rejection or metric.empty_target_action != "neg":
        return "whose lists matter beyond their sums unless rejection is 0 and empty_target_action is 'neg'"
    return _plain(metric)


def _cwl(metric: CWL) -> _Parts | str:
    if metric.of == "depth":
        return "whose depth is no sum of gains"
    return _plain(metric) if metric.user in BLIND_USERS else f"whose user {metric.user!r} is guided by gains"


def _ips(metric: IPS) -> _Parts | str:
    if metric.self_normalized is True:
        return "whose mean weighs queries by their unjudged candidates"
    if not metric.self_normalized:
        return _plain(metric)
    return replace(_of_gains(metric), denominator=lambda ranking: ranking.total_gain(metric.gain_function))


def _propensity_scored(metric: PSP | PSNDCG) -> _Parts | str:
    return _of_gains(metric) if metric.average == "query" else "whose mean weighs queries by their unjudged candidates"


def _rbp(metric: RBP) -> _Parts:
    gain, discount, k = metric.gain_function, Geometric(metric.p), metric.top_k
    if not metric.normalize:
        return _plain(metric)
    return _Parts(
        lambda ranking: (ranking.gains(gain) * ranking.mean_discount(discount, k)).sum(-1),
        lambda ranking: ranking.ideal(gain, discount, k),
    )


#: From a metric to its parts, or to the reason why it has none. A subclass may change the formula, so it is not here.
FORMS: dict[type[RankingMetric], Callable[[Any], _Parts | str]] = {
    **dict.fromkeys((Precision, NumRel, NumRelRet, CG, DCG, PWA), _plain),
    NDCG: lambda metric: _of_gains(metric) if metric.normalize == "ideal" else _plain(metric),
    **dict.fromkeys((PSP, PSNDCG), _propensity_scored),
    **dict.fromkeys((F1, FBeta), _f_measure),
    Recall: _recall,
    RelativePrecision: _relative_precision,
    Utility: _utility,
    IPS: _ips,
    RBP: _rbp,
    CWL: _cwl,
}


# ---- two systems -----------------------------------------------------------------------------------------------------


def _dense(name: str, preds: Any, target: Any, mask: Tensor | None) -> DenseLayout:
    """The checked scores and grades of a system."""
    batch = Batch(preds, target, options={"mask": mask})
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
    worth: float

    @classmethod
    def of(cls, a: Any, b: Any, metric: RankingMetric) -> _Pair:
        grade = a.grade if a.grade.is_floating_point() else a.grade.long()
        worth = max(1, getattr(metric, "relevance_level", 1))
        worth = worth if grade.is_floating_point() else math.ceil(worth)
        unjudged = grade < 0 if a.mask is None else (grade < 0) & a.mask
        judged = grade.clamp_min(0)
        # The entries of a ranking are in rank order. As grades, the columns move with them.
        places = torch.arange(grade.shape[1], device=grade.device).expand_as(grade)
        ranked = [Ranking.rank(replace(system, grade=places)) for system in (a, b)]
        if found := explain(torch.maximum(ranked[0].errors, ranked[1].errors)):
            raise ValueError(f"{metric.label}: {found}")
        columns = tuple(ranking.grade.long() for ranking in ranked)
        rankings = tuple(replace(ranking, grade=judged.gather(1, column)) for ranking, column in zip(ranked, columns))
        return cls(rankings, columns, judged, unjudged, worth)  # type: ignore[arg-type]

    def contributions(self, numerator: Callable[[Ranking], Tensor]) -> Tensor:
        """How much more each candidate adds to the sum of b than to the sum of a if relevant: [query, candidate]."""
        found = []
        for ranking, column in zip(self.rankings, self.columns):
            increase = numerator(_each_alone(ranking, self.worth)) - numerator(_each_alone(ranking, 0))
            increase = increase.view(ranking.first.shape)
            found.append(torch.zeros_like(increase).scatter_add(1, column, increase))  # padding adds 0 to any column
        return found[1] - found[0]

    def with_relevant(self, number: int) -> Ranking:
        """The ranking of system a if the first ``number`` unjudged candidates of each query are relevant."""
        relevant = self.unjudged & (self.unjudged.cumsum(-1) <= number)
        grade = torch.where(relevant, self.worth, self.judged).to(self.judged.dtype)
        return replace(self.rankings[0], grade=grade.gather(1, self.columns[0]))


def _each_alone(ranking: Ranking, grade: float) -> Ranking:
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


def _bounds(metric: RankingMetric, parts: _Parts, pair: _Pair) -> Tensor:
    """The smallest and largest difference of each query: float64 [query, 2]."""
    a, b = pair.rankings
    judged = (parts.numerator(b) - parts.numerator(a)).unsqueeze(-1)
    apart = pair.contributions(parts.numerator)
    most = pair.unjudged.sum(-1, keepdim=True)
    numbers = torch.arange(int(most.max()) + 1, device=apart.device)
    # [query, number of relevant unjudged candidates]
    lowest, highest = (
        judged + _prefix_sums(torch.where(pair.unjudged, apart, worst), descending)[:, : len(numbers)]
        for worst, descending in ((math.inf, False), (-math.inf, True))
    )
    possible = numbers <= most
    if parts.denominator is not None or metric.empty_target_action == "skip":
        divide = parts.denominator or (lambda ranking: torch.ones_like(ranking.num_candidates))
        found = [(metric.empty(one), divide(one)) for one in map(pair.with_relevant, range(len(numbers)))]
        empty, below = (torch.stack(x, -1) for x in zip(*found))
        lowest, highest = ratio(lowest, below), ratio(highest, below)
        # Both systems have the same value for an empty query, or none.
        lowest, highest = (torch.where(empty, 0.0, x) for x in (lowest, highest))
        possible = possible & ~empty if metric.empty_target_action == "skip" else possible
    lower = torch.where(possible, lowest, math.inf).amin(-1)
    upper = torch.where(possible, highest, -math.inf).amax(-1)
    return torch.where(possible.any(-1, keepdim=True), torch.stack([lower, upper], -1), math.nan)


def _prefix_sums(x: Tensor, descending: bool) -> Tensor:
    """Sums of the first 0, 1, ... elements of each row in order of size: [query, 1 + element]."""
    return torch.nn.functional.pad(x.sort(-1, descending=descending).values.cumsum(-1), (1, 0))
