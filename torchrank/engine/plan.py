"""The plan of a batch: the one place that chooses how to rank it. Engines do what the plan says.

A choice follows from shapes, from what will be read of the ranking, and from :mod:`torchrank.hardware.costs`. On a CPU
it may also read values: how many candidates are relevant, and whether flat rows are lists of equal length.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from torchrank.engine.sorting import list_width
from torchrank.hardware import costs
from torchrank.hardware.devices import by_numpy
from torchrank.hardware.sorted_values import selection
from torchrank.hardware.threads import GRAIN
from torchrank.layouts.canonical import (
    CatalogueLayout,
    DenseLayout,
    EmbeddedLayout,
    FlatRows,
    Layout,
    Need,
    RankedIds,
)
from torchrank.layouts.cutting import rectangles
from torchrank.layouts.items import Padded, Ragged

CPU = torch.device("cpu")

LOG = logging.getLogger("torchrank")


class Strategy(Enum):
    """Ways to rank a layout."""

    LISTS = "sort each list"
    ONE_BY_ONE = "sort one list at a time, and keep its relevant candidates"
    ROWS = "sort all rows together"
    JUDGED = "rank the judged items of each list"
    GROUPS = "rank the judged items, those of queries with similar numbers together"
    ALL = "sort each list, also of candidates that are not judged"
    IDS = "find the judged ids in each list"
    PRODUCTS = "rank the judged items among products of embeddings"
    FUSED = "rank the judged items in one kernel, among products that are never in memory"
    BLOCKS = "rank the judged items among blocks of columns"


class Counting(Enum):
    """Ways to find the ranks of judged items."""

    COUNT = "count the scores above and equal to each"
    TOP = "find the best scores, and each among them"
    SORT = "sort the scores, and look each up"


@dataclass(frozen=True)
class Plan:
    """How to rank a batch."""

    #: what is ranked: the layout of the batch, or the one that it was converted to
    layout: Any = field(repr=False)
    strategy: Strategy
    #: what was converted to what; "" = nothing
    conversion: str = ""
    #: (start, stop) of each chunk of queries; empty = one chunk
    chunks: tuple[tuple[int, int], ...] = ()
    #: the last rank of the entries, apart from ties with it; None = all candidates, or the judged ones
    reach: int | None = None
    #: find the best scores up to the reach, and sort all only if there is a tie at it
    best: bool = False
    #: how the judged items of each chunk are ranked
    counting: tuple[Counting, ...] = ()
    #: why embeddings are not ranked in one kernel; "" = they are, or there are none
    why_not: str = ""

    def pieces(self) -> Iterator[Any]:
        """The layouts of the chunks, the first with the counters of bad values."""
        return cut(self.layout, self.chunks)

    def __str__(self) -> str:
        said = [f"{self.conversion}; {self.strategy.value}" if self.conversion else self.strategy.value]
        if self.best:
            said.append(f"the {self.reach} best first")
        if len(self.chunks) > 1:
            said.append(f"{len(self.chunks)} chunks of up to {max(b - a for a, b in self.chunks):,} queries")
        for way, chunks in Counter(self.counting).items():
            said.append(way.value if len({*self.counting}) == 1 else f"in {chunks} chunks {way.value}")
        if self.why_not:
            said.append(f"not in one kernel: {self.why_not}")
        return "; ".join(said)


def plan(layout: Layout, need: Need) -> Plan:
    """Choose the fastest way to rank a layout, converted if that pays."""
    conversion = ""
    if isinstance(layout, FlatRows):
        # The matrix is faster if some ranks suffice or all candidates are entries, and for a single metric of short
        # lists. More metrics are faster if they read relevant candidates alone, which the sort of the rows yields.
        not_only_relevant = not need.relevant or need.reach is not None
        matrix = None
        if not_only_relevant or need.metrics == 1:
            matrix = as_matrix(layout, costs.now.block if not_only_relevant else costs.now.short)
        if matrix is None:
            return Plan(layout, Strategy.ROWS)
        layout, conversion = matrix, "flat rows are a matrix"
    if isinstance(layout, DenseLayout):
        made = _of_lists(layout, need)
        return replace(made, conversion="; ".join(filter(None, (conversion, made.conversion)))) if conversion else made
    if need.all_candidates and isinstance(layout, CatalogueLayout | RankedIds):
        return Plan(layout, Strategy.ALL, "all candidates get grades", chunks(layout, need))
    if isinstance(layout, CatalogueLayout):
        return _judged(layout, need)
    if isinstance(layout, RankedIds):
        return Plan(layout, Strategy.IDS, "", chunks(layout, need))
    if isinstance(layout, EmbeddedLayout):
        why_not = _not_fused(layout)
        made = Plan(layout, Strategy.PRODUCTS, "", chunks(layout, need), why_not=why_not)
        made = made if why_not else Plan(layout, Strategy.FUSED)
        LOG.debug("from_embeddings: %s", made)
        return made
    return Plan(layout, Strategy.BLOCKS)


def _of_lists(layout: DenseLayout, need: Need) -> Plan:
    scores, exact = layout.scores, layout.subtopics is None
    reach = None
    if need.relevant and exact and scores.is_cpu:
        if (made := _of_few(layout, need)) is not None:
            return made
        # Entries for all candidates of very long lists would take too much memory.
        if need.reach is None and layout.exclude is None and len(scores) > 0 and scores.shape[1] > costs.now.block:
            return Plan(layout, Strategy.ONE_BY_ONE, "", chunks(layout, need))
        # Entries up to a reach have a width that depends on values, so they are for the CPU only.
        reach = need.reach
    cuts, (queries, width) = chunks(layout, need), scores.shape
    tried = reach is not None and reach < width and layout.tie_break is None
    rows = cuts[0][1] if cuts else queries
    best = tried and best_pays(rows * width, width, reach + 1, scores.device)  # type: ignore[operator]
    return Plan(layout, Strategy.LISTS, "", cuts, reach, best)


def _judged(layout: CatalogueLayout, need: Need, conversion: str = "") -> Plan:
    cuts = chunks(layout, need)
    # The best scores are found without mask, tie breaks and exclusions.
    plain = layout.mask is None and layout.tie_break is None and layout.exclude is None
    reach, judged = need.reach if plain else None, layout.judged
    if isinstance(judged, Padded) or not cuts:
        most = [
            judged.items.shape[1] if isinstance(judged, Padded) else int(judged.sizes.max()) if len(judged.sizes) else 0
        ]
    else:
        most = [int(judged.sizes[start:stop].max()) for start, stop in cuts]
    scores = layout.scores
    ways = [cheapest(entries, scores.shape[1], reach, scores.device, layout.tie_break) for entries in most]
    if len(ways) < len(cuts):
        ways = ways * len(cuts)
    return Plan(layout, Strategy.JUDGED, conversion, cuts, reach, False, tuple(ways))


# ---- chunks ----------------------------------------------------------------------------------------------------------


def chunks(layout: Layout, need: Need) -> tuple[tuple[int, int], ...]:
    """Chunks of queries of bounded size: (start, stop) of each; empty = one chunk."""
    now, copies, wide = costs.now, 2, 1
    room, queries = now.block, 0
    elements: Tensor | int  # of temporaries that each query takes
    if isinstance(layout, DenseLayout):
        # Many metrics derive dozens of quantities from each ranking. If all of them took more than 64 MB, the C library
        # would return freed memory to the system, and fetch it again for the next chunk.
        copies, subtopics = 4, layout.subtopics
        queries, candidates = layout.scores.shape
        elements = candidates * (1 if subtopics is None else max(1, subtopics.shape[2]))
        if layout.mask is not None or layout.exclude is not None:
            room = int(room * now.padded_block)
    elif isinstance(layout, CatalogueLayout):
        (queries, wide), judged = layout.scores.shape, layout.judged
        elements = judged.items.shape[1] if isinstance(judged, Padded) else judged.sizes
    elif isinstance(layout, RankedIds):
        (queries, wide), judged = layout.ids.shape, layout.judged
        if isinstance(judged, Padded):
            size = judged.items.shape[1]
            elements = wide * size if size <= now.compared else 2 * (wide + size)
        else:
            sizes = judged.sizes
            elements = torch.where(sizes <= now.compared, wide * sizes, 2 * (wide + sizes))
    elif isinstance(layout, EmbeddedLayout):
        room, elements = layout.room(layout.queries), (now.judged_item * layout.judged.sizes).clamp_min(layout.chunk)
        copies = 2 if layout.queries.is_cpu else 1  # more chunks are more kernels
    else:  # rows have one sort, and blocks of columns have all queries
        return ()
    if need.reach is None:
        room //= min(copies, 2 + need.metrics // now.several)
    least = wide if need.all_candidates else 0
    if isinstance(elements, Tensor):
        cuts = rectangles(elements.clamp_min(least) if least else elements, room)
        return tuple(cuts) if len(cuts) > 1 else ()
    # Chunks of equal size, up to a quarter larger than the room: a small last one has as many operations.
    most = max(1, (room + room // 4) // max(1, elements, least))
    if queries <= most:
        return ()
    step = -(-queries // -(-queries // most))
    return tuple((start, min(start + step, queries)) for start in range(0, queries, step))


def cut(layout: Layout, cuts: tuple[tuple[int, int], ...]) -> Iterator[Any]:
    """The layouts of chunks, the first with the counters of bad values."""
    if not cuts:
        yield layout
    for start, stop in cuts:
        chunk = layout.rows(start, stop)
        yield chunk if start == 0 else replace(chunk, errors=torch.zeros_like(layout.errors))


# ---- values that decide ----------------------------------------------------------------------------------------------


def as_matrix(layout: FlatRows, longest: int) -> DenseLayout | None:
    """Convert flat rows to a matrix if they are contiguous lists of equal length, at most ``longest``.

    None for other rows. The lengths depend on the values of the indexes, so this is done on the CPU only.
    """
    indexes = layout.indexes
    if not indexes.is_cpu or not len(indexes):
        return None
    width = list_width(indexes)
    if width is None or width > longest:
        return None
    # The first and the last row of each list are of the same query. So all others are, if no index is below the one
    # before it. numpy compares short integers many times as fast as torch.
    numbers = indexes.numpy()
    if not (numbers[1:] >= numbers[:-1]).all():
        return None
    scores, grade = layout.scores.reshape(-1, width), layout.grade.reshape(-1, width)
    mask, tie_break = (None if x is None else x.reshape(-1, width) for x in (layout.mask, layout.tie_break))
    return DenseLayout(layout.errors, layout.validate, scores, grade, mask, tie_break)


def _of_few(layout: DenseLayout, need: Need) -> Plan | None:
    """Plan for a dense layout with few relevant candidates: a catalogue in which these are the judged items.

    None if many are relevant. The number depends on values, so this is for the CPU only.
    """
    queries, candidates = layout.grade.shape
    plain = layout.mask is None and layout.exclude is None and layout.tie_break is None
    # The sparse engine has no mask, exclusions or tie breaks. It groups queries with similar numbers of relevant
    # candidates, so the mean decides for it. The catalogue engine pads to the largest number.
    groupable = plain and need.reach is None

    def strategy(sizes: Tensor) -> Strategy | None:
        numbers = sizes.numpy()  # whose calls cost less
        mean = int(numbers.sum()) / len(numbers)
        # Nanoseconds per candidate of lists of 40 to 1,000, measured on two cores: to find and rank the relevant
        # candidates; or to sort all candidates, which each metric reads then.
        per_candidate, per_relevant = costs.now.find
        search = per_candidate + per_relevant * mean / candidates
        sort, per_metric = costs.now.order
        if groupable and search >= sort + math.log2(candidates + 1) + per_metric * need.metrics:
            return None
        most = int(numbers.max())
        padded = most <= costs.now.padding * mean and costs.now.rare * mean <= candidates
        if groupable and costs.now.sparse * mean <= candidates and mean * queries <= costs.now.grouped and not padded:
            return Strategy.GROUPS
        return Strategy.JUDGED if most * costs.now.sparse <= candidates else None

    if not queries or strategy((layout.grade[: costs.now.sample] > 0).sum(-1)) is None:
        return None  # a few queries suffice to rule it out
    sizes = torch.zeros(queries, dtype=torch.int64, device=CPU)
    items: list[Tensor] = []
    step = max(1, 2**22 // candidates)
    for start in range(0, queries, step):
        query, item = (layout.grade[start : start + step] > 0).nonzero(as_tuple=True)
        sizes[start : start + step] = torch.bincount(query, minlength=min(step, queries - start))
        items.append(item)
        if strategy(sizes[: start + step]) is None:
            return None
    item = torch.cat(items)
    query = torch.repeat_interleave(torch.arange(queries, device=CPU), sizes)
    judged = Ragged(item, layout.grade[query, item], torch.nn.functional.pad(sizes.cumsum(0), (1, 0)))
    condensed = CatalogueLayout(
        layout.errors, layout.validate, layout.scores, judged, layout.mask, layout.tie_break, layout.exclude
    )
    conversion = "the relevant candidates are judged items"
    if strategy(sizes) is Strategy.GROUPS:
        return Plan(condensed, Strategy.GROUPS, conversion)
    return _judged(condensed, need, conversion)


# ---- costs ----------------------------------------------------------------------------------------------------------


def cheapest(
    entries: float, candidates: int, reach: int | None, device: torch.device, tie_break: Tensor | None
) -> Counting:
    """Choose the cheapest way.

    Args:
        entries: number of judged items per query.
        candidates: number of candidates per query.
        reach: the largest rank that matters; None = all ranks, or the best scores do not suffice.
        device: device of the scores.
        tie_break: tie breaks, which are not read for the best scores.

    Costs on a CPU are nanoseconds per score, measured on one and two threads. Up to four threads numpy sorts and
    selects on one of them; torch does the rest on all. Costs on an accelerator are passes over the scores; sorting
    takes several dozen.
    """
    if tie_break is not None:  # two stable sorts cost as much as comparisons with so many judged items
        return Counting.COUNT if entries <= costs.now.stable_sorts * math.log2(candidates + 1) else Counting.SORT
    share = math.inf if reach is None or reach >= candidates else reach / candidates
    now = costs.now
    if device.type != "cpu":
        best = now.passes_best[0] + now.passes_best[1] * share
        ways = [(entries, Counting.COUNT), (best, Counting.TOP), (now.passes_sort, Counting.SORT)]
        return min(ways, key=itemgetter(0))[1]
    threads, depth, numpy = torch.get_num_threads(), math.log2(candidates + 1), by_numpy(device)
    whole = now.numpy_sort[0] + now.numpy_sort[1] * depth if numpy else now.torch_sort * depth / threads
    looked_up = now.look_up * depth * entries / max(1, candidates) / threads
    count = (now.compare[0] + now.compare[1] * entries) / threads
    ways = [(count, Counting.COUNT), (whole + looked_up, Counting.SORT)]
    if share < 1:
        heap = (now.heap[0] + now.heap[1] * share) / threads
        selected = now.numpy_selection if numpy else selection(share) / threads
        best = min(now.by_groups * share / threads, heap if now.heap_from * share <= 1 else selected)
        ways.append((now.retrieved / threads + best, Counting.TOP))
    return min(ways, key=itemgetter(0))[1]


def best_pays(numbers: int, width: int, k: int, device: torch.device) -> bool:
    """Whether finding the k best of each row of ``width`` scores is faster than sorting all ``numbers`` scores."""
    if 2 * k > width:
        return False
    if not by_numpy(device) or costs.now.heap_from * k <= width:
        return True
    # Nanoseconds per score, measured on two cores with rows of 40 to 2,000 scores. numpy sorts on one thread;
    # torch.topk runs on all if there are many scores. A sort has 20 microseconds more of calls.
    best = selection(k / width) / (torch.get_num_threads() if numbers > GRAIN else 1)
    whole = costs.now.numpy_order[0] + costs.now.numpy_order[1] * math.log2(width + 1)
    return (best - whole) * numbers < costs.now.numpy_calls


def _not_fused(layout: EmbeddedLayout) -> str:
    """Why the fused kernel does not rank a layout; "" = it does."""
    queries, precision, entries = layout.queries, fused_precision(layout), _entries(layout)
    if not queries.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return "the embeddings are not on a CUDA device"
    if precision is None:
        return f"its products of {queries.dtype} need precision 'tf32', 'tf32x3' or 'bf16', got {layout.precision!r}"
    if entries > costs.now.fused:
        return f"a query has {entries:,} judged items, more than {costs.now.fused}"
    if layout.tolerance is not None:
        return "it knows no tolerance"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    from torchrank.engine.fused_kernels import failure

    return failure(queries.device, queries.dtype, precision)


def fused_precision(layout: EmbeddedLayout) -> str | None:
    """The precision of the kernel's products; None = the kernel does not serve this dtype and precision."""
    dtype = layout.queries.dtype
    if dtype in (torch.bfloat16, torch.float16):
        return "ieee"  # products of short numbers are exact
    return layout.precision if dtype == torch.float32 and layout.precision in ("tf32", "tf32x3") else None


def _entries(layout: EmbeddedLayout) -> int:
    return int(layout.judged.sizes.max()) if len(layout.judged.sizes) else 0
