"""The six canonical layouts, which are the input of the engines; judged items and pairs; and their cuts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchrank.hardware import costs
from torchrank.hardware.devices import ascending, possibly

# The label of a query that does not count, as in cross-entropy.
IGNORED = -100


def repetitions(ids: Tensor) -> Tensor:
    """bool, in any order: True for each repetition of an id within its row of [query, column]; negative = padding."""
    ordered = ascending(ids)  # equal ids are side by side
    return (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)


@dataclass(frozen=True, eq=False)
class Pairs:
    """(query, item) pairs, int64 [pair] each; query -1 = the pair has no effect.

    On the CPU the pairs are in ascending order of query.
    """

    query: Tensor
    item: Tensor

    @classmethod
    def kept(cls, query: Tensor, item: Tensor, where: Tensor) -> Pairs:
        """The pairs that ``where`` marks. On an accelerator the others get query -1: removing them would wait."""
        if where.is_cpu:
            place = where.nonzero().squeeze(-1)
            return cls(query[place], item[place])
        return cls(torch.where(where, query, -1), item)

    def rows(self, start: int, stop: int) -> Pairs:
        """Pairs of the queries from ``start`` to ``stop``, with queries numbered from 0."""
        if self.query.is_cpu:  # then the pairs are sorted by query
            first, last = torch.searchsorted(self.query, torch.tensor([start, stop], device="cpu")).tolist()
            return Pairs(self.query[first:last] - start, self.item[first:last])
        return Pairs.kept(self.query - start, self.item, (self.query >= start) & (self.query < stop))

    def numbered(self, number: Tensor) -> Pairs:
        """Pairs with other numbers of the queries.

        Args:
            number: new number of each query, int64 [query + 1], ascending; -1 = leave its pairs out. The last element
                is -1, for the pairs with query -1.
        """
        query = number[self.query]
        return Pairs.kept(query, self.item, query >= 0)


@dataclass(frozen=True, eq=False)
class Judged:
    """Judged items of all queries in one row, query by query."""

    #: int64 [entry]; negative = padding; IGNORED only if the query does not count
    items: Tensor
    #: [entry]
    grade: Tensor
    #: int64 [query + 1], on the CPU for every device: where the entries of each query begin
    start: Tensor
    #: number of entries of every query; None = unknown
    width: int | None = None
    #: whether the items came without grades, so that all of them have grade 1
    ungraded: bool = False
    #: whether each query has one entry, a label without a grade
    labels: bool = False

    @classmethod
    def from_rows(cls, items: Tensor, grade: Tensor | None = None, ungraded: bool = False) -> Judged:
        """Judged items from the rows of [query, entry]; without grades, all have grade 1."""
        if grade is None:
            grade, ungraded = (items >= 0).view(torch.int8), True
        width = items.shape[1]
        start = torch.arange(len(items) + 1, device="cpu") * width
        return cls(items.flatten(), grade.flatten(), start, width, ungraded, labels=ungraded and width == 1)

    @functools.cached_property
    def ignored(self) -> Tensor | None:
        """bool [query]: the query does not count; None = every query counts, on the CPU as far as the labels say."""
        if not self.labels:
            return None
        ignored = self.items == IGNORED
        return ignored if possibly(ignored) else None

    def __getitem__(self, rows: slice) -> Judged:
        """Judged items of consecutive queries."""
        start = self.start[rows.start : rows.stop + 1]
        inside = slice(int(start[0]), int(start[-1]))
        return replace(self, items=self.items[inside], grade=self.grade[inside], start=start - start[0])

    def take(self, rows: Tensor) -> Judged:
        """Judged items of the queries ``rows``, int64 [query] on the CPU, in this order."""
        sizes = self.sizes[rows]
        start = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
        # Where each entry stands in self: its new place, moved by the distance between the beginnings of its query.
        at = torch.arange(int(start[-1]), device="cpu") + torch.repeat_interleave(self.start[rows] - start[:-1], sizes)
        at = at.to(self.items.device, non_blocking=True)
        return replace(self, items=self.items[at], grade=self.grade[at], start=start)

    @property
    def sizes(self) -> Tensor:
        """Entries of each query: int64 [query], on the CPU."""
        return self.start.diff()

    @functools.cached_property
    def owner(self) -> Tensor:
        """int64 [entry]: the query of each entry."""
        owner = torch.repeat_interleave(torch.arange(len(self.start) - 1, device="cpu"), self.sizes)
        return owner.to(self.items.device, non_blocking=True)

    def rectangle(self) -> tuple[Tensor, Tensor]:
        """Items and grades [query, entry], as wide as the longest query; a negative item is padding."""
        if self.width is not None:
            return self.items.view(-1, self.width), self.grade.view(-1, self.width)
        sizes = self.sizes
        width = max(1, int(sizes.max())) if len(sizes) else 1
        there = (torch.arange(width, device="cpu") < sizes.unsqueeze(-1)).to(self.items.device, non_blocking=True)
        items = torch.full_like(there, -1, dtype=torch.int64).masked_scatter_(there, self.items)
        return items, torch.zeros_like(there, dtype=self.grade.dtype).masked_scatter_(there, self.grade)

    def again(self) -> Tensor | None:
        """bool, in any order: True for each repetition of an item within its query; None = there can be none."""
        if self.width is not None:
            return repetitions(self.rectangle()[0]) if self.width > 1 else None
        if len(self.items) and int(self.sizes.max()) * len(self.sizes) <= 4 * len(self.items):  # little padding
            return repetitions(self.rectangle()[0])
        # Two stable sorts, by item and then by query, put equal items of a query side by side.
        order = self.items.argsort(stable=True)
        order = order[self.owner[order].argsort(stable=True)]
        items, owner = self.items[order], self.owner[order]
        return (items[1:] == items[:-1]) & (owner[1:] == owner[:-1]) & (items[1:] >= 0)


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
        judged: Judged | None = getattr(self, "judged", None)
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
    judged: Judged
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
    judged: Judged
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

    @functools.cached_property
    def size(self) -> int:
        return 0 if self.shard is not None else self.num_queries * len(self.catalogue)


@dataclass(frozen=True, eq=False)
class StreamedLayout(Layout):
    """Scores over a catalogue in blocks of columns, given one after the other."""

    #: returns the blocks, floating [query, item] each, from left to right
    scores: Callable[[], Iterable[Tensor]]
    judged: Judged
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
    judged: Judged
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


def rectangles(widths: Tensor, room: int) -> list[tuple[int, int]]:
    """Cut rows into consecutive ranges, each a rectangle of at most ``room`` elements or a single row.

    Args:
        widths: elements of each row, int64 [row] on the CPU. A rectangle is as wide as its widest row.
        room: largest number of elements of a rectangle of several rows.

    Returns:
        (start, stop) of each range.
    """
    cuts: list[tuple[int, int]] = []
    start, total = 0, len(widths)
    while start < total:
        # Later rows than these cannot be in the rectangle, because the first row alone fixes a least width.
        ahead = widths[start : start + room // max(1, int(widths[start]))].cummax(0).values
        area = ahead * torch.arange(1, len(ahead) + 1, device=widths.device)  # never falls
        stop = start + max(1, int(torch.searchsorted(area, room, right=True)))
        cuts.append((start, stop))
        start = stop
    return cuts


def buckets(sizes: Tensor, overhead: int, room: int) -> Iterator[tuple[Tensor, int]]:
    """Put queries of similar sizes into rectangles: sizes within a factor of two, or with little padding.

    Args:
        sizes: number of entries of each query, int64 [query].
        overhead: number of padding entries that cost as much as one more rectangle.
        room: largest number of elements of a rectangle of several queries.

    Yields:
        numbers of the queries, int64 [query] in ascending order on the device of the sizes, and the width of their
        rectangle, at least 1.
    """
    counts = sizes.cpu()
    octave = counts.clamp_min(1).double().log2().ceil()
    chosen: list[tuple[Tensor, int]] = []
    for number in octave.unique().flip(0).tolist() or [0]:  # the widest first
        rows = (octave == number).nonzero().squeeze(-1)
        width = max(1, int(counts[rows].max())) if len(rows) else 1
        if chosen and (chosen[-1][1] - width) * len(rows) <= overhead:
            wider, width = chosen.pop()
            rows = torch.cat([wider, rows]).sort().values
        chosen.append((rows, width))
    for rows, width in chosen:
        yield from ((some, width) for some in rows.to(sizes.device).split(max(1, room // width)))


def octaves(sizes: Tensor, room: int) -> Iterator[tuple[Tensor, int]]:
    """Group queries by the next power of two of their sizes: the width of a query depends on no other query.

    Sums over a rectangle round by its width. So the value of a query is the same to the bit in any batch.

    Args:
        sizes: number of entries of each query, int64 [query] on the CPU.
        room: largest number of elements of a rectangle of several queries.

    Yields:
        numbers of the queries, int64 [query], and the width of their rectangle, at least 1. If one rectangle holds all
        queries, the numbers are 0, 1, ...
    """
    widths = 2 ** sizes.clamp_min(1).double().log2().ceil().long()
    for width in widths.unique().tolist() or [1]:
        yield from ((rows, width) for rows in (widths == width).nonzero().squeeze(-1).split(max(1, room // width)))
