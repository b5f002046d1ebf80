"""The record of a batch: the values of its queries for one metric or several, and their sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from torchrank.hardware.devices import constant, scalar
from torchrank.hardware.sorted_values import order_of
from torchrank.ranking.intervals import only

#: the value of an empty query by ``empty_target_action``
FILLS = {"neg": 0.0, "pos": 1.0, "listed": 0.0, "skip": math.nan, "error": math.nan}


class Status(IntEnum):
    """Whether a query counts in an average."""

    #: the query has a value
    SCORED = 0
    #: the query has nothing to measure
    EMPTY = 1
    #: the query does not count
    ABSENT = 2


@dataclass(eq=False)
class Values:
    """The values of the queries of a batch, or of a part of it. Nobody changes a record or its tensors.

    Tensors are [query] for one metric, and [metric, query] for several, which :meth:`stack` puts together.
    """

    #: float64 [..., query]; NaN if the query is left out
    values: Tensor
    #: int8 [..., query]: :class:`Status`
    status: Tensor
    #: int64 [..., kind]: counters of bad values, see :mod:`torchrank.layouts.checks`
    errors: Tensor
    #: float64 [..., query]: weights of the measure times weights of the user, also of skipped queries; None = all are 1
    weights: Tensor | None = None
    #: what the metric sums further: [number, query] for a ranking, or lists; for several metrics a tuple
    extra: Any = None
    #: int64 [query]: the index of each query in its batch; None = queries are in order
    queries: Tensor | None = None
    #: bool [query]: queries that do not count, also if the policy for empty queries differs; None = all count
    ignored: Tensor | None = None
    #: the first :class:`Status` of queries that do not count in the average; for several metrics it may be a tuple
    limit: Any = Status.ABSENT
    #: the sums that the batch adds to the state of one metric: [SIZE + number]; None if they were not asked for
    sums: Any = None

    @classmethod
    def stack(cls, each: Sequence[Values], queries: Tensor | None = None) -> Values:
        """The values of several metrics for the same queries."""
        weighted = [x for x in each if x.weights is not None]
        return cls(
            torch.stack([x.values for x in each]),
            torch.stack([x.status for x in each]),
            torch.stack([x.errors for x in each]),
            torch.stack([x.own_weights for x in each]) if weighted else None,
            tuple(x.extra for x in each),
            queries,
            each[0].ignored,
            tuple(x.limit for x in each),
        )

    @classmethod
    def measured(cls, metrics: Sequence[Any], each: Sequence[Values], queries: Tensor | None = None) -> Values:
        """:meth:`stack`, with the policy of each metric for queries without a value, for which any value is given."""
        made = cls.stack(each, queries)
        if not made.all_scored:
            actions = tuple(metric.empty_target_action for metric in metrics)
            made.limit = limits(actions)
            scored, listed, _ = made.kinds
            values = torch.where(scored, made.values, _fills(actions, made.values.dtype, made.values.device))
            # A query that does not count is NaN under every policy.
            if Status.ABSENT in made.limit and any(metric.leaves_out_empty_lists for metric in metrics):
                values = torch.where(listed, values, scalar(math.nan, values.dtype, values.device))
            made.values = values
        return made

    def each(self, sums: Sequence[Tensor] | None = None) -> list[Values]:
        """The values of each metric, with its sums."""
        number = len(self.values)
        none = [None] * number
        columns = (
            self.values,
            self.status,
            self.errors,
            none if self.weights is None else self.weights,
            self.extra or none,
            [self.queries] * number,
            [self.ignored] * number,
            self.limit if isinstance(self.limit, tuple) else [self.limit] * number,
            sums or none,
        )
        return list(map(Values, *columns))

    @classmethod
    def join(cls, parts: Sequence[Values]) -> Values:
        """The values of several metrics for all queries of a batch, in order, from those of its parts."""
        result = parts[0]
        if len(parts) > 1:
            names = ("values", "status", "own_weights", "ignored")
            joined: dict[str, Any] = {name: _cat([getattr(part, name) for part in parts]) for name in names}
            if all(part.weights is None for part in parts):
                joined["own_weights"] = None
            result = cls(
                joined["values"],
                joined["status"],
                torch.stack([part.errors for part in parts]).sum(0),
                joined["own_weights"],
                tuple(map(_cat, zip(*(part.extra for part in parts)))),
                _cat([part.queries for part in parts]),
                joined["ignored"],
                result.limit,
            )
        return result if result.queries is None else replace(result.take(order_of(result.queries)), queries=None)

    def take(self, queries: Tensor) -> Values:
        """The values of some queries, given by their places, int64 [query]; errors and sums stay."""
        names = ("values", "status", "weights", "ignored")
        cut: dict[str, Any] = {name: None if (x := getattr(self, name)) is None else x[..., queries] for name in names}
        extra = self.extra and tuple(None if x is None else x[..., queries] for x in self.extra)
        return replace(self, **cut, extra=extra)

    def clone(self) -> Values:
        """A copy in new memory."""
        names = ("values", "status", "errors", "weights")
        copies: dict[str, Any] = {name: None if (x := getattr(self, name)) is None else x.clone() for name in names}
        return replace(self, **copies, extra=tuple(None if x is None else x.clone() for x in self.extra))

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return self.values.shape[-1]

    @property
    def counted(self) -> Tensor:
        """bool [query]: the queries that count, also if no metric has a value for them."""
        count = self.ignored
        return torch.ones(self.num_queries, dtype=torch.bool, device=self.values.device) if count is None else ~count

    @cached_property
    def all_scored(self) -> bool:
        """Whether every query is known to have a value: on the CPU by one read."""
        return self.status.is_cpu and not self.status.any()

    @cached_property
    def kinds(self) -> Tensor:
        """bool [3, ..., query]: queries with a value, with a value or empty, and queries that count in the average."""
        limits = _limits(self.limit, self.status.dtype, self.status.device)
        return self.status < limits.view(3, *[-1] * (self.status.dim() - 1), 1)

    @cached_property
    def all_count(self) -> bool:
        """Whether every query is known to count in the average."""
        return self.all_scored or (self.status.is_cpu and bool(self.kinds[2].all()))

    @property
    def own_weights(self) -> Tensor:
        """float64 [..., query]: ``weights``, also if all are 1."""
        values = self.values
        return scalar(1.0, values.dtype, values.device).expand_as(values) if self.weights is None else self.weights

    @cached_property
    def final_weights(self) -> Tensor:
        """float64 [..., query]: the weight of each query in the average, 0 for a skipped one."""
        return self.own_weights if self.all_count else only(self.kinds[2], self.own_weights)


@functools.cache
def limits(actions: tuple[str, ...]) -> tuple[Status, ...]:
    """:attr:`Values.limit` of metrics by ``empty_target_action``."""
    return tuple(Status.EMPTY if math.isnan(FILLS[action]) else Status.ABSENT for action in actions)


@constant
def _limits(limit: Status | tuple[Status, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The first status that each of :attr:`Values.kinds` does not have: [3] for a number, or [3, metric]."""
    own = torch.tensor(limit, dtype=dtype, device=device)
    return torch.stack([torch.full_like(own, Status.EMPTY), torch.full_like(own, Status.ABSENT), own])


@constant
def _fills(actions: tuple[str, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The values of empty queries by the ``empty_target_action`` of each metric: [metric, 1]."""
    return torch.tensor([FILLS[action] for action in actions], dtype=dtype, device=device).unsqueeze(-1)


def _cat(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Concatenate tensors [..., query] of consecutive queries; None if there are none."""
    return None if parts[0] is None else torch.cat(parts, dim=-1)  # type: ignore[arg-type]
