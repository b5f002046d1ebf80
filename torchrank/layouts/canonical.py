"""The canonical layouts: what the engine ranks, after whatever layout the user has was arranged and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchrank.hardware.threads import GRAIN, available, beside, each
from torchrank.layouts.cutting import rectangles
from torchrank.layouts.items import JudgedItems, Pairs

# Elements that are ranked in one go. Every temporary of the engine is a few bytes to a few dozen bytes per element,
# so this keeps them, together, under 64 MB however large the batch is.
BLOCK = 2**19


# Grades of candidates without a judgment: in the pool that was to be judged, and outside it.
IN_THE_POOL, OUTSIDE_THE_POOL = -1, -2


# Up to so many judged ids are each compared with every id of their list; more are looked up in the sorted list.
FEW = 16


# Scores that are made in one go, where they are products of embeddings; a judged item takes as much room as so many.
PRODUCT, WEIGHT = 2**24, 2**5


# Scores that are worth a thread of their own.
WORTHWHILE = 2**18


# Indexes that say how flat rows spread over queries.
SAMPLED = 2**12


@dataclass(frozen=True)
class Need:
    """What of a ranking will be looked at, so that an engine can leave out the rest."""

    #: ranks up to this one; None = all
    reach: int | None = None
    #: no more than the candidates with a positive grade
    relevant: bool = False
    #: every candidate, also those that a layout does not name
    all_candidates: bool = False

    def __or__(self, other: Need) -> Need:
        """What either needs."""
        unbounded = self.reach is None or other.reach is None
        reach = None if unbounded else max(self.reach, other.reach)  # type: ignore[type-var]
        return Need(reach, self.relevant and other.relevant, self.all_candidates or other.all_candidates)


ALL = Need()


@dataclass(frozen=True, eq=False)
class Layout:
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
    def ignored(self) -> Tensor | None:
        """bool [query]: a label says that the query does not count; None = all do."""
        judged: JudgedItems | None = getattr(self, "judged", None)
        return None if judged is None else judged.ignored

    @property
    def elements(self) -> Tensor:
        """Elements that are made for each query in a block of one: int64 [query], on the CPU."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Elements of each query at least, where all its candidates are entries."""
        return 1

    @property
    def room(self) -> int:
        """Elements that are made in one go."""
        return BLOCK

    @property
    def reads(self) -> int:
        """Scores, or ids, of each query."""
        return 0

    @property
    def size(self) -> int:
        """Scores, or ids, of all queries."""
        return self.num_queries * self.reads

    @property
    def work(self) -> Tensor:
        """Elements of each query and excluded pairs, on average: int64 [query], on the CPU."""
        pairs: Pairs | None = getattr(self, "exclude", None)
        return self.elements if pairs is None else self.elements + len(pairs.query) // max(1, self.num_queries)

    def parts(self) -> list[Layout]:
        """The batch in parts for threads, the errors in the first; one part if threads would not pay."""
        threads, queries = available(), self.num_queries
        if threads < 2 or queries < 2 or self.errors.device.type != "cpu":
            return [self]
        work = self.work
        total = int(work.sum())
        if total < GRAIN and self.size < WORTHWHILE:
            return [self]
        count = min(queries, max(threads, total // self.room))
        if work.stride(0):  # queries differ
            shares = torch.arange(1, count, device="cpu") * (total / count)
            cuts = sorted({0, queries, *torch.searchsorted(work.cumsum(0), shares.long()).tolist()})
        else:
            cuts = [queries * part // count for part in range(count + 1)]
        first, *rest = (self.rows(*cut) for cut in pairwise(cuts))
        return [first, *(replace(part, errors=torch.zeros_like(self.errors)) for part in rest)]

    def rows(self, start: int, stop: int) -> Layout:
        """The queries from start to stop."""
        cut: dict[str, Any] = {name: getattr(self, name) for name in self.per_query}
        cut = {name: None if x is None else x[start:stop] for name, x in cut.items()}
        pairs: Pairs | None = getattr(self, "exclude", None)
        if pairs is not None:
            cut["exclude"] = pairs.rows(start, stop)
        return replace(self, **cut)

    def blocks(self, need: Need) -> Iterator[Layout]:
        """The batch in pieces of bounded size. At least one piece, the errors in the first."""
        whole = need.reach is None  # then all elements are kept, and not just those up to a rank
        elements = self.elements.clamp_min(self.width) if need.all_candidates else self.elements
        room = self.room // beside()
        cuts = rectangles(elements, room // 2 if whole else room)
        if len(cuts) < 2:
            yield self
            return
        for start, stop in cuts:
            block = self.rows(start, stop)
            yield block if start == 0 else replace(block, errors=torch.zeros_like(self.errors))


@dataclass(frozen=True, eq=False)
class DenseLayout(Layout):
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
    #: [query, candidate, subtopic]: grade for each intent, of which ``grade`` is the largest
    subtopics: Tensor | None = None

    per_query = ("scores", "grade", "mask", "tie_break", "subtopics")

    @property
    def reads(self) -> int:
        return self.scores.shape[1]

    @property
    def elements(self) -> Tensor:
        intents = 1 if self.subtopics is None else self.subtopics.shape[2]
        return torch.tensor(self.scores.shape[1] * max(1, intents), device="cpu").expand(self.num_queries)


@dataclass(frozen=True, eq=False)
class CatalogueLayout(Layout):
    """Scores over a catalogue of which a few items per query are judged."""

    #: floating [query, item]; -inf = not retrieved
    scores: Tensor
    #: columns of the judged items
    judged: JudgedItems
    mask: Tensor | None = None
    tie_break: Tensor | None = None
    exclude: Pairs | None = None

    per_query = ("scores", "judged", "mask", "tie_break")

    @property
    def width(self) -> int:
        return self.scores.shape[1]

    @property
    def reads(self) -> int:
        return self.scores.shape[1]

    @property
    def elements(self) -> Tensor:
        return self.judged.sizes


@dataclass(frozen=True, eq=False)
class EmbeddedLayout(Layout):
    """A catalogue whose scores are dot products, made block by block and never as a whole."""

    #: floating [query, dimension]
    queries: Tensor
    #: floating [item, dimension]: the items of this worker
    catalogue: Tensor
    #: numbers in the catalogue of all workers
    judged: JudgedItems
    #: items to score at a time
    chunk: int
    exclude: Pairs | None = None
    #: number of this worker's first item, and how many there are altogether
    offset: int = 0
    total: int = 0
    #: what sums and gathers over the workers; None = the catalogue is here as a whole
    shard: Any = None
    #: called with the number of products to come, then with -1 after each
    progress: Callable[[int], None] | None = None

    per_query = ("queries", "judged")

    @property
    def room(self) -> int:
        return PRODUCT

    def parts(self) -> list[Layout]:
        # Workers of a sharded catalogue wait for each other once a block, in the same order.
        return [self] if self.shard is not None else super().parts()

    @property
    def size(self) -> int:
        return 0 if self.shard is not None else super().size

    @property
    def reads(self) -> int:
        return len(self.catalogue)

    @property
    def elements(self) -> Tensor:
        return (WEIGHT * self.judged.sizes).clamp_min(self.chunk)


@dataclass(frozen=True, eq=False)
class StreamedLayout(Layout):
    """Scores over a catalogue that come some columns at a time."""

    #: gives floating [query, item] blocks from left to right
    scores: Callable[[], Iterable[Tensor]]
    judged: JudgedItems
    dtype: torch.dtype
    #: whether ``scores`` can be called again
    again: bool
    exclude: Pairs | None = None

    @property
    def elements(self) -> Tensor:
        return torch.tensor([1], device="cpu")  # columns come for all queries

    @property
    def size(self) -> int:
        return 0  # not known yet, and the user's iterator stays on the user's thread

    def parts(self) -> list[Layout]:
        return [self]


@dataclass(frozen=True, eq=False)
class RankedIds(Layout):
    """Ids in the order in which they were ranked, and the ids that are judged."""

    #: int64 [query, position], best first; negative = padding
    ids: Tensor
    judged: JudgedItems
    mask: Tensor | None = None
    exclude: Pairs | None = None

    per_query = ("ids", "judged", "mask")

    @property
    def width(self) -> int:
        return self.ids.shape[1]

    @property
    def reads(self) -> int:
        return self.ids.shape[1]

    @property
    def elements(self) -> Tensor:
        sizes, width = self.judged.sizes, self.ids.shape[1]
        return torch.where(sizes <= FEW, width * sizes, 2 * (width + sizes))


@dataclass(frozen=True, eq=False)
class FlatRows(Layout):
    """One row per candidate, each naming its query: ranked as a whole, by one sort."""

    #: floating [row]; -inf = not retrieved
    scores: Tensor
    #: [row]
    grade: Tensor
    #: signed integers or uint8 [row], any numbers
    indexes: Tensor
    mask: Tensor | None = None
    tie_break: Tensor | None = None

    @property
    def elements(self) -> Tensor:
        return torch.tensor([1], device="cpu")  # one sort over all rows cannot be taken apart

    @property
    def size(self) -> int:
        return len(self.scores)

    @property
    def work(self) -> Tensor:
        return torch.tensor([len(self.scores)], device="cpu")

    def parts(self) -> list[Layout]:
        """Ranges of indexes with similar numbers of rows, each for one thread."""
        threads, indexes = available(), self.indexes
        if threads < 2 or len(indexes) < GRAIN or indexes.device.type != "cpu":
            return [self]
        found = indexes[:: max(1, len(indexes) // SAMPLED)].sort().values
        bounds = found[torch.arange(1, threads, device="cpu") * len(found) // threads].unique()
        fields = ("scores", "grade", "indexes", "mask", "tie_break")
        given = {name: x for name in fields if (x := getattr(self, name)) is not None}
        if bool((indexes[1:] >= indexes[:-1]).all()):
            cuts = [0, *torch.searchsorted(indexes, bounds).tolist(), len(indexes)]
            split = [{name: x[start:stop] for name, x in given.items()} for start, stop in pairwise(cuts)]
        else:
            place = torch.bucketize(indexes, bounds, right=True, out_int32=True)
            split = each(
                lambda part: {
                    name: x[rows] for rows in [(place == part).nonzero().squeeze(-1)] for name, x in given.items()
                },
                range(len(bounds) + 1),
            )
        first, *rest = [replace(self, **fields) for fields in split if len(fields["indexes"])]
        return [first, *(replace(part, errors=torch.zeros_like(self.errors)) for part in rest)]
