"""The value of a metric with its standard error and its interval, from the state of the metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, get_args

import torch
from torch import Tensor

import torchrank.state.sums as state
from torchrank.names.arguments import one_of
from torchrank.state.sums import Sum
from torchrank.statistics.comparison import ANYTIME, BETTING, FEW_QUERIES
from torchrank.statistics.distributions import normal_quantile
from torchrank.statistics.intervals import anytime_level, t_interval, wilson
from torchrank.statistics.table import Table

#: the way to compute an interval
Method = Literal["auto", "t", "wilson", "anytime"]

#: A spread below this share of the value can be rounding of equal values.
ROUNDING = 1e-10

#: Replicates of the bootstrap of an aggregation that is a function of the user.
REPLICATES = 1000


class Interval(NamedTuple):
    """A confidence interval. Both ends are NaN if the queries do not show how far values spread."""

    low: float
    high: float


NO_INTERVAL = Interval(math.nan, math.nan)


class Estimable(Protocol):
    """A metric whose value and standard error are functions of its sums."""

    value_range: ClassVar[tuple[float, float]]
    aggregation: Any

    @property
    def definition_name(self) -> str:
        """The name of the metric, for errors."""

    def value_of(self, sums: Tensor, rows: Tensor | None = None) -> Tensor:
        """The value."""

    def error_of(self, sums: Tensor) -> Tensor:
        """The standard error of the value."""

    def scored_of(self, sums: Tensor) -> Tensor:
        """The number of queries with a value."""

    def transform_result(self, average: Tensor, sums: Tensor) -> Tensor:
        """The value of an average."""


@dataclass(frozen=True)
class Estimate:
    """A value, and how far it can be trusted."""

    value: float
    standard_error: float
    interval: Interval
    #: number of queries, empty ones included
    queries: int
    #: number of empty queries, which have nothing to measure
    empty: int
    #: number of queries with a value
    scored: int
    #: (sum of weights)^2 / sum of squared weights of the queries with a value: their number if weights are equal
    effective: float

    def row(self) -> dict[str, float | int]:
        """The numbers by the names of the columns of a table."""
        low, high = self.interval
        return {
            "value": self.value,
            "standard error": self.standard_error,
            "low": low,
            "high": high,
            "queries": self.queries,
            "empty": self.empty,
            "effective": self.effective,
        }


def estimate(
    metric: Estimable, sums: Tensor, rows: Tensor | None = None, level: float = 0.95, method: str = "auto"
) -> Estimate:
    """The estimate of one metric.

    Args:
        metric: the metric, which defines its value and its standard error.
        sums: its sums [SIZE].
        rows: its per-query (value, weight), float64 [query, 2]; None for a mean.
        level: probability with which the interval contains the expected value, above 0 and below 1.
        method: "auto", "t", "wilson" or "anytime", see :meth:`QueryMean.interval`.
    """
    check(level, method)
    sums = sums.detach().to("cpu", torch.float64)
    rows = None if rows is None else rows.detach().to("cpu", torch.float64)
    error, scored = math.nan, float(metric.scored_of(sums))
    value_tensor, interval = metric.value_of(sums, rows), NO_INTERVAL
    if rows is None:
        if value_tensor.numel() == 1:
            error = float(metric.error_of(sums))
            interval = _of_mean(metric, sums, float(value_tensor), error, level, method)
    else:
        ends = metric.transform_result(
            torch.tensor(_of_rows(metric, rows, level, method), dtype=torch.float64, device="cpu"), sums
        )
        interval = Interval(*ends.sort().values.tolist())  # 1 / mean rank exchanges the ends
    value = float(value_tensor) if value_tensor.numel() == 1 else math.nan  # a curve has no interval
    weights = float(state.effective_size(sums))
    effective = weights if math.isfinite(weights) else scored
    return Estimate(value, error, interval, int(sums[Sum.QUERIES]), int(sums[Sum.EMPTY]), int(scored), effective)


def estimate_table(
    found: Mapping[str, Estimate], level: float, notes: Sequence[str] = (), method: str = "auto"
) -> Table:
    """The estimates by key as a table. The effective number of queries is shown if it differs from their number."""
    rows = [{"measure": key, **estimate.row()} for key, estimate in found.items()]
    if all(math.isclose(estimate.effective, estimate.scored, rel_tol=1e-6) for estimate in found.values()):
        for row in rows:
            del row["effective"]
    notes = [f"low and high: {100 * level:g} % confidence {'sequence' if method == 'anytime' else 'interval'}", *notes]
    if method == "anytime":
        few = any(estimate.effective < FEW_QUERIES for estimate in found.values())
        notes += [ANYTIME, *[f"Warning: fewer than {FEW_QUERIES} queries; {BETTING}"] * few]
    return Table.of_rows(rows, {"effective": ".1f"}, notes, ("measure", "value"))


def check(level: float, method: str) -> None:
    """Raise ValueError for a level or method that does not exist."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ValueError(f"Expected level to be a number between 0 and 1, e.g. 0.95, got {level!r}")
    one_of("method", method, get_args(Method))


def _of_mean(metric: Estimable, sums: Tensor, value: float, error: float, level: float, method: str) -> Interval:
    scored = float(metric.scored_of(sums))
    binary = _binary(metric, sums, value)
    if method == "wilson" and not binary and scored > 0:
        raise ValueError(
            f"Expected values of 0 and 1 only for method='wilson', got others from {metric.definition_name};"
            " use method='t' or 'auto'"
        )
    effective = float(state.effective_size(sums))
    if scored < 2 or math.isnan(value + effective):
        return NO_INTERVAL
    if method == "anytime":
        level = anytime_level(level, effective)
    if binary and method != "t":
        return Interval(*wilson(value, effective, level))
    if error * math.sqrt(effective) <= ROUNDING * abs(value):
        return NO_INTERVAL
    return Interval(*t_interval(value, error, scored - 1, level))


def _binary(metric: Estimable, sums: Tensor, value: float) -> bool:
    """Whether all values are 0 or 1 and their mean is reported: v^2 <= v on [0, 1], and equal only there."""
    second, first = float(sums[Sum.SQUARES]), float(sums[Sum.SQUARES + 3])
    plain = metric.value_range == (0.0, 1.0) and value == float(state.mean(sums))
    return plain and metric.aggregation == "mean" and abs(second - first) <= 1e-12 * abs(first)


def _of_rows(metric: Estimable, rows: Tensor, level: float, method: str) -> Interval:
    """The interval of an aggregate of kept values: order statistics for medians, the bootstrap for functions."""
    values, weights = rows[rows[:, 1] > 0].T
    if len(values) < 2 or metric.aggregation in ("min", "max", "none") or bool((values == values[0]).all()):
        return NO_INTERVAL
    if bool(values.isnan().any()):
        return NO_INTERVAL
    if metric.aggregation in ("median", "midpoint"):
        return _of_median(values, weights, level, method)
    assert callable(metric.aggregation)
    if method == "anytime":
        return NO_INTERVAL
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randint(len(values), values.shape, generator=generator, device="cpu") for _ in range(REPLICATES))
    replicates = torch.stack(
        [torch.as_tensor(metric.aggregation(values[row]), device="cpu").to(torch.float64) for row in drawn]
    )
    if replicates.dim() > 1 or bool((replicates == replicates[0]).all()):
        return NO_INTERVAL
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64, device="cpu")
    return Interval(*replicates.quantile(ends).tolist())


def _of_median(values: Tensor, weights: Tensor, level: float, method: str) -> Interval:
    """The interval between two order statistics: their share of the weight is that of binomial quantiles of 1/2.

    With n values, the number below the median is binomial with n and 1/2. Its quantiles are those of the normal
    distribution with a correction for continuity. If even the smallest and largest value are too close, there is no
    interval.
    """
    values, order = values.sort()
    weights = weights[order] / weights.amax()  # sums and squares of extreme weights are 0 or infinite
    n = float(weights.sum() ** 2 / weights.square().sum())
    level = anytime_level(level, n) if method == "anytime" else level
    reach = normal_quantile((1 + level) / 2) * math.sqrt(n) / 2
    below, above = math.floor(n / 2 + 0.5 - reach), math.ceil(n / 2 + 0.5 + reach)
    if below < 1 or above > n + 1e-9:
        return NO_INTERVAL
    share = weights.cumsum(0) / weights.sum() * n * (1 + 1e-12)  # tolerates rounding in the sums of weights
    return Interval(*(float(values[int((share >= share_below).int().argmax())]) for share_below in (below, above)))
