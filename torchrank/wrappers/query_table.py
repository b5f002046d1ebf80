"""A table of the values of every query, and the results that are computed from it after the fact."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrank.display import Table
from torchrank.names.arguments import did_you_mean, imported
from torchrank.names.parse import Named
from torchrank.ranking.ranking import Ranking
from torchrank.state import sums
from torchrank.state.metric import QueryMean
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
from torchrank.statistics.comparison import FEW_CLUSTERS, numbered_clusters
from torchrank.statistics.intervals import betting_interval, t_interval
from torchrank.wrappers.suite_metric import Suite, collection_of, hash_ids, is_plain_mean, measures_of, values_of


class Column(QueryMean):
    """The arithmetic mean of a column that no metric describes."""

    value_range = (-math.inf, math.inf)

    def __init__(self) -> None:
        super().__init__("mean", "skip", True)

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
        metrics: Mapping[str, QueryMean] | None = None,
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
        known = dict(metrics or {})
        if missing := self.columns.keys() - known.keys():
            known |= dict.fromkeys(missing, Column())
        self._metrics = {label: known[label] for label in self.columns}

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

    def _slices(self, slices: Any) -> dict[str, np.ndarray]:
        """bool [query] by the name of the slice: whether a query is in it."""
        if slices is None and self.groups is None:
            raise ValueError("Expected a table with groups, got none; pass a dict from id to slice")
        groups = self.groups.tolist() if slices is None else self._aligned(slices, "slices")  # type: ignore[union-attr]
        names = list({name for name in groups if name is not None and name == name})  # NaN = in no slice
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
        numbers = {name: number for number, name in enumerate(names)}
        number = np.array([numbers.get(group, -1) for group in groups])
        return {text: number == numbers[name] for text, name in texts.items()}

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
        inside = torch.where(rows[:, 1] > 0, metric.mean.inside(values), 0.0)
        count, empty = values.new_tensor([len(values)]), values.isnan().sum().reshape(1)
        if bool((weights == 1).all()):  # without rounding: the same in any order, and as merged from parts
            exact = ExactSums.of(inside[rows[:, 1] > 0].numpy()).vector()
            exact[Sum.QUERIES], exact[Sum.EMPTY] = count[0], empty[0]
            return exact, rows
        none = values.new_zeros((1, len(sums.Problem)))
        return sums.summed(inside.unsqueeze(0), rows[:, 1].unsqueeze(0), count, empty, none)[0], rows

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
        variance = count / (count - 1) * (apart**2).sum() / total**2
        # the slope of the reported value, e.g. of a geometric mean
        unclustered = float(sums.standard_error(summed, summed[Sum.QUERIES] - summed[Sum.EMPTY]))
        error = math.sqrt(variance) * (estimated.standard_error / unclustered if unclustered > 0 else 1.0)
        interval = Interval(*t_interval(estimated.value, error, count - 1, level))
        return replace(estimated, standard_error=error, interval=interval)

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


def _array(ids: Sequence[Any]) -> np.ndarray:
    """Ids as an array: integers, or objects, because numpy drops zeros at the end of texts."""
    return np.array(ids, dtype=np.int64 if ids and all(isinstance(value, int) for value in ids) else object)


def _floats(values: Any) -> np.ndarray:
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    return array if array.dtype == np.float32 else array.astype(np.float64)
