"""Bounds of a measure over all possible judgments of its unjudged candidates.

Each of the n unjudged candidates (grade below 0) is either irrelevant or relevant. A relevant one has grade 1, or the
metric's ``relevance_level`` if that is larger.

A measure is monotone if moving a relevant candidate up never makes it worse. For a monotone measure assume that m of
the unjudged candidates are relevant. The extremes are then reached when these are the m best-ranked and the m
worst-ranked ones. So two values for each m are enough, instead of one for each of the 2 ** n possibilities.

A measure divided by its number of hits up to a cutoff can get worse, but only if this number changes. The m best-ranked
and the m worst-ranked candidates cover all numbers of hits that are possible, so the bounds still hold. If a tie at
the cutoff makes the number of hits random, :class:`torchrank.MAP` raises ValueError. Discounts must not increase with
the rank.

The measure is evaluated twice for each m up to the largest n of a query; on an accelerator, up to the number of
entries. For 8,000 lists of 40 candidates, half of them unjudged, this takes 50 to 100 times as long as one evaluation.
Bounds are for lists of tens or hundreds of candidates, not for catalogues.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free
from torchrank.ranking.ranking import Ranking

# Clause of an error message: the bounds of queries are no bounds of such a mean, because the weights change as well.
UNEQUAL = "whose mean weighs queries by their unjudged candidates"


def bound(
    values: Callable[[Ranking], tuple[Tensor, Tensor]], ranking: Ranking, upper: bool, worth: float
) -> tuple[Tensor, Tensor]:
    """The smallest or largest value of each query, and whether it is empty under all judgments.

    Args:
        values: function that returns the value of each query, float64 [query], and whether it is empty, bool [query].
        ranking: a ranking with an entry for every candidate.
        upper: return the largest value rather than the smallest.
        worth: grade of an unjudged candidate that is assumed to be relevant.

    Returns:
        float64 [query] and bool [query].
    """
    unjudged = ranking.valid & (ranking.grade < 0)
    number = unjudged.cumsum(-1)
    most = number[:, -1:]
    found, empty = values(_judged(ranking, torch.zeros_like(unjudged), worth))
    on_cpu = reading_is_free(found)
    for relevant in range(1, (int(most.max()) if on_cpu and len(most) else unjudged.shape[1]) + 1):
        for chosen in (number <= relevant, number > most - relevant):
            value, nothing = values(_judged(ranking, unjudged & chosen, worth))
            # fmax and fmin skip NaN, the value of an empty query under "skip".
            found, empty = torch.fmax(found, value) if upper else torch.fmin(found, value), empty & nothing
    return found, empty


def _judged(ranking: Ranking, relevant: Tensor, worth: float) -> Ranking:
    """The ranking with grade ``worth`` for the entries ``relevant``, and grade 0 for all other unjudged entries."""
    grade = ranking.grade
    if not grade.is_floating_point():
        worth = math.ceil(worth)  # the smallest integer at or above the level
        grade = grade if worth <= 127 else grade.to(ranking.first.dtype)  # every integer dtype can hold 127
    return replace(ranking, grade=torch.where(relevant, worth, grade.clamp_min(0)).to(grade.dtype))
