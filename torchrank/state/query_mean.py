"""A metric that averages one value per query and fulfils torchmetrics' contract."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

import torchrank.state.estimates as estimates
import torchrank.state.sums as state
from torchrank.names.arguments import one_of, warn
from torchrank.names.types import EmptyAction
from torchrank.state.aggregation import AGGREGATIONS, MEANS, Mean, aggregate, from_sums
from torchrank.state.estimates import Estimate, Interval, Method
from torchrank.state.summed import COUNTS, SummedMetric
from torchrank.state.sums import Sum
from torchrank.state.synchronisation import JointReduction, appended
from torchrank.state.values import Values
from torchrank.state.waiting import LOCK

EMPTY_ACTIONS = get_args(EmptyAction)


class QueryMean(SummedMetric):
    """The average over queries of values that arrive in batches: state, synchronisation and report.

    The state is one small vector of sums, for any number of queries. Only an ``aggregation`` other than a mean or
    a sum keeps the values. Several threads may call ``update`` at once, but not ``forward``, ``compute`` or ``reset``.
    For a batch with bad values ``forward`` returns NaN, and :meth:`compute` raises.

    On several workers :meth:`compute`, :meth:`interval` and the summary of a collection are of all workers, and wait
    for them. The properties :attr:`standard_error`, :attr:`num_queries` and :attr:`num_empty` do not wait: they are of
    this worker, and within ``metric.sync_context()`` of all.

    Args:
        aggregation, empty_target_action, validate_args: as :class:`torchrank.RankingMetric`.
        kwargs: of :class:`torchmetrics.Metric`.
    """

    #: smallest and largest value
    value_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    is_differentiable = False
    higher_is_better = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        low, high = cls.value_range
        cls.plot_lower_bound = low if math.isfinite(low) else None
        cls.plot_upper_bound = high if math.isfinite(high) else None

    def __init__(
        self,
        aggregation: str | Callable[[Tensor], Tensor],
        empty_target_action: str,
        validate_args: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        one_of("aggregation", aggregation, AGGREGATIONS, or_callable=True)
        one_of("empty_target_action", empty_target_action, EMPTY_ACTIONS)
        one_of("validate_args", validate_args, (True, False))
        self.aggregation = aggregation
        self.empty_target_action = empty_target_action
        self.validate_args = validate_args
        # The sums that were read last, of all workers.
        self._read: Tensor | None = None
        # The reduction of the series of computes in progress.
        self._series: JointReduction | None = None

    def name_state(self, name: str, num_extra: int) -> None:
        """Add empty states under a name that no other metric has, with room for ``num_extra`` further sums."""
        # torchmetrics.MetricCollection merges metrics if the names of their states are equal, and their values after
        # the first batch. The colon keeps the names apart from attributes.
        self._state = name
        self.add_state(f"{name}:sums", state.nothing(self.device, num_extra), dist_reduce_fx="sum")
        self.keeps_values = not from_sums(self.aggregation)
        if self.keeps_values:
            self.add_state(f"{name}:values", [], dist_reduce_fx="cat")

    @property
    def rows(self) -> list[Tensor] | None:
        """Per-query (value, weight), float [query, 2] for each part; None for a mean or a sum, which keep none."""
        return getattr(self, f"{self._state}:values") if self.keeps_values else None

    def counts(self, sums: Tensor) -> Tensor:
        return sums[COUNTS]

    def fits(self, name: str, rows: Tensor) -> bool:
        return rows.dim() == 2 and rows.shape[1] == 2 and rows.is_floating_point()

    # ---- add, compute ------------------------------------------------------------------------------------------

    def accumulate(self, result: Values) -> None:
        """Add the sums, and if they are kept the values, of one batch."""
        if self.keeps_values:
            values = torch.where(result.kinds[2], result.values, float("nan"))
            more = [torch.stack([values, result.final_weights], dim=-1).detach()]
        name = f"{self._state}:sums"
        with LOCK:
            vars(self)[name] = state.add(getattr(self, name), result.sums)
            if self.keeps_values:
                self._set("values", appended(self.rows or [], more))

    def compute(self) -> Tensor:
        """The aggregate of all queries, of all workers, unlike :attr:`standard_error` and :attr:`num_queries`.

        Returns:
            float32 []; NaN if no query was scored. With ``aggregation="none"`` float32 [query], NaN for skipped
            queries. float64 if a value is beyond the range of float32, e.g. for exponential gains of large grades, or a
            count above 2**24, which float32 would round.
            ``forward`` on an accelerator does not read values: it returns float32, with infinity for such a value.

        Raises:
            ValueError: a worker has met bad values; the message counts them by kind. The metric can be used further.
        """
        self._read = sums = state.read(self.sums)
        self._errors = sums[Sum.ERRORS : state.SIZE]
        rows = None
        if self.rows is not None:
            rows = torch.cat([sums.new_empty((0, 2)), *(row.to(sums) for row in self.rows)])
        return self._narrow(torch.where(self._errors.sum() > 0, float("nan"), self.value_of(sums, rows)))

    def raise_errors(self) -> None:
        super().raise_errors()
        if self._fractions is not None and self._read is not None:
            queries, empty = self._read[[Sum.QUERIES, Sum.EMPTY]].tolist()
            self.notice_fractions(queries, empty, self._fractions)

    def notice_fractions(self, queries: float, empty: float, fractions: Tensor | None) -> None:
        """Warn if no query has a relevant candidate, though grades are between 0 and the level of relevance."""
        level = getattr(self, "relevance_level", math.nan)
        if 0 < queries == empty and fractions is not None and bool(fractions):
            warn(
                f"No grade reaches relevance_level={level:g}, so no query has a relevant candidate, though there are"
                " fractions above 0; pass relevance_level=, the lowest grade that is relevant"
            )

    def value_of(self, sums: Tensor, rows: Tensor | None = None) -> Tensor:
        """The result of :meth:`compute` in float64.

        Args:
            sums: [..., SIZE].
            rows: per-query (value, weight) [query, 2], for an aggregation that keeps them.
        """
        if rows is None:
            return self.transform_result(self.result(sums), sums)
        return self.transform_result(aggregate(self.aggregation, rows[:, 0], rows[:, 1]), sums)

    def result(self, sums: Tensor) -> Tensor:
        """The mean, or the sum, over all queries, from their sums [..., SIZE]: float64 [...]."""
        if self.adds_up:
            return torch.where(sums[..., Sum.W] > 0, sums[..., Sum.WV], float("nan"))
        return self.mean.outside(state.mean(sums))

    @property
    def adds_up(self) -> bool:
        """Whether the result is the sum of weight x value over queries, not their average."""
        return self.aggregation == "sum"

    @property
    def mean(self) -> Mean:
        """The mean of this metric; the arithmetic mean if its aggregation is not a mean."""
        known = isinstance(self.aggregation, str) and self.aggregation in MEANS
        return MEANS[self.aggregation if known else "mean"]  # type: ignore[index]

    def transform_result(self, average: Tensor, sums: Tensor) -> Tensor:
        """The result of :meth:`compute`, from the average over queries: the average itself unless overridden."""
        return average

    @property
    def turned(self) -> bool:
        """Whether the result falls where the values of queries rise, as for 1 / their mean."""
        return False

    @property
    def higher_values_are_better(self) -> bool:
        """Whether a higher value of a query is better."""
        return (self.higher_is_better is not False) is not self.turned

    @property
    def num_queries(self) -> int:
        """Number of queries of this worker, empty ones included; within ``metric.sync_context()`` of all workers."""
        return int(state.read(self.sums)[Sum.QUERIES])

    @property
    def num_empty(self) -> int:
        """Number of empty queries among :attr:`num_queries`, of the same workers: they have nothing to measure."""
        return int(state.read(self.sums)[Sum.EMPTY])

    @property
    def standard_error(self) -> Tensor:
        """Standard error of the mean over queries of this worker, float32 []; in ``metric.sync_context()`` of all.

        Three digits or more are exact down to a spread of 1e-11 of the values. The weights of different batches may
        differ by a factor of 1e6; far beyond it, from 1e7 on, the error can be too small. It is NaN if the sum of the
        weights is above 1e138 or below 1e-138. For a geometric or harmonic mean it is of first order in the spread of
        the values. For a sum it is the error of the mean, times the sum of the weights: the number of queries is taken
        as given.
        """
        return self._narrow(self.error_of(state.read(self.sums)))

    def error_of(self, sums: Tensor) -> Tensor:
        """The standard error of :meth:`value_of`, from sums [..., SIZE]: float64 [...]."""
        error = state.standard_error(sums, self.scored_of(sums))
        if self.adds_up:
            return error * sums[..., Sum.W]
        return error * self.mean.slope(self.mean.outside(state.mean(sums)))

    def scored_of(self, sums: Tensor) -> Tensor:
        """Number of queries with a value, from sums [..., SIZE]: float64 [...]."""
        queries = sums[..., Sum.QUERIES]
        return queries - sums[..., Sum.EMPTY] if self.empty_target_action == "skip" else queries

    # ---- intervals ---------------------------------------------------------------------------------------------

    def interval(self, level: float = 0.95, method: Method = "auto") -> Interval:
        r"""A confidence interval for the value that :meth:`compute` returns, over the queries of all workers.

        With m the mean of n scored queries and se its :attr:`standard_error`, "t" is :math:`m \pm t_{n-1} se`. "wilson"
        is Wilson's score interval, for values that are all 0 or 1. It never has a width of 0, and it covers 95 % where
        "t" covers 33 % (20 queries, a hit rate of 0.98). "auto" is "wilson" for such values, "t" for all others. For a
        geometric or harmonic mean, se has the slope of the mean as a factor. A sum has the ends of "t" for the mean,
        times the sum of the weights. A median has an interval between two order statistics, a callable aggregation the
        percentiles of 1,000 bootstrap samples. "anytime" is :meth:`confidence_sequence`.

        Like :meth:`compute` it waits for all workers, unless it is called in ``metric.sync_context()``.

        Source:
            Student, The probable error of a mean, Biometrika 1908. Wilson, Probable inference, the law of succession,
            and statistical inference, JASA 1927. With weights, n is that of Kish, Survey sampling, 1965.

        Args:
            level: the probability that the interval contains the expected value, above 0 and below 1.
            method: "auto", "t", "wilson" or "anytime".

        Returns:
            (low, high), floats; both NaN for fewer than two scored queries, for equal values that are not 0 or 1, for
            "min", "max" and "none", and for a measure that is not a mean over queries.

        Raises:
            ValueError: an argument has an unknown value, "wilson" is asked for other values than 0 and 1, or a worker
                has met bad values.

        Example:
            >>> import torch, torchrank as tr
            >>> hits = tr.HitRate(top_k=1)
            >>> hits.update(torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.2, 0.4]]), torch.tensor([0, 0, 0]))
            >>> [round(end, 4) for end in hits.interval()]
            [0.2077, 0.9385]
        """
        estimates.check(level, method)
        return self.estimate_of(*self.of_all_workers(), level, method).interval

    def confidence_sequence(self, level: float = 0.95) -> Interval:
        r"""An interval that may be looked at after every batch: all looks hold together with probability ``level``.

        An :meth:`interval` holds at one number of queries that was chosen before. If somebody looks again and again, or
        stops when the number pleases, use a confidence sequence. With se the standard error of n queries (with weights
        their effective number) and :math:`u = 0.04 n` it is

        .. math:: m \pm z \, se, \qquad z^2 = \frac{1 + u}{u} \left(\log(1 + u) - 2 \log(1 - level)\right),

        with Student's quantile in place of z, and Wilson's form for values that are all 0 or 1. It is asymptotic: for
        fewer than some 20 queries, or values of which a few are far from the others, keep the values and use
        :meth:`torchrank.QueryTable.confidence_sequences`. Queries must come in random order.

        Like :meth:`compute` it waits for all workers.

        Source:
            Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, Time-uniform central limit theory and asymptotic
            confidence sequences, Annals of Statistics 2024.

        Args:
            level: the probability that all looks contain the expected value, above 0 and below 1.

        Returns:
            (low, high), floats; both NaN where :meth:`interval` has NaN, and for a callable aggregation.

        Raises:
            ValueError: as :meth:`interval`.

        Example:
            >>> import torch, torchrank as tr
            >>> hits = tr.HitRate(top_k=1)
            >>> hits.update(torch.eye(4).repeat(50, 1), torch.tensor([0, 1, 2, 0]).repeat(50))
            >>> [round(end, 4) for end in hits.interval()], [round(end, 4) for end in hits.confidence_sequence()]
            ([0.6857, 0.8049], [0.6475, 0.8305])
        """
        return self.interval(level, "anytime")

    def estimate_of(self, sums: Tensor, rows: Tensor | None, level: float = 0.95, method: Method = "auto") -> Estimate:
        """The value, standard error and interval of sums [SIZE] and, if they are kept, of values [query, 2].

        Raises:
            ValueError: as :meth:`interval`.
        """
        self._read, self._errors = sums, sums[Sum.ERRORS : state.SIZE]
        self.raise_errors()
        return estimates.estimate(self, sums, rows, level, method)

    def of_all_workers(self, series: JointReduction | None = None) -> tuple[Tensor, Tensor | None]:
        """The sums [SIZE] of all workers, and their per-query (value, weight) [query, 2] if these are kept."""
        self._series = series
        try:
            with self.over_all_workers():
                sums = state.read(self.sums)
                parts = None if self.rows is None else [row.to(sums) for row in self.rows]
                return sums, None if parts is None else torch.cat([sums.new_empty((0, 2)), *parts])
        finally:
            self._series = None

    # ---- torchmetrics' contract ----------------------------------------------------------------------------------

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        stock = super()._wrap_compute(compute)

        @functools.wraps(compute)
        def computed(*args: Any, **kwargs: Any) -> Any:
            value = stock(*args, **kwargs)
            if isinstance(value, tuple):
                return tuple(part.reshape(-1) for part in value)
            return value.reshape(-1) if self.aggregation == "none" else value  # torchmetrics squeezes one value

        return computed

    def compute_in(self, series: JointReduction) -> Any:
        """:meth:`compute` in a series with other metrics, which share one reduction."""
        self._series = series
        try:
            return self.compute()
        finally:
            self._series = None

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        if dist_sync_fn is not gather_all_tensors:  # a function of the user, which gathers one tensor at a time
            if self.rows is not None:
                parts = [row.to(self.sums) for row in self.rows]
                self._set("values", [torch.cat([self.sums.new_empty((0, 2)), *parts])])
            super()._sync_dist(dist_sync_fn, process_group)
            if self.rows is not None:
                self._set("values", [getattr(self, f"{self._state}:values")])
            return
        # In forward the other metrics have not received this batch yet, so this one is reduced alone.
        series = self._series if self._series is not None and self._should_unsync else JointReduction({})
        sums, rows = series.reduce(self, process_group or self.process_group)
        self._set("sums", sums)
        if rows is not None:
            self._set("values", rows)

    def restored(self, x: Tensor) -> Tensor:
        return super().restored(state.current(x, self.sums.shape[-1]))

    def __getstate__(self) -> dict[str, Any]:
        # A reduction holds all its metrics, and a copy of one metric must not contain the others.
        return {**super().__getstate__(), "_series": None, "_errors": None, "_read": None}
