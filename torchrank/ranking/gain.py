"""Gains: functions of the grade, with properties that make sums of gains cheap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


class Gain:
    """A function from grades to gains. Gains with equal parameters are equal, so that their sums are cached once."""

    #: whether the gain is the grade itself
    identity: bool = False
    #: whether a larger grade never has a smaller gain
    monotone: bool = False
    #: grades below it have gain 0; None = no such level
    level: float | None = None
    #: whether all grades at or above this level have gain 1
    binary: bool = False
    #: whether grade 0 may have a gain above 0
    of_zero: bool = False

    def __call__(self, grade: Tensor) -> Tensor:
        """The gains of grades >= 0, float like ``grade``."""
        raise NotImplementedError(f"Expected {type(self).__name__} to define __call__(grade)")


@dataclass(frozen=True)
class PlainGain(Gain):
    """A gain that is a plain function, without known properties."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, grade: Tensor) -> Tensor:
        """The gains of grades. The function gets a copy, because it may work in place."""
        return self.function(grade.clone())


def as_gain(gain: Callable[[Tensor], Tensor]) -> Gain:
    """Convert a function to a gain; return a gain unchanged."""
    return gain if isinstance(gain, Gain) else PlainGain(gain)
