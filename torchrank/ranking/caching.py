"""Decorators of quantities that are derived from a ranking."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch import Tensor

P = ParamSpec("P")

T = TypeVar("T")


def cached(piece: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Decorator that caches a method of a ranking by its arguments, so that measures share its result.

    Pass gains and discounts that are equal if they compute the same, not a new lambda for each call.
    """

    @functools.wraps(piece)
    def once(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (piece, args, tuple(kwargs.items()))
        if key not in self._cache:
            self._cache[key] = piece(self, *args, **kwargs)
        return self._cache[key]

    return once


def of_ranks(piece: Callable[Concatenate[Any, P], Tensor]) -> Callable[Concatenate[Any, P], Tensor]:
    """:func:`cached` for a quantity [query, entry] of the ranks alone: for one query if all have the same ranks."""

    @functools.wraps(piece)
    def once(self: Any, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        key = (piece, args, tuple(kwargs.items()))
        if key not in self._cache:
            self._cache[key] = piece(self.distinct, *args, **kwargs).expand(self.first.shape)
        return self._cache[key]

    return once
