"""Counts for judged items that are compared only if necessary.

An item is open in a part of the scores if it must be compared there: its rank can still be within reach, and it is not
above all scores of the part. Other items get no counts from the part.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.engine.counting import ScoreCounts, count_by_comparing, count_retrieved
from torchrank.engine.own import OwnScores
from torchrank.layouts.canonical import BLOCK
from torchrank.layouts.items import Pairs

# Open items are counted alone, each with a copy of its query's scores, if at most 1 / ALONE of all items are open.
ALONE = 2


def mostly(is_open: Tensor) -> bool:
    """Whether so many items are open that all are counted. Reads values."""
    return ALONE * int(is_open.sum()) > is_open.numel()


def limits(reach: int, items: Tensor, pairs: Pairs | None) -> Tensor:
    """Number of scores ahead of each judged item from which on its rank is beyond ``reach``.

    Excluded pairs are counted like all others and subtracted at the end, so each raises the limits of its query.

    Args:
        reach: the largest rank that matters.
        items: judged items, [query, entry], negative = padding.
        pairs: excluded pairs, of query -1 if they are not to be removed.

    Returns:
        int64 [query, entry], 0 for padding.
    """
    removed = torch.zeros(len(items), dtype=torch.int64, device=items.device)
    if pairs is not None:
        removed.index_add_(0, pairs.query.clamp_min(0), (pairs.query >= 0).long())
    return torch.where(items >= 0, reach + removed.unsqueeze(-1), 0)


def count_open(scores: Tensor, own: OwnScores, is_open: Tensor) -> ScoreCounts:
    """Count as :func:`count_by_comparing`, but for the open judged items only; other counts are 0.

    This reads values, so it is for the CPU.

    Args:
        scores: [query, candidate].
        own: scores of the judged items, [query, entry].
        is_open: whether a judged item must be counted, bool [query, entry].
    """
    query, entry = is_open.nonzero(as_tuple=True)
    counts = ScoreCounts.nothing(len(scores), own.scores.shape[1], scores.device)
    counts.retrieved[:], counts.has_nan[:] = count_retrieved(scores, finite=own.among_finite)
    step = max(1, BLOCK // max(1, scores.shape[1]))
    for part in zip(query.split(step), entry.split(step)):
        alone = count_by_comparing(scores[part[0]], OwnScores(own.scores[part].unsqueeze(-1), own.among_finite))
        counts.greater[part], counts.equal[part] = alone.greater.squeeze(-1), alone.equal.squeeze(-1)
    return counts
