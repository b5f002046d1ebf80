"""Scoring: rank a batch once, compute each metric's value for every query, and sum the values."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchrank.engine import rank
from torchrank.hardware.devices import autocast_off, scalar
from torchrank.hardware.threads import in_batch
from torchrank.layouts.arrange import Batch, arrange_batch, notice_scores
from torchrank.layouts.canonical import FlatRows, RankedIds
from torchrank.layouts.checks import Problem, check_tensor, count
from torchrank.ranking.intervals import as_numbers, number_of, only
from torchrank.ranking.ranking import Ranking
from torchrank.state import sums
from torchrank.state.rank_tables import looked_up
from torchrank.state.values import Status, Values

# If a batch has more values, queries times metrics, they are summed chunk by chunk, unless a metric needs the values.
MANY_VALUES = 2**19


# ---- entry point -----------------------------------------------------------------------------------------------------


def score_batch(metrics: Sequence[Any], batch: Batch, values: bool = True, total: bool = True) -> list[Values]:
    """Rank a batch in any layout once for all metrics, and return the values of each metric with their sums.

    Args:
        metrics: metrics of rankings or of recommended lists, :class:`torchrank.state.measure.Measure`, or objects with
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
    for places, table in looked_up(metrics, ranking) if ranking.of_labels else []:
        if len(places) == len(metrics):
            return table
        by_metric.update(zip(places, table.each()))
    # The largest cutoffs come first, because smaller cutoffs read the tables of larger cutoffs.
    cutoffs = [getattr(metric, "top_k", None) or math.inf for metric in metrics]
    for n in sorted({*range(len(metrics))} - by_metric.keys(), key=cutoffs.__getitem__, reverse=True):
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
    tables = list(map(_columns, Values.measured(metrics, [metric.per_query(lists) for metric in metrics]).each()))
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


def _columns(values: Values) -> Tensor:
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
