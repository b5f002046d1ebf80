"""Two systems on the same queries: the few numbers of a pair, its tests, and corrections of p-values.

A test of :data:`PAIR_TESTS` returns the p-value of one pair from the differences of its queries. A test of
:data:`FAMILY_TESTS` returns the p-values of all pairs of systems at once, already valid for all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchrank.names.arguments import imported, integer, one_of
from torchrank.statistics.intervals import anytime_level, anytime_p, detectable, t_cdf, t_interval, welch

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

    def p_beyond(self, distance: float) -> float:
        """:meth:`p_above`; without a spread :attr:`p_constant`, because a collapse on all queries is no accident."""
        if self.standard_error > 0:
            return self.p_above(distance)
        return self.p_constant if distance > 0 else 1.0

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
    se, df = 0.0, float(sum(map(len, means)) - 2) if n else 0.0
    if any(parts):
        se, df = welch([(part, len(m)) for part, m in zip(parts, means)])
    ratio = mean_b / mean_a if mean_a else math.nan
    wins, ties, losses = outcomes(a.mean(axis=1), b.mean(axis=1), higher_is_better)
    return PairStatistics(
        measure, *names, n, mean_a, mean_b, se, df,
        relative_standard_error=math.sqrt(parts[1] + ratio**2 * parts[0]) / abs(mean_a) if mean_a else math.nan,
        wins=wins, ties=ties, losses=losses, unpaired=int((scored[0] != scored[1]).sum()),
        higher_is_better=higher_is_better,
    )  # fmt: skip


def holm(p: Array) -> Array:
    """Ascending p-values by Holm's step-down method: the chance of even one false alarm stays below the level.

    Source:
        Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 1979.

    Example:
        >>> holm(np.array([0.01, 0.03, 0.04])).round(3).tolist()
        [0.03, 0.06, 0.06]
    """
    return np.maximum.accumulate(np.arange(len(p), 0, -1) * p)


def benjamini_hochberg(p: Array) -> Array:
    """Ascending p-values by Benjamini and Hochberg's step-up method: bounds the share of false alarms among alarms.

    Source:
        Benjamini and Hochberg, Controlling the false discovery rate, JRSS B 1995.

    Example:
        >>> benjamini_hochberg(np.array([0.01, 0.03, 0.04])).round(3).tolist()
        [0.03, 0.04, 0.04]
    """
    return np.minimum.accumulate((len(p) / np.arange(1, len(p) + 1) * p)[::-1])[::-1]


#: the corrections of ascending p-values by their names; None corrects nothing, for one planned comparison
CORRECTIONS = {"holm": holm, "bh": benjamini_hochberg, "benjamini-hochberg": benjamini_hochberg, "none": None}


def correct(p_values: Sequence[float], correction: str) -> list[float]:
    """P-values corrected by a method of :data:`CORRECTIONS`. NaN stays, and does not count as a test.

    Raises:
        ValueError: no correction has that name.

    Example:
        >>> correct([0.01, float("nan"), 0.04], "holm")
        [0.02, nan, 0.04]
    """
    one_of("correction", correction, CORRECTIONS)
    p = np.array(p_values, dtype=np.float64)
    if adjust := CORRECTIONS[correction]:
        order = np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]  # NaN is last
        p[order] = np.minimum(1.0, adjust(p[order]))
    return p.tolist()


# Up to so many differences other than 0, all combinations of signs are enumerated.
_EXACT = 14
# Random numbers that are drawn at a time: 32 MB.
_CHUNK = 4_000_000


@dataclass(frozen=True)
class Drawing:
    """Settings of tests: number of random ``replicates``, their ``seed``, and the ``zeros`` policy of Wilcoxon's test.

    The same seed gives the same p-value on every run.

    Example:
        >>> paired_p(np.array([0.1, 0.3, -0.1, 0.2]), "randomization", Drawing(seed=1))
        0.375
    """

    replicates: int = 10_000
    seed: int = 0
    zeros: str = "pratt"

    def __post_init__(self) -> None:
        integer("replicates", self.replicates, least=1, or_none=False)
        one_of("zeros", self.zeros, ("pratt", "zsplit"))

    def chunks(self, width: int) -> Iterator[tuple[np.random.Generator, int]]:
        """The generator, and the number of replicates that are drawn at a time if each has ``width`` numbers."""
        generator = np.random.default_rng(self.seed)
        most = max(1, _CHUNK // width)
        for start in range(0, self.replicates, most):
            yield generator, min(most, self.replicates - start)

    def p(self, extreme: Any) -> Any:
        """The p-value of so many ``extreme`` replicates: the observed order is one of them, so it is never 0."""
        return (1 + extreme) / (1 + self.replicates)


def paired_p(differences: Array, test: str, drawing: Drawing = Drawing()) -> float:
    """Two-sided p-value of one pair.

    Args:
        differences: float64 [query], differences of two systems, without NaN; ties are exactly 0.
        test: name in :data:`PAIR_TESTS`.
        drawing: settings of the test.

    Returns:
        A p-value; 1 if all differences are 0, NaN for fewer than two.

    Raises:
        ImportError: the test needs scipy, which is not installed.

    Example:
        >>> round(paired_p(np.array([0.1, 0.3, -0.1, 0.2]), "t"), 4)
        0.2394
    """
    if len(differences) < 2:
        return math.nan
    return PAIR_TESTS[test](differences, drawing) if differences.any() else 1.0


def family_p(values: Array, test: str, drawing: Drawing = Drawing()) -> Array:
    """P-values of all pairs of systems, valid together.

    Args:
        values: float64 [query, system], without NaN.
        test: name in :data:`FAMILY_TESTS`.
        drawing: settings of the test.

    Returns:
        float64 [system, system], symmetric; 1 for equal values, NaN for fewer than two queries.

    Raises:
        ImportError: the test needs scipy, which is not installed.

    Example:
        >>> values = np.array([[0.1, 0.2, 0.6], [0.3, 0.3, 0.9], [0.2, 0.4, 0.5]])
        >>> family_p(values, "randomized-tukey", Drawing(replicates=99)).shape
        (3, 3)
    """
    if len(values) < 2:
        return np.full((values.shape[1], values.shape[1]), np.nan)
    p = FAMILY_TESTS[test](values, drawing)
    p[(values[:, :, None] == values[:, None, :]).all(axis=0)] = 1.0
    return p


def _randomization(differences: Array, drawing: Drawing) -> float:
    """Sign flips: Fisher's randomization test of "the labels of the systems could be swapped on every query".

    Source:
        Smucker, Allan and Carterette, A comparison of statistical significance tests for information retrieval
        evaluation, CIKM 2007.
    """
    differences = differences[differences != 0]  # their signs change no sum
    n = len(differences)
    # sums that are equal in exact arithmetic differ by rounding
    least = abs(differences.sum()) - 1e-10 * np.abs(differences).sum()
    if n <= _EXACT:
        signs = 1 - 2 * (np.right_shift.outer(np.arange(2**n), np.arange(n)) & 1)
        return float((np.abs(signs @ differences) >= least).mean())
    extreme = 0
    for generator, count in drawing.chunks(n):
        bits = np.frombuffer(generator.bytes(count * -(-n // 8)), dtype=np.uint8).reshape(count, -1)
        negative = np.unpackbits(bits, axis=1, count=n)
        sums = differences.sum() - 2 * (negative.astype(np.float64) @ differences)
        extreme += int((np.abs(sums) >= least).sum())
    return float(drawing.p(extreme))


def _wilcoxon(differences: Array, drawing: Drawing) -> float:
    """Wilcoxon's signed-rank test of "the differences are symmetric about 0", which is not equality of means.

    Zeros are ranked, and then dropped ("pratt") or split between the signs ("zsplit"). They are never dropped first:
    950 zeros among 1,000 differences would not count as evidence of equality.

    Source:
        Pratt, Remarks on zeros and ties in the Wilcoxon signed rank procedures, JASA 1959.
    """
    return float(_scipy().wilcoxon(differences, zero_method=drawing.zeros).pvalue)


def _sign(differences: Array, drawing: Drawing) -> float:
    """Sign test of "wins and losses are equally likely", exact by the binomial distribution; ties are dropped."""
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    return float(_scipy().binomtest(wins, wins + losses).pvalue)


def _bootstrap(differences: Array, drawing: Drawing) -> float:
    """Bootstrap test of equal means: t statistics of resampled queries, whose mean was moved to 0.

    Source:
        Sakai, Evaluating evaluation metrics based on the bootstrap, SIGIR 2006.
    """
    n = len(differences)
    observed = paired_statistics(np.zeros(n), differences)
    if not observed.standard_error > 0:
        return math.nan
    centred = differences - differences.mean()
    least = abs(observed.difference / observed.standard_error) * (1 - 1e-10)
    extreme = 0
    for generator, count in drawing.chunks(n):
        drawn = centred[generator.integers(0, n, (count, n))]
        means, errors = np.abs(drawn.mean(axis=1)), drawn.std(axis=1, ddof=1) / math.sqrt(n)
        # one query drawn n times has no spread: an extreme value
        extreme += int((means >= least * errors).sum())
    return float(drawing.p(extreme))


def _tukey(values: Array, drawing: Drawing) -> Array:
    r"""Tukey's honest significant differences of systems, two-way: the differences between queries are removed.

    .. math:: q = \frac{|m_i - m_j|}{\sqrt{MSE / n}}, \qquad
        MSE = \frac{\sum (v - m_{system} - m_{query} + m)^2}{(k - 1)(n - 1)}

    One-way tests leave the variance of the queries in the error, so that they find almost nothing.

    Source:
        Carterette, Multiple testing in statistical analysis of systems-based information retrieval experiments, ACM
        TOIS 2012.
    """
    n, k = values.shape
    df = (k - 1) * (n - 1)
    residuals = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    error = math.sqrt((residuals**2).sum() / df / n)
    if error <= 1e-12 * np.abs(values).max():
        return np.full((k, k), np.nan)
    p = np.ones((k, k))
    upper = np.triu_indices(k, 1)
    means = values.mean(axis=0)
    p[upper] = tukey_p(means[upper[0]] - means[upper[1]], error, k, n)
    return np.minimum(p, p.T)


def tukey_p(differences: Array, error: float, systems: int, queries: int) -> Array:
    """P-values of differences of means, float64 [pair], by the studentized range.

    Args:
        differences: float64 [pair].
        error: standard error of one mean, sqrt(MSE / queries).
        systems: number of systems.
        queries: number of queries that all systems have scored.

    Raises:
        ImportError: scipy is not installed.

    Example:
        >>> tukey_p(np.array([0.1]), error=0.03, systems=3, queries=50).round(4).tolist()
        [0.0528]
    """
    return _scipy().studentized_range.sf(np.abs(differences) / error, systems, (systems - 1) * (queries - 1))


def _randomized_tukey(values: Array, drawing: Drawing) -> Array:
    """Permutes the systems within each query, and compares a difference with the range of the permuted means.

    Source:
        Carterette, Multiple testing in statistical analysis of systems-based information retrieval experiments, ACM
        TOIS 2012.
    """
    n, k = values.shape
    means = values.mean(axis=0)
    least = np.abs(np.subtract.outer(means, means)) - 1e-10 * np.abs(values).max()
    ranges = []
    for generator, count in drawing.chunks(n * k):
        drawn = generator.permuted(np.broadcast_to(values, (count, n, k)), axis=2).mean(axis=1)
        ranges.append(drawn.max(axis=1) - drawn.min(axis=1))
    ordered = np.sort(np.concatenate(ranges))
    return drawing.p(len(ordered) - np.searchsorted(ordered, least))


def _scipy() -> Any:
    return imported("scipy.stats", "stats", "use test='t'")


#: tests of one pair, from the differences of its queries
PAIR_TESTS: dict[str, Callable[[Array, Drawing], float]] = {
    "t": lambda differences, drawing: paired_statistics(np.zeros(len(differences)), differences).p,
    "randomization": _randomization,
    "wilcoxon": _wilcoxon,
    "sign": _sign,
    "bootstrap": _bootstrap,
    "anytime": lambda differences, drawing: paired_statistics(np.zeros(len(differences)), differences).anytime().p,
}
#: tests of all pairs of systems, from the values of all
FAMILY_TESTS: dict[str, Callable[[Array, Drawing], Array]] = {"tukey": _tukey, "randomized-tukey": _randomized_tukey}
#: tests whose null hypothesis is not an equality of means, in a line for the report
OTHER_NULLS = {
    "wilcoxon": "wilcoxon tests the symmetry of the differences about 0, not the equality of the means",
    "sign": "sign tests whether wins and losses are equally likely, not the equality of the means; ties are dropped",
}
