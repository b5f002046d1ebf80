"""What every measure shares: constructor, label, score, update. A measure adds its formula on a Ranking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, get_args

import torch
from torch import Tensor

from torchrank.formulas.judgment_bounds import bound
from torchrank.layouts.batch import Batch
from torchrank.layouts.canonical import Need
from torchrank.names.parameters import one_of, parameter
from torchrank.names.types import Aggregation, EmptyAction, Pairs, Target, Ties, Unjudged, call_of
from torchrank.ranking.ranking import Ranking
from torchrank.state.measure import Measure
from torchrank.state.scoring import BatchResult, Measured, Status, result_for, score_batch


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
        """Why bounds are not available, as a clause for the error message; empty if they are."""
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

    def measured(self, ranking: Ranking) -> Measured:
        """The queries of a ranking, measured, with the policy for empty ones applied."""
        ranking = ranking.condensed() if self.unjudged == "condensed" else ranking
        if self.unjudged in ("lower", "upper"):
            worth = max(1, getattr(self, "relevance_level", 1))
            values, empty = bound(self.values, ranking, self.unjudged == "upper", worth)
        else:
            values, empty = self.values(ranking)
        status = empty.to(torch.int8)
        if self.empty_target_action == "listed":
            absent = ranking.num_candidates == 0
            values, status = values.masked_fill(absent, float("nan")), status.masked_fill(absent, Status.ABSENT)
        errors = self.errors(ranking) if self.validate_args else torch.zeros_like(ranking.errors)
        return Measured(values, self.weight(ranking), status, errors)

    def with_extra_sums(self, result: BatchResult, extra: Tensor) -> BatchResult:
        """The result of a batch with its further sums, of ``extra`` [number, query]."""
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

    def of_batch(self, batch: Batch) -> BatchResult:
        return score_batch([self], batch)[0]

    def update(
        self,
        preds: Tensor | Ranking,
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
        options = {"mask": mask, "indexes": indexes, "exclude": exclude, "tie_break": tie_break}
        batch = Batch(preds, target, weights, options)
        self.accumulate(result_for(self) or score_batch([self], batch, values=False)[0])

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
