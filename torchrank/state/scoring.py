"""Scoring: rank a batch once, compute each metric's value for every query, and sum the values."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from torchrank.engine import rank
from torchrank.hardware.devices import autocast_off, constant, order_of, scalar
from torchrank.hardware.threads import in_batch
from torchrank.layouts.arrange import Batch, arrange_batch, notice_scores
from torchrank.layouts.canonical import FlatRows, RankedIds
from torchrank.layouts.checks import Problem, check_tensor, count
from torchrank.ranking.intervals import as_numbers, number_of, only
from torchrank.ranking.ranking import Ranking
from torchrank.state import sums

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


# If a batch has more values, queries times metrics, they are summed chunk by chunk, unless a metric needs the values.
MANY_VALUES = 2**19


# ---- entry point -----------------------------------------------------------------------------------------------------


def score_batch(metrics: Sequence[Any], batch: Batch, values: bool = True, total: bool = True) -> list[Values]:
    """Rank a batch in any layout once for all metrics, and return the values of each metric with their sums.

    Args:
        metrics: metrics of rankings or of recommended lists, :class:`torchrank.state.metric.Measure`, or objects with
            the attributes of this class.
        batch: the batch.
        values: whether to return the values of all queries. If False, the results of a very large batch have only sums,
            unless a metric needs the values.
        total: whether to sum the values.

    Raises:
        TypeError, ValueError: the layout of the batch is unknown, or a metric is not defined for it.
    """
    if any(metric.takes_lists for metric in metrics):
        return _with_lists(metrics, batch, values, total)
    if not metrics:
        return []
    preds, device, size, queries = batch.preds, torch.device("cpu"), 0, 0  # for preds that `arrange` rejects
    if isinstance(preds, Ranking):
        unexpected = [name for name, value in {"target": batch.target, **batch.options}.items() if value is not None]
        if unexpected:
            raise ValueError(f"Expected nothing but weights with a Ranking, got {', '.join(unexpected)}")
        for metric in metrics:
            preds.check(metric.required, metric.label)
        device, size, queries = preds.num_candidates.device, preds.size, preds.num_queries
    else:
        for metric in metrics:
            if metric.check is not None:
                metric.check(preds, batch.target)
        if isinstance(preds, Tensor) and not preds.is_nested and preds.dim():
            device, size, queries = preds.device, preds.numel(), len(preds)
    # All values of a batch are in memory at once, unless there are very many and no caller needs them: then the values
    # are summed chunk by chunk. They are also summed by chunks if metrics sum additional numbers of each query.
    step = 0
    if num_extra := sum(metric.num_extra_sums for metric in metrics):
        step = max(1, MANY_VALUES // num_extra)
    elif not (values or batch.weights is not None or queries * len(metrics) <= MANY_VALUES):
        step = queries
    with torch.set_grad_enabled(False), autocast_off(device):
        return in_batch(device, size, _ranked, metrics, batch, values, total, step)


def ranking_for(metrics: Sequence[Any], batch: Batch) -> Ranking:
    """A ranking of a batch that :func:`score_batch` can score for all metrics."""
    need = functools.reduce(operator.or_, (metric.required for metric in metrics))
    validate = any(metric.validate_args for metric in metrics)
    with torch.no_grad():
        return Ranking.rank(arrange_batch(batch, validate, all_candidates=need.all_candidates), need)


def _with_lists(metrics: Sequence[Any], batch: Batch, values: bool, total: bool) -> list[Values]:
    """As :func:`score_batch`, if some metrics are metrics of recommended lists."""
    ranked = iter(score_batch([metric for metric in metrics if not metric.takes_lists], batch, values, total))
    return [
        _summed([metric], metric.per_query(batch), batch.weights, total)[0] if metric.takes_lists else next(ranked)
        for metric in metrics
    ]


def _ranked(metrics: Sequence[Any], batch: Batch, values: bool, total: bool, step: int) -> list[Values]:
    """As :func:`score_batch`. Values are summed after every ``step`` queries, at most; 0 = after all queries."""
    need = functools.reduce(operator.or_, (metric.required for metric in metrics))
    source = batch.preds
    if not isinstance(source, Ranking):
        validate = any(metric.validate_args for metric in metrics)
        source = arrange_batch(batch, validate, all_candidates=need.all_candidates)
        if isinstance(source, RankedIds):
            notice_scores(source)
    weights = batch.weights
    if step and weights is not None:
        if isinstance(source, FlatRows):  # the number of queries in flat rows is unknown before they are ranked
            source = Ranking.rank(source, need)
        weights = _checked_weights(weights, source.num_queries).to(source.errors.device)
    rankings = source.parts(need.all_candidates) if isinstance(source, Ranking) else rank(source, need)
    parts: list[Values] = []
    if not step:
        for ranking in rankings:
            part = per_query(metrics, ranking)
            # From the second chunk on, copy the values after all temporaries of the chunk are freed. Otherwise the
            # values would lie between freed blocks of memory, which would be too small for the next chunk.
            del ranking
            parts.append(part.clone() if parts else part)
            del part
        measured = Values.join(parts)
        measured.ignored = source.ignored
        return _summed(metrics, measured, weights, total)
    keep = values or any(metric.keeps_values for metric in metrics)
    sums_of_chunks: list[list[Tensor]] = []
    for ranking in _chunks(rankings, step):
        part = per_query(metrics, ranking)
        del ranking
        part.ignored = None if source.ignored is None else source.ignored[part.queries]
        part = weighed(metrics, part, None if weights is None else weights[part.queries])
        sums_of_chunks.append(reduce(metrics, part))
        if keep:
            part.extra = tuple(x if values and metric.shows_extra else None for metric, x in zip(metrics, part.extra))
            parts.append(part)
    totals = [each[0] if len(each) == 1 else torch.stack(each).sum(0) for each in zip(*sums_of_chunks)]
    if not keep:
        nothing = torch.empty(0, device="cpu")
        return [Values(nothing, nothing, nothing, sums=total) for total in totals]
    return Values.join(parts).each(totals)


def _chunks(rankings: Iterable[Ranking], step: int) -> Iterator[Ranking]:
    """Cut rankings into rankings of at most ``step`` queries, each with the numbers of its queries in the batch."""
    start = 0
    for ranking in rankings:
        for first in range(0, max(1, ranking.num_queries), step):
            part = ranking
            if step < ranking.num_queries:
                part = ranking.take(slice(first, first + step))
                part = replace(part, errors=torch.zeros_like(part.errors)) if first else part
            # A ranking without numbers contains the next queries of the batch.
            if part.queries is None:
                numbers = torch.arange(start, start + part.num_queries, device=part.num_candidates.device)
                part = replace(part, queries=numbers)
            start += part.num_queries
            yield part
        del ranking, part  # free their memory before the next ranking is made


# ---- per query -------------------------------------------------------------------------------------------------------


def per_query(metrics: Sequence[Any], ranking: Ranking) -> Values:
    """The values [metric, query] of a ranking, before the user's weights are applied."""
    if ranking.draw is not None:
        return Values.measured(metrics, _over_draw(metrics, ranking), ranking.queries)
    by_metric: dict[int, Values] = {}
    # The largest cutoffs come first, because smaller cutoffs read the tables of larger cutoffs.
    cutoffs = [getattr(metric, "top_k", None) or math.inf for metric in metrics]
    for n in sorted(range(len(metrics)), key=cutoffs.__getitem__, reverse=True):
        by_metric[n] = metrics[n].per_query(ranking)
    return Values.measured(metrics, [by_metric[n] for n in range(len(metrics))], ranking.queries)


def _over_draw(metrics: Sequence[Any], ranking: Ranking) -> list[Values]:
    """The expectation of each metric over the draw of negatives of :attr:`Ranking.draw`."""
    draw = ranking.draw
    assert draw is not None
    # All lists that a draw can give: with the relevant candidate at each rank, without it, and with none relevant.
    ranks = [*range(1, draw.places + 1), math.inf, -1]
    lengths = [*[draw.places] * draw.places, draw.num_negatives, draw.num_negatives]
    like = ranking.num_candidates
    lists = Ranking.from_ranks(like.new_tensor(ranks), like.new_tensor(lengths))
    lists = replace(lists, grade=torch.full_like(lists.grade, draw.grade, dtype=ranking.grade.dtype))
    tables = list(map(_in_columns, Values.measured(metrics, [metric.per_query(lists) for metric in metrics]).each()))
    by_metric: dict[int, Values] = {}
    for ties in {metric.ties: None for metric in metrics}:
        if ties not in ("expected", "optimistic", "pessimistic"):
            raise ValueError(
                "Expected ties to be 'expected', 'optimistic' or 'pessimistic' for sampled negatives, got"
                f" {ties!r}; make the metric with one of these"
            )
        members = [n for n, metric in enumerate(metrics) if metric.ties == ties]
        mean = draw.expect(ranking.under(ties).positive(), torch.cat([tables[n] for n in members], dim=-1))
        for n, part in zip(members, mean.split([tables[n].shape[-1] for n in members], dim=-1)):
            values, weights, status, *extra = part.unbind(-1)
            errors = ranking.errors * metrics[n].validate_args
            status = status.round().to(torch.int8)  # the status is the same at all ranks, but the mean rounds
            by_metric[n] = Values(values, status, errors, weights, torch.stack(extra) if extra else None)
    return [by_metric[n] for n in range(len(metrics))]


def _in_columns(values: Values) -> Tensor:
    """Values, weights, status and additional numbers in columns: float64 [query, number]."""
    numbers = [values.values, values.own_weights, values.status, *([] if values.extra is None else values.extra)]
    return torch.stack([x.to(values.values.dtype) for x in numbers], dim=-1)


# ---- weigh and reduce ------------------------------------------------------------------------------------------------


def _summed(metrics: Sequence[Any], measured: Values, weights: Tensor | None, total: bool) -> list[Values]:
    """Weigh the values and sum them: the result of each metric."""
    measured = weighed(metrics, measured, weights)
    return measured.each(reduce(metrics, measured) if total else None)


def weighed(metrics: Sequence[Any], measured: Values, weights: Tensor | None) -> Values:
    """Apply the user's weights [query] to values [metric, query]; None = all weights are 1. Ignored queries get NaN.

    Raises:
        TypeError: weights are not a dense tensor.
        ValueError: weights have another shape.
    """
    values, combined, status, errors = measured.values, measured.weights, measured.status, measured.errors
    left_out = measured.ignored
    if left_out is not None:
        values = torch.where(left_out, scalar(math.nan, values.dtype, values.device), values)
    if weights is not None:
        weight = _checked_weights(weights, measured.num_queries).detach().to(values)
        bad = ~(weight.isfinite() & (weight >= 0))
        bad = bad if left_out is None else bad & ~left_out
        # Bad weights become 0, and only metrics that validate their arguments count them.
        validated = [metric.validate_args for metric in metrics]
        errors = torch.stack([row + count(Problem.BAD_WEIGHTS, bad) * check for row, check in zip(errors, validated)])
        combined, unweighted = measured.own_weights * weight.masked_fill(bad, 0.0), ~(weight > 0)
        left_out = unweighted if left_out is None else left_out | unweighted
    if left_out is not None:
        status = torch.where(left_out, scalar(Status.ABSENT, status.dtype, status.device), status)
        # The value of a query of weight 0 need not be NaN.
        measured = Values(values, status, errors, combined, measured.extra, measured.queries, left_out, measured.limit)
    if not measured.all_scored:
        actions = [metric.empty_target_action for metric in metrics]
        if "error" in actions:
            empty = measured.status == Status.EMPTY
            more = [count(Problem.EMPTY_QUERIES, row) * (action == "error") for row, action in zip(empty, actions)]
            measured = replace(measured, errors=errors + torch.stack(more))
    return measured


def reduce(metrics: Sequence[Any], measured: Values) -> list[Tensor]:
    """The sums of each metric, [SIZE + number], from values [metric, query] that :func:`weighed` returned."""
    values = measured.values
    queries = empty = counted = None
    if not measured.all_scored:
        scored, queries, counted = number_of(measured.kinds, values.dtype)
        empty = queries - scored
    # Geometric and harmonic means are computed from the sum of a function of the values.
    aggregations = [metric.aggregation for metric in metrics]
    if "geometric" in aggregations or "harmonic" in aggregations:
        values = torch.stack([metric.mean.inside(row) for metric, row in zip(metrics, values)])
    # Values of weight 0 can be NaN, and 0 * NaN would make the sum NaN.
    if measured.all_count and (measured.weights is None or bool(measured.weights.eq(1).all())):
        added = sums.summed(values, None, queries, empty, measured.errors)
    elif measured.weights is None:
        counts = measured.kinds[2]
        weights, values = as_numbers(counts, values.dtype), only(counts, values)
        added = sums.summed(values, weights, queries, empty, measured.errors, counted)
    else:
        weights = measured.final_weights
        added = sums.summed(only(weights > 0, values), weights, queries, empty, measured.errors)
    each = list(added)
    for n, extra in enumerate(measured.extra or ()):
        if extra is not None:
            each[n] = torch.cat([each[n], metrics[n].further_sums(extra, measured.final_weights[n])])
    return each


def _checked_weights(weights: Tensor, queries: int) -> Tensor:
    weights = check_tensor(weights, "weights", f"a tensor [{queries}], one per query")
    if weights.shape != (queries,):
        raise ValueError(f"Expected weights of shape [{queries}], one per query, got {list(weights.shape)}")
    return weights
