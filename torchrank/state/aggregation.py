"""Aggregates of values over queries: means that need no more than sums, and others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mean:
    """A mean of values that is a function of the arithmetic mean of functions of them, and so of sums."""

    #: what is summed instead of a value
    inside: Callable[[Tensor], Tensor]
    #: from the mean of these to the mean of the values
    outside: Callable[[Tensor], Tensor]
    #: how much the mean of the values changes with the mean of what is summed, given the former
    slope: Callable[[Tensor], Tensor]


#: What a geometric mean takes smaller values for, or one query would decide alone (Robertson, CIKM 2006).
FLOOR = 1e-5


MEANS = {
    "mean": Mean(lambda x: x, lambda x: x, torch.ones_like),
    "geometric": Mean(lambda x: x.clamp_min(FLOOR).log(), torch.exp, lambda x: x),
    "harmonic": Mean(torch.reciprocal, torch.reciprocal, torch.square),
}


def is_mean(how: object) -> TypeGuard[str]:
    """Whether an aggregation needs no more than sums."""
    return isinstance(how, str) and how in MEANS


def aggregate(how: str | Callable[[Tensor], Tensor], values: Tensor, weights: Tensor) -> Tensor:
    """Reduce per-query values [query], NaN = skipped, by "median", "midpoint", "min", "max", "none" or a callable.

    Queries of weight 0 do not count. The median is the lower weighted one: the smallest value that at least half of
    the weight does not exceed. If exactly half does not, "midpoint" is halfway between it and the next value.
    """
    if how == "none":
        return values
    scored = (weights > 0) & ~values.isnan()
    values, weights = values[scored], weights[scored]
    if not len(values):
        return values.new_full((), float("nan"))
    if how in ("median", "midpoint"):
        values, order = values.sort()
        so_far, whole = weights[order].cumsum(0) * 2, weights.sum()
        lower = values[(so_far >= whole * (1 - 1e-12)).int().argmax()]
        return lower if how == "median" else (lower + values[(so_far > whole * (1 + 1e-12)).int().argmax()]) / 2
    if how in ("min", "max"):
        return values.amin() if how == "min" else values.amax()
    assert callable(how)
    return torch.as_tensor(how(values), device=values.device)


AGGREGATIONS = ("mean", "geometric", "harmonic", "median", "midpoint", "min", "max", "none")
