"""The base class of all measures of rankings: ranks and averages. A measure adds a formula on a :class:`Ranking`."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, get_args

import torch
from torch import Tensor

from torchrank.formulas.judgment_bounds import MOST_TIED, bound
from torchrank.hardware.devices import eager, scalar
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.layouts.canonical import Need
from torchrank.names.labels import quantity_of
from torchrank.names.parameters import cutoff, flag, one_of
from torchrank.names.types import Aggregation, Array, EmptyAction, Target, Ties, Unjudged, call_of
from torchrank.ranking.budgets import Cut, cutoffs, prefixes
from torchrank.ranking.ranking import Ranking, only, ratio
from torchrank.state.metric import Measure
from torchrank.state.scoring import FILLS, Status, Values, score_batch
from torchrank.state.waiting import bulk

#: a clause of error messages on bounds of differences
NONLINEAR = "whose value is not a sum over candidates with weights that are independent of the judgments"


class RankingMetric(Measure):
    """The arguments and methods that all ranking metrics share.

    A metric averages one value per query. Its state is one small float64 vector of sums, so the result does not depend
    on how the queries are split into batches and over workers. All rows of a query must arrive in one :meth:`update`.
    With several workers, :meth:`compute` and :meth:`interval` cover all workers, but :attr:`standard_error`,
    :attr:`num_queries` and :attr:`num_empty` cover only the current worker, except inside
    ``with metric.sync_context()``.

    To write a new measure, see :mod:`torchrank.extend`.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all ranks; "10%" = the first 10% of the retrieved candidates
            of each query, rounded up; "2000tok" = the first candidates whose total cost is at most 2000, for rankings
            by ``Ranking.from_scores(..., cost=...)``. The last two forms read values. If the order of tied candidates
            decides a cutoff by cost, "expected" is the mean over all orders, each cut where its budget ends: exact for
            up to 11 tied candidates. For more, it is the mean over 2,048 random orders, the same in every run: the
            standard error is at most 1.1% of the range of values, and does not shrink with the number of queries. More
            than 1,024 tied candidates have fewer orders. Under "optimistic" the cheaper of equal grades ranks first,
            under "pessimistic" the dearer.
        ties: the rule for tied candidates: "expected" (the mean over all their orders), "optimistic", "pessimistic",
            or, for measures of single positions, "realistic" (the middle of the interval of ranks).
        empty_target_action: the value of a query without a relevant candidate: "neg" = 0; "pos" = 1; "skip" leaves the
            query out; "error" raises in ``compute``; "listed" = 0, but every query for which nothing was retrieved is
            left out, even if the query has relevant candidates. Measures for which low values are good leave out every
            query for which nothing was retrieved, under each of these actions.
        aggregation: "mean"; "geometric", in which values below 1e-5 count as 1e-5; "harmonic"; "sum" of weight x value;
            "median", the lower of two middle values; "midpoint", halfway between the two middle values; "p1", "p5",
            "p10", "p25", "p75", "p90", "p95" or "p99", a percentile: the smallest value that so many percent of the
            queries do not exceed; "min"; "max"; "none", the values themselves; or a callable with a name that takes
            values [query]. All aggregations except the three means and the sum store the value of every query.
        unjudged: the treatment of candidates with a negative grade: "irrelevant"; "condensed", removed from the list
            (Sakai, SIGIR 2007), together with all candidates without a judgment; "lower" and "upper", the smallest and
            the largest value over all possible judgments of the unjudged candidates, also of those in groups that have
            judged ones. If ties decide a cutoff by cost and more than 8 of the tied candidates are unjudged, these are
            the means of the bounds of each order, which can be wider.
        validate_args: count bad values (NaN, indices out of range, duplicates) and raise an error in ``compute``.
        process_group, dist_sync_fn, distributed_available_fn, sync_on_compute, dist_sync_on_step, compute_on_cpu,
            compute_with_cache: see :class:`torchmetrics.Metric`.

    Raises:
        ValueError: an argument has an unknown value.
    """

    #: all measures by name
    registry: ClassVar[dict[str, type[RankingMetric]]] = {}
    #: the tie policies that the measure supports
    policies: ClassVar[tuple[str, ...]] = ("expected", "optimistic", "pessimistic")
    #: the treatments of unjudged candidates that the measure supports
    takes_unjudged_for: ClassVar[tuple[str, ...]] = get_args(Unjudged)
    #: whether a query is empty exactly if its :meth:`denominator` is 0; then :meth:`empty` is not called
    empty_without_denominator: ClassVar[Any] = False

    #: method of (preds, target) that raises for a layout that the measure does not support; None = no restriction
    check: ClassVar[Any] = None

    top_k: int | None = cutoff(default=None, kw_only=False)
    ties: Ties = one_of(default="expected", among=lambda cls: cls.policies)
    empty_target_action: EmptyAction = one_of(default="neg")
    aggregation: Aggregation = one_of(default="mean")
    unjudged: Unjudged = one_of(default="irrelevant", among=lambda cls: cls.takes_unjudged_for)
    validate_args: bool = flag(default=True, labelled=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.top_k, str):
            self.relative, self.top_k = self.top_k, None

    def begin(self, known: str = "") -> None:
        by_order = self.ties in ("optimistic", "pessimistic") and str(self.relative).endswith("tok")
        why = self.no_bounds_reason or ("whose cutoff depends on the judgments" if by_order else "")
        if self.unjudged in ("lower", "upper") and why:
            raise ValueError(
                f"Expected unjudged to be 'irrelevant' or 'condensed' for {self.label}, {why}, got {self.unjudged!r}"
            )
        super().begin(known)

    # ---- the definition of a measure -----------------------------------------------------------------------------

    def measure(self, ranking: Ranking) -> Tensor:
        """The formula: float64 [query]. The ties are resolved already; under "expected", ranks are still intervals.

        By default :meth:`numerator` / :meth:`denominator`, and 0 where the denominator is 0.
        """
        total, divisor = self.numerator(ranking), self.denominator(ranking)
        return total if divisor is None else ratio(total, divisor)

    @classmethod
    def linear(cls) -> bool:
        """Whether :meth:`numerator` and :meth:`denominator` define the measure."""
        return cls.measure is RankingMetric.measure and cls.numerator is not RankingMetric.numerator

    def numerator(self, ranking: Ranking) -> Tensor:
        """The numerator of a linear measure: float64 [query].

        A sum over the candidates, in which each gain is multiplied by a weight that does not depend on the judgments.
        """
        raise NotImplementedError(f"Expected {type(self).__name__} to define measure(ranking)")

    def denominator(self, ranking: Ranking) -> Tensor | None:
        """The denominator of a linear measure, which the judgments determine: float64 [query]; None = 1."""
        return None

    @property
    def nonlinear_reason(self) -> str:
        """The reason why numerator and denominator do not define the value, as a clause; empty if they do."""
        if self.relative:
            return "whose cutoff depends on the list"
        return self.no_bounds_reason if self.linear() else NONLINEAR

    def need(self) -> Need:
        """The part of a ranking that the formula reads; by default all of it."""
        return Need()

    @functools.cached_property
    def required(self) -> Need:
        """The part of a ranking that the metric reads, in view of its treatment of unjudged candidates."""
        # If unjudged candidates are removed, others move up across the cutoff. Bounds need each unjudged candidate.
        return (
            self.need() if self.unjudged == "irrelevant" else Need(all_candidates=self.unjudged in ("lower", "upper"))
        )

    def empty(self, ranking: Ranking) -> Tensor:
        """bool [query]: True if the query has nothing to measure."""
        raise NotImplementedError(f"Expected {type(self).__name__} to define empty(ranking)")

    @property
    def no_bounds_reason(self) -> str:
        """The reason why bounds are not available, as a clause of the error message; empty if they are available."""
        return ""

    @property
    def reach_of_bounds(self) -> int | None:
        """The last rank at which bounds try the candidates one by one; None = bounds try all candidates."""
        return self.need().reach if self.monotone_behind else None

    def weight(self, ranking: Ranking) -> Tensor | None:
        """float64 [query]: the measure's weight of each query, multiplied by the user's weight; None = all are 1."""
        return None

    def errors(self, ranking: Ranking) -> Tensor:
        """int64 [kind]: counters of bad values, found by the ranking or by the measure itself."""
        return ranking.errors

    def resolve_ties(self, ranking: Ranking) -> Ranking:
        """The ranking that :meth:`measure` reads, with ties resolved by the policy."""
        return ranking.under(self.ties)

    @functools.cached_property
    def lower_is_better(self) -> bool:
        """Whether low values are good, before any inversion or adjustment. If so, an empty list must have no value."""
        return False in (type(self).higher_is_better, self.higher_is_better)

    @functools.cached_property
    def leaves_out_empty_lists(self) -> bool:
        """Whether queries for which nothing was retrieved do not count, even if they have relevant candidates."""
        return self.empty_target_action == "listed" or self.lower_is_better

    # ---- rank, score -------------------------------------------------------------------------------------------

    def per_query(self, ranking: Ranking) -> Values:
        """The values of the queries of a ranking. The value of an empty query is arbitrary until the policy sets it."""
        ranking = ranking.condensed() if self.unjudged == "condensed" else ranking
        if ranking.grade.is_floating_point() and hasattr(self, "relevance_level"):
            # Noted for a warning, if no query has a relevant candidate in the end.
            now = ranking.has_fractions()
            self._fractions = now if self._fractions is None else self._fractions.to(now.device) | now
        if self.relative:
            return self._of_each_cutoff(ranking, self.relative)
        weight = self.weight(ranking)
        if self.unjudged in ("lower", "upper"):
            values, empty = self._bound(self.values, ranking, self.reach_of_bounds)
        else:
            values, empty = self.unfilled(ranking)
        status = empty.view(torch.int8)
        if self.leaves_out_empty_lists:  # queries with an empty list are neither scored nor counted as empty
            absent = ranking.num_candidates == 0
            absent = absent > empty if math.isnan(FILLS[self.empty_target_action]) else absent
            status = torch.where(absent, scalar(Status.ABSENT, status.dtype, status.device), status)
        errors = self.errors(ranking) if self.validate_args else torch.zeros_like(ranking.errors)
        return Values(values, status, errors, weight)

    def _of_each_cutoff(self, ranking: Ranking, relative: str) -> Values:
        """As :meth:`per_query`, for each cutoff."""
        cuts, decided_by_ties = cutoffs(ranking, relative, self.label)
        parts = []
        for cut in cuts.masked_fill(decided_by_ties, -1).unique().tolist() or [1]:
            rows = (cuts == cut).logical_and(~decided_by_ties).nonzero().squeeze(-1)
            part = replace(ranking.take(rows), queries=rows)
            if cut == 0:  # the first candidate already costs too much: an empty list
                zeros = torch.zeros_like(part.first)
                part = replace(part, first=zeros + 1, tied=zeros, num_candidates=zeros[:, 0], complete=False)
            if len(rows) or not len(cuts):
                cut_off = self.changed(top_k=max(1, int(cut)))
                parts.append(replace(cut_off.per_query(part), queries=rows))
        rows = decided_by_ties.nonzero().squeeze(-1)
        if len(rows):
            parts.append(replace(self._over_ties(ranking.take(rows), quantity_of(relative)[0]), queries=rows))
        errors = self.errors(ranking) if self.validate_args else torch.zeros_like(ranking.errors)
        return replace(Values.join(parts), errors=errors)

    def _bound(self, values: Any, ranking: Ranking, reach: Any, tied: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The smallest or largest of the ``values`` of each query over all judgments, and whether it is empty."""
        level = getattr(self, "relevance_level", None)
        ends = None if self.linear() and type(self).denominator is RankingMetric.denominator else self.value_range
        return bound(values, ranking, self.unjudged == "upper", level, reach, self.label, tied, ends)

    def _over_ties(self, ranking: Ranking, budget: float) -> Values:
        """As :meth:`per_query`, if the order of tied candidates decides the cutoff by cost."""

        def mean(metric: RankingMetric, ranking: Ranking) -> tuple[Tensor, Tensor, Tensor]:
            """Value, whether it is empty, and weight of each query: the means over the orders in which it counts."""
            total, weights, chances, scored = ranking.num_candidates.new_zeros(4, ranking.num_queries)
            for query, chance, order in prefixes(ranking, budget, self.ties):
                found = metric.per_query(order)
                value = torch.where(found.status == Status.SCORED, found.values, FILLS[self.empty_target_action])
                value = value.masked_fill(found.status == Status.ABSENT, math.nan)
                chance = chance.masked_fill(value.isnan(), 0)
                weight = chance * found.own_weights
                total.index_add_(0, query, weight * value.nan_to_num())
                weights.index_add_(0, query, weight)
                chances.index_add_(0, query, chance)
                scored.index_add_(0, query, (found.status == Status.SCORED).to(total))
            return total / weights, scored == 0, weights / chances

        value, empty, weight = mean(self, ranking)  # of bounds: the means of the bounds of each order
        if self.unjudged in ("lower", "upper"):
            judged, group = self.changed(unjudged="irrelevant"), Cut.of(ranking, budget).group
            few = ((group & (ranking.grade < 0)).sum(-1) <= MOST_TIED).nonzero().squeeze(-1)
            if len(few):
                some, group = ranking.take(few), group[few]
                every = self.changed(top_k=1).reach_of_bounds is None
                reach = None if every else only(group, some.first).amax(-1, keepdim=True)
                value[few], empty[few] = self._bound(lambda r: mean(judged, r)[:2], some, reach, group)
        errors = torch.zeros_like(ranking.errors)
        return Values(value, empty.view(torch.int8), errors, None if self.weight(ranking) is None else weight)

    def values(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """The value of each query, float64 [query], and whether the query is empty, bool [query]."""
        value, empty = self.unfilled(ranking)
        return torch.where(empty, scalar(FILLS[self.empty_target_action], value.dtype, value.device), value), empty

    def unfilled(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """As :meth:`values`, with arbitrary values for empty queries."""
        resolved = ranking if ranking.untied else self.resolve_ties(ranking)
        if self.empty_without_denominator and type(self).measure is RankingMetric.measure:
            total, divisor = self.numerator(resolved), self.denominator(resolved)
            assert divisor is not None
            value, empty = total / divisor, divisor == 0
        else:
            value, empty = self.measure(resolved), self.empty(ranking)
        if not isinstance(value, Tensor) or value.shape != empty.shape:
            got = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            wanted = f"a tensor [query], here {len(empty)} values"
            raise ValueError(f"Expected {type(self).__name__}.measure to return {wanted}, got {got}")
        return value if value.is_floating_point() else value.to(torch.get_default_dtype()), empty

    @eager
    @with_options
    def score(self, preds: Array | Ranking, target: Target | None = None, **options: Unpack[Options]) -> Tensor:
        """The value of each query. The state is not changed: this is the functional interface.

        Takes the same arguments as :meth:`update`.

        Returns:
            float64 [query]; NaN if ``empty_target_action`` leaves the query out, or if its label is -100.

        Raises:
            TypeError, ValueError: as :meth:`update`; bad values raise at once.
        """
        return self.scored(Batch(preds, target, **options))

    @eager
    @bulk
    @with_options
    def update(self, preds: Array | Ranking, target: Target | None = None, **options: Unpack[Options]) -> None:
        """Add a batch of complete queries. Arrays and lists of numbers are accepted in place of tensors.

        A small batch of the shapes and dtypes of the one before is copied, and ranked together with others: at most
        4 MB wait on a CPU, and 64 MB on an accelerator, until somebody reads or changes the state, as :meth:`compute`
        does. You may write into your tensors at once. Wrong shapes and dtypes raise here; what only values can show is
        counted or warned of when the batch is ranked. The numbers are those of single batches up to 1e-12. Lists of
        tensors, rankings and batches in ``forward`` or a CUDA graph do not wait; with ``metric.waits = False`` none
        does. Of larger batches of labels on an accelerator the ranks wait, to be measured together.

        Args:
            preds: floating scores [query, candidate] or, with ``indexes`` or ``group_sizes``, [row]; integer ids
                [query, position], best first, negative = padding; or a :class:`Ranking`. Score -inf = not retrieved.
            target: grades [query, candidate] or [row]; int [query], the column (or id) of the positive, negative =
                no positive, but -100 leaves the query out, as in cross-entropy; a (query, item) or (query, item, grade)
                tuple of 1-D tensors; a sparse matrix of SciPy [query, item] with grades; a list with the ids of one
                query in each element; with ids as ``preds`` also [query, entry], negative = padding.
            mask: bool like ``preds``, or [candidate]; True for real candidates.
            indexes: int [row], the query of each flat row; queries count in ascending order of index.
            group_sizes: int [query], in place of ``indexes``: the number of rows of each query, one query after the
                other, as in LightGBM, XGBoost and CatBoost. The sizes are read, so pass them on the CPU.
            exclude: (query, item) tuple of 1-D tensors, a sparse matrix of SciPy [query, item] that is nonzero for each
                pair, or a list of one id tensor per query: pairs that are not candidates, unless they are relevant.
            tie_break: like ``preds``, or [candidate]: among equal scores the higher value ranks first.
            groups: int [candidate], [query, candidate] or [row], or with ids [id]: the same number for chunks of one
                document or variants of one product; negative = in no group. A group is ranked once, at the rank of its
                best candidate, with the largest grade of its candidates. ``target`` and ``exclude`` still refer to
                candidates, not groups: if you have grades [query, group], pass ``target[:, groups]``. Pass all relevant
                candidates, including those that were not retrieved: without them, recall is always 1.
            repeats: the treatment of an id that occurs again in the same list: "error"; "first" = later copies are left
                out, and the ids after them move up; "hold" = later copies keep their ranks and are not relevant.
            weights: [query], finite and >= 0; a query of weight 0 is ignored.

        Raises:
            TypeError: the type or dtype of an argument fits no layout.
            ValueError: shapes do not fit together, or lists are too long for ``unjudged="lower"`` or "upper". Bad
                values are counted and raise in :meth:`compute`.
        """
        batch = Batch(preds, target, **options)
        self.accumulate(score_batch([self], batch, values=False))
        if batch.indexes is not None:
            self.notice_cut(batch.indexes)

    if TYPE_CHECKING:

        @call_of(update, Tensor)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class RetrievedMetric(RankingMetric):
    """Base of measures of all retrieved candidates. A query for which nothing was retrieved is empty."""

    takes_unjudged_for: ClassVar[tuple[str, ...]] = ("irrelevant", "condensed")

    def need(self) -> Need:
        return Need(self.top_k)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_candidates == 0
