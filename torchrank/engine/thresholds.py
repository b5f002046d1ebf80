"""Scores of the judged items, and the numbers that kernels compare with, computed once and kept."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.hardware.devices import keeps_denormals, scalar


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
