"""The fields of a ranking: an interval of ranks for each judged candidate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from torchrank.hardware.devices import constant, every, scalar
from torchrank.ranking.sampled import Draw

# Fields of a ranking that few rankings have, [query, entry, ...], and all fields with a column per entry.
FURTHER = ("subtopics", "partly_judged", "changed", "costs")
PER_ENTRY = ("first", "tied", "grade", "valid", *FURTHER)


@dataclass(frozen=True, eq=False)
class RankIntervals:
    """One row of entries per query: its judged candidates in rank order, unretrieved ones last, then padding.

    Ties make a rank an interval: an entry's rank is uniform on [first, first + tied - 1].
    """

    #: float64 [query, entry]: best rank of the entry, 1 + number of candidates with a higher score
    first: Tensor
    #: float64 [query, entry]: size of its tie group, itself included; 1 = no tie, 0 = not retrieved
    tied: Tensor
    #: [query, entry]: relevance grade in the user's dtype; negative = unjudged
    grade: Tensor
    #: bool [query, entry]: False for padding
    valid: Tensor
    #: float64 [query]: length of the ranked list
    num_candidates: Tensor
    #: int64 [kind]: counters of bad values, see ``torchrank/layouts/bad_values.py``
    errors: Tensor
    #: upper bound on the ranks of tied candidates, known from shapes, so that tables over ranks need not read values
    depth: int
    #: the last exact rank: larger ranks are only known to be larger; None = all ranks are exact
    reach: int | None = None
    #: [query, judged]: grades of all judged candidates, 0 = padding; None = all judged candidates are entries
    pool: Tensor | None = None
    #: whether every retrieved candidate up to ``reach`` is an entry, so that an entry's place in its row is its rank
    complete: bool = False
    #: int64 [query]: number of each query in its batch; None = consecutive
    queries: Tensor | None = None
    #: whether every candidate is an entry, retrieved or not
    all_candidates: bool = False
    #: whether irrelevant candidates were left out
    only_relevant: bool = False
    #: whether the only entry of each query is its label: a relevant candidate of grade 1, or padding
    of_labels: bool = False
    #: [query, entry, subtopic]: grade for each subtopic; ``grade`` is the largest of them; None = no subtopics
    subtopics: Tensor | None = None
    #: bool [query, entry]: the entry is a group with judged and unjudged candidates, so that its ``grade``, the largest
    #: of the judged ones, is a lower bound; None = there is no such group
    partly_judged: Tensor | None = None
    #: float64 [query, entry]: the share of the entry in the changed documents of its query; None = not given
    changed: Tensor | None = None
    #: float64 [query, subtopic]: probability, or another weight, of each subtopic; None = all are equally likely
    intents: Tensor | None = None
    #: float64 [query, entry]: cost of each candidate, and every candidate is an entry; None = unknown
    costs: Tensor | None = None
    #: bool [query]: the query does not count in any mean; None = all queries count
    ignored: Tensor | None = None
    #: draw of negatives, over which measures take their expectation; None = all candidates are ranked
    draw: Draw | None = None

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
        placed: bool = False,
        **others: Any,
    ) -> Self:
        """Make a ranking of entries in any order: sort each row by rank.

        Entries that are not retrieved get the rank behind their list. Padding follows them. ``placed``: ``first`` is
        already that rank for both. ``others`` are further fields.
        """
        # The bound from shapes is far too large for most data, which has no ties.
        if first.is_cpu and depth > 1:
            depth = depth_of(first, tied)
        if not placed:
            first = torch.where(tied > 0, first, rank_after_list(num_candidates).unsqueeze(-1))
        if first.shape[-1] > 1:
            order = torch.where(valid, first, scalar(math.inf, first.dtype, first.device)).argsort(dim=-1, stable=True)
            first, tied, grade, valid = (x.gather(-1, order) for x in (first, tied, grade, valid))
            others |= {name: of_entries(x, order) for name in FURTHER if (x := others.get(name)) is not None}
        return cls(first, tied, grade, valid, num_candidates, errors, depth, reach, queries=queries, **others)

    @property
    def joined(self) -> Self:
        """This ranking as one rectangle."""
        return self

    def take(self, queries: Tensor | slice) -> Self:
        """The ranking of some queries, given by their rows in this ranking, int64 [query], or as a slice."""
        others = ("num_candidates", "pool", "queries", "intents", "ignored")
        taken = {}
        for field in (*PER_ENTRY, *others):
            if (x := getattr(self, field)) is not None:
                taken[field] = x[queries]
        return replace(self, **taken)


def run_starts(x: Tensor) -> Tensor:
    """bool [query, entry], like ``x``: an element differs from the element before it in its row, or is the first."""
    first = scalar(True, torch.bool, x.device).expand(len(x), 1)
    return torch.cat([first, x[:, 1:] != x[:, :-1]], -1)[:, : x.shape[1]]


def run_bounds(begins: Tensor) -> Tensor:
    """The columns where the run of each element starts and stops: int64 [2, query, entry].

    ``begins`` is bool [query, entry], True where a run begins.
    """
    position = columns(begins.shape[-1] + 1, begins.device)
    if begins.is_cpu and every(begins):
        return position.unfold(0, 2, 1).T.unsqueeze(1).expand(2, *begins.shape)
    # Runs are numbered from 1. The table maps a run to its first column. Slot 0 absorbs the elements that do not begin
    # a run; slots without a run hold the width, so that the last run stops there.
    run, width = begins.cumsum(-1), begins.shape[-1]
    table = position.new_full((len(begins), width + 2), width)
    table.scatter_(-1, run * begins, position[:-1].expand_as(begins))
    return table.unfold(-1, 2, 1).movedim(-1, 0).gather(-1, run.expand(2, -1, -1))


@constant
def columns(number: int, device: torch.device) -> Tensor:
    """0, 1, ..., ``number`` - 1: int64 [number]."""
    return torch.arange(number, device=device)


def depth_of(first: Tensor, tied: Tensor) -> int:
    """The largest rank of a tied entry, 1 if no entry is tied. Reads values."""
    alone = tied <= 1
    return 1 if every(alone) else int((first + tied)[~alone].max()) - 1


def rank_after_list(num_candidates: Tensor) -> Tensor:
    """The rank behind a list; larger than every rank if the length of the list is unknown (NaN)."""
    return num_candidates.nan_to_num(nan=2.0**60) + 1


def of_entries(x: Tensor, order: Tensor) -> Tensor:
    """Reorder a field [query, entry] or [query, entry, subtopic] by an order of the entries, int64 [query, entry]."""
    return x.gather(1, order if x.dim() == 2 else order.unsqueeze(-1).expand(-1, -1, x.shape[2]))
