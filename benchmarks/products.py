"""``python -m benchmarks --products``: what an accelerator multiplies to rank embeddings, counted without one.

As in :mod:`benchmarks.launches`, the batch is on torch's meta device. The fused kernel needs a GPU, so these are the
products of the eager way.
"""

from __future__ import annotations

from typing import Any

import torchrank as tr
from benchmarks.launches import Launches, _floats, _integers, _size


class Products(Launches):
    """Count matrix products too, and the bytes of the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.products = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if func._schema.name == "aten::mm":
            self.products += 1
            self.flops += 2 * args[0].numel() * args[1].shape[1]
        if not func.is_view:  # a view makes nothing
            self.largest = max([self.largest, *(x.untyped_storage().nbytes() for x in self._on_device(result))])
        return result


def of(queries: int, items: int, dimension: int, excluded: int = 0, **more: Any) -> Products:
    """The products of one batch with a label per query, and pairs of excluded items."""
    pairs = (_integers(excluded), _integers(excluded)) if excluded else None
    batch = _floats(queries, dimension), _floats(items, dimension), _integers(queries)
    for seen in (Launches(), Products()):  # the first batch makes constants that later ones share
        with seen:
            tr.Ranking.from_embeddings(*batch, exclude=pairs, **more)
    assert isinstance(seen, Products)
    return seen


CASES: tuple[tuple[int, ...], ...] = (
    (1024, 1_000_000, 128),
    (1024, 2_000_000, 128),
    (1024, 50_000, 128),
    (1024, 50_000, 128, 51_200),
    (16, 1_000_000, 128),
)


def table() -> str:
    """The counts of all cases."""
    lines = [
        "| queries, items, dimension | excluded | products | operations, of the least | kernels | bytes | largest |"
    ]
    lines.append("| --- " * 7 + "|")
    for case in CASES:
        seen, (queries, items, dimension, *excluded) = of(*case), case
        least = 2 * queries * items * dimension
        shown = (f"{queries:,} x {items:,} x {dimension}", f"{sum(excluded):,}", seen.products)
        counts = (
            f"{seen.flops / least:.2f}",
            f"{seen.found.total():,}",
            _size(seen.bytes.total()),
            _size(seen.largest),
        )
        lines.append("| " + " | ".join(map(str, (*shown, *counts))) + " |")
    return "\n".join(lines)
