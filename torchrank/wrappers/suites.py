"""The measures of a suite, and their values for one batch, which is ranked once."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from torchrank.collection.collection import RankingCollection
from torchrank.collection.members import Metrics
from torchrank.layouts.arrange import Batch
from torchrank.layouts.checks import tensor_of
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.item_lists import PerUserMetric
from torchrank.ranking.ranking import Ranking
from torchrank.state.aggregation import from_sums
from torchrank.state.measure import Measure
from torchrank.state.query_mean import QueryMean
from torchrank.state.scoring import score_batch
from torchrank.state.sums import SIZE, Sum
from torchrank.state.values import Status
from torchrank.wrappers.hashing import hash_ids

#: a metric, a name or names, or a collection
Suite = Metrics


def readable(suite: Suite) -> Suite:
    """A suite that can be read again: the metrics of a generator as a list."""
    return list(suite) if isinstance(suite, Iterator) else suite


def collection_of(suite: Suite, options: dict[str, Any] | None = None) -> RankingCollection:
    """A copy of a suite as a collection, with empty states. Its prefix, postfix and keys are taken from ``options``."""
    copied, options = copy.deepcopy(readable(suite)), {} if options is None else options
    spelling = {name: options.pop(name) for name in ("prefix", "postfix", "keys") if name in options}
    if spelling or not isinstance(copied, RankingCollection):
        copied = RankingCollection(copied, **spelling)
    copied.reset()
    return copied


def measures_of(suite: RankingCollection, user: str, means: bool) -> dict[str, Measure]:
    """The measures of a collection by key; each must have a value for every query.

    Args:
        suite: the collection.
        user: the class that needs them, for the error message.
        means: accept only measures whose result is computed from sums.

    Raises:
        ValueError: a metric has no value for every query, or is not a mean although ``means``.
    """
    measures: dict[str, Measure] = {}
    for key, metric in suite.items():
        if not isinstance(metric, RankingMetric | PerUserMetric) or metric.num_extra_sums:
            raise ValueError(
                f"Expected metrics with one value for each query in {user}, got {key!r}, a {type(metric).__name__};"
                " leave it out of this suite"
            )
        if means and not from_sums(metric.aggregation):
            raise ValueError(
                f"Expected metrics that are computed from sums in {user}, got {key!r} with aggregation"
                f" {metric.aggregation!r}; keep the values with torchrank.PerQuery instead"
            )
        measures[key] = metric
    if not measures:
        raise ValueError(f"Expected at least one metric in {user}, got none")
    return measures


def is_plain_mean(metric: QueryMean) -> bool:
    """Whether the result of a metric is the arithmetic mean of the values: sum(w v) / sum(w)."""
    sums = torch.zeros(SIZE, dtype=torch.float64, device="cpu")
    sums[Sum.WV], sums[Sum.W], sums[Sum.QUERIES] = 0.5, 2.0, 2.0
    return metric.aggregation == "mean" and float(metric.value_of(sums)) == 0.25


def values_of(
    metrics: Mapping[str, Any], ranking: Ranking
) -> tuple[dict[str, Tensor], dict[str, Tensor] | None, dict[str, Tensor]]:
    """The values [query] of each metric by key, NaN for skipped queries; their weights; and which queries are empty.

    Weights are None if all are 1.

    Raises:
        ValueError: the ranking has bad values.
    """
    batch = Batch(ranking)
    results = dict(zip(metrics, score_batch(list(metrics.values()), batch, total=False)))
    values = {key: metric.scored(batch, results[key], notice=False) for key, metric in metrics.items()}
    weights = {key: torch.where(value.isnan(), 1.0, results[key].final_weights) for key, value in values.items()}
    empty = {key: results[key].status == Status.EMPTY for key in metrics}
    return values, None if all(bool((weight == 1).all()) for weight in weights.values()) else weights, empty


def listed(x: Any) -> Any:
    """An array or a column as a list; tensors, and anything else, as they are."""
    ways = [] if isinstance(x, Tensor) else [name for name in ("tolist", "to_list", "to_pylist") if hasattr(x, name)]
    return getattr(x, ways[0])() if ways else x


def check_ids(ids: Any, queries: int, device: torch.device, user: str) -> tuple[Tensor, list[str] | None]:
    """The ids of queries as int64 [query] on a device, and their texts; None = they are integers.

    Raises:
        ValueError: there are no ids, or another number of them.
        TypeError: ids are not integers.
    """
    if ids is None:
        raise ValueError(
            f"Expected query_ids in every update of {user}, got none; pass query_ids=, an int64 tensor or a list of"
            " texts (running numbers would depend on the split of the queries over batches and workers)"
        )
    ids, texts = listed(ids), None
    if isinstance(ids, list | tuple):
        ids = [x.item() if hasattr(x, "item") else x for x in ids]  # numbers of numpy or torch
        if any(x is None for x in ids):  # a masked element
            raise TypeError("Expected an id of each query, got query_ids with None or masked elements; give them ids")
        if all(isinstance(x, int) and not isinstance(x, bool) for x in ids):
            ids = torch.tensor(ids, dtype=torch.int64, device="cpu")
        else:
            texts = [x.decode(errors="surrogateescape") if isinstance(x, bytes) else str(x) for x in ids]
            ids = hash_ids(ids)
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        got, way_out = type(ids).__name__, "list(query_ids)"
        if isinstance(ids, Tensor):
            got, way_out = str(ids.dtype), "query_ids.long()"
        raise TypeError(
            f"Expected query_ids to be integers [query], or a list of integers or texts, got {got}; pass {way_out}"
        )
    if ids.shape != (queries,):
        raise ValueError(f"Expected query_ids of shape [{queries}], one per query, got {list(ids.shape)}")
    return tensor_of(ids).detach().to(device, torch.int64), texts
