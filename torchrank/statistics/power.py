"""How many queries a difference needs, and which difference some queries can show."""

from __future__ import annotations

import math

from torchrank.statistics.distributions import normal_quantile, t_quantile
from torchrank.statistics.mean_intervals import check_share


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
        raise ValueError(
            f"Expected sd to be positive, got {sd}; give the standard deviation of the differences per query"
        )
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
