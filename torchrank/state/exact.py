"""Sums of values without rounding: equal for any split of the queries, in any order."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import torch
from torch import Tensor

import torchrank.state.sums as state
from torchrank.state.sums import Sum

# Bits of the mantissa of a float64.
MANTISSA = 53


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

    count: int
    total: Fraction
    squares: Fraction
    #: numbers of values that are inf and -inf, which are not in the sums
    infinite: tuple[int, int]

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """The sums of float64 [value]; NaN is left out."""
        values = values[~np.isnan(values)].astype(np.float64, copy=False)
        finite = values[np.isfinite(values)]
        distinct, numbers = np.unique(finite, return_counts=True)
        mantissas, exponents = np.frexp(distinct)
        least = int(exponents.min(initial=0))
        integers = (mantissas * 2.0**MANTISSA).astype(np.int64).tolist()
        exact, counts = list(map(operator.lshift, integers, (exponents - least).tolist())), numbers.tolist()
        unit = Fraction(2) ** (least - MANTISSA)
        total = sum(map(operator.mul, exact, counts)) * unit
        squares = sum(number * number * count for number, count in zip(exact, counts)) * unit**2
        infinite = int((values == np.inf).sum()), int((values == -np.inf).sum())
        return cls(len(values), total, squares, infinite)

    def __add__(self, other: ExactSums) -> ExactSums:
        return self._with(other, 1)

    def __sub__(self, other: ExactSums) -> ExactSums:
        return self._with(other, -1)

    def _with(self, other: ExactSums, sign: int) -> ExactSums:
        above, below = (number + sign * two for number, two in zip(self.infinite, other.infinite))
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
        state_vector = torch.zeros(state.SIZE, dtype=torch.float64, device="cpu")
        state_vector[Sum.WV] = self._total if self.count else 0.0
        state_vector[Sum.W] = state_vector[Sum.QUERIES] = state_vector[Sum.W2] = self.count
        if not state_vector[Sum.WV].isfinite():
            state_vector[Sum.SQUARES : Sum.W2] = math.nan
        elif self.count:
            centres = [
                Fraction(number)
                for number in state.centres(state_vector[Sum.WV : Sum.W] / state_vector[Sum.W]).tolist()
            ]
            second = [self.squares - 2 * c * self.total + self.count * c * c for c in centres]
            first = [self.total - self.count * c for c in centres]
            rounded = list(map(_rounded, second + first))
            state_vector[Sum.SQUARES : Sum.W2] = torch.tensor(rounded, dtype=torch.float64, device="cpu")
        return state_vector


def _rounded(number: Fraction) -> float:
    """The nearest float64."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
