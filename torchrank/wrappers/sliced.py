"""The sums of a suite over slices of the queries, and in the replicates of a bootstrap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack, get_args

import torch
from torch import Tensor

from torchrank.display import Table
from torchrank.hardware.devices import eager, widest_float
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.layouts.checks import tensor_of
from torchrank.names.arguments import did_you_mean, integer, one_of
from torchrank.names.types import Array, Target
from torchrank.ranking.ranking import Ranking
from torchrank.state.sums import NO_INTERVAL, SIZE, Estimate, Interval, Sum, check, estimate_table
from torchrank.state.waiting import bulk
from torchrank.statistics.intervals import t_cdf, t_interval, welch
from torchrank.wrappers.suite_metric import (
    Bootstrap,
    Ids,
    Percentiles,
    Scores,
    Suite,
    SuiteMetric,
    check_ids,
    interval_of,
    listed,
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
        self, preds: Scores, target: Target | None = None, *, query_ids: Ids = None, **options: Unpack[Options]
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

    @eager
    def intervals(self, level: float | None = None, method: Percentiles | None = None) -> dict[str, Interval]:
        """The interval of every metric by key, over the queries of all workers: (low, high), both floats.

        NaN if all replicates are equal, e.g. because there is one query only. ``level`` and ``method`` default to the
        arguments of the constructor.
        """
        level = self.level if level is None else level
        estimates = self.estimates_of(self.of_all_workers(), level, method or "auto")
        return {key: estimate.interval for key, estimate in estimates.items()}

    @eager
    def summary(self, level: float | None = None, method: str | None = None) -> Table:
        """A table with a row for every metric, over the queries of all workers. Arguments of :meth:`intervals`."""
        return super().summary(self.level if level is None else level, method)

    def replicates(self) -> dict[str, Tensor]:
        """The value of every metric in every replicate, by key: float64 [replicate], NaN where nothing was drawn."""
        return self.replicates_of(self.of_all_workers())

    @eager
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


#: the name of the queries outside of a slice
REST = "rest"

#: the name of the mean over slices
MACRO = "macro"

#: how a missing name among names is printed: None, NaN, or NA of pandas
MISSING = {"None", "nan", "<NA>"}

#: names of results and of columns, which no slice can have
RESERVED = {REST, MACRO, "low", "high"}


class Sliced(SuiteMetric):
    """A suite for all queries and for each slice of them.

    ``compute`` returns, for each key of the suite, the value over all queries as ``key``, the value of each slice as
    ``key/slice``, and the mean over slices with queries as ``key/macro``. A slice without queries is NaN. The state has
    the sums of every metric and slice. A query can be in several slices, or in none.

    Source:
        Welch, The generalization of Student's problem when several different population variances are involved,
        Biometrika 1947.

    Args:
        suite: a metric, names of metrics, a collection, or a :class:`Bootstrapped`, whose intervals the slices have
            then. Its measures are copied; their states stay empty.
        slices: the names of the slices, which ``update`` takes, or their number.
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: names are repeated or reserved, or the suite has a metric without a mean over queries.

    Example:
        >>> import torch, torchrank as tr
        >>> sliced = tr.Sliced("mrr", ["new", "old"])
        >>> scores, labels = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.2, 0.4]]), torch.tensor([0, 1, 1])
        >>> sliced.update(scores, labels, slices=torch.tensor([0, 1, 1]))
        >>> {key: round(value.item(), 4) for key, value in sliced.compute().items()}
        {'mrr': 0.8333, 'mrr/new': 1.0, 'mrr/old': 0.75, 'mrr/macro': 0.875}
    """

    asks_for = "slices"

    def __init__(self, suite: Suite | Bootstrapped, slices: Sequence[str] | int, **kwargs: Any) -> None:
        self.names = names_of(slices)
        bootstrap = suite.bootstrap if isinstance(suite, Bootstrapped) else None
        suite = suite.suite if isinstance(suite, Bootstrapped) else suite
        definition = f"sliced({','.join(self.names)}) "
        super().__init__(suite, definition, 1 + len(self.names), bootstrap, **kwargs)

    @property
    def num_counters(self) -> int:
        return 2  # queries of slices that do not exist, and queries in more than one slice

    @bulk
    @with_options
    def update(
        self,
        preds: Scores,
        target: Target | None = None,
        *,
        slices: Array | Sequence[str | None] | None = None,
        query_ids: Ids = None,
        **options: Unpack[Options],
    ) -> None:
        """Add a batch of whole queries. Arguments of :meth:`torchrank.RankingMetric.update`, and ``slices``.

        ``slices`` is the slice of each query: its name, None = in none; or its position, int [query], negative = in
        none; or bool [query, slice], True for each slice that the query is in. It is a tensor, an array, a column
        or a list. With ``indexes`` it is in ascending order of index. None = the groups of a ranking by
        ``Ranking.from_table(group=...)``. ``query_ids`` is that of :meth:`Bootstrapped.update`, if the suite is a
        bootstrap.

        Raises:
            TypeError, ValueError: as :meth:`torchrank.RankingMetric.update`, or ``slices`` has another dtype or shape.
                A name or number of no slice is counted and raises in :meth:`compute`.
        """
        if slices is None and isinstance(preds, Ranking) and preds.groups is not None:
            slices = [None if group is None else str(group) for group in preds.groups]
        members, counters, unknown = members_of(slices, self.names)
        self._unknown = self._unknown if unknown is None else unknown
        batch = Batch(preds, target, **options)
        values, ids = self.scored(batch), None
        queries, device = values.num_queries, values.values.device
        if len(members) != queries:
            raise ValueError(f"Expected slices of {queries} queries, as in preds, got {len(members)}")
        if self.bootstrap is not None or query_ids is not None:
            ids, _ = check_ids(query_ids, queries, device, "Sliced")
        self.add(counters, self._sums_of(values, [None, *members.to(device).unbind(1)], ids))
        self.notice_cut(batch.indexes)

    # ---- results -----------------------------------------------------------------------------------------------

    def results(self, sums: Tensor) -> dict[str, Tensor]:
        per_part = [self.results_of(part) for part in self.parts(sums)]
        result: dict[str, Tensor] = {}
        for key in self.metrics:
            ends = [end for end in ("", "/low", "/high") if f"{key}{end}" in per_part[0]]
            for name, values in zip(["", *(f"/{name}" for name in self.names)], per_part):
                result |= {f"{key}{name}{end}": values[f"{key}{end}"] for end in ends}
            result[f"{key}/{MACRO}"] = torch.stack([values[key] for values in per_part[1:]]).nanmean()
        return result

    def check(self, sums: Tensor) -> None:
        if (outside := int(sums[0])) > 0:
            raise ValueError(
                f"Expected slices among {', '.join(self.names)}, or positions from 0 to {len(self.names) - 1}, negative"
                f" for none, got others for {outside} {'query' if outside == 1 else 'queries'}{self.example}; give"
                " Sliced the names of all slices"
            )

    @eager
    def estimates(self, level: float | None = None, method: str = "auto") -> dict[str, dict[str, Estimate]]:
        """The estimates of each slice by key, over the queries of all workers; the name of all queries is ""."""
        parts, level = self.parts(self.of_all_workers()), self.level if level is None else level
        return {name: self.estimates_of(part, level, method) for name, part in zip(["", *self.names], parts)}

    @eager
    def summary(self, level: float | None = None, method: str | None = None) -> Table:
        """A table with a row for every metric and slice, and for the mean over slices, over all workers.

        The macro mean is the mean over slices with queries. Its standard error is sqrt(sum of squared errors) / slices;
        its interval uses the degrees of freedom of Welch and Satterthwaite. Both are NaN with ``method="anytime"``,
        and if a query is in several slices, because their values are not independent then. With a bootstrap both come
        from the replicates.
        """
        level, method = self.level if level is None else level, method or "auto"
        sums = self.of_all_workers()
        parts = self.parts(sums)
        estimates = [self.estimates_of(part, level, method) for part in parts]
        rows: dict[str, Estimate] = {}
        for key in self.metrics:
            total, *slices = (by_key[key] for by_key in estimates)
            rows |= {key: total} | {f"{key}/{name}": estimate for name, estimate in zip(self.names, slices)}
            macro = _macro(slices, level)
            if self.bootstrap is not None:
                known = [part for part in parts[1:] if not bool(self.values_of(part)[key].isnan())]
                if known:  # error and interval from the replicates in which each slice has a value
                    values = torch.stack([self.replicates_of(part)[key] for part in known]).mean(0)
                    how = self.bootstrap.method if method == "auto" else method
                    low, high, error = map(float, interval_of(values.new_tensor(macro.value), values, level, how))
                    macro = replace(macro, standard_error=error, interval=Interval(low, high))
            elif int(sums[1]) or method == "anytime":
                macro = replace(macro, standard_error=math.nan, interval=NO_INTERVAL)
            rows[f"{key}/{MACRO}"] = macro
        return estimate_table(rows, level, method=method)

    @eager
    def worst(self, min_queries: int = 2, level: float | None = None) -> Table:
        """The slice with the worst value of each metric, with an interval that holds for all slices at once.

        The worst of many slices looks worse than it is: of 20 equal slices, the smallest mean is an extreme. So the
        interval is Bonferroni's: each of S slices has the level 1 - (1 - level) / S.

        Args:
            min_queries: slices with fewer queries are left out.
            level: the probability that the intervals of all slices contain their expected values.

        Returns:
            A table with a row for every metric: slice, value, standard error, low, high, queries, empty.

        Source:
            Dunn, Multiple comparisons among means, JASA 1961.

        Raises:
            ValueError: no slice has so many queries.
        """
        level = self.level if level is None else level
        check(level, "auto")
        integer("min_queries", min_queries, least=1, or_none=False)
        parts = self.parts(self.of_all_workers())[1:]
        large = [n for n, part in enumerate(parts) if int(part[Sum.QUERIES]) >= min_queries]
        if not large:
            raise ValueError(f"Expected a slice with {min_queries} queries or more, got none; lower min_queries")
        estimates = [self.estimates_of(parts[n], 1 - (1 - level) / len(large), "auto") for n in large]
        rows, names = {}, []
        for key, metric in self.metrics.items():
            worst = max if metric.higher_is_better is False else min
            scored = [n for n, by_key in enumerate(estimates) if not math.isnan(by_key[key].value)]
            if scored:
                n = worst(scored, key=lambda n: estimates[n][key].value)
                rows[key] = estimates[n][key]
                names.append(self.names[large[n]])
        table = estimate_table(rows, level)
        columns = {"measure": table["measure"], "slice": names} | {n: table[n] for n in table.columns}
        note = f"low and high: {100 * level:g} % for all {len(large)} slices at once (Bonferroni)"
        return Table(columns, table.formats, [note])

    @eager
    def difference(self, one: str, other: str = REST, level: float | None = None) -> Table:
        """The difference of two slices, or of one slice and the queries outside of it.

        A slice is compared to the rest, not to all queries, because these contain the slice. Without a bootstrap,
        slices must have no query in common, because their values would not be independent.

        Args:
            one: the name of a slice.
            other: the name of another slice, or "rest".
            level: the probability that an interval contains the expected difference; None = 0.95, or the level of the
                bootstrap.

        Returns:
            A table with a row for every metric: a and b, the two slices; mean_a, mean_b, difference (a - b), standard
            error, low, high, p, queries_a and queries_b. Without a bootstrap, interval and p are those of Welch's test.

        Raises:
            ValueError: a slice has no such name, both are the same one, or queries are in several slices.
        """
        if one == other:
            raise ValueError(f"Expected two different slices, got {one!r} twice; compare with another one, or 'rest'")
        level, sums = self.level if level is None else level, self.of_all_workers()
        parts, overlap = self.parts(sums), int(sums[1])
        first = parts[self._at(one)]
        second = parts[0] - first if other == REST else parts[self._at(other)]
        if other == REST:
            for key, rest in self.by_metric(second).items():
                if not self.metrics[key].scored_of(rest) > 0:
                    rest.zero_()  # nothing is outside of the slice: a difference of sums is rounded
        if self.bootstrap is not None:
            return difference_table(self, first, second, level, self.bootstrap.method, (one, other))
        if overlap and other != REST:
            raise ValueError(
                f"Expected slices without common queries, got {overlap} queries in several of all slices; compare"
                " with 'rest', or give Sliced a Bootstrapped suite"
            )
        a, b = (self.estimates_of(part, level, "t") for part in (first, second))
        if other == REST:  # a spread of less than 1e-6 of the values is the rounding of the difference of sums
            for key, total in self.by_metric(parts[0]).items():
                weight = self.by_metric(second)[key][Sum.W]
                if b[key].standard_error * weight < 1e-6 * total[Sum.SQUARES].sqrt():
                    b[key] = replace(b[key], standard_error=0.0)
        rows = [_compared(key, a[key], b[key], (one, other), level) for key in self.metrics]
        note = f"difference: a - b; low and high: {100 * level:g} % confidence interval, Welch's t test"
        return Table.of_rows(rows, {"p": ".2g"}, [note])

    def _at(self, name: str) -> int:
        if name not in self.names:
            hint = did_you_mean(name, self.names) if isinstance(name, str) else ""
            raise ValueError(f"Expected the name of a slice, one of {', '.join(self.names)}, got {name!r}{hint}")
        return 1 + self.names.index(name)


def members_of(slices: Any, names: Sequence[str], what: str = "slices") -> tuple[Tensor, Tensor, str | None]:
    """Membership, bool [query, slice], and what is wrong with it.

    That is two counters, of queries in slices that do not exist and of queries in several slices; and the first unknown
    name, or None.
    """
    slices, size, unknown = tensor_of(slices), len(names), None
    keys = listed(slices)
    if isinstance(keys, list | tuple) and any(isinstance(key, str) or str(key) in MISSING for key in keys):
        numbers: dict[Any, int] = {name: number for number, name in enumerate(names)}
        numbers |= {number: number for number in range(size)}  # of positions beside missing ones
        missing = [not isinstance(key, str) and (str(key) in MISSING or str(key).startswith("-")) for key in keys]
        found = [-1 if none else numbers.get(key, numbers.get(str(key), size)) for key, none in zip(keys, missing)]
        unknown = next((str(key) for key, number in zip(keys, found) if number == size), None)
        slices = torch.tensor(found, device="cpu")
    if not isinstance(slices, Tensor) or slices.is_floating_point() or slices.is_complex():
        got, way_out = type(slices).__name__, f"pass torch.as_tensor({what})"
        if slices is None:
            got, way_out = "none", f"pass {what}= to every update"
        elif isinstance(slices, Tensor):
            got, way_out = str(slices.dtype), f"pass torch.as_tensor({what}).long()"
        elif isinstance(slices, str | int):
            got, way_out = f"{slices!r} for all queries", f"pass [{slices!r}] * len(target)"
        raise TypeError(
            f"Expected {what} to be names out of {tuple(names)}, or their positions, an int tensor [query], or a bool"
            f" tensor [query, {size}], got {got}; {way_out}"
        )
    if slices.dtype == torch.bool:
        if slices.dim() != 2 or slices.shape[1] != size:
            hint = f"; pass torch.as_tensor({what}).long() for two {what}, 0 and 1" if slices.dim() == 1 else ""
            raise ValueError(f"Expected bool {what} of shape [query, {size}], got {list(slices.shape)}{hint}")
        members, outside = slices, slices.new_zeros(len(slices))
    else:
        if slices.dim() != 1:
            raise ValueError(f"Expected int {what} of shape [query], one per query, got {list(slices.shape)}")
        members = slices.unsqueeze(1) == torch.arange(size, device=slices.device)
        outside = slices >= size
    dtype = widest_float(slices.device)
    return members, torch.stack([outside.sum(), (members.sum(1) > 1).sum()]).to(dtype), unknown


def names_of(slices: Any) -> list[str]:
    """The names of slices, checked."""
    if isinstance(slices, str | bytes) or not isinstance(slices, int | Sequence) or isinstance(slices, bool):
        raise ValueError(f"Expected slices to be a list of names or their number, got {slices!r}")
    names = [str(n) for n in range(slices)] if isinstance(slices, int) else [str(name) for name in slices]
    if not names or len(set(names)) < len(names) or "" in names:
        raise ValueError(f"Expected the names of slices, each once, got {slices!r}")
    if reserved := RESERVED & set(names):
        raise ValueError(
            f"Expected no slice with the name {min(reserved)!r}, which is the name of a result; choose another name"
        )
    return names


def _macro(slices: list[Estimate], level: float) -> Estimate:
    """The mean over slices with a value, which have the same weight."""
    known = [estimate for estimate in slices if not math.isnan(estimate.value)]
    count = len(known)
    value = sum(estimate.value for estimate in known) / count if count else math.nan
    variances = [(estimate.standard_error / count) ** 2 for estimate in known]
    queries, empty, scored = (sum(getattr(estimate, n) for estimate in known) for n in ("queries", "empty", "scored"))
    error, df = welch([(v, estimate.effective) for v, estimate in zip(variances, known)])
    interval, effective = Interval(*t_interval(value, error, df, level)), sum(estimate.effective for estimate in known)
    return Estimate(value, error, interval, queries, empty, scored, effective)


def _compared(key: str, a: Estimate, b: Estimate, names: tuple[str, str], level: float) -> dict[str, Any]:
    """A row of Welch's t test of the difference of two estimates."""
    difference = a.value - b.value
    error, df = welch([(part.standard_error**2, part.effective) for part in (a, b)])
    low, high = t_interval(difference, error, df, level)
    p = 2 * t_cdf(-abs(difference) / error, df) if error > 0 else math.nan
    row = {"measure": key, "a": names[0], "b": names[1], "mean_a": a.value, "mean_b": b.value}
    row |= {"difference": difference, "standard error": error, "low": low, "high": high, "p": p}
    return row | {"queries_a": a.queries, "queries_b": b.queries}
