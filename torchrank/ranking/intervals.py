"""Intervals of ranks, and tables of discounts over the ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.hardware.constants import constant
from torchrank.ranking.arithmetic import running_sum


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals of ranks, [first, first + tied - 1] each; empty if ``tied`` is 0."""

    first: Tensor
    tied: Tensor

    @functools.cached_property
    def number(self) -> Tensor:
        """Number of ranks, at least 1."""
        return self.tied.clamp_min(1)

    @functools.cached_property
    def alone(self) -> Tensor:
        """bool: a single rank."""
        return self.tied == 1

    @functools.cached_property
    def ends(self) -> Tensor:
        """The last rank before an interval, and its own last rank: first - 1 and first - 1 + tied, int64 [2, ...]."""
        above = self.first - 1
        return torch.stack([above, above + self.tied]).long()

    @functools.cached_property
    def best(self) -> Tensor:
        """The first rank, at least 1, for discounts."""
        return self.first.clamp_min(1)


@constant
def prefix_sums(discount: Callable[[Tensor], Tensor], limit: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Sums of a discount over the ranks 1 ... r, for r = 0 ... ``limit``: float [limit + 1]."""
    ranks = torch.arange(1, limit + 1, dtype=dtype, device=device)
    return torch.nn.functional.pad(running_sum(discount(ranks)), (1, 0))


@constant
def of_first_ranks(
    discount: Callable[[Tensor], Tensor], limit: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The discounts of the ranks 1 ... ``limit``: float [limit]."""
    return discount(torch.arange(1, limit + 1, dtype=dtype, device=device))
