"""The influence of ties on metrics: their values if all ties fall well, or badly, for the system.

A report scores each metric under three policies and keeps maxima beside sums, so it is not a :class:`SuiteMetric`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

import torchrank.state.sums as state
from torchrank.collection.members import Metrics
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.layouts.canonical import BLOCK, Need
from torchrank.layouts.checks import explain
from torchrank.metrics.base import RankingMetric
from torchrank.names.types import Array, Results, Target, call_of
from torchrank.ranking.ranking import Ranking, Tolerance
from torchrank.state.aggregation import MEANS, from_sums
from torchrank.state.scoring import score_batch
from torchrank.state.summed import SummedMetric
from torchrank.state.sums import SIZE, Sum
from torchrank.state.synchronisation import all_reduce
from torchrank.state.values import Values
from torchrank.state.waiting import LOCK, bulk
from torchrank.statistics.drawing import plot_ends
from torchrank.statistics.table import Table
from torchrank.wrappers.suites import collection_of

__all__ = ["TieReport"]

#: the tie policies that are compared; the width is between the last two
POLICIES = RankingMetric.policies

#: sums of a metric besides its sums under each policy: weights, weights of queries that depend on ties, widths
TIE_SUMS = 3

# Values of a query under two policies differ by rounding if their difference is below so many units of precision.
ROUNDING = 2**9


class TieReport(SummedMetric):
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
        by_key = dict(suite.items())
        self.not_applicable = {key: why for key, metric in by_key.items() if (why := _why_not(metric))}
        measured = {key: metric for key, metric in by_key.items() if key not in self.not_applicable}
        if not measured:
            reasons = "; ".join(f"{key}, which {why}" for key, why in self.not_applicable.items())
            raise ValueError(
                f"Expected a metric that supports {' and '.join(POLICIES[1:])} ties, got {reasons or 'none'}"
            )
        self._overall = [suite._set_name(name) for name in ("tied_queries", "largest_tie")]
        self._three = {
            key: _under_each_policy(metric) for key, metric in measured.items() if isinstance(metric, RankingMetric)
        }
        # The names contain the labels, so that torchmetrics.MetricCollection does not merge different reports.
        name = " ".join(three[0].definition_name for three in self._three.values())
        self._state = f"report on {name}" + (f" within {atol} + {rtol}" if atol or rtol else "")
        size = len(measured) * (len(POLICIES) * SIZE + TIE_SUMS) + 2
        self.add_state(f"{self._state}:sums", state.nothing(self.device, size - SIZE), dist_reduce_fx="sum")
        # One row, because a state of two rows is read as sums with their rounding errors.
        most = torch.zeros((1, len(measured) + 1), dtype=self.sums.dtype, device=self.device)
        self.add_state(f"{self._state}:most", most, dist_reduce_fx="max")

    @property
    def most(self) -> Tensor:
        """The largest width of each metric, and the largest tie group: float64 [1, metric + 1]."""
        return getattr(self, f"{self._state}:most")

    # ---- add ---------------------------------------------------------------------------------------------------

    @bulk
    @with_options
    def update(
        self,
        preds: Array | Ranking,
        target: Target | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Add a batch of whole queries. Arguments of :meth:`torchrank.RankingMetric.update`.

        Raises:
            TypeError: near ties are looked for in other layouts than scores [query, candidate] with a label or grades.
        """
        complete = Batch(preds, target, **options)
        for batch in _snapped(complete, self._tolerance):
            self._add(batch)
        self.notice_cut(complete.indexes)

    def _add(self, batch: Batch) -> None:
        metrics = [metric for three in self._three.values() for metric in three]
        *results, groups = score_batch([*metrics, TieGroups.in_ranks_of(metrics)], batch)
        by_metric = [results[first : first + len(POLICIES)] for first in range(0, len(results), len(POLICIES))]
        tie_sums, widths = zip(*(_width(*three[1:]) for three in by_metric))
        weights = groups.final_weights
        largest = torch.where(weights > 0, groups.values, 0.0)
        tied = torch.stack([weights.sum(), (weights * (largest > 1)).sum()])
        added = torch.cat([*(result.sums for result in results), *tie_sums, tied])
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
            shown |= {
                f"{key}/tied": tied / weight,
                f"{key}/width": width / weight,
                f"{key}/width_max": self.most[0, number],
            }
            for metric, policy, row in zip(three, POLICIES, policies[number]):
                shown[f"{key}/{policy}"] = metric.transform_result(metric.result(row), row)
        queries, in_ties = parts[2]
        shown |= dict(zip(self._overall, (in_ties / queries, self.most[0, -1])))
        bad = self._errors.sum() > 0
        return {key: torch.where(bad, float("nan"), value).to(torch.float32) for key, value in shown.items()}

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
            groups = (
                f"{share:.1%} of the queries have a relevant candidate in a tie group; the largest group has"
                f" {largest:.0f} candidates."
            )
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


@dataclass(frozen=True)
class TieGroups:
    """The size of the largest tie group of each query that has a relevant candidate; 1 without ties, 0 without one.

    It takes part in the scoring of a batch like a metric.
    """

    #: the last rank at which a tie group may begin; None = all ranks
    reach: int | None

    takes_lists = shows_extra = False
    label = "ties"
    validate_args = False
    aggregation = "mean"
    empty_target_action = "neg"
    leaves_out_empty_lists = False
    ties = "expected"
    mean = MEANS["mean"]
    rank_decides = False
    check = None
    num_extra_sums = 0

    @classmethod
    def in_ranks_of(cls, metrics: list[RankingMetric]) -> TieGroups:
        """The tie groups that begin at a rank that a metric reads. Ranks behind it may be unknown."""
        return cls(functools.reduce(operator.or_, (metric.required for metric in metrics)).reach)

    @property
    def required(self) -> Need:
        """The part of a ranking with these tie groups."""
        return Need(self.reach, relevant=True)

    def per_query(self, ranking: Ranking) -> Values:
        counted = ranking.valid & (ranking.grade > 0)
        if self.reach is not None:
            counted = counted & (ranking.first <= self.reach)
        size = torch.where(counted, ranking.tied, 0.0).amax(1)
        return Values(size, torch.zeros_like(size, dtype=torch.int8), ranking.errors)


def _snapped(batch: Batch, tolerance: Tolerance) -> Iterator[Batch]:
    """The batch in pieces of some queries, with equal scores for near ties; or the batch itself without a tolerance."""
    scores, target = batch.preds, batch.target
    if tolerance == Tolerance():
        yield batch
        return
    matrix = isinstance(scores, Tensor) and scores.dim() == 2 and scores.is_floating_point()
    if not matrix or not isinstance(target, Tensor) or target.shape not in (scores.shape, scores.shape[:1]):
        raise TypeError(
            "Expected preds to be floating [query, candidate] with a label or grades for each query, together with atol"
            f" or rtol, got {type(scores).__name__} with {type(target).__name__}; pass scores and grades, or leave both"
            " out"
        )
    if not scores.numel():  # no candidate is near another one
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


def _under_each_policy(metric: RankingMetric) -> tuple[RankingMetric, ...]:
    """New metrics with the same arguments, one for each policy."""
    declared = [name for name, param in metric.declared.items() if param.init and not param.of_torchmetrics]
    arguments = {name: getattr(metric, name) for name in declared}
    return tuple(type(metric)(**{**arguments, "ties": policy}) for policy in POLICIES)


def _width(optimistic: Values, pessimistic: Values) -> tuple[Tensor, Tensor]:
    """The own sums [OWN] of a metric for a batch, and its largest width []."""
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
