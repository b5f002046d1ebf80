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
    kept = ids >= 0
    if lists.mask is not None:
        kept = kept & lists.mask
    errors = lists.errors
    if lists.validate and ids.shape[1] > 1:
        ordered = torch.where(kept, ids, -1).sort(dim=-1).values
        errors = errors + count(Problem.DUPLICATE_IDS, (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0))
    valid = items >= 0
    if lists.exclude is not None:
        out, gone = _excluded(lists.exclude, ids, items, grade)
        kept, valid = kept & ~out, valid & ~gone
    return kept, (items.unsqueeze(-1) == ids.unsqueeze(-2)) & kept.unsqueeze(-2), valid, errors


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
