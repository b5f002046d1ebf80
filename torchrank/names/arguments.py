"""Checks of arguments: errors that name the expected and the given value, and warnings at the line of the user."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from torchrank.names.labels import name_of
from torchrank.names.nearest import did_you_mean


def one_of(argument: str, value: object, known: Iterable[object], or_callable: bool = False) -> None:
    """Raise ValueError unless an argument has a known value or, if ``or_callable``, is a callable with a new name."""
    known = tuple(known)
    if or_callable and callable(value):
        if name_of(value) in known:
            # A label shows only the name, so two definitions would have the same label.
            raise ValueError(
                f"Expected {argument} to be a callable with a name of its own, got {value!r}; pass"
                f" {name_of(value)!r} for the known one, or rename it"
            )
    elif value not in known:
        also = " or a callable with a name" if or_callable else ""
        hint = did_you_mean(value, [name for name in known if isinstance(name, str)]) if isinstance(value, str) else ""
        raise ValueError(f"Expected {argument} to be one of {', '.join(map(repr, known))}{also}, got {value!r}{hint}")


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
    # bool is a number in Python, but no parameter takes True for 1.
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
    """Convert a number of NumPy to one of Python, so that labels show both alike. Return other values as they are."""
    return value.item() if isinstance(value, np.generic) else value


# Integers up to this one are exact in float64.
MOST = 2**53


def integer(argument: str, value: object, least: int, or_none: bool = True, most: int = MOST) -> int | None:
    """Return an argument as a Python int, or as None if ``or_none``.

    Raises:
        ValueError: it is not an integer of Python or NumPy, or it is out of bounds.
    """
    if value is None and or_none:
        return None
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        bound = f"<= {most}" if isinstance(value, Integral) and int(value) > most else f">= {least}"
        also = " or None" if or_none else ""
        several = argument == "top_k" and isinstance(value, list | tuple)
        way_out = "; give several to RankingCollection, as 'ndcg@5,10'" if several else ""
        raise ValueError(f"Expected {argument} to be an integer {bound}{also}, got {value!r}{way_out}")
    return int(value)


def warn(message: str) -> None:
    """Warn at the line of the user that called this library. Python shows a warning once for each line."""
    inside, frame, level = {"torchrank", "torchmetrics", "torch", "contextlib"}, sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
