"""Checks of the arguments of constructors. Errors say what was expected and what was got."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from torchrank.names.labels import name_of


def one_of(argument: str, value: object, known: Iterable[object], or_callable: bool = False) -> None:
    """Raise ValueError unless an argument has a known value, or is a callable with a name where one will do."""
    known = tuple(known)
    if or_callable and callable(value):
        if name_of(value) in known:  # or two definitions would have one label
            raise ValueError(
                f"Expected {argument} to be a callable with a name of its own, got {value!r}, named as a known one"
            )
    elif value not in known:
        also = " or a callable with a name" if or_callable else ""
        raise ValueError(f"Expected {argument} to be one of {', '.join(map(repr, known))}{also}, got {value!r}")


def number(
    argument: str,
    value: object,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> None:
    """Raise ValueError unless an argument is a finite number within its bounds."""
    real = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not real or not (above < value < below and least <= value <= most):  # type: ignore[operator]
        bounds = [
            f"{sign} {bound}"
            for sign, bound in ((">", above), (">=", least), ("<", below), ("<=", most))
            if math.isfinite(bound)
        ]
        wanted = " and ".join(bounds) or "that is finite"
        raise ValueError(f"Expected {argument} to be a number {wanted}, got {value!r}")


def plain(value: Any) -> Any:
    """A number of numpy as Python's own, which labels show alike; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


# Integers up to this one are exact as float64.
MOST = 2**53


def integer(argument: str, value: object, least: int, or_none: bool = True, most: int = MOST) -> int | None:
    """An argument as a Python int; None where that will do.

    Raises:
        ValueError: it is no integer, of Python or of numpy, or out of its bounds.
    """
    if value is None and or_none:
        return None
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        bound = f"<= {most}" if isinstance(value, Integral) and int(value) > most else f">= {least}"
        also = " or None" if or_none else ""
        raise ValueError(f"Expected {argument} to be an integer {bound}{also}, got {value!r}")
    return int(value)
