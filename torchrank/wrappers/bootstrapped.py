"""The Poisson bootstrap of a suite: every replicate is two more sums for each metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack, get_args

import torch
from torch import Tensor

from torchrank.display import Table
from torchrank.hardware.threads import in_batch
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.names.arguments import integer, one_of
from torchrank.names.types import Array, Target
from torchrank.ranking.ranking import Ranking
from torchrank.state import sums
from torchrank.state.metric import Measure
from torchrank.state.scoring import Values
from torchrank.state.sums import NO_INTERVAL, Estimate, Interval, Sum, check
from torchrank.state.waiting import bulk
from torchrank.statistics.intervals import normal_quantile
from torchrank.wrappers.tallies import (
    Members,
    PlainTally,
    Suite,
    SuiteMetric,
    collection_of,
    measures_of,
    poisson_counts,
    splitmix64,
)

#: an interval from replicates: their percentiles, their percentiles mirrored at the value, or their standard deviation
Percentiles = Literal["percentile", "basic", "se"]

# Counts of a chunk of queries, which fit in the cache of a core; and chunks between two additions.
MOST_COUNTS = 2**18

# A number is the sum of a multiple of 2^-14 and a multiple of 2^-47. Sums of such multiples are exact in float64, so
# they do not depend on the order: up to a sum of 2^39, and for weights from 2^-27 with a relative error below 1e-6.
COARSE, FINE = 1.5 * 2.0 ** (52 - 14), 1.5 * 2.0 ** (52 - 47)


class BootstrapTally(PlainTally):
    """The plain sums, a fingerprint of the ids, and sums of every metric and replicate."""

    needs_ids = True

    def __init__(
        self, metrics: Mapping[str, Measure], replicates: int, seed: int, level: float, method: Percentiles
    ) -> None:
        super().__init__(metrics)
        self.replicates, self.seed, self.level, self.method = replicates, seed, level, method
        self.definition = f"bootstrapped(replicates={replicates},seed={seed})"
        # coarse and fine parts of sum(p w v) and sum(p w)
        self.size = self.num_plain + 1 + 4 * len(metrics) * replicates
        ones = torch.ones(2, device="cpu")
        for key, metric in metrics.items():
            if not bool(metric.value_of(_pseudo(ones, ones)).isfinite().all()):
                raise ValueError(
                    f"Expected metrics that are a mean over queries in Bootstrapped, got {key!r}; leave it out"
                )

    def of(self, metrics: Mapping[str, Measure]) -> BootstrapTally:
        """The same bootstrap of other metrics."""
        return BootstrapTally(metrics, self.replicates, self.seed, self.level, self.method)

    def sums(self, values: Values, ids: Tensor | None, groups: Sequence[Members]) -> Tensor:
        assert ids is not None
        plain, weight, counted = super().sums(values, ids, groups), values.final_weights, values.counted
        inside = torch.stack([metric.mean.inside(row) for metric, row in zip(self.metrics.values(), values.values)])
        rows = _limbs(torch.where(weight > 0, inside * weight, 0.0), weight)  # [4 * metric, query]
        prints = (splitmix64(ids.clone()) & (2**24 - 1)).to(rows.dtype)
        marks = [(prints * (counted if members is None else counted & members)).sum() for members in groups]
        totals = in_batch(rows.device, len(ids) * self.replicates, self._replicated, rows, ids, groups)
        return torch.cat([plain, torch.stack(marks).unsqueeze(1), totals.flatten(1)], dim=1)

    def _replicated(self, rows: Tensor, ids: Tensor, groups: Sequence[Members]) -> Tensor:
        """The sums of rows [row, query] over the queries of each group in every replicate: [group, row, replicate]."""
        distinct, position = _distinct(rows)
        step = max(1, MOST_COUNTS // self.replicates)

        total = rows.new_zeros((len(groups), len(distinct), self.replicates))
        for start in range(0, len(ids), step):
            chunk = slice(start, start + step)
            counts = poisson_counts(ids[chunk], self.seed, self.replicates).to(rows.dtype)
            inside = distinct[:, chunk]
            # The numbers of queries outside of a group may be infinite, so they are not multiplied by 0.
            each_group = (inside if members is None else torch.where(members[chunk], inside, 0.0) for members in groups)
            total += torch.stack([numbers @ counts for numbers in each_group])  # exact, so in any order
        return total[:, position]

    def replicate_values(self, state: Tensor) -> dict[str, Tensor]:
        """The value of every metric in every replicate, by key: float [replicate]; NaN where nothing was drawn."""
        parts = state[self.num_plain + 1 :].view(4, len(self.metrics), self.replicates)
        wv, w = parts[0] + parts[1], parts[2] + parts[3]
        values = {key: metric.value_of(_pseudo(wv[n], w[n])) for n, (key, metric) in enumerate(self.metrics.items())}
        for n, (key, part) in enumerate(self.of_metrics(state).items()):
            if self.metrics[key].adds_up:  # a sum is that of as many queries as there are, not as many as were drawn
                values[key] = values[key] * (part[Sum.W] / w[n])
        return values

    def fingerprint(self, state: Tensor) -> tuple[int, int]:
        """Number of queries, and the sum of hashes of their ids: equal for equal queries."""
        return int(state[Sum.QUERIES]), int(state[self.num_plain])

    def values(self, state: Tensor) -> dict[str, Tensor]:
        results: dict[str, Tensor] = {}
        plain, replicates = super().values(state), self.replicate_values(state)
        for key, value in plain.items():
            low, high, _ = interval_of(value, replicates[key], self.level, self.method)
            results |= {key: value, f"{key}/low": low, f"{key}/high": high}
        return results

    def estimates(self, state: Tensor, level: float, method: str) -> dict[str, Estimate]:
        method = self.method if method == "auto" else method
        one_of("method", method, get_args(Percentiles))
        estimates = super().estimates(state, level, "auto")
        for key, values in self.replicate_values(state).items():
            value = torch.tensor(estimates[key].value, dtype=values.dtype, device=values.device)
            low, high, error = (float(x) for x in interval_of(value, values, level, method))
            interval = NO_INTERVAL if math.isnan(low) else Interval(low, high)
            estimates[key] = replace(estimates[key], standard_error=error, interval=interval)
        return estimates


def _pseudo(wv: Tensor, w: Tensor) -> Tensor:
    """Sums [replicate, SIZE] in which only the sums of a mean are known."""
    state = wv.new_zeros((*wv.shape, sums.SIZE))
    state[..., Sum.WV], state[..., Sum.W] = wv, w
    return state


def _limbs(wv: Tensor, w: Tensor) -> Tensor:
    """Coarse and fine parts of two tables [metric, query], whose sums are exact: float [4 * metric, query]."""
    both = torch.stack([wv, w])
    if both.dtype != torch.float64:  # a device without float64 has no room for two parts
        return torch.stack([both, torch.zeros_like(both)], 1).flatten(0, 2)
    coarse = (both + COARSE) - COARSE
    fine = ((both - coarse) + FINE) - FINE
    return torch.stack([coarse, fine], 1).flatten(0, 2)


def _distinct(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows without repetitions, and the index of each row among them: most metrics have the same weights."""
    if not rows.is_cpu:
        return rows, torch.arange(len(rows), device=rows.device)
    distinct: list[Tensor] = []
    positions = []
    for row in rows:
        same = next((n for n, other in enumerate(distinct) if torch.equal(row, other)), None)
        positions.append(len(distinct) if same is None else same)
        if same is None:
            distinct.append(row)
    return torch.stack(distinct), torch.tensor(positions, device="cpu")


def interval_of(value: Tensor, replicates: Tensor, level: float, method: str) -> tuple[Tensor, Tensor, Tensor]:
    """Low and high end of an interval, and the standard error, from the value and its replicates: float [] each.

    NaN if fewer than two replicates drew a query, or if all of them are equal.
    """
    drawn = replicates[~replicates.isnan()]
    none = torch.full_like(value, float("nan"))
    if len(drawn) < 2 or bool(drawn.amin() == drawn.amax()):
        return none, none, none
    error = drawn.std()
    if method == "se":
        reach = error * normal_quantile((1 + level) / 2)
        return value - reach, value + reach, error
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=drawn.dtype, device=drawn.device)
    low, high = drawn.quantile(ends)
    return (2 * value - high, 2 * value - low, error) if method == "basic" else (low, high, error)


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
    tally: BootstrapTally

    def __init__(
        self,
        suite: Suite,
        replicates: int = 1000,
        seed: int = 0,
        level: float = 0.95,
        method: Percentiles = "percentile",
        **kwargs: Any,
    ) -> None:
        integer("replicates", replicates, least=2, or_none=False)
        if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
            raise ValueError(f"Expected seed to be an integer of 64 bits, got {seed!r}")
        check(level, "auto")
        one_of("method", method, get_args(Percentiles))
        collection = collection_of(suite, kwargs)
        tally = BootstrapTally(measures_of(collection, "Bootstrapped", means=True), replicates, seed, level, method)
        super().__init__(tally, 1, "", **kwargs)
        self.suite = collection

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
        self.add(Batch(preds, target, **options), query_ids)

    def intervals(self, level: float | None = None, method: Percentiles | None = None) -> dict[str, Interval]:
        """The interval of every metric by key, over the queries of all workers: (low, high), both floats.

        NaN if all replicates are equal, e.g. because there is one query only. ``level`` and ``method`` default to the
        arguments of the constructor.
        """
        level = self.tally.level if level is None else level
        estimates = self.tally.estimates(self._state_of_all(), level, method or "auto")
        return {key: estimate.interval for key, estimate in estimates.items()}

    def summary(self, level: float | None = None, method: str | None = None) -> Table:
        """A table with a row for every metric, over the queries of all workers. Arguments of :meth:`intervals`."""
        return super().summary(self.tally.level if level is None else level, method)

    def _state_of_all(self) -> Tensor:
        """The sums [size] over the queries of all workers."""
        return self.parts(self.of_all_workers())[0]

    def replicates(self) -> dict[str, Tensor]:
        """The value of every metric in every replicate, by key: float64 [replicate], NaN where nothing was drawn."""
        return self.tally.replicate_values(self._state_of_all())

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
        mine, theirs = self._state_of_all(), other._state_of_all().to(self.device)
        level, method = self.tally.level if level is None else level, method or self.tally.method
        prints = [self.tally.fingerprint(state) for state in (mine, theirs)]
        notes = []
        if prints[0] != prints[1]:
            counts = " and ".join(str(queries) for queries, _ in prints)
            notes.append(f"the queries differ ({counts} of them): only common ids are paired")
        return difference_table(self.tally, mine, theirs, level, method, ("this", "other"), notes)


def difference_table(
    tally: BootstrapTally,
    first_state: Tensor,
    second_state: Tensor,
    level: float,
    method: str,
    names: tuple[str, str],
    notes: Sequence[str] = (),
) -> Table:
    """The differences of two states [size] of one bootstrap, paired by replicate."""
    check(level, "auto")
    one_of("method", method, get_args(Percentiles))
    rows: list[dict[str, Any]] = []
    first, second = tally.replicate_values(first_state), tally.replicate_values(second_state)
    values = PlainTally.values(tally, first_state), PlainTally.values(tally, second_state)
    for key in tally.metrics:
        differences = first[key] - second[key]
        differences = differences[~differences.isnan()]
        a, b = values[0][key], values[1][key]
        low, high, error = interval_of(a - b, differences, level, method)
        sides = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
        p = min(1.0, 2 * (1 + sides) / (1 + len(differences))) if len(differences) > 1 else float("nan")
        row: dict[str, Any] = {"measure": key, "a": names[0], "b": names[1], "mean_a": a, "mean_b": b}
        row |= {"difference": a - b, "standard error": error, "low": low, "high": high, "p": p}
        queries = (int(state[Sum.QUERIES]) for state in (first_state, second_state))
        rows.append(row | dict(zip(("queries_a", "queries_b"), queries)))
    kind = f"{100 * level:g} % interval of {tally.replicates} replicates, {method}"
    note = f"difference: a - b; low and high: {kind}, seed {tally.seed}; p is at least {2 / (tally.replicates + 1):.2g}"
    return Table.of_rows(rows, {"p": ".2g"}, [note, *notes])
