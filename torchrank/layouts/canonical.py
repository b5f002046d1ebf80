"""The six canonical layouts, which are the input of the engines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchrank.hardware import costs
from torchrank.layouts.cutting import rectangles
from torchrank.layouts.items import JudgedItems, Padded, Pairs

# Elements of temporaries in other rooms.
BLOCK = costs.now.block

# Grades of unjudged candidates: in the pool of candidates selected for judging, and outside this pool.
IN_THE_POOL, OUTSIDE_THE_POOL = -1, -2


@dataclass(frozen=True)
class Need:
    """The part of a ranking that measures will read, so that an engine can leave out the rest."""

    #: the largest rank that must be exact; None = all ranks
    reach: int | None = None
    #: only the candidates with a positive grade
    relevant: bool = False
    #: every candidate, even if the layout names only the judged ones
    all_candidates: bool = False
    #: number of metrics that read the ranking
    metrics: int = 1

    def __or__(self, other: Need) -> Need:
        """The smallest need that contains both."""
        unbounded = self.reach is None or other.reach is None
        reach = None if unbounded else max(self.reach, other.reach)  # type: ignore[type-var]
        every = self.all_candidates or other.all_candidates
        return Need(reach, self.relevant and other.relevant, every, self.metrics + other.metrics)


ALL = Need()


@dataclass(frozen=True, eq=False)
class Layout:
    """Base of the canonical layouts: a batch of queries that can be cut into chunks of queries."""

    #: int64 [kind]: counters of bad values found in the arguments
    errors: Tensor
    #: whether the engine counts bad values too
    validate: bool

    #: names of the fields with a row per query
    per_query: ClassVar[tuple[str, ...]] = ()
    #: a chunk has 1 / kept of the room if its ranking keeps all elements, which takes memory beside the temporaries
    kept: ClassVar[int] = 2

    @functools.cached_property
    def num_queries(self) -> int:
        """Number of queries in the batch."""
        return len(getattr(self, self.per_query[0]))

    @property
    def ignored(self) -> Tensor | None:
        """bool [query]: the query does not count, because of its label; None = all count."""
        judged: JudgedItems | None = getattr(self, "judged", None)
        return None if judged is None else judged.ignored

    @functools.cached_property
    def elements(self) -> Tensor | int:
        """Elements of temporaries that each query takes alone: int64 [query] on the CPU, or an int for every query."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Least number of elements of each query if all its candidates become entries."""
        return 1

    @property
    def room(self) -> int:
        """Number of elements for which chunks of queries are made; a chunk can have a quarter more."""
        return costs.now.block

    @property
    def reads(self) -> int:
        """Number of scores, or ids, of each query."""
        return 0

    @functools.cached_property
    def size(self) -> int:
        """Number of scores, or ids, of all queries."""
        return self.num_queries * self.reads

    def rows(self, start: int, stop: int) -> Layout:
        """The queries from ``start`` to ``stop``."""
        cut: dict[str, Any] = {name: getattr(self, name) for name in self.per_query}
        cut = {name: None if x is None else x[start:stop] for name, x in cut.items()}
        pairs: Pairs | None = getattr(self, "exclude", None)
        if pairs is not None:
            cut["exclude"] = pairs.rows(start, stop)
        return replace(self, **cut)

    def blocks(self, need: Need) -> Iterable[Layout]:
        """Cut the batch into chunks of queries of bounded size: at least one, the first with the counters."""
        elements, room = self.elements, self.room
        room = room // min(self.kept, 2 + need.metrics // costs.now.several) if need.reach is None else room
        if isinstance(elements, int):
            elements, queries = max(1, elements, self.width if need.all_candidates else 0), self.num_queries
            # Chunks of equal size, up to a quarter larger than the room: a small last one has as many operations.
            most = max(1, (room + room // 4) // elements)
            if queries <= most:
                return [self]
            step = -(-queries // -(-queries // most))
            return self._blocks([(start, min(start + step, queries)) for start in range(0, queries, step)])
        return self._blocks(rectangles(elements.clamp_min(self.width) if need.all_candidates else elements, room))

    def _blocks(self, cuts: list[tuple[int, int]]) -> Iterator[Layout]:
        if len(cuts) < 2:
            yield self
            return
        for start, stop in cuts:
            block = self.rows(start, stop)
            yield block if start == 0 else replace(block, errors=torch.zeros_like(self.errors))


@dataclass(frozen=True, eq=False)
class DenseLayout(Layout):
    """Scores and grades for every candidate."""

    # Many metrics derive dozens of quantities from each ranking. If all of them took more than 64 MB, the C library
    # would return freed memory to the system, and fetch it again for the next chunk.
    kept: ClassVar[int] = 4

    #: floating [query, candidate]; -inf = not retrieved
    scores: Tensor
    #: [query, candidate]
    grade: Tensor
    #: bool [query, candidate], False = padding; None = no padding
    mask: Tensor | None = None
    #: [query, candidate]: the larger value ranks first among equal scores
    tie_break: Tensor | None = None
    #: pairs that are no candidates, unless relevant
    exclude: Pairs | None = None
    #: [query, candidate, subtopic]: grade for each subtopic; ``grade`` is the largest of them
    subtopics: Tensor | None = None

    per_query = ("scores", "grade", "mask", "tie_break", "subtopics")

    @property
    def room(self) -> int:
        # With padding, lists have ranks of their own, which take more memory than ranks that all lists share.
        block = costs.now.block
        return block if self.mask is None and self.exclude is None else int(block * costs.now.padded_block)

    @property
    def reads(self) -> int:
        return self.scores.shape[1]

    @functools.cached_property
    def elements(self) -> int:
        return self.scores.shape[1] * (1 if self.subtopics is None else max(1, self.subtopics.shape[2]))


@dataclass(frozen=True, eq=False)
class CatalogueLayout(Layout):
    """Scores over a catalogue in which a few items per query are judged."""

    #: floating [query, item]; -inf = not retrieved
    scores: Tensor
    #: the judged items, as columns of the scores
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

    @functools.cached_property
    def elements(self) -> Tensor | int:
        return self.judged.items.shape[1] if isinstance(self.judged, Padded) else self.judged.sizes


@dataclass(frozen=True, eq=False)
class EmbeddedLayout(Layout):
    """A catalogue whose scores are dot products, computed chunk by chunk and never as a whole matrix."""

    #: floating [query, dimension]
    queries: Tensor
    #: floating [item, dimension]: the items of this worker
    catalogue: Tensor
    #: the judged items, numbered in the catalogue of all workers
    judged: JudgedItems
    #: number of items to score at a time
    chunk: int
    exclude: Pairs | None = None
    #: number of this worker's first item
    offset: int = 0
    #: number of items of all workers
    total: int = 0
    #: this worker's :class:`Shard` of the catalogue; None = this process has the whole catalogue
    shard: Any = None
    #: called with the number of products to come, then with -1 after each product
    progress: Callable[[int], None] | None = None
    #: of products of float32 on a GPU: "tf32" or "tf32x3"; None = as torch's setting says
    precision: str | None = None

    per_query = ("queries", "judged")

    @property
    def room(self) -> int:
        return costs.now.product

    @functools.cached_property
    def size(self) -> int:
        return 0 if self.shard is not None else super().size

    @property
    def reads(self) -> int:
        return len(self.catalogue)

    @functools.cached_property
    def elements(self) -> Tensor:
        return (costs.now.judged_item * self.judged.sizes).clamp_min(self.chunk)


@dataclass(frozen=True, eq=False)
class StreamedLayout(Layout):
    """Scores over a catalogue in blocks of columns, given one after the other."""

    #: returns the blocks, floating [query, item] each, from left to right
    scores: Callable[[], Iterable[Tensor]]
    judged: JudgedItems
    dtype: torch.dtype
    #: whether ``scores`` can be called more than once
    again: bool
    exclude: Pairs | None = None

    @functools.cached_property
    def elements(self) -> Tensor:
        return torch.tensor([1], device="cpu")  # each block has all queries, so the batch cannot be cut by queries

    @functools.cached_property
    def size(self) -> int:
        return 0  # unknown before reading; 0 also keeps the user's iterator on the user's thread


@dataclass(frozen=True, eq=False)
class RankedIds(Layout):
    """Ranked lists of ids, best first, and the judged ids."""

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

    @functools.cached_property
    def elements(self) -> Tensor:
        sizes, width = self.judged.sizes, self.ids.shape[1]
        return torch.where(sizes <= costs.now.compared, width * sizes, 2 * (width + sizes))


@dataclass(frozen=True, eq=False)
class FlatRows(Layout):
    """One row per candidate, with the number of its query. All rows are ranked by one sort."""

    #: floating [row]; -inf = not retrieved
    scores: Tensor
    #: [row]
    grade: Tensor
    #: [row], signed integers or uint8: any number for each query
    indexes: Tensor
    mask: Tensor | None = None
    tie_break: Tensor | None = None

    @functools.cached_property
    def elements(self) -> Tensor:
        return torch.tensor([1], device="cpu")  # one sort over all rows, so the batch cannot be cut by queries

    @functools.cached_property
    def size(self) -> int:
        return len(self.scores)
