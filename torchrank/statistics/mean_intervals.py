"""Intervals of a mean: Student's t, and Wilson's for shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchrank.statistics.distributions import normal_quantile, t_quantile

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
