"""What is counted among scores for each judged item, and the numbers that scores are compared with."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torchrank.hardware.devices import keeps_denormals, scalar


class ScoreCounts(NamedTuple):
    """Counts over a block of columns of the scores, int64 unless another dtype was asked for.

    The counts over all columns are the sums of the counts over the blocks.
    """

    #: [query, entry]: candidates ahead of each judged item
    greater: Tensor
    #: [query, entry]: candidates tied with each judged item, itself included
    equal: Tensor
    #: [query]: scores above -inf
    retrieved: Tensor
    #: bool [query]: whether a score is NaN; the sum over blocks is "or"
    has_nan: Tensor

    @classmethod
    def nothing(cls, shape: Sequence[int], device: torch.device, dtype: torch.dtype = torch.int64) -> ScoreCounts:
        """Counts over no columns, all 0, for judged items of a shape [query, entry]."""
        entries, queries = math.prod(shape), shape[0]
        counts = torch.zeros(2 * entries + queries, dtype=dtype, device=device)
        greater, equal, retrieved = counts.split((entries, entries, queries))
        has_nan = torch.zeros(queries, dtype=torch.bool, device=device)
        return cls(greater.view(shape), equal.view(shape), retrieved, has_nan)

    def add(self, other: ScoreCounts, rows: slice = slice(None)) -> None:
        """Add, in place, the counts over other columns for the queries ``rows``."""
        for total, part in zip(self, other):
            total[rows].add_(part)


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The scores of the judged items of each query, which are counted among the scores of its candidates."""

    #: [query, entry]
    scores: Tensor
    #: whether the scores of all candidates, among which they are counted, are known to be finite
    among_finite: bool = False

    @functools.cached_property
    def bounds(self) -> Tensor:
        """[query, bound]: the scores, the next numbers below them, and -inf unless all candidates are finite."""
        judged = self.scores
        lowest = scalar(-math.inf, judged.dtype, judged.device).expand(len(judged), 0 if self.among_finite else 1)
        return torch.cat([judged, next_below(judged), lowest], dim=-1)

    @functools.cached_property
    def comparable_by_bits(self) -> bool:
        """Whether to compare :attr:`bits`: float32 on a CPU that distinguishes denormal numbers from 0."""
        judged = self.scores
        fits = judged.dtype == torch.float32 and judged.is_cpu and judged.numel() > 0
        return fits and keeps_denormals(judged.device)

    @functools.cached_property
    def bits(self) -> Tensor:
        """int32 [query, entry]: the bits of the scores."""
        return (self.scores.contiguous() + 0.0).view(torch.int32)  # no -0, whose bits differ from those of 0

    @functools.cached_property
    def zeros(self) -> Tensor | None:
        """bool [query, entry]: whether each score is 0; None if no score is 0. Only on the CPU."""
        zero = self.scores == 0
        return zero if bool(zero.any()) else None


def next_below(judged: Tensor) -> Tensor:
    """The next number below ``judged`` in the type of comparisons: scores above it are at least ``judged``."""
    judged = judged.to(compared_dtype(judged.dtype))
    below = torch.nextafter(judged, scalar(-math.inf, judged.dtype, judged.device))
    if keeps_denormals(judged.device):
        return below
    # Where denormal numbers are 0, the next number below 0 is a normal one. None is below -inf.
    return torch.where(below == judged, judged.clamp_max(-torch.finfo(judged.dtype).tiny), below)


def compared_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which scores are compared: torch is slow with 16 bits."""
    return torch.float64 if dtype == torch.float64 else torch.float32
