"""Bounds of memory, and sizes from which another way of ranking is faster: all numbers by which a batch is ranked.

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
    """Bounds and sizes; ``Costs()`` are the measured ones."""

    # ---- memory ----

    #: elements in a chunk of queries. All temporaries of a chunk take a few dozen bytes per element, so at most 64 MB
    block: int = 2**19
    #: such blocks in a chunk on an accelerator, where each chunk launches kernels and only memory bounds its size
    device_chunk: int = 8
    #: metrics that read one ranking of all ranks for which chunks get smaller: they derive quantities as large as it
    several: int = 8
    #: candidates in a chunk of lists with ties, because ties double time and memory
    tied: int = 2**19 // 16 * 5
    #: lists for each one with ties from which these are ranked alone
    few_tied: int = 16
    #: scores of embeddings in a chunk of queries
    product: int = 2**24
    #: bytes of these scores on an accelerator, whose cache keeps most of them
    cached_bytes: int = 2**26
    #: scores of embeddings that take as much memory as one judged item
    judged_item: int = 2**5
    #: scores in one copy of rows whose scores come some columns at a time
    copied: int = 2**20
    #: results in a tile of comparisons of each thread: 2^19 on the EPYC (512 KB a core before a large common cache),
    #: 2^18 on the Xeon (2 MB)
    tile: int = field(default_factory=lambda: tile_for(second_level()))
    #: threads that get rows of a tile, which bounds the memory
    tile_threads: int = 8
    #: blocks in a tile on an accelerator, which only bounds the temporaries
    device_tile: int = 32

    # ---- padding: what one more rectangle of queries costs ----

    #: in padding entries
    rectangle: int = 2**15
    #: in judged items of padding, whose scores come some columns at a time; plus two for each query
    rectangle_counted: int = 2**10

    # ---- lists ----

    #: candidates in a list from which relevant candidates are ranked alone,
    long: int = 2**7
    #: if there are so many candidates for each
    rare: int = 16
    #: times the mean number of relevant candidates that a query can have, before queries are ranked in groups of
    #: similar numbers
    padding: float = 4
    #: length of flat lists up to which they become a matrix for a single metric of all ranks
    short: int = 2**10
    #: threads up to which numpy sorts faster on one than torch on all
    numpy_threads: int = 4
    #: judged ids of a query up to which each is compared with every id; more are looked up in the sorted list
    compared: int = 16

    # ---- judged items: their largest number for which scores are counted ----

    #: on a CPU: rather than searched for the best, and rather than sorted
    few: tuple[float, float] = (4, 10)
    #: by a kernel of Triton
    few_by_kernel: tuple[float, float] = (32, 160)
    #: by operations of torch on an accelerator
    few_by_torch: tuple[float, float] = (1, 3)
    #: candidates from which scores are sorted: in short lists, looking up costs as much as comparing
    sorted_from: int = 2**9
    #: scores for each of the best from which they are searched for
    best_of: float = 16
    #: columns in a group: the k best scores are in the k groups with the best maxima
    group: int = 64
    #: groups for each of the k best from which maxima of groups are faster
    groups_per_rank: float = 8
    #: scores for each of the k best from which torch keeps the best in a heap
    heap_from: float = 64
    #: judged items of a query up to which the fused kernel counts among products of embeddings
    fused: int = 8

    # ---- embeddings ----

    #: items that a CPU scores at a time, so that their scores stay in its cache
    cached_items: int = 2**12
    #: queries in one product that predicts scores of judged items: enough to round as large products usually do
    predicted: int = 256
    #: scores per predicted score from which predicting is cheaper than reading all twice
    predicted_share: float = 8

    # ---- accelerators ----

    #: steps of a few operations each from which waiting for an accelerator costs less
    waiting: int = 2**6

    def room(self, like: Tensor) -> int:
        """Elements in a chunk of queries on the device of a tensor."""
        return self.block if like.is_cpu else self.device_chunk * self.block

    def products(self, embeddings: Tensor) -> int:
        """Scores of embeddings that exist at a time, at most."""
        # 16 bits are compared as 32.
        return self.product if embeddings.is_cpu else self.cached_bytes // max(4, embeddings.element_size())


#: the costs by which batches are ranked
now = Costs()


@contextmanager
def assumed(**changes: Any) -> Iterator[None]:
    """Context in which some costs are others, for tests."""
    global now
    before, now = now, replace(now, **changes)
    try:
        yield
    finally:
        now = before
