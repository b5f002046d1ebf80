"""The list is ids, best first: the rank is the position at which a judged id is found."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.engine.sorting import ascending
from torchrank.hardware.devices import widest_float
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.canonical import FEW, Need, RankedIds
from torchrank.layouts.items import Pairs
from torchrank.ranking.ranking import Ranking


def rank_ids(layout: RankedIds, need: Need) -> Ranking:
    """Places of the judged ids; those that are not in the list were not retrieved."""
    _, grade = layout.judged.rectangle()
    kept, at, valid, errors = positions(layout)
    rank = torch.nn.functional.pad(kept.cumsum(-1), (1, 0)).gather(-1, at)
    dtype = widest_float(rank.device)
    return Ranking.in_rank_order(
        rank.to(dtype),
        (rank > 0).to(dtype),
        grade,
        valid,
        kept.sum(-1).to(dtype),
        errors,
        depth=1,
    )


def positions(layout: RankedIds) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the judged ids in their lists.

    Returns:
        which positions hold a candidate, bool [query, position]; at which position from 1 each judged id stands, 0 if
        it does not, int64 [query, entry]; which of these are candidates, bool [query, entry]; counters of bad values,
        int64 [kind].
    """
    items, grade = layout.judged.rectangle()
    kept, valid, errors = kept_ids(layout, items, grade)
    return kept, found(items, torch.where(kept, layout.ids, -1)), valid, errors


def found(items: Tensor, ids: Tensor) -> Tensor:
    """At which position from 1 of its list each item stands, the last of several, 0 if it does not: like ``items``.

    ``items`` int64 [query, entry] and ``ids`` int64 [query, position]; a negative one is padding.
    """
    if items.shape[1] <= FEW:
        position = torch.arange(1, ids.shape[1] + 1, dtype=torch.int32, device=ids.device)
        at = torch.where(items.unsqueeze(-1) == ids.unsqueeze(-2), position, 0).amax(-1).long()
    else:
        row = torch.arange(len(ids), device=ids.device).unsqueeze(-1)
        at = _looked_up(items, row, *ids.sort(dim=-1, stable=True))
    return torch.where(items >= 0, at, 0)


def _looked_up(item: Tensor, row: Tensor, ordered: Tensor, order: Tensor) -> Tensor:
    """The same for items in any shape, each of one row of the lists, given these in ascending order: int64."""
    width = ordered.shape[1]
    ordered, order, start = ordered.flatten(), order.flatten(), row * width
    up_to = torch.zeros_like(item)  # ids in its list that are no larger
    step = 1 << width.bit_length()
    while step := step >> 1:
        ahead = up_to + step
        smaller = ordered.take(start + (ahead - 1).clamp_max(width - 1)) <= item
        up_to = torch.where((ahead <= width) & smaller, ahead, up_to)
    last = start + (up_to - 1).clamp_min(0)
    return torch.where((up_to > 0) & (ordered.take(last) == item), order.take(last) + 1, 0)


def kept_ids(layout: RankedIds, items: Tensor, grade: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Positions that hold a candidate, bool [query, position]; judged items that are candidates; error counters."""
    ids = layout.ids
    kept = ids >= 0
    if layout.mask is not None:
        kept = kept & layout.mask
    errors = layout.errors
    if layout.validate and ids.shape[1] > 1:
        ordered = ascending(torch.where(kept, ids, -1))
        again = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        errors = errors + count(Problem.DUPLICATE_IDS, again, layout.ignored)
    valid = items >= 0
    if layout.exclude is not None:
        out, gone = _excluded(layout.exclude, ids, items, grade)
        kept, valid = kept & ~out, valid & ~gone
    return kept, valid, errors


def _excluded(exclude: Pairs, ids: Tensor, items: Tensor, grade: Tensor) -> tuple[Tensor, Tensor]:
    """Positions, and judged ids, that are excluded and not relevant."""
    marked, gone = (x.new_zeros((len(x), x.shape[1] + 1), dtype=torch.bool) for x in (ids, items))
    row, there = exclude.query.clamp_min(0), exclude.query >= 0
    entry, position = (_looked_up(exclude.item, row, *x.sort(dim=-1, stable=True)) for x in (items, ids))
    relevant = (entry > 0) & (grade[row, (entry - 1).clamp_min(0)] > 0)
    applies = there & ~relevant
    for marks, at in ((marked, position), (gone, entry)):  # the first column is for what is nowhere
        marks[row, torch.where(applies, at, 0)] = True
    return marked[:, 1:], gone[:, 1:]
