"""A gain: a function of the grade, with the properties that make sums of it cheap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


class Gain:
    """A function from grades to gains. Gains with equal parameters are equal, so that their sums are shared."""

    #: a larger grade never gains less
    monotone: bool = False
    #: smaller grades gain nothing; None = there is no such level
    level: float | None = None
    #: grade 0 gains too
    of_zero: bool = False

    def __call__(self, grade: Tensor) -> Tensor:
        """The gains of grades >= 0, float like ``grade``."""
        raise NotImplementedError(f"Expected {type(self).__name__} to define __call__(grade)")


@dataclass(frozen=True)
class PlainGain(Gain):
    """A gain that is known as a function only."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, grade: Tensor) -> Tensor:
        """The gains of grades."""
        return self.function(grade)


def as_gain(gain: Callable[[Tensor], Tensor]) -> Gain:
    """A function as a gain; a gain as it is."""
    return gain if isinstance(gain, Gain) else PlainGain(gain)
