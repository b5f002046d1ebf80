"""What operations cost on a machine, and how much memory they may take: all numbers by which a plan is made.

They were measured on two cores of an AMD EPYC and of an Intel Xeon; those of accelerators on an H100. Results do not
depend on any of these numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor


def second_level() -> int:
    """Bytes of the second-level cache of a core, on Linux; 0 = unknown."""
    with suppress(OSError, ValueError), open("/sys/devices/system/cpu/cpu0/cache/index2/size") as file:
        return int(file.read().strip().removesuffix("K")) * 1024
    return 0


def tile_for(cache: int) -> int:
    """Results in a tile: half of a second-level cache of 2 MB or more, as floats; else a common cache keeps it."""
    return cache // 8 if cache >= 2**21 else 2**19


@dataclass(frozen=True)
class Costs:
    """Costs and bounds; ``Costs()`` are the measured ones."""

    # ---- memory ----

    #: elements in a chunk of queries. All temporaries of a chunk take a few dozen bytes per element, so at most 64 MB
    block: int = 2**19
    #: such blocks in a chunk on an accelerator, where each chunk launches kernels and only memory bounds its size
    device_chunk: int = 8
    #: metrics that read one ranking of all ranks for which chunks get smaller: they derive quantities as large as it
    several: int = 8
    #: share of a block, at most 1, for lists with padding, whose ranks are not the same in all lists
    padded_block: float = 0.75
    #: scores of embeddings in a chunk of queries
    product: int = 2**24
    #: bytes of these scores on an accelerator, whose cache keeps most of them
    cached_bytes: int = 2**26
    #: scores of embeddings that take as much memory as one judged item
    judged_item: int = 2**5
    #: scores in one copy of rows whose scores come some columns at a time
    copied: int = 2**20
    #: scores in one copy of lists with similar numbers of relevant candidates
    copied_lists: int = 2**22

    # ---- padding: what one more rectangle of queries costs ----

    #: in padding entries
    rectangle: int = 2**15
    #: in comparisons of scores with padding
    rectangle_compared: int = 2**20
    #: in judged items of padding, whose scores come some columns at a time; plus two for each query
    rectangle_counted: int = 2**10

    # ---- dense lists: all candidates, or the relevant ones alone ----

    #: queries whose values are read first, to find out if reading all pays
    sample: int = 64
    #: nanoseconds to rank relevant candidates alone: for a batch of any size
    convert: float = 5e5
    #: per candidate, and more for the share of relevant ones
    find: tuple[float, float] = (3, 200)
    #: nanoseconds per candidate to sort lists, and for each metric that reads all of them
    order: tuple[float, float] = (2, 3.5)
    #: nanoseconds per candidate to sort the best k, and more for the share
    best: tuple[float, float] = (4.5, 60)
    #: candidates per relevant one from which relevant candidates are ranked alone
    sparse: float = 4
    #: queries are padded to the largest number of relevant candidates if that is at most so many times the mean,
    padding: float = 4
    #: and if there are so many candidates per relevant one; otherwise queries are grouped
    rare: float = 20
    #: relevant candidates in a batch that is grouped, because derived quantities are as large
    grouped: int = 2**20
    #: entries in a piece of lists with ties, because ties double time and memory
    tied_entries: int = 2**19 // 16 * 5

    # ---- flat rows ----

    #: length of flat lists up to which they become a matrix for a single metric of all ranks
    short: int = 2**10
    #: length of a list up to which flat rows are recognised as lists of equal length
    listed: int = 2**12
    #: length of a list from which lists are sorted one by one
    sorted_list: int = 4

    # ---- ids ----

    #: judged ids of a query up to which each is compared with every id; more are looked up in the sorted list
    compared: int = 16

    # ---- counting: nanoseconds per score of one thread of a CPU ----

    #: comparing, and more for each judged item
    compare: tuple[float, float] = (0.1, 0.36)
    #: a sort by numpy, and more for each halving of the row; numpy uses one thread
    numpy_sort: tuple[float, float] = (0.3, 0.18)
    #: a sort by torch, for each halving
    torch_sort: float = 3.6
    #: looking up one judged item, for each halving
    look_up: float = 13
    #: counting retrieved scores, beside finding the best
    retrieved: float = 0.5
    #: the best k by a heap, and more for the share of k in the row
    heap: tuple[float, float] = (0.8, 120)
    #: the best k by torch without a heap, and more for the share
    selection: tuple[float, float] = (7, 25)
    #: the best k by numpy
    numpy_selection: float = 1
    #: the best k by the maxima of groups, for the share
    by_groups: float = 500
    #: sorting short rows with their columns by numpy, and more for each halving
    numpy_order: tuple[float, float] = (1.6, 0.2)
    #: nanoseconds that calls of this sort take beside those of the best k
    numpy_calls: float = 20_000
    #: comparisons with a judged item that cost as much as two stable sorts, for each halving
    stable_sorts: float = 2
    #: threads up to which numpy sorts faster on one than torch on all
    numpy_threads: int = 4
    #: numbers per each of the k best from which torch keeps the best in a heap
    heap_from: float = 64
    #: columns in a group: the k best scores are in the k groups with the best maxima
    group: int = 64
    #: groups for each of the k best from which maxima of groups are faster
    groups_per_rank: float = 8
    #: columns that are assumed for scores that come some columns at a time from an iterator of unknown length
    columns: int = 2**17

    # ---- counting: passes over the scores of an accelerator ----

    #: comparing by a kernel of Triton, and more for each judged item
    passes_kernel: tuple[float, float] = (0.9, 0.23)
    #: comparing by operations of torch, and more for each judged item
    passes_compare: tuple[float, float] = (5.4, 10.8)
    #: the best k, and more for the share of k in the row; beside two comparisons, for retrieved scores and for ties
    passes_best: tuple[float, float] = (8.4, 42)
    #: a sort
    passes_sort: float = 38
    #: steps of a few operations each from which waiting for an accelerator costs less
    waiting: int = 2**6
    #: judged items of a query up to which the fused kernel counts among products of embeddings
    fused: int = 8

    # ---- embeddings ----

    #: items that a CPU scores at a time, so that their scores stay in its cache
    cached_items: int = 2**12
    #: queries in one product that predicts scores of judged items: enough to round as large products usually do
    predicted: int = 256
    #: scores per predicted score from which predicting is cheaper than reading all twice
    predicted_share: float = 8

    # ---- tiles of comparisons ----

    #: results in a tile of each thread: 2^19 on the EPYC (512 KB a core before a large common cache), 2^18 on the Xeon
    #: (2 MB)
    tile: int = field(default_factory=lambda: tile_for(second_level()))
    #: threads that get rows of a tile, which bounds the memory
    tile_threads: int = 8
    #: blocks in a tile on an accelerator, which only bounds the temporaries
    device_tile: int = 32

    def room(self, like: Tensor) -> int:
        """Elements in a chunk of queries on the device of a tensor."""
        return self.block if like.is_cpu else self.device_chunk * self.block


#: the costs by which plans are made
now = Costs()


@contextmanager
def assumed(**changes: Any) -> Iterator[None]:
    """Context in which some costs are others, for tests: a plan follows from its costs."""
    global now
    before, now = now, replace(now, **changes)
    try:
        yield
    finally:
        now = before
