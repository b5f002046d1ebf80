"""The second room: the only code that looks at all the scores. Canonical layouts in, :class:`Places` out."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchrank.engine.catalogue import place_catalogue
from torchrank.engine.dense import condense, place_dense, spread
from torchrank.engine.flat import as_matrix, place_flat
from torchrank.engine.ids import place_ids
from torchrank.engine.places import Places
from torchrank.engine.sparse import place_sparse
from torchrank.engine.streams import place_embedded, place_streamed
from torchrank.lists import (
    CatalogueLists,
    DenseLists,
    EmbeddedLists,
    FlatRows,
    Lists,
    Need,
    RankedIds,
    SparseLists,
    StreamedLists,
)

_ENGINES: dict[type[Lists], Callable[[Any, Need], Places]] = {
    DenseLists: place_dense,
    CatalogueLists: place_catalogue,
    RankedIds: place_ids,
}


def place(lists: Lists, need: Need) -> Iterator[Places]:
    """Find where the judged candidates stand, block by block, so that temporaries stay small."""
    if lists.errors.device.type == "cpu":
        _keep_freed_memory()
    if isinstance(lists, FlatRows):
        lists = as_matrix(lists)
    if need.everything and isinstance(lists, CatalogueLists | RankedIds):
        for named in lists.blocks(need):
            for block in spread(named).blocks(need):  # type: ignore[arg-type]
                yield place_dense(block, need)  # type: ignore[arg-type]
        return
    lists = condense(lists, need)
    if isinstance(lists, FlatRows):
        yield from place_flat(lists, need)
        return
    if isinstance(lists, SparseLists):
        yield from place_sparse(lists)
        return
    if isinstance(lists, EmbeddedLists):
        yield from place_embedded(lists, need)
        return
    if isinstance(lists, StreamedLists):
        yield from place_streamed(lists, need)
        return
    for block in lists.blocks(need):
        yield _ENGINES[type(block)](block, need)


@functools.cache
def _keep_freed_memory() -> None:
    """Let the C library hold on to up to 64 MB that were freed, for the next temporary.

    By default glibc gives memory back to the system at once and has it paged in again for the next tensor of some
    hundred kilobytes, which takes longer than most operations on it. It learns from the largest block of up to 32 MB
    that was ever freed; this one is never touched, so it takes no memory itself. Elsewhere it changes nothing.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8, device="cpu")
