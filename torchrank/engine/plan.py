"""Plans: the only module that chooses how a batch is ranked. The engines carry out the plan.

A choice depends on shapes, on the part of the ranking that metrics read, and on :mod:`torchrank.hardware.costs`. On a
CPU a choice may also depend on values: the number of relevant candidates, and the lengths of lists in flat rows.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from torchrank.engine.comparing import why_no_kernel
from torchrank.engine.counting import Counting, cheapest
from torchrank.engine.sorting import list_width
from torchrank.hardware import costs
from torchrank.hardware.devices import by_numpy, selection
from torchrank.hardware.threads import GRAIN
from torchrank.layouts.canonical import (
    CatalogueLayout,
    DenseLayout,
    EmbeddedLayout,
    FlatRows,
    Judged,
    Layout,
    Need,
    RankedIds,
    rectangles,
)

CPU = torch.device("cpu")

LOG = logging.getLogger("torchrank")


class Strategy(Enum):
    """Methods to rank a layout."""

    LISTS = "sort each list"
    ONE_BY_ONE = "sort one list at a time, and keep only the relevant candidates"
    ROWS = "sort all rows together"
    JUDGED = "rank the judged items of each list"
    GROUPS = "rank the judged items, in groups of queries with similar numbers of judged items"
    ALL = "sort each list, including unjudged candidates"
    IDS = "find the judged ids in each list"
    PRODUCTS = "rank the judged items among products of embeddings"
    FUSED = "rank the judged items in one kernel, among products that are never in memory"
    BLOCKS = "rank the judged items among blocks of columns"


@dataclass(frozen=True)
class Plan:
    """How to rank a batch."""

    #: the layout to rank, after the conversion
    layout: Any = field(repr=False)
    strategy: Strategy
    #: the conversion of the batch's layout; "" = none
    conversion: str = ""
    #: (start, stop) of each chunk of queries; empty = one chunk
    chunks: tuple[tuple[int, int], ...] = ()
    #: the last rank of the entries, apart from ties with this rank; None = all candidates, or judged items, are entries
    reach: int | None = None
    #: whether to find the ``reach`` best scores first, and to sort all scores only if there is a tie at ``reach``
    best: bool = False
    #: the method to rank the judged items of each chunk
    counting: tuple[Counting, ...] = ()
    #: the reason why embeddings are not ranked in one kernel; "" = one kernel ranks them, or there are no embeddings
    why_not: str = ""

    def pieces(self) -> Iterator[Any]:
        """The layout of each chunk; the first layout has the batch's counters of bad values, the others have zeros."""
        return cut(self.layout, self.chunks)

    def __str__(self) -> str:
        clauses = [f"{self.conversion}; {self.strategy.value}" if self.conversion else self.strategy.value]
        if self.best:
            clauses.append(f"the {self.reach} best first")
        if len(self.chunks) > 1:
            clauses.append(f"{len(self.chunks)} chunks of up to {max(b - a for a, b in self.chunks):,} queries")
        for method, chunks in Counter(self.counting).items():
            part = f"in {chunks} chunk{'s' * (chunks > 1)} "
            clauses.append(part * (len({*self.counting}) > 1) + method.value.about)
        if self.why_not:
            clauses.append(f"not in one kernel: {self.why_not}")
        return "; ".join(clauses)


def plan(layout: Layout, need: Need) -> Plan:
    """Choose the fastest method to rank a layout. The plan converts the layout if the conversion saves time."""
    conversion = ""
    if isinstance(layout, FlatRows):
        # A matrix is faster if the first ranks suffice, if all candidates are entries, or if a single metric reads
        # short lists. Flat rows are faster if several metrics read relevant candidates: only these are entries.
        few_ranks_or_all_candidates = not need.relevant or need.reach is not None
        matrix = None
        if few_ranks_or_all_candidates or need.metrics == 1:
            matrix = as_matrix(layout, costs.now.block if few_ranks_or_all_candidates else costs.now.short)
        if matrix is None:
            return Plan(layout, Strategy.ROWS)
        layout, conversion = matrix, "flat rows are a matrix"
    if isinstance(layout, DenseLayout):
        made = _plan_of_lists(layout, need)
        return replace(made, conversion="; ".join(filter(None, (conversion, made.conversion)))) if conversion else made
    if need.all_candidates and isinstance(layout, CatalogueLayout | RankedIds):
        return Plan(layout, Strategy.ALL, "all candidates get grades", chunks(layout, need))
    if isinstance(layout, CatalogueLayout):
        return _plan_of_judged(layout, need)
    if isinstance(layout, RankedIds):
        return Plan(layout, Strategy.IDS, "", chunks(layout, need))
    if isinstance(layout, EmbeddedLayout):
        why_not = _why_not_fused(layout)
        chosen = Plan(layout, Strategy.PRODUCTS, "", chunks(layout, need), why_not=why_not)
        chosen = chosen if why_not else Plan(layout, Strategy.FUSED)
        LOG.debug("from_embeddings: %s", chosen)
        return chosen
    return Plan(layout, Strategy.BLOCKS)


def _plan_of_lists(layout: DenseLayout, need: Need) -> Plan:
    scores, exact = layout.scores, layout.subtopics is None
    reach = None
    if need.relevant and exact and scores.is_cpu:
        if (judged_plan := _plan_of_relevant(layout, need)) is not None:
            return judged_plan
        # If all candidates of very long lists were entries, the entries would take too much memory.
        if need.reach is None and layout.exclude is None and len(scores) > 0 and scores.shape[1] > costs.now.block:
            return Plan(layout, Strategy.ONE_BY_ONE, "", chunks(layout, need))
        # The number of entries up to a reach depends on values, so only the CPU uses the reach.
        reach = need.reach
    cuts, (queries, width) = chunks(layout, need), scores.shape
    can_select = reach is not None and layout.tie_break is None
    rows = cuts[0][1] if cuts else queries
    best = can_select and best_pays(rows * width, width, reach + 1, scores.device)  # type: ignore[operator]
    return Plan(layout, Strategy.LISTS, "", cuts, reach, best)


def _plan_of_judged(layout: CatalogueLayout, need: Need, conversion: str = "") -> Plan:
    cuts = chunks(layout, need)
    # The search for the best scores does not support a mask, tie breaks or exclusions.
    plain = layout.mask is None and layout.tie_break is None and layout.exclude is None
    reach, judged = need.reach if plain else None, layout.judged
    if judged.width is not None:
        largest = [judged.width]
    else:
        parts = [judged.sizes[start:stop] for start, stop in cuts or [(0, len(layout.scores))]]
        largest = [int(sizes.max()) if len(sizes) else 0 for sizes in parts]
    scores = layout.scores
    methods = [cheapest(entries, scores.shape[1], reach, scores.device, layout.tie_break) for entries in largest]
    if len(methods) < len(cuts):
        methods = methods * len(cuts)
    return Plan(layout, Strategy.JUDGED, conversion, cuts, reach, False, tuple(methods))


# ---- chunks ----------------------------------------------------------------------------------------------------------


def chunks(layout: Layout, need: Need) -> tuple[tuple[int, int], ...]:
    """Cut the queries into chunks of bounded size: (start, stop) of each chunk; empty = one chunk."""
    now, copies, wide = costs.now, 2, 1
    room, queries = now.block if layout.errors.is_cpu else now.room(layout.errors), 0
    elements: Tensor | int  # number of elements in the temporaries of each query
    if isinstance(layout, DenseLayout):
        # Many metrics derive dozens of quantities from each ranking, which should stay in a cache.
        copies, subtopics = 4, layout.subtopics
        queries, candidates = layout.scores.shape
        elements = candidates * (1 if subtopics is None else max(1, subtopics.shape[2]))
        if layout.mask is not None or layout.exclude is not None:
            room = int(room * now.padded_block)
    elif isinstance(layout, CatalogueLayout):
        (queries, wide), judged = layout.scores.shape, layout.judged
        elements = judged.sizes if judged.width is None else judged.width
    elif isinstance(layout, RankedIds):
        (queries, wide), judged = layout.ids.shape, layout.judged
        if (size := judged.width) is not None:
            elements = wide * size if size <= now.compared else 2 * (wide + size)
        else:
            sizes = judged.sizes
            elements = torch.where(sizes <= now.compared, wide * sizes, 2 * (wide + sizes))
    elif isinstance(layout, EmbeddedLayout):
        room, elements = layout.room(layout.queries), (now.judged_item * layout.judged.sizes).clamp_min(layout.chunk)
    else:  # flat rows are sorted together, and a block of columns has all queries
        return ()
    if need.reach is None and layout.errors.is_cpu:  # on an accelerator, more chunks launch more kernels
        room //= min(copies, 2 + need.metrics // now.several)
    least = wide if need.all_candidates else 0
    if isinstance(elements, Tensor):
        cuts = rectangles(elements.clamp_min(least) if least else elements, room)
        return tuple(cuts) if len(cuts) > 1 else ()
    # Chunks have equal sizes, up to a quarter larger than the room: a small last chunk would add a full overhead.
    most_queries = max(1, (room + room // 4) // max(1, elements, least))
    if queries <= most_queries:
        return ()
    step = -(-queries // -(-queries // most_queries))
    return tuple((start, min(start + step, queries)) for start in range(0, queries, step))


def cut(layout: Layout, cuts: tuple[tuple[int, int], ...]) -> Iterator[Any]:
    """The layout of each chunk; the first layout has the batch's counters of bad values, the others have zeros."""
    if not cuts:
        yield layout
    for start, stop in cuts:
        chunk = layout.rows(start, stop)
        yield chunk if start == 0 else replace(chunk, errors=torch.zeros_like(layout.errors))


# ---- values that decide ----------------------------------------------------------------------------------------------


def as_matrix(layout: FlatRows, longest: int) -> DenseLayout | None:
    """Convert flat rows to a matrix if the rows are contiguous lists of equal length, at most ``longest``.

    Returns None for other rows, and on an accelerator, because the lengths depend on the values of the indexes.
    """
    indexes = layout.indexes
    if not indexes.is_cpu or not len(indexes):
        return None
    width = list_width(indexes)
    if width is None or width > longest:
        return None
    # The first and the last row of each list belong to the same query. So if the indexes never decrease, the rows
    # between them belong to this query too. numpy compares short integers many times faster than torch.
    numbers = indexes.numpy()
    if not (numbers[1:] >= numbers[:-1]).all():
        return None
    scores, grade = layout.scores.reshape(-1, width), layout.grade.reshape(-1, width)
    names = ("mask", "tie_break", "partly_judged")
    others = {name: None if (x := getattr(layout, name)) is None else x.reshape(-1, width) for name in names}
    return DenseLayout(layout.errors, layout.validate, scores, grade, **others)


def _plan_of_relevant(layout: DenseLayout, need: Need) -> Plan | None:
    """Plan to rank a dense layout as a catalogue whose judged items are the relevant candidates.

    None if many candidates are relevant. The number of relevant candidates depends on values: for the CPU only.
    """
    queries, candidates = layout.grade.shape
    if not layout.grade.numel():
        return None
    plain = layout.mask is None and layout.exclude is None and layout.tie_break is None
    # The sparse engine does not support a mask, exclusions or tie breaks. This engine groups queries with similar
    # numbers of relevant candidates, so its cost depends on the mean number. The catalogue engine pads all queries to
    # the largest number.
    groupable = plain and need.reach is None
    # Nanoseconds per candidate, measured on two cores with lists of 20 to 100,000 candidates: how much faster it is to
    # rank the relevant candidates alone, if there are hardly any, than to sort the best candidates, or all of them for
    # each metric to read.
    if need.reach is None or layout.tie_break is not None:
        alternative = costs.now.order[0] + math.log2(candidates + 1) + costs.now.order[1] * need.metrics
    else:
        alternative = costs.now.best[0] + costs.now.best[1] * need.reach / candidates
    saved = alternative - costs.now.find[0] - costs.now.convert / layout.grade.numel()
    if saved <= 0:
        return None

    def strategy(sizes: Tensor) -> Strategy | None:
        mean, largest = int(sizes.sum()) / len(sizes), int(sizes.max())
        if costs.now.find[1] * mean / candidates >= saved:
            return None
        padded = largest <= costs.now.padding * mean and costs.now.rare * mean <= candidates
        if groupable and costs.now.sparse * mean <= candidates and mean * queries <= costs.now.grouped and not padded:
            return Strategy.GROUPS
        return Strategy.JUDGED if largest * costs.now.sparse <= candidates else None

    if strategy((layout.grade[: costs.now.sample] > 0).sum(-1)) is None:
        return None  # a few queries suffice to rule this plan out
    sizes = torch.zeros(queries, dtype=torch.int64, device=CPU)
    items: list[Tensor] = []
    step = max(1, 8 * costs.now.block // candidates)  # temporaries have one byte per element, not dozens
    for start in range(0, queries, step):
        query, item = (layout.grade[start : start + step] > 0).nonzero(as_tuple=True)
        sizes[start : start + step] = torch.bincount(query, minlength=min(step, queries - start))
        items.append(item)
        if strategy(sizes[: start + step]) is None:
            return None
    item = torch.cat(items)
    query = torch.repeat_interleave(torch.arange(queries, device=CPU), sizes)
    judged = Judged(item, layout.grade[query, item], torch.nn.functional.pad(sizes.cumsum(0), (1, 0)))
    catalogue = CatalogueLayout(
        layout.errors, layout.validate, layout.scores, judged, layout.mask, layout.tie_break, layout.exclude
    )
    conversion = "the relevant candidates are judged items"
    if strategy(sizes) is Strategy.GROUPS:
        return Plan(catalogue, Strategy.GROUPS, conversion)
    return _plan_of_judged(catalogue, need, conversion)


# ---- costs ----------------------------------------------------------------------------------------------------------


def best_pays(numbers: int, width: int, k: int, device: torch.device) -> bool:
    """Whether finding the ``k`` best scores of each row of ``width`` is faster than sorting all ``numbers`` scores."""
    if 2 * k > width:
        return False
    if not by_numpy(device) or costs.now.heap_from * k <= width:
        return True
    # Nanoseconds per score, measured on two cores with rows of 40 to 2,000 scores. numpy sorts on one thread;
    # torch.topk uses all threads for many scores. A sort has 20 microseconds more overhead.
    best = selection(k / width) / (torch.get_num_threads() if numbers > GRAIN else 1)
    sort = costs.now.numpy_order[0] + costs.now.numpy_order[1] * math.log2(width + 1)
    return (best - sort) * numbers < costs.now.numpy_calls


def _why_not_fused(layout: EmbeddedLayout) -> str:
    """The reason why the fused kernel does not rank a layout; "" = the kernel ranks the layout."""
    queries, precision, entries = layout.queries, fused_precision(layout), _most_entries(layout)
    if reason := why_no_kernel(queries.device):
        return reason
    if precision is None:
        return f"products of {queries.dtype} need precision 'tf32', 'tf32x3' or 'bf16', got {layout.precision!r}"
    if entries > costs.now.fused:
        return f"a query has {entries:,} judged items, more than {costs.now.fused}"
    if layout.tolerance is not None:
        return "the kernel does not support atol and rtol"
    return why_no_kernel(queries.device, queries.dtype, precision, queries.shape[1])


def fused_precision(layout: EmbeddedLayout) -> str | None:
    """The precision of the kernel's products; None = the kernel does not support this dtype and precision."""
    dtype = layout.queries.dtype
    if dtype in (torch.bfloat16, torch.float16):
        return "ieee"  # products of 16-bit numbers are exact
    return layout.precision if dtype == torch.float32 and layout.precision in ("tf32", "tf32x3") else None


def _most_entries(layout: EmbeddedLayout) -> int:
    return int(layout.judged.sizes.max()) if len(layout.judged.sizes) else 0
