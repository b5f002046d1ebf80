"""A few judged items in a long list: count what is scored higher, sort nothing."""

from collections.abc import Iterator

import torch
from torch import Tensor

from torchrank.engine.places import Places, in_rank_order, real
from torchrank.lists import BLOCK, CatalogueLists, EmbeddedLists, Pairs
from torchrank.problems import Problem, count

# Scores to pass over repeatedly while they are in a processor's cache.
CACHED = 2**19

# From this many judged items per query on, one sort of the scores is cheaper than a pass for each of them.
SORT_FROM = 256


def place_catalogue(lists: CatalogueLists) -> Places:
    """Places of the judged items, by counting the scores above and beside each of theirs."""
    scores, items, grade, mask, tie_break = lists.scores, lists.items, lists.grade, lists.mask, lists.tie_break
    column, valid = items.clamp_min(0), items >= 0
    own = scores.gather(-1, column)
    own_tie_break = None if tie_break is None else tie_break.gather(-1, column)
    if mask is not None:
        valid = valid & mask.gather(-1, column)
    greater, equal = (torch.zeros(items.shape, dtype=torch.int64, device=items.device) for _ in range(2))
    num_candidates = greater.new_zeros(len(items))
    is_nan = torch.zeros_like(num_candidates, dtype=torch.bool)
    for rows, columns in _tiles(scores):
        tile_mask, tile_tie_break = (None if x is None else x[rows, columns] for x in (mask, tie_break))
        own_rows = None if own_tie_break is None else own_tie_break[rows]
        counts = _count(scores[rows, columns], own[rows], tile_mask, tile_tie_break, own_rows)
        for total, part in zip((greater, equal, num_candidates, is_nan), counts):
            total[rows] += part.to(total.dtype)

    if lists.exclude is not None:
        pairs, gone = _removable(lists.exclude, items, grade, mask, scores.shape[1])
        valid = valid & ~gone
        _subtract(pairs, scores, tie_break, own, own_tie_break, greater, equal, num_candidates)

    errors = lists.errors
    if lists.validate:
        errors = errors + count(Problem.NAN_SCORES, is_nan)
    dtype = real(scores.device)
    tied = torch.where(valid & (own > float("-inf")), equal, 0)
    return in_rank_order(
        (greater + 1).to(dtype), tied.to(dtype), grade, valid, num_candidates.to(dtype), errors, scores.shape[1]
    )


def _tiles(scores: Tensor) -> Iterator[tuple[slice, slice]]:
    """Rows and columns to count in at a time, so that they stay in a processor's cache between the passes."""
    size = CACHED if scores.device.type == "cpu" else BLOCK * 64
    width = min(scores.shape[1], size)
    height = size // width
    for row in range(0, len(scores), height):
        for column in range(0, scores.shape[1], width):
            yield slice(row, row + height), slice(column, column + width)


def _count(
    scores: Tensor, own: Tensor, mask: Tensor | None, tie_break: Tensor | None, own_tie_break: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Candidates ahead of and beside each judged item [query, entry]; all, and whether one is NaN [query]."""
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    # Comparisons written as float32 are summed by vector instructions, those written as bool are not.
    dtype = torch.float32 if scores.device.type == "cpu" else torch.bool
    buffer = torch.empty(scores.shape, dtype=dtype, device=scores.device)
    num_candidates, is_nan = torch.gt(scores, float("-inf"), out=buffer).sum(-1), scores.amax(-1).isnan()
    if tie_break is None and own.shape[1] >= SORT_FROM:
        ordered, own = scores.sort(dim=-1).values, own.contiguous()
        greater = scores.shape[1] - torch.searchsorted(ordered, own, right=True)
        equal = scores.shape[1] - greater - torch.searchsorted(ordered, own)
        return greater, equal, num_candidates, is_nan
    counts = []
    for column in range(own.shape[1]):
        one = own[:, column, None]
        if tie_break is None or own_tie_break is None:
            counts.append((torch.gt(scores, one, out=buffer).sum(-1), torch.eq(scores, one, out=buffer).sum(-1)))
        else:
            ahead, beside = _compare(scores, tie_break, one, own_tie_break[:, column, None])
            counts.append((ahead.sum(-1), beside.sum(-1)))
    greater, equal = (torch.stack(part, dim=-1) for part in zip(*counts))
    return greater, equal, num_candidates, is_nan


def place_embedded(lists: EmbeddedLists) -> Places:
    """Score one block of queries and count. Judged items are read from the very same product as all others."""
    with torch.autocast(lists.queries.device.type, enabled=False):
        scores = lists.queries @ lists.catalogue.T
    if not scores.shape[1]:
        scores = scores.new_full((len(scores), 1), float("-inf"))
    return place_catalogue(
        CatalogueLists(lists.errors, lists.validate, scores, lists.items, lists.grade, exclude=lists.exclude)
    )


def _compare(
    scores: Tensor, tie_break: Tensor | None, own: Tensor, own_tie_break: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Which scores stand ahead of ``own``, and which beside it."""
    if tie_break is None or own_tie_break is None:
        return scores > own, scores == own
    same = scores == own
    return (scores > own) | (same & (tie_break > own_tie_break)), same & (tie_break == own_tie_break)


def _removable(exclude: Pairs, items: Tensor, grade: Tensor, mask: Tensor | None, width: int) -> tuple[Pairs, Tensor]:
    """The pairs to take out, each a candidate, once, and not relevant; and the entries that go with them."""
    key, order = (exclude.query * width + exclude.item).sort()
    again = torch.cat([key.new_zeros(1, dtype=torch.bool), key[1:] == key[:-1]])[: len(key)]
    query, item = exclude.query[order], exclude.item[order]
    if mask is not None:
        again = again | ~mask[query, item]
    query = query.masked_fill(again, -1)
    gone = torch.zeros_like(items, dtype=torch.int32)
    step = max(1, BLOCK // items.shape[1])
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        judged = (items[query[part]] == item[part].unsqueeze(-1)) & (query[part] >= 0).unsqueeze(-1)
        relevant = (judged & (grade[query[part]] > 0)).any(-1)
        gone.index_add_(0, query[part].clamp_min(0), (judged & ~relevant.unsqueeze(-1)).int())
        query[part] = query[part].masked_fill(relevant, -1)
    return Pairs(query, item), gone > 0


def _subtract(
    pairs: Pairs,
    scores: Tensor,
    tie_break: Tensor | None,
    own: Tensor,
    own_tie_break: Tensor | None,
    greater: Tensor,
    equal: Tensor,
    num_candidates: Tensor,
) -> None:
    """Take excluded pairs out of the counts, which costs their number and not another pass over the scores."""
    step = max(1, BLOCK // own.shape[1])
    for start in range(0, len(pairs.query), step):
        query, item = pairs.query[start : start + step], pairs.item[start : start + step]
        there = (query >= 0).unsqueeze(-1)
        score = scores[query, item].unsqueeze(-1)
        tie = None if tie_break is None else tie_break[query, item].unsqueeze(-1)
        ahead, beside = _compare(score, tie, own[query], None if own_tie_break is None else own_tie_break[query])
        query = query.clamp_min(0)
        greater.index_add_(0, query, -(ahead & there).to(greater.dtype))
        equal.index_add_(0, query, -(beside & there).to(equal.dtype))
        listed = there & (score > float("-inf"))
        num_candidates.index_add_(0, query, -listed.squeeze(-1).to(num_candidates.dtype))
