"""Scoring of a batch: rank it once, measure the queries for each metric, and sum their values."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from torchrank.engine import rank
from torchrank.hardware.constants import constant, scalar
from torchrank.hardware.devices import autocast_off, reading_is_free
from torchrank.hardware.threads import in_batch
from torchrank.layouts.arrange import arrange_batch, notice_scores
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.batch import Batch
from torchrank.layouts.canonical import FlatRows, Layout, Need, RankedIds
from torchrank.layouts.checks import check_tensor
from torchrank.ranking.arithmetic import only
from torchrank.ranking.parts import batch_order
from torchrank.ranking.ranking import Ranking
from torchrank.state import sums
from torchrank.state.aggregation import Mean
from torchrank.state.measurements import BatchResult, Measured, Measurements, Status
from torchrank.state.rank_tables import looked_up

CPU = torch.device("cpu")

# If queries times metrics exceed this, only sums are kept, chunk by chunk, unless a metric needs the values.
MANY_VALUES = 2**19


class Averaging(Protocol):
    """A metric that averages values over queries."""

    validate_args: bool
    aggregation: Any

    @property
    def empty_target_action(self) -> str:
        """The policy for empty queries, which have nothing to measure."""

    @property
    def mean(self) -> Mean:
        """The kind of mean that is computed from the sums."""


class Measuring(Averaging, Protocol):
    """A metric that measures rankings."""

    ties: Any

    @property
    def check(self) -> Any:
        """Function of (preds, target) that raises if the metric is not defined for a layout; None = it is for all."""

    @property
    def label(self) -> str:
        """Name and parameters of the metric."""

    @property
    def rank_decides(self) -> bool:
        """Whether the rank of a label decides the value, see :mod:`torchrank.state.rank_tables`."""

    @property
    def num_extra_sums(self) -> int:
        """Number of further sums in the state."""

    @property
    def rows(self) -> list[Tensor] | None:
        """Per-query values in the state; None if the metric keeps none."""

    @property
    def required(self) -> Need:
        """The part of a ranking that the metric reads."""

    def measured(self, ranking: Ranking) -> Measured:
        """Measure the queries of a ranking."""

    def with_extra_sums(self, result: BatchResult, extra: Tensor) -> BatchResult:
        """The result with the further sums appended, from ``extra`` [number, query]."""


# ---- measure ---------------------------------------------------------------------------------------------------------


def score_batch(
    metrics: Sequence[Measuring], batch: Batch, values: bool = True, total: bool = True
) -> list[BatchResult]:
    """Measure a batch in any layout, which is ranked once for all metrics.

    Args:
        metrics: the metrics.
        batch: the batch.
        values: return the values of all queries. If False, results of a batch with very many queries have sums only,
            unless a metric needs the values.
        total: sum the values. If False, the sums of the results are empty.

    Raises:
        TypeError, ValueError: the layout of the batch is unknown, or a metric is not defined for it.
    """
    if not metrics:
        return []
    device, size, queries = _checked(metrics, batch)
    # The values of a batch are in memory together unless they are very many and nobody needs them. Otherwise the
    # queries are summed chunk by chunk, as they also are if metrics sum many further numbers of each query.
    more = sum(map(operator.attrgetter("num_extra_sums"), metrics))
    if not more and (values or batch.weights is not None or queries * len(metrics) <= MANY_VALUES):
        work = functools.partial(_whole, total=total)
    else:
        step = max(1, MANY_VALUES // more if more else queries)
        keep = values or any(metric.rows is not None for metric in metrics)
        work = functools.partial(_in_chunks, step=step, keep=keep)
    with torch.no_grad(), autocast_off(device):
        return in_batch(device, size, work, metrics, batch)


def measure_batch(metrics: Sequence[Measuring], batch: Batch) -> Measurements:
    """Measure all queries of a batch, which is ranked once for all metrics. The weights of the batch are not read.

    Raises:
        TypeError, ValueError: as :func:`score_batch`.
    """
    device, size, _ = _checked(metrics, batch)
    with torch.no_grad(), autocast_off(device):
        return in_batch(device, size, _measured, metrics, batch)


def _checked(metrics: Sequence[Measuring], batch: Batch) -> tuple[torch.device, int, int]:
    """The device, size and number of queries of a batch for which all metrics are defined."""
    preds, device, size, queries = batch.preds, CPU, 0, 0  # kept only for preds that `arrange` rejects
    if isinstance(preds, Ranking):
        given = [name for name, value in {"target": batch.target, **batch.options}.items() if value is not None]
        if given:
            raise ValueError(f"Expected nothing but weights beside a Ranking, got {', '.join(given)}")
        for metric in metrics:
            preds.check(metric.required, metric.label)
        device, size, queries = preds.num_candidates.device, preds.size, preds.num_queries
    else:
        for metric in metrics:
            if metric.check is not None:
                metric.check(preds, batch.target)
        if isinstance(preds, Tensor) and not preds.is_nested and preds.dim():
            device, size, queries = preds.device, preds.numel(), len(preds)
    return device, size, queries


def _source(metrics: Sequence[Measuring], batch: Batch) -> tuple[Ranking | Layout, Need]:
    """What is ranked, or is a ranking, and what the metrics need of it."""
    need = functools.reduce(operator.or_, map(operator.attrgetter("required"), metrics))
    if isinstance(batch.preds, Ranking):
        return batch.preds, need
    layout = arrange_batch(batch, any(map(operator.attrgetter("validate_args"), metrics)))
    if isinstance(layout, RankedIds):
        notice_scores(layout)
    return layout, need


def _rankings(source: Ranking | Layout, need: Need) -> Iterable[Ranking]:
    return source.parts(need.all_candidates) if isinstance(source, Ranking) else rank(source, need)


def _measured(metrics: Sequence[Measuring], batch: Batch) -> Measurements:
    source, need = _source(metrics, batch)
    measured = _measure(metrics, _rankings(source, need)).in_order()
    return measured if source.ignored is None else replace(measured, ignored=source.ignored)


def _whole(metrics: Sequence[Measuring], batch: Batch, total: bool) -> list[BatchResult]:
    return weigh(metrics, _measured(metrics, batch), batch.weights, total)


def _in_chunks(metrics: Sequence[Measuring], batch: Batch, step: int, keep: bool) -> list[BatchResult]:
    """As :func:`_whole`, but at most ``step`` queries are summed before the next are measured.

    Args:
        metrics: the metrics.
        batch: the batch.
        step: largest number of queries of a chunk.
        keep: keep the values of the queries. If False, the results have sums only.
    """
    source, need = _source(metrics, batch)
    weights = None
    if batch.weights is not None:
        if isinstance(source, FlatRows):  # it is their ranking that tells the number of queries
            source = Ranking.rank(source, need)
        weights = _checked_weights(batch.weights, source.num_queries).to(source.errors.device)
    parts: list[list[BatchResult]] = []
    order: list[Tensor] = []
    for queries, ranking in _chunks(_rankings(source, need), step):
        order.append(queries)
        measured = _measure(metrics, [ranking])
        del ranking
        measured = replace(measured, ignored=None if source.ignored is None else source.ignored[queries])
        results = weigh(metrics, measured, None if weights is None else weights[queries])
        for number, extra in enumerate(measured.extra):
            if extra is not None:
                results[number] = metrics[number].with_extra_sums(results[number], extra)
        parts.append(results if keep else [result.of_sums() for result in results])
    joined = [BatchResult.join(results) for results in zip(*parts)]
    places = batch_order(order) if keep else None
    return joined if places is None else [result.take(places) for result in joined]


def _chunks(rankings: Iterable[Ranking], step: int) -> Iterator[tuple[Tensor, Ranking]]:
    """Rankings of at most ``step`` queries, with the numbers of these queries in their batch, int64 [query]."""
    start = 0
    for ranking in rankings:
        for first in range(0, max(1, ranking.num_queries), step):
            part = ranking
            if step < ranking.num_queries:
                part = ranking.take(slice(first, first + step))
                part = replace(part, errors=torch.zeros_like(part.errors)) if first else part
            # A ranking without numbers of its queries contains the next ones of the batch.
            numbers = torch.arange(start, start + part.num_queries, device=part.num_candidates.device)
            start += part.num_queries
            yield (numbers if part.queries is None else part.queries), replace(part, queries=None)
        del ranking, part  # before the next ranking is made


def _measure(metrics: Sequence[Measuring], rankings: Iterable[Ranking]) -> Measurements:
    """Measure some rankings one after the other."""
    parts: list[Measurements] = []
    for ranking in rankings:
        if ranking.draw is None:
            part = _of_each(metrics, ranking)
        else:
            part = Measurements.of(_over_draw(metrics, ranking), ranking.queries, ranking.ones)
        # From the second chunk on, copy the measurements after all temporaries of the chunk are freed. Otherwise they
        # would stay between the freed pieces of memory, and these would be too small for the next chunk.
        del ranking
        parts.append(part.clone() if parts else part)
        del part
    return Measurements.join(parts)


def _of_each(metrics: Sequence[Measuring], ranking: Ranking) -> Measurements:
    """Measure a ranking. The largest cutoffs come first, because smaller ones read from their tables."""
    tables = looked_up(metrics, ranking) if ranking.of_labels else []
    if len(tables) == 1 and len(tables[0].places) == len(metrics):
        return Measurements.looked_up(tables[0].values, tables[0].status, tables[0].errors, ranking.queries)
    found: dict[int, Measured] = {}
    for table in tables:
        for place, value, status, error in zip(table.places, table.values, table.status, table.errors):
            found[place] = Measured(value, ranking.ones, status, error)
    others = [n for n in range(len(metrics)) if n not in found]
    others.sort(key=[getattr(metric, "top_k", None) or math.inf for metric in metrics].__getitem__, reverse=True)
    found |= {n: metrics[n].measured(ranking) for n in others}
    return Measurements.of(list(map(found.__getitem__, range(len(metrics)))), ranking.queries, ranking.ones)


def _over_draw(metrics: Sequence[Measuring], ranking: Ranking) -> list[Measured]:
    """The expectation of each metric over the draw of negatives that the ranking stands for."""
    draw = ranking.draw
    assert draw is not None
    # Every list that can be sampled: the relevant candidate at each rank, then not retrieved, then none relevant.
    ranks = [*range(1, draw.places + 1), math.inf, -1]
    lengths = [*[draw.places] * draw.places, draw.num_negatives, draw.num_negatives]
    like = ranking.num_candidates
    lists = Ranking.from_ranks(like.new_tensor(ranks), like.new_tensor(lengths))
    lists = replace(lists, grade=torch.full_like(lists.grade, draw.grade, dtype=ranking.grade.dtype))
    tables = [_columns(metric.measured(lists)) for metric in metrics]
    measured: dict[int, Measured] = {}
    for ties in {metric.ties: None for metric in metrics}:
        if ties not in ("expected", "optimistic", "pessimistic"):
            raise ValueError(
                "Expected ties to be 'expected', 'optimistic' or 'pessimistic' for sampled negatives, got"
                f" {ties!r}; make the metric with one of these"
            )
        own = [n for n, metric in enumerate(metrics) if metric.ties == ties]
        mean = draw.expect(ranking.under(ties).positive(), torch.cat([tables[n] for n in own], dim=-1))
        for n, part in zip(own, mean.split([tables[n].shape[-1] for n in own], dim=-1)):
            values, weights, status, *extra = part.unbind(-1)
            errors = ranking.errors * metrics[n].validate_args
            status = status.round().to(torch.int8)  # the same for all ranks
            measured[n] = Measured(values, weights, status, errors, torch.stack(extra) if extra else None)
    return [measured[n] for n in range(len(metrics))]


def _columns(measured: Measured) -> Tensor:
    """Values, weights, status and further numbers side by side: float64 [query, number]."""
    numbers = [measured.values, measured.weights, measured.status, *([] if measured.extra is None else measured.extra)]
    return torch.stack([x.to(measured.values.dtype) for x in numbers], dim=-1)


# ---- weigh and sum ---------------------------------------------------------------------------------------------------


def weigh(
    metrics: Sequence[Averaging], measured: Measurements, weights: Tensor | None, total: bool = True
) -> list[BatchResult]:
    """Weigh and sum the measurements of one batch, for all metrics at once.

    Args:
        metrics: the metrics.
        measured: their measurements.
        weights: the user's weights [query]; None = 1 for each.
        total: sum them. If False, the sums of the results are empty.

    Raises:
        TypeError: weights are not a dense tensor.
        ValueError: weights have another shape.
    """
    values, inner, status, errors = measured.values, measured.weights, measured.status, measured.errors
    left_out = measured.ignored  # None = all queries count
    if left_out is not None:
        values = torch.where(left_out, scalar(math.nan, values.dtype, values.device), values)
    if weights is not None:
        weight = _checked_weights(weights, values.shape[1]).detach().to(values)
        bad = ~(weight.isfinite() & (weight >= 0))
        bad = bad if left_out is None else bad & ~left_out
        # Bad weights become 0, and only metrics that validate their arguments count them.
        validated = [metric.validate_args for metric in metrics]
        errors = torch.stack([row + count(Problem.BAD_WEIGHTS, bad) * check for row, check in zip(errors, validated)])
        inner, without = inner * weight.masked_fill(bad, 0.0), ~(weight > 0)
        left_out = without if left_out is None else left_out | without
    # One read of all statuses: in most batches every query is scored.
    all_scored = left_out is None and reading_is_free(status) and not status.numpy().any()
    if all_scored:
        skipped = scalar(False, torch.bool, status.device).expand(status.shape)
        queries, num_empty = values.new_full(values.shape[:1], values.shape[1]), values.new_zeros(values.shape[:1])
    else:
        if left_out is not None:
            status = torch.where(left_out, scalar(Status.ABSENT, status.dtype, status.device), status)
        kinds = status == _unscored(status.dtype, status.device)
        (empty, absent), (num_empty, num_absent) = kinds, kinds.sum(-1, dtype=values.dtype)
        actions = list(map(operator.attrgetter("empty_target_action"), metrics))
        if "error" in actions:
            forbidden = [action == "error" for action in actions]
            found = [count(Problem.EMPTY_QUERIES, row) * check for row, check in zip(empty, forbidden)]
            errors = errors + torch.stack(found)
        queries, skipped = values.shape[1] - num_absent, values.isnan()
        if weights is not None or not measured.all_numbers:  # a query of weight 0 can have a number
            skipped = absent | (empty & skipped)
    if not total:
        return list(
            map(BatchResult, values, only(~skipped, inner), skipped, errors, values.new_empty((len(values), 0)))
        )
    # Geometric and harmonic means sum a function of each value.
    averaged, aggregations = values, list(map(operator.attrgetter("aggregation"), metrics))
    if "geometric" in aggregations or "harmonic" in aggregations:
        averaged = torch.stack([metric.mean.inside(row) for metric, row in zip(metrics, values)])
    alike = measured.all_ones and weights is None
    if (all_scored or (reading_is_free(inner) and not bool(skipped.any()))) and (alike or _all_ones(inner)):
        added = sums.summed(averaged, None, queries, num_empty, errors)
    else:
        # Values of weight 0 can be NaN, and 0 * NaN would make the sum NaN.
        zero = scalar(0.0, values.dtype, values.device)
        inner = torch.where(skipped, zero, inner)
        averaged = torch.where(skipped, zero, averaged) if alike else only(inner > 0, averaged)
        added = sums.summed(averaged, inner, queries, num_empty, errors, zero_or_one=alike)
    return list(map(BatchResult, values, inner, skipped, errors, added))


def _checked_weights(weights: Tensor, queries: int) -> Tensor:
    weights = check_tensor(weights, "weights", f"a tensor [{queries}], one per query")
    if weights.shape != (queries,):
        raise ValueError(f"Expected weights of shape [{queries}], one per query, got {list(weights.shape)}")
    return weights


@constant
def _unscored(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The status of empty queries and of those that do not count: [2, 1, 1]."""
    return torch.tensor([Status.EMPTY, Status.ABSENT], dtype=dtype, device=device).view(2, 1, 1)


def _all_ones(x: Tensor) -> bool:
    """Whether all elements of a matrix on the CPU are 1. Rows that are one expanded row are read once."""
    return bool((x[:1] if x.shape[0] and not x.stride(0) else x).eq(1).all())
