"""The six canonical layouts, which are the input of the engines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchrank.hardware import costs
from torchrank.layouts.items import JudgedItems, Pairs

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
    def size(self) -> int:
        """Number of scores, or ids, of all queries."""
        return getattr(self, self.per_query[0]).numel()

    def rows(self, start: int, stop: int) -> Layout:
        """The queries from ``start`` to ``stop``."""
        cut: dict[str, Any] = {name: getattr(self, name) for name in self.per_query}
        cut = {name: None if x is None else x[start:stop] for name, x in cut.items()}
        pairs: Pairs | None = getattr(self, "exclude", None)
        if pairs is not None:
            cut["exclude"] = pairs.rows(start, stop)
        return replace(self, **cut)


@dataclass(frozen=True, eq=False)
class DenseLayout(Layout):
    """Scores and grades for every candidate."""

    #: floating [query, candidate]; -inf = not retrieved
    scores: Tensor
    #: [query, candidate]
    grade: Tensor
    #: bool [query, candidate], False = padding; None = no padding
    mask: Tensor | None
    #: [query, candidate]: the larger value ranks first among equal scores
    tie_break: Tensor | None = None
    #: pairs that are not candidates, unless relevant
    exclude: Pairs | None = None
    #: [query, candidate, subtopic]: grade for each subtopic; ``grade`` is the largest of them
    subtopics: Tensor | None = None
    #: bool [query, candidate]: a group with a judged and an unjudged candidate; None = there is no such group
    partly_judged: Tensor | None = None
    #: bool [query]: the query does not count; None = all count
    ignored: Tensor | None = None
    #: float64 [query, candidate]: the cost of each candidate, for cutoffs by cost
    costs: Tensor | None = None

    per_query = ("scores", "grade", "mask", "tie_break", "subtopics", "partly_judged", "ignored", "costs")


@dataclass(frozen=True, eq=False)
class CatalogueLayout(Layout):
    """Scores over a catalogue in which a few items per query are judged."""

    #: floating [query, item]; -inf = not retrieved
    scores: Tensor
    #: the judged items, as columns of the scores
    judged: JudgedItems
    mask: Tensor | None
    tie_break: Tensor | None
    exclude: Pairs | None
    #: as of :class:`DenseLayout`
    costs: Tensor | None = None

    per_query = ("scores", "judged", "mask", "tie_break", "costs")


def signs(bits: Tensor) -> Tensor:
    """The bits of each byte as 1 and -1: int8 [row, 8 * byte], from uint8 [row, byte]."""
    place = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return ((bits.unsqueeze(-1) >> place & 1).flatten(1) * 2).to(torch.int8) - 1


@dataclass(frozen=True, eq=False)
class EmbeddedLayout(Layout):
    """A catalogue whose scores are dot products, computed chunk by chunk and never as a whole matrix."""

    #: floating [query, dimension]; also if the catalogue has integers
    queries: Tensor
    #: [item, dimension]: the items of this worker, as the queries or in int8; or uint8 [item, byte], as :func:`signs`
    catalogue: Tensor
    #: the judged items, numbered in the catalogue of all workers
    judged: JudgedItems
    #: number of items to score at a time
    chunk: int
    exclude: Pairs | None
    #: number of this worker's first item
    offset: int
    #: number of items of all workers
    total: int
    #: this worker's :class:`Shard` of the catalogue; None = this process has the whole catalogue
    shard: Any
    #: called with the number of products to come, then with -1 after each product
    progress: Callable[[int], None]
    #: of products, as in :meth:`torchrank.Ranking.from_embeddings`
    precision: str | None
    #: a :class:`Tolerance`, within which scores are tied with that of a relevant item; None = only equal ones are
    tolerance: Any = None

    per_query = ("queries", "judged")

    @property
    def score_dtype(self) -> torch.dtype:
        """The dtype of the products."""
        dtype = self.queries.dtype
        return dtype if self.precision is None else torch.promote_types(dtype, torch.float32)

    def factors(self, items: Tensor) -> Tensor:
        """Rows of the catalogue, or one of its parts, as factors of the products: in their dtype, bits unpacked."""
        return (signs(items) if items.dtype == torch.uint8 else items).to(self.score_dtype)

    @staticmethod
    def room(embeddings: Tensor) -> int:
        """Number of scores that exist at a time, at most."""
        if embeddings.is_cpu:
            return costs.now.product
        return costs.now.cached_bytes // max(4, embeddings.element_size())  # 16 bits are compared as 32

    @functools.cached_property
    def size(self) -> int:
        return 0 if self.shard is not None else self.num_queries * len(self.catalogue)


@dataclass(frozen=True, eq=False)
class StreamedLayout(Layout):
    """Scores over a catalogue in blocks of columns, given one after the other."""

    #: returns the blocks, floating [query, item] each, from left to right
    scores: Callable[[], Iterable[Tensor]]
    judged: JudgedItems
    dtype: torch.dtype
    #: whether ``scores`` can be called more than once
    again: bool
    exclude: Pairs | None
    #: as of :class:`EmbeddedLayout`
    tolerance: Any = None

    @functools.cached_property
    def size(self) -> int:
        return 0  # unknown before reading; 0 also keeps the user's iterator on the user's thread


@dataclass(frozen=True, eq=False)
class RankedIds(Layout):
    """Ranked lists of ids, best first, and the judged ids."""

    #: int64 [query, position], best first; negative = padding
    ids: Tensor
    judged: JudgedItems
    mask: Tensor | None
    exclude: Pairs | None
    #: float64 [query, position]: as of :class:`DenseLayout`
    costs: Tensor | None = None

    per_query = ("ids", "judged", "mask", "costs")


@dataclass(frozen=True, eq=False)
class FlatRows(Layout):
    """One row per candidate, with the number of its query. All rows are ranked by one sort."""

    #: floating [row]; -inf = not retrieved
    scores: Tensor
    #: [row]
    grade: Tensor
    #: [row], signed integers or uint8: any number for each query
    indexes: Tensor
    mask: Tensor | None
    tie_break: Tensor | None
    #: bool [row]: a group with a judged and an unjudged row; None = there is no such group
    partly_judged: Tensor | None = None

    @functools.cached_property
    def size(self) -> int:
        return len(self.scores)
