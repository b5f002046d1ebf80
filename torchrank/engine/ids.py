"""Engine for ranked lists of ids: the rank of a judged id is its position in the list."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware.devices import widest_float
from torchrank.layouts.canonical import RankedIds
from torchrank.layouts.ranked_ids import found, kept_ids
from torchrank.ranking.ranking import Ranking


def rank_ids(layout: RankedIds) -> Ranking:
    """Rank the judged ids; judged ids that are not in their list are not retrieved."""
    _, grade = layout.judged.rectangle()
    listed, position, valid, errors = positions(layout)
    # A rank is the number of candidates up to a position, because padding and excluded ids take no rank. Position 0
    # (not in the list) has rank 0.
    rank = torch.nn.functional.pad(listed.cumsum(-1), (1, 0)).gather(-1, position)
    dtype = widest_float(rank.device)
    return Ranking.in_rank_order(
        rank.to(dtype),
        (rank > 0).to(dtype),
        grade,
        valid,
        listed.sum(-1).to(dtype),
        errors,
        depth=1,
    )


def positions(layout: RankedIds) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the judged ids in their lists.

    Returns:
        whether a position holds a candidate, bool [query, position]; the position of each judged id, counted from 1,
        or 0 if it is not in the list, int64 [query, entry]; whether a judged id is a candidate, bool [query, entry];
        counters of bad values, int64 [kind].
    """
    items, grade = layout.judged.rectangle()
    listed, valid, errors = kept_ids(layout, items, grade)
    return listed, found(items, torch.where(listed, layout.ids, -1)), valid, errors
