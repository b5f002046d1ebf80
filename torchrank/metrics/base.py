"""What every measure shares: constructor, label, score, update. A measure adds its formula on a Ranking."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import torch
from torch import Tensor

import torchrank.state.sums as state
from torchrank.engine import rank, rank_parts
from torchrank.formulas.judgment_bounds import bound
from torchrank.hardware.devices import autocast_off
from torchrank.hardware.threads import GRAIN, each, serially
from torchrank.layouts.arrange import arrange
from torchrank.layouts.batch import Batch
from torchrank.layouts.canonical import Layout, Need
from torchrank.names.parameters import one_of, parameter
from torchrank.names.types import Aggregation, EmptyAction, Pairs, Target, Ties, Unjudged, call_of
from torchrank.ranking.parts import batch_order
from torchrank.ranking.ranking import Ranking
from torchrank.state.measure import Measure
from torchrank.state.query_mean import QueryValues, weighted

CPU = torch.device("cpu")


# Values of queries of which no table is made if none of them is kept: some 24 bytes each.
MANY = 2**19


class RankingMetric(Measure):
    """Base of all ranking metrics; a subclass gives its name, its range and :meth:`measure`.

    A metric averages a value per query. It keeps one small float64 vector of sums, whatever it has seen, so the result
    does not depend on how queries are split over batches and workers. A query arrives whole in one ``update``.

    A new measure gives a ``name`` of its own (lower-case letters and digits), its ``value_range``, :meth:`measure`,
    :meth:`empty`, and in :meth:`need` what of a ranking it looks at: every judged candidate at every rank, unless it
    says otherwise; the binary and graded families say that relevant candidates up to ``top_k`` will do. Labels and
    lists of ids name none but the relevant. A parameter of its own is a line of the class,
    ``p: float = number(default=0.5, above=0)``, see :mod:`torchrank.names.parameters`: it is checked, stored as an
    attribute and labelled. Or an ``__init__`` has it as a keyword-only argument and passes it on,
    ``super().__init__(top_k, p=p, **kwargs)``. A function that it passes to pieces of the
    ranking, as a discount, should be one that stays: pieces are shared by its identity. Its docstring has a formula,
    and sections ``Source`` and ``Also in``, from which the list of all measures is printed.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        ties: what a tie is worth: "expected" (the mean over all orders of the tied candidates), "optimistic",
            "pessimistic", or, for measures of single positions, "realistic" (the middle of the interval of ranks).
        empty_target_action: the value of a query without a relevant candidate: "neg" 0, "pos" 1, "skip" leaves the
            query out, "error" raises in ``compute``; "listed" 0, and a query without any candidate does not count,
            even if something is relevant to it.
        aggregation: "mean"; "geometric", in which values below 1e-5 count as 1e-5; "harmonic"; "median", the
            lower of two middle values, or "midpoint", halfway between them; "min", "max", "none" (the values
            themselves), or a callable with a name that takes values [query]. All but the three means keep per-query
            values.
        unjudged: what a candidate with a negative grade is taken for: "irrelevant"; "condensed", it is taken out of the
            list (Sakai, SIGIR 2007), as far as judged candidates of grade 0 are known to be judged; "lower" and
            "upper", the smallest and largest value over all that the unjudged candidates could be, see
            :mod:`torchrank.formulas.judgment_bounds`.
        validate_args: count bad values (NaN, indices out of range, duplicates) and raise for them in ``compute``.
        process_group, dist_sync_fn, distributed_available_fn, sync_on_compute, dist_sync_on_step, compute_on_cpu,
            compute_with_cache: as :class:`torchmetrics.Metric`.

    Raises:
        ValueError: an argument has a value that the metric does not know.
    """

    #: every measure by its name
    registry: ClassVar[dict[str, type[RankingMetric]]] = {}
    #: the tie policies that have a meaning for it
    policies: ClassVar[tuple[str, ...]] = ("expected", "optimistic", "pessimistic")
    #: what it can take unjudged candidates for
    takes_unjudged_for: ClassVar[tuple[str, ...]] = get_args(Unjudged)

    ties: Ties = one_of(default="expected", among=lambda cls: cls.policies)
    empty_target_action: EmptyAction = parameter(default="neg")
    aggregation: Aggregation = parameter(default="mean")
    unjudged: Unjudged = one_of(default="irrelevant", among=lambda cls: cls.takes_unjudged_for)
    validate_args: bool = parameter(default=True, labelled=False)

    def begin(self, known: str = "") -> None:
        if self.unjudged in ("lower", "upper") and (why := self.no_bounds_reason):
            raise ValueError(
                f"Expected unjudged to be 'irrelevant' or 'condensed' for {self.label}, {why}, got {self.unjudged!r}"
            )
        super().begin(known)

    # ---- what it is --------------------------------------------------------------------------------------------

    def measure(self, ranking: Ranking) -> Tensor:
        """The formula: float64 [query]. Ties are already settled by ``ties``; "expected" ones are still intervals."""
        raise NotImplementedError(f"Expected {type(self).__name__} to define measure(ranking)")

    def need(self) -> Need:
        """What of a ranking it looks at: all of it, unless a measure says that less will do."""
        return Need()

    def required(self) -> Need:
        """What of a ranking it looks at, unjudged candidates considered."""
        return (
            self.need() if self.unjudged == "irrelevant" else Need(all_candidates=self.unjudged in ("lower", "upper"))
        )

    def empty(self, ranking: Ranking) -> Tensor:
        """bool [query]: there is nothing to measure."""
        raise NotImplementedError(f"Expected {type(self).__name__} to define empty(ranking)")

    @property
    def no_bounds_reason(self) -> str:
        """Why the extremes of :mod:`torchrank.formulas.judgment_bounds` are none for it, a clause; nothing if they are."""
        return ""

    def weight(self, ranking: Ranking) -> Tensor:
        """float64 [query]: how much each query counts in the mean, besides the user's weight."""
        return torch.ones_like(ranking.num_candidates)

    def errors(self, ranking: Ranking) -> Tensor:
        """Counters of bad values, those of the ranking and those that only the measure comes across: int64 [kind]."""
        return ranking.errors

    def check(self, preds: Any, target: Any) -> None:
        """Raise TypeError for a layout in which it would measure something else than it says."""

    def resolve_ties(self, ranking: Ranking) -> Ranking:
        """The ranking as :meth:`measure` takes it."""
        return ranking.under(self.ties)

    # ---- rank, score -------------------------------------------------------------------------------------------

    def evaluate(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """What it makes of the queries of a ranking, the policy for empty ones applied.

        Returns:
            float64 [3 + more, query]: value, weight besides the user's, 1 if there was nothing to measure or 2 if the
            query does not count, and whatever a measure adds up besides; and counters of bad values, int64 [kind].
        """
        ranking = ranking.condensed() if self.unjudged == "condensed" else ranking
        if self.unjudged in ("lower", "upper"):
            worth = max(1, getattr(self, "relevance_level", 1))
            values, empty = bound(self.values, ranking, self.unjudged == "upper", worth)
        else:
            values, empty = self.values(ranking)
        flags = empty.to(values.dtype)
        if self.empty_target_action == "listed":
            absent = ranking.num_candidates == 0
            values, flags = values.masked_fill(absent, float("nan")), flags.masked_fill(absent, 2)
        table = torch.stack([values, self.weight(ranking), flags])
        return table, self.errors(ranking) if self.validate_args else torch.zeros_like(ranking.errors)

    def with_extra_sums(self, result: QueryValues, rows: Tensor) -> QueryValues:
        """The result of a batch with the :attr:`more` numbers that it adds to the state, of rows [more, query]."""
        return result

    def values(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """The value of each query, float64 [query], and where there was nothing to measure, bool [query]."""
        empty = self.empty(ranking)
        fill = {"neg": 0.0, "pos": 1.0, "listed": 0.0}.get(self.empty_target_action, float("nan"))
        value = self.measure(self.resolve_ties(ranking))
        if value.shape != empty.shape:
            name, shape = type(self).__name__, list(value.shape)
            raise ValueError(f"Expected {name}.measure to return [query], here {len(empty)} values, got shape {shape}")
        return torch.where(empty, fill, value), empty

    def score(
        self,
        preds: Tensor | Ranking,
        target: Target | None = None,
        *,
        mask: Tensor | None = None,
        indexes: Tensor | None = None,
        exclude: Pairs | None = None,
        tie_break: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The value of each query, without touching the state: the functional interface.

        Takes what :meth:`update` takes.

        Returns:
            float64 [query]; NaN where ``empty_target_action`` leaves a query out, and for a label of -100.

        Raises:
            TypeError, ValueError: as :meth:`update`, and for bad values at once.
        """
        options = {"mask": mask, "indexes": indexes, "exclude": exclude, "tie_break": tie_break}
        batch = Batch(preds, target, weights, options)
        return self.scored(self.of_batch(batch), batch)

    def of_batch(self, batch: Batch) -> QueryValues:
        return evaluate([self], batch)[0]

    def update(
        self,
        preds: Tensor | Ranking | QueryValues,
        target: Target | None = None,
        *,
        mask: Tensor | None = None,
        indexes: Tensor | None = None,
        exclude: Pairs | None = None,
        tie_break: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Add a batch of whole queries.

        Args:
            preds: floating scores [query, candidate] or, with ``indexes``, [row]; integer ids [query, position], best
                first, negative = padding; or a :class:`Ranking`. A score of -inf = not retrieved.
            target: grades [query, candidate] or [row]; int [query], the column (or id) of the positive, negative =
                none, but -100 = no query, as cross-entropy ignores it; a (query, item) or (query, item, grade) tuple of
                1-D tensors; a list of one id tensor per query; beside ids also [query, entry], negative = padding.
            mask: bool like ``preds``, True for real candidates.
            indexes: int [row], the query of each flat row; queries count in ascending order of index.
            exclude: (query, item) tuple of 1-D tensors, or a list of one id tensor per query: these are no candidates,
                unless they are relevant.
            tie_break: like ``preds``, or [candidate]: the larger ranks first among equal scores.
            weights: [query], finite and >= 0; 0 = as if the query were not there.

        Raises:
            TypeError: an argument has a type or dtype that no layout has.
            ValueError: shapes do not fit together. Bad values are counted and raise in :meth:`compute`.
        """
        if isinstance(preds, QueryValues):  # from a collection, which has ranked for all its metrics
            result = preds
        else:
            options = {"mask": mask, "indexes": indexes, "exclude": exclude, "tie_break": tie_break}
            (result,) = evaluate([self], Batch(preds, target, weights, options), values=False)
        self.accumulate(result)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one value, or a list of values over time, with the bounds of the measure; needs matplotlib."""
        if isinstance(val, list | tuple):
            val = [torch.as_tensor(value, device="cpu") for value in val]
        figure, axes = self._plot(torch.as_tensor(val, device="cpu") if isinstance(val, float) else val, ax)
        axes.set_ylabel(self.label)  # type: ignore[union-attr]
        return figure, axes

    if TYPE_CHECKING:

        @call_of(update, Tensor)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


def evaluate(metrics: Sequence[RankingMetric], batch: Batch, values: bool = True) -> list[QueryValues]:
    """The values of each metric for a batch in any layout, ranked once for all of them.

    Without ``values`` a batch of very many queries leaves nothing but sums, if these are all that the metrics keep.
    """
    if not metrics:
        return []
    preds, device, size, queries = batch.preds, CPU, 0, 0  # unless preds are refused
    if isinstance(preds, Ranking):
        given = [name for name, value in {"target": batch.target, **batch.options}.items() if value is not None]
        if given:
            raise ValueError(f"Expected nothing but weights beside a Ranking, got {', '.join(given)}")
        for metric in metrics:
            preds.check(metric.required(), metric.label)
        device, size, queries = preds.num_candidates.device, preds.size, preds.num_queries
    else:
        for metric in metrics:
            metric.check(preds, batch.target)
        if isinstance(preds, Tensor) and not preds.is_nested and preds.dim():
            device, size, queries = preds.device, preds.numel(), len(preds)
    kept = (
        values
        or batch.weights is not None
        or any(metric.num_extra_sums or metric.rows is not None for metric in metrics)
    )
    work = _values if kept or queries * len(metrics) <= MANY else _sums
    with torch.no_grad(), autocast_off(device):
        return serially(device, size, work, metrics, batch)


def _arranged(metrics: Sequence[RankingMetric], batch: Batch) -> tuple[Layout, Need]:
    need = functools.reduce(operator.or_, (metric.required() for metric in metrics))
    validate = any(metric.validate_args for metric in metrics)
    return arrange(batch.preds, batch.target, validate=validate, **batch.options), need


def _values(metrics: Sequence[RankingMetric], batch: Batch) -> list[QueryValues]:
    ranked = batch.preds
    if isinstance(ranked, Ranking):
        ignored, found = ranked.ignored, [_in_order(each(lambda part: _tables(metrics, [part]), ranked.parts()))]
    else:
        layout, need = _arranged(metrics, batch)
        ignored, cut = layout.ignored, layout.parts()
        if len(cut) > 1 and int(layout.work.sum()) < GRAIN:  # much to rank, and little to measure
            rankings = rank_parts(layout, lambda part: rank(part, need))
            found = [_tables(metrics, [Ranking.join(rankings)])]
        else:
            found = each(lambda part: _in_order([_tables(metrics, rank(part, need))]), cut)
    table, errors, _ = _in_order(found)
    rows = table.split([3 + metric.num_extra_sums for metric in metrics])
    plain = len(table) == 3 * len(metrics)
    block = table.view(len(metrics), 3, -1) if plain else torch.stack([part[:3] for part in rows])
    results = weighted(metrics, block, errors, batch.weights, ignored)
    return [metric.with_extra_sums(result, part[3:]) for metric, result, part in zip(metrics, results, rows)]


def _sums(metrics: Sequence[RankingMetric], batch: Batch) -> list[QueryValues]:
    """:func:`_values` without weights and values: each block of queries is summed before the next one is measured."""

    def summed(rankings: Iterable[Ranking], ignored: Tensor | None) -> Tensor:
        totals: list[Tensor] = []
        start = 0
        for ranking in rankings:
            numbers = slice(start, start + ranking.num_queries) if ranking.queries is None else ranking.queries
            start += ranking.num_queries
            table, errors, _ = _tables(metrics, [ranking])
            del ranking
            flags = None if ignored is None else ignored[numbers]
            results = weighted(metrics, table.view(len(metrics), 3, -1), errors, None, flags)
            totals.append(torch.stack([torch.cat([result.sums, result.errors]) for result in results]))
        return torch.stack(totals).sum(0)

    if isinstance(batch.preds, Ranking):
        found = each(lambda part: summed([replace(part, queries=None)], part.ignored), batch.preds.parts())
    else:
        layout, need = _arranged(metrics, batch)
        found = each(lambda part: summed(rank(part, need), part.ignored), layout.parts())
    total = torch.stack(found).sum(0)
    nothing = total.new_empty(0)
    return [QueryValues(nothing, nothing, nothing.bool(), row[state.SIZE :].long(), row[: state.SIZE]) for row in total]


#: results of :meth:`RankingMetric.evaluate` for all metrics, [row, query]; errors [metric, kind]; the numbers of the
#: queries, int64 [query], or None if they are in order
Tables = tuple[Tensor, Tensor, Tensor | None]


def _tables(metrics: Sequence[RankingMetric], rankings: Iterable[Ranking]) -> Tables:
    blocks: list[Tensor] = []
    numbers: list[Tensor] = []
    errors: Tensor | None = None
    for ranking in rankings:
        tables, found = zip(*(metric.evaluate(ranking) for metric in metrics))
        block = torch.cat(tables)
        errors = torch.stack(found) if errors is None else errors.add_(torch.stack(found))
        numbers += [] if ranking.queries is None else [ranking.queries]
        # What a block leaves behind is copied once all its temporaries are gone, or it would lie between them and
        # keep the memory in pieces too small for the next block.
        del ranking, tables, found
        blocks.append(block.clone() if blocks else block)
        del block
    assert errors is not None
    table = blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=-1)
    return table, errors, torch.cat(numbers) if numbers else None


def _in_order(parts: Sequence[Tables]) -> Tables:
    """The tables of several parts as one, with the queries in their order."""
    tables, errors, numbers = zip(*parts)
    table = tables[0] if len(tables) == 1 else torch.cat(tables, dim=-1)
    order = batch_order(numbers)
    return table if order is None else table[..., order], torch.stack(errors).sum(0), None
