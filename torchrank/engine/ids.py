"""Engine for ranked lists of ids: the rank of a judged id is its position in the list."""

from __future__ import annotations

import torch

from torchrank.hardware.devices import widest_float
from torchrank.layouts.canonical import RankedIds
from torchrank.layouts.conversions import found, listed_ids
from torchrank.ranking.ranking import Ranking


def rank_ids(layout: RankedIds) -> Ranking:
    """Rank the judged ids; judged ids that are not in their list are not retrieved."""
    items, grade = layout.judged.rectangle()
    ids, valid, errors = listed_ids(layout, items, grade)
    position = found(items, ids)
    # A rank is the number of candidates up to a position, because padding and excluded ids take no rank. Position 0
    # (not in the list) has the rank behind the list.
    number = (ids >= 0).cumsum(-1, dtype=widest_float(ids.device))
    length = number[:, -1]
    rank = torch.cat([length.unsqueeze(-1) + 1, number], -1).gather(-1, position)
    tied, labels = (position > 0).to(rank.dtype), layout.judged.labels
    return Ranking.in_rank_order(rank, tied, grade, valid, length, errors, depth=1, placed=True, of_labels=labels)
