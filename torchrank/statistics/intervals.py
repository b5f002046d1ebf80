"""Intervals from a mean and its standard error, and from a share."""

from __future__ import annotations

import math

from torchrank.statistics.distributions import normal_quantile, t_quantile


def t_interval(mean: float, standard_error: float, df: float, level: float = 0.95) -> tuple[float, float]:
    if math.isnan(mean) or not standard_error > 0 or df < 1:
        return math.nan, math.nan
    reach = t_quantile((1 + level) / 2, df) * standard_error
    return mean - reach, mean + reach


def wilson(p: float, n: float, level: float = 0.95) -> tuple[float, float]:
    z = normal_quantile((1 + level) / 2)
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
