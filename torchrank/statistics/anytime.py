"""Intervals and p-values that hold at all looks together, however often one looks, and whenever one stops."""

from __future__ import annotations

import math
import sys

import numpy as np

from torchrank.statistics.distributions import normal_cdf, normal_quantile

Array = np.ndarray

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
