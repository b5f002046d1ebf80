"""The first relevant candidate: its rank, its reciprocal rank, and the probability that it is among the first ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.formulas.gains import RECIPROCAL
from torchrank.formulas.random_ranking import first_at
from torchrank.hardware.devices import reading_is_free
from torchrank.ranking.arithmetic import marked_rows, only, ratio
from torchrank.ranking.caching import cached
from torchrank.ranking.ranking import Ranking


def hit(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Probability that a candidate graded at or above ``level`` is among the first ``top_k``: float64 [query]."""
    if ranking.untied:
        return ranking.hits(level, top_k).clamp_max(1)
    found = ranking.found(level)
    value = only(found, ranking.prob_in_top_k(top_k)).amax(-1)
    if found.shape[1] == 1:
        return value
    # A query is 0 or 1 already, unless its first relevant candidates are in the tie group at the cutoff. For this group
    # C(n - s, r) / C(n, r) is the product of (n - s - i) / (n - i) over i = 0, ..., r - 1.
    rows = marked_rows(((value > 0) & (value < 1)).unsqueeze(-1))
    found, before = found[rows], ranking.relevant_before_and_in_tie(level)[0][rows]
    n, s = ranking.tied[rows], ranking.ranks_in_top_k(top_k)[rows]
    index = torch.minimum(found.cumsum(-1) - 1 - before, n - 1)  # i, counted in its group
    miss = ratio((n - s - index).clamp_min(0), n - index)
    value[rows] = 1 - torch.where(found, miss, 1.0).prod(-1)
    return value


def first_rank(ranking: Ranking, level: float) -> Tensor:
    r"""Expected rank of the first candidate at or above ``level``, infinite if none is retrieved: float64 [query].

    The first of r relevant candidates in a tie group of n candidates behind a others is at rank
    :math:`a + \frac{n + 1}{r + 1}` on average: the mean of the smallest of r numbers drawn from 1 ... n.
    """
    before, beside = ranking.relevant_before_and_in_tie(level)
    rank = ranking.first - 1 + (ranking.tied + 1) / (beside + 1)
    return torch.where(ranking.found(level) & (before == 0), rank, float("inf")).amin(-1)


def reciprocal_rank(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Expected 1 / rank of the first candidate graded at or above ``level``, 0 beyond ``top_k``: float64 [query]."""
    if ranking.untied:
        anywhere = _alone(ranking, level, None)
        return anywhere if top_k is None else only(ranking.hits(level, top_k) > 0, anywhere)
    found, value = ranking.found(level), _alone(ranking, level, top_k)
    if found.shape[1] == 1:
        return value
    before, beside = ranking.relevant_before_and_in_tie(level)
    # In the other queries, the entries of that group. Only these queries need the longer formula.
    several = found & (before == 0) & (beside > 1)
    rows = marked_rows(several)
    several = several[rows]
    at = several.int().argmax(-1, keepdim=True)
    r, s, n, above = (
        x[rows].gather(-1, at).squeeze(-1)
        for x in (beside, ranking.ranks_in_top_k(top_k), ranking.tied, ranking.first - 1)
    )
    longest = min(top_k or ranking.depth, ranking.depth)
    crowded = several.any(-1)
    value[rows] = torch.where(crowded, _first_of_several(n, r, s, above, crowded, longest), value[rows])
    return value


def _first_of_several(n: Tensor, r: Tensor, s: Tensor, above: Tensor, where: Tensor, longest: int) -> Tensor:
    """Expected 1 / rank of the first of r relevant candidates in a tie group of n: float64 [query].

    ``above`` candidates precede the group. Only its first s places count. Rows outside ``where`` have arbitrary values.
    """
    # The longest group bounds the sum over places, if reading its length does not make the host wait.
    if reading_is_free(where):
        longest = min(longest, int(only(where, s).amax())) if len(s) else 0
    total, s, above = torch.zeros_like(n), s.unsqueeze(-1), above.unsqueeze(-1)
    for j, share in first_at(n, r, longest):
        total = total + only(j <= s, share / (above + j)).sum(-1)
    return total


@cached
def _alone(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """The largest expected 1 / rank of an entry graded at or above ``level``: float64 [query].

    It is that of the first one, if the first tie group with relevant candidates has only one of them.
    """
    return only(ranking.found(level), ranking.mean_discount(RECIPROCAL, top_k)).amax(-1)
