"""Types of arguments that several measures have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

import numpy
from torch import Tensor

#: the treatment of ties; each measure accepts some of these values
Ties = Literal["expected", "optimistic", "pessimistic", "realistic", "grouped"]

#: the value of a query with nothing to measure
EmptyAction = Literal["neg", "pos", "skip", "listed", "error"]

#: the aggregation of the values of all queries to one value
Aggregation = (
    Literal["mean", "geometric", "harmonic", "sum", "median", "midpoint", "min", "max", "none"]
    | Literal["p1", "p5", "p10", "p25", "p75", "p90", "p95", "p99"]
    | Callable[[Tensor], Tensor]
)

#: the treatment of ids that are repeated in a list
Repeats = Literal["error", "first", "hold"]

#: the treatment of unjudged candidates
Unjudged = Literal["irrelevant", "condensed", "lower", "upper"]

#: the gain of a grade
GainOption = Literal["linear", "exponential"] | Callable[[Tensor], Tensor] | Mapping[float, float]

#: a tensor; or what becomes a tensor: an array, a list of numbers, a list of equally long lists
Array = Tensor | numpy.ndarray | list[Any]

#: grades; a label, or ids, of each query; (query, item) or (query, item, grade), each 1-D; a list of ids of each query
Target = Array | tuple[Array, Array] | tuple[Array, Array, Array]

#: (query, item), both 1-D; or a list of ids of each query
Pairs = tuple[Array, Array] | list[Any]

#: results by key. A curve in a collection has a tuple of tensors
Results = dict[str, Tensor]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Described(Generic[T]):
    """The type of an attribute that is also set to any array."""

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: object = None) -> T: ...

        def __set__(self, instance: object, value: T | Array) -> None: ...

    else:

        def __class_getitem__(cls, item):
            return Array | item


def call_of(update: Callable[P, Any], result: type[R]) -> Callable[[Callable[..., Any]], Callable[P, R]]:
    """For type checkers only: gives ``__call__`` the arguments of ``update``, and a result of its own."""
    raise NotImplementedError
