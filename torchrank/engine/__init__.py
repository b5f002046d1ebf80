"""The second room: the only code that looks at all the scores. Canonical layouts in, :class:`Places` out."""

from collections.abc import Callable, Iterator
from typing import Any

from torchrank.engine.catalogue import place_catalogue
from torchrank.engine.dense import condense, place_dense
from torchrank.engine.flat import place_flat
from torchrank.engine.ids import place_ids
from torchrank.engine.places import Places
from torchrank.engine.streams import place_embedded, place_streamed
from torchrank.lists import (
    CatalogueLists,
    DenseLists,
    EmbeddedLists,
    FlatRows,
    Lists,
    Need,
    RankedIds,
    StreamedLists,
)

_ENGINES: dict[type[Lists], Callable[[Any, Need], Places]] = {
    DenseLists: place_dense,
    CatalogueLists: place_catalogue,
    EmbeddedLists: place_embedded,
    StreamedLists: place_streamed,
    RankedIds: place_ids,
}


def place(lists: Lists, need: Need) -> Iterator[Places]:
    """Find where the judged candidates stand, block by block, so that temporaries stay small."""
    if isinstance(lists, FlatRows):
        yield from place_flat(lists, need)
        return
    for block in condense(lists, need).blocks():
        yield _ENGINES[type(block)](block, need)
