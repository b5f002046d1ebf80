"""What a grade is worth, and how much of it is left at a rank. Functions that stay, so that their sums are shared."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor


def linear(grade: Tensor) -> Tensor:
    """The grade itself (Järvelin and Kekäläinen, TOIS 2002)."""
    return grade


def exponential(grade: Tensor) -> Tensor:
    """2 ** grade - 1 (Burges et al., ICML 2005)."""
    return torch.exp2(grade) - 1


def undiscounted(rank: Tensor) -> Tensor:
    """1 at every rank."""
    return torch.ones_like(rank)


def reciprocal(rank: Tensor) -> Tensor:
    """1 / rank."""
    return 1 / rank


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


# A larger grade is worth more, so the largest gains are those of the largest grades.
linear.increasing = exponential.increasing = True  # type: ignore[attr-defined]

GAINS: dict[str, Callable[[Tensor], Tensor]] = {"linear": linear, "exponential": exponential}
