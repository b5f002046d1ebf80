"""Cuts of queries of different sizes into rectangles of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import torch
from torch import Tensor


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
        ahead = widths[start : start + room // max(1, int(widths[start]))].clamp_min(1).cummax(0).values
        area = ahead * torch.arange(1, len(ahead) + 1, device=widths.device)  # grows with every row
        stop = start + max(1, int(torch.searchsorted(area, room, right=True)))
        cuts.append((start, stop))
        start = stop
    return cuts


def groups(sizes: Tensor, overhead: int, room: int, alike: int | None = None) -> Iterator[tuple[Tensor, int]]:
    """Group queries of similar sizes into rectangles, so that padding costs less than one more rectangle would.

    Args:
        sizes: number of entries of each query, int64 [query].
        overhead: number of padding entries that cost as much as one more rectangle.
        room: largest number of elements of a rectangle of several queries.
        alike: padding of queries of at least this size costs nothing; None = all padding costs.

    Yields:
        numbers of the queries, int64 [query] on the device of the sizes, and the width of their rectangle, at least 1.
        If one rectangle holds all queries, the numbers are 0, 1, ...
    """
    # The search for cuts is in numpy, whose calls cost less, and which sorts integers of 16 bits by counting.
    found = sizes.cpu().numpy()
    widest = max(1, int(found.max(initial=0)))
    order = found.astype(numpy.int16 if widest < 2**15 else numpy.int64).argsort(kind="stable")
    ordered = found[order]
    costs = ordered.clip(1, alike)  # no rectangle is narrower than 1
    cuts, todo = [], [(0, len(ordered))]
    # Split a range of sorted sizes where a split saves most padding, as long as it saves more than the overhead.
    while todo:
        start, stop = todo.pop()
        below, most = costs[start : max(start, stop - 1)], costs[max(start, stop - 1)] if stop else 0
        # Entry i: if queries 0 ... i get a rectangle of their own, each is narrower by the difference of the sizes.
        saved = numpy.arange(1, len(below) + 1) * (most - below)
        middle = int(saved.argmax()) if len(saved) else 0
        if len(saved) and saved[middle] > overhead:
            todo += [(start, start + middle + 1), (start + middle + 1, stop)]
        else:
            cuts.append((start, stop))
    if len(cuts) == 1 and len(ordered) * widest <= room:
        yield torch.arange(len(sizes), device=sizes.device), widest  # in their own order, which saves a gather
        return
    rows = torch.from_numpy(order).to(sizes.device)  # one copy for all rectangles, because each waits for the device
    for start, stop in cuts:
        small = (stop - start) * int(ordered[stop - 1]) <= room
        for first, last in [(0, stop - start)] if small else rectangles(torch.from_numpy(ordered[start:stop]), room):
            yield rows[start + first : start + last], max(1, int(ordered[start + last - 1]))


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
