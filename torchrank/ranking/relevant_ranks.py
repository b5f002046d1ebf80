"""What is expected at each rank of a list with ties in which every candidate has a grade."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.hardware.constants import constant


@dataclass(frozen=True, eq=False)
class RelevantRanks:
    """The relevant candidates at each rank: the columns of a ranking are its ranks, padding last.

    A rank belongs to a tie group of n candidates, r of them relevant, whose orders are equally likely. All tensors are
    floating [query, rank].
    """

    #: number of relevant candidates before the group
    before: Tensor
    #: r; 0 in padding
    relevant: Tensor
    #: the first rank of the group
    first: Tensor
    #: n; 0 in padding
    tied: Tensor

    @functools.cached_property
    def _passed(self) -> Tensor:
        """Number of ranks of the group before each rank."""
        return ranks(self.first.shape[1], self.first.dtype, self.first.device) - self.first

    @functools.cached_property
    def _number(self) -> Tensor:
        """n, at least 1."""
        return self.tied.clamp_min(1)

    @functools.cached_property
    def hits(self) -> Tensor:
        """Expected number of relevant candidates up to each rank."""
        # The division first, so that the end of a group has an integer.
        return self.before + self.relevant * ((self._passed + 1) / self._number)

    @functools.cached_property
    def missed(self) -> Tensor:
        """Probability that no candidate up to each rank is relevant."""
        left = (self.tied - self._passed).clamp_min(1)
        return ((left - self.relevant) / left).clamp_min(0).cumprod(-1)

    @functools.cached_property
    def reciprocal(self) -> Tensor:
        """Probability that the first relevant candidate is at a rank, divided by the rank."""
        missed_before = torch.nn.functional.pad(self.missed[:, :-1], (1, 0), value=1.0)
        return (missed_before - self.missed) / ranks(self.first.shape[1], self.first.dtype, self.first.device)

    @functools.cached_property
    def precisions(self) -> Tensor:
        """Expected precision at each rank, if its candidate is relevant, times the probability that it is.

        Each of the n - 1 other candidates is relevant with probability (r - 1) / (n - 1).
        """
        others = (self.relevant - 1) / (self._number - 1).clamp_min(1)
        up_to = self.before + 1 + others * self._passed
        return up_to / ranks(self.first.shape[1], self.first.dtype, self.first.device) * (self.relevant / self._number)


@constant
def ranks(number: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1, 2, ..., ``number``: floating [number]."""
    return torch.arange(1, number + 1, dtype=dtype, device=device)
