"""Evaluation metrics for LightGBM, XGBoost and CatBoost, with their groups and in the right direction."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from torchrank.integrations.workers import AnySuite, alone, floats_of, members
from torchrank.names.arguments import one_of


class EvalMetric:
    """A callable for LightGBM and XGBoost, which returns the values of a suite over the queries of a data set.

    | library | where |
    |---|---|
    | LightGBM | ``lightgbm.train(..., feval=metric)``, ``lightgbm.cv``, ``LGBMRanker.fit(eval_metric=metric)`` |
    | XGBoost | ``xgboost.train(..., custom_metric=metric, callbacks=[metric.early_stopping(20)])`` |
    | CatBoost | :func:`catboost`, because it passes no groups |

    Queries are the groups of the data set. Weights of queries count; LightGBM has a weight in each row, of which a
    query has the mean, as in its own metrics. LightGBM stops early when any metric has not improved: with several of
    them pass ``lightgbm.early_stopping(20, first_metric_only=True)``. XGBoost minimises each metric whose name does not
    begin with auc, pre, map or ndcg, so that early stopping would keep the worst round of ``mrr``:
    :meth:`early_stopping` knows the direction. XGBoost keeps six decimals of a value. ``XGBRanker(eval_metric=...)``
    passes one query at a time, and weighs queries by their numbers of rows: use ``xgboost.train``.

    Args:
        suite: a metric, names of metrics, or a collection. It is copied. ``tr.preset("lightgbm", 10)`` and
            ``tr.preset("xgboost", 10)`` have the numbers of the library with ``ties="rows"``.
        ties: "expected", the mean over all orders of equal scores, or "rows", equal scores in the order of the rows, as
            LightGBM and XGBoost have them. A tree gives equal scores to all rows of a leaf.

    Raises:
        ValueError: ``ties`` is something else. When called: the data set has no groups, scores have several columns,
            a metric has several numbers, or the scores have NaN.
        TypeError: called with something else than a data set.

    Example:
        >>> import numpy as np, torchrank as tr
        >>> class Dataset:  # lightgbm.Dataset has these methods
        ...     get_label, get_group, get_weight = lambda _: [1.0, 0.0, 0.0, 2.0], lambda _: [2, 2], lambda _: None
        >>> metric = tr.integrations.boosters.EvalMetric("mrr, mr")
        >>> metric(np.array([0.9, 0.1, 0.8, 0.3]), Dataset())
        [('mrr', 0.75, True), ('mr', 1.5, False)]
    """

    def __init__(self, suite: AnySuite, ties: Literal["expected", "rows"] = "expected") -> None:
        one_of("ties", ties, ("expected", "rows"))
        self.suite, self.ties = alone(suite), ties

    @property
    def directions(self) -> dict[str, bool]:
        """Whether higher values are better, by the key of each metric."""
        return {key: bool(metric.higher_is_better) for key, metric in members(self.suite).items()}

    # LightGBM looks at the names of the parameters: its ranker passes labels, scores, weights and sizes of groups.
    def __call__(self, preds: Any, eval_data: Any, weight: Any = None, group: Any = None) -> list[tuple[Any, ...]]:
        if hasattr(eval_data, "get_uint_info"):  # a DMatrix of XGBoost
            sizes = np.diff(eval_data.get_uint_info("group_ptr"))
            values = self.values(preds, eval_data.get_label(), sizes, eval_data.get_weight())
            return list(values.items())
        if hasattr(eval_data, "get_group"):  # a Dataset of LightGBM
            scores, labels, weight, group = preds, eval_data.get_label(), eval_data.get_weight(), eval_data.get_group()
        elif group is not None:
            scores, labels = eval_data, preds
        else:
            raise TypeError(
                f"Expected the data set of LightGBM or XGBoost, got {type(eval_data).__name__}; with XGBRanker use"
                " xgboost.train(custom_metric=...), because the ranker passes one query at a time"
            )
        if weight is not None and group is not None and len(weight):  # the mean of the weights of the rows
            query = np.repeat(np.arange(len(group)), group)
            weight = np.bincount(query, weight, len(group)) / np.maximum(group, 1)
        values = self.values(scores, labels, group, weight)
        return [(key, value, self.directions[key]) for key, value in values.items()]

    def values(self, scores: Any, labels: Any, sizes: Any, weights: Any = None) -> dict[str, float]:
        """The values of the suite by key.

        Args:
            scores: float [row], query by query.
            labels: the grades, [row].
            sizes: the number of rows of each query, int [query].
            weights: weights of the queries, [query]; None or empty = all are 1.
        """
        scores, labels = np.ascontiguousarray(scores), np.ascontiguousarray(labels)
        if scores.ndim != 1:
            raise ValueError(f"Expected one score for each row, got shape {list(scores.shape)}; train one output")
        if sizes is None or not len(sizes):
            raise ValueError(
                "Expected groups of rows, got a data set without them; give the data set group=, the number of rows of"
                " each query, or qid="
            )
        sizes = np.asarray(sizes, np.int64)
        there = sizes > 0  # a group without rows is no query
        options: dict[str, Any] = {"group_sizes": torch.from_numpy(sizes[there])}
        if weights is not None and len(weights):
            options["weights"] = torch.from_numpy(np.asarray(weights, np.float64)[there])
        if self.ties == "rows":
            options["tie_break"] = -torch.arange(len(scores), dtype=torch.float64, device="cpu")
        return floats_of(self.suite, torch.from_numpy(scores), torch.from_numpy(labels), **options)

    def early_stopping(self, rounds: int, metric: str | None = None, **options: Any) -> Any:
        """XGBoost's callback, which stops after ``rounds`` rounds without a better value.

        Args:
            rounds: number of rounds.
            metric: the key of the metric; None = the first one.
            options: further arguments of ``xgboost.callback.EarlyStopping``, such as ``data_name`` and ``save_best``.

        Raises:
            ValueError: there is no such metric.
        """
        import xgboost

        metric = metric or next(iter(self.directions))
        one_of("metric", metric, tuple(self.directions))
        return xgboost.callback.EarlyStopping(rounds, metric_name=metric, maximize=self.directions[metric], **options)


def catboost(suite: AnySuite, *pools: Any, ties: Literal["expected", "rows"] = "expected") -> Any:
    """An object for CatBoost's ``eval_metric=``, over the queries of its pools.

    CatBoost passes scores and labels without groups, so the pools of training and evaluation are given here, too. Which
    of them is evaluated is known by its labels. Weights of groups do not reach an ``eval_metric``, so each query counts
    once.

    Args:
        suite: one metric, or its name.
        pools: the pools of ``fit(pool, eval_set=...)``, with ``group_id``.
        ties: as in :class:`EvalMetric`. CatBoost's own metrics put the lower label first.

    Returns:
        An object with ``is_max_optimal``, ``evaluate`` and ``get_final_error``, whose class has the name of the metric.

    Raises:
        ValueError: there are several metrics, no pool, a pool without groups, or two of them have the same labels in
            other groups.

    Example:
        >>> import numpy as np, torchrank as tr
        >>> class Pool:  # catboost.Pool has these methods
        ...     get_label, get_group_id_hash = lambda _: [1.0, 0.0, 0.0, 2.0], lambda _: np.array([7, 7, 3, 3])
        >>> metric = tr.integrations.boosters.catboost("mrr", Pool())
        >>> metric.evaluate((np.array([0.9, 0.1, 0.8, 0.3]),), np.array([1.0, 0.0, 0.0, 2.0]), None)
        (0.75, 1.0)
    """
    metric = EvalMetric(suite, ties)
    if len(metric.directions) != 1:
        raise ValueError(f"Expected one metric, got {', '.join(metric.directions)}; CatBoost has one eval_metric")
    known: dict[bytes, Any] = {}
    for pool in pools:
        groups = np.asarray(pool.get_group_id_hash())
        if not len(groups):
            raise ValueError("Expected pools with groups, got one without; pass group_id= to catboost.Pool")
        ends = np.append(np.flatnonzero(groups[1:] != groups[:-1]) + 1, len(groups))
        sizes, labels = np.diff(ends, prepend=0), _bytes(pool.get_label())
        if not np.array_equal(known.setdefault(labels, sizes), sizes):
            raise ValueError("Expected pools with different labels, got two with the same ones in other groups")
    if not known:
        raise ValueError("Expected the pools of training and evaluation, got none; CatBoost passes no groups")
    return type(next(iter(metric.directions)), (_CatBoostMetric,), {})(metric, known)


def _bytes(labels: Any) -> bytes:
    return np.asarray(labels, np.float32).tobytes()  # CatBoost keeps labels in this precision


def _not_compiled(method: Any) -> Any:
    """Mark a method for CatBoost, which tries to compile those of a metric where numba is installed."""
    method.no_jit = True
    return method


class _CatBoostMetric:
    """The object that :func:`catboost` returns."""

    def __init__(self, metric: EvalMetric, sizes: dict[bytes, Any]) -> None:
        self.metric, self.sizes = metric, sizes

    @_not_compiled
    def is_max_optimal(self) -> bool:
        return next(iter(self.metric.directions.values()))

    @_not_compiled
    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        """The mean over queries, and 1."""
        sizes = self.sizes.get(_bytes(target))
        if sizes is None:
            raise ValueError("Expected the labels of one of the pools, got others; pass all pools to boosters.catboost")
        (value,) = self.metric.values(approxes[0], target, sizes).values()
        return value, 1.0

    @_not_compiled
    def get_final_error(self, error: float, weight: float) -> float:
        return error / weight
