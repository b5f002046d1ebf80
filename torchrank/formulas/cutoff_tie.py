"""The tie that a cut-off goes through: how many of its relevant candidates are inside."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.ranking.arithmetic import ratio, running_sum
from torchrank.ranking.ranking import Ranking


@dataclass(frozen=True)
class CutoffTie:
    """The one block of ties that ``top_k`` cuts, and how many of its r relevant candidates fall inside.

    Of its n candidates s come before the cut, so that number h is hypergeometric.
    """

    #: bool [query, entry]: the relevant entries of the block, of which there are none where no block is cut
    cut: Tensor
    #: float64 [query, 1]: relevant candidates before the block; all of the first k where none is cut
    before: Tensor
    #: float64 [query, 1]: its places before the cut
    places: Tensor
    #: float64 [query, h]: h = 0, 1, ... hits
    hits: Tensor
    #: float64 [query, h]: how likely each number is
    chance: Tensor

    @classmethod
    def of(cls, ranking: Ranking, level: float, top_k: int | None) -> CutoffTie:
        """Find it: it shows in its relevant entries, and matters only if it has some."""
        found, share = ranking.found(level), ranking.prob_in_top_k(top_k)
        cut = found & (share > 0) & (share < 1)
        n, r, s = (
            _at(cut, x)
            for x in (ranking.tied, ranking.relevant_before_and_in_tie(level)[1], ranking.ranks_in_top_k(top_k))
        )
        before = (found & (share == 1)).sum(-1, keepdim=True).to(share.dtype)
        most = 0 if top_k is None or ranking.untied else min(top_k, found.shape[1])
        hits = torch.arange(most + 1, dtype=share.dtype, device=share.device).expand(len(n), -1)
        return cls(cut, before, s, hits, _hypergeometric(hits, n, r, s))

    def at(self, x: Tensor) -> Tensor:
        """What ``x`` [query, entry] is for the block: [query, 1], 0 where none is cut."""
        return _at(self.cut, x)


def _at(where: Tensor, x: Tensor) -> Tensor:
    """The first element of each row of ``x`` that is marked, 0 if none is: [query, 1]."""
    first = where.int().argmax(-1, keepdim=True)
    return torch.where(where.any(-1, keepdim=True), x.gather(-1, first), 0.0)


def _hypergeometric(h: Tensor, n: Tensor, r: Tensor, s: Tensor) -> Tensor:
    """Chance of h = 0, 1, ... relevant among s drawn from n with r relevant: float64 [query, h].

    From the ratios of neighbours, which are exact, rather than from factorials, which are not.
    """
    possible = (h <= r) & (h <= s) & (s - h <= n - r)
    step = ratio((r - h + 1) * (s - h + 1), h * (n - r - s + h))
    linked = possible & torch.nn.functional.pad(possible[:, :-1], (1, 0))
    log = running_sum(torch.where(linked, step, 1.0).log())
    weight = torch.where(possible, (log - log.amax(-1, keepdim=True)).exp(), 0.0)
    return weight / weight.sum(-1, keepdim=True)
