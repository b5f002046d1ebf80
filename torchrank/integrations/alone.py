"""Copies of suites for callers that have all queries on one process."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor
from torchmetrics import Metric, MetricCollection

from torchrank.collection.collection import RankingCollection
from torchrank.collection.members import Metrics

#: a metric, names, a collection; or a wrapper such as :class:`torchrank.Sliced`
AnySuite = Metrics | Metric | MetricCollection


def alone(suite: AnySuite) -> Metric | MetricCollection:
    """A copy of a suite with empty states, which never synchronises.

    A trainer that has gathered the queries passes the same ones to every process. A sum over processes would count
    each query several times, and a collective would wait for processes that are not called.
    """
    made = copy.deepcopy(suite) if isinstance(suite, Metric | MetricCollection) else RankingCollection(suite)
    made.reset()
    for module in made.modules():  # also metrics in wrappers
        if isinstance(module, Metric):
            module.distributed_available_fn = _never
    return made


def _never() -> bool:
    """Whether torch.distributed can be used: a function with a name, so that copies can be pickled."""
    return False


def floats(suite: Metric | MetricCollection) -> dict[str, float]:
    """The results of a suite as Python floats by key; the key of a single metric is its label.

    Raises:
        ValueError: a metric has no single number, or the suite has met bad values.
    """
    results: Any = suite.compute()
    if not isinstance(results, dict):
        results = dict.fromkeys(members(suite), results)
    for key, value in results.items():
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ValueError(
                f"Expected one number of each metric, got several of {key!r}; leave this metric out of the suite"
            )
    return {key: value.item() for key, value in results.items()}


def members(suite: Any) -> dict[str, Any]:
    """The metrics of a suite by key; the key of a single metric is its label."""
    return dict(suite.items()) if hasattr(suite, "items") else {getattr(suite, "label", type(suite).__name__): suite}
