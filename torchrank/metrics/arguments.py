"""Checks of the arguments of constructors. Errors say what was expected and what was got."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torchrank.metrics.labels import name_of


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


def number(argument: str, value: object, above: float, most: float = math.inf) -> None:
    """Raise ValueError unless an argument is a finite number within its bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not above < value <= most or value == math.inf:
        also = "" if most == math.inf else f" and <= {most}"
        raise ValueError(f"Expected {argument} to be a number > {above}{also}, got {value!r}")


def fraction(argument: str, value: object) -> None:
    """Raise ValueError unless an argument is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"Expected {argument} to be a number from 0 to 1, got {value!r}")
