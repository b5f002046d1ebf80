"""Excluded pairs: which must be removed, and their subtraction from the counts of judged items."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.engine.comparing import ahead_and_tied
from torchrank.engine.score_counts import ScoreCounts
from torchrank.hardware import costs
from torchrank.layouts.canonical import Pairs
from torchrank.layouts.conversions import removed


def removable(
    exclude: Pairs | None, items: Tensor, grade: Tensor, mask: Tensor | None, labels: bool
) -> tuple[Pairs | None, Tensor | None]:
    """The excluded pairs that must be removed, and the entries that they remove, bool [query, entry]; None = none.

    Pairs that are relevant, or no candidates under ``mask``, get query -1.

    Args:
        exclude: the pairs.
        items: the judged items, int64 [query, entry].
        grade: their grades, [query, entry].
        mask: bool [query, candidate].
        labels: each query has at most one judged item, which is relevant. Then pairs remove no entries.
    """
    if exclude is None:
        return None, None
    query, item = exclude.query, exclude.item
    if mask is not None:
        query = query.masked_fill(~mask[query, item], -1)
    if labels:  # a pair of query -1 reads the last label, and keeps its -1
        return Pairs(query.masked_fill(items[:, 0][query] == item, -1), item), None
    if items.shape[1] > costs.now.compared:
        applies, gone = removed(Pairs(query, item), items, grade)
        return Pairs(query.masked_fill(~applies, -1), item), gone
    query, gone = query.clone(), torch.zeros_like(items, dtype=torch.int32)
    # Some pairs at a time, because each is compared with all judged items of its query.
    step = max(1, costs.now.room(items) // items.shape[1])
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        row = query[part]
        judged = (items[row] == item[part].unsqueeze(-1)) & (row >= 0).unsqueeze(-1)
        relevant = (judged & (grade[row] > 0)).any(-1)
        gone.index_add_(0, row.clamp_min(0), (judged & ~relevant.unsqueeze(-1)).int())
        query[part] = torch.where(relevant, -1, row)
    return Pairs(query, item), gone > 0


def subtract(
    counts: ScoreCounts,
    pairs: Pairs,
    scores: Tensor,
    judged: Tensor,
    tie_break: Tensor | None,
    judged_tie_break: Tensor | None,
) -> None:
    """Subtract excluded pairs from the counts, in place. This reads the pairs only, and not all scores again."""
    if judged.shape[1] > costs.now.compared:
        _subtract_sorted(counts, pairs, scores, judged, tie_break, judged_tie_break)
        return
    step = max(1, costs.now.room(judged) // judged.shape[1])
    for start in range(0, len(pairs.query), step):
        part = slice(start, start + step)
        query, score = pairs.query[part], scores[part].unsqueeze(-1)
        real = (query >= 0).unsqueeze(-1)  # a pair of query -1 subtracts 0 from query 0
        tie = None if tie_break is None else tie_break[part].unsqueeze(-1)
        ahead, tied = ahead_and_tied(
            score, tie, judged[query], None if judged_tie_break is None else judged_tie_break[query]
        )
        query = query.clamp_min(0)
        counts.greater.index_add_(0, query, -(ahead & real).long())
        counts.equal.index_add_(0, query, -(tied & real).long())
        counts.retrieved.index_add_(0, query, -(real & (score > float("-inf"))).squeeze(-1).long())


def _subtract_sorted(
    counts: ScoreCounts,
    pairs: Pairs,
    scores: Tensor,
    judged: Tensor,
    tie_break: Tensor | None,
    judged_tie_break: Tensor | None,
) -> None:
    """Subtract excluded pairs from the counts, in place.

    Time grows with the number of pairs times the logarithm of the number of entries. Temporary memory grows with the
    number of entries, not with the number of pairs.

    Args:
        counts: the counts.
        pairs: the pairs; query -1 = the pair has no effect.
        scores: score of each pair.
        judged: scores of the judged items, [query, entry].
        tie_break: tie break of each pair.
        judged_tie_break: tie breaks of the judged items, [query, entry].
    """
    queries, entries = judged.shape
    order = judged.argsort(dim=-1, stable=True) if judged_tie_break is None else _by_both(judged, judged_tie_break)
    # Entries in ascending order, NaN last.
    keys = [None if x is None else x.gather(-1, order).flatten() for x in (judged, judged_tie_break)]
    # found[0] counts the pairs that are ahead of exactly the first n entries of their query, for n = 0 ... entries;
    # found[1] counts the pairs that are ahead of, or tied with, exactly the first n.
    counted = torch.zeros((2, queries * (entries + 1)), dtype=torch.int64, device=judged.device)
    step = costs.now.room(judged)
    for start in range(0, len(pairs.query), step):
        part = slice(start, start + step)
        real, row = pairs.query[part] >= 0, pairs.query[part].clamp_min(0)
        mine = scores[part], None if tie_break is None else tie_break[part]
        for number, tied_too in enumerate((False, True)):
            place = _first_entries(row * entries, entries, keys, mine, tied_too)
            counted[number].index_add_(0, row * (entries + 1) + place, real.long())
        counts.retrieved.index_add_(0, row, -(real & (mine[0] > float("-inf"))).long())
    # The n-th entry is behind each pair that is ahead of at least the first n entries.
    behind = counted.view(2, queries, entries + 1).flip(-1).cumsum(-1).flip(-1)[..., 1:]
    ahead, at_least = torch.zeros_like(behind).scatter_(-1, order.expand_as(behind), behind)
    counts.greater.sub_(ahead)
    counts.equal.sub_(at_least - ahead)


def _by_both(judged: Tensor, tie_break: Tensor) -> Tensor:
    """Order of the entries by score, and by tie break among equal scores."""
    by_tie_break = tie_break.argsort(dim=-1, stable=True)
    return by_tie_break.gather(-1, judged.gather(-1, by_tie_break).argsort(dim=-1, stable=True))


def _first_entries(
    begin: Tensor, entries: int, keys: list[Tensor | None], mine: tuple[Tensor, Tensor | None], tied_too: bool
) -> Tensor:
    """Number of entries that a pair is ahead of, or also tied with: int64 [pair].

    Args:
        begin: place of the first entry of the query of each pair, int64 [pair].
        entries: number of entries of each query.
        keys: scores and tie breaks of the entries of all queries, each query's in ascending order.
        mine: score and tie break of each pair.
        tied_too: whether ties count.
    """
    count = torch.zeros_like(begin)
    step = 1 << entries.bit_length()
    while step := step >> 1:
        further = count + step
        score, tie_break = (None if x is None else x.take(begin + (further - 1).clamp_max(entries - 1)) for x in keys)
        assert score is not None
        ahead, tied = ahead_and_tied(*mine, score, tie_break)
        count = torch.where((further <= entries) & (ahead | tied if tied_too else ahead), further, count)
    return count
