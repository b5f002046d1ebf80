"""What every metric shares: constructor, label, update, score, compute. A measure adds its formula on a Ranking."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrank.layouts import arrange
from torchrank.metrics import labels, state
from torchrank.metrics.state import JointReduction, Sum
from torchrank.problems import Problem, count, explain
from torchrank.ranking import TIES, Ranking

EMPTY_ACTIONS = ("neg", "pos", "skip", "error")
AGGREGATIONS = ("mean", "median", "min", "max", "none")


@dataclass(frozen=True, eq=False)
class Scored:
    """What a metric has made of one batch: its value for every query, before it becomes state."""

    #: float64 [query]; NaN where skipped
    values: Tensor
    #: float64 [query]: how much each query counts
    counts: Tensor
    #: bool [query]: nothing to measure
    empty: Tensor
    #: bool [query]: not weighted 0
    there: Tensor
    #: int64 [kind]
    errors: Tensor


class RankingMetric(Metric):
    """Base of all ranking metrics; a subclass gives its name, its range and :meth:`measure`.

    A metric averages a value per query. It keeps one small float64 vector of sums, whatever it has seen, so the result
    does not depend on how queries are split over batches and workers. A query arrives whole in one ``update``.

    Args:
        top_k: look at the first ``top_k`` ranks only; None = at all.
        ties: what a tie is worth: "expected" (the mean over all orders of the tied candidates), "optimistic",
            "pessimistic", or, for measures of single positions, "realistic" (the middle of the interval of ranks).
        empty_target_action: the value of a query without a relevant candidate: "neg" 0, "pos" 1, "skip" leaves the
            query out, "error" raises in ``compute``.
        aggregation: "mean", "median", "min", "max", "none" (the values themselves), or a callable with a name that
            takes values [query]. All but the mean keep per-query values.
        validate_args: count bad values (NaN, indices out of range, duplicates) and raise for them in ``compute``.
        kwargs: ``process_group``, ``dist_sync_fn``, ``sync_on_compute`` ... of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: an argument has a value that the metric does not know.
    """

    #: how labels call it
    name: ClassVar[str] = ""
    #: every measure by its name
    registry: ClassVar[dict[str, type[RankingMetric]]] = {}
    #: smallest and largest value
    value_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    #: whether it is about single positions, so that the middle of a tie is a meaningful rank
    of_positions: ClassVar[bool] = False

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("name"):
            cls.registry[cls.name] = cls
        low, high = cls.value_range
        cls.plot_lower_bound = low if math.isfinite(low) else None
        cls.plot_upper_bound = high if math.isfinite(high) else None

    def __init__(
        self,
        top_k: int | None = None,
        *,
        ties: str = "expected",
        empty_target_action: str = "neg",
        aggregation: str | Callable[[Tensor], Tensor] = "mean",
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        own = {name: kwargs.pop(name) for name in self.definition() if name in kwargs}
        super().__init__(**kwargs)
        if top_k is not None and (not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1):
            raise ValueError(f"Expected top_k to be an integer >= 1 or None, got {top_k!r}")
        if top_k is not None and not self.takes_top_k():
            raise ValueError(
                f"Expected no top_k for {type(self).__name__}, which the field has without a cut-off, got {top_k}"
            )
        one_of("ties", ties, TIES if self.of_positions else TIES[:3])
        one_of("empty_target_action", empty_target_action, EMPTY_ACTIONS)
        if not callable(aggregation):
            one_of("aggregation", aggregation, AGGREGATIONS, "or a callable with a name")
        one_of("validate_args", validate_args, (True, False))
        self.top_k = top_k
        self.ties = ties
        self.empty_target_action = empty_target_action
        self.aggregation = aggregation
        self.validate_args = validate_args
        for name, value in own.items():
            setattr(self, name, value)

        # torchmetrics.MetricCollection takes metrics whose states have equal names, and equal values after the first
        # batch, for one and the same. So the names carry the label; the colon keeps them apart from attributes.
        callables = [value for name in self.definition() if callable(value := getattr(self, name))]
        self._label = self.label + "".join(f"#{number}" for value in callables if (number := labels.namesake(value)))
        self.add_state(f"{self._label}:sums", state.nothing(self.device), dist_reduce_fx="sum")
        if aggregation != "mean":
            self.add_state(f"{self._label}:values", [], dist_reduce_fx="cat")
        self._joint: JointReduction | None = None
        self._problems: Tensor | None = None

    # ---- what it is --------------------------------------------------------------------------------------------

    @classmethod
    @functools.cache
    def definition(cls) -> dict[str, Any]:
        """The arguments that make the number, with their defaults, the measure's own first."""
        found: dict[str, Any] = {}
        for owner in cls.__mro__:
            if issubclass(owner, RankingMetric) and "__init__" in owner.__dict__:
                for name, parameter in inspect.signature(owner.__init__).parameters.items():
                    if parameter.kind is parameter.KEYWORD_ONLY and name != "validate_args":
                        found.setdefault(name, parameter.default)
        return found

    @classmethod
    def takes_top_k(cls) -> bool:
        """Whether the field has the measure with a cut-off."""
        return "top_k" in inspect.signature(cls).parameters

    @property
    def label(self) -> str:
        """Name, parameters that differ from their defaults, and cut-off: ``map(normalize=min)@10``."""
        differing = {k: getattr(self, k) for k, default in self.definition().items() if getattr(self, k) != default}
        return labels.write(self.name, differing, self.top_k)

    def measure(self, ranking: Ranking) -> Tensor:
        """The formula: float64 [query]. Its ties are settled by :attr:`ties`, or "expected": still intervals."""
        raise NotImplementedError

    def empty(self, ranking: Ranking) -> Tensor:
        """bool [query]: there is nothing to measure."""
        raise NotImplementedError

    def counts(self, ranking: Ranking) -> Tensor:
        """float64 [query]: how much each query counts in the mean, besides its weight."""
        return torch.ones_like(ranking.num_candidates)

    def problems(self, ranking: Ranking) -> Tensor:
        """Counters of bad values that only the measure comes across: int64 [kind]."""
        return torch.zeros_like(ranking.errors)

    def settled(self, ranking: Ranking) -> Ranking:
        """The ranking as :meth:`measure` takes it."""
        return ranking.under(self.ties)

    def extra_repr(self) -> str:
        return self.label

    # ---- rank, score -------------------------------------------------------------------------------------------

    def scored(self, ranking: Ranking) -> Scored:
        """Values of the queries of a ranking, with the policy for empty ones applied."""
        empty = self.empty(ranking)
        fill = {"neg": 0.0, "pos": 1.0}.get(self.empty_target_action, float("nan"))
        values = torch.where(empty, fill, self.measure(self.settled(ranking)))
        there = torch.ones_like(empty)
        return Scored(values, self.counts(ranking), empty, there, ranking.errors + self.problems(ranking))

    def joined(self, parts: list[Scored], weights: Tensor | None, validate: bool) -> Scored:
        """The blocks of a batch as one, each query counted with its weight."""
        names = ("values", "counts", "empty", "there")
        values, counts, empty, there = (torch.cat([getattr(part, name) for part in parts]) for name in names)
        errors = torch.stack([part.errors for part in parts]).sum(0)
        if weights is not None:
            if not isinstance(weights, Tensor) or weights.shape != values.shape:
                got = list(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
                raise ValueError(f"Expected weights of shape [{len(values)}], one per query, got {got}")
            weight = weights.detach().to(values)
            bad = ~(weight.isfinite() & (weight >= 0))
            errors = errors + count(Problem.BAD_WEIGHTS, bad) * validate
            counts, there = counts * weight.masked_fill(bad, 0.0), weight > 0
        if self.empty_target_action == "error":
            errors = errors + count(Problem.EMPTY_QUERIES, empty & there)
        return Scored(values, counts, empty, there, errors)

    def score(
        self,
        preds: Tensor | Ranking,
        target: Any = None,
        *,
        mask: Tensor | None = None,
        indexes: Tensor | None = None,
        exclude: tuple[Tensor, Tensor] | None = None,
        tie_break: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The value of each query, without touching the state: the functional interface.

        Takes what :meth:`update` takes.

        Returns:
            float64 [query]; NaN where ``empty_target_action="skip"`` skips.

        Raises:
            TypeError, ValueError: as :meth:`update`, and for bad values at once.
        """
        rankings = ranked(
            preds, target, mask=mask, indexes=indexes, exclude=exclude, tie_break=tie_break, validate=self.validate_args
        )
        with torch.no_grad():
            result = self.joined([self.scored(ranking) for ranking in rankings], weights, self.validate_args)
        return self.checked(result).values

    def checked(self, result: Scored) -> Scored:
        """The same, unless it has met bad values: they raise ValueError. Looks at them, so not for ``update``."""
        if found := explain(result.errors):
            raise ValueError(f"{self.label}: {found}")
        return result

    # ---- average -----------------------------------------------------------------------------------------------

    def update(
        self,
        preds: Tensor | Ranking | Scored,
        target: Any = None,
        *,
        mask: Tensor | None = None,
        indexes: Tensor | None = None,
        exclude: tuple[Tensor, Tensor] | None = None,
        tie_break: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Add a batch of whole queries.

        Args:
            preds: floating scores [query, candidate] or, with ``indexes``, [row]; integer ids [query, position], best
                first, negative = padding; or a :class:`Ranking`. A score of -inf = not retrieved.
            target: grades [query, candidate] or [row]; int [query], the column (or id) of the positive, negative =
                none; a (query, item) or (query, item, grade) tuple of 1-D tensors; a list of one id tensor per query;
                beside ids also [query, entry], negative = padding.
            mask: bool like ``preds``, True for real candidates.
            indexes: int [row], the query of each flat row; queries count in ascending order of index.
            exclude: (query, item) tuple of 1-D tensors: pairs that are no candidates, unless they are relevant.
            tie_break: like ``preds``, or [candidate]: the larger ranks first among equal scores.
            weights: [query], finite and >= 0; 0 = as if the query were not there.

        Raises:
            TypeError: an argument has a type or dtype that no layout has.
            ValueError: shapes do not fit together. Bad values are counted and raise in :meth:`compute`.
        """
        if isinstance(preds, Scored):
            result = preds
        else:
            rankings = ranked(
                preds,
                target,
                mask=mask,
                indexes=indexes,
                exclude=exclude,
                tie_break=tie_break,
                validate=self.validate_args,
            )
            result = self.joined([self.scored(ranking) for ranking in rankings], weights, self.validate_args)
        if self._joint is not None:
            self._joint.revoke()
        values, there = result.values, result.there
        skipped = ~there | (result.empty & values.isnan())
        weight = torch.where(skipped, 0.0, result.counts)
        counted = torch.where(weight > 0, values, 0.0)
        sums = state.summed(counted, weight, there.sum(), (result.empty & there).sum(), result.errors)
        self._set("sums", state.add(self.sums, sums.to(self.sums.device)))
        if self.rows is not None:
            rows = torch.stack([torch.where(skipped, float("nan"), values), weight], dim=-1)
            self._set("values", [*self.rows, rows.detach()])

    def compute(self) -> Tensor:
        """The aggregate of all queries, of all workers.

        Returns:
            float32 []; NaN if no query was scored. With ``aggregation="none"`` float32 [query], NaN where skipped.

        Raises:
            ValueError: bad values were met, on whatever worker: how many of which kind. The metric can go on.
        """
        sums = state.read(self.sums)
        self._problems = sums[Sum.PROBLEMS :]
        if self.rows is None:
            value = state.mean(sums)
        else:
            rows = torch.cat([sums.new_empty((0, 2)), *(row.to(sums.device) for row in self.rows)])
            value = state.aggregate(self.aggregation, rows[:, 0], rows[:, 1])
        return torch.where(self._problems.sum() > 0, float("nan"), value).to(torch.float32)

    @property
    def num_queries(self) -> int:
        """Queries seen by this worker, empty ones too; inside ``with metric.sync_context():`` by all workers."""
        return int(state.read(self.sums)[Sum.QUERIES])

    @property
    def num_empty(self) -> int:
        """Queries among :attr:`num_queries` in which there was nothing to measure."""
        return int(state.read(self.sums)[Sum.EMPTY])

    @property
    def standard_error(self) -> Tensor:
        """Standard error of the mean over queries, float32 []; in ``with metric.sync_context():`` of all workers'."""
        sums = state.read(self.sums)
        skipped = sums[Sum.EMPTY] if self.empty_target_action == "skip" else 0
        return state.standard_error(sums, sums[Sum.QUERIES] - skipped).to(torch.float32)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one value, or a list of values over time, with the bounds of the measure; needs matplotlib."""
        if isinstance(val, list | tuple):
            val = [torch.as_tensor(value) for value in val]
        figure, axes = self._plot(torch.as_tensor(val) if isinstance(val, float) else val, ax)
        axes.set_ylabel(self.label)  # type: ignore[union-attr]
        return figure, axes

    # ---- the state, kept against what torchmetrics would do to it --------------------------------------------------

    @property
    def sums(self) -> Tensor:
        """The state, see :class:`torchrank.metrics.state.Sum`."""
        return getattr(self, f"{self._label}:sums")

    @property
    def rows(self) -> list[Tensor] | None:
        """Per-query (value, weight) of every batch, or None where a mean needs none."""
        return None if self.aggregation == "mean" else getattr(self, f"{self._label}:values")

    def _set(self, part: str, value: Tensor | list[Tensor]) -> None:
        setattr(self, f"{self._label}:{part}", value)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_label" in self.__dict__ and (name == "top_k" or name in self.definition()):
            raise AttributeError(f"{name} is part of what {self._label} is and names its state: make a new metric")
        super().__setattr__(name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return its own value; NaN if it holds bad values. A call that raises leaves no trace."""
        if self._is_synced:
            return super().forward(*args, **kwargs)  # which refuses
        before = {name: list(value) if isinstance(value, list) else value for name, value in self.metric_state.items()}
        before |= {name: getattr(self, name) for name in ("_update_count", "compute_on_cpu")}
        try:
            return super().forward(*args, **kwargs)
        except Exception:
            for name, value in before.items():
                setattr(self, name, value)
            self._is_synced, self._computed = False, None
            self._to_sync, self._should_unsync, self._enable_grad = self.sync_on_compute, True, False
            raise

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        stock = super()._wrap_compute(compute)

        @functools.wraps(compute)
        def computed(*args: Any, **kwargs: Any) -> Any:
            if self._to_sync and self.distributed_available_fn():
                self._computed = None  # a worker that answers from its cache would let the others wait
            try:
                value = stock(*args, **kwargs)
            except Exception:  # of the user's aggregation
                self.unsync(self._is_synced and self._should_unsync)
                raise
            in_forward = not self._should_unsync
            if not in_forward and self._problems is not None and (found := explain(self._problems)):
                self._computed = None
                raise ValueError(f"{self.label}: {found}")
            return value.reshape(-1) if self.aggregation == "none" else value  # torchmetrics squeezes one value

        return computed

    def reducible(self) -> bool:
        """Whether its state may be reduced together with others' now."""
        return self.dist_sync_fn is None and self.sync_on_compute and not self._is_synced

    def reduce_with(self, joint: JointReduction) -> None:
        """Share the synchronisation with other metrics."""
        self._joint = joint

    def reset(self) -> None:
        """Forget all batches."""
        super().reset()
        if self._joint is not None and self._should_unsync:  # not within forward, which resets and restores
            self._joint.forget()

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        if dist_sync_fn is not gather_all_tensors:  # the user's own
            if self.rows is not None:
                parts = [row.to(self.sums.device) for row in self.rows]
                self._set("values", [torch.cat([self.sums.new_empty((0, 2)), *parts])])
            super()._sync_dist(dist_sync_fn, process_group)
            if self.rows is not None:
                self._set("values", [getattr(self, f"{self._label}:values")])
            return
        in_forward = not self._should_unsync  # the others have not had this batch yet
        joint = JointReduction([self]) if in_forward or self._joint is None else self._joint
        sums, rows = joint.reduce(self, process_group or self.process_group)
        self._set("sums", sums)
        if rows is not None:
            self._set("values", rows)

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        for name, incoming in incoming_state.items():  # which is what came before: forward keeps the past aside
            setattr(self, name, _after(incoming, getattr(self, name)))

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the state of another metric of the same label, whose queries come after this one's.

        Raises:
            ValueError: the other has another label.
        """
        for name, value in self.mergeable(incoming_state).items():
            setattr(self, name, _after(getattr(self, name), value))
        self._computed = None
        self._update_count += incoming_state._update_count if isinstance(incoming_state, Metric) else 1

    def mergeable(self, other: dict[str, Any] | Metric) -> dict[str, Any]:
        """The state of a metric of the same label; of any other, ValueError."""
        theirs = other.metric_state if isinstance(other, Metric) else other
        if not isinstance(theirs, dict) or theirs.keys() != self._defaults.keys():
            raise ValueError(f"Expected the state of another {self._label}, got {getattr(other, 'label', other)!r}")
        return theirs

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Any:
        def move(x: Tensor) -> Tensor:
            device = fn(torch.empty(0, dtype=torch.float32, device=x.device)).device
            is_state = x.dtype == torch.float64 or x.shape == (2, state.SIZE)
            return state.carry(x, device) if is_state else x.to(device)

        return super()._apply(move, exclude_state)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = [name for name in self._defaults if prefix + name in state_dict]
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        for name in saved:
            value = getattr(self, name)
            moved = [state.carry(v, self.device) for v in ([value] if isinstance(value, Tensor) else value)]
            setattr(self, name, moved[0].clone() if isinstance(value, Tensor) else moved)
        if saved:
            self._computed = None
            self._update_count = max(1, self._update_count)

    def __getstate__(self) -> dict[str, Any]:
        # A copy is on its own: it does not drag along the metrics that this one is reduced with.
        return {**super().__getstate__(), "_joint": None, "_problems": None}


def _after(earlier: Tensor | list[Tensor], later: Tensor | list[Tensor]) -> Tensor | list[Tensor]:
    """Two values of one state as one, on the device of the earlier."""
    if isinstance(earlier, list) and isinstance(later, list):
        return [*earlier, *later]
    assert isinstance(earlier, Tensor)
    assert isinstance(later, Tensor)
    return state.add(earlier, state.carry(later, earlier.device))


def ranked(preds: Tensor | Ranking, target: Any, *, validate: bool, **layout: Any) -> Iterable[Ranking]:
    """The rankings of a batch, block by block, from any layout."""
    if not isinstance(preds, Ranking):
        return Ranking.blocks(arrange(preds, target, validate=validate, **layout))
    given = [name for name, value in {"target": target, **layout}.items() if value is not None]
    if given:
        raise ValueError(f"Expected nothing but weights beside a Ranking, got {', '.join(given)}")
    return [preds]


def one_of(argument: str, value: object, known: Iterable[object], also: str = "") -> None:
    """Raise ValueError unless an argument has a known value."""
    if value not in (known := tuple(known)):
        raise ValueError(
            f"Expected {argument} to be one of {', '.join(map(repr, known))} {also}".rstrip() + f", got {value!r}"
        )
