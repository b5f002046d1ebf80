"""The tie group that contains a cutoff: the distribution of its hits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.hardware.devices import running_sum
from torchrank.ranking.intervals import only, ratio
from torchrank.ranking.ranking import Ranking


@dataclass(frozen=True)
class CutoffTie:
    """The tie group of each query with ranks on both sides of ``top_k``, and its number of hits.

    The group has n candidates, r of them relevant, and s ranks up to the cutoff. Its number of hits h, the relevant
    candidates at these s ranks, is hypergeometric. A query has at most one such group.
    """

    #: bool [query, entry]: the relevant entries of the group; none if the query has no such group
    cut: Tensor
    #: float64 [query, 1]: hits above the group; all hits if the query has no such group
    before: Tensor
    #: float64 [query, 1]: s
    places: Tensor
    #: float64 [query, h]: h = 0, 1, ...
    hits: Tensor
    #: float64 [query, h]: probability of each h
    chance: Tensor

    @classmethod
    def of(cls, ranking: Ranking, level: float, top_k: int | None) -> CutoffTie:
        """Find the groups of a ranking. A group without a relevant entry has no hits and is left out."""
        retrieved = ranking.hit(level)
        if top_k is None or ranking.untied:
            none, hits = retrieved.new_zeros(()).expand(retrieved.shape), ranking.hits(level, top_k).unsqueeze(-1)
            return cls(none, hits, torch.zeros_like(hits), torch.zeros_like(hits), torch.ones_like(hits))
        share = ranking.prob_in_top_k(top_k)
        # Only ranks on both sides of the cutoff make the probability of an entry neither 0 nor 1.
        cut = retrieved & (share > 0) & (share < 1)
        n, r, s = (
            _first_where(cut, x)
            for x in (ranking.tied, ranking.relevant_before_and_in_tie(level)[1], ranking.ranks_in_top_k(top_k))
        )
        before = (retrieved & (share == 1)).sum(-1, keepdim=True).to(share.dtype)
        # The largest r is unknown unless values are read, so h has a column for each number up to top_k.
        most = min(top_k, retrieved.shape[1])
        hits = torch.arange(most + 1, dtype=share.dtype, device=share.device).expand(len(n), -1)
        return cls(cut, before, s, hits, hypergeometric(hits, n, r, s))

    def of_group(self, x: Tensor) -> Tensor:
        """The value of ``x`` [query, entry] for the group: [query, 1]; 0 if the query has no such group."""
        return _first_where(self.cut, x)


def _first_where(where: Tensor, x: Tensor) -> Tensor:
    """The first element of each row of ``x`` at which ``where`` is True: [query, 1]; 0 if there is none."""
    first = where.int().argmax(-1, keepdim=True)
    return only(where.any(-1, keepdim=True), x.gather(-1, first))


def hypergeometric(h: Tensor, n: Tensor, r: Tensor, s: Tensor) -> Tensor:
    """Probability of h relevant candidates among s drawn from n with r relevant: float64 [query, h].

    Computed from the ratios P(h) / P(h - 1), because factorials would overflow.
    """
    possible = (h <= r) & (h <= s) & (s - h <= n - r)
    step = ratio((r - h + 1) * (s - h + 1), h * (n - r - s + h))
    # A ratio needs h and h - 1 to be possible. The weight of the first possible h is 1 until all are normalised.
    linked = possible & torch.nn.functional.pad(possible[:, :-1], (1, 0))
    log = running_sum(torch.where(linked, step, 1.0).log())
    weight = only(possible, (log - log.amax(-1, keepdim=True)).exp())
    return weight / weight.sum(-1, keepdim=True)
