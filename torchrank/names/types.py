"""Types of arguments that several measures have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from torch import Tensor

#: the treatment of ties; each measure accepts some of these values
Ties = Literal["expected", "optimistic", "pessimistic", "realistic", "grouped"]

#: the value of a query with nothing to measure
EmptyAction = Literal["neg", "pos", "skip", "listed", "error"]

#: the aggregation of the values of all queries to one value
Aggregation = (
    Literal["mean", "geometric", "harmonic", "median", "midpoint", "min", "max", "none"] | Callable[[Tensor], Tensor]
)

#: the treatment of unjudged candidates
Unjudged = Literal["irrelevant", "condensed", "lower", "upper"]

#: the gain of a grade
GainOption = Literal["linear", "exponential"] | Callable[[Tensor], Tensor] | Mapping[float, float]
