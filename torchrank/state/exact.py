"""Sums of values without rounding: equal for any split of the queries, in any order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import torch
from torch import Tensor

import torchrank.state.sums as state
from torchrank.state.sums import Sum

# Bits of a limb: a mantissa of 53 bits has three. Products of limbs have 36 bits, so sums of 2^24 fit in int64.
BITS, AT_ONCE = 18, 2**20


@dataclass(frozen=True)
class ExactSums:
    """The number of some values, their sum, and the sum of their squares. None of them is rounded.

    A float is an integer times a power of two, so sums of floats and of their squares are fractions. The state has a
    few hundred bytes for any number of values. Subtraction takes values away again.

    Example:
        >>> import numpy as np
        >>> both = ExactSums.of(np.array([1e16, 1.0])) + ExactSums.of(np.array([-1e16, float("nan")]))
        >>> both.count, both.mean
        (3, 0.3333333333333333)
    """

    count: int = 0
    total: Fraction = Fraction(0)
    squares: Fraction = Fraction(0)
    #: numbers of values that are inf and -inf, which are not in the sums
    infinite: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """The sums of float64 [value]; NaN is left out."""
        values = values[~np.isnan(values)].astype(np.float64, copy=False)
        finite = values[np.isfinite(values)]
        total = squares = Fraction(0)
        for start in range(0, len(finite), AT_ONCE):
            for exponent, first, second in _by_exponent(finite[start : start + AT_ONCE]):
                unit = Fraction(2) ** (exponent - 3 * BITS)
                total, squares = total + first * unit, squares + second * unit**2
        infinite = int((values == np.inf).sum()), int((values == -np.inf).sum())
        return cls(len(values), total, squares, infinite)

    def __add__(self, other: ExactSums) -> ExactSums:
        return self._with(other, 1)

    def __sub__(self, other: ExactSums) -> ExactSums:
        return self._with(other, -1)

    def _with(self, other: ExactSums, sign: int) -> ExactSums:
        above, below = (one + sign * two for one, two in zip(self.infinite, other.infinite))
        return ExactSums(
            self.count + sign * other.count,
            self.total + sign * other.total,
            self.squares + sign * other.squares,
            (above, below),
        )

    @property
    def mean(self) -> float:
        """The mean, rounded once; NaN without values."""
        if any(self.infinite) or not self.count:
            return self._total
        return _rounded(self.total / self.count)

    @property
    def _total(self) -> float:
        above, below = self.infinite
        if above or below:
            return math.nan if above and below else math.inf if above else -math.inf
        return _rounded(self.total) if self.count else math.nan

    def vector(self) -> Tensor:
        """The sums of :mod:`torchrank.state.sums` for weights of 1, each rounded once: float64 [SIZE] on the CPU."""
        found = torch.zeros(state.SIZE, dtype=torch.float64, device="cpu")
        found[Sum.WV] = self._total if self.count else 0.0
        found[Sum.W] = found[Sum.QUERIES] = found[Sum.W2] = self.count
        if any(self.infinite):
            found[Sum.SQUARES : Sum.W2] = math.nan
        elif self.count:
            centres = [Fraction(one) for one in state.centres(found[Sum.WV] / found[Sum.W]).tolist()]
            second = [self.squares - 2 * c * self.total + self.count * c * c for c in centres]
            first = [self.total - self.count * c for c in centres]
            rounded = list(map(_rounded, second + first))
            found[Sum.SQUARES : Sum.W2] = torch.tensor(rounded, dtype=torch.float64, device="cpu")
        return found


def _by_exponent(values: np.ndarray) -> list[tuple[int, int, int]]:
    """For the values of each exponent: the exponent, and the sums of the mantissas and of their squares as integers."""
    mantissas, exponents = np.frexp(values)
    order = exponents.astype(np.int16).argsort(kind="stable")  # 16 bits are sorted by radix
    integers, exponents = (mantissas * 2.0 ** (3 * BITS)).astype(np.int64)[order], exponents[order]
    begin = np.flatnonzero(np.diff(exponents, prepend=exponents[0] - 1))
    mask = 2**BITS - 1
    high, middle, low = integers >> 2 * BITS, integers >> BITS & mask, integers & mask

    def summed(numbers: np.ndarray, shift: int) -> list[int]:
        return [one << shift * BITS for one in np.add.reduceat(numbers, begin).tolist()]

    sums = summed(high, 2), summed(middle, 1), summed(low, 0)
    products = (
        *(summed(high * high, 4), summed(2 * high * middle, 3), summed(2 * high * low + middle * middle, 2)),
        *(summed(2 * middle * low, 1), summed(low * low, 0)),
    )
    return list(zip(exponents[begin].tolist(), map(sum, zip(*sums)), map(sum, zip(*products))))


def _rounded(number: Fraction) -> float:
    """The nearest float64."""
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)
