"""Queries of different sizes in rectangles of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

# Padding of so many entries costs as much as another rectangle of them.
OVERHEAD = 2**15


def rectangles(widths: Tensor, room: int) -> list[tuple[int, int]]:
    """Cut rows of some widths, int64 [row] on the CPU, into runs whose rectangles have at most ``room`` elements."""
    cuts: list[tuple[int, int]] = []
    start, total = 0, len(widths)
    while start < total:
        ahead = widths[start : start + max(1, room // max(1, int(widths[start])))].clamp_min(1).cummax(0).values
        area = ahead * torch.arange(1, len(ahead) + 1, device=widths.device)  # grows with every row
        stop = start + max(1, int(torch.searchsorted(area, room, right=True)))
        cuts.append((start, stop))
        start = stop
    return cuts


def groups(sizes: Tensor, overhead: int, room: int, alike: int | None = None) -> Iterator[tuple[Tensor, int]]:
    """Queries of some sizes that go into one rectangle, so that padding costs less than another rectangle would.

    Args:
        sizes: int64 [query].
        overhead: padding that costs as much as another rectangle.
        room: a rectangle has no more elements, unless a single query has.
        alike: from this size on no padding costs anything; None = all does.

    Yields:
        the numbers of the queries, int64 on the device of the sizes, and the width of their rectangle, at least 1. If
        all go into one, they are 0, 1, ...
    """
    ordered, rows = sizes.cpu().sort()
    costs = ordered if alike is None else ordered.clamp_max(alike)
    cuts, todo = [], [(0, len(ordered))]
    while todo:
        start, stop = todo.pop()
        below = costs[start : max(start, stop - 1)]
        places = torch.arange(1, len(below) + 1, device="cpu")
        ahead = places * (costs[start:stop].amax() - below) if len(below) else below
        if len(ahead) and int(ahead.max()) > overhead:
            middle = start + int(ahead.argmax()) + 1
            todo += [(start, middle), (middle, stop)]
        else:
            cuts.append((start, stop))
    widest = max(1, int(ordered[-1:].sum()))
    if len(cuts) == 1 and len(ordered) * widest <= room:
        yield torch.arange(len(sizes), device=sizes.device), widest  # in the order in which they came
        return
    rows = rows.to(sizes.device)  # once: each copy would wait for the device
    for start, stop in cuts:
        for first, last in rectangles(ordered[start:stop], room):
            yield rows[start + first : start + last], max(1, int(ordered[start + last - 1]))
