"""Two systems on the same queries, as the few numbers from which a row of a comparison is made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchrank.statistics.distributions import t_cdf
from torchrank.statistics.intervals import anytime_level, anytime_p, detectable, t_interval

Array = np.ndarray

#: Values whose difference is at most this share of the larger one are equal; less is rounding.
TIE = 1e-9


@dataclass(frozen=True)
class PairStatistics:
    """Systems ``a`` and ``b`` on the queries that both have scored; a difference is b - a.

    All numbers come from sums over queries, so they can be kept without the values of the queries. A number that is
    not known is NaN.

    Args:
        measure: label of the measure.
        a: name of the first system, the baseline if there is one.
        b: name of the second system.
        n: number of queries that both have scored.
        mean_a: mean of the first system on these queries.
        mean_b: mean of the second system on these queries.
        standard_error: of the difference of the means; 0 if all differences are equal.
        df: degrees of freedom of the standard error: n - 1, clusters - 1, or Welch's for several runs.
        sd: standard deviation of the differences per query.
        relative_standard_error: of ``mean_b / mean_a``, by the delta method.
        wins: number of queries on which ``b`` is better.
        ties: number of queries on which both are equal.
        losses: number of queries on which ``a`` is better.
        skewness: of the differences per query, their third standardised moment.
        unpaired: number of queries that only one system has scored.
        effective: effective number of queries, (sum of weights)^2 / (sum of squared weights); NaN without weights.
        higher_is_better: direction of the measure.

    Example:
        >>> pair = paired_statistics([0.2, 0.5, 0.3], [0.4, 0.5, 0.6], measure="ndcg@10")
        >>> round(pair.difference, 4), round(pair.standard_error, 4), (pair.wins, pair.ties, pair.losses)
        (0.1667, 0.0882, (2, 1, 0))
    """

    measure: str
    a: str
    b: str
    n: int
    mean_a: float
    mean_b: float
    standard_error: float
    df: float
    sd: float = math.nan
    relative_standard_error: float = math.nan
    wins: int = 0
    ties: int = 0
    losses: int = 0
    skewness: float = math.nan
    unpaired: int = 0
    effective: float = math.nan
    higher_is_better: bool = True

    @property
    def difference(self) -> float:
        """Mean of b - a."""
        return self.mean_b - self.mean_a

    @property
    def gain(self) -> float:
        """The difference in the direction of the measure: positive if b is better."""
        return self.difference if self.higher_is_better else -self.difference

    @property
    def relative(self) -> float:
        """The difference as a share of the mean of a; NaN if that is 0."""
        return self.mean_b / self.mean_a - 1 if self.mean_a else math.nan

    @property
    def effect(self) -> float:
        r"""The difference in standard deviations of the differences, :math:`d_z`, with Hedges' correction.

        .. math:: \frac{d}{sd} \left(1 - \frac{3}{4 (n - 1) - 1}\right)
        """
        return self.difference / self.sd * (1 - 3 / (4 * (self.n - 1) - 1)) if self.sd > 0 else math.nan

    @property
    def identical(self) -> bool:
        """Whether both systems have the same value on every query."""
        return self.n > 0 and self.wins == self.losses == 0

    @property
    def p(self) -> float:
        """Two-sided p-value of the t test: 1 for identical systems, NaN without a spread or without two queries."""
        if self.identical and self.n > 1:
            return 1.0
        return 2 * self._t_tail(-abs(self.difference))

    def p_above(self, distance: float) -> float:
        """One-sided p-value of "the mean is not above", from an estimate that is above by a distance."""
        return self._t_tail(-distance)

    @property
    def p_constant(self) -> float:
        """One-sided p-value of a difference that all queries have alike: the sign test."""
        return 0.5**self.n

    @property
    def better(self) -> float:
        """Posterior probability under a flat prior that the mean of b is better; 0.5 for identical systems."""
        if self.identical and self.n > 1:
            return 0.5
        return self._t_tail(self.gain)

    def p_not_worse(self, margin: float) -> float:
        """One-sided p-value of "b is worse than a by the margin or more", the test of non-inferiority."""
        return self.p_above(self.gain + margin)

    def p_equivalent(self, margin: float) -> float:
        """P-value of "the means differ by the margin or more": two one-sided tests (TOST)."""
        return self.p_above(margin - abs(self.difference))

    def interval(self, level: float) -> tuple[float, float]:
        """Interval of the difference by Student's t distribution."""
        return t_interval(self.difference, self.standard_error, self.df, level)

    def relative_interval(self, level: float) -> tuple[float, float]:
        """Interval of the relative difference by Student's t distribution and the delta method."""
        return t_interval(self.relative, self.relative_standard_error, self.df, level)

    def detectable(self, power: float, alpha: float) -> float:
        """The smallest true difference that the t test finds with probability ``power`` on these queries."""
        return detectable(self.standard_error, self.df, power, alpha)

    def _t_tail(self, difference: float) -> float:
        if not (self.standard_error > 0 and self.df > 0):
            return math.nan
        return t_cdf(difference / self.standard_error, self.df)

    def anytime(self) -> AnytimeStatistics:
        """The same numbers, with intervals and p-values that hold at all looks together."""
        return AnytimeStatistics(**vars(self))


@dataclass(frozen=True)
class AnytimeStatistics(PairStatistics):
    """Statistics of a pair whose intervals and p-values hold at all looks together, see :func:`anytime_level`.

    Example:
        >>> values = np.arange(100) % 5 / 4
        >>> pair = paired_statistics(values, values[::-1] + 0.3)
        >>> round(pair.p, 5), round(pair.anytime().p, 4)
        (5e-05, 0.0033)
    """

    @property
    def looks(self) -> float:
        """The number of queries, or of clusters; with weights their effective number."""
        return self.df + 1 if math.isnan(self.effective) else self.effective

    @property
    def p(self) -> float:
        """Two-sided p-value, see :func:`anytime_p`."""
        return anytime_p(super().p, self.looks)

    def p_above(self, distance: float) -> float:
        """One-sided p-value, see :func:`anytime_p`."""
        return anytime_p(super().p_above(distance), self.looks, sides=1)

    @property
    def p_constant(self) -> float:
        """The sign test with a bet on every probability alike: the wealth after n wins is 2^n / (n + 1)."""
        return (self.n + 1) * super().p_constant

    def interval(self, level: float) -> tuple[float, float]:
        """Confidence sequence of the difference."""
        return super().interval(anytime_level(level, self.looks))

    def relative_interval(self, level: float) -> tuple[float, float]:
        """Confidence sequence of the relative difference."""
        return super().relative_interval(anytime_level(level, self.looks))

    def detectable(self, power: float, alpha: float) -> float:
        """The smallest true difference that this look finds with probability ``power``."""
        return super().detectable(power, 1 - anytime_level(1 - alpha, self.looks))


def paired_statistics(
    a: Sequence[float] | Array,
    b: Sequence[float] | Array,
    clusters: Array | None = None,
    *,
    measure: str = "value",
    names: tuple[str, str] = ("a", "b"),
    higher_is_better: bool = True,
) -> PairStatistics:
    r"""Statistics of the values of two systems on the same queries.

    With clusters, the queries of a cluster may depend on each other. T is the sum of deviations in a cluster.
    One cluster for each query gives sd / sqrt(n):

    .. math:: se^2 = \frac{C}{C - 1} \frac{\sum_c T_c^2}{n^2}, \qquad df = C - 1

    Source:
        Liang and Zeger, Longitudinal data analysis using generalized linear models, Biometrika 1986.

    Args:
        a: float [query]; NaN where the first system has no value.
        b: float [query]; NaN where the second system has no value.
        clusters: int64 [query], the cluster of each query, from 0.
        measure: label of the measure.
        names: names of the systems.
        higher_is_better: direction of the measure.

    Example:
        >>> pair = paired_statistics([0.2, 0.5, 0.3, float("nan")], [0.4, 0.5, 0.6, 0.1])
        >>> pair.n, pair.unpaired
        (3, 1)
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    both = ~(np.isnan(first) | np.isnan(second))
    unpaired = int((np.isnan(first) != np.isnan(second)).sum())
    first, second, clusters = first[both], second[both], None if clusters is None else clusters[both]
    wins, ties, losses = outcomes(first, second, higher_is_better)
    n = len(first)
    mean_a, mean_b = (float(values.mean()) if n else math.nan for values in (first, second))
    scale = float(np.abs([first, second]).max(initial=0.0))
    deviations = (second - first) - (mean_b - mean_a)
    sd = _root(float(deviations @ deviations) / (n - 1), scale) if n > 1 else math.nan
    ratio = mean_b / mean_a if n and mean_a else math.nan
    se, df = _standard_error(deviations, clusters, scale)
    relative_se, _ = _standard_error(second - ratio * first, clusters, scale)
    return PairStatistics(
        measure, *names, n, mean_a, mean_b, se, df, sd,
        relative_standard_error=relative_se / abs(mean_a) if n and mean_a else math.nan,
        wins=wins, ties=ties, losses=losses,
        skewness=float((deviations**3).mean() / (deviations @ deviations / n) ** 1.5) if sd > 0 else math.nan,
        unpaired=unpaired, higher_is_better=higher_is_better,
    )  # fmt: skip


def _standard_error(deviations: Array, clusters: Array | None, scale: float) -> tuple[float, float]:
    """Standard error of a mean and its degrees of freedom, from the deviations of the values from it."""
    n = len(deviations)
    if clusters is not None:
        _, clusters = np.unique(clusters, return_inverse=True)
        deviations = np.bincount(clusters, weights=deviations)
    count = len(deviations)
    if count < 2:
        return math.nan, float(max(0, count - 1))
    return _root(count / (count - 1) * (deviations @ deviations), scale) / n, float(count - 1)


def _root(variance: float, scale: float) -> float:
    """The root of a variance. Rounding of equal differences is not spread."""
    return math.sqrt(variance) if variance > (1e-12 * scale) ** 2 else 0.0


def differences_of(a: Array, b: Array) -> Array:
    """Differences b - a, float64 [query], in which a tie is exactly 0: less than :data:`TIE` apart is rounding.

    Example:
        >>> differences_of(np.array([0.3, 0.5]), np.array([0.1 + 0.2, 0.75])).tolist()
        [0.0, 0.25]
    """
    difference = b - a
    return np.where(np.abs(difference) <= TIE * np.maximum(np.abs(a), np.abs(b)), 0.0, difference)


def outcomes(a: Array, b: Array, higher_is_better: bool) -> tuple[int, int, int]:
    """Wins, ties and losses of ``b`` against ``a``, float64 [query] each.

    Example:
        >>> outcomes(np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.2, 0.4]), True)
        (2, 1, 0)
    """
    difference = differences_of(a, b)
    above, below = int((difference > 0).sum()), int((difference < 0).sum())
    wins, losses = (above, below) if higher_is_better else (below, above)
    return wins, len(difference) - wins - losses, losses


def statistics_of_runs(
    a: Array, b: Array, *, measure: str = "value", names: tuple[str, str] = ("a", "b"), higher_is_better: bool = True
) -> PairStatistics:
    r"""Statistics of two methods that were trained several times: Welch's test of the means of the runs.

    .. math:: se^2 = \frac{s_a^2}{r_a} + \frac{s_b^2}{r_b}, \qquad
        df = \frac{se^4}{s_a^4 / (r_a^2 (r_a - 1)) + s_b^4 / (r_b^2 (r_b - 1))}

    The values of a query are averaged over the runs to count wins and losses.

    Source:
        Welch, The generalization of Student's problem when several different population variances are involved,
        Biometrika 1947.

    Args:
        a: float64 [query, run], the values of the first method; NaN where a run has no value.
        b: float64 [query, run], the values of the second method; the number of runs may differ.
        measure: label of the measure.
        names: names of the methods.
        higher_is_better: direction of the measure.

    Example:
        >>> runs = np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])
        >>> pair = statistics_of_runs(runs + [0, 0.1, 0.2], runs + [0.4, 0.5, 0.6])
        >>> round(pair.difference, 4), round(pair.standard_error, 4), round(pair.df, 4)
        (0.4, 0.0816, 4.0)
    """
    scored = [~np.isnan(values).any(axis=1) for values in (a, b)]
    both = scored[0] & scored[1]
    a, b = a[both], b[both]
    n = int(both.sum())
    means = [values.mean(axis=0) if n else np.full(values.shape[1], np.nan) for values in (a, b)]
    mean_a, mean_b = (float(m.mean()) for m in means)
    scale = float(max(np.abs(m).max() for m in means))
    parts = [_root(m.var(ddof=1), scale) ** 2 / len(m) for m in means]
    below = sum(part**2 / (len(m) - 1) for part, m in zip(parts, means))
    df = sum(parts) ** 2 / below if below else float(sum(map(len, means)) - 2) if n else 0.0
    ratio = mean_b / mean_a if mean_a else math.nan
    wins, ties, losses = outcomes(a.mean(axis=1), b.mean(axis=1), higher_is_better)
    return PairStatistics(
        measure, *names, n, mean_a, mean_b, math.sqrt(sum(parts)), df,
        relative_standard_error=math.sqrt(parts[1] + ratio**2 * parts[0]) / abs(mean_a) if mean_a else math.nan,
        wins=wins, ties=ties, losses=losses, unpaired=int((scored[0] != scored[1]).sum()),
        higher_is_better=higher_is_better,
    )  # fmt: skip
