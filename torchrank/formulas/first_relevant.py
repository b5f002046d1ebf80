"""The first relevant candidate: its rank, its reciprocal rank, and the probability that it is among the first ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.formulas.gains import RECIPROCAL
from torchrank.formulas.random_ranking import chances_of_first, chunk_length
from torchrank.hardware.devices import worth_reading
from torchrank.ranking.intervals import marked_rows, only, ratio
from torchrank.ranking.quantities import cached
from torchrank.ranking.ranking import Ranking


def hit(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Probability that a candidate graded at or above ``level`` is among the first ``top_k``: float64 [query]."""
    if ranking.untied or ranking.first.shape[1] == 1:
        return ranking.hits(level, top_k).clamp_max(1)
    if (expected := ranking.relevant_ranks(level)) is not None:
        return 1 - expected.missed[:, :top_k][:, -1]
    first = _first_group(ranking, level)
    n, r, s = first.tied, first.relevant, first.places(top_k)
    value = s / n.clamp_min(1)
    # Several candidates of the group are relevant, and the cutoff is within it: C(n - s, r) / C(n, r) is the product of
    # (n - s - i) / (n - i) over i = 0, ..., r - 1.
    rows = marked_rows(((r > 1) & (value > 0) & (value < 1)).unsqueeze(-1))
    n, r, s = (x[rows].unsqueeze(-1) for x in (n, r, s))
    most = ranking.first.shape[1] if not r.is_cpu else int(r.max()) if len(rows) else 0
    index = torch.arange(most, dtype=r.dtype, device=r.device)  # i
    miss = ratio((n - s - index).clamp_min(0), (n - index).clamp_min(1))
    value[rows] = 1 - torch.where(index < r, miss, 1.0).prod(-1)
    return value


@dataclass(frozen=True, eq=False)
class FirstGroup:
    """The first tie group of each query that contains relevant candidates."""

    #: its number of relevant candidates; 0 if no relevant candidate of the query is retrieved: float64 [query]
    relevant: Tensor
    #: its number of candidates, 0 without a relevant one: float64 [query]
    tied: Tensor
    #: number of candidates above it: float64 [query]
    above: Tensor

    def places(self, top_k: int | None) -> Tensor:
        """Number of its ranks up to a cutoff: float64 [query]."""
        return self.tied if top_k is None else torch.minimum((top_k - self.above).clamp_min_(0), self.tied)


@cached
def _first_group(ranking: Ranking, level: float) -> FirstGroup:
    """Find the first relevant candidates of a ranking with ties."""
    relevant_entries = ranking.hit(level)
    column, exists = relevant_entries.view(torch.int8).argmax(-1, keepdim=True), relevant_entries.any(-1)
    beside = ranking.relevant_before_and_in_tie(level)[1]
    relevant, tied, first = (x.gather(-1, column).squeeze(-1) for x in (beside, ranking.tied, ranking.first))
    return FirstGroup(only(exists, relevant), only(exists, tied), first - 1)


def first_rank(ranking: Ranking, level: float) -> Tensor:
    r"""Expected rank of the first candidate at or above ``level``, infinite if none is retrieved: float64 [query].

    The first of r relevant candidates in a tie group of n candidates behind a others is at rank
    :math:`a + \frac{n + 1}{r + 1}` on average: the mean of the smallest of r numbers drawn from 1 ... n.
    """
    before, beside = ranking.relevant_before_and_in_tie(level)
    rank = ranking.first - 1 + (ranking.tied + 1) / (beside + 1)
    return torch.where(ranking.hit(level) & (before == 0), rank, float("inf")).amin(-1)


def reciprocal_rank(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Expected 1 / rank of the first candidate graded at or above ``level``, 0 beyond ``top_k``: float64 [query]."""
    if ranking.untied:
        anywhere = _alone(ranking, level, None)
        return anywhere if top_k is None else only(ranking.hits(level, top_k) > 0, anywhere)
    if ranking.first.shape[1] == 1:
        return _alone(ranking, level, top_k)
    if (expected := ranking.relevant_ranks(level)) is not None:
        return expected.reciprocal(top_k)
    first = _first_group(ranking, level)
    value = only(first.relevant == 1, ranking.mean_discount_of(first.above + 1, first.tied, RECIPROCAL, top_k))
    # Only queries with several relevant candidates in that group need the longer formula.
    rows = marked_rows((first.relevant > 1).unsqueeze(-1))
    n, r, s, above = (x[rows] for x in (first.tied, first.relevant, first.places(top_k), first.above))
    longest, crowded = min(top_k or ranking.depth, ranking.depth), r > 1
    value[rows] = torch.where(crowded, _first_of_several(n, r, s, above, crowded, longest), value[rows])
    return value


def _first_of_several(n: Tensor, r: Tensor, s: Tensor, above: Tensor, where: Tensor, longest: int) -> Tensor:
    """Expected 1 / rank of the first of r relevant candidates in a tie group of n: float64 [query].

    ``above`` candidates precede the group. Only its first s places count. Rows outside ``where`` have arbitrary values.
    """
    # The longest group bounds the sum over places, which are taken in chunks.
    if worth_reading(where, longest // chunk_length(len(s), where)):
        longest = min(longest, int(only(where, s).amax())) if len(s) else 0
    total, s, above = torch.zeros_like(n), s.unsqueeze(-1), above.unsqueeze(-1)
    for j, share in chances_of_first(n, r, longest):
        total = total + only(j <= s, share / (above + j)).sum(-1)
    return total


@cached
def _alone(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """The largest expected 1 / rank of an entry graded at or above ``level``: float64 [query].

    It is that of the first one, if the first tie group with relevant candidates has only one of them.
    """
    values = only(ranking.hit(level), ranking.mean_discount(RECIPROCAL, top_k))
    return values.squeeze(-1) if values.shape[1] == 1 else values.amax(-1)
