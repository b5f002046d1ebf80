"""Curves of rankings as plain numbers: a measure over its cutoff, precision over recall, ranks of first hits."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from torchrank.formulas.first_relevant import first_rank
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.precision_recall_curve import InterpolatedPrecision, PRCurve
from torchrank.names.arguments import integer
from torchrank.names.parse import parse
from torchrank.ranking.ranking import Ranking
from torchrank.statistics.pair_statistics import PairStatistics, differences_of, paired_statistics
from torchrank.statistics.table import Table
from torchrank.wrappers.query_table import QueryTable
from torchrank.wrappers.suites import values_of

#: the rankings of runs by name
Rankings = Mapping[str, Ranking]

#: largest default cutoff, and about how many there are
DEEPEST, CUTOFFS = 1000, 25


@dataclass(frozen=True)
class Curve:
    """A line of a plot: the values of one run.

    Attributes:
        run: the name of the run.
        x: the places, ascending.
        y: the value at each place; NaN if there is none.
        queries: number of queries that have a value, the largest of all places.
    """

    run: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    queries: int


@dataclass(frozen=True)
class FirstRanks:
    """The ranks of the first relevant documents of one run, and their numbers in bins.

    Attributes:
        run: the name of the run.
        ranks: the (expected) rank in each query; infinite if no relevant document is retrieved, NaN if there is none.
        bins: the last rank of each bin, ascending; the first bin begins at rank 1.
        counts: number of queries in each bin.
        not_retrieved: number of queries in which no relevant document is retrieved.
        no_relevant: number of queries without a relevant document; they are in no bin.
    """

    run: str
    ranks: tuple[float, ...]
    bins: tuple[int, ...]
    counts: tuple[int, ...]
    not_retrieved: int
    no_relevant: int


def worst_first(table: QueryTable, measure: str, most: int | None = None) -> Table:
    """The values of a measure, the worst first; queries without a value are left out.

    Example:
        >>> import torchrank as tr
        >>> worst_first(tr.QueryTable(["x", "y"], {"mrr": [1.0, 0.5]}), "mrr")
        id   value
        y   0.5000
        x   1.0000
    """
    values = table.columns[measure].astype(np.float64)
    order = np.argsort(values if table.higher_is_better[measure] else -values, kind="stable")
    order = order[~np.isnan(values[order])][:most]
    return Table({"id": table.ids[order].tolist(), "value": values[order].tolist()})


def differences(a: QueryTable, b: QueryTable, measure: str) -> tuple[Table, PairStatistics]:
    """The differences b - a of all queries, the largest losses first, and their statistics.

    Returns:
        A table with the columns id and delta, which is exactly 0 for a tie; and the statistics.

    Raises:
        ValueError: a table has no such measure, or the tables have no id in common.
    """
    rows = a.deltas(b, measure, most=None)
    before, after = (np.array(rows[name], dtype=np.float64) for name in ("before", "after"))
    pair = paired_statistics(before, after, measure=measure, higher_is_better=a.higher_is_better[measure])
    return Table({"id": rows["id"], "delta": differences_of(before, after).tolist()}), pair


def outcome(pair: PairStatistics) -> str:
    """On how many queries ``b`` is better, equal and worse, in words."""
    return f"better on {pair.wins:,}, equal on {pair.ties:,}, worse on {pair.losses:,} of {queries_of([pair.n])}"


def queries_of(numbers: Sequence[int]) -> str:
    """Numbers of queries: "50 queries", or "47 to 50 queries" if runs differ."""
    high = max(numbers, default=0)
    low = min(numbers, default=high)
    return f"{f'{low:,} to ' if low < high else ''}{high:,} {'query' if high == 1 else 'queries'}"


def over_cutoffs(
    rankings: Rankings, measure: str | RankingMetric, cutoffs: Sequence[int] | None = None
) -> tuple[Curve, ...]:
    """The aggregate, mostly a mean over queries, of one measure at each cutoff k.

    ``rankings`` are those of runs by name. The rest is as in
    :meth:`torchrank.Evaluation.over_cutoffs`.
    """
    wanted = _ranks(_spread(_depth(rankings.values())) if cutoffs is None else cutoffs, "cutoffs")
    metrics = [_cut(measure, k) for k in wanted]
    return tuple(Curve(run, wanted, *_means(ranking, metrics)) for run, ranking in rankings.items())


def precision_recall(rankings: Rankings, points: int = 11, relevance_level: int = 1) -> tuple[Curve, ...]:
    """The mean over queries of the interpolated precision, over the recall to reach.

    ``rankings`` are those of runs by name. The rest is as in
    :meth:`torchrank.Evaluation.precision_recall`.
    """
    integer("points", points, least=2, or_none=False)
    recall = tuple(point / (points - 1) for point in range(points))
    metrics = [InterpolatedPrecision(recall=level, relevance_level=relevance_level) for level in recall]
    return tuple(Curve(run, recall, *_means(ranking, metrics)) for run, ranking in rankings.items())


def first_ranks(
    rankings: Rankings, bins: Sequence[int] | None = None, relevance_level: int = 1
) -> tuple[FirstRanks, ...]:
    """The rank of the first relevant document of each query, and its distribution.

    ``rankings`` are those of runs by name. The rest is as in
    :meth:`torchrank.Evaluation.first_ranks`.
    """
    for ranking in rankings.values():
        ranking.check(Need(relevant=True), "ranks of first relevant documents")
        if ranking.draw is not None:
            raise ValueError("Expected a ranking of all candidates, got one by sampled(); read the ranking before it")
    ranks_of = {run: _first(ranking, relevance_level) for run, ranking in rankings.items()}
    lasts = _ranks(_round(_depth(rankings.values(), deepest=2**53)) if bins is None else bins, "bins")
    ranks = np.concatenate([lasts, *ranks_of.values()])
    if (largest := ranks[np.isfinite(ranks)].max()) > lasts[-1]:
        lasts = (*lasts, math.ceil(largest))
    return tuple(_binned(run, ranks, lasts) for run, ranks in ranks_of.items())


def _first(ranking: Ranking, level: int) -> np.ndarray:
    """float64 [query]: rank of the first relevant document; infinite if not retrieved, NaN if there is none."""
    ranks = torch.where(ranking.num_relevant(level) > 0, first_rank(ranking, level), float("nan"))
    return (ranks if ranking.ignored is None else ranks[~ranking.ignored]).cpu().numpy()


def _binned(run: str, ranks: np.ndarray, lasts: tuple[int, ...]) -> FirstRanks:
    places = np.searchsorted(lasts, ranks[np.isfinite(ranks)])  # the first bin whose last rank is at or beyond the rank
    counts = tuple(np.bincount(places, minlength=len(lasts)).tolist())
    return FirstRanks(run, tuple(ranks.tolist()), lasts, counts, int(np.isinf(ranks).sum()), int(np.isnan(ranks).sum()))


def _means(ranking: Ranking, metrics: Sequence[RankingMetric]) -> tuple[tuple[float, ...], int]:
    """The aggregate of each metric over the queries of a ranking, and the largest number of queries with a value."""
    keyed = {str(n): metric for n, metric in enumerate(metrics)}
    # A copy of the ranking has a cache of its own, which is freed.
    values, weights, _ = values_of(keyed, copy.copy(ranking))
    table = QueryTable(range(ranking.num_queries), values, weights, keyed)
    return tuple(table.values().values()), max(int((~np.isnan(column)).sum()) for column in table.columns.values())


def label_over_k(measure: str | RankingMetric) -> str:
    """The label of a measure at any cutoff.

    Raises:
        ValueError: the measure is unknown or has no cutoff.

    Example:
        >>> label_over_k("nDCG@10")
        'ndcg@k'
    """
    return f"{_cut(measure, 1).label.removesuffix('@1')}@k"


def _cut(measure: str | RankingMetric, k: int) -> RankingMetric:
    """The metric with another cutoff."""
    if not isinstance(measure, str | RankingMetric):
        raise TypeError(f"Expected the name of a measure or a metric of rankings, got {measure!r}; pass e.g. 'ndcg'")
    try:
        if isinstance(measure, str):
            metric = parse(measure, top_k=k)
        else:
            metric = type(measure)(top_k=k, **{name: getattr(measure, name) for name in measure.definition()})
    except ValueError as error:
        if "no top_k" in str(error):
            raise ValueError(
                f"Expected a measure with a cutoff, got {measure!r}, which reads the whole list; pass e.g. 'ndcg'"
            ) from None
        raise
    if not isinstance(metric, RankingMetric) or isinstance(metric, PRCurve):
        raise TypeError(f"Expected a measure with one value for each ranking, got {measure!r}; pass e.g. 'ndcg'")
    return metric


def _depth(rankings: Iterable[Ranking], deepest: int = DEEPEST) -> int:
    """The length of the longest list, or the largest rank if lengths are not known, at most ``deepest``."""
    longest = 1.0
    for ranking in rankings:
        length = float(ranking.num_candidates.nan_to_num(nan=1.0).amax()) if ranking.num_queries else 1.0
        ranks = torch.where(ranking.tied > 0, ranking.first, 1.0)
        length = max(length, float(ranks.amax()) if ranks.numel() else 1.0)
        longest = max(longest, length if ranking.reach is None else min(length, ranking.reach))
    return int(min(longest, deepest))


def _spread(depth: int) -> list[int]:
    """About 25 integers from 1 to ``depth`` on a logarithmic scale, fewer if close ones are equal."""
    return np.unique(np.geomspace(1, depth, CUTOFFS).round().astype(np.int64)).tolist()


def _round(depth: int) -> list[int]:
    """The ends of bins: 1, 2, 5, 10, 20, 50, ... below ``depth``, or 1, 3, 10, 30, ... of long lists; and ``depth``."""
    digits = (1, 2, 5) if depth <= DEEPEST else (1, 3)
    steps = (digit * 10**power for power in range(len(str(depth))) for digit in digits)
    return [*(step for step in steps if step < depth), depth]


def _ranks(ranks: Sequence[int], name: str) -> tuple[int, ...]:
    """Ranks in ascending order, each once."""
    for rank in ranks:
        integer(name, rank, least=1, or_none=False)
    if not len(ranks):
        raise ValueError(f"Expected {name} with at least one rank, got none; pass e.g. [1, 5, 10], or None")
    return tuple(sorted({int(rank) for rank in ranks}))
