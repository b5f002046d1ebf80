"""What a grade is worth, and how much of it is left at a rank. Functions that stay, so that their sums are shared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache

import torch
from torch import Tensor

from torchrank.names.arguments import number, one_of


def linear(grade: Tensor) -> Tensor:
    """The grade itself (Järvelin and Kekäläinen, TOIS 2002)."""
    return grade


def exponential(grade: Tensor) -> Tensor:
    """2 ** grade - 1 (Burges et al., ICML 2005)."""
    return torch.exp2(grade) - 1


@cache
def at_least(level: float) -> Callable[[Tensor], Tensor]:
    """1 for grades at or above a level, else 0."""

    def gain(grade: Tensor) -> Tensor:
        return (grade >= level).to(grade.dtype)

    gain.increasing, gain.level = True, level  # type: ignore[attr-defined]
    return gain


@cache
def scaled(largest: float) -> Callable[[Tensor], Tensor]:
    """The share that a grade is of the largest one; 1 for those above it."""

    def gain(grade: Tensor) -> Tensor:
        return (grade / largest).clamp_max(1)

    gain.increasing = True  # type: ignore[attr-defined]
    return gain


@cache
def satisfying(largest: float, level: float = 0) -> Callable[[Tensor], Tensor]:
    """(2 ** grade - 1) / 2 ** largest of grades up to the largest (Chapelle et al., CIKM 2009); 0 below a level."""

    def gain(grade: Tensor) -> Tensor:
        chance = torch.exp2(grade.clamp_max(largest) - largest) - 2.0**-largest
        return torch.where(grade >= level, chance, 0.0) if level else chance

    gain.increasing = True  # type: ignore[attr-defined]
    if level:
        gain.level = level  # type: ignore[attr-defined]
    return gain


def checked_gains(table: Mapping[float, float]) -> dict[float, float]:
    """A table of gains by grade, in ascending order of grade.

    Raises:
        ValueError: it is empty, or has something else than finite numbers >= 0.
    """
    for grade, gain in table.items():
        number("a grade of the table of gains", grade, least=0)
        number(f"the gain of grade {grade}", gain, least=0)
    if not table:
        raise ValueError("Expected a table of gains by grade, as {1: 1, 2: 4}, got an empty one")
    return dict(sorted(table.items()))


@cache
def tabled(table: tuple[tuple[float, float], ...]) -> Callable[[Tensor], Tensor]:
    """The gain that a table has for a grade; the grade itself if it has none (ir_measures, trec_eval)."""

    def gain(grade: Tensor) -> Tensor:
        gains = grade
        for level, worth in table:
            gains = torch.where(grade == level, float(worth), gains)
        return gains

    gain.of_zero = dict(table).get(0, 0) > 0  # type: ignore[attr-defined]
    return gain


def undiscounted(rank: Tensor) -> Tensor:
    """1 at every rank."""
    return torch.ones_like(rank)


def reciprocal(rank: Tensor) -> Tensor:
    """1 / rank."""
    return 1 / rank


@cache
def geometric(p: float) -> Callable[[Tensor], Tensor]:
    """p ** (rank - 1)."""

    def discount(rank: Tensor) -> Tensor:
        return p ** (rank - 1)

    return discount


@cache
def logarithmic(base: float) -> Callable[[Tensor], Tensor]:
    """1 / log(1 + rank) to a base."""

    def discount(rank: Tensor) -> Tensor:
        return 1 / torch.log2(1 + rank) if base == 2 else math.log(base) / torch.log1p(rank)

    return discount


@cache
def clipped(base: float) -> Callable[[Tensor], Tensor]:
    """1 / log(rank) to a base, and 1 where that would be more (Järvelin and Kekäläinen, TOIS 2002)."""

    def discount(rank: Tensor) -> Tensor:
        rank = rank.clamp_min(base)
        return 1 / torch.log2(rank) if base == 2 else math.log(base) / torch.log(rank)

    return discount


#: discounts without parameters
DISCOUNTS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": undiscounted,
    "log2": logarithmic(2),
    "reciprocal": reciprocal,
}


# A larger grade is worth more, so the largest gains are those of the largest grades.
linear.increasing = exponential.increasing = True  # type: ignore[attr-defined]


GAINS: dict[str, Callable[[Tensor], Tensor]] = {"linear": linear, "exponential": exponential}


def checked_gain(gain: object) -> object:
    """What a grade is worth, as :class:`torchrank.metrics.GradedMetric` takes it.

    Raises:
        ValueError: an unknown name, a callable without a name, or a table that is none.
    """
    if isinstance(gain, Mapping):
        return checked_gains(gain)
    one_of("gain", gain, GAINS, or_callable=True)
    return gain
