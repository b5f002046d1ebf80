"""Types of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from torch import Tensor

#: what a tie is worth; each measure has some of them
Ties = Literal["expected", "optimistic", "pessimistic", "realistic", "grouped"]

#: what a query counts in which there is nothing to measure
EmptyAction = Literal["neg", "pos", "skip", "listed", "error"]

#: how the values of queries become one
Aggregation = (
    Literal["mean", "geometric", "harmonic", "median", "midpoint", "min", "max", "none"] | Callable[[Tensor], Tensor]
)

#: what an unjudged candidate is taken for
Unjudged = Literal["irrelevant", "condensed", "lower", "upper"]

#: what a grade is worth
GainOption = Literal["linear", "exponential"] | Callable[[Tensor], Tensor] | Mapping[float, float]
