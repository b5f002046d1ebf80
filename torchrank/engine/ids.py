"""The list is ids, best first: the rank is the position at which a judged id is found."""

import torch
from torch import Tensor

from torchrank.engine.places import Places, in_rank_order, real
from torchrank.engine.sorting import ascending
from torchrank.lists import FEW, Need, Pairs, RankedIds
from torchrank.problems import Problem, count


def place_ids(lists: RankedIds, need: Need) -> Places:
    """Places of the judged ids; those that are not in the list were not retrieved."""
    _, grade = lists.judged.rectangle()
    kept, at, valid, errors = positions(lists)
    rank = torch.nn.functional.pad(kept.cumsum(-1), (1, 0)).gather(-1, at)
    dtype = real(rank.device)
    return in_rank_order(
        rank.to(dtype),
        (rank > 0).to(dtype),
        grade,
        valid,
        kept.sum(-1).to(dtype),
        errors,
        depth=1,
    )


def positions(lists: RankedIds) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the judged ids in their lists.

    Returns:
        which positions hold a candidate, bool [query, position]; at which position from 1 each judged id stands, 0 if
        it does not, int64 [query, entry]; which of these are candidates, bool [query, entry]; counters of bad values,
        int64 [kind].
    """
    items, grade = lists.judged.rectangle()
    kept, valid, errors = kept_ids(lists, items, grade)
    return kept, found(items, torch.where(kept, lists.ids, -1)), valid, errors


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


def kept_ids(lists: RankedIds, items: Tensor, grade: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Positions that hold a candidate, bool [query, position]; judged items that are candidates; error counters."""
    ids = lists.ids
    kept = ids >= 0
    if lists.mask is not None:
        kept = kept & lists.mask
    errors = lists.errors
    if lists.validate and ids.shape[1] > 1:
        ordered = ascending(torch.where(kept, ids, -1))
        again = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        errors = errors + count(Problem.DUPLICATE_IDS, again, lists.ignored)
    valid = items >= 0
    if lists.exclude is not None:
        out, gone = _excluded(lists.exclude, ids, items, grade)
        kept, valid = kept & ~out, valid & ~gone
    return kept, valid, errors


def both_lists(one: Tensor, other: Tensor) -> Places:
    """Places in the first of two lists of ids [query, position], negative = padding, and in the other as grades.

    Entries are the ids of the first list and those that only the other has; -inf is the grade of what it lacks.
    """
    if not one.shape[1] + other.shape[1]:  # of a list without a column others would have nothing to look at
        one = one.new_full((len(one), 1), -1)
    width = one.shape[1]
    ids = torch.cat([one, other], -1)
    kept, other_kept = one >= 0, other >= 0
    dtype = real(ids.device)
    number, length = kept.sum(-1), other_kept.sum(-1, keepdim=True)
    rank = torch.cat([kept.cumsum(-1), torch.zeros_like(other)], -1)
    grade = torch.cat([torch.zeros_like(one), (length + 1 - other_kept.cumsum(-1)) * other_kept], -1)
    # Side by side if both have it, that of the first list before the other.
    ordered, order = ids.sort(dim=-1, stable=True)
    second = order >= width
    again = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    pair = again & second[:, 1:] & ~second[:, :-1]
    errors = count(Problem.DUPLICATE_IDS, again & (second[:, 1:] == second[:, :-1]))
    repeated = torch.nn.functional.pad(pair, (1, 0))[:, : ids.shape[1]]
    found = torch.nn.functional.pad(pair, (0, 1))[:, : ids.shape[1]]
    beside = torch.where(found, grade.gather(-1, order).roll(-1, -1), 0)
    grade = grade + torch.zeros_like(grade).scatter(-1, order, beside)
    valid = torch.cat([kept, other_kept], -1) & ~torch.zeros_like(found).scatter(-1, order, repeated)
    return in_rank_order(
        rank.to(dtype),
        (rank > 0).to(dtype) * valid,
        torch.where(grade > 0, grade.to(dtype), float("-inf")),
        valid,
        number.to(dtype),
        errors,
        depth=1,
    )


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
