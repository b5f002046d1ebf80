"""The Poisson bootstrap of a suite: every replicate is two more sums for each metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack, get_args

import torch
from torch import Tensor

from torchrank.display import Table
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.names.arguments import one_of
from torchrank.names.types import Array, Target
from torchrank.ranking.ranking import Ranking
from torchrank.state.sums import SIZE, Interval, Sum, check
from torchrank.state.waiting import bulk
from torchrank.wrappers.suite_metric import (
    Bootstrap,
    Percentiles,
    Suite,
    SuiteMetric,
    check_ids,
    interval_of,
    sums_of_mean,
)


class Bootstrapped(SuiteMetric):
    r"""The bootstrap of a suite: how much its values change if other queries, or other users, had been drawn.

    **Pass the id of a user in the place of the id of a query, and it is a cluster bootstrap**: all queries of a user
    are drawn together. It is right even if the queries of a user are in several batches or on several workers. Use
    it if a user has several queries; an interval over queries would be too narrow.

    In replicate b, query q counts :math:`p_{bq}` times, Poisson with mean 1, and the replicate is

    .. math:: \hat m_b = \sum_q p_{bq} w_q v_q / \sum_q p_{bq} w_q.

    The counts come from a hash of (seed, id, b). So the replicates do not depend on the split of the queries over
    batches and workers, to the bit for sums up to 5e11. Weights below 1e-9 lose digits, so multiply them by a number.
    Two models with the same seed are paired: their replicates contain the same queries, also if they were evaluated in
    different jobs, see :meth:`difference`.

    The state has four numbers for every metric and replicate. ``compute`` returns, for each key of the suite, the value
    as ``key``, and the ends of its interval as ``key/low`` and ``key/high``. A query that is given twice counts twice.

    Source:
        Efron, Bootstrap methods: another look at the jackknife, Annals of Statistics 1979. Poisson counts in sums:
        Chamandy, Muralidharan, Najmi and Naidu, Estimating uncertainty for massive data streams, Google 2012.

    Args:
        suite: a metric, names of metrics, or a collection. Its measures are copied; their states stay empty.
        replicates: number of replicates. 200 are enough for a standard error (5 %), 1,000 for percentiles.
        seed: integer of 64 bits.
        level: the probability that an interval contains the expected value.
        method: "percentile", the percentiles of the replicates; "basic", these mirrored at the value; "se", the
            standard deviation of the replicates times a quantile of the normal distribution.
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: an argument has an unknown value, or the suite has a metric without a mean over queries.

    Example:
        >>> import torch, torchrank as tr
        >>> booted = tr.Bootstrapped("mrr", replicates=200)
        >>> scores, labels = torch.rand(500, 10, generator=torch.Generator().manual_seed(0)), torch.arange(500) % 10
        >>> booted.update(scores, labels, query_ids=torch.arange(500))
        >>> {key: round(value.item(), 3) for key, value in booted.compute().items()}
        {'mrr': 0.286, 'mrr/low': 0.262, 'mrr/high': 0.311}
    """

    asks_for = "query_ids"
    bootstrap: Bootstrap

    def __init__(
        self,
        suite: Suite,
        replicates: int = 1000,
        seed: int = 0,
        level: float = 0.95,
        method: Percentiles = "percentile",
        **kwargs: Any,
    ) -> None:
        super().__init__(suite, "", bootstrap=Bootstrap(replicates, seed, level, method), **kwargs)
        one = torch.ones((), device="cpu")
        for key, metric in self.metrics.items():
            if not bool(metric.value_of(sums_of_mean(one, one)).isfinite()):
                raise ValueError(
                    f"Expected metrics that are a mean over queries in Bootstrapped, got {key!r}; leave it out"
                )

    @bulk
    @with_options
    def update(
        self,
        preds: Array | Ranking,
        target: Target | None = None,
        *,
        query_ids: Array | Sequence[str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Add a batch of whole queries. Arguments of :meth:`torchrank.RankingMetric.update`, and ``query_ids``.

        ``query_ids`` is int [query], the id of each query, or of the user whose query it is; or a list of texts, see
        :func:`torchrank.hash_ids`. With ``indexes`` it is in ascending order of index.

        Raises:
            TypeError, ValueError: as :meth:`torchrank.RankingMetric.update`, or if ids are missing.
        """
        batch = Batch(preds, target, **options)
        values = self.scored(batch)
        ids, _ = check_ids(query_ids, values.num_queries, values.values.device, "Bootstrapped")
        self.add(self._sums_of(values, ids=ids))
        self.notice_cut(batch.indexes)

    def intervals(self, level: float | None = None, method: Percentiles | None = None) -> dict[str, Interval]:
        """The interval of every metric by key, over the queries of all workers: (low, high), both floats.

        NaN if all replicates are equal, e.g. because there is one query only. ``level`` and ``method`` default to the
        arguments of the constructor.
        """
        level = self.level if level is None else level
        estimates = self.estimates_of(self.of_all_workers(), level, method or "auto")
        return {key: estimate.interval for key, estimate in estimates.items()}

    def summary(self, level: float | None = None, method: str | None = None) -> Table:
        """A table with a row for every metric, over the queries of all workers. Arguments of :meth:`intervals`."""
        return super().summary(self.level if level is None else level, method)

    def replicates(self) -> dict[str, Tensor]:
        """The value of every metric in every replicate, by key: float64 [replicate], NaN where nothing was drawn."""
        return self.replicates_of(self.of_all_workers())

    def difference(self, other: Bootstrapped, level: float | None = None, method: Percentiles | None = None) -> Table:
        """The differences between this model and another one, replicate by replicate, so that they are paired.

        Args:
            other: the same suite with the same seed and number of replicates, of another model, over the same queries.
            level: the probability that an interval contains the expected difference; None = that of the constructor.
            method: as in the constructor, and by default the same.

        Returns:
            A table with a row for every metric: mean_a of this model, mean_b of the other one, difference (a - b),
            standard error, low, high, queries_a, queries_b, and p, twice the share of replicates on the smaller side of
            0. A note tells if the two have other queries.

        Raises:
            ValueError: the other one has another suite, seed or number of replicates.
        """
        if not isinstance(other, Bootstrapped) or other.definition_name != self.definition_name:
            got = other.definition_name if isinstance(other, Bootstrapped) else type(other).__name__
            raise ValueError(f"Expected another {self.definition_name}, got {got}; use one suite, seed and replicates")
        mine, theirs = self.of_all_workers(), other.of_all_workers().to(self.device)
        # equal for equal queries: their number, and the sum of hashes of their ids
        prints = [(int(sums[Sum.QUERIES]), int(sums[len(self.metrics) * SIZE])) for sums in (mine, theirs)]
        notes = []
        if prints[0] != prints[1]:
            counts = " and ".join(str(queries) for queries, _ in prints)
            notes.append(f"the queries differ ({counts} of them): only common ids are paired")
        level, method = self.level if level is None else level, method or self.bootstrap.method
        return difference_table(self, mine, theirs, level, method, ("this", "other"), notes)


def difference_table(
    metric: SuiteMetric,
    first: Tensor,
    second: Tensor,
    level: float,
    method: str,
    names: tuple[str, str],
    notes: Sequence[str] = (),
) -> Table:
    """The differences of two parts of a bootstrap, paired by replicate, from their sums [size]."""
    check(level, "auto")
    one_of("method", method, get_args(Percentiles))
    assert metric.bootstrap is not None
    replicates, seed = metric.bootstrap.replicates, metric.bootstrap.seed
    values, drawn = ([each(sums) for sums in (first, second)] for each in (metric.values_of, metric.replicates_of))
    queries = {f"queries_{name}": int(sums[Sum.QUERIES]) for name, sums in (("a", first), ("b", second))}
    rows: list[dict[str, Any]] = []
    for key in metric.metrics:
        a, b = (by_key[key] for by_key in values)
        differences = drawn[0][key] - drawn[1][key]
        differences = differences[~differences.isnan()]
        low, high, error = interval_of(a - b, differences, level, method)
        sides = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
        p = min(1.0, 2 * (1 + sides) / (1 + len(differences))) if len(differences) > 1 else math.nan
        row: dict[str, Any] = {"measure": key, "a": names[0], "b": names[1], "mean_a": a, "mean_b": b}
        row |= {"difference": a - b, "standard error": error, "low": low, "high": high, "p": p}
        rows.append(row | queries)
    kind = f"{100 * level:g} % interval of {replicates} replicates, {method}"
    note = f"difference: a - b; low and high: {kind}, seed {seed}; p is at least {2 / (replicates + 1):.2g}"
    return Table.of_rows(rows, {"p": ".2g"}, [note, *notes])
