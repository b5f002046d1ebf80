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

The measure is evaluated twice for each m up to the largest n of a query. For 8,000 lists of 40 candidates, half of them
unjudged, this takes 50 to 100 times as long as one evaluation. A list with so many unjudged candidates that it would
take more than a few seconds raises ValueError.

Long lists need a cutoff k. Most measures with a cutoff read only the number of relevant candidates behind it, and in
one direction: recall falls with this number, and precision does not change. Assume that t unjudged candidates can be
among the first k. The candidates behind the cutoff are then all relevant, all irrelevant or, so that a query is not
empty, a single one is relevant. So 2 t + 3 evaluations are enough, and they find the same extremes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free
from torchrank.ranking.ranking import Ranking

# Clause of an error message: the bounds of queries are no bounds of such a mean, because the weights change as well.
UNEQUAL = "whose mean weighs queries by their unjudged candidates"


# Largest number of evaluations times entries of a list, for which the bounds of the list take a few seconds.
MOST = 2**26

# From this number of entries on, an accelerator is waited for, because it would evaluate twice for each entry.
WAITING = 2**10


def bound(
    values: Callable[[Ranking], tuple[Tensor, Tensor]],
    ranking: Ranking,
    upper: bool,
    worth: float,
    reach: int | None = None,
    label: str = "the measure",
) -> tuple[Tensor, Tensor]:
    """The smallest or largest value of each query, and whether it is empty under all judgments.

    Args:
        values: function that returns the value of each query, float64 [query], and whether it is empty, bool [query].
        ranking: a ranking with an entry for every candidate.
        upper: return the largest value rather than the smallest.
        worth: grade of an unjudged candidate that is assumed to be relevant.
        reach: the rank behind which only the number of relevant candidates counts, and in one direction; None = each
            rank counts.
        label: name of the measure for the error message.

    Returns:
        float64 [query] and bool [query].

    Raises:
        ValueError: the list is too long for the number of its unjudged candidates.
    """
    unjudged = ranking.valid & (ranking.grade < 0)
    found, empty = values(_judged(ranking, torch.zeros_like(unjudged), worth))
    for chosen in _extremes(unjudged, None if reach is None else ranking.first <= reach, label):
        value, nothing = values(_judged(ranking, unjudged & chosen, worth))
        # fmax and fmin skip NaN, the value of an empty query under "skip".
        found, empty = torch.fmax(found, value) if upper else torch.fmin(found, value), empty & nothing
    return found, empty


def _extremes(unjudged: Tensor, inside: Tensor | None, label: str) -> Iterator[Tensor]:
    """The choices of relevant candidates that can have the smallest or largest value: bool [query, entry] each.

    ``inside``, bool [query, entry], tells which entries can be up to the cutoff; None = all.
    """
    number = unjudged.cumsum(-1)
    most = number[:, -1:]
    width = unjudged.shape[1]
    readable = len(unjudged) > 0 and (reading_is_free(number) or width >= WAITING)
    last = int(most.max()) if readable and width else width
    near = last if inside is None or not readable else int((unjudged & inside).sum(-1).max())
    rounds = min(2 * last, 2 * near + 3)
    if rounds * width > MOST:
        raise ValueError(
            f"Expected at most {MOST // (2 * width):,} unjudged candidates in a list of {width:,} for {label}, got"
            f" {rounds // 2:,}; pass a smaller top_k if the measure has one, or unjudged='irrelevant' or 'condensed'"
        )
    if rounds == 2 * last:
        for relevant in range(1, last + 1):
            yield number <= relevant
            yield number > most - relevant
        return
    for relevant in range(1, near + 2):
        yield number <= relevant  # the best-ranked ones
    for irrelevant in range(near + 1):
        yield number > irrelevant  # all but the best-ranked ones
    yield number == most  # the worst-ranked one


def _judged(ranking: Ranking, relevant: Tensor, worth: float) -> Ranking:
    """The ranking with grade ``worth`` for the entries ``relevant``, and grade 0 for all other unjudged entries."""
    grade = ranking.grade
    if not grade.is_floating_point():
        worth = math.ceil(worth)  # the smallest integer at or above the level
        grade = grade if worth <= 127 else grade.to(ranking.first.dtype)  # every integer dtype can hold 127
    return replace(ranking, grade=torch.where(relevant, worth, grade.clamp_min(0)).to(grade.dtype))
