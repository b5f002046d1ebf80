"""Aggregates of values over queries: means and the sum, which need sums only, and others, which need all values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

from torchrank.hardware.devices import running_sum


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
    return is_mean(how) or (isinstance(how, str) and how == "sum")


def aggregate(how: str | Callable[[Tensor], Tensor], values: Tensor, weights: Tensor) -> Tensor:
    """Reduce per-query values [query] by "median", "midpoint", "min", "max", "none" or a callable.

    Queries of weight 0 do not count; skipped ones have weight 0. If another value is NaN, so is the result, as a
    mean. The median is the lower weighted median: the smallest value x such that queries with values <= x have at
    least half of the weight. If they have exactly half, "midpoint" is halfway between x and the next value.
    """
    if how == "none":
        return values
    values, weights = values[weights > 0], weights[weights > 0]
    if not len(values) or values.isnan().any():
        return values.new_full((), float("nan"))
    if how in ("median", "midpoint"):
        values, order = values.sort()
        # Divided by the largest one, because sums of extreme weights are infinite. The two factors below tolerate
        # rounding in the sums.
        weights = weights[order] / weights.amax()
        so_far, total = running_sum(weights) * 2, weights.sum()
        lower = values[(so_far >= total * (1 - 1e-12)).int().argmax()]
        return lower if how == "median" else (lower + values[(so_far > total * (1 + 1e-12)).int().argmax()]) / 2
    if how in ("min", "max"):
        return values.amin() if how == "min" else values.amax()
    assert callable(how)
    return torch.as_tensor(how(values), device=values.device)


AGGREGATIONS = ("mean", "geometric", "harmonic", "sum", "median", "midpoint", "min", "max", "none")
