"""A profile of a suite by measure: the marginal cost of each label on one ranking, and the costs of shared quantities.

The first label that reads a cached quantity pays for it, and later ones read it for nothing. So a label has two costs:
all that it added to the batch, and the part of it that is no shared quantity.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torchrank as tr
from benchmarks.data import graded
from benchmarks.workloads import FORTY
from torchrank.engine import rank
from torchrank.layouts.arrange import arrange
from torchrank.metrics.base import RankingMetric
from torchrank.ranking.ranking import Ranking

#: repetitions, of which the median counts
RUNS = 9


class Timed(dict[Any, Any]):
    """A cache of a ranking that adds up the seconds of each quantity, without those of the quantities inside it."""

    def __init__(self, spent: Counter[str]) -> None:
        super().__init__()
        self.spent = spent
        self._running: list[float] = []

    def __contains__(self, key: Any) -> bool:
        known = super().__contains__(key)
        if not known:
            self._running.append(time.perf_counter())  # `cached` computes a missing quantity and sets it
        return known

    def __setitem__(self, key: Any, value: Any) -> None:
        seconds = time.perf_counter() - self._running.pop()
        self.spent[_name(key)] += seconds
        self._running = [start + seconds for start in self._running]
        super().__setitem__(key, value)

    @property
    def total(self) -> float:
        """Seconds of all quantities."""
        return sum(self.spent.values())


def _name(key: Any) -> str:
    piece, arguments, keywords = key
    shown = [getattr(x, "__name__", str(x)) for x in (*arguments, *(value for _, value in keywords))]
    return f"{piece.__name__}({', '.join(shown)})"


def profile(measures: str = FORTY, queries: int = 8000, candidates: int = 40, decimals: int | None = None) -> str:
    """Measure a suite label by label, and describe the costs in two tables."""
    shape = {"queries": queries, "candidates": candidates, "grades": 5, "decimals": decimals}
    data = graded(shape, "cpu")
    suite = tr.RankingCollection(measures)
    metrics = [metric for _, metric in suite.items() if isinstance(metric, RankingMetric)]
    ranking: list[float] = []
    labels: dict[str, list[tuple[float, float]]] = defaultdict(list)
    shared: dict[str, list[float]] = defaultdict(list)
    for _ in range(RUNS):
        start = time.perf_counter()
        chunks = list(rank(arrange(data.scores, data.target)))
        ranking.append(time.perf_counter() - start)
        spent: Counter[str] = Counter()
        for label, both in _measured(metrics, chunks, spent).items():
            labels[label].append(both)
        for name, seconds in spent.items():
            shared[name].append(seconds)
    whole = {label: _ms([seconds for seconds, _ in both]) for label, both in labels.items()}
    own = {label: _ms([seconds for _, seconds in both]) for label, both in labels.items()}
    total = sum(whole.values())
    lines = [
        f"{queries:,} x {candidates}: ranking {_ms(ranking):.2f} ms, {len(metrics)} labels {total:.1f} ms",
        "",
        "label: ms, ms without shared quantities",
        *(f"{label:<44} {whole[label]:8.2f} {own[label]:8.2f}" for label in sorted(whole, key=lambda x: -whole[x])),
        "",
        "shared quantity: ms",
        *(f"{name:<64} {ms:8.2f}" for ms, name in sorted(((_ms(x), name) for name, x in shared.items()), reverse=True)),
    ]
    return "\n".join(lines)


def _measured(
    metrics: Sequence[RankingMetric], chunks: Sequence[Ranking], spent: Counter[str]
) -> dict[str, tuple[float, float]]:
    """Seconds of each label over all chunks: in all, and without shared quantities."""
    found: dict[str, tuple[float, float]] = {metric.label: (0.0, 0.0) for metric in metrics}
    for chunk in chunks:
        ranking = replace(chunk)
        cache = Timed(spent)
        ranking.__dict__["_cache"] = cache
        for metric in metrics:
            start, before = time.perf_counter(), cache.total
            metric.per_query(ranking)
            seconds = time.perf_counter() - start
            whole, own = found[metric.label]
            found[metric.label] = (whole + seconds, own + seconds - (cache.total - before))
    return found


def _ms(seconds: Sequence[float]) -> float:
    return 1e3 * statistics.median(seconds)
