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
from torchrank.hardware.devices import constant, in_batch, order_of, scalar, surely
from torchrank.layouts.arrange import Batch, arrange_batch, notice_scores
from torchrank.layouts.canonical import DenseLayout, FlatRows, RankedIds
from torchrank.layouts.checks import Problem, check_tensor, count
from torchrank.ranking.ranking import Ranking, only
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
    """The values of the queries of a batch, or of a part of it. Nobody changes the tensors of a record.

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
    #: the first :class:`Status` of queries that do not count in the average; a tuple for several metrics, once settled
    limit: Any = Status.ABSENT
    #: the sums that the batch adds to the state of each metric: [SIZE + number]; None if they were not asked for
    sums: list[Tensor] | None = None

    @classmethod
    def stack(cls, each: Sequence[Values], queries: Tensor | None = None) -> Values:
        """The values of several metrics for the same queries."""
        weighted = any(x.weights is not None for x in each)
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

    def of(self, n: int) -> Values:
        """The values of one of several metrics."""
        weights = None if self.weights is None else self.weights[n]
        few = self.values[n], self.status[n], self.errors[n], weights, self.extra[n]
        return Values(*few, self.queries, self.ignored, self.limit[n])

    @classmethod
    def join(cls, parts: Sequence[Values]) -> Values:
        """The values of all queries of a batch, in order, from those of its parts."""
        result = parts[0]
        if len(parts) > 1:
            weighted = any(part.weights is not None for part in parts)
            result = cls(
                torch.cat([part.values for part in parts], -1),
                torch.cat([part.status for part in parts], -1),
                torch.stack([part.errors for part in parts]).sum(0),
                torch.cat([part.own_weights for part in parts], -1) if weighted else None,
                result.extra and tuple(map(_cat, zip(*(part.extra for part in parts)))),
                _cat([part.queries for part in parts]),
                _cat([part.ignored for part in parts]),
                result.limit,
            )
        if result.queries is None:
            return result
        order = order_of(result.queries)
        names = ("values", "status", "weights", "ignored")
        ordered: dict[str, Any] = {
            name: None if (x := getattr(result, name)) is None else x[..., order] for name in names
        }
        if result.extra is not None:  # of several metrics: one alone sums nothing further in parts
            ordered["extra"] = tuple(None if x is None else x[..., order] for x in result.extra)
        return replace(result, **ordered, queries=None)

    def clone(self) -> Values:
        """A copy in new memory, of values without further sums."""
        names = ("values", "status", "errors", "weights")
        copies: dict[str, Any] = {name: None if (x := getattr(self, name)) is None else x.clone() for name in names}
        return replace(self, **copies)

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

    @property
    def own_weights(self) -> Tensor:
        """float64 [..., query]: ``weights``, also if all are 1."""
        values = self.values
        return scalar(1.0, values.dtype, values.device).expand_as(values) if self.weights is None else self.weights

    @cached_property
    def final_weights(self) -> Tensor:
        """float64 [..., query]: the weight of each query in the average, 0 for a skipped one."""
        return self.own_weights if self.all_scored else only(self.kinds[2], self.own_weights)


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


# ---- a batch ---------------------------------------------------------------------------------------------------------

# If a batch has more values, queries times metrics, they are summed chunk by chunk, unless a metric needs the values.
MANY_VALUES = 2**19


def score_batch(
    metrics: Sequence[Any],
    batch: Batch,
    values: bool = True,
    total: bool = True,
    known: dict[Any, Any] | None = None,
) -> Values:
    """Rank a batch in any layout once for all metrics, and return their values [metric, query] and sums.

    Args:
        metrics: metrics of rankings or of recommended lists, :class:`torchrank.state.metric.Measure`; at least one.
        batch: the batch.
        values: whether to return the values of all queries. If False, the result of a very large batch has only sums,
            unless a metric needs the values.
        total: whether to sum the values.
        known: what other systems have shown of the judgments of the same queries, and what this one shows.

    Raises:
        TypeError, ValueError: the layout of the batch is unknown, or a metric is not defined for it.
    """
    if any(metric.takes_lists for metric in metrics):
        return _with_lists(metrics, batch, values, total)
    preds, weights = batch.preds, batch.weights
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
        device, size, queries = torch.device("cpu"), 0, 0  # for preds that `arrange_batch` rejects
        if isinstance(preds, Tensor) and not preds.is_nested and preds.dim():
            device, size, queries = preds.device, preds.numel(), len(preds)
    # All values of a batch are in memory at once, unless there are very many and no caller needs them: then the values
    # are summed chunk by chunk. They are also summed by chunks if metrics sum additional numbers of each query.
    step = 0
    if num_extra := sum(metric.num_extra_sums for metric in metrics):
        step = max(1, MANY_VALUES // num_extra)
    elif not (values or weights is not None or queries * len(metrics) <= MANY_VALUES):
        step = queries
    keep = values or any(metric.keeps_values for metric in metrics)
    need = functools.reduce(operator.or_, (metric.required for metric in metrics))
    with torch.no_grad(), in_batch(device, size):
        source: Any = preds
        if not isinstance(preds, Ranking):
            validate = any(metric.validate_args for metric in metrics)
            source = arrange_batch(batch, validate, all_candidates=need.all_candidates)
            if isinstance(source, RankedIds):
                notice_scores(source)
        if step and weights is not None:
            if isinstance(source, FlatRows):  # the number of queries in flat rows is unknown before they are ranked
                source = Ranking.rank(source, need)
            weights = _checked_weights(weights, source.num_queries).to(source.errors.device)
        rankings = source.parts(need.all_candidates) if isinstance(source, Ranking) else rank(source, need)
        parts: list[Values] = []
        sums_of_chunks: list[list[Tensor]] = []
        for ranking in _chunks(rankings, step) if step else rankings:
            # Grades in one chunk: what is known of them is small.
            if known is None or not isinstance(source, DenseLayout) or ranking.num_queries < source.num_queries:
                part = per_query(metrics, ranking)
            else:
                with ranking.judged_alike(known):
                    part = per_query(metrics, ranking)
            # From the second chunk on, values are copied after all temporaries of the chunk are freed. Otherwise they
            # would lie between freed blocks of memory, which would be too small for the next chunk.
            del ranking
            if not step:
                parts.append(part.clone() if parts else part)
                continue
            part.ignored = None if source.ignored is None else source.ignored[part.queries]
            part = settled(metrics, part, None if weights is None else weights[part.queries])
            sums_of_chunks.append(reduce(metrics, part))
            if keep:
                shown = (x if values and metric.shows_extra else None for metric, x in zip(metrics, part.extra))
                part.extra = tuple(shown)
                parts.append(part)
        if not step:
            found = parts[0] if len(parts) == 1 and parts[0].queries is None else Values.join(parts)
            found.ignored = source.ignored
            found = settled(metrics, found, weights)
            found.sums = reduce(metrics, found) if total else None
            return found
        nothing = torch.empty(0, device="cpu")
        found = Values.join(parts) if keep else Values(nothing, nothing, nothing)
        found.sums = [each[0] if len(each) == 1 else torch.stack(each).sum(0) for each in zip(*sums_of_chunks)]
        return found


def ranking_for(metrics: Sequence[Any], batch: Batch) -> Ranking:
    """A ranking of a batch that :func:`score_batch` can score for all metrics."""
    need = functools.reduce(operator.or_, (metric.required for metric in metrics))
    validate = any(metric.validate_args for metric in metrics)
    with torch.no_grad():
        return Ranking.rank(arrange_batch(batch, validate, all_candidates=need.all_candidates), need)


def _with_lists(metrics: Sequence[Any], batch: Batch, values: bool, total: bool) -> Values:
    """As :func:`score_batch`, if some metrics are metrics of recommended lists."""
    lists = [metric for metric in metrics if metric.takes_lists]
    others = [metric for metric in metrics if not metric.takes_lists]
    found = settled(lists, Values.stack([metric.per_query(batch) for metric in lists]), batch.weights)
    found.sums = reduce(lists, found) if total else None
    if not others:
        return found
    ranked = score_batch(others, batch, values or any(metric.keeps_values for metric in lists), total)
    by_kind = iter(range(len(lists))), iter(range(len(others)))
    places = [(found, next(by_kind[0])) if m.takes_lists else (ranked, next(by_kind[1])) for m in metrics]
    both = ranked  # of many values the sums alone
    if ranked.values.dim() > 1:
        both = Values.stack([each.of(n) for each, n in places])
    both.sums = [each.sums[n] for each, n in places if each.sums is not None] or None
    return both


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


# ---- values of queries -----------------------------------------------------------------------------------------------


def per_query(metrics: Sequence[Any], ranking: Ranking) -> Values:
    """The values [metric, query] of a ranking. Those of queries without a value are arbitrary: see :func:`settled`."""
    if ranking.draw is not None:
        return Values.stack(_over_draw(metrics, ranking), ranking.queries)
    # The largest cutoffs come first, because smaller cutoffs read the tables of larger cutoffs.
    cutoffs = [metric.top_k or math.inf for metric in metrics]
    order = sorted(range(len(metrics)), key=cutoffs.__getitem__, reverse=True)
    found = {n: metrics[n].per_query(ranking) for n in order}
    return Values.stack([found[n] for n in range(len(metrics))], ranking.queries)


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
    of_lists = settled(metrics, Values.stack([metric.per_query(lists) for metric in metrics]))
    tables = []
    for n in range(len(metrics)):
        own = of_lists.of(n)
        columns = [own.values, own.own_weights, own.status, *([] if own.extra is None else own.extra)]
        tables.append(torch.stack([x.to(own.values.dtype) for x in columns], dim=-1))
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
            status = status.round().to(torch.int8)  # the status is the same at all ranks, but the mean rounds
            errors = ranking.errors * metrics[n].validate_args
            by_metric[n] = Values(values, status, errors, weights, torch.stack(extra) if extra else None)
    return [by_metric[n] for n in range(len(metrics))]


def settled(metrics: Sequence[Any], found: Values, weights: Tensor | None = None) -> Values:
    """Values [metric, query] under each metric's policy for queries without a value, and the user's weights [query].

    Ignored queries get NaN.

    Raises:
        TypeError: weights are not a dense tensor.
        ValueError: weights have another shape.
    """
    values, status, errors, left_out = found.values, found.status, found.errors, found.ignored
    actions = tuple(metric.empty_target_action for metric in metrics)
    found.limit = tuple(Status.EMPTY if math.isnan(FILLS[action]) else Status.ABSENT for action in actions)
    if not found.all_scored:
        scored, listed, _ = found.kinds
        values = torch.where(scored, values, _fills(actions, values.dtype, values.device))
        # A query that does not count is NaN under every policy.
        if any(metric.leaves_out_empty_lists for metric in metrics):
            values = torch.where(listed, values, scalar(math.nan, values.dtype, values.device))
        found.values = values
    if left_out is not None:
        values = torch.where(left_out, scalar(math.nan, values.dtype, values.device), values)
    combined = found.weights
    if weights is not None:
        weight = _checked_weights(weights, found.num_queries).detach().to(values)
        bad = ~(weight.isfinite() & (weight >= 0))
        bad = bad if left_out is None else bad & ~left_out
        # Bad weights become 0, and only metrics that validate their arguments count them.
        validated = [metric.validate_args for metric in metrics]
        errors = torch.stack([row + count(Problem.BAD_WEIGHTS, bad) * check for row, check in zip(errors, validated)])
        combined, unweighted = found.own_weights * weight.masked_fill(bad, 0.0), ~(weight > 0)
        left_out = unweighted if left_out is None else left_out | unweighted
    if left_out is not None:
        status = torch.where(left_out, scalar(Status.ABSENT, status.dtype, status.device), status)
        # The value of a query of weight 0 need not be NaN.
        found = Values(values, status, errors, combined, found.extra, found.queries, left_out, found.limit)
    if "error" in actions and not found.all_scored:
        empty = found.status == Status.EMPTY
        more = [count(Problem.EMPTY_QUERIES, row) * (action == "error") for row, action in zip(empty, actions)]
        found.errors = found.errors + torch.stack(more)
    return found


def reduce(metrics: Sequence[Any], found: Values) -> list[Tensor]:
    """The sums of each metric, [SIZE + number], from values [metric, query] that :func:`settled` returned."""
    values, errors = found.values, found.errors
    queries = empty = counted = None
    if not found.all_scored:
        scored, queries, counted = found.kinds.sum(-1, dtype=values.dtype)
        empty = queries - scored
    # Geometric and harmonic means are computed from the sum of a function of the values.
    if any(metric.aggregation in ("geometric", "harmonic") for metric in metrics):
        values = torch.stack([metric.mean.inside(row) for metric, row in zip(metrics, values)])
    # Values of weight 0 can be NaN, and 0 * NaN would make the sum NaN.
    all_count = found.all_scored or surely(found.kinds[2])
    if all_count and (found.weights is None or bool(found.weights.eq(1).all())):
        added = sums.summed(values, None, queries, empty, errors)
    elif found.weights is None:
        counts = found.kinds[2]
        added = sums.summed(only(counts, values), counts.to(values.dtype), queries, empty, errors, counted)
    else:
        weights = found.final_weights
        added = sums.summed(only(weights > 0, values), weights, queries, empty, errors)
    each = list(added)
    for n, extra in enumerate(found.extra or ()):
        if extra is not None:
            each[n] = torch.cat([each[n], metrics[n].further_sums(extra, found.final_weights[n])])
    return each


def _checked_weights(weights: Tensor, queries: int) -> Tensor:
    weights = check_tensor(weights, "weights", f"a tensor [{queries}], one per query")
    if weights.shape != (queries,):
        raise ValueError(f"Expected weights of shape [{queries}], one per query, got {list(weights.shape)}")
    return weights
