"""The fields of a ranking: an interval of ranks for each judged candidate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free


@dataclass(frozen=True, eq=False)
class RankIntervals:
    """One row of entries per query: its judged candidates, in rank order, whatever could not be retrieved last.

    An entry's rank is uniform on [first, first + tied - 1]: ties make a rank an interval.
    """

    #: float64 [query, entry]: best rank the entry can have, 1 + number of candidates scored strictly higher
    first: Tensor
    #: float64 [query, entry]: how many candidates share its score, itself included; 1 = no tie, 0 = not retrieved
    tied: Tensor
    #: [query, entry]: relevance grade in the dtype it was given in; negative = unjudged
    grade: Tensor
    #: bool [query, entry]: False for padding
    valid: Tensor
    #: float64 [query]: length of the ranked list
    num_candidates: Tensor
    #: int64 [kind]: bad values met, see :mod:`torchrank.layouts.bad_values`
    errors: Tensor
    #: no tied candidate has a larger rank: a bound from shapes, so that tables over ranks need no look at the values
    depth: int
    #: ranks up to here are exact, any larger one is only known to be larger; None = all are exact
    reach: int | None = None
    #: [query, judged]: grades of all judged candidates, where those beyond ``reach`` are no entries; 0 = padding
    pool: Tensor | None = None
    #: every retrieved candidate is an entry, or every one up to ``reach``: an entry's place in its row is its rank
    complete: bool = False
    #: int64 [query]: the number of each query in its batch, where they are not consecutive
    queries: Tensor | None = None
    #: every candidate is an entry, retrieved or not
    all_candidates: bool = False
    #: what was judged irrelevant was left out
    only_relevant: bool = False
    #: [query, entry, subtopic]: grade for each intent, of which ``grade`` is the largest; None = there are none
    subtopics: Tensor | None = None
    #: bool [query]: the query does not count in any average; None = all do
    ignored: Tensor | None = None

    @classmethod
    def in_rank_order(
        cls,
        first: Tensor,
        tied: Tensor,
        grade: Tensor,
        valid: Tensor,
        num_candidates: Tensor,
        errors: Tensor,
        depth: int,
        reach: int | None = None,
        queries: Tensor | None = None,
        subtopics: Tensor | None = None,
    ) -> Self:
        """Sort each row of entries by rank: those not retrieved one rank behind the list, padding behind these."""
        if reading_is_free(first) and depth > 1:  # most data has no ties
            depth = depth_of(first, tied)
        first = torch.where(tied > 0, first, rank_after_list(num_candidates).unsqueeze(-1))
        if first.shape[-1] > 1:
            order = torch.where(valid, first, float("inf")).argsort(dim=-1, stable=True)
            first, tied, grade, valid = (x.gather(-1, order) for x in (first, tied, grade, valid))
            subtopics = None if subtopics is None else of_entries(subtopics, order)
        return cls(
            first, tied, grade, valid, num_candidates, errors, depth, reach, queries=queries, subtopics=subtopics
        )

    def take(self, queries: Tensor | slice) -> Self:
        """The ranking of some of its queries, given by their numbers here, int64 [query], or as a slice."""
        fields = ("first", "tied", "grade", "valid", "num_candidates", "pool", "queries", "subtopics", "ignored")
        return replace(self, **{f: x[queries] for f in fields if (x := getattr(self, f)) is not None})


def run_starts(x: Tensor) -> Tensor:
    """bool like ``x``, [query, entry]: an element is not equal to the one before it in its row."""
    return torch.cat([x.new_ones((len(x), 1), dtype=torch.bool), x[:, 1:] != x[:, :-1]], -1)[:, : x.shape[1]]


def run_bounds(begins: Tensor) -> tuple[Tensor, Tensor]:
    """Where the run of each element starts and stops in its row: int64, like ``begins``, bool, True where one does."""
    position = torch.arange(begins.shape[-1], device=begins.device)
    if reading_is_free(begins) and begins.all():
        return position.expand_as(begins), (position + 1).expand_as(begins)
    # Runs are numbered from 1, and a table says where each begins; its first place is for what begins none.
    run = begins.cumsum(-1)
    table = position.new_full((len(begins), len(position) + 2), len(position))
    table.scatter_(-1, run * begins, position.expand_as(begins))
    return table.gather(-1, run), table.gather(-1, run + 1)


def depth_of(first: Tensor, tied: Tensor) -> int:
    """The largest rank of what is tied, 1 if nothing is; looks at the values."""
    several = tied > 1
    return int((first + tied)[several].max()) - 1 if bool(several.any()) else 1


def rank_after_list(num_candidates: Tensor) -> Tensor:
    """The rank behind a list; behind every rank there is, if its length is unknown."""
    return num_candidates.nan_to_num(nan=2.0**60) + 1


def of_entries(subtopics: Tensor, order: Tensor) -> Tensor:
    """Grades [query, entry, subtopic] in an order of the entries, int64 [query, entry]."""
    return subtopics.gather(1, order.unsqueeze(-1).expand(-1, -1, subtopics.shape[2]))
