"""Gains of grades and discounts of ranks: small objects, equal if their parameters are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torchrank.names.arguments import number, one_of
from torchrank.ranking.ranking import Gain, PlainGain


@dataclass(frozen=True)
class Linear(Gain):
    """The grade itself (Järvelin and Kekäläinen, TOIS 2002)."""

    identity = True
    monotone = True

    def __call__(self, grade: Tensor) -> Tensor:
        return grade


@dataclass(frozen=True)
class Exponential(Gain):
    """2 ** grade - 1 (Burges et al., ICML 2005)."""

    monotone = True

    def __call__(self, grade: Tensor) -> Tensor:
        return torch.exp2(grade) - 1


@dataclass(frozen=True)
class AtLeast(Gain):
    """1 for grades at or above a level, else 0."""

    level: float

    monotone = True

    def __call__(self, grade: Tensor) -> Tensor:
        return (grade >= self.level).to(grade.dtype)


@dataclass(frozen=True)
class Positive(Gain):
    """1 for every grade above 0."""

    monotone = True

    def __call__(self, grade: Tensor) -> Tensor:
        return (grade > 0).to(grade.dtype)


@dataclass(frozen=True)
class Scaled(Gain):
    """The grade divided by the largest one; 1 for grades above it."""

    largest: float

    monotone = True

    def __call__(self, grade: Tensor) -> Tensor:
        return (grade / self.largest).clamp_max(1)


@dataclass(frozen=True)
class Satisfying(Gain):
    """(2 ** grade - 1) / 2 ** largest, grades clipped at the largest (Chapelle et al., CIKM 2009); 0 below a level."""

    largest: float
    level: float | None = None

    monotone = True

    def __call__(self, grade: Tensor) -> Tensor:
        chance = torch.exp2(grade.clamp_max(self.largest) - self.largest) - 2.0**-self.largest
        return torch.where(grade >= self.level, chance, 0.0) if self.level else chance


@dataclass(frozen=True)
class GainTable(Gain):
    """The gain of a grade in a table; the grade itself if the table has no entry for it (ir_measures, trec_eval)."""

    #: (grade, gain) pairs
    gains: tuple[tuple[float, float], ...]

    @property
    def of_zero(self) -> bool:  # type: ignore[override]
        """Whether the table has a gain above 0 for grade 0."""
        return dict(self.gains).get(0, 0) > 0

    def __call__(self, grade: Tensor) -> Tensor:
        gains = grade
        for level, gain in self.gains:
            gains = torch.where(grade == level, float(gain), gains)
        return gains


@dataclass(frozen=True)
class OfRelevant(Gain):
    """Another gain, but 0 for grades below a level."""

    gain: Gain
    level: float

    @property
    def monotone(self) -> bool:  # type: ignore[override]
        """Whether a larger grade never has a smaller gain."""
        return self.gain.monotone

    def __call__(self, grade: Tensor) -> Tensor:
        return torch.where(grade >= self.level, self.gain(grade), 0.0)


@dataclass(frozen=True)
class Undiscounted:
    """1 at every rank."""

    def __call__(self, rank: Tensor) -> Tensor:
        return torch.ones_like(rank)


@dataclass(frozen=True)
class Reciprocal:
    """1 / rank."""

    def __call__(self, rank: Tensor) -> Tensor:
        return rank.reciprocal()


@dataclass(frozen=True)
class Geometric:
    """P ** (rank - 1)."""

    p: float

    def __call__(self, rank: Tensor) -> Tensor:
        return self.p ** (rank - 1)


@dataclass(frozen=True)
class Logarithmic:
    """1 / log(1 + rank), the logarithm to a base."""

    base: float

    def __call__(self, rank: Tensor) -> Tensor:
        return torch.log2(1 + rank).reciprocal() if self.base == 2 else math.log(self.base) / torch.log1p(rank)


@dataclass(frozen=True)
class Clipped:
    """1 / log(rank), the logarithm to a base, and at most 1 (Järvelin and Kekäläinen, TOIS 2002)."""

    base: float

    def __call__(self, rank: Tensor) -> Tensor:
        rank = rank.clamp_min(self.base)
        return torch.log2(rank).reciprocal() if self.base == 2 else math.log(self.base) / torch.log(rank)


LINEAR, EXPONENTIAL, POSITIVE = Linear(), Exponential(), Positive()
UNDISCOUNTED, RECIPROCAL = Undiscounted(), Reciprocal()

#: classes of discounts that are above 0 at all ranks
DISCOUNTS_ABOVE_0 = (Undiscounted, Reciprocal, Logarithmic, Clipped)

#: gains by name
GAINS: dict[str, Gain] = {"linear": LINEAR, "exponential": EXPONENTIAL}

#: discounts without parameters, by name
DISCOUNTS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": UNDISCOUNTED,
    "log2": Logarithmic(2),
    "clipped": Clipped(2),
    "reciprocal": RECIPROCAL,
}


def discount_of(discount: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The function from ranks to discounts that the argument ``discount`` of a measure stands for."""
    return discount if callable(discount) else DISCOUNTS[discount]


def checked_gain(gain: object) -> object:
    """Check the argument ``gain`` of :class:`torchrank.metrics.GradedMetric`: a name, a callable, a table or a list.

    Raises:
        ValueError: the name is unknown, the callable has no name, the table is empty, or a grade or gain of it is not a
            finite number >= 0.
    """
    if isinstance(gain, Tensor | np.ndarray):
        gain = gain.tolist()
    if isinstance(gain, list | tuple):
        gain = dict(enumerate(gain))
    if not isinstance(gain, Mapping):
        one_of("gain", gain, GAINS, or_callable=True)
        return gain
    for grade, of_grade in gain.items():
        number("a grade of the table of gains", grade, least=0)
        number(f"the gain of grade {grade}", of_grade, least=0)
    if not gain:
        raise ValueError("Expected a table of gains by grade, e.g. {1: 1, 2: 4}, got an empty one")
    return dict(sorted(gain.items()))


def gain_of(gain: str | Callable[[Tensor], Tensor] | Mapping[float, float]) -> Gain:
    """The function from grades to gains that the argument ``gain`` of a measure stands for."""
    if isinstance(gain, Mapping):
        return GainTable(tuple(gain.items()))
    if isinstance(gain, str):
        return GAINS[gain]
    return gain if isinstance(gain, Gain) else PlainGain(gain)


def checked_weighing(gain: object) -> object:
    """As :func:`checked_gain`, but None is allowed."""
    return gain if gain is None else checked_gain(gain)
