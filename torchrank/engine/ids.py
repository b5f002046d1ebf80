"""The list is ids, best first: the rank is the position at which a judged id is found."""

import torch
from torch import Tensor

from torchrank.engine.places import Places, in_rank_order, real
from torchrank.lists import BLOCK, Need, Pairs, RankedIds
from torchrank.problems import Problem, count


def place_ids(lists: RankedIds, need: Need) -> Places:
    """Places of the judged ids; those that are not in the list were not retrieved."""
    items, grade = lists.judged.rectangle()
    kept, found, valid, errors = positions(lists)
    position = kept.cumsum(-1)
    first = torch.where(found, position.unsqueeze(-2), 0).amax(-1)
    dtype = real(items.device)
    return in_rank_order(
        first.to(dtype),
        (first > 0).to(dtype),
        grade,
        valid,
        kept.sum(-1).to(dtype),
        errors,
        depth=1,
    )


def positions(lists: RankedIds) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the judged ids in their lists.

    Returns:
        which positions hold a candidate, bool [query, position]; where each judged id stands, bool [query, entry,
        position]; which of these are candidates, bool [query, entry]; counters of bad values, int64 [kind].
    """
    ids = lists.ids
    items, grade = lists.judged.rectangle()
    kept, valid, errors = kept_ids(lists, items, grade)
    return kept, (items.unsqueeze(-1) == ids.unsqueeze(-2)) & kept.unsqueeze(-2), valid, errors


def kept_ids(lists: RankedIds, items: Tensor, grade: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Positions that hold a candidate, bool [query, position]; judged items that are candidates; error counters."""
    ids = lists.ids
    kept = ids >= 0
    if lists.mask is not None:
        kept = kept & lists.mask
    errors = lists.errors
    if lists.validate and ids.shape[1] > 1:
        ordered = torch.where(kept, ids, -1).sort(dim=-1).values
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
    marked, gone = torch.zeros_like(ids, dtype=torch.int32), torch.zeros_like(items, dtype=torch.int32)
    step = max(1, BLOCK // (ids.shape[1] + items.shape[1]))
    for start in range(0, len(exclude.query), step):
        query, item = exclude.query[start : start + step], exclude.item[start : start + step].unsqueeze(-1)
        judged = items[query] == item
        relevant = (judged & (grade[query] > 0)).any(-1)
        applies = ((query >= 0) & ~relevant).unsqueeze(-1)
        marked.index_add_(0, query.clamp_min(0), ((ids[query] == item) & applies).int())
        gone.index_add_(0, query.clamp_min(0), (judged & applies).int())
    return marked > 0, gone > 0
