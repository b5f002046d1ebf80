"""The values of every query of a suite, under the id of the query, and the table of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack, get_args

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrank.collection.collection import plot_values
from torchrank.display import Table
from torchrank.hardware.devices import eager, widest_float
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.layouts.checks import Problem
from torchrank.names.arguments import did_you_mean, imported, one_of
from torchrank.names.parse import Named
from torchrank.names.types import Target
from torchrank.ranking.ranking import Ranking
from torchrank.state import sums
from torchrank.state.metric import Measure, SafeMetric
from torchrank.state.scoring import Status, score_batch
from torchrank.state.sums import (
    NO_INTERVAL,
    Estimate,
    ExactSums,
    Interval,
    Sum,
    check,
    estimate,
    estimate_table,
    from_sums,
)
from torchrank.state.synchronisation import DIGEST, WorkersDifferError, appended, gather_rows, widened
from torchrank.state.waiting import LOCK, bulk
from torchrank.statistics.comparison import FEW_CLUSTERS, numbered_clusters
from torchrank.statistics.intervals import betting_interval, t_interval
from torchrank.wrappers.grouped import Reduce, check_order, check_reducible, reduced
from torchrank.wrappers.suite_metric import (
    Ids,
    Scores,
    Suite,
    check_ids,
    collection_of,
    hash_ids,
    is_plain_mean,
    measures_of,
    values_of,
)


class Column(Measure):
    """The arithmetic mean of a column that no metric describes."""

    value_range = (-math.inf, math.inf)
    aggregation, empty_target_action = "mean", "skip"

    def __init__(self) -> None:
        Metric.__init__(self)  # it has neither parameters nor states

    def update(self) -> None:
        """Never called: the values are those of the table."""


class QueryTable:
    """The values of all queries, one column for each metric, and their ids. It is never changed.

    ``table["ndcg@10"]`` has the values of a measure, by any spelling of its name. :func:`torchrank.compare` takes the
    table. :meth:`compute` and :meth:`summary` give the results of the metrics, :meth:`by` those of slices,
    :meth:`deltas` the queries that got worse in another table.

    Args:
        ids: the id of each query: integers or texts, each once.
        columns: values [query] of each metric, by its label; NaN where the query was skipped.
        weights: weights [query] of each metric, by its label; None = 1 for each.
        metrics: the metrics by label, which define aggregation and direction; a label without one has a mean, and
            higher values are better.
        groups: the group of each query, a text or number, over which :meth:`by` takes means; None = in none.
        empty: which queries have nothing to measure, bool [query] of each metric, by its label, whatever their values
            are; None = those without a value.

    Raises:
        ValueError: an id is repeated, a column has another length, or weights are missing, negative or infinite.

    Example:
        >>> import torchrank as tr
        >>> table = tr.QueryTable(["q1", "q2", "q3"], {"mrr": [1.0, 0.5, 0.25]})
        >>> len(table), table["mrr"].tolist(), round(table.compute()["mrr"].item(), 4)
        (3, [1.0, 0.5, 0.25], 0.5833)
    """

    def __init__(
        self,
        ids: Sequence[Any] | np.ndarray | Tensor,
        columns: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Measure] | None = None,
        groups: Sequence[Any] | np.ndarray | None = None,
        empty: Mapping[str, Any] | None = None,
    ) -> None:
        self.ids = np.asarray(ids)
        self.groups = None if groups is None else np.array(groups, dtype=object)
        if self.groups is not None and self.groups.shape != self.ids.shape:
            raise ValueError(f"Expected one group for each of {len(self.ids)} ids, got {len(self.groups)}")
        self.columns = {str(label): _floats(values) for label, values in columns.items()}
        self.weights = None if weights is None else {label: _floats(values) for label, values in weights.items()}
        if "id" in self.columns:
            raise ValueError("Expected labels of metrics, got 'id', the name of the column of ids; rename it")
        given = {label: np.isnan(values) for label, values in self.columns.items()} | dict(empty or {})
        self.empty = {label: np.asarray(given[label], dtype=bool) for label in self.columns}
        for label, values in [*self.columns.items(), *(self.weights or {}).items(), *self.empty.items()]:
            if values.shape != self.ids.shape or self.ids.ndim != 1:
                raise ValueError(
                    f"Expected {label} of shape {list(self.ids.shape)}, one per id, got {list(values.shape)}"
                )
        if self.weights is not None:
            for label in self.columns:
                if label not in self.weights:
                    way_out = "pass weights of 1 to weigh all queries equally"
                    raise ValueError(f"Expected weights of {label}, got none; {way_out}")
                if not (np.isfinite(self.weights[label]) & (self.weights[label] >= 0)).all():
                    way_out = "set the values of skipped queries to NaN"
                    raise ValueError(f"Expected finite weights >= 0 for {label}, got others; {way_out}")
        distinct, counts = np.unique(self.ids, return_counts=True)
        if len(distinct) < len(self.ids):
            place = int(counts.argmax())
            raise ValueError(
                f"Expected each id once, got {distinct.tolist()[place]!r} {counts[place]} times; drop repetitions"
            )
        known = metrics or {}
        self._metrics = {label: known[label] if label in known else Column() for label in self.columns}

    @classmethod
    def of(cls, ranking: Ranking, suite: Suite) -> QueryTable:
        """The values of all queries of a ranking, with its ids and groups.

        Args:
            ranking: a ranking by :meth:`torchrank.Ranking.from_table` or :meth:`torchrank.Ranking.from_run`, which has
                ids.
            suite: a metric, names of metrics, or a collection.

        Raises:
            ValueError: the ranking has no ids, or bad values; the suite has a metric without a value for each query.

        Example:
            >>> import torchrank as tr
            >>> frame = {"qid": ["x", "x", "y"], "score": [0.5, 0.9, 0.3], "label": [1, 0, 1], "language": list("aab")}
            >>> table = tr.QueryTable.of(tr.Ranking.from_table(frame, group="language"), "mrr")
            >>> table.to_dict(), table.by()["measure"], table.by()["value"]
            ({'id': ['x', 'y'], 'mrr': [0.5, 1.0]}, ['mrr/a', 'mrr/b'], [0.5, 1.0])
        """
        if ranking.query_ids is None:
            raise ValueError(
                "Expected a ranking with ids of its queries, got one without; make it by Ranking.from_table or"
                " from_run, or update a PerQuery with query_ids"
            )
        metrics = measures_of(collection_of(suite), "QueryTable", means=False)
        values, weights, empty = values_of(metrics, ranking)
        return cls(_array(ranking.query_ids), values, weights, metrics, ranking.groups, empty)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, measure: str) -> np.ndarray:
        """The values [query] of a measure, by any spelling of its name; NaN where the query was skipped.

        Raises:
            KeyError: the table has no such measure.
        """
        return Named(self.columns)[measure]

    __iter__ = None  # a table is no sequence of its columns, nor of its queries

    @property
    def labels(self) -> list[str]:
        """The labels of the columns."""
        return list(self.columns)

    @property
    def higher_is_better(self) -> dict[str, bool]:
        """Whether a higher value of a query is better, by label."""
        return {label: metric.higher_values_are_better for label, metric in self._metrics.items()}

    @property
    def higher_results_are_better(self) -> dict[str, bool]:
        """Whether a higher result over all queries is better, by label: for 1 / mean rank not as a higher rank."""
        return {label: metric.higher_is_better is not False for label, metric in self._metrics.items()}

    @property
    def other_results(self) -> list[str]:
        """The labels of metrics whose result is not a plain mean of the values of the queries, e.g. their median."""
        weighted = {label for label, weights in (self.weights or {}).items() if (weights != 1).any()}
        return [label for label, metric in self._metrics.items() if label in weighted or not is_plain_mean(metric)]

    # ---- parts -------------------------------------------------------------------------------------------------

    def where(self, chosen: Any) -> QueryTable:
        """The table of some queries only; ``chosen`` is bool [query]."""
        rows = np.asarray(chosen)
        if rows.dtype != bool or rows.shape != self.ids.shape:
            raise ValueError(
                f"Expected bool of shape {list(self.ids.shape)}, one per query, got {rows.dtype} {list(rows.shape)}"
            )
        weights = None if self.weights is None else {label: values[rows] for label, values in self.weights.items()}
        groups = None if self.groups is None else self.groups[rows]
        columns, empty = ({k: v[rows] for k, v in found.items()} for found in (self.columns, self.empty))
        return QueryTable(self.ids[rows], columns, weights, self._metrics, groups, empty)

    def named(self, names: Iterable[str] | Ranking) -> QueryTable:
        """The table with texts as ids, in the place of their numbers by :func:`torchrank.hash_ids`.

        A table of :class:`torchrank.PerQuery` that was updated with texts has them already.

        Args:
            names: the texts of all queries, in any order; or a ranking of all queries, whose groups the table gets too.

        Raises:
            ValueError: the text of an id is missing.
        """
        ranking = names if isinstance(names, Ranking) else None
        names = list((ranking.query_ids or []) if ranking else names)  # type: ignore[arg-type]
        numbers = names if names and isinstance(names[0], int) else hash_ids(names).tolist()
        known = {key: name for number, name in zip(numbers, names) for key in (number, str(number), name)}
        if missing := [key for key in self.ids.tolist() if key not in known]:
            raise ValueError(
                f"Expected the texts of all ids, got none for {missing[0]!r} and {len(missing) - 1} others"
            )
        ids = _array([known[key] for key in self.ids.tolist()])
        groups = self.groups
        if ranking is not None and ranking.groups is not None:
            group = dict(zip(names, ranking.groups))
            groups = np.array([group[key] for key in ids.tolist()], dtype=object)
        return QueryTable(ids, self.columns, self.weights, self._metrics, groups, self.empty)

    def _aligned(self, keys: Any, name: str) -> list[Any]:
        """One key for each query, from a dict by id, or by the texts whose hashes are the ids.

        No sequence is accepted, because it would be in the order of the data, and a table is in the order of its ids.
        """
        if not isinstance(keys, Mapping):
            raise TypeError(
                f"Expected {name} to be a dict from id to key, got {type(keys).__name__}; pass dict(zip(ids, keys)), of"
                " lists"
            )
        ids, known = self.ids.tolist(), dict(keys)
        if self.ids.dtype == np.int64 and all(isinstance(key, str) for key in known):
            known = dict(zip(hash_ids(known).tolist(), known.values()))
        if missing := [key for key in ids if key not in known]:
            raise ValueError(
                f"Expected a key in {name} for every id, got none for {len(missing)} of {len(ids)} ids, e.g."
                f" {missing[0]!r}; give each id a key, a number as a number, a text as a text"
            )
        return [known[key] for key in ids]

    # ---- results -----------------------------------------------------------------------------------------------

    def compute(self) -> dict[str, Tensor]:
        """The result of every metric by label, as its own ``compute`` returns it: float32 []; NaN without values.

        For ``aggregation="none"`` the values in the order of the ids, float32 [query].
        """
        results = {}
        for label, metric in self._metrics.items():
            total, rows = self._sums(label)
            results[label] = metric._narrow(metric.value_of(total, None if from_sums(metric.aggregation) else rows))
        return results

    def values(self) -> dict[str, float]:
        """The result of every metric by label, in double precision as in :meth:`summary`; NaN for several values.

        Example:
            >>> import torchrank as tr
            >>> tr.QueryTable(["q1", "q2"], {"mrr": [1.0, 0.5]}).values()
            {'mrr': 0.75}
        """
        results = {label: metric.value_of(*self._scored(label)) for label, metric in self._metrics.items()}
        return {label: float(result) if result.numel() == 1 else math.nan for label, result in results.items()}

    def summary(self, level: float = 0.95, clusters: Any = None) -> Table:
        """A table with a row for every metric: value, standard error, interval and numbers of queries.

        With T and W the sums of weight x value and of weight of each of C clusters, m their ratio over all clusters,

            variance of m = C / (C - 1) * sum((T - m W)^2) / sum(W)^2,

        and the interval has C - 1 degrees of freedom. Use clusters if values depend on each other, e.g. because a user
        has several queries.

        Args:
            level: the probability that an interval contains the expected value.
            clusters: a dict from the id of each query to its cluster, e.g. its user. With clusters, a metric that
                is not a mean has no interval.

        Returns:
            A table with the columns of :meth:`torchrank.RankingCollection.summary`.

        Source:
            Liang and Zeger, Longitudinal data analysis using generalized linear models, Biometrika 1986.

        Raises:
            ValueError: an argument has an unknown value, clusters lack an id, or the cluster of an id is None or NaN.
        """
        estimates = {label: self._estimate(label, level, "auto") for label in self.columns}
        if clusters is None:
            return estimate_table(estimates, level)
        cluster = numbered_clusters(self._aligned(clusters, "clusters"), self.ids.tolist())
        count = len(np.unique(cluster))
        estimates = {label: self._clustered(label, estimated, cluster, level) for label, estimated in estimates.items()}
        notes = [f"{count} clusters: standard errors and intervals allow for dependence within them"]
        if count < FEW_CLUSTERS:
            notes.append(f"fewer than {FEW_CLUSTERS} clusters: the standard errors are too small")
        return estimate_table(estimates, level, notes)

    def confidence_sequences(self, level: float = 0.95, other: QueryTable | None = None) -> dict[str, Interval]:
        """An interval of the mean of every column that holds for any number of queries, at all looks together.

        In contrast to :meth:`torchrank.RankingMetric.confidence_sequence` it is not asymptotic: it bets on bounded
        values, so that it holds for five queries, and for values that are 0 but for a few. It may be looked at while
        queries are added in random order.

        Args:
            level: the probability that all looks contain the expected value.
            other: the table of another model: intervals of the means of other - this one, over the queries of both.

        Returns:
            (low, high) by label; both NaN for a measure without a smallest and a largest value, for one whose result
            is not a plain mean of its values, and for a column without a metric.

        Source:
            Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, Journal of the Royal
            Statistical Society B 2024.

        Raises:
            ValueError: ``level`` is not between 0 and 1.

        Example:
            >>> import torchrank as tr
            >>> old, new = ({"mrr": [low, 0.5] * 20} for low in (0.1, 1.0))
            >>> old, new = (tr.QueryTable(range(40), x, metrics={"mrr": tr.MRR()}) for x in (old, new))
            >>> [round(end, 4) for end in old.confidence_sequences(other=new)["mrr"]]
            [0.1239, 0.6736]
        """
        check(level, "auto")
        there = self if other is None else other
        _, mine, others = np.intersect1d(self.ids, there.ids, return_indices=True)
        excluded = {*self.other_results, *there.other_results}
        intervals = dict.fromkeys(self.columns, NO_INTERVAL)
        for label in there.columns.keys() & intervals.keys() - excluded:
            low, high = self._metrics[label].value_range
            values = there.columns[label][others]
            if other is not None:
                values, low, high = values - self.columns[label][mine], low - high, high - low
            if math.isfinite(high - low):
                values = values[~np.isnan(values)].astype(np.float64)
                intervals[label] = Interval(*betting_interval(values, level, low, high))
        return intervals

    def by(self, slices: Any = None, level: float = 0.95) -> Table:
        """A table with a row for every metric and slice.

        Args:
            slices: a dict from the id of each query to its slice, a number or a text; None = the groups of the table.
                The slice None or NaN is not a slice.
            level: the probability that an interval contains the expected value.

        Raises:
            ValueError: there are no groups, slices lack an id, or one is a number and another one its text.
        """
        check(level, "auto")
        parts = {name: self.where(inside) for name, inside in self._slices(slices).items()}
        keys = [(label, name) for label in self.columns for name in parts]
        return estimate_table({f"{key}/{name}": parts[name]._estimate(key, level, "auto") for key, name in keys}, level)

    def sliced(self, slices: Any = None) -> QueryTable:
        """The table with further columns: the values of each slice, NaN elsewhere, as ``ndcg@10/slice``.

        :func:`torchrank.compare` compares the slices of such tables. Arguments and errors are those of :meth:`by`.

        Example:
            >>> import torchrank as tr
            >>> tr.QueryTable([1, 2], {"mrr": [1.0, 0.5]}).sliced({1: "new", 2: "old"}).to_dict()
            {'id': [1, 2], 'mrr': [1.0, 0.5], 'mrr/new': [1.0, nan], 'mrr/old': [nan, 0.5]}
        """
        inside = {f"/{name}": rows for name, rows in self._slices(slices).items()}
        inside = {"": np.ones(len(self), dtype=bool)} | inside
        spread = [(f"{label}{name}", label, rows) for label in self.columns for name, rows in inside.items()]
        columns = {key: np.where(rows, self.columns[label], np.nan) for key, label, rows in spread}
        weights = None if self.weights is None else {key: self.weights[label] for key, label, _ in spread}
        empty = {key: rows & self.empty[label] for key, label, rows in spread}
        metrics = {key: self._metrics[label] for key, label, _ in spread}
        return QueryTable(self.ids, columns, weights, metrics, self.groups, empty)

    def grouped(self, reduce: Reduce = "min", groups: Any = None, order: Any = None) -> QueryTable:
        """The table of groups of queries, each with one value, as ``ndcg@10/min``; its ids are those of the groups.

        :class:`torchrank.Grouped` defines the value of a group. Queries are in any order here. The table has all that
        a table of queries has: :meth:`summary` has intervals over groups, and :func:`torchrank.compare` pairs them.

        Args:
            reduce: "min", "max", "mean", "all" or "last".
            groups: a dict from the id of each query to its group, a number or a text; None = the groups of the table.
                A query of the group None or NaN is left out.
            order: for "last" a dict from the id of each query to its number in the group.

        Raises:
            TypeError, ValueError: there are no groups; groups or order lack an id; or as :class:`torchrank.Grouped`.

        Example:
            >>> import torchrank as tr
            >>> table = tr.QueryTable(["a1", "a2", "b1"], {"mrr": [1.0, 0.5, 0.25]})
            >>> table.grouped("min", {key: key[0] for key in table.ids}).to_dict()
            {'id': ['a', 'b'], 'mrr/min': [0.5, 0.25]}
        """
        one_of("reduce", reduce, get_args(Reduce))
        check_reducible(self._metrics, "grouped", reduce)
        if groups is None and self.groups is None:
            raise ValueError("Expected a table with groups, got none; pass a dict from id to group")
        keys = self.groups.tolist() if groups is None else self._aligned(groups, "groups")  # type: ignore[union-attr]
        inside = np.array([key is not None and key == key for key in keys], dtype=bool)
        if len({isinstance(key, str) for key, has in zip(keys, inside) if has}) > 1:
            raise TypeError("Expected groups of one type, got numbers and texts; pass texts for all")
        numbers: dict[Any, int] = {}
        number = np.array([numbers.setdefault(key, len(numbers)) for key, has in zip(keys, inside) if has], np.int64)
        order = order if order is None else self._aligned(order, "order")
        place = check_order(order, reduce, len(self), torch.device("cpu"), "grouped")
        by_group = torch.from_numpy(number), place if place is None else place[torch.from_numpy(inside)]
        columns, weights, empty = {}, {}, {}
        for label, every in self.columns.items():
            values, nothing = every[inside].astype(np.float64), self.empty[label][inside]
            weight = np.ones(len(values)) if self.weights is None else self.weights[label][inside]
            scored = np.where(np.isnan(values), 0.0, weight)
            found = reduced(reduce, torch.from_numpy(values)[None], torch.from_numpy(scored)[None], *by_group)
            key = f"{label}/{reduce}"
            columns[key], weights[key] = (x[0, : len(numbers)].numpy() for x in found)
            full = np.bincount(number, ~nothing & ~np.isnan(values), len(numbers))
            empty[key] = (full == 0) & (np.bincount(number, nothing, len(numbers)) > 0)
        metrics = {f"{label}/{reduce}": metric for label, metric in self._metrics.items()}
        own = None if self.weights is None else weights
        return QueryTable(_array(list(numbers)), columns, own, metrics, None, empty)

    def _slices(self, slices: Any) -> dict[str, np.ndarray]:
        """bool [query] by the name of the slice: whether a query is in it."""
        if slices is None and self.groups is None:
            raise ValueError("Expected a table with groups, got none; pass a dict from id to slice")
        groups = self.groups.tolist() if slices is None else self._aligned(slices, "slices")  # type: ignore[union-attr]
        names = slices_by_name(groups)
        number = {name: number for number, name in enumerate(names.values())}
        place = np.array([number.get(group, -1) for group in groups])
        return {text: place == at for at, text in enumerate(names)}

    def deltas(self, other: QueryTable, label: str, most: int | None = 10) -> Table:
        """The queries with the largest losses from this table to another one, the largest first.

        Args:
            other: the table of another model; queries are matched by id.
            label: the metric.
            most: number of queries to return; None = all.

        Returns:
            A table with the columns id, before, after, and delta (after - before).

        Raises:
            ValueError: a table has no such metric, or the tables have no id in common.
        """
        if not isinstance(other, QueryTable):
            raise TypeError(f"Expected other to be a QueryTable, got {type(other).__name__}; pass PerQuery's compute()")
        for table in (self, other):
            if label not in table.columns:
                raise ValueError(
                    f"Expected one of {', '.join(table.labels)}, got {label!r}{did_you_mean(label, table.labels)}"
                )
        ids, here, there = np.intersect1d(self.ids, other.ids, return_indices=True)
        if not len(ids):
            raise ValueError(f"Expected common ids, got none: {self.ids[:1].tolist()} and {other.ids[:1].tolist()}")
        before, after = self.columns[label][here], other.columns[label][there]
        delta = after - before
        order = np.argsort(delta if self.higher_is_better[label] else -delta, kind="stable")
        order = order[~np.isnan(delta[order])][:most]
        columns = {"id": ids[order], "before": before[order], "after": after[order], "delta": delta[order]}
        lists = {name: values.tolist() for name, values in columns.items()}
        return Table(lists, notes=[f"{label}, {len(ids)} common queries"])

    def _sums(self, label: str) -> tuple[Tensor, Tensor]:
        """The sums [SIZE] of a metric, and its (value, weight) [query, 2]."""
        metric = self._metrics[label]
        values = torch.from_numpy(self.columns[label]).to(torch.float64)
        weights = torch.ones_like(values) if self.weights is None else torch.from_numpy(self.weights[label]).double()
        rows = torch.stack([values, torch.where(values.isnan(), 0.0, weights)], 1)
        # Without rounding: the same in any order, and as merged from parts.
        each = None if bool((weights == 1).all()) else weights.numpy()
        total = ExactSums.of(metric.mean.inside(values).numpy(), each).vector()
        total[Sum.QUERIES], total[Sum.EMPTY] = len(values), int(values.isnan().sum())
        return total, rows

    def _scored(self, label: str) -> tuple[Tensor, Tensor | None]:
        """The sums of the queries with a value, and for an aggregate of kept values these [query, 2]."""
        total, rows = self._sums(label)
        # Skipped queries are the empty ones here, under every policy: the others have a value.
        total[Sum.QUERIES] -= total[Sum.EMPTY]
        total[Sum.EMPTY] = 0
        return total, None if from_sums(self._metrics[label].aggregation) else rows

    def _estimate(self, label: str, level: float, method: str) -> Estimate:
        estimated = estimate(self._metrics[label], *self._scored(label), level, method)
        empty = self.empty[label]
        # A query without a value that is not empty does not count, as a list without documents in ``mr``.
        queries = int((empty | ~np.isnan(self.columns[label])).sum())
        return replace(estimated, queries=queries, empty=int(empty.sum()))

    def _clustered(self, label: str, estimated: Estimate, cluster: np.ndarray, level: float) -> Estimate:
        metric = self._metrics[label]
        if not from_sums(metric.aggregation):
            return replace(estimated, standard_error=math.nan, interval=NO_INTERVAL)
        summed, rows = self._sums(label)
        values, weights = rows.numpy().T
        scored = ~np.isnan(values)
        inside = metric.mean.inside(rows[:, 0]).numpy()[scored]
        _, inverse = np.unique(cluster[scored], return_inverse=True)
        weights = weights[scored]
        count, total = len(np.unique(inverse)), weights.sum()
        if count < 2 or not total > 0:
            return replace(estimated, standard_error=math.nan, interval=NO_INTERVAL)
        apart = np.bincount(inverse, weights * (inside - (weights * inside).sum() / total))  # T - m W of each cluster
        return with_clusters(estimated, summed, count, float((apart**2).sum() / total**2), level)

    # ---- other formats -----------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns as lists, with the ids as column "id". NaN stays NaN."""
        return {"id": self.ids.tolist(), **{label: values.tolist() for label, values in self.columns.items()}}

    def to_pandas(self) -> Any:
        """The table as a ``pandas.DataFrame`` with the ids as index.

        Raises:
            ImportError: pandas is not installed.
        """
        pandas = imported("pandas", instead="use to_dict()")
        return pandas.DataFrame(self.columns, index=pandas.Index(self.ids, name="id"))

    def to_polars(self) -> Any:
        """The table as a ``polars.DataFrame`` with a column "id".

        Raises:
            ImportError: polars is not installed.
        """
        return imported("polars", instead="use to_dict()").DataFrame(self.to_dict())

    def to_arrow(self) -> Any:
        """The table as a ``pyarrow.Table`` with a column "id".

        Raises:
            ImportError: pyarrow is not installed.
        """
        return imported("pyarrow", instead="use to_dict()").table(self.to_dict())

    def to_parquet(self, path: Any) -> None:
        """Write the table to a Parquet file with a column "id", by pandas and its engine.

        Raises:
            ImportError: pandas, or an engine for it (pyarrow or fastparquet), is not installed.
        """
        self.to_pandas().reset_index().to_parquet(path)

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def __repr__(self) -> str:
        return f"QueryTable of {len(self)} queries\n{self.summary()}"


def with_clusters(estimated: Estimate, summed: Tensor, count: int, spread: float, level: float) -> Estimate:
    """An estimate with the standard error and the interval of clusters.

    Args:
        estimated: the estimate without clusters.
        summed: its sums [SIZE].
        count: number of clusters.
        spread: sum((T - m W)^2) / sum(W)^2 over clusters, as in :meth:`QueryTable.summary`.
        level: the level of the interval.
    """
    # the slope of the reported value, e.g. of a geometric mean
    unclustered = float(sums.standard_error(summed, summed[Sum.QUERIES] - summed[Sum.EMPTY]))
    slope = estimated.standard_error / unclustered if unclustered > 0 else 1.0
    error = math.sqrt(count / (count - 1) * spread) * slope
    interval = Interval(*t_interval(estimated.value, error, count - 1, level))
    return replace(estimated, standard_error=error, interval=interval)


def slices_by_name(groups: Iterable[Any]) -> dict[str, Any]:
    """The distinct slices in their order, by their texts; None and NaN are not slices.

    Raises:
        ValueError: one is a number and another one its text.
    """
    names = list({name for name in groups if name is not None and name == name})
    try:
        names.sort()
    except TypeError:  # numbers and texts
        names.sort(key=str)
    texts = {str(name): name for name in names}
    if twice := [name for name in names if texts[str(name)] is not name]:
        raise ValueError(
            f"Expected slices with different names, got {twice[0]!r} and {texts[str(twice[0])]!r}; pass a dict from"
            " id to a text"
        )
    return texts


def _array(ids: Sequence[Any]) -> np.ndarray:
    """Ids as an array: integers, or objects, because numpy drops zeros at the end of texts."""
    return np.array(ids, dtype=np.int64 if ids and all(isinstance(value, int) for value in ids) else object)


def _floats(values: Any) -> np.ndarray:
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    return array if array.dtype == np.float32 else array.astype(np.float64)


#: the lists of the state, each [query, column]; the last two have no column as long as all queries count alike, the
#: first has one, and those of :func:`_words` as soon as an id is a text; the first column of the last says whether a
#: query counts, the others for each metric whether it has something to measure
FIELDS = ("ids", "values", "weights", "counted")


class PerQuery(SafeMetric):
    """The value of every query, kept with its id: for tests, slices after the fact, and lists of the worst queries.

    ``compute`` returns a :class:`torchrank.QueryTable`. **An id that appears twice counts once**, so samplers that
    repeat queries, as those of torch, Lightning and Accelerate do, give the right number. Ids are integers or texts; if
    one of all batches and workers is a text, an integer is its decimal text. The state has 8 bytes for each id and 8
    for each value (4 with ``dtype=torch.float32``), and as many for weights, if there are any. If ids are texts, each
    also has the bytes of the longest text. If a query has nothing to measure, each id and each value has one byte more.
    ``compute`` gathers the state in two collectives.

    Args:
        suite: a metric, names of metrics, or a collection. Its measures are copied; their states stay empty.
        dtype: the dtype in which values are kept, torch.float64 or torch.float32.
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: the suite has a metric without a value for each query, or the dtype is another one.

    Example:
        >>> import torch, torchrank as tr
        >>> per_query = tr.PerQuery(["mrr", "hitrate@1"])
        >>> scores, labels = torch.tensor([[0.9, 0.1], [0.2, 0.3], [0.2, 0.3]]), torch.tensor([0, 0, 0])
        >>> per_query.update(scores, labels, query_ids=torch.tensor([7, 8, 8]))
        >>> per_query.compute().summary()["value"]
        [0.75, 0.5]
    """

    higher_is_better = None
    is_differentiable = False
    asks_for = "query_ids"
    results_to_log = "metric.compute().values()"

    def __init__(self, suite: Suite, dtype: torch.dtype = torch.float64, **kwargs: Any) -> None:
        collection = collection_of(suite, kwargs)
        super().__init__(**kwargs)
        if dtype not in (torch.float64, torch.float32):
            raise ValueError(f"Expected dtype to be torch.float64 or torch.float32, got {dtype}")
        self.suite, self.dtype_of_values = collection, dtype
        self.metrics = measures_of(self.suite, "PerQuery", means=False)
        self._state = f"perquery({dtype}): {', '.join(metric._state for metric in self.metrics.values())}"
        # The error message for an id with two values, since the last compute.
        self._differing = ""
        # The names of states may have numbers of namesakes, which depend on the metrics made before in this process.
        names = [f"{key}: {metric.definition_name}" for key, metric in self.metrics.items()]
        self._definition = f"perquery({dtype}): {', '.join(names)}"
        counters = torch.zeros(len(Problem), dtype=widest_float(self.device), device=self.device)
        self.add_state(f"{self._state}:sums", counters, dist_reduce_fx="sum")
        for field in FIELDS:
            self.add_state(f"{self._state}:{field}", [], dist_reduce_fx="cat")

    @property
    def definition_name(self) -> str:
        return self._definition

    # ---- add ---------------------------------------------------------------------------------------------------

    @bulk
    @with_options
    def update(
        self, preds: Scores, target: Target | None = None, *, query_ids: Ids = None, **options: Unpack[Options]
    ) -> None:
        """Add a batch of whole queries. Arguments of :meth:`torchrank.RankingMetric.update`, and ``query_ids``.

        ``query_ids`` is int [query], one for each query of the data set; or a list of texts. With ``indexes`` it is in
        ascending order of index. None = those of the ranking, which has them if it was made by
        :meth:`torchrank.Ranking.from_table` or :meth:`torchrank.Ranking.from_run`.

        Raises:
            TypeError, ValueError: as :meth:`torchrank.RankingMetric.update`, or if ids are missing.
        """
        batch = Batch(preds, target, **options)
        batch_values = score_batch(list(self.metrics.values()), batch, total=False)
        if query_ids is None and isinstance(preds, Ranking):
            query_ids = preds.query_ids
        ids, texts = check_ids(query_ids, batch_values.num_queries, batch_values.values.device, "PerQuery")
        ids = ids.unsqueeze(1) if texts is None else torch.cat([ids.unsqueeze(1), _words(texts).to(ids.device)], dim=1)
        values = batch_values.values.mT
        final_weights = torch.where(values.isnan(), 1.0, batch_values.final_weights.mT)
        counted = torch.cat([batch_values.counted.unsqueeze(1), batch_values.status.mT != Status.EMPTY], dim=1)
        rows = self._rows(ids, values, final_weights, counted, batch.weights is None)
        with LOCK:
            self._set("sums", self.sums + batch_values.errors.amax(0).to(self.sums))
            for field, part in rows.items():
                earlier = [x.to(part.device) for x in getattr(self, f"{self._state}:{field}")]
                self._set(field, appended(*_alike(earlier, [part])))
        self.notice_cut(batch.indexes)

    def _rows(self, ids: Tensor, values: Tensor, weights: Tensor, counted: Tensor, alike: bool) -> dict[str, Tensor]:
        """The fields of a batch, each [query, column], without columns that no reader needs."""
        values, weights = (x.to(self._dtype_on(x.device)) for x in (values, weights))
        # On an accelerator a look at the values would have to wait, so no column is dropped there.
        if values.is_cpu:
            if alike and bool((weights == 1).all()):
                weights = weights[:, :0]
            row = counted[:, 0].nonzero().squeeze(1)
            counted = counted[row]
            counted = counted[:, :0] if bool(counted.all()) else counted
            ids, values, weights = ids[row], values[row], weights[row]
        return dict(zip(FIELDS, (ids, values, weights, counted)))

    def _dtype_on(self, device: torch.device) -> torch.dtype:
        """The dtype of values on a device, which may have no float64."""
        return min(self.dtype_of_values, widest_float(device), key=lambda dtype: dtype.itemsize)

    def _fields(self) -> dict[str, Tensor]:
        """Each field as one tensor [query, column]."""
        dtype = self._dtype_on(self.device)
        fields = {}
        for field, width, kind in zip(FIELDS, (1, len(self.metrics), 0, 0), (torch.int64, dtype, dtype, torch.bool)):
            parts = [self.moved(x, self.device) for x in getattr(self, f"{self._state}:{field}")]
            empty = torch.empty((0, width), dtype=kind, device=self.device)
            fields[field] = torch.cat(_alike(parts, [])[0]) if parts else empty
        return fields

    # ---- compute -----------------------------------------------------------------------------------------------

    def compute(self) -> QueryTable:
        """The table of all queries of all workers, in ascending order of id, each id once.

        Raises:
            ValueError: a worker has met bad values, or an id has two different values. The metric can be used further.
        """
        self._errors = self.sums
        rows = {field: x.cpu() for field, x in self._fields().items()}
        if rows["counted"].shape[1]:
            rows = {field: x[rows["counted"][:, 0]] for field, x in rows.items()}
        ids = _named(rows["ids"].numpy())
        order = np.argsort(ids, kind="stable")
        ids, values, weights = ids[order], rows["values"].numpy()[order], rows["weights"].numpy()[order]
        first = np.ones(len(ids), dtype=bool)
        first[1:] = ids[1:] != ids[:-1]
        self._differing = _differing(ids, np.concatenate([values, weights], 1), first, list(self.metrics))
        if not self._should_unsync and bool((self.sums > 0).any()):  # forward, which does not raise
            values = np.full_like(values, np.nan)
        columns = {key: values[first, n] for n, key in enumerate(self.metrics)}
        weight = {key: weights[first, n] for n, key in enumerate(self.metrics)} if weights.shape[1] else None
        full = widened(rows["counted"], 1 + len(self.metrics)).numpy()[order][first]
        empty = {key: ~full[:, 1 + n] for n, key in enumerate(self.metrics)}
        return QueryTable(ids[first], columns, weight, self.metrics, empty=empty)

    def raise_errors(self) -> None:
        super().raise_errors()
        if self._differing:
            raise ValueError(self._differing)

    def plot(self, val: QueryTable | None = None, ax: Any = None) -> Any:
        """Plot the values of all queries, a row of marks for each metric; needs matplotlib.

        Args:
            val: a result of :meth:`compute`; None = compute.
            ax: the axes to draw in; None = new axes.

        Returns:
            The figure and its axes.
        """
        return plot_values((self.compute() if val is None else val).columns, ax)

    @property
    @eager
    def num_rows(self) -> int:
        """Number of rows that this worker keeps, repeated ids included."""
        return sum(len(x) for x in getattr(self, f"{self._state}:ids"))

    # ---- torchmetrics' contract --------------------------------------------------------------------------------

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        if dist_sync_fn is not gather_all_tensors:
            raise ValueError("Expected no dist_sync_fn for PerQuery, which gathers rows of different lengths; drop it")
        digest = hashlib.blake2b(self.definition_name.encode(), digest_size=DIGEST).digest()
        mine = torch.cat([self.sums.new_tensor(list(digest)), self.sums])
        rows, numbers = gather_rows(list(self._fields().values()), mine, process_group or self.process_group)
        digests, errors = numbers.split([DIGEST, len(self.sums)], dim=1)
        if others := (digests != digests[0]).any(1).nonzero().squeeze(1).tolist():
            raise WorkersDifferError(
                f"Expected PerQuery of the same metrics on all {len(digests)} workers, got other metrics on {others}"
                " than on 0; build the same suite on every worker"
            )
        self._set("sums", errors.sum(0))
        for field, x in zip(FIELDS, rows):
            self._set(field, [x])

    def joined(self, name: str, earlier: Any, later: Any) -> Any:
        if isinstance(earlier, list):
            return appended(*_alike(earlier, [x.to(self.device) for x in later]))
        return super().joined(name, earlier, later)

    def counts(self, sums: Tensor) -> Tensor:
        return sums

    def fits(self, name: str, rows: Tensor) -> bool:
        number = len(self.metrics)
        widths = {"ids": range(1, 2**31), "values": (number,), "weights": (0, number), "counted": (0, 1, 1 + number)}
        return rows.dim() == 2 and rows.shape[1] in widths[name.rpartition(":")[2]]

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        return x.to(device, dtype=widest_float(device)) if x.dtype == torch.float64 else x.to(device)

    def restored(self, x: Tensor) -> Tensor:
        return self.moved(x, self.device)


def _alike(parts: list[Tensor], more: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Parts with the same number of columns."""
    width = max((x.shape[1] for x in (*parts, *more)), default=0)
    return [widened(x, width) for x in parts], [widened(x, width) for x in more]


def _words(texts: list[str]) -> Tensor:
    """Texts as int64 [text, word]: their number of bytes + 2, then their bytes. An integer has 1 in their place."""
    data = [text.encode("utf-8", "surrogatepass") for text in texts]  # as in hash_ids
    width = -(-max(map(len, data), default=0) // 8) * 8
    words = np.frombuffer(b"".join(x.ljust(width, b"\0") for x in data), dtype="<i8").reshape(len(data), width // 8)
    return torch.from_numpy(np.column_stack([[len(x) + 2 for x in data], words]).astype(np.int64))


def _named(ids: np.ndarray) -> np.ndarray:
    """The ids from their rows in the state: int64 [query], or texts as objects if one of them is a text."""
    if ids.shape[1] == 1:
        return ids[:, 0]
    data, width, texts = ids[:, 2:].astype("<i8").tobytes(), 8 * (ids.shape[1] - 2), dict[int, str]()
    for row, (number, size) in enumerate(ids[:, :2].tolist()):
        if size > 1:
            texts[number] = data[row * width : row * width + size - 2].decode("utf-8", "surrogatepass")
    # An integer can be the number of a text, as in checkpoints of older versions.
    return np.array([texts.get(number, str(number)) for number in ids[:, 0].tolist()], dtype=object)


def _differing(ids: np.ndarray, numbers: np.ndarray, first: np.ndarray, keys: list[str]) -> str:
    """The error message for an id with two different values; empty if each has one."""
    rtol = 1e-9 if numbers.dtype == np.float64 else 1e-6
    same = np.isclose(numbers[1:], numbers[:-1], rtol=rtol, atol=1e-12, equal_nan=True)
    wrong = np.flatnonzero(~first[1:] & ~same.all(1))
    if not len(wrong):
        return ""
    row = int(wrong[0])
    column = int(np.flatnonzero(~same[row])[0])
    label = keys[column] if column < len(keys) else "weight"
    return (
        f"Expected one value for each id, got {label} of {numbers[row, column]:.6g} and {numbers[row + 1, column]:.6g}"
        f" for id {ids[row]}; give every query a different id, or make the scores deterministic"
    )
