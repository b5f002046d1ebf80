"""What is not known of a result: its range over all orders of ties, and of a difference over all missing judgments.

A report scores each metric under three policies and keeps maxima beside sums, so it is not a :class:`SuiteMetric`.

:func:`difference_bounds` assumes that m of the u unjudged candidates of a query are relevant, the same for both
systems. The measures here are a sum of contributions of candidates, divided by a number that judgments determine. In
the difference of the systems, an unjudged candidate contributes the difference of its two contributions. With a given
m, the extremes are reached when the m smallest or the m largest of these differences are relevant. So u + 1 values are
enough, instead of 2 ** u.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy
import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

import torchrank.state.sums as state
from torchrank.collection.collection import Metrics
from torchrank.display import Table, plot_ends
from torchrank.hardware.devices import eager, running_sum, widest_float
from torchrank.layouts.arrange import Batch, Options, arrange_batch, with_options
from torchrank.layouts.canonical import BLOCK, DenseLayout, Need
from torchrank.layouts.checks import explain
from torchrank.metrics.base import RankingMetric
from torchrank.names.parse import parse
from torchrank.names.types import Array, Results, Target, call_of
from torchrank.ranking.ranking import Ranking, Tolerance, ratio
from torchrank.state.metric import SafeMetric
from torchrank.state.scoring import Values, score_batch
from torchrank.state.sums import SIZE, Sum, from_sums
from torchrank.state.synchronisation import all_reduce
from torchrank.state.waiting import LOCK, bulk
from torchrank.wrappers.suite_metric import collection_of

__all__ = ["TieReport", "difference_bounds"]

#: the tie policies that are compared; the width is between the last two
POLICIES = RankingMetric.policies

#: sums of a metric besides its sums under each policy: weights, weights of queries that depend on ties, widths
TIE_SUMS = 3

# Values of a query under two policies differ by rounding if their difference is below so many units of precision.
ROUNDING = 2**9


class TieReport(SafeMetric):
    r"""How much metrics depend on ties of scores: the share of queries, and the width between the tie policies.

    A query is ranked once and measured under ``ties="optimistic"``, ``"pessimistic"`` and ``"expected"``. Its width is
    :math:`|optimistic - pessimistic|`; it depends on ties if the width exceeds rounding errors. Scores in bfloat16,
    quantised scores and constant scores have many ties. Their metrics are a matter of luck in a library that breaks
    ties by position.

    The state has a few sums and maxima for each metric, for any number of queries. They are exact under any split of
    the queries over batches and workers. During an ``update``, memory is three values per query and metric.

    A metric can be left out, with a reason in ``not_applicable``: it does not support these policies, it keeps
    values because its aggregation is not a mean, or it is not a measure of rankings. The policy of a metric is not
    read.

    Source:
        The width is the range of Yang et al., Reliable evaluation protocol for low-precision retrieval, arXiv
        2508.03306, 2025. Expected values: McSherry and Najork, Computing information retrieval performance measures
        efficiently in the presence of tied scores, ECIR 2008.

    Args:
        metrics: a metric, a name, a list of these, or a :class:`torchrank.RankingCollection`. They are copied, and
            their states do not change.
        atol, rtol: a score within ``atol + rtol * |positive|`` of the nearest relevant candidate's score counts as tied
            with it, so that the report shows near ties; >= 0. Updates then take scores [query, candidate] only, with a
            label or grades for each query.
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: no metric supports the policies, ``atol`` or ``rtol`` is negative, or as
            :class:`torchrank.RankingCollection`.

    Example:
        >>> import torch, torchrank as tr
        >>> report = tr.TieReport("mrr, recall@1")
        >>> report.update(torch.tensor([[0.5, 0.5, 0.1], [0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 0], [1, 0, 0]]))
        >>> results = report.compute()
        >>> [results[f"mrr/{name}"].item() for name in ("tied", "width", "pessimistic", "expected", "optimistic")]
        [0.5, 0.25, 0.75, 0.875, 1.0]
    """

    is_differentiable = False

    #: the reason of each metric that was left out, by key
    not_applicable: dict[str, str]

    def __init__(self, metrics: Metrics, *, atol: float = 0.0, rtol: float = 0.0, **kwargs: Any) -> None:
        suite = collection_of(metrics, kwargs)
        super().__init__(**kwargs)
        self._tolerance = Tolerance.of(atol, rtol)
        self.not_applicable = {key: why for key, metric in suite.items() if (why := _why_not(metric))}
        applicable: dict[str, Any] = {key: x for key, x in suite.items() if key not in self.not_applicable}
        self._three = {
            key: tuple(metric.changed(ties=policy) for policy in POLICIES) for key, metric in applicable.items()
        }
        if not self._three:
            reasons = "; ".join(f"{key}, which {why}" for key, why in self.not_applicable.items())
            raise ValueError(
                f"Expected a metric that supports {' and '.join(POLICIES[1:])} ties, got {reasons or 'none'}"
            )
        each = [metric for three in self._three.values() for metric in three]
        # Ranks beyond those that a metric reads may be unknown.
        reach = functools.reduce(operator.or_, (metric.required for metric in each)).reach
        self._scored = [*each, LargestTie(reach, validate_args=False)]
        self._overall = [suite._set_name(name) for name in ("tied_queries", "largest_tie")]
        # The names contain the labels, so that torchmetrics.MetricCollection does not merge different reports.
        name = " ".join(three[0].definition_name for three in self._three.values())
        self._state = f"report on {name}" + (f" within {atol} + {rtol}" if atol or rtol else "")
        size = len(self._three) * (len(POLICIES) * SIZE + TIE_SUMS) + 2
        self.add_state(f"{self._state}:sums", state.nothing(self.device, size - SIZE), dist_reduce_fx="sum")
        # One row, because a state of two rows is read as sums with their rounding errors.
        most = torch.zeros((1, len(self._three) + 1), dtype=self.sums.dtype, device=self.device)
        self.add_state(f"{self._state}:most", most, dist_reduce_fx="max")

    @property
    def most(self) -> Tensor:
        """The largest width of each metric, and the largest tie group: float64 [1, metric + 1]."""
        return getattr(self, f"{self._state}:most")

    # ---- add ---------------------------------------------------------------------------------------------------

    @bulk
    @with_options
    def update(self, preds: Array | Ranking, target: Target | None = None, **options: Unpack[Options]) -> None:
        """Add a batch of whole queries. Arguments of :meth:`torchrank.RankingMetric.update`.

        Raises:
            TypeError: near ties are looked for in other layouts than scores [query, candidate] with a label or grades.
        """
        complete = Batch(preds, target, **options)
        for batch in _snapped(complete, self._tolerance):
            self._add(batch)
        self.notice_cut(complete.indexes)

    def _add(self, batch: Batch) -> None:
        found = score_batch(self._scored, batch)
        *results, groups = map(found.of, range(len(self._scored)))
        by_metric = [results[first : first + len(POLICIES)] for first in range(0, len(results), len(POLICIES))]
        tie_sums, widths = zip(*(_width(*three[1:]) for three in by_metric))
        weights = groups.final_weights
        largest = torch.where(weights > 0, groups.values, 0.0)
        tied = torch.stack([weights.sum(), (weights * (largest > 1)).sum()])
        added = torch.cat([*(found.sums or [])[:-1], *tie_sums, tied])
        most = torch.stack([*widths, _largest(largest)]).to(self.most).unsqueeze(0)
        with LOCK:
            self._set("sums", state.add(self.sums, added))
            self._set("most", torch.maximum(self.most, most))

    # ---- compute -----------------------------------------------------------------------------------------------

    def compute(self) -> Results:
        """The numbers of all metrics over all queries of all workers, float32 [] each.

        Means and shares are over the queries that a metric scores, with their weights in its mean.

        Returns:
            For each metric ``key``:

            - ``{key}/tied``: share of queries whose value depends on ties;
            - ``{key}/width``, ``{key}/width_max``: mean and largest width of a query;
            - ``{key}/expected``, ``{key}/optimistic``, ``{key}/pessimistic``: the metric under each policy.

            For all metrics together, at the ranks that one of them reads:

            - ``tied_queries``: share of queries with a relevant candidate (grade above 0) in a tie group;
            - ``largest_tie``: candidates in the largest such tie group, 1 if there is none; 0 without queries.

            NaN if no query was scored.

        Raises:
            ValueError: a worker has met bad values; the message counts them by kind. The report can be used further.
        """
        metrics = len(self._three)
        parts = state.read(self.sums).split([metrics * len(POLICIES) * SIZE, metrics * TIE_SUMS, 2])
        policies, tie_sums = parts[0].view(metrics, len(POLICIES), SIZE), parts[1].view(metrics, TIE_SUMS)
        self._errors = policies[..., Sum.ERRORS :].amax(1)
        shown: dict[str, Tensor] = {}
        for number, (key, three) in enumerate(self._three.items()):
            weight, tied, width = tie_sums[number]
            shown |= {f"{key}/tied": tied / weight, f"{key}/width": width / weight}
            shown[f"{key}/width_max"] = self.most[0, number]
            for metric, policy, row in zip(three, POLICIES, policies[number]):
                shown[f"{key}/{policy}"] = metric.transform_result(metric.result(row), row)
        queries, in_ties = parts[2]
        shown |= dict(zip(self._overall, (in_ties / queries, self.most[0, -1])))
        bad = self._errors.sum() > 0
        return {key: torch.where(bad, float("nan"), value).to(torch.float32) for key, value in shown.items()}

    @eager
    def summary(self) -> Table:
        """The numbers of :meth:`compute` as a table, one row per metric.

        Raises:
            ValueError: as :meth:`compute`.
        """
        values = {key: value.item() for key, value in self.compute().items()}
        heads = {"tied": "tied queries", "width": "mean width", "width_max": "largest width"}
        order = [*heads, "pessimistic", "expected", "optimistic"]
        columns: dict[str, list[Any]] = {"measure": list(self._three)}
        columns |= {heads.get(name, name): [values[f"{key}/{name}"] for key in self._three] for name in order}
        share, largest = (values[name] for name in self._overall)
        groups = "No relevant candidate is in a tie group."
        if share > 0:
            groups = f"{share:.1%} of the queries have a relevant candidate in a tie group; "
            groups += f"the largest group has {largest:.0f} candidates."
        notes = [groups, *(f"{key} {why}." for key, why in self.not_applicable.items())]
        return Table(columns, {heads["tied"]: ".1%"}, notes)

    def plot(self, val: Results | None = None, ax: Any = None) -> Any:
        """Plot the expected value of each metric, and a line from its pessimistic to its optimistic value.

        Args:
            val: a result of :meth:`compute`; None = compute. Needs matplotlib.
            ax: the axes to draw in; None = new axes.

        Returns:
            The figure and its axes.
        """
        values, ends = self.compute() if val is None else val, ("/expected", "/pessimistic", "/optimistic")
        what = "dot: expected value; line: from pessimistic to optimistic ties"
        return plot_ends(ax, values, list(self._three), ends, what)

    # ---- torchmetrics' contract ----------------------------------------------------------------------------------

    def reducible(self) -> bool:
        """Whether other metrics can be reduced together with this one: never, because it has maxima."""
        return False

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        if dist_sync_fn is not gather_all_tensors:  # a function of the user
            super()._sync_dist(dist_sync_fn, process_group)
            return
        group, most = process_group or self.process_group, self.most.clone()
        sums, _ = all_reduce({self._state: self}, group)[self._state]  # raises on all workers if their metrics differ
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
        self._set("sums", sums)
        self._set("most", most)

    def raise_errors(self) -> None:
        for key, counters in zip(self._three, [] if self._errors is None else self._errors):
            if problems := explain(counters):
                self._computed = None
                raise ValueError(f"{key}: {problems}")

    def joined(self, name: str, earlier: Any, later: Any) -> Any:
        if name.endswith(":most"):
            return torch.maximum(earlier, state.carry(later, earlier.device))
        return super().joined(name, earlier, later)

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        # Results, which stay float32, are not matrices.
        return state.carry(x, device) if x.dim() == 2 else super().moved(x, device)

    def extra_repr(self) -> str:
        return ", ".join(self._three)

    if TYPE_CHECKING:

        @call_of(update, Results)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class LargestTie(RankingMetric):
    """The size of the largest tie group of each query that has a relevant candidate; 1 without ties, 0 without one.

    Groups that begin after rank ``top_k`` do not count.
    """

    name = "largesttie"
    value_range = (0.0, math.inf)
    #: it is a part of a report, so it is not listed among the measures
    registry: ClassVar[dict[str, type[RankingMetric]]] = {}
    listed = False

    def need(self) -> Need:
        return Need(self.top_k, relevant=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return torch.zeros_like(ranking.num_candidates, dtype=torch.bool)

    def measure(self, ranking: Ranking) -> Tensor:
        counted = ranking.valid & (ranking.grade > 0)
        if self.top_k is not None:
            counted = counted & (ranking.first <= self.top_k)
        return torch.where(counted, ranking.tied, 0.0).amax(1)


def _snapped(batch: Batch, tolerance: Tolerance) -> Iterator[Batch]:
    """The batch in pieces of some queries, with equal scores for near ties; or the batch itself without a tolerance."""
    scores, target = batch.preds, batch.target
    near = tolerance != Tolerance()
    matrix = isinstance(scores, Tensor) and scores.dim() == 2 and scores.is_floating_point()
    fits = matrix and isinstance(target, Tensor) and target.shape in (scores.shape, scores.shape[:1])
    if near and not fits:
        raise TypeError(
            "Expected preds to be floating [query, candidate] with a label or grades for each query, together with atol"
            f" or rtol, got {type(scores).__name__} with {type(target).__name__}; pass scores and grades, or leave both"
            " out"
        )
    if not near or not scores.numel():
        yield batch
        return
    step = max(1, BLOCK // scores.shape[1])
    for start in range(0, len(scores), step):
        part = batch.rows(start, start + step)
        if target.dim() == 1:
            column = part.target.to(scores.device).long().clamp(0, scores.shape[1] - 1).unsqueeze(1)
            positives = part.preds.gather(1, column)
        else:
            positives = torch.where(part.target.to(scores.device) > 0, part.preds, float("-inf"))
        yield replace(part, preds=tolerance.snapped(part.preds, positives))


def _why_not(metric: Metric) -> str:
    """The reason why a metric is left out of a report; empty if it is not."""
    if not isinstance(metric, RankingMetric):
        return "is not a measure of rankings"
    if metric.num_extra_sums:
        return "has several values per query"
    if lacking := [policy for policy in POLICIES if policy not in metric.policies]:
        return f"does not support {' and '.join(lacking)} ties"
    return "" if from_sums(metric.aggregation) else "has an aggregation that is not a mean"


def _width(optimistic: Values, pessimistic: Values) -> tuple[Tensor, Tensor]:
    """The sums [TIE_SUMS] of a metric for a batch, besides those under each policy, and its largest width []."""
    # Breaking ties can make a query empty, or not, but the same under both policies.
    weights = torch.where(pessimistic.final_weights > 0, optimistic.final_weights, 0.0)
    width = torch.where(weights > 0, (optimistic.values - pessimistic.values).abs(), 0.0)
    size = torch.maximum(optimistic.values.abs(), pessimistic.values.abs())
    differs = width > ROUNDING * torch.finfo(width.dtype).eps * size
    width = torch.where(differs | width.isnan(), width, 0.0)
    return torch.stack([weights.sum(), (weights * differs).sum(), (weights * width).sum()]), _largest(width)


def _largest(x: Tensor) -> Tensor:
    """The largest number of a batch [query], 0 if there is none."""
    return torch.nn.functional.pad(x, (0, 1)).amax()


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
            # Each entry in a query of its own, at its ranks among the same number of candidates.
            fields = {name: getattr(ranking, name).reshape(-1, 1) for name in ("first", "tied", "valid", "grade")}
            number = ranking.num_candidates.repeat_interleave(ranking.first.shape[1])
            alone = replace(ranking, **fields, num_candidates=number, complete=False, queries=None)
            levels = (torch.full_like(alone.grade, level) for level in (self.relevant, 0))
            value, least = (metric.numerator(replace(alone, grade=grade)) for grade in levels)
            increase = (value - least).view(ranking.first.shape)
            # Padding adds 0 to any column. The rankings lack columns that are candidates of no query.
            sums.append(torch.zeros_like(self.judged, dtype=increase.dtype).scatter_add(1, column, increase))
        return sums[1] - sums[0]

    def with_relevant(self, number: int, system: int = 0) -> Ranking:
        """The ranking of a system if the first ``number`` unjudged candidates of each query are relevant."""
        relevant = self.unjudged & (self.unjudged.cumsum(1) <= number)
        grade = torch.where(relevant, self.relevant, self.judged).to(self.judged.dtype)
        return replace(self.rankings[system], grade=grade.gather(1, self.columns[system]))


def _bounds(metric: RankingMetric, pair: _Pair) -> Tensor:
    """The smallest and largest difference of each query: float64 [query, 2]."""
    a, b = pair.rankings
    judged = (metric.numerator(b) - metric.numerator(a)).unsqueeze(1)
    increase = pair.contributions(metric)
    most = pair.unjudged.sum(1, keepdim=True)
    numbers = torch.arange(int(most.max()) + 1, device=increase.device)
    # [query, number of relevant unjudged candidates]
    bounds = []
    for worst, descending in ((math.inf, False), (-math.inf, True)):
        ordered = torch.where(pair.unjudged, increase, worst).sort(1, descending=descending).values
        bounds.append(judged + torch.nn.functional.pad(running_sum(ordered), (1, 0))[:, : len(numbers)])
    lowest, highest = bounds
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
