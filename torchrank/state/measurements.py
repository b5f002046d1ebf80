"""The measurements of the queries of a batch, and their sums: small classes with named fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from torchrank.hardware.constants import scalar
from torchrank.hardware.sorting import order_of


class Status(IntEnum):
    """Whether a query counts in an average."""

    #: the query has a value
    SCORED = 0
    #: the query has nothing to measure
    EMPTY = 1
    #: the query does not count
    ABSENT = 2


class Measured(NamedTuple):
    """One metric's measurement of the queries of a ranking."""

    #: float64 [query]; NaN if the query is left out
    values: Tensor
    #: float64 [query]: weights given by the measure itself, without the user's weights
    weights: Tensor
    #: int8 [query]: :class:`Status`
    status: Tensor
    #: int64 [kind]: counters of bad values, see :mod:`torchrank.layouts.bad_values`
    errors: Tensor
    #: float64 [number, query]: further numbers that the metric sums
    extra: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Measurements:
    """The measurements of several metrics for the queries of a batch, or of a part of it."""

    #: float64 [metric, query]
    values: Tensor
    #: float64 [metric, query]
    weights: Tensor
    #: int8 [metric, query]
    status: Tensor
    #: int64 [metric, kind]
    errors: Tensor
    #: float64 [number, query] for each metric that sums further numbers, else None
    extra: tuple[Tensor | None, ...]
    #: int64 [query]: the index of each query in its batch; None = queries are in order
    queries: Tensor | None
    #: bool [query]: queries that do not count; None = all count
    ignored: Tensor | None = None
    #: whether all weights are known to be 1 without a look at them
    all_ones: bool = False
    #: whether every scored query is known to have a number, without a look at the values
    all_numbers: bool = False

    @classmethod
    def of(cls, measured: Sequence[Measured], queries: Tensor | None, ones: Tensor | None = None) -> Measurements:
        """Stack the measurements of one ranking, one for each metric. Weights that are ``ones`` are known to be 1."""
        values, weights, status, errors, extra = zip(*measured)
        tensors = torch.stack(values), _stacked(weights), _stacked(status), _stacked(errors)
        # A single one could have been changed in place.
        all_ones = len(weights[0]) > 1 and list(map(id, weights)).count(id(ones)) == len(weights)
        return cls(*tensors, extra, queries, all_ones=all_ones)

    @classmethod
    def looked_up(
        cls, values: Tensor, status: Tensor, errors: tuple[Tensor, ...], queries: Tensor | None
    ) -> Measurements:
        """Measurements [metric, query] that were read from a table of numbers, all with weight 1."""
        weights = scalar(1.0, values.dtype, values.device).expand_as(values)
        none = (None,) * len(values)
        return cls(values, weights, status, _stacked(errors), none, queries, all_ones=True, all_numbers=True)

    @property
    def counted(self) -> Tensor:
        """bool [query]: the queries that count, also if no metric has a value for them."""
        return torch.ones_like(self.status[0], dtype=torch.bool) if self.ignored is None else ~self.ignored

    @classmethod
    def join(cls, parts: Sequence[Measurements]) -> Measurements:
        """Concatenate the measurements of the parts of a batch."""
        if len(parts) == 1:
            return parts[0]
        values, weights, status = (
            torch.cat([getattr(part, name) for part in parts], dim=-1) for name in ("values", "weights", "status")
        )
        errors = torch.stack([part.errors for part in parts]).sum(0)
        extra = tuple(None if x[0] is None else torch.cat(x, dim=-1) for x in zip(*(part.extra for part in parts)))
        all_ones = all(part.all_ones for part in parts)
        numbers = None
        # Numbers count within the batch, and parts without numbers lie in order.
        if any(part.queries is not None for part in parts):
            ends = list(accumulate((part.values.shape[1] for part in parts), initial=0))
            in_order = [torch.arange(*ends[n : n + 2], device=values.device) for n in range(len(parts))]
            numbers = torch.cat([x if part.queries is None else part.queries for part, x in zip(parts, in_order)])
        all_numbers = all(part.all_numbers for part in parts)
        return cls(values, weights, status, errors, extra, numbers, all_ones=all_ones, all_numbers=all_numbers)

    def in_order(self) -> Measurements:
        """These measurements with the queries in the order of the batch."""
        if self.queries is None:
            return self
        order = order_of(self.queries)
        weights = self.weights if self.all_ones else self.weights[:, order]
        extra = tuple(None if x is None else x[:, order] for x in self.extra)
        return replace(
            self,
            values=self.values[:, order],
            weights=weights,
            status=self.status[:, order],
            extra=extra,
            queries=None,
        )

    def clone(self) -> Measurements:
        """A copy in new memory."""
        tensors = {name: getattr(self, name).clone() for name in ("values", "weights", "status", "errors")}
        return replace(self, **tensors, extra=tuple(None if x is None else x.clone() for x in self.extra))


@dataclass(frozen=True, eq=False)
class BatchResult:
    """One metric's result for one batch: the values of the queries and their sums."""

    #: float64 [query]; NaN for empty queries that the policy skips
    values: Tensor
    #: float64 [query]: weight of each query in the mean
    weights: Tensor
    #: bool [query]: the query does not count in the average
    skipped: Tensor
    #: int64 [kind]: counters of bad values, see :mod:`torchrank.layouts.bad_values`
    errors: Tensor
    #: [SIZE]: the sums that the batch adds to the state
    sums: Tensor
    #: a state of the metric, and its sum with this batch; None = nobody has added them
    added: tuple[Tensor, Tensor] | None = None

    def of_sums(self) -> BatchResult:
        """This result without the values of the queries."""
        none = self.sums.new_empty(0)
        return BatchResult(none, none, none.bool(), self.errors, self.sums)

    def take(self, queries: Tensor) -> BatchResult:
        """This result with the values of some queries, int64 [query]; its sums stay."""
        names = ("values", "weights", "skipped")
        return replace(self, **{name: getattr(self, name)[..., queries] for name in names})

    @classmethod
    def join(cls, parts: Sequence[BatchResult]) -> BatchResult:
        """The result for the queries of several parts of a batch, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        values, weights, skipped = (
            torch.cat([getattr(x, name) for x in parts], dim=-1) for name in ("values", "weights", "skipped")
        )
        errors, sums = (torch.stack([getattr(x, name) for x in parts]).sum(0) for name in ("errors", "sums"))
        return cls(values, weights, skipped, errors, sums)


def _stacked(rows: tuple[Tensor, ...]) -> Tensor:
    """Stack tensors, one for each metric. Rows that all metrics share are not copied."""
    first = rows[0]
    shared = list(map(id, rows)).count(id(first)) == len(rows)
    return first.expand(len(rows), *first.shape) if shared else torch.stack(rows)
