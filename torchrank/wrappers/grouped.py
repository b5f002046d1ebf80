"""One number for each group of queries: the worst of its paraphrases, all of its turns, the last one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack, get_args

import numpy as np
import torch
from torch import Tensor

from torchrank.display import Table
from torchrank.hardware.devices import eager
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.names.arguments import one_of
from torchrank.names.types import Array, Target
from torchrank.ranking.ranking import Ranking
from torchrank.state.metric import Measure
from torchrank.state.scoring import Status, Values
from torchrank.state.sums import Interval
from torchrank.state.waiting import bulk
from torchrank.wrappers.suite_metric import (
    Ids,
    Scores,
    Suite,
    SuiteMetric,
    check_ids,
    is_plain_mean,
    listed,
    splitmix64,
)

#: how the values of the queries of a group become one value
Reduce = Literal["min", "max", "mean", "all", "last"]

#: The sample of groups: half of all groups are in the first level, a quarter in the second, and so on. A level has
#: buckets, and a bucket counts its groups, and for each bit of a hash those that have it.
LEVELS, BUCKETS, BITS = 16, 256, 32

#: groups that are counted at once, to bound memory
CHUNK = 2**16

#: the note of tables
GROUPS = "queries: number of groups"


class Grouped(SuiteMetric):
    r"""A suite with one value for each group of queries, and the mean over groups: paraphrases, turns, subqueries.

    ``compute`` returns, for each key of the suite, the mean over groups as ``key/reduce``. The value of a group is, of
    the values :math:`v_q` of its queries,

    - "min" or "max": the smallest or the largest one. The worst one is the largest if lower values are better.
    - "mean": their mean, so that each group counts the same, however many queries it has.
    - "all": :math:`\prod_q v_q`, for measures between 0 and 1. It is 1 if the value of each query is 1, and 0 if one is
      0: whether all turns are right, by ``hitrate@1``. With ties, a value of such a measure is the probability of 1,
      and the product is that of all queries being right.
    - "last": the value of the query with the largest ``order``; of several ones their mean.

    With ties, "min" and "max" are those of the expected values of the queries. Skipped queries are left out of their
    group, and a group without other queries is left out of the mean. The weight of a group is the mean weight of its
    other queries. Intervals and numbers of queries in :meth:`intervals` and :meth:`summary` are those of groups.

    The state has sums over groups, so **all queries of a group must be in one update**. A group in several updates,
    also of several workers, raises in :meth:`compute`. It is found by a sample of some 370 groups, which has nearly all
    groups if there are few. For queries in any order keep the values: :meth:`torchrank.QueryTable.grouped` of a table
    of :class:`torchrank.PerQuery`.

    | elsewhere | here |
    |---|---|
    | ``robustness_at_10`` of MTEB (InstructIR) | ``Grouped("ndcg@10", "min")`` |
    | ``paired_accuracy`` of MTEB (NevIR) | ``Grouped("recall@1", "all")`` |
    | ``max_over_subqueries`` of MTEB | none: it merges the documents of all subqueries into one run |

    Source:
        Minimum: Oh et al., InstructIR, arXiv 2402.14334. All: Weller, Lawrie and Van Durme, NevIR: negation in neural
        information retrieval, EACL 2024.

    Args:
        suite: a metric, names of metrics, or a collection. Its measures are copied; their states stay empty.
        reduce: "min", "max", "mean", "all" or "last".
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: ``reduce`` is another one, or the suite has a metric that is not an arithmetic mean over queries, or
            for "all" has values outside of 0 and 1.

    Example:
        >>> import torch, torchrank as tr
        >>> robust = tr.Grouped("mrr", "min")
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.2, 0.4]])
        >>> robust.update(scores, torch.tensor([0, 1, 1]), group=torch.tensor([7, 7, 8]))  # 1.0 and 0.5; 1.0
        >>> robust.compute()
        {'mrr/min': tensor(0.7500)}
    """

    asks_for = "group"

    def __init__(self, suite: Suite, reduce: Reduce = "min", **kwargs: Any) -> None:
        one_of("reduce", reduce, get_args(Reduce))
        super().__init__(suite, f"grouped({reduce}) ", **kwargs)
        check_reducible(self.metrics, "Grouped", reduce)
        self.reduce = reduce
        self.metrics = {f"{key}/{reduce}": metric for key, metric in self.metrics.items()}

    @property
    def num_counters(self) -> int:
        return LEVELS * BUCKETS * (1 + BITS)

    @bulk
    @with_options
    def update(
        self,
        preds: Scores,
        target: Target | None = None,
        *,
        group: Ids = None,
        order: Array | Sequence[int] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Add a batch of whole groups. Arguments of :meth:`torchrank.RankingMetric.update`, ``group`` and ``order``.

        ``group`` is the id of the group of each query, int [query], the same in all batches; or a list of texts. None =
        the groups of a ranking by ``Ranking.from_table(group=...)``. ``order``, int [query], is needed for "last"
        alone: the number of each query in its group. With ``indexes`` both are in ascending order of index.

        Raises:
            TypeError, ValueError: as :meth:`torchrank.RankingMetric.update`; groups are missing; or ``order`` is
                missing, or not wanted.
        """
        batch = Batch(preds, target, **options)
        values = self._values(batch)
        size, device = values.num_queries, values.values.device
        if group is None and isinstance(preds, Ranking):
            group = preds.groups
        ids, _ = check_ids(group, size, device, "Grouped", "group")
        place = check_order(order, self.reduce, size, device, "Grouped")
        # Numbers of groups in the order of their ids; how many there are is not known on the host.
        ordered, position = ids.sort()
        first = torch.ones_like(ordered)
        first[1:] = ordered[1:] != ordered[:-1]
        number = torch.empty_like(ids).scatter_(0, position, first.cumsum(0) - 1)
        counts = torch.zeros_like(ids).scatter_reduce(0, number, values.counted.to(ids), "amax")
        sample = _sample(torch.zeros_like(ids).scatter_(0, number, ids), counts.to(values.values))
        self.add(sample, self._sums_of(self._by_group(values, number, place)))
        self.notice_cut(batch.indexes)

    def _by_group(self, values: Values, number: Tensor, order: Tensor | None) -> Values:
        """The values [metric, group] of the groups, whose numbers are below the number of queries."""
        found, weights = reduced(self.reduce, values.values, values.final_weights, number, order)
        # A group has a value, or is empty, if one of its queries has one, or is.
        absent = torch.full_like(values.status, Status.ABSENT)
        status = absent.scatter_reduce(1, number.expand(absent.shape), values.status, "amin")
        own = None if values.weights is None else weights
        return replace(values, values=found, status=status, weights=own, extra=(), queries=None, ignored=None)

    # ---- results -----------------------------------------------------------------------------------------------

    def check(self, sums: Tensor) -> None:
        number, *bits = sums[: self.num_counters].view(-1, 1 + BITS).unbind(1)
        each = torch.stack(bits)
        # One group in all pieces of a bucket: each bit of its hash is in all of them or in none.
        again = (number > 1) & ((each == 0) | (each == number)).all(0)
        if bool(again.any()):
            raise ValueError(
                "Expected all queries of a group in one update, got groups in several ones, or on several workers; keep"
                " the queries of a group together, or keep the values: torchrank.PerQuery(suite), and"
                f" compute().grouped({self.reduce!r}, groups)"
            )

    @eager
    def intervals(self, level: float = 0.95, method: str = "auto") -> dict[str, Interval]:
        """The confidence interval of every mean over groups by key: (low, high), over the groups of all workers."""
        estimates = self.estimates_of(self.parts(self.of_all_workers())[0], level, method)
        return {key: estimate.interval for key, estimate in estimates.items()}

    @eager
    def summary(self, level: float = 0.95, method: str | None = None) -> Table:
        """A table with a row for every metric, over the groups of all workers, with the number of groups as queries."""
        table = super().summary(level, method)
        return Table.of_rows(table.rows, table.formats, [*table.notes, GROUPS])


def check_reducible(metrics: Mapping[str, Measure], user: str, reduce: str) -> None:
    """Raise ValueError for a metric that has no mean over groups."""
    for key, metric in metrics.items():
        if not is_plain_mean(metric):
            raise ValueError(
                f"Expected arithmetic means over queries in {user}, got {key!r}; leave it out, or take the mean"
            )
        if reduce == "all" and metric.value_range != (0.0, 1.0):
            raise ValueError(f"Expected measures between 0 and 1 with reduce='all', got {key!r}; leave it out")


def check_order(order: Any, reduce: str, queries: int, device: torch.device, user: str) -> Tensor | None:
    """The number of each query in its group, int64 [query] on a device, for "last" alone.

    Raises:
        TypeError: they are not integers.
        ValueError: they are missing, or not wanted, or there is another number of them.
    """
    if (order is None) == (reduce == "last"):
        got = "none; pass order=, the number of each query in its group" if order is None else "it; leave it out"
        raise ValueError(f"Expected order with reduce='last' alone, got {got}")
    if order is None:
        return None
    numbers = listed(order)
    if isinstance(numbers, Tensor):
        wrong = str(numbers.dtype) if numbers.is_floating_point() or numbers.dtype == torch.bool else ""
    else:
        wrong = next((repr(x) for x in numbers if not isinstance(x, int | np.integer) or isinstance(x, bool)), "")
    if wrong:
        raise TypeError(f"Expected order to be integers, got {wrong}; pass the place of each query, or whole seconds")
    return check_ids(numbers, queries, device, user, "order")[0]


def reduced(
    how: str, values: Tensor, weights: Tensor, number: Tensor, order: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The value and the weight of each group, float [metric, query] each: NaN and 0 where a number has no group.

    Args:
        how: a :data:`Reduce`.
        values: float [metric, query].
        weights: float [metric, query]; a query of weight 0 does not count.
        number: int64 [query], the number of the group of each query.
        order: int64 [query], for "last".
    """
    group = number.expand(values.shape)

    def over(x: Tensor, reduction: str) -> Tensor:
        return torch.zeros_like(x).scatter_reduce(1, group, x, reduction, include_self=False)

    counts = weights > 0
    size, weight = over(counts.to(weights), "sum"), over(weights, "sum")
    if how == "last":
        assert order is not None
        time = torch.where(counts, order, torch.iinfo(order.dtype).min)
        counts = counts & (time == over(time, "amax").gather(1, group))
    if how in ("mean", "last"):
        own = torch.where(counts, weights, 0.0)
        found = over(torch.where(counts, weights * values, 0.0), "sum") / over(own, "sum")
    else:
        reduction, neutral = {"min": ("amin", math.inf), "max": ("amax", -math.inf), "all": ("prod", 1.0)}[how]
        found = over(torch.where(counts, values, neutral), reduction)
    return torch.where(size > 0, found, math.nan), torch.where(size > 0, weight / size, 0.0)


def _sample(ids: Tensor, counts: Tensor) -> Tensor:
    """The counters of a sample of groups: float [level, bucket, 1 + bit].

    Args:
        ids: int64 [group].
        counts: float [group]: 1 for a group, 0 for none.
    """
    counters = counts.new_zeros((LEVELS * BUCKETS, 1 + BITS))
    bit = torch.arange(BITS, device=ids.device) + 32
    for some, there in zip(splitmix64(ids).split(CHUNK), counts.split(CHUNK)):
        level = torch.frexp((some & -some).float()).exponent.clamp(1, LEVELS) - 1  # zeros at the end of the hash
        hashed = torch.cat([there.unsqueeze(1), ((some.unsqueeze(1) >> bit) & 1) * there.unsqueeze(1)], dim=1)
        counters.index_add_(0, level * BUCKETS + (some >> LEVELS) % BUCKETS, hashed)
    return counters
