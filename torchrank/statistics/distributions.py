"""The normal and Student's t distribution in plain floats, so that an interval needs no scipy."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

_TINY = 1e-300
_MOST_STEPS = 100_000
#: the first terms of log(gamma(a + 1/2) / gamma(a)) - log(a) / 2, for powers 1, 3, 5, ... of 1 / a
_HALF_STEP = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432)


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
    _check_probability(p)
    if math.isnan(p):
        return math.nan
    if p in (0, 1):
        return -math.inf if p == 0 else math.inf
    return NormalDist().inv_cdf(p)


def t_cdf(x: float, df: float) -> float:
    r"""Probability that a variable of Student's t distribution is at most ``x``.

    .. math:: F(x) = \tfrac12 I_{\nu / (\nu + x^2)}(\nu / 2, 1 / 2) \quad (x \le 0), \qquad F(x) = 1 - F(-x)

    The lower tail keeps its digits: the upper tail is ``t_cdf(-x, df)``.

    Source:
        Didonato and Morris, Algorithm 708, ACM Transactions on Mathematical Software 1992: the continued fraction of
        the incomplete beta function.

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
    _check_df(df)
    if math.isnan(x) or math.isnan(df):
        return math.nan
    if math.isinf(df):
        return normal_cdf(x)
    tail = _tail(abs(x), df)
    return tail if x <= 0 else 1 - tail


def t_quantile(p: float, df: float) -> float:
    """The ``x`` below which a variable of Student's t distribution is with probability ``p``; infinite at 0 and 1.

    Newton's method on :func:`t_cdf` finds it: on the logarithm of a small tail against log x, on the mass between 0
    and x elsewhere. Both curves are concave, so it converges from every start.

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
    _check_probability(p)
    _check_df(df)
    if math.isnan(p) or math.isnan(df):
        return math.nan
    if math.isinf(df) or p in (0, 1):
        return normal_quantile(p)
    tail = min(p, 1 - p)
    x = _from_centre(0.5 - tail, df) if tail > 0.25 else _from_tail(tail, df)
    return math.copysign(x, p - 0.5)


def _from_centre(mass: float, df: float) -> float:
    """The x for which the probability of [0, x] is ``mass``."""
    x = mass / _density(0.0, df)
    for _ in range(100):
        step = (mass - _centre(x, df)) / _density(x, df)
        x += step
        if abs(step) <= 1e-15 * x:
            break
    return x


@functools.lru_cache(1024)  # the metrics of a table have the same degrees of freedom
def _from_tail(tail: float, df: float) -> float:
    """The x for which the probability above x is ``tail``."""
    log_x = math.log(-normal_quantile(tail))
    for _ in range(100):
        x = math.exp(log_x)
        above = _tail(x, df)
        step = math.log(above / tail) * above / (_density(x, df) * x)
        log_x += step
        if abs(step) <= 1e-15:
            break
    return math.exp(log_x)


def _tail(x: float, df: float) -> float:
    """The probability above x >= 0."""
    return _half_beta(x, df) if x * x > 3 else 0.5 - _centre(x, df)


def _centre(x: float, df: float) -> float:
    """The probability of [0, x]."""
    if x * x > 3:
        return 0.5 - _half_beta(x, df)
    below = x * x / (df + x * x)
    return x * _density(x, df) / 2 / _fraction(0.5, df / 2, below, 1 - below)


def _half_beta(x: float, df: float) -> float:
    """Half the incomplete beta function of df / (df + x^2): the probability above x."""
    if math.isinf(x):
        return 0.0
    below = df / (df + x * x)
    return x * _density(x, df) / 2 / _fraction(df / 2, 0.5, below, x * x / (df + x * x))


def _density(x: float, df: float) -> float:
    log_density = _log_half_step(df / 2) - 0.5 * math.log(math.pi * df) - (df + 1) / 2 * math.log1p(x * x / df)
    return math.exp(log_density)


def _log_half_step(a: float) -> float:
    """log(gamma(a + 1/2) / gamma(a)). The difference of two large lgamma would lose the digits."""
    if a < 30:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return 0.5 * math.log(a) + sum(c / a ** (2 * i + 1) for i, c in enumerate(_HALF_STEP))


def _fraction(a: float, b: float, x: float, y: float) -> float:
    """x^a y^b / (B(a, b) I_x(a, b)) by the modified Lentz method. y = 1 - x is given, because x may be next to 1."""
    value = c = _away_from_zero(a * (a * y - b * x + 1) / (a + 1))
    d = 0.0
    for n in range(1, _MOST_STEPS):
        odd = a + 2 * n - 1
        over = (a + n - 1) * (a + b + n - 1) * n * (b - n) * (x / odd) ** 2
        under = n + n * (b - n) * x / odd + (a + n) * (a * y - b * x + 1 + n * (1 + y)) / (odd + 2)
        d = 1 / _away_from_zero(under + over * d)
        c = _away_from_zero(under + over / c)
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _away_from_zero(x: float) -> float:
    return x if abs(x) > _TINY else _TINY


def _check_probability(p: float) -> None:
    if p < 0 or p > 1:
        raise ValueError(f"Expected a probability in [0, 1], got {p}")


def _check_df(df: float) -> None:
    if df <= 0:
        raise ValueError(f"Expected degrees of freedom above 0, got {df}")
