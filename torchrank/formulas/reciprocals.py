"""Sums of reciprocals over intervals of ranks, accurate at any rank. Differences of prefix sums lose digits."""

from __future__ import annotations

import torch
from torch import Tensor

# Terms that are added one by one; the series below needs a first rank beyond them.
ADDED_TERMS = 16

# Coefficients of x ** -2, x ** -4, ... in digamma(x + 1/2) - ln(x), from the Bernoulli numbers.
SERIES = (1 / 24, -7 / 960, 31 / 8064, -127 / 30720, 511 / 67584)

# Ratios below this take the series of the logarithm.
SMALL = 0.1


def reciprocal_sums(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of 1 / (first + i) and of i / (first + i) over i = 0, ..., count - 1, in the shape of ``first``.

    All terms that are added are positive or small, so the relative errors are below 1e-13.

    Args:
        first: float64, at least 1.
        count: float64, integers >= 0.
    """
    plain, weighted = torch.zeros_like(first), torch.zeros_like(first)
    for i in range(ADDED_TERMS):
        term = torch.where(count > i, 1 / (first + i), 0.0)
        plain, weighted = plain + term, weighted + i * term
    rest, start = (count - ADDED_TERMS).clamp_min(0), first + ADDED_TERMS
    behind, rising = _far(start, rest)
    return plain + behind, weighted + ADDED_TERMS * behind + rising


def _far(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`reciprocal_sums` for first ranks beyond :data:`ADDED_TERMS`."""
    # The sum is digamma(x + n + 1/2) - digamma(x + 1/2), with digamma(x + 1/2) = ln(x) + the series.
    x = first - 0.5
    u = count / x
    tail = torch.zeros_like(x)
    for power, factor in enumerate(SERIES, 1):
        tail = tail + factor * ((x + count) ** (-2 * power) - x ** (-2 * power))
    plain = torch.log1p(u) + tail
    # sum i / (first + i) = n - first * sum = x (u - log1p(u)) - sum / 2 - x * tail.
    return plain, (x * _less_log1p(u) - plain / 2 - x * tail).clamp_min(0)


def _less_log1p(u: Tensor) -> Tensor:
    """u - log(1 + u) for u >= 0."""
    # log1p(u) = 2 (r + r^3 / 3 + r^5 / 5 + ...) with r = u / (2 + u), and u - 2 r = u r.
    r = u / (2 + u)
    series = sum(r ** (2 * k) / (2 * k + 1) for k in range(1, 7))
    return torch.where(u < SMALL, r * (u - 2 * series), u - torch.log1p(u))
