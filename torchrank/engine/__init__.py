"""The second room: the only code that looks at all the scores. A canonical layout in, :class:`Places` out."""

from collections.abc import Callable
from typing import Any

from torchrank.engine.catalogue import place_catalogue, place_embedded
from torchrank.engine.dense import place_dense
from torchrank.engine.flat import place_flat
from torchrank.engine.ids import place_ids
from torchrank.engine.places import Places
from torchrank.lists import CatalogueLists, DenseLists, EmbeddedLists, FlatRows, Lists, RankedIds

_ENGINES: dict[type[Lists], Callable[[Any], Places]] = {
    DenseLists: place_dense,
    CatalogueLists: place_catalogue,
    EmbeddedLists: place_embedded,
    FlatRows: place_flat,
    RankedIds: place_ids,
}


def place(lists: Lists) -> Places:
    """Find where the judged candidates of one block of queries stand."""
    return _ENGINES[type(lists)](lists)
