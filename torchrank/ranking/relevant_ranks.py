"""What is expected at each rank of a list with ties in which every candidate has a grade."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.hardware.devices import constant, running_sum
from torchrank.ranking.intervals import Intervals


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
    #: the ranks of the group; none in padding
    group: Intervals

    @functools.cached_property
    def _passed(self) -> Tensor:
        """Number of ranks of the group before each rank."""
        return self._ranks - self.group.first

    @property
    def _ranks(self) -> Tensor:
        """1, 2, ...: [rank]."""
        return ranks(self.before.shape[1], self.before.dtype, self.before.device)

    @functools.cached_property
    def hits(self) -> Tensor:
        """Expected number of relevant candidates up to each rank."""
        # The division first, so that the end of a group has an integer.
        return torch.addcmul(self.before, self.relevant, (self._passed + 1) / self.group.number)

    @functools.cached_property
    def missed(self) -> Tensor:
        """Probability that no candidate up to each rank is relevant."""
        left = (self.group.tied - self._passed).clamp_min(1)
        return ((left - self.relevant) / left).clamp_min(0).cumprod(-1)

    def reciprocal(self, top_k: int | None) -> Tensor:
        """Expected 1 / rank of the first relevant candidate, 0 beyond ``top_k``: floating [query]."""
        missed = self.missed[:, :top_k]
        missed_before = torch.nn.functional.pad(missed[:, :-1], (1, 0), value=1.0)
        return ((missed_before - missed) / self._ranks[:top_k]).sum(-1)

    def precisions(self, top_k: int | None) -> Tensor:
        """Expected sum of the precisions at the relevant ranks up to ``top_k``: floating [query].

        If the candidate at a rank is relevant, each of the n - 1 others is with probability (r - 1) / (n - 1).
        """
        fields = (self.before, self.relevant, self.group.tied, self.group.number, self._passed)
        before, relevant, tied, number, passed = (x[:, :top_k] for x in fields)
        up_to = torch.addcmul(before + 1, (relevant - 1) / (tied - 1).clamp_min(1), passed)
        # Rounded as for a query without ties, which may be in a batch with ties or not.
        values = up_to * (1 / self._ranks[:top_k]) * (relevant / number)
        return values.sum(-1) if top_k is None or not values.is_cpu else running_sum(values)[:, -1]


@constant
def ranks(number: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1, 2, ..., ``number``: floating [number]."""
    return torch.arange(1, number + 1, dtype=dtype, device=device)
