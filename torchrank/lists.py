"""The canonical layouts: what the engine ranks, after whatever layout the user has was arranged and checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

# Elements that are ranked in one go. Every temporary of the engine is a few bytes to a few dozen bytes per element,
# so this keeps them, together, under 64 MB however large the batch is.
BLOCK = 2**18


@dataclass(frozen=True, eq=False)
class Pairs:
    """(query, item) pairs in ascending order of query: int64 [pair] each; a query of -1 belongs to none."""

    query: Tensor
    item: Tensor

    def rows(self, start: int, stop: int) -> Pairs:
        """Those of the queries from start to stop, renumbered from 0. Others stay as -1: removing them would sync."""
        if self.query.device.type == "cpu":  # where looking at values costs nothing, and pairs are sorted by query
            first, last = torch.searchsorted(self.query, torch.tensor([start, stop])).tolist()
            return Pairs(self.query[first:last] - start, self.item[first:last])
        inside = (self.query >= start) & (self.query < stop)
        return Pairs(torch.where(inside, self.query - start, -1), self.item)


@dataclass(frozen=True, eq=False)
class Lists:
    """What all canonical layouts share: a batch of queries that can be cut into blocks of queries."""

    #: int64 [kind]: bad values found while arranging
    errors: Tensor
    #: count the bad values that only the engine comes across
    validate: bool

    #: the fields with a row per query
    per_query: ClassVar[tuple[str, ...]] = ()

    @property
    def num_queries(self) -> int:
        """How many queries are in the batch."""
        return len(getattr(self, self.per_query[0]))

    @property
    def query_size(self) -> int:
        """Elements that are made for one query, which decides how many queries are ranked in one go."""
        raise NotImplementedError

    def rows(self, start: int, stop: int) -> Lists:
        """The queries from start to stop."""
        cut: dict[str, Any] = {name: getattr(self, name) for name in self.per_query}
        cut = {name: None if x is None else x[start:stop] for name, x in cut.items()}
        pairs: Pairs | None = getattr(self, "exclude", None)
        if pairs is not None:
            cut["exclude"] = pairs.rows(start, stop)
        return replace(self, **cut)

    def blocks(self) -> Iterator[Lists]:
        """The batch in pieces of bounded size. At least one piece, the errors in the first."""
        step = max(1, BLOCK // max(1, self.query_size))
        if step >= self.num_queries:
            yield self
            return
        for start in range(0, self.num_queries, step):
            block = self.rows(start, min(start + step, self.num_queries))
            yield block if start == 0 else replace(block, errors=torch.zeros_like(self.errors))


@dataclass(frozen=True, eq=False)
class DenseLists(Lists):
    """A score and a grade for every candidate."""

    #: floating [query, candidate]; -inf = not retrieved
    scores: Tensor
    #: [query, candidate]
    grade: Tensor
    #: bool [query, candidate], False = no candidate; None = all are
    mask: Tensor | None = None
    #: [query, candidate]: larger ranks first among equal scores
    tie_break: Tensor | None = None
    #: pairs that are no candidates, unless relevant
    exclude: Pairs | None = None

    per_query = ("scores", "grade", "mask", "tie_break")

    @property
    def query_size(self) -> int:
        return self.scores.shape[1]


@dataclass(frozen=True, eq=False)
class CatalogueLists(Lists):
    """Scores over a catalogue of which a few items per query are judged."""

    #: floating [query, item]; -inf = not retrieved
    scores: Tensor
    #: int64 [query, entry]: columns of the judged items; negative = padding
    items: Tensor
    #: [query, entry]
    grade: Tensor
    mask: Tensor | None = None
    tie_break: Tensor | None = None
    exclude: Pairs | None = None

    per_query = ("scores", "items", "grade", "mask", "tie_break")

    @property
    def query_size(self) -> int:
        return self.items.shape[1]


@dataclass(frozen=True, eq=False)
class EmbeddedLists(Lists):
    """A catalogue whose scores are dot products, made block by block and never as a whole."""

    #: floating [query, dimension]
    queries: Tensor
    #: floating [item, dimension]
    catalogue: Tensor
    items: Tensor
    grade: Tensor
    exclude: Pairs | None = None

    per_query = ("queries", "items", "grade")

    @property
    def query_size(self) -> int:
        return max(1, self.catalogue.shape[0] // 32)  # only the scores themselves: the engine counts them in tiles


@dataclass(frozen=True, eq=False)
class RankedIds(Lists):
    """Ids in the order in which they were ranked, and the ids that are judged."""

    #: int64 [query, position], best first; negative = padding
    ids: Tensor
    #: int64 [query, entry]; negative = padding
    items: Tensor
    #: [query, entry]
    grade: Tensor
    mask: Tensor | None = None
    exclude: Pairs | None = None

    per_query = ("ids", "items", "grade", "mask")

    @property
    def query_size(self) -> int:
        return self.ids.shape[1] * self.items.shape[1]  # each id against each judged one


@dataclass(frozen=True, eq=False)
class FlatRows(Lists):
    """One row per candidate, each naming its query: ranked as a whole, by one sort."""

    #: floating [row]; -inf = not retrieved
    scores: Tensor
    #: [row]
    grade: Tensor
    #: int64 [row], 0 ... Q - 1
    query: Tensor
    #: Q
    queries: int
    mask: Tensor | None = None
    tie_break: Tensor | None = None

    @property
    def num_queries(self) -> int:
        return self.queries

    def blocks(self) -> Iterator[Lists]:
        yield self  # one sort over all rows cannot be taken apart
