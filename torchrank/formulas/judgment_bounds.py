"""Bounds of a measure over all possible judgments of its unjudged candidates.

Each of the n unjudged candidates (grade below 0) is either irrelevant or relevant. A relevant one has grade 1, or the
metric's ``relevance_level`` if that is larger. A group with judged and unjudged candidates has the largest grade of the
judged ones, or that of a relevant candidate if that is larger.

A measure is monotone if moving a relevant candidate up never makes it worse. For a monotone measure assume that m of
the unjudged candidates are relevant. The extremes are then reached when these are the m best-ranked and the m
worst-ranked ones. So two values for each m are enough, instead of one for each of the 2 ** n possibilities.

A measure divided by its number of hits up to a cutoff can get worse, but only if this number changes. The m best-ranked
and the m worst-ranked candidates cover all numbers of hits that are possible, so the bounds still hold. If a tie at
the cutoff makes the number of hits random, :class:`torchrank.MAP` raises ValueError. Discounts must not increase with
the rank.

The measure is evaluated once for m = 0, and twice for each further m up to the largest n of a query. For 8,000 lists of
40 candidates, half of them unjudged, this takes 50 to 100 times as long as one evaluation. If every rank matters, lists
of more than LONGEST candidates raise ValueError.

Long lists need a cutoff k. For most measures only the number of relevant candidates after the cutoff matters, and a
larger number never raises the value: recall falls, and precision stays as it is. Assume that t unjudged candidates can
be among the first k; with ties at the cutoff, t can be more than k. The smallest value has all candidates behind the
cutoff relevant. The largest one has none of them relevant, or the first one, so that the query is not empty. So 2 t + 3
evaluations are enough, and they find the same extremes.

If grades matter, partly judged groups of different grades below 1 have different gains to win. Each grade of a query
then has numbers m of its own, and all their combinations are tried. A query with more than LONGEST combinations has a
wider bound, which still covers all judgments: the end of the measure's range. Sums of gains that grow with the grade,
as DCG, are exact there, too: all candidates are relevant, or none.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torchrank.hardware.devices import greatest, scalar
from torchrank.ranking.ranking import Ranking

# Clause of an error message: the bounds of queries are not bounds of such a mean, because the weights change as well.
UNEQUAL = "whose mean weighs queries by their unjudged candidates"


# Longest list of a measure that reads all ranks, and most combinations of a query with different grades below 1. If all
# candidates of the list are unjudged, its bounds take half a minute.
LONGEST = 2**14

# Largest number of unjudged candidates of a tie group of which all sets are tried.
MOST_TIED = 8

# Number of entries that are evaluated at once, if there are choices enough.
MOST_ELEMENTS = 2**16


def bound(
    values: Callable[[Ranking], tuple[Tensor, Tensor]],
    ranking: Ranking,
    upper: bool,
    level: float | None,
    reach: int | Tensor | None,
    label: str,
    tied: Tensor | None = None,
    ends: tuple[float, float] | None = None,
) -> tuple[Tensor, Tensor]:
    """The smallest or largest value of each query, and whether it is empty under all judgments.

    Args:
        values: function that returns the value of each query, float64 [query], and whether it is empty, bool [query].
        ranking: a ranking with an entry for every candidate.
        upper: return the largest value rather than the smallest.
        level: the metric's ``relevance_level``; None = the grades of relevant candidates matter, too.
        reach: the last rank that matters beside the number of relevant candidates; None = every rank matters.
        label: name of the measure for the error message.
        tied: bool [query, entry]: a tie group whose candidates cannot stand for each other, so that all sets of up to
            MOST_TIED unjudged candidates of the group are tried.
        ends: the range of the values; None = the measure is a sum of gains.

    Returns:
        float64 [query] and bool [query].

    Raises:
        ValueError: every rank matters, and the lists have more than LONGEST candidates.
    """
    worth = max(1, level or 1)  # the grade of an unjudged candidate that is assumed to be relevant
    unjudged, partly = ranking.valid & (ranking.grade < 0), ranking.partly_judged
    least = None
    if partly is not None:
        unjudged = unjudged | (ranking.valid & partly & (ranking.grade < worth))
        if level is None and ranking.grade.is_floating_point():  # those of a grade above 0 have less to gain
            least = ranking.grade.clamp_min(0)
    inside = None if reach is None else ranking.retrieved() & (ranking.first <= reach)
    if inside is None and unjudged.shape[1] > LONGEST:
        raise ValueError(
            f"Expected lists of at most {LONGEST:,} candidates for {label}, got {unjudged.shape[1]:,}; pass"
            " unjudged='irrelevant' or 'condensed', or for most measures top_k"
        )
    extremes, wide = _extremes(unjudged, least, inside)
    choices = itertools.chain(extremes, () if tied is None else _sets(unjudged, tied))
    # Small batches are evaluated under several choices at once, as if these were more queries.
    per_step = max(1, MOST_ELEMENTS // max(1, unjudged.numel()))
    extreme = torch.fmax if upper else torch.fmin  # which skip NaN, the value of an empty query under "skip"
    bounds: list[Tensor] = []
    nothing: list[Tensor] = []
    while chosen := list(itertools.islice(choices, per_step)):
        relevant = torch.stack(chosen)
        queries = torch.arange(ranking.num_queries, device=unjudged.device)
        repeated = ranking if len(chosen) == 1 else ranking.take(queries.repeat(len(chosen)))
        value, empty = values(_judged(repeated, relevant.flatten(0, -2), worth))
        bounds = [functools.reduce(extreme, [*bounds, *value.view(len(chosen), -1)])]
        nothing = [functools.reduce(torch.logical_and, [*nothing, *empty.view(len(chosen), -1)])]
    value = bounds[0]
    if wide is not None and ends is not None:
        value = torch.where(wide, extreme(value, scalar(ends[upper], value.dtype, value.device)), value)
    return value, nothing[0]


def _extremes(unjudged: Tensor, least: Tensor | None, inside: Tensor | None) -> tuple[Iterator[Tensor], Tensor | None]:
    """The choices of relevant candidates that can have the smallest or largest value.

    Args:
        unjudged: the candidates that can be relevant, bool [query, entry].
        least: their grades if they are not, [query, entry], of which each has extremes of its own; None = 0.
        inside: bool [query, entry], the entries that can be up to the cutoff; None = every rank matters.

    Returns:
        bool [query, entry] for each choice; and bool [query], the queries with more than LONGEST combinations, of which
        only the choices are tried that do not distinguish grades; None = there are none.
    """
    near = unjudged if inside is None else unjudged & inside
    number, most, wide = unjudged.cumsum(-1), unjudged.shape[1], None
    choices = torch.minimum(near.sum(-1, keepdim=True) + 2, unjudged.sum(-1, keepdim=True) + 1)
    step, size = torch.ones_like(choices), choices
    if least is not None:
        most = min(2**most, max(LONGEST, most))
        # Candidates of one grade after the other, the best rank first; those that are judged come last.
        ordered, order = torch.where(unjudged, least, math.inf).sort(dim=-1, stable=True)
        begins = torch.nn.functional.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0))
        kind, place = (
            torch.zeros_like(number).scatter(-1, order, x.cumsum(-1)) for x in (begins, torch.ones_like(number))
        )
        up_to_cutoff, of_kind = (torch.zeros_like(number).scatter_add(-1, kind, x.long()) for x in (near, unjudged))
        sizes = torch.minimum(up_to_cutoff + 2, of_kind + 1)
        wide = (sizes.float().prod(-1, keepdim=True) > LONGEST) & ((of_kind > 0).sum(-1, keepdim=True) > 1)
        # The n-th combination: n is a number with a digit for each grade, ``size`` is the base of the digit.
        number = torch.where(wide, number, place - (of_kind.cumsum(-1) - of_kind).gather(-1, kind))
        size = torch.where(wide, choices, sizes.gather(-1, kind))
        step = torch.where(wide, 1, (sizes.cumprod(-1) // sizes).gather(-1, kind))
        choices = torch.where(wide, choices, sizes.prod(-1, keepdim=True))
    total = max(1, greatest(choices, most + 1, most))

    def each() -> Iterator[Tensor]:
        for best in (True, False):
            # The last of the worst-ranked choices is no extreme: none is relevant, as in the first choice of all, or
            # one after the cutoff is not.
            for n in range(total if best else total - 1):
                chosen = n if least is None else n // step % size
                yield unjudged & (number <= chosen if best else number > chosen)

    return each(), None if wide is None else wide.squeeze(-1)


def _sets(unjudged: Tensor, tied: Tensor) -> Iterator[Tensor]:
    """All sets of unjudged candidates of a tie group, with all before the group or all after it: [query, entry]."""
    place, behind = (unjudged & tied).cumsum(-1), tied.cumsum(-1) > 0
    for chosen in range(2 ** int(place.max())):
        some = tied & (chosen >> (place - 1).clamp_min(0) & 1 == 1)
        yield unjudged & (~behind | some)
        yield unjudged & (behind & ~tied | some)


def _judged(ranking: Ranking, relevant: Tensor, worth: float) -> Ranking:
    """The ranking with grade ``worth`` for the entries ``relevant``, and grade 0 for all other unjudged entries."""
    grade = ranking.grade
    if not grade.is_floating_point():
        worth = math.ceil(worth)  # the smallest integer at or above the level
        grade = grade if worth <= 127 else grade.to(ranking.first.dtype)  # every integer dtype can hold 127
    grade = torch.where(relevant, worth, grade.clamp_min(0)).to(grade.dtype)
    return replace(ranking, grade=grade, partly_judged=None)
