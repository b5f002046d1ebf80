"""Engine for embeddings on a GPU: the ranks of a few judged items without a score in memory, if Triton is installed."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from torchrank.engine.catalogue import as_ranking
from torchrank.engine.excluded import removable, subtract
from torchrank.engine.plan import fused_precision
from torchrank.engine.score_counts import ScoreCounts
from torchrank.layouts.canonical import EmbeddedLayout, Pairs
from torchrank.layouts.checks import Problem, count
from torchrank.ranking.ranking import Ranking


def rank_fused(layout: EmbeddedLayout) -> Iterator[Ranking]:
    """Rank the judged items; yields one ranking.

    The score of a judged item is computed twice: for itself, and among all others. Both must have the same bits, or the
    item would rank behind itself. They are compared on the device, and ``compute`` raises if they differ.
    """
    from torchrank.engine.kernels import count_products

    queries, shard = layout.queries.contiguous(), layout.shard
    catalogue, precision = layout.catalogue.contiguous(), fused_precision(layout)
    assert precision is not None
    scored = functools.partial(_scores, queries, catalogue, precision)
    items, grade = layout.judged.rectangle()
    pairs, gone = removable(layout.exclude, items, grade, None, layout.judged.labels)
    local = items - layout.offset
    here = (local >= 0) & (local < len(catalogue)) & (items >= 0)
    query = torch.arange(len(items), device=items.device).unsqueeze(-1).expand_as(items)
    judged = scored(query, local, here)
    if shard is not None:  # a worker has 0 for the items of other workers, so the sum is the score
        (judged,) = shard.sum(judged)
    layout.progress(1)
    counts = ScoreCounts.nothing(judged.shape, judged.device)
    count_products(queries, catalogue, judged, precision, counts)
    differing = count(Problem.UNEQUAL_SCORES, here & (judged > float("-inf")) & (counts.equal == 0))
    if pairs is not None:
        column = pairs.item - layout.offset
        inside = (pairs.query >= 0) & (column >= 0) & (column < len(catalogue))
        removed = Pairs(torch.where(inside, pairs.query, -1), pairs.item)
        subtract(counts, removed, scored(pairs.query, column, inside), judged, None, None)
    if shard is not None:
        *totals, differing = shard.sum(*counts, differing)
        counts = ScoreCounts(*totals)
    layout.progress(-1)
    valid = items >= 0 if gone is None else (items >= 0) & ~gone
    errors = layout.errors + differing
    yield as_ranking(counts, judged, grade, valid, errors, layout.validate, layout.total, None, layout.judged)


def _scores(queries: Tensor, catalogue: Tensor, precision: str, query: Tensor, item: Tensor, there: Tensor) -> Tensor:
    """Scores of pairs, of the shape of their numbers; 0 for pairs that are not ``there``."""
    from torchrank.engine.kernels import score_pairs

    if not len(catalogue):
        return torch.zeros(query.shape, dtype=torch.float32, device=query.device)
    row, column = (torch.where(there, x, 0).flatten() for x in (query, item))
    return torch.where(there, score_pairs(queries, catalogue, row, column, precision).view(query.shape), 0)
