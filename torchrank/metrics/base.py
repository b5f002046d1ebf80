"""The base of all measures of rankings. It ranks and averages; a measure adds its formula on a :class:`Ranking`."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import torch
from torch import Tensor

from torchrank.formulas.judgment_bounds import bound
from torchrank.hardware.devices import scalar
from torchrank.hardware.graphs import eager
from torchrank.layouts.arrange import Batch
from torchrank.layouts.canonical import Need
from torchrank.names.labels import quantity_of
from torchrank.names.parameters import cutoff, one_of, parameter
from torchrank.names.types import Aggregation, Array, EmptyAction, Pairs, Repeats, Target, Ties, Unjudged, call_of
from torchrank.ranking.arithmetic import ratio
from torchrank.ranking.budgets import MOST_TIED
from torchrank.ranking.ranking import Ranking
from torchrank.state.measure import Measure
from torchrank.state.rank_tables import LONGEST
from torchrank.state.scoring import score_batch
from torchrank.state.values import FILLS, Status, Values

#: a clause of error messages on bounds of differences
NONLINEAR = "whose value is not a sum over candidates with weights that judgments do not change"


class RankingMetric(Measure):
    """The arguments and methods that all ranking metrics share.

    A metric averages one value per query. Its state is one small float64 vector of sums, so the result does not depend
    on the way in which queries are split into batches and over workers. All rows of a query must arrive in one
    :meth:`update`. On several workers, :meth:`compute` and :meth:`interval` describe all workers, but
    :attr:`standard_error`, :attr:`num_queries` and :attr:`num_empty` only the worker that reads them, except inside
    ``with metric.sync_context()``.

    For a measure of your own, see :mod:`torchrank.extend`.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them; "10%" = that share of the retrieved candidates
            of each query, rounded up; "2000tok" = the first candidates that cost at most 2000 together, of a ranking by
            ``Ranking.from_scores(..., cost=...)``. The last two read values.
        ties: the rule for tied candidates: "expected" (the mean over all their orders), "optimistic", "pessimistic",
            or, for measures of single positions, "realistic" (the middle of the interval of ranks).
        empty_target_action: the value of a query without a relevant candidate: "neg" = 0; "pos" = 1; "skip" leaves the
            query out; "error" raises in ``compute``; "listed" = 0, but every query for which nothing was retrieved is
            left out, even if it has relevant candidates. Measures whose low values are good leave out such a query
            under every policy.
        aggregation: "mean"; "geometric", in which values below 1e-5 count as 1e-5; "harmonic"; "sum", of weight x
            value; "median", the lower of two middle values; "midpoint", halfway between them; "min"; "max"; "none", the
            values themselves; or a callable with a name that takes values [query]. All except the three means and the
            sum keep per-query values.
        unjudged: the treatment of candidates with a negative grade: "irrelevant"; "condensed", removed from the list
            (Sakai, SIGIR 2007), as are all candidates that the layout does not name; "lower" and "upper", the smallest
            and largest value over all possible judgments of them.
        validate_args: count bad values (NaN, indices out of range, duplicates) and raise for them in ``compute``.
        process_group, dist_sync_fn, distributed_available_fn, sync_on_compute, dist_sync_on_step, compute_on_cpu,
            compute_with_cache: as :class:`torchmetrics.Metric`.

    Raises:
        ValueError: an argument has an unknown value.
    """

    #: all measures by name
    registry: ClassVar[dict[str, type[RankingMetric]]] = {}
    #: the tie policies that the measure supports
    policies: ClassVar[tuple[str, ...]] = ("expected", "optimistic", "pessimistic")
    #: the treatments of unjudged candidates that the measure supports
    takes_unjudged_for: ClassVar[tuple[str, ...]] = get_args(Unjudged)
    #: whether the ranks behind the reach of :meth:`need` matter only by their number of relevant candidates, and a
    #: larger number never raises the value of a query that is not empty; so it is for a sum that a larger number never
    #: divides by less, :meth:`numerator` over :meth:`denominator`; not inherited with another :meth:`measure`
    monotone_behind: ClassVar[bool] = False

    #: whether :meth:`empty` is where the :meth:`denominator` is 0; both are computed once then
    empty_without_denominator: ClassVar[Any] = False

    #: method of (preds, target) that raises for a layout from which the measure cannot be computed; None = any will do
    check: ClassVar[Any] = None

    top_k: int | None = cutoff(default=None, kw_only=False)
    ties: Ties = one_of(default="expected", among=lambda cls: cls.policies)
    empty_target_action: EmptyAction = parameter(default="neg")
    aggregation: Aggregation = parameter(default="mean")
    unjudged: Unjudged = one_of(default="irrelevant", among=lambda cls: cls.takes_unjudged_for)
    validate_args: bool = parameter(default=True, labelled=False)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if vars(cls).keys() & {"measure", "numerator"} and "monotone_behind" not in vars(cls):
            cls.monotone_behind = "measure" not in vars(cls)
        super().__init_subclass__(**kwargs)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.top_k, str):
            self.relative, self.top_k = self.top_k, None

    def begin(self, known: str = "") -> None:
        if self.unjudged in ("lower", "upper") and (why := self.no_bounds_reason):
            raise ValueError(
                f"Expected unjudged to be 'irrelevant' or 'condensed' for {self.label}, {why}, got {self.unjudged!r}"
            )
        super().begin(known)

    # ---- the definition of a measure -----------------------------------------------------------------------------

    def measure(self, ranking: Ranking) -> Tensor:
        """The formula: float64 [query]. ``ties`` was applied already; under "expected", ranks are still intervals.

        By default :meth:`numerator` / :meth:`denominator`, and 0 where the denominator is 0.
        """
        total, divisor = self.numerator(ranking), self.denominator(ranking)
        return total if divisor is None else ratio(total, divisor)

    @classmethod
    def linear(cls) -> bool:
        """Whether :meth:`numerator` and :meth:`denominator` define the measure."""
        return cls.measure is RankingMetric.measure and cls.numerator is not RankingMetric.numerator

    def numerator(self, ranking: Ranking) -> Tensor:
        """The value of a linear measure, up to its denominator: float64 [query].

        It is a sum over the candidates, each with its gain times a weight that the judgments do not change.
        """
        raise NotImplementedError(f"Expected {type(self).__name__} to define measure(ranking)")

    def denominator(self, ranking: Ranking) -> Tensor | None:
        """The divisor of a linear measure, which the judgments determine: float64 [query]; None = 1."""
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
        # Removing candidates moves others up from behind the cutoff. Bounds need an entry for each unjudged candidate.
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
        """The reach behind which bounds need not try the candidates one by one; None = they try all."""
        return self.need().reach if self.monotone_behind else None

    def weight(self, ranking: Ranking) -> Tensor | None:
        """float64 [query]: the weight of each query in the mean, to be multiplied by the user's; None = 1 for each."""
        return None

    def errors(self, ranking: Ranking) -> Tensor:
        """int64 [kind]: counters of bad values, found by the ranking or by the measure itself."""
        return ranking.errors

    def resolve_ties(self, ranking: Ranking) -> Ranking:
        """The ranking that :meth:`measure` reads, with ties resolved by the policy."""
        return ranking.under(self.ties)

    def of_one_rank(self) -> bool:
        """Whether the rank of one relevant candidate of grade 1 decides the value, which is 0 behind ``top_k``.

        The length of the list may matter only if the candidate is not retrieved. Then values are looked up by rank. A
        class that does not define it itself is never looked up.
        """
        return False

    @functools.cached_property
    def lower_is_better(self) -> bool:
        """Whether low values are good, before they are inverted or adjusted: then an empty list must have no value."""
        return False in (type(self).higher_is_better, self.higher_is_better)

    @functools.cached_property
    def leaves_out_empty_lists(self) -> bool:
        """Whether queries for which nothing was retrieved do not count, whatever is relevant for them."""
        return self.empty_target_action == "listed" or self.lower_is_better

    @functools.cached_property
    def rank_decides(self) -> bool:
        """Whether values for one relevant candidate can be looked up by its rank."""
        if self.relative or "of_one_rank" not in vars(type(self)) or not self.of_one_rank():
            return False
        usual = self.ties != "realistic" and self.empty_target_action != "listed" and self.unjudged == "irrelevant"
        # A label has grade 1, so above level 1 every query is empty, and the policy decides the value.
        usual = usual and getattr(self, "relevance_level", 1) <= 1
        # Tables have one value for all queries without a relevant candidate, whether or not something was retrieved.
        usual = usual and not (self.lower_is_better and self.empty_target_action in ("neg", "pos"))
        return usual and (self.top_k is None or self.top_k <= LONGEST)

    # ---- rank, score -------------------------------------------------------------------------------------------

    def per_query(self, ranking: Ranking) -> Values:
        """The values of the queries of a ranking. Those of empty queries mean nothing until the policy sets them."""
        ranking = ranking.condensed() if self.unjudged == "condensed" else ranking
        if self.relative:
            return self._of_each_cutoff(ranking, self.relative)
        if self.unjudged in ("lower", "upper"):
            # the grade of an unjudged candidate that is assumed to be relevant
            worth = max(1, getattr(self, "relevance_level", 1))
            values, empty = bound(
                self.values, ranking, self.unjudged == "upper", worth, self.reach_of_bounds, self.label
            )
        else:
            values, empty = self.unfilled(ranking)
        status = empty.view(torch.int8)
        if self.leaves_out_empty_lists:  # they are neither scored nor counted as empty
            absent = ranking.num_candidates == 0
            absent = absent > empty if math.isnan(FILLS[self.empty_target_action]) else absent
            status = torch.where(absent, scalar(Status.ABSENT, status.dtype, status.device), status)
        errors = self.errors(ranking) if self.validate_args else torch.zeros_like(ranking.errors)
        return Values(values, status, errors, self.weight(ranking))

    def _of_each_cutoff(self, ranking: Ranking, relative: str) -> Values:
        """:meth:`per_query` of the queries of each cutoff; the mean over the orders of a tie group that decides it."""
        cuts, decided_by_ties = ranking.cutoffs(relative, self.label)
        found = []
        for cut in cuts.masked_fill(decided_by_ties, -1).unique().tolist() or [1]:
            rows = (cuts == cut).logical_and(~decided_by_ties).nonzero().squeeze(-1)
            part = replace(ranking.take(rows), queries=rows, errors=torch.zeros_like(ranking.errors))
            if cut == 0:  # nothing fits: an empty list
                none = torch.zeros_like(part.first)
                part = replace(part, first=none + 1, tied=none, num_candidates=none[:, 0], complete=False)
            cut_off = object.__new__(type(self))  # the same measure, to be used for its formula only
            vars(cut_off).update(vars(self), relative=None, top_k=max(1, int(cut)))
            if len(rows) or not len(cuts):
                found.append(replace(cut_off.per_query(part), queries=rows))
        for row in decided_by_ties.nonzero():
            assert ranking.costs is not None
            orders = ranking.costs.orders(int(row), quantity_of(relative)[0]) if self.ties == "expected" else None
            if orders is None:
                wanted = f"ties='expected', and at most {MOST_TIED} ties of different costs at the end of {relative}"
                raise ValueError(f"Expected {wanted}, for {self.label}; pass tie_break to Ranking.from_scores")
            each = [self.per_query(Ranking.from_scores(**one)) for one in orders]
            mean = torch.stack([one.values for one in each]).mean(0)
            found.append(replace(each[0], values=mean, errors=torch.zeros_like(ranking.errors), queries=row))
        joined = Values.join([Values.stack([one], one.queries) for one in found])
        errors = self.errors(ranking) if self.validate_args else torch.zeros_like(ranking.errors)
        return replace(next(iter(joined.each())), errors=errors)

    def values(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """The value of each query, float64 [query], and whether the query is empty, bool [query]."""
        value, empty = self.unfilled(ranking)
        return torch.where(empty, scalar(FILLS[self.empty_target_action], value.dtype, value.device), value), empty

    def unfilled(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """As :meth:`values`, with any value for empty queries."""
        resolved = self.resolve_ties(ranking)
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

    def score(
        self,
        preds: Array | Ranking,
        target: Target | None = None,
        *,
        mask: Array | None = None,
        indexes: Array | None = None,
        group_sizes: Array | None = None,
        exclude: Pairs | None = None,
        tie_break: Array | None = None,
        groups: Array | None = None,
        repeats: Repeats = "error",
        weights: Array | None = None,
    ) -> Tensor:
        """The value of each query. The state is not changed: this is the functional interface.

        Takes the same arguments as :meth:`update`.

        Returns:
            float64 [query]; NaN if ``empty_target_action`` leaves the query out, or if its label is -100.

        Raises:
            TypeError, ValueError: as :meth:`update`; bad values raise at once.
        """
        batch = Batch(preds, target, weights, mask, indexes, exclude, tie_break, group_sizes, groups, repeats)
        return self.scored(batch)

    @eager
    def update(
        self,
        preds: Array | Ranking,
        target: Target | None = None,
        *,
        mask: Array | None = None,
        indexes: Array | None = None,
        group_sizes: Array | None = None,
        exclude: Pairs | None = None,
        tie_break: Array | None = None,
        groups: Array | None = None,
        repeats: Repeats = "error",
        weights: Array | None = None,
    ) -> None:
        """Add a batch of whole queries. Arrays and lists of numbers count as tensors.

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
                other, as LightGBM, XGBoost and CatBoost count them. They are read, so give them on the CPU.
            exclude: (query, item) tuple of 1-D tensors, a sparse matrix of SciPy [query, item], not 0 for each pair, or
                a list of one id tensor per query: pairs that are not candidates, unless they are relevant.
            tie_break: like ``preds``, or [candidate]: among equal scores the higher value ranks first.
            groups: int [candidate], [query, candidate] or [row], or with ids [id]: equal for chunks of one document
                or variants of one product, negative = alone. A group is ranked once, where its best candidate is, with
                the largest grade of its candidates. ``target`` and ``exclude`` still name candidates, not groups:
                grades of groups [query, group] are ``target[:, groups]``. Give all relevant candidates, also those
                that were not retrieved: over the retrieved ones alone recall is 1.
            repeats: what is done with an id that is in a list again: "error"; "first" = later copies are left out and
                the ids behind them move up; "hold" = they keep their place and are not relevant.
            weights: [query], finite and >= 0; a query of weight 0 is ignored.

        Raises:
            TypeError: the type or dtype of an argument fits no layout.
            ValueError: shapes do not fit together, or lists are too long for ``unjudged="lower"`` or "upper". Bad
                values are counted and raise in :meth:`compute`.
        """
        batch: Any = preds
        if not isinstance(preds, Batch):
            batch = Batch(preds, target, weights, mask, indexes, exclude, tie_break, group_sizes, groups, repeats)
        self.accumulate(batch.results.get(id(self)) or score_batch([self], batch, values=False)[0])
        if indexes is not None:
            self.notice_cut(batch)

    if TYPE_CHECKING:

        @call_of(update, Tensor)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class RetrievedMetric(RankingMetric):
    """Base of measures of all retrieved candidates. A query for which nothing was retrieved is empty."""

    takes_unjudged_for: ClassVar[tuple[str, ...]] = ("irrelevant", "condensed")

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_candidates == 0
