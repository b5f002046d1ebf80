"""Ranked lists of ids: their candidates, where judged ids are, ids that are repeated, and lists with all grades."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchrank.hardware import costs
from torchrank.hardware.devices import constant, put, scalar
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.canonical import OUTSIDE_THE_POOL, CatalogueLayout, DenseLayout, Layout, RankedIds
from torchrank.layouts.items import Pairs, repetitions

# The id of the first position that a repeated id holds. No hash of an id comes so close to the largest integer.
HELD = 2**63 - 2**31


def found(items: Tensor, ids: Tensor) -> Tensor:
    """Position of each item in the list of its query, counted from 1, or 0 if it is not there: int64 [query, entry].

    If the list contains an item several times, it is the last position.

    Args:
        items: int64 [query, entry], negative = padding.
        ids: int64 [query, position], negative = padding.
    """
    if not ids.shape[1]:
        return torch.zeros_like(items)
    if items.shape[1] <= costs.now.compared:  # compare each item with each id
        position = _positions(ids.shape[1], ids.device)
        at = ((items.unsqueeze(-1) == ids.unsqueeze(-2)) * position).amax(-1).long()
    else:
        row = torch.arange(len(ids), device=ids.device).unsqueeze(-1)
        at = _looked_up(items, row, *ids.sort(dim=-1, stable=True))
    return torch.where(items >= 0, at, scalar(0, at.dtype, at.device))


@constant
def _positions(number: int, device: torch.device) -> Tensor:
    return torch.arange(1, number + 1, dtype=torch.int32, device=device)


def repeated(ids: Tensor) -> Tensor:
    """Mark the later copies of each id of a list: bool [query, position]. Negative ids are padding."""
    ordered, order = ids.sort(dim=-1, stable=True)
    again = torch.zeros_like(ordered, dtype=torch.bool)
    again[:, 1:] = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    return torch.zeros_like(again).scatter(-1, order, again)


def without_repeats(layout: Layout, repeats: str) -> RankedIds:
    """Lists of different ids.

    Args:
        layout: ranked ids.
        repeats: "first" = later copies are not candidates; "hold" = a new id is at the place of each.

    Raises:
        ValueError: ``repeats`` is something else, or the layout has scores.
    """
    if repeats not in ("first", "hold"):
        raise ValueError(f"Expected repeats to be 'error', 'first' or 'hold', got {repeats!r}")
    if not isinstance(layout, RankedIds):
        raise ValueError(f"Expected repeats='error' for scores, got {repeats!r}; pass groups for columns of one item")
    ids = layout.ids if layout.mask is None else torch.where(layout.mask, layout.ids, -1)
    position = torch.arange(ids.shape[1], device=ids.device)
    ids = torch.where(repeated(ids), -1 if repeats == "first" else HELD + position, ids)
    return replace(layout, ids=ids, mask=None)


def _looked_up(item: Tensor, row: Tensor, ordered: Tensor, order: Tensor) -> Tensor:
    """:func:`found` by binary search in sorted lists.

    Args:
        item: ids of any shape.
        row: the row of the list of each item, in a shape that broadcasts with ``item``.
        ordered: the lists, each in ascending order, [row, position].
        order: the position of each element of ``ordered`` in the unsorted list, from 0, int64.

    Returns:
        positions from 1, or 0, int64 in the shape of ``item``.
    """
    # torch.searchsorted needs the same number of items for each list, but excluded ids have any number.
    width = ordered.shape[1]
    ordered, order, start = ordered.flatten(), order.flatten(), row * width
    up_to = torch.zeros_like(item)  # number of ids in the list that are at most the item
    step = 1 << width.bit_length()
    while step := step >> 1:
        ahead = up_to + step
        smaller = ordered.take(start + (ahead - 1).clamp_max(width - 1)) <= item
        up_to = torch.where((ahead <= width) & smaller, ahead, up_to)
    last = start + (up_to - 1).clamp_min(0)
    return torch.where((up_to > 0) & (ordered.take(last) == item), order.take(last) + 1, 0)


def listed_ids(layout: RankedIds, items: Tensor, grade: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The ids that are candidates; marks the judged items that are candidates; and counts bad values.

    Args:
        layout: the lists.
        items: the judged items, int64 [query, entry], negative = padding.
        grade: their grades, [query, entry].

    Returns:
        int64 [query, position], negative = no candidate; bool [query, entry]; counters of bad values, int64 [kind].
    """
    ids, valid, errors = layout.ids, items >= 0, layout.errors
    if layout.mask is not None:
        ids = torch.where(layout.mask, ids, -1)
    if layout.validate and ids.shape[1] > 1:
        errors = count(Problem.DUPLICATE_IDS, repetitions(ids), layout.ignored, errors)
    if layout.exclude is not None:
        out, gone = _excluded(layout.exclude, layout.ids, items, grade)
        ids, valid = ids.masked_fill(out, -1), valid & ~gone
    return ids, valid, errors


def spread(layout: CatalogueLayout | RankedIds) -> DenseLayout:
    """Convert lists with a few judged items to a dense layout; all other candidates are outside the pool."""
    items, grade = layout.judged.rectangle()
    if isinstance(layout, CatalogueLayout):
        signed = _signed(grade)
        # One more column, the last, takes the padding of the judged items.
        grades = signed.new_full((len(items), layout.scores.shape[1] + 1), OUTSIDE_THE_POOL)
        grades = grades.scatter(1, torch.where(items < 0, layout.scores.shape[1], items), signed)[:, :-1]
        mask = layout.mask
        if layout.ignored is not None:  # an ignored query gets no candidates, so that its scores cannot be bad values
            counts = ~layout.ignored.unsqueeze(-1)
            mask = counts.expand_as(grades) if mask is None else mask & counts
        fields: Any = {
            "tie_break": layout.tie_break,
            "exclude": layout.exclude,
            "ignored": layout.ignored,
            "costs": layout.costs,
        }
        return DenseLayout(layout.errors, layout.validate, layout.scores, grades, mask, **fields)
    return spread_lists(layout, items, grade, *listed_ids(layout, items, grade))


def spread_lists(
    layout: RankedIds, items: Tensor, grade: Tensor, ids: Tensor, valid: Tensor, errors: Tensor
) -> DenseLayout:
    """:func:`spread` for lists, given the judged items [query, entry], and the result of :func:`listed_ids`."""
    signed = _signed(grade)
    position = found(items, ids)
    # One more column, the first, takes the judged ids that are not in their list: their position is 0.
    grades = signed.new_full((len(ids), ids.shape[1] + 1), OUTSIDE_THE_POOL).scatter(1, position, signed)[:, 1:]
    # Scores that descend with the position. Judged ids that are not in the list follow it, not retrieved.
    by_position = -torch.arange(ids.shape[1], dtype=torch.float32, device=ids.device).expand(ids.shape)
    missing = valid & (position == 0)
    prices = None if layout.costs is None else torch.nn.functional.pad(layout.costs, (0, items.shape[1]))
    return DenseLayout(
        errors,
        False,
        torch.cat([by_position, torch.full_like(items, float("-inf"), dtype=torch.float32)], -1),
        torch.cat([grades, signed], -1),
        torch.cat([ids >= 0, missing], -1),
        ignored=layout.ignored,
        costs=prices,
    )


def _signed(grade: Tensor) -> Tensor:
    """Grades in a dtype for those outside the pool, which are negative."""
    return grade if grade.is_signed() else grade.long()


def _excluded(exclude: Pairs, ids: Tensor, items: Tensor, grade: Tensor) -> tuple[Tensor, Tensor]:
    """Mark the positions, and the judged ids, that are excluded and not relevant: bool in the shapes of both."""
    applies, gone = removed(exclude, items, grade)
    row = exclude.query.clamp_min(0)
    position = _looked_up(exclude.item, row, *ids.sort(dim=-1, stable=True))
    return _marked(ids, row, torch.where(applies, position, 0)), gone


def removed(exclude: Pairs, items: Tensor, grade: Tensor) -> tuple[Tensor, Tensor]:
    """Find the excluded pairs among the judged items.

    Args:
        exclude: the pairs; query -1 = the pair has no effect.
        items: the judged items, int64 [query, entry].
        grade: their grades, [query, entry].

    Returns:
        whether a pair has an effect, because its item is not relevant, bool [pair]; the entries removed, bool [query,
        entry].
    """
    row = exclude.query.clamp_min(0)
    entry = _looked_up(exclude.item, row, *items.sort(dim=-1, stable=True))
    relevant = (entry > 0) & (grade[row, (entry - 1).clamp_min(0)] > 0)
    applies = (exclude.query >= 0) & ~relevant
    return applies, _marked(items, row, torch.where(applies, entry, 0))


def _marked(like: Tensor, row: Tensor, position: Tensor) -> Tensor:
    """Bool, like a matrix: True at some positions, which count from 1 in their rows; 0 = nowhere."""
    # One more column, the first, takes the positions that are nowhere.
    marks = like.new_zeros((len(like), like.shape[1] + 1), dtype=torch.bool)
    put(marks, (row, position), True)
    return marks[:, 1:]
