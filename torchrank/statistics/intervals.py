"""Intervals of a mean, how many queries a difference needs, and what holds at all looks together.

The normal and Student's t distribution are computed here, so that an interval needs no scipy.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

Array = np.ndarray

# Places of integrals of a density over [0, infinity) (double exponential) and [0, 1] (Gauss and Legendre), and weights.
_STEPS = np.arange(-128, 178) / 32
_FAR = np.exp(math.pi / 2 * np.sinh(_STEPS))
_FAR_WEIGHTS = math.pi / 64 * np.cosh(_STEPS) * _FAR
_NEAR, _NEAR_WEIGHTS = ((x + shift) / 2 for x, shift in zip(np.polynomial.legendre.leggauss(32), (1, 0)))


def normal_cdf(x: float) -> float:
    """Probability that a standard normal variable is at most ``x``.

    It is computed from the complementary error function, which keeps its digits in the lower tail.

    Example:
        >>> round(normal_cdf(1.96), 4)
        0.975
    """
    return 0.5 * math.erfc(-x / math.sqrt(2))


def normal_quantile(p: float) -> float:
    """The ``x`` below which a standard normal variable is with probability ``p``; infinite at 0 and 1.

    Source:
        Wichura, Algorithm AS 241, Applied Statistics 1988, as in :class:`statistics.NormalDist`.

    Raises:
        ValueError: ``p`` is not in [0, 1].

    Example:
        >>> round(normal_quantile(0.975), 4)
        1.96
    """
    if p < 0 or p > 1:
        raise ValueError(f"Expected a probability in [0, 1], got {p}")
    if math.isnan(p):
        return math.nan
    return NormalDist().inv_cdf(p) if 0 < p < 1 else math.copysign(math.inf, p - 0.5)


def t_cdf(x: float, df: float) -> float:
    r"""Probability that a variable of Student's t distribution is at most ``x``.

    It is the integral of the density :math:`(1 + t^2 / \nu)^{-(\nu + 1) / 2}` up to x, over that of all t. The lower
    tail keeps its digits: the upper tail is ``t_cdf(-x, df)``.

    Source:
        Takahasi and Mori, Double exponential formulas for numerical integration, Publications of the Research Institute
        for Mathematical Sciences 1974.

    Args:
        x: where to evaluate.
        df: degrees of freedom, positive; fractions are allowed, infinity is the normal distribution.

    Returns:
        A probability; NaN if ``x`` or ``df`` is NaN.

    Raises:
        ValueError: ``df`` is not positive.

    Example:
        >>> round(t_cdf(2.262157, 9), 6)
        0.975
    """
    if df <= 0:
        raise ValueError(f"Expected degrees of freedom above 0, got {df}")
    if math.isnan(x) or math.isnan(df):
        return math.nan
    if math.isinf(df) or math.isinf(x):
        return normal_cdf(x)
    tail = _above(abs(x), df) / (2 * _above(0.0, df))
    return tail if x <= 0 else 1 - tail


@functools.lru_cache(1024)  # the metrics of a table have the same degrees of freedom
def t_quantile(p: float, df: float) -> float:
    """The ``x`` below which a variable of Student's t distribution is with probability ``p``; infinite at 0 and 1.

    Newton's method finds it: on the logarithm of a small tail, or of the mass between 0 and x, against log x. Both
    curves are concave, so it converges from every start.

    Args:
        p: probability in [0, 1].
        df: degrees of freedom, positive; fractions are allowed, infinity is the normal distribution.

    Returns:
        A float; NaN if ``p`` or ``df`` is NaN.

    Raises:
        ValueError: ``p`` is not in [0, 1], or ``df`` is not positive.

    Example:
        >>> round(t_quantile(0.975, 9), 4)
        2.2622
    """
    normal = normal_quantile(p)
    if df <= 0:
        raise ValueError(f"Expected degrees of freedom above 0, got {df}")
    if math.isnan(p) or math.isnan(df):
        return math.nan
    if math.isinf(df) or p in (0, 0.5, 1):
        return normal
    tail, everything = min(p, 1 - p), 2 * _above(0.0, df)
    integral, wanted = (_within, 0.5 - tail) if tail > 0.25 else (_above, tail)
    log_x = math.log(abs(normal))
    for _ in range(100):
        x = math.exp(log_x)
        value = integral(x, df)
        step = math.log(value / everything / wanted) * value / (float(_density(x, df)) * x)
        log_x += step if integral is _above else -step
        if abs(step) < 1e-9:  # its square is the error that is left
            break
    return math.copysign(math.exp(log_x), p - 0.5)


def _density(t: Any, df: float) -> Any:
    return np.exp(-(df + 1) / 2 * np.log1p(t * t / df))


def _above(x: float, df: float) -> float:
    """The integral of the density above x >= 0."""
    scale = max(1.0, x)
    return float(_density(x + scale * _FAR, df) @ _FAR_WEIGHTS) * scale


def _within(x: float, df: float) -> float:
    """The integral of the density from 0 to x, which is below 1."""
    return float(_density(x * _NEAR, df) @ _NEAR_WEIGHTS) * x


#: Rounding can make the effective number of two values of equal weight so much smaller than 2.
ROUNDING = 1e-9


def t_interval(mean: float, standard_error: float, df: float, level: float = 0.95) -> tuple[float, float]:
    r"""Interval of a mean by Student's t distribution.

    .. math:: m \pm t_{(1 + level) / 2, df} \; se

    A standard error of exactly 0 gives (NaN, NaN): identical values carry no information about their spread, and an
    interval of width 0 would claim certainty. So do fewer than two values, whose ``df`` is 0.

    Args:
        mean: the mean.
        standard_error: its standard error, in the unit of the mean.
        df: degrees of freedom, the number of values - 1.
        level: share of such intervals that contain the true mean, between 0 and 1.

    Returns:
        Its ends ``(low, high)``.

    Raises:
        ValueError: ``level`` is not between 0 and 1.

    Example:
        >>> low, high = t_interval(0.5, 0.1, df=9)
        >>> round(low, 4), round(high, 4)
        (0.2738, 0.7262)
    """
    check_share("level", level)
    if not (standard_error > 0 and df > 0):
        return math.nan, math.nan
    half = t_quantile((1 + level) / 2, df) * standard_error
    return mean - half, mean + half


def welch(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    r"""Standard error and degrees of freedom of a sum, or a difference, of independent means.

    .. math:: se^2 = \sum_i v_i, \qquad df = \frac{se^4}{\sum_i v_i^2 / (n_i - 1)}

    Source:
        Welch, The generalization of Student's problem when several different population variances are involved,
        Biometrika 1947.

    Args:
        parts: for each mean its squared standard error v, and its number n of values.

    Returns:
        (standard error, degrees of freedom); (NaN, NaN) if no mean has a spread, or the spread of one is not known.

    Example:
        >>> se, df = welch([(0.01, 10), (0.01, 10)])
        >>> round(se, 4), round(df, 4)
        (0.1414, 18.0)
    """
    variance = sum(v for v, _ in parts)
    if not variance > 0:
        return math.nan, math.nan
    return math.sqrt(variance), variance**2 / sum(v**2 / max(n - 1, 1) for v, n in parts)


def wilson(p: float, n: float, level: float = 0.95) -> tuple[float, float]:
    r"""Interval of a share, the mean of values that are 0 or 1, by Wilson's score.

    .. math:: \frac{p + z^2 / 2n}{1 + z^2 / n} \pm \frac{z}{1 + z^2 / n} \sqrt{\frac{p (1 - p)}{n} + \frac{z^2}{4 n^2}}

    It lies in [0, 1], and has a width even where all values are equal.

    Source:
        Wilson, Probable inference, the law of succession, and statistical inference, JASA 1927.

    Args:
        p: the share, in [0, 1].
        n: number of values; of weighted values the effective number, (sum of weights)^2 / (sum of squared weights).
        level: share of such intervals that contain the true share, between 0 and 1.

    Returns:
        Its ends ``(low, high)``; (NaN, NaN) if ``n`` is below 2 by more than rounding.

    Raises:
        ValueError: ``level`` is not between 0 and 1.

    Example:
        >>> low, high = wilson(1.0, 20)
        >>> round(low, 4), round(high, 4)
        (0.8389, 1.0)
    """
    check_share("level", level)
    if not (n > 2 - ROUNDING and 0 <= p <= 1):
        return math.nan, math.nan
    z = normal_quantile((1 + level) / 2)
    shrunk = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / shrunk
    half = z / shrunk * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # rounding must not leave the range at its ends, where the formula is exactly 0 or 1
    return (0.0 if p == 0 else centre - half), (1.0 if p == 1 else centre + half)


def check_share(name: str, value: float) -> None:
    """Raise a ValueError unless a level, power or error rate is strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"Expected {name} to be between 0 and 1, got {value}; divide a percentage by 100")


def queries_needed(delta: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> int:
    r"""Number of queries with which a paired t test finds a difference with the given probability.

    .. math:: n = \left\lceil \left(\frac{(z_{1 - \alpha / 2} + z_{power}) \, sd}{\delta}\right)^2
        + \frac{z_{1 - \alpha / 2}^2}{2} \right\rceil

    Source:
        Guenther, Sample size formulas for normal theory t tests, The American Statistician 1981.

    Args:
        delta: the difference of two means that shall be found, in the unit of the measure; its sign does not matter.
        sd: standard deviation of the differences per query, as in the column ``sd`` of a :class:`Comparison`.
        power: probability of finding it.
        alpha: error rate of the two-sided test.

    Returns:
        Number of queries, at least 2.

    Raises:
        ValueError: ``delta`` is 0, not finite or too small for ``sd``; ``sd`` is not positive; or ``power`` or
            ``alpha`` is not between 0 and 1.

    Example:
        >>> queries_needed(delta=0.01, sd=0.2)
        3142
    """
    check_share("power", power)
    check_share("alpha", alpha)
    if not (delta and math.isfinite(delta)):
        raise ValueError(f"Expected delta to be a difference other than 0, got {delta}; give the smallest that matters")
    if not (sd > 0 and math.isfinite(sd)):
        way_out = "give the standard deviation of the differences per query"
        raise ValueError(f"Expected sd to be positive, got {sd}; {way_out}")
    z = normal_quantile(1 - alpha / 2)
    try:
        return max(2, math.ceil(((z + normal_quantile(power)) * sd / delta) ** 2 + z * z / 2))
    except OverflowError:
        raise ValueError(
            f"Expected delta to be more than a tiny part of sd, {sd:g}, got {delta:g}; give a larger one"
        ) from None


def detectable(standard_error: float, df: float, power: float = 0.8, alpha: float = 0.05) -> float:
    r"""The smallest true difference that a test finds with the given probability.

    .. math:: (t_{1 - \alpha / 2, df} + t_{power, df}) \; se

    It answers the question after the power of a finished experiment: the "observed power" is only the p-value in
    another unit, and is not offered.

    Source:
        Bloom, Minimum detectable effects, Evaluation Review 1995.

    Args:
        standard_error: of the mean difference; sd / sqrt(n) for n independent queries.
        df: degrees of freedom, n - 1 for n independent queries.
        power: probability of finding it.
        alpha: error rate of the two-sided test, without correction for several tests.

    Returns:
        A positive difference in the unit of the measure; NaN if the standard error is 0 or there are no two queries.

    Raises:
        ValueError: ``power`` or ``alpha`` is not between 0 and 1.

    Example:
        >>> round(detectable(0.2 / 100, df=9999), 4)
        0.0056
    """
    check_share("power", power)
    check_share("alpha", alpha)
    if not (standard_error > 0 and df > 0):
        return math.nan
    return (t_quantile(1 - alpha / 2, df) + t_quantile(power, df)) * standard_error


#: The boundary averages over effects of this standard deviation, in standard deviations of a query: 0.2 is a small
#: effect. It is fixed before the first look. At a level of 0.95 it is nearest to the mean at 205 queries.
EFFECT = 0.2

#: Bets of the betting sequence, as shares of the largest that cannot lose everything.
BETS = 2.0 ** -np.arange(0.5, 10, 0.5)


def anytime_level(level: float, n: float) -> float:
    r"""The level of an interval after n queries with which the intervals after all numbers of queries hold together.

    An interval of a normal mean with this level reaches z standard errors to both sides. With :math:`u = 0.04 n`

    .. math:: z^2 = \frac{1 + u}{u} \left(\log(1 + u) - 2 \log(1 - level)\right).

    The mean of :math:`\exp(\lambda S - \lambda^2 V / 2)` over normal effects :math:`\lambda` is a martingale for a sum
    S of variance V. It exceeds 1 / (1 - level) once with a probability of at most 1 - level (Ville), which is the
    condition above. The level is asymptotic: the variance is estimated. Student's quantile of the level, in place of
    the normal one, makes the interval wider for few queries.

    Source:
        Robbins, Statistical methods related to the law of the iterated logarithm, Annals of Mathematical Statistics
        1970. Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, Time-uniform central limit theory and asymptotic
        confidence sequences, Annals of Statistics 2024.

    Args:
        level: probability with which all intervals contain the true mean, between 0 and 1.
        n: number of queries, above 0; of weighted queries their effective number.

    Example:
        >>> round(anytime_level(0.95, 205), 4), round(anytime_level(0.95, 20), 6)
        (0.9976, 0.999881)
    """
    u = EFFECT**2 * n
    z = math.sqrt((1 + u) / u * (math.log1p(u) - 2 * math.log1p(-level)))
    return 1 - max(2 * normal_cdf(-z), sys.float_info.epsilon)


def anytime_p(p: float, n: float, sides: int = 2) -> float:
    r"""The p-value that holds at all looks together, from the p-value of a test after n queries.

    It is the inverse of the martingale of :func:`anytime_level`, so it is at most 1 - level where the interval leaves
    out the null hypothesis. With one side the mean is over positive effects only:

    .. math:: p = \sqrt{1 + u} \; \exp\left(- \frac{u z^2}{2 (1 + u)}\right) \left/
        2 \Phi\left(z \sqrt{u / (1 + u)}\right) \right. .

    Args:
        p: the p-value; of one side the probability of a value at least as large.
        n: number of queries.
        sides: 2 or 1.

    Example:
        >>> round(anytime_p(0.01, 205), 4), round(anytime_p(1e-4, 205), 4)
        (0.1577, 0.0036)
    """
    if sides == 1 and p >= 0.5:
        return 1.0
    z, u = -normal_quantile(p / sides), EFFECT**2 * n
    share = 2 * normal_cdf(z * math.sqrt(u / (1 + u))) if sides == 1 else 1.0
    return min(math.exp(math.log1p(u) / 2 - u * z * z / (2 * (1 + u))) / share, 1.0)  # NaN stays NaN


def betting_interval(values: Array, level: float, low: float = 0.0, high: float = 1.0) -> tuple[float, float]:
    r"""A confidence sequence of the mean of bounded values, which holds for any number of them.

    For values x in [0, 1] a gambler who bets the share c that the mean is above m has the wealth
    :math:`\prod_i (1 - c + c \, x_i / m)`. The mean wealth over some c is a martingale if m is the mean. The interval
    has all m at which neither it, nor the same for 1 - x, reaches 2 / (1 - level). Bets do not depend on values, so
    the order of the values does not matter.

    Source:
        Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, Journal of the Royal
        Statistical Society B 2024.

    Args:
        values: float64 [query], between ``low`` and ``high``.
        level: probability with which all intervals contain the true mean, between 0 and 1.
        low: smallest possible value.
        high: largest possible value.

    Returns:
        Its ends ``(low, high)``.

    Example:
        >>> low, high = betting_interval(np.array([0.0, 0.5, 1.0, 0.5] * 10), 0.95)
        >>> round(low, 4), round(high, 4)
        (0.3111, 0.6889)
    """
    shares = (values - low) / (high - low)
    below, above = (_end(x, (1 - level) / 2) for x in (shares, 1 - shares))
    return low + below * (high - low), high - above * (high - low)


def _end(values: Array, error: float) -> float:
    """The largest m that values in [0, 1] reject from below. The wealth falls in m, to at most 1 at their mean."""
    values, counts = np.unique(values, return_counts=True)
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        m = (low + high) / 2
        wealth = np.logaddexp.reduce([np.log1p(bet * (values / m - 1)) @ counts for bet in BETS])
        low, high = (m, high) if wealth >= math.log(len(BETS) / error) else (low, m)
    return low
