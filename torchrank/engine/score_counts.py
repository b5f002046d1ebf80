"""What is counted among scores for each judged item."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


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
