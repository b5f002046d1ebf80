"""The sums that form the state of a metric, and the numbers computed from them: aggregates, estimates and intervals."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Self, TypeGuard, get_args

import numpy as np
import torch
from torch import Tensor

from torchrank.display import Table
from torchrank.hardware.devices import constant, running_sum, widest_float
from torchrank.layouts.checks import Problem
from torchrank.names.arguments import one_of
from torchrank.statistics.comparison import ANYTIME, BETTING, FEW_QUERIES
from torchrank.statistics.intervals import anytime_level, normal_quantile, t_interval, wilson


class Sum(IntEnum):
    """Indexes into the state vector. v is the value and w the weight of a scored query."""

    WV = 0  # sum(w v)
    W = 1  # sum(w)
    QUERIES = 2  # number of queries
    EMPTY = 3  # number of empty queries
    SQUARES = 4  # seven sums from 4 to 10, see :func:`summed`
    W2 = 10  # the last of them, sum(w^2)
    ERRORS = 11  # a counter for each kind of bad value; the further sums of a metric begin at SIZE


SIZE = Sum.ERRORS + len(Problem)

#: Weights have no standard error if their sum is above LARGE or below 1 / LARGE: squares are infinite, or lose digits.
LARGE = 2.0**460

#: Number of sums that states had behind SQUARES before torchrank 0.1, for such weights, and of counters behind those.
FORMER, FORMER_KINDS = 7, 8

#: Largest number of queries whose differences to all three centres are computed at once, in three times the memory.
DIRECT = 2**11


def nothing(device: torch.device, num_extra: int = 0) -> Tensor:
    """The state of a metric without queries, with ``num_extra`` further sums.

    float64 [SIZE + num_extra]. On a device without float64 it is float32 [2, SIZE + num_extra]: each sum, and the
    rounding error that it has accumulated.
    """
    size, dtype = SIZE + num_extra, widest_float(device)
    return torch.zeros(size if dtype == torch.float64 else (2, size), dtype=dtype, device=device)


def add(total: Tensor, extra: Tensor) -> Tensor:
    """The sum of two states on the device of the first, as a new tensor: inference mode forbids changes in place."""
    if extra.device != total.device:  # a batch [number] has no rounding errors yet
        extra = extra.to(total) if extra.dim() == total.dim() == 1 else carry(extra, total.device)
    if total.dim() == 1:
        return total + (extra if extra.dim() == 1 else read(extra))
    high, low = total
    extra_high, extra_low = extra if extra.dim() == 2 else (extra, torch.zeros_like(extra))
    result = high + extra_high
    rest = result - high
    lost = (high - (result - rest)) + (extra_high - rest)  # Knuth's two-sum: exact
    return torch.stack([result, low + extra_low + lost])


def read(total: Tensor) -> Tensor:
    """The sums [SIZE + num_extra] of a state."""
    if total.dim() == 1:
        return total
    return total[0] + total[1].nan_to_num(0.0)  # the rounding error of an infinite sum is NaN


def carry(state: Tensor, device: torch.device) -> Tensor:
    """A state on another device, in the widest dtype of that device."""
    if not state.is_floating_point() or state.dtype == widest_float(device):
        return state.to(device)
    if state.dim() == 1 and len(state) >= SIZE:  # float64 sums become float32 sums and rounding errors
        wide = state.to(torch.float64)
        high = wide.to(torch.float32)
        return torch.stack([high, (wide - high).to(torch.float32)]).to(device)
    wide = state.to(device, dtype=widest_float(device))
    return read(wide) if compensated(state) else wide


def current(state: Tensor, size: int) -> Tensor:
    """A state of ``size`` numbers that was saved by this version, or before torchrank 0.1."""
    new = len(Problem) - FORMER_KINDS
    if state.shape[-1:] != (size + FORMER - new,):
        return state
    end = Sum.ERRORS + FORMER + FORMER_KINDS
    parts = state[..., : Sum.ERRORS], state[..., Sum.ERRORS + FORMER : end], state[..., :new] * 0, state[..., end:]
    return torch.cat(parts, dim=-1)


def compensated(x: Tensor) -> bool:
    """Whether a tensor contains sums and their rounding errors. Per-query values have fewer columns."""
    return x.dim() == 2 and len(x) == 2 and x.shape[1] >= SIZE


def summed(
    values: Tensor,
    weights: Tensor | None,
    queries: Tensor | None,
    empty: Tensor | None,
    errors: Tensor,
    counted: Tensor | None = None,
) -> Tensor:
    """The sums [metric, SIZE] of one batch.

    Seven of them, from which :func:`standard_error` is computed, have three centres c: sum(w^2 (v - c)^2) for each c,
    sum(w^2 (v - c)) for each c, and sum(w^2). With c = 0 alone, a spread that is small compared to the values would be
    lost in rounding. The other two centres are the mean of the batch, rounded to two coarse grids. If the spread is
    small, then all batches round to the same point of at least one grid. So their sums around this point can be added,
    over batches and workers.

    Args:
        values: float [metric, query].
        weights: float [metric, query]; None = all are 1.
        queries: [metric]: number of queries; None = that of the values.
        empty: [metric]: number of empty queries; None = 0.
        errors: [metric, kind]: counters of bad values.
        counted: [metric]: number of queries of weight 1, if the weight of all others is 0, and so is their value.
    """
    factors = None if counted is not None else weights  # a second factor of 0 or 1 changes nothing
    wv = (values if factors is None else factors * values).sum(1, keepdim=True)
    number = torch.full_like(wv, values.shape[1]) if weights is None or queries is None else wv
    w = number if weights is None else weights.sum(1, keepdim=True) if counted is None else counted.unsqueeze(1)
    w2 = w if factors is None else (factors**2).sum(1, keepdim=True)
    centre = centres(torch.nan_to_num(wv / w, 0.0, 0.0, 0.0))
    # The number of metrics decides nothing here, so a metric alone has the bits that it has in a suite.
    if values.shape[1] <= DIRECT:
        first, second = _around(values, centre, weights, factors)
    else:
        # The sums around one centre near the values are accurate. The sums around the other centres are shifts of them.
        first, second = _around(values, centre[:, 1:2], weights, factors)
        shift = centre[:, 1:2] - centre
        shifted = first + shift * w2
        first, second = shifted, second + shift * (first + shifted)
    number = number if queries is None else queries.unsqueeze(1).to(w.dtype)
    none = torch.zeros_like(w) if empty is None else empty.unsqueeze(1).to(w.dtype)
    return torch.cat([wv, w, number, none, second, first, w2, errors.to(w.dtype)], dim=1)


def _around(values: Tensor, centre: Tensor, weights: Tensor | None, factors: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sums of w^2 (v - c) and of w^2 (v - c)^2 around some centres: float [metric, centre] each.

    Args:
        values: float [metric, query].
        centre: float [metric, centre].
        weights: float [metric, query]; None = all are 1.
        factors: the weights; None = all are 0 or 1, and values of weight 0 are 0.
    """
    values, centre = values.unsqueeze(1), centre.unsqueeze(2)
    if weights is None:
        apart = values - centre
    elif factors is None:
        apart = torch.addcmul(values, weights.unsqueeze(1), centre, value=-1)
    else:
        apart = (values - centre) * weights.unsqueeze(1)
    first = (apart if factors is None else factors.unsqueeze(1) * apart).sum(2)
    return first, apart.square_().sum(2)


def centres(mean: Tensor) -> Tensor:
    """Three centres for a mean [..., 1]: 0, and the nearest points of two grids of 14 bits: [..., 3].

    A mean halfway between two points of one grid is not halfway between points of the other. So at least one grid
    rounds all means near it to the same point.
    """
    times, over = _grids(mean.dtype, mean.device)
    scaled = mean * times
    # Adding half of the last bit that stays, and clearing the bits below it, rounds to 14 leading bits.
    cleared, integer = (39, torch.int64) if mean.dtype == torch.float64 else (10, torch.int32)
    scaled.view(integer).add_(1 << (cleared - 1)).bitwise_and_(-(1 << cleared))
    return scaled / over


@constant
def _grids(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The factors of a mean before it is rounded to each centre, and the divisors after it."""
    factors = torch.tensor([0, 1, 4 / 3], dtype=dtype, device=device)
    return factors, factors.clamp_min(1)


def mean(sums: Tensor) -> Tensor:
    """The weighted mean [...] of sums [..., SIZE]; NaN without scored queries."""
    return sums[..., Sum.WV] / sums[..., Sum.W]


def standard_error(sums: Tensor, n: Tensor) -> Tensor:
    """The standard error [...] of the weighted mean m over ``n`` [...] scored queries; NaN for n < 2.

    Its square is sum(w^2 (v - m)^2) / sum(w)^2 * n / (n - 1). NaN if the sum of the weights is above LARGE or below
    1 / LARGE.
    """
    second, first, w2 = sums[..., Sum.SQUARES : Sum.ERRORS].split((3, 3, 1), -1)
    m = mean(sums).unsqueeze(-1)
    centre = centres(m)
    # Sums of different batches belong to a common centre only if, shifted back to 0, they equal the sums around 0.
    back = second + centre * (2 * first + centre * w2)
    common = (back - second[..., :1]).abs() <= 2.0**-46 * second[..., :1]
    off = m - centre
    # Of the common centres the one nearest to m loses the fewest digits in the shift to m.
    best = torch.where(common, off.abs(), float("inf")).argmin(-1, keepdim=True)
    spread = (second - off * (2 * first - off * w2)).gather(-1, best).squeeze(-1)
    # With one query, rounding errors must not be divided by 0.
    spread = torch.where(n > 1, spread.clamp_min(0) * n / (n - 1), float("nan"))
    return spread.sqrt() / _squarable(sums[..., Sum.W])


def effective_size(sums: Tensor) -> Tensor:
    """Kish's effective number of queries: sum(w)^2 / sum(w^2); for weights of 1 exactly their number.

    NaN if the sum of the weights is above LARGE or below 1 / LARGE.
    """
    w = _squarable(sums[..., Sum.W])
    return w / sums[..., Sum.W2] * w


def _squarable(w: Tensor) -> Tensor:
    """Sums of weights, NaN for weights whose squares leave the range of float64."""
    return torch.where((w < LARGE) & (w > 1 / LARGE), w, float("nan"))


@dataclass(frozen=True)
class Mean:
    """A quasi-arithmetic mean of values v: outside(mean of inside(v)). Sums of inside(v) are enough for it."""

    #: function of a value that is summed
    inside: Callable[[Tensor], Tensor]
    #: inverse of ``inside``, from the mean of the summed numbers to the mean of the values
    outside: Callable[[Tensor], Tensor]
    #: absolute derivative of ``outside``, as a function of the mean of the values
    slope: Callable[[Tensor], Tensor]


#: Lower bound of values in a geometric mean, because a single 0 would make it 0 (Robertson, CIKM 2006).
FLOOR = 1e-5


MEANS = {
    "mean": Mean(lambda x: x, lambda x: x, torch.ones_like),
    "geometric": Mean(lambda x: x.clamp_min(FLOOR).log(), torch.exp, lambda x: x),
    "harmonic": Mean(torch.reciprocal, torch.reciprocal, torch.square),
}


def is_mean(how: object) -> TypeGuard[str]:
    """Whether an aggregation is a mean in :data:`MEANS`."""
    return isinstance(how, str) and how in MEANS


def from_sums(how: object) -> bool:
    """Whether an aggregation is computed from sums alone."""
    return isinstance(how, str) and (how in MEANS or how == "sum")


# The share of the weight below each quantile.
QUANTILES = {
    "median": 0.5,
    "midpoint": 0.5,
    **{f"p{percent}": percent / 100 for percent in (1, 5, 10, 25, 75, 90, 95, 99)},
}


def aggregate(how: str | Callable[[Tensor], Tensor], values: Tensor, weights: Tensor) -> Tensor:
    """Reduce per-query values [query] by a quantile, "min", "max", "none" or a callable.

    Queries of weight 0 do not count; skipped ones have weight 0. If another value is NaN, so is the result, as a
    mean. The median is the lower weighted median: the smallest value x such that queries with values <= x have at
    least half of the weight. If they have exactly half, "midpoint" is halfway between x and the next value. Other
    quantiles are as the median, with their share in place of half.
    """
    if how == "none":
        return values
    values, weights = values[weights > 0], weights[weights > 0]
    if not len(values) or values.isnan().any():
        return values.new_full((), float("nan"))
    if how in QUANTILES:
        values, order = values.sort()
        # Divided by the largest one, because sums of extreme weights are infinite. The two factors below tolerate
        # rounding in the sums.
        weights = weights[order] / weights.amax()
        so_far, share = running_sum(weights), weights.sum() * QUANTILES[how]
        lower = values[(so_far >= share * (1 - 1e-12)).int().argmax()]
        return (lower + values[(so_far > share * (1 + 1e-12)).int().argmax()]) / 2 if how == "midpoint" else lower
    if how in ("min", "max"):
        return values.amin() if how == "min" else values.amax()
    assert callable(how)
    return torch.as_tensor(how(values), device=values.device)


# Bits of the mantissa of a float64, and of each of the three parts of it that are summed.
MANTISSA, LIMB = 53, 18


def exact_sums(columns: Sequence[np.ndarray], group: np.ndarray, groups: int) -> list[Fraction]:
    """The sum of the products of some columns in each group: [group]. No sum and no product is rounded.

    The mantissa of a float64 has three parts of 18 bits. Their sums for each exponent are exact in float64, for up to
    2^34 rows.

    Source:
        Products: Dekker, A floating-point technique for extending the available precision, Numerische Mathematik 1971.

    Args:
        columns: float64 [row] each, all finite.
        group: int64 [row], the group of each row, from 0.
        groups: number of groups.

    Example:
        >>> import numpy as np
        >>> exact_sums([np.array([1e16, 1.0, -1e16]), np.array([1.0, 0.5, 1.0])], np.zeros(3, dtype=np.int64), 1)
        [Fraction(1, 2)]
    """
    terms = [np.frexp(columns[0])]
    for column in columns[1:]:
        factor, power = np.frexp(column)
        terms = [(part, exponent + power) for number, exponent in terms for part in _product(number, factor)]
    totals = [Fraction(0)] * groups
    for number, exponent in terms:
        mantissa, further = np.frexp(number)
        exponent = exponent + further
        least = int(exponent.min(initial=0))
        span = int(exponent.max(initial=0)) - least + 1
        cell, integer = group * span + (exponent - least), (mantissa * 2.0**MANTISSA).astype(np.int64)
        limbs = integer >> 2 * LIMB, (integer >> LIMB) & (2**LIMB - 1), integer & (2**LIMB - 1)
        exact = [0] * groups
        for shift, limb in zip((2 * LIMB, LIMB, 0), limbs):
            sums = np.bincount(cell, weights=limb, minlength=groups * span)
            for place in np.flatnonzero(sums).tolist():
                exact[place // span] += int(sums[place]) << (place % span + shift)
        unit = Fraction(2) ** (least - MANTISSA)
        totals = [total + more * unit for total, more in zip(totals, exact)]
    return totals


def _product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The products of numbers near 1, and their rounding errors."""
    (a_high, a_low), (b_high, b_low) = (_halves(x) for x in (a, b))
    product = a * b
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as sums of two numbers of 26 bits each."""
    large = x * (2.0**27 + 1)
    high = large - (large - x)
    return high, x - high


@dataclass(frozen=True)
class ExactSums:
    """The number of some values v with weights w, and their sums. None of them is rounded.

    A float is an integer times a power of two, so sums of floats and of their products are fractions. The state has a
    few hundred bytes for any number of values. Subtraction takes values away again.

    Example:
        >>> import numpy as np
        >>> both = ExactSums.of(np.array([1e16, 1.0])) + ExactSums.of(np.array([-1e16, float("nan")]))
        >>> both.count, both.mean
        (3, 0.3333333333333333)
    """

    count: int
    #: numbers of values that are inf and -inf, which are not in the sums of values
    above: int
    below: int
    #: sum(w), sum(w v), sum(w^2), sum(w^2 v), sum(w^2 v^2)
    weight: Fraction | int
    total: Fraction
    squared_weight: Fraction | int
    first: Fraction
    squares: Fraction

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray | None = None) -> Self:
        """The sums of float64 [value]; NaN is left out. Without weights all are 1."""
        return cls.by(values, weights, np.zeros(len(values), dtype=np.int64), 1)[0]

    @classmethod
    def by(cls, values: np.ndarray, weights: np.ndarray | None, group: np.ndarray, groups: int) -> list[Self]:
        """The sums of each group, which is int64 [value] from 0."""
        known = ~np.isnan(values)
        weighs = known if weights is None else known & (weights > 0)
        finite = weighs & np.isfinite(values)
        chosen = known, weighs & (values == np.inf), weighs & (values == -np.inf)
        count, above, below = (np.bincount(group[rows], minlength=groups).tolist() for rows in chosen)
        v, inside = values[finite].astype(np.float64, copy=False), group[finite]
        if weights is None:
            total, squares = (exact_sums([v] * power, inside, groups) for power in (1, 2))
            return [cls(*numbers) for numbers in zip(count, above, below, count, total, count, total, squares)]
        w = weights[weighs]
        weight, squared_weight = (exact_sums([w] * power, group[weighs], groups) for power in (1, 2))
        w = weights[finite]
        columns = [w, v], [w, w, v], [w, w, v, v]
        total, first, squares = (exact_sums(factors, inside, groups) for factors in columns)
        return [cls(*numbers) for numbers in zip(count, above, below, weight, total, squared_weight, first, squares)]

    def __add__(self, other: ExactSums) -> ExactSums:
        return ExactSums(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, other: ExactSums) -> ExactSums:
        return ExactSums(*map(operator.sub, astuple(self), astuple(other)))

    @property
    def mean(self) -> float:
        """The mean, rounded once; NaN without values."""
        if self.above or self.below or not self.weight:
            return self._total
        return _rounded(self.total / self.weight)

    @property
    def _total(self) -> float:
        if self.above or self.below:
            return math.nan if self.above and self.below else math.inf if self.above else -math.inf
        return _rounded(self.total) if self.count else math.nan

    def vector(self) -> Tensor:
        """The sums of :mod:`torchrank.state.sums`, each rounded once: float64 [SIZE] on the CPU."""
        state_vector = torch.zeros(SIZE, dtype=torch.float64, device="cpu")
        state_vector[Sum.WV] = self._total if self.count else 0.0
        state_vector[Sum.W], state_vector[Sum.W2] = _rounded(self.weight), _rounded(self.squared_weight)
        state_vector[Sum.QUERIES] = float(self.count)  # which may be a fraction in a damaged state
        if not state_vector[Sum.WV].isfinite():
            state_vector[Sum.SQUARES : Sum.W2] = math.nan
        elif self.weight:
            at = centres(torch.nan_to_num(state_vector[Sum.WV : Sum.W] / state_vector[Sum.W], 0.0, 0.0, 0.0))
            around = list(map(Fraction, at.tolist()))
            second = [self.squares - 2 * c * self.first + self.squared_weight * c * c for c in around]
            first = [self.first - self.squared_weight * c for c in around]
            rounded = list(map(_rounded, second + first))
            state_vector[Sum.SQUARES : Sum.W2] = torch.tensor(rounded, dtype=torch.float64, device="cpu")
        return state_vector


def _rounded(number: Fraction | int) -> float:
    """The nearest float64."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


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
    metric: Any, sums: Tensor, rows: Tensor | None = None, level: float = 0.95, method: str = "auto"
) -> Estimate:
    """The estimate of one metric.

    Args:
        metric: a :class:`Measure`, which defines its value and its standard error.
        sums: its sums [SIZE].
        rows: its per-query (value, weight), float64 [query, 2]; None for a mean.
        level: probability with which the interval contains the expected value, above 0 and below 1.
        method: "auto", "t", "wilson" or "anytime", see :meth:`Measure.interval`.
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
    weights = float(effective_size(sums))
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


def _of_mean(metric: Any, sums: Tensor, value: float, error: float, level: float, method: str) -> Interval:
    scored = float(metric.scored_of(sums))
    binary = _binary(metric, sums, value)
    if method == "wilson" and not binary and scored > 0:
        raise ValueError(
            f"Expected values of 0 and 1 only for method='wilson', got others from {metric.definition_name};"
            " use method='t' or 'auto'"
        )
    effective = float(effective_size(sums))
    if scored < 2 or math.isnan(value + effective):
        return NO_INTERVAL
    if method == "anytime":
        level = anytime_level(level, effective)
    if binary and method != "t":
        return Interval(*wilson(value, effective, level))
    if error * math.sqrt(effective) <= ROUNDING * abs(value):
        return NO_INTERVAL
    return Interval(*t_interval(value, error, scored - 1, level))


def _binary(metric: Any, sums: Tensor, value: float) -> bool:
    """Whether all values are 0 or 1 and their mean is reported: v^2 <= v on [0, 1], and equal only there."""
    second, first = float(sums[Sum.SQUARES]), float(sums[Sum.SQUARES + 3])
    plain = metric.value_range == (0.0, 1.0) and value == float(mean(sums))
    return plain and metric.aggregation == "mean" and abs(second - first) <= 1e-12 * abs(first)


def _of_rows(metric: Any, rows: Tensor, level: float, method: str) -> Interval:
    """The interval of an aggregate of kept values: order statistics for quantiles, the bootstrap for functions."""
    values, weights = rows[rows[:, 1] > 0].T
    if len(values) < 2 or metric.aggregation in ("min", "max", "none"):
        return NO_INTERVAL
    if bool((values == values[0]).all() | values.isnan().any()):
        return NO_INTERVAL
    if metric.aggregation in QUANTILES:
        return _quantile_interval(values, weights, QUANTILES[metric.aggregation], level, method)
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


def _quantile_interval(values: Tensor, weights: Tensor, p: float, level: float, method: str) -> Interval:
    """The interval between two order statistics: their share of the weight is that of binomial quantiles of ``p``.

    With n values, the number below the quantile is binomial with n and p. Its quantiles are those of the normal
    distribution with a correction for continuity. If even the smallest and largest value are too close, there is no
    interval.
    """
    values, order = values.sort()
    weights = weights[order] / weights.amax()  # sums and squares of extreme weights are 0 or infinite
    n = float(weights.sum() ** 2 / weights.square().sum())
    level = anytime_level(level, n) if method == "anytime" else level
    reach = normal_quantile((1 + level) / 2) * math.sqrt(n * p * (1 - p))
    below, above = math.floor(n * p + 0.5 - reach), math.ceil(n * p + 0.5 + reach)
    if below < 1 or above > n + 1e-9:
        return NO_INTERVAL
    share = weights.cumsum(0) / weights.sum() * n * (1 + 1e-12)  # tolerates rounding in the sums of weights
    return Interval(*(float(values[int((share >= share_below).int().argmax())]) for share_below in (below, above)))
